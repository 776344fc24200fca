//! A record in one line.

use crate::blob::Content;
use crate::body::{
    About, Answered, Arrived, Asked, Assistant, Block, CallOutcome, Cancelled, Checkpointed, Choice, Closed,
    Compressed, Created, Detached, Erased, Exit, Failed, Forked, Granted, Held, Imported, Labelled, Linked, Manner,
    Merged, ModelFailed, ModelRequested, ModelResponded, Note, Outcome, Placed, Rejected, Released, Resolved, Restored,
    Sampled, SandboxClosed, SandboxLost, SandboxOpened, StepEntered, StepLeft, System, ToolFinished, ToolResult,
    ToolStarted, User, Verdict, Why,
};
use crate::files::Changes;
use crate::kind::Kind;
use crate::record::{Fault, Record};
use serde_json::Value;

/// What `record` says, in one line without its time and place.
pub fn of(record: &Record) -> String {
    let kind = record.kind();
    match describe(record) {
        Ok(text) if text.is_empty() => kind.to_string(),
        Ok(text) => format!("{kind}: {}", one_line(&text)),
        Err(Fault::Erased) => format!("{kind}: (erased)"),
        Err(_) => format!("{kind}: (cannot be read)"),
    }
}

/// What is different between two JSON values, one line each, by path.
pub(crate) fn differences(then: &Value, now: &Value, path: &str, into: &mut Vec<String>) {
    let name = |value: &Value| value.get("name").and_then(Value::as_str).map(str::to_owned);
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (then, now) {
        (then, now) if then == now => {}
        (Value::Object(then), Value::Object(now)) => {
            let keys: std::collections::BTreeSet<_> = then.keys().chain(now.keys()).collect();
            for key in keys {
                let (then, now) = (then.get(key).unwrap_or(&Value::Null), now.get(key).unwrap_or(&Value::Null));
                differences(then, now, &below(key), into);
            }
        }
        (Value::Array(then), Value::Array(now)) if then.iter().chain(now).all(|value| name(value).is_some()) => {
            for gone in then.iter().filter(|value| !now.iter().any(|other| name(other) == name(value))) {
                into.push(format!("{path}: {} is gone", name(gone).unwrap_or_default()));
            }
            for value in now {
                match then.iter().find(|other| name(other) == name(value)) {
                    Some(other) => differences(other, value, &below(&name(value).unwrap_or_default()), into),
                    None => into.push(format!("{path}: {} is new", name(value).unwrap_or_default())),
                }
            }
        }
        (then, now) => {
            let short = |value: &Value| {
                let text = one_line(&value.to_string());
                if text.chars().count() > 200 {
                    format!("{}…", text.chars().take(200).collect::<String>())
                } else {
                    text
                }
            };
            into.push(format!("{path}: {} was recorded, now it is {}", short(then), short(now)));
        }
    }
}

/// `text` on one line.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn describe(record: &Record) -> Result<String, Fault> {
    Ok(match record.kind() {
        Kind::Created => record.body::<Created>()?.title.unwrap_or_default(),
        Kind::Forked => {
            let body: Forked = record.body()?;
            join(&format!("from {}", body.from), &body.why)
        }
        Kind::Detached => {
            let body: Detached = record.body()?;
            join(&format!("from {}", body.from.point()), &body.why)
        }
        Kind::Imported => {
            let body: Imported = record.body()?;
            let name = body.name.unwrap_or_else(|| body.source.digest.to_string());
            match body.repairs.len() {
                0 => format!("{name} ({})", body.from),
                1 => format!("{name} ({}), 1 repair", body.from),
                repairs => format!("{name} ({}), {repairs} repairs", body.from),
            }
        }
        Kind::Linked => {
            let Ok(body) = record.body::<Linked>() else { return Ok(String::new()) };
            join(
                &[body.system.as_str(), body.uri.as_deref().unwrap_or_default()].join(" "),
                &body.why.unwrap_or_default(),
            )
        }
        Kind::Merged => {
            let body: Merged = record.body()?;
            let branches: Vec<_> = body.branches.iter().map(|branch| branch.head().to_string()).collect();
            match body.how {
                Manner::Append => format!("{} appended", branches.join(", ")),
                Manner::Synthesize => format!("{} to be made one", branches.join(", ")),
                Manner::TakeIn => format!("{} taken in", branches.join(", ")),
                Manner::Keep { chosen } if chosen == record.session() => {
                    format!("kept this line over {}", branches.join(", "))
                }
                Manner::Keep { chosen } => format!("kept {} of {}", chosen.short(), branches.join(", ")),
            }
        }
        Kind::Closed => {
            let body: Closed = record.body()?;
            match (body.merged_into, body.why) {
                (Some(merged), _) => format!("merged into {}", merged.point()),
                (None, why) => why.unwrap_or_default(),
            }
        }
        Kind::Rejected => {
            let body: Rejected = record.body()?;
            join(&body.branch.point().to_string(), &body.why)
        }
        Kind::Labelled => {
            let body: Labelled = record.body()?;
            let title = body.title.map(|title| format!("title {title:?}"));
            let set = body.set.into_iter().map(|(name, value)| match value.as_str() {
                "" => name,
                _ => format!("{name}={value}"),
            });
            title
                .into_iter()
                .chain(set)
                .chain(body.unset.iter().map(|name| format!("-{name}")))
                .collect::<Vec<_>>()
                .join(" ")
        }
        Kind::System => record.body::<System>()?.text.to_string(),
        Kind::User => {
            let User { text, attached, .. } = record.body()?;
            attached.iter().fold(text.to_string(), |text, attached| format!("{text} {attached}"))
        }
        Kind::Assistant => {
            let body: Assistant = record.body()?;
            let block = |block: &Block| match block {
                Block::Text { text } => text.to_string(),
                Block::Reasoning { .. } => "(thinks)".to_owned(),
                Block::ToolUse { name, arguments, .. } => format!("→ {name}({arguments})"),
                Block::Image { .. } => "[picture]".to_owned(),
            };
            body.blocks.iter().map(block).collect::<Vec<_>>().join(" ")
        }
        Kind::ToolResult => {
            let body: ToolResult = record.body()?;
            let shown = body.shown.map(|shown| shown.to_string()).unwrap_or_default();
            join(&format!("[{}]{}", body.call, if body.failed { " failed" } else { "" }), &shown)
        }
        Kind::ModelResponded => {
            let body: ModelResponded = record.body()?;
            join(&body.model.unwrap_or_default(), &body.usage.to_string())
        }
        Kind::ModelRequested => {
            let body: ModelRequested = record.body()?;
            let again = body.attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
            format!("{} is shown {}{again}", body.model, body.view)
        }
        Kind::ModelFailed => {
            let body: ModelFailed = record.body()?;
            join(&body.why, if body.retried { "(asked again)" } else { "" })
        }
        Kind::Asked => {
            let body: Asked = record.body()?;
            let about = match body.about {
                About::Approval => "may this be done?",
                About::InDoubt => "did this happen?",
                About::Question => "",
            };
            join(about, &body.shown.to_string())
        }
        Kind::Answered => {
            let body: Answered = record.body()?;
            let verdict = match body.verdict {
                Verdict::Yes => "yes".to_owned(),
                Verdict::No => "no".to_owned(),
                Verdict::Text(text) => text.to_string(),
            };
            join(&verdict, &body.why.map(|why| format!("({why})")).unwrap_or_default())
        }
        Kind::Granted => format!("always: {}", record.body::<Granted>()?.allows),
        Kind::Arrived => {
            let Arrived { from, lines, .. } = record.body()?;
            match lines.len() as u64 {
                0 => format!("from {from}: place, permissions and answers of before do not count here"),
                some => format!("{} from {from}", counted(some, "session")),
            }
        }
        Kind::Checkpointed => {
            let line = record.body::<Checkpointed>()?.line;
            let unreadable = |why: crate::checkpoint::NotACheckpoint| Fault::Unreadable(why.to_string());
            let it = crate::checkpoint::Checkpoint::parse(&line).map_err(unreadable)?;
            let text = format!("{}: {} records in {} sessions", it.no, it.records, it.sessions);
            join(&text, &it.note.map(|note| format!("({note})")).unwrap_or_default())
        }
        Kind::Sampled => {
            let body: Sampled = record.body()?;
            format!("{} = {}", body.what, body.value)
        }
        Kind::Failed => record.body::<Failed>()?.why,
        Kind::Compressed => {
            let body: Compressed = record.body()?;
            let Compressed { replaces, summary } = body;
            join(
                &format!("{} items from {} to {}", replaces.count, replaces.first, replaces.last),
                &summary.to_string(),
            )
        }
        Kind::StepEntered => record.body::<StepEntered>()?.title(),
        Kind::StepLeft => {
            let StepLeft { outcome, value, .. } = record.body()?;
            let outcome = match outcome {
                Outcome::Done => "done",
                Outcome::Failed => "failed",
                Outcome::Cancelled => "cancelled",
            };
            join(outcome, &value.map(|value| format!("= {value}")).unwrap_or_default())
        }
        Kind::Cancelled => record.body::<Cancelled>()?.reason().to_owned(),
        Kind::Note => record.body::<Note>()?.text.to_string(),
        Kind::ToolStarted => {
            let body: ToolStarted = record.body()?;
            let place = if body.isolated == Some(false) { "(not isolated)" } else { "" };
            let outside = match body.outside.total {
                0 => String::new(),
                paths => format!("(after {paths} changed outside)"),
            };
            join(&join(&call(&body.tool, body.arguments.as_ref()), place), &outside)
        }
        Kind::ToolFinished => {
            let body: ToolFinished = record.body()?;
            let ended = match (body.outcome, body.exit) {
                _ if body.beyond.is_some() => beyond(&body),
                (CallOutcome::Lost, _) => "nobody saw it end".to_owned(),
                (CallOutcome::TimedOut, _) => "timed out".to_owned(),
                (CallOutcome::Cancelled, _) => "stopped".to_owned(),
                (_, Some(Exit::Code(code))) => format!("exit {code}"),
                (_, Some(Exit::Signal(signal))) => format!("killed by signal {signal}"),
                (CallOutcome::Done, None) => "done".to_owned(),
                (CallOutcome::Failed, None) => "failed".to_owned(),
            };
            join(&join(&ended, &changed(&body.changed)), &refused(&body))
        }
        Kind::Placed => {
            let body: Placed = record.body()?;
            let origin = match (&body.origin, body.in_place) {
                (Some(origin), true) => format!("in {origin}"),
                (Some(origin), false) => format!("in a copy of {origin}"),
                (None, _) => String::new(),
            };
            let unisolated = if body.isolated { "" } else { ", not isolated" };
            let setup = body.setup.map(|line| format!("with the setup `{line}`")).unwrap_or_default();
            join(&join(&format!("on {}{unisolated}", body.backend), &origin), &setup)
        }
        Kind::SandboxOpened => {
            let body: SandboxOpened = record.body()?;
            let isolation = match (&body.isolation, body.isolated) {
                (Some(isolation), true) => format!(", isolated by {isolation}"),
                (None, true) => String::new(),
                (_, false) => ", not isolated".to_owned(),
            };
            format!("{} on {}{isolation}, generation {}", body.sandbox.id, body.backend, body.sandbox.generation)
        }
        Kind::SandboxClosed => {
            let body: SandboxClosed = record.body()?;
            join(&body.sandbox.id, &body.why)
        }
        Kind::SandboxLost => {
            let body: SandboxLost = record.body()?;
            join(&body.sandbox.id, &body.why)
        }
        Kind::Restored => {
            let body: Restored = record.body()?;
            let why = match body.why {
                Why::Asked => "",
                Why::Undo => "undo",
                Why::Recovered => "finished after a crash",
                Why::Resumed => "before a call is made again",
            };
            let to = body.point.map_or_else(|| body.workspace.to_string(), |point| format!("as after {point}"));
            join(&join(why, &to), &changed(&body.changed))
        }
        Kind::Resolved => {
            let body: Resolved = record.body()?;
            let choice = match body.choice {
                Choice::Ours => "this line's side",
                Choice::Theirs => "the branch's side",
                Choice::Base => "what both began with",
                Choice::Remove => "removed",
                Choice::Content => "decided by hand",
            };
            format!("{}: {choice}", body.path)
        }
        Kind::Erased => {
            let body: Erased = record.body()?;
            let records: u64 = body.records.iter().map(|gone| gone.to - gone.from + 1).sum();
            let mut what = Vec::new();
            if records > 0 {
                what.push(counted(records, "record"));
            }
            if !body.sessions.is_empty() {
                what.push(format!("{} whole", counted(body.sessions.len() as u64, "session")));
            }
            if body.posts > 0 {
                what.push(counted(body.posts, "waiting message"));
            }
            let rule = body.rule.map(|rule| format!(" by {rule}")).unwrap_or_default();
            join(&format!("{}{rule}", what.join(", ")), &format!("({})", body.why))
        }
        Kind::Held => {
            let Held { sessions, labels, why, until } = record.body()?;
            let sessions = sessions.iter().map(|session| session.short().to_string());
            let what: Vec<_> = sessions.chain(labels.iter().map(|label| format!("label {label}"))).collect();
            let until = until.map(|until| format!(" until {until}")).unwrap_or_default();
            join(&format!("{}{until}", what.join(", ")), &format!("({why})"))
        }
        Kind::Released => {
            let Released { holds, why } = record.body()?;
            join(&counted(holds.len() as u64, "hold"), &format!("({why})"))
        }
        _ => String::from_utf8_lossy(record.body_bytes().ok_or(Fault::Erased)?).into_owned(),
    })
}

fn counted(number: u64, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

fn join(first: &str, then: &str) -> String {
    match (first, then) {
        ("", only) | (only, "") => only.to_owned(),
        (first, then) => format!("{first} {then}"),
    }
}

/// A call in a line: a command as it was typed, any other tool by its name.
pub(crate) fn call(tool: &str, content: Option<&Content>) -> String {
    match tool {
        "exec" => format!("$ {}", arguments(content)),
        _ => join(tool, &arguments(content)),
    }
}

/// A command line, where the arguments are one.
fn arguments(content: Option<&Content>) -> String {
    #[derive(serde::Deserialize)]
    struct Line {
        argv: Option<Vec<String>>,
        shell: Option<String>,
    }
    let Some(content) = content else { return String::new() };
    let Content::Text(text) = content else { return content.to_string() };
    match serde_json::from_str::<Line>(text) {
        Ok(Line { shell: Some(shell), .. }) => shell,
        Ok(Line { argv: Some(argv), .. }) => argv.join(" "),
        _ => text.clone(),
    }
}

/// The limit that a call was stopped for.
fn beyond(body: &ToolFinished) -> String {
    let limit = body.beyond.as_deref().unwrap_or_default();
    format!("stopped beyond its limit of {}", limit.split(':').next().unwrap_or(limit))
}

/// What a call was refused, in a few words.
fn refused(body: &ToolFinished) -> String {
    const SHOWN: usize = 3;
    let mut calls: Vec<_> =
        body.refused.iter().take(SHOWN).map(|refused| format!("{} ×{}", refused.what, refused.times)).collect();
    match body.refused.len() {
        0 => return String::new(),
        count if count > SHOWN => calls.push(format!("{} more", count - SHOWN)),
        _ => {}
    }
    format!("(refused: {})", calls.join(", "))
}

/// What files a record changed, in a few words.
fn changed(changes: &Changes) -> String {
    match (changes.total, &changes.paths[..]) {
        (0, _) => String::new(),
        (1..=3, paths) if changes.is_complete() => {
            let paths: Vec<_> = paths.iter().map(|change| format!("{} {}", change.letter(), change.path)).collect();
            format!("[{}]", paths.join(", "))
        }
        (total, _) => format!("[{total} paths]"),
    }
}
