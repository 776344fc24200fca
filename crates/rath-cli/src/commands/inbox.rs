use anyhow::Result;
use rath::body::{About, Asked};
use rath::store::{Posted, Query};
use rath::{Point, View};
use serde_json::json;

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// List what waits for a person: questions of all sessions, and what was posted and not yet taken
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Inbox {
    /// Only this session
    session: Option<String>,
}

impl Inbox {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let rows = match &self.session {
            Some(session) => {
                let id = expression::resolve_session(&store, session).await?;
                store.sessions(rath::store::Which::Id(id).into()).await?
            }
            None => store.sessions(Query::default()).await?,
        };
        let (mut page, mut lines) = (Page::default(), Vec::new());
        for row in rows.iter().filter(|row| !row.closed) {
            let view = View::of(&store, row.id, None).await?;
            for ask in view.pending().asks {
                let record = View::of(&store, row.id, Some(ask.seq)).await?;
                let asked: Asked = record.record().body()?;
                let shown = record.content(&asked.shown).await?;
                let header = record.record().header()?;
                let point = Point { session: row.id, seq: ask.seq };
                lines.push(json!({
                    "session": row.id, "asked": ask.record, "at": point, "about": ask.about, "call": ask.call,
                    "always": ask.always, "rule": asked.policy, "shown": shown, "shown_digest": ask.shown_digest, "time": header.time, "by": header.actor,
                }));
                let how = match ask.about {
                    About::Approval if ask.always.is_some() => "yes | no | always",
                    About::Approval => "yes | no",
                    About::InDoubt => "yes | no | TEXT",
                    About::Question => "TEXT",
                };
                page.line(format_args!(
                    "{} {} {}",
                    style::record(point),
                    style::title(row.title.as_deref().map_or("(untitled)".into(), output::harmless)),
                    style::dim(format!(
                        "{}, {}",
                        time::local(header.time),
                        output::harmless(&header.actor.to_string())
                    ))
                ));
                for line in output::harmless(&shown).lines() {
                    page.line(format_args!("    {line}"));
                }
                page.line(style::dim(format!("    rath answer {point} {how}")));
            }
            for post in store.posts(row.id).await? {
                let what = match &post.what {
                    Posted::Answer { .. } | Posted::Always { .. } => "an answer".to_owned(),
                    Posted::Message { text } => format!("a message: {text}"),
                    Posted::Cancel { why } => format!("a wish to stop: {why}"),
                    Posted::Label { .. } => "a label".to_owned(),
                };
                page.line(format_args!(
                    "{} {}",
                    style::session(row.id.short()),
                    style::dim(output::harmless(&format!("posted by {}, not yet taken: {what}", post.actor)))
                ));
                lines.push(json!({ "session": row.id, "post": post }));
            }
        }
        match settings.json {
            true => output::json_lines(lines)?,
            false if lines.is_empty() => output::remark("nothing waits for a person"),
            false => page.show(settings)?,
        }
        Ok(Answer::Yes)
    }
}
