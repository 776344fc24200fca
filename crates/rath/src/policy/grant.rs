//! What "always" would allow, and whether a permission covers a call.

use rath_core::Digest;
use rath_core::body::{Grant, Scope};
use serde_json::Value;

use super::command::Line;
use super::place::Place;
use super::wish::{Paths, Seen, Wish};

/// Programs whose first argument says what they do.
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

/// First arguments that run what comes after them.
const RUNNERS: &[&str] = &["exec", "run", "x", "dlx", "tool", "config", "alias", "api"];

/// What "always" allows when it is said about this call, as narrow as it is useful.
pub fn offer(wish: &Wish<'_>) -> Grant {
    let seen = Seen::of(wish);
    let scope = match (&seen.line, &seen.paths) {
        (Some(line), _) => of_line(line),
        (None, Paths::Known(places)) => match places.as_slice() {
            [Place::Inside(path)] if seen.secret().is_none() => directory(path),
            _ => None,
        },
        (None, Paths::Unknown(_)) => None,
    };
    let scope = scope.unwrap_or_else(|| Scope::Same { arguments: digest(&seen.arguments) });
    Grant { tool: seen.tool.into(), effect: seen.effect, scope }
}

fn of_line(line: &Line) -> Option<Scope> {
    let [part] = line.parts.as_slice() else { return None };
    let (program, subcommand) = (part.first()?, part.get(1)?);
    let is_plain = subcommand.starts_with(|c: char| c.is_ascii_lowercase())
        && subcommand.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    let known = WITH_SUBCOMMANDS.contains(&program.as_str()) && !RUNNERS.contains(&subcommand.as_str());
    (line.sure && known && is_plain).then(|| Scope::Command { words: vec![program.clone(), subcommand.clone()] })
}

fn directory(path: &str) -> Option<Scope> {
    path.rsplit_once('/').map(|(directory, _)| Scope::Below { directory: directory.to_owned() })
}

/// Whether a permission covers a call.
pub fn covers(grant: &Grant, wish: &Wish<'_>) -> bool {
    if grant.tool != wish.tool || wish.effect > grant.effect {
        return false;
    }
    let seen = Seen::of(wish);
    match &grant.scope {
        Scope::Same { arguments } => digest(&seen.arguments) == *arguments,
        Scope::Command { words } => match &seen.line {
            Some(line) if line.sure => matches!(line.parts.as_slice(), [part] if part.starts_with(words)),
            _ => false,
        },
        // What a later version allows cannot be told here.
        Scope::Unknown(_) => false,
        Scope::Below { directory } => {
            let below = |place: &Place| match place {
                Place::Inside(path) => path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/')),
                Place::Outside(_) => false,
            };
            match &seen.paths {
                Paths::Known(places) => !places.is_empty() && places.iter().all(below) && seen.secret().is_none(),
                Paths::Unknown(_) => false,
            }
        }
    }
}

fn digest(arguments: &Value) -> Digest {
    Digest::of(arguments.to_string().as_bytes())
}
