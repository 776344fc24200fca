//! Grants: what the answer "always" allows, and whether a grant covers a call.

use rath_core::Digest;
use rath_core::body::{Grant, Scope};
use serde_json::Value;

use super::command::CommandLine;
use super::path_ref::PathRef;
use super::proposed_call::{CallFacts, Paths, ProposedCall};

/// Programs whose first argument is a subcommand.
const WITH_SUBCOMMANDS: &[&str] = &[
    "apt",
    "brew",
    "cargo",
    "docker",
    "gh",
    "git",
    "go",
    "kubectl",
    "npm",
    "pip",
    "pnpm",
    "poetry",
    "terraform",
    "uv",
    "yarn",
];

/// Subcommands that run commands or code from the arguments after them.
const RUNNERS: &[&str] = &["exec", "run", "x", "dlx", "tool", "config", "alias", "api"];

/// The grant that the answer "always" to this call makes: the narrowest one that is useful.
pub fn suggest_grant(call: &ProposedCall<'_>) -> Grant {
    let facts = CallFacts::of(call);
    let scope = match (&facts.line, &facts.paths) {
        (Some(line), _) => of_line(line),
        (None, Paths::Known(path_refs)) => match path_refs.as_slice() {
            [PathRef::Inside(path)] if facts.secret().is_none() => directory(path),
            _ => None,
        },
        (None, Paths::Unknown(_)) => None,
    };
    let scope = scope.unwrap_or_else(|| Scope::Same { arguments: digest(&facts.arguments) });
    Grant { tool: facts.tool.into(), effect: facts.effect, scope }
}

fn of_line(line: &CommandLine) -> Option<Scope> {
    let [part] = line.parts.as_slice() else { return None };
    let (program, subcommand) = (part.first()?, part.get(1)?);
    let is_plain = subcommand.starts_with(|c: char| c.is_ascii_lowercase())
        && subcommand.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let known = WITH_SUBCOMMANDS.contains(&program.as_str()) && !RUNNERS.contains(&subcommand.as_str());
    (line.parsed && known && is_plain).then(|| Scope::Command { words: vec![program.clone(), subcommand.clone()] })
}

fn directory(path: &str) -> Option<Scope> {
    path.rsplit_once('/').map(|(directory, _)| Scope::Below { directory: directory.to_owned() })
}

/// Whether a grant covers a call.
pub fn covers(grant: &Grant, call: &ProposedCall<'_>) -> bool {
    if grant.tool != call.tool || call.effect > grant.effect {
        return false;
    }
    let facts = CallFacts::of(call);
    match &grant.scope {
        Scope::Same { arguments } => digest(&facts.arguments) == *arguments,
        Scope::Command { words } => match &facts.line {
            Some(line) if line.parsed => matches!(line.parts.as_slice(), [part] if part.starts_with(words)),
            _ => false,
        },
        // A scope of a later version covers nothing here.
        Scope::Unknown(_) => false,
        Scope::Below { directory } => {
            let below = |path_ref: &PathRef| match path_ref {
                PathRef::Inside(path) => path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')),
                PathRef::Outside(_) => false,
            };
            match &facts.paths {
                Paths::Known(path_refs) => {
                    !path_refs.is_empty() && path_refs.iter().all(below) && facts.secret().is_none()
                }
                Paths::Unknown(_) => false,
            }
        }
    }
}

fn digest(arguments: &Value) -> Digest {
    Digest::of(arguments.to_string().as_bytes())
}
