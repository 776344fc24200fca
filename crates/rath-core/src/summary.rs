//! A record in one line.

use crate::body::{
    Assistant, Block, Cancelled, Closed, Compressed, Created, Detached, Forked, Labelled, Manner, Merged,
    ModelResponded, Note, Outcome, Rejected, StepEntered, StepLeft, System, ToolResult, User,
};
use crate::kind::Kind;
use crate::record::{Fault, Record};

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
        Kind::Merged => {
            let body: Merged = record.body()?;
            let branches: Vec<_> = body.branches.iter().map(|branch| branch.head().to_string()).collect();
            match body.how {
                Manner::Append => format!("{} appended", branches.join(", ")),
                Manner::Synthesize => format!("{} to be made one", branches.join(", ")),
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
        Kind::User => record.body::<User>()?.text.to_string(),
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
        Kind::Compressed => {
            let body: Compressed = record.body()?;
            let Compressed { replaces, summary } = body;
            join(
                &format!("{} items from {} to {}", replaces.count, replaces.first, replaces.last),
                &summary.to_string(),
            )
        }
        Kind::StepEntered => record.body::<StepEntered>()?.name,
        Kind::StepLeft => match record.body::<StepLeft>()?.outcome {
            Outcome::Done => "done".into(),
            Outcome::Failed => "failed".into(),
            Outcome::Cancelled => "cancelled".into(),
        },
        Kind::Cancelled => record.body::<Cancelled>()?.why,
        Kind::Note => record.body::<Note>()?.text.to_string(),
        _ => String::from_utf8_lossy(record.body_bytes().ok_or(Fault::Erased)?).into_owned(),
    })
}

fn join(first: &str, then: &str) -> String {
    match (first, then) {
        ("", only) | (only, "") => only.to_owned(),
        (first, then) => format!("{first} {then}"),
    }
}
