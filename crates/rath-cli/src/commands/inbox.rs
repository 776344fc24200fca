use anyhow::Result;
use rath::body::About;
use rath::control::{Control, InboxEntry, Question, QueuedPost};
use rath::store::Posted;

use super::Answer;
use super::answer::explained;
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
        let session = match &self.session {
            Some(session) => Some(expression::resolve_session(&store, session).await?),
            None => None,
        };
        let entries = Control::new(&store, settings.actor()).inbox(session).await.map_err(explained)?;
        if settings.json {
            output::json_lines(entries)?;
            return Ok(Answer::Yes);
        }
        if entries.is_empty() {
            output::remark("nothing waits for a person");
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for entry in &entries {
            match entry {
                InboxEntry::Question { question, title } => asked(&mut page, question, title.as_deref()),
                InboxEntry::Post(post) => queued(&mut page, post),
            }
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

fn asked(page: &mut Page, question: &Question, title: Option<&str>) {
    let point = question.at;
    let how = match question.about {
        About::Approval if question.always.is_some() => "yes | no | always",
        About::Approval => "yes | no",
        About::InDoubt => "yes | no | TEXT",
        About::Question => "TEXT",
        About::Unknown(_) => "(by a later version of rath)",
    };
    let by = output::harmless(&question.by.to_string());
    page.line(format_args!(
        "{} {} {}",
        style::record(point),
        style::title(title.map_or("(untitled)".into(), output::harmless)),
        style::dim(format!("{}, {by}", time::local(question.time)))
    ));
    for line in output::harmless(&question.shown).lines() {
        page.line(format_args!("    {line}"));
    }
    page.line(style::dim(format!("    rath answer {point} {how}")));
}

fn queued(page: &mut Page, QueuedPost { session, post }: &QueuedPost) {
    let what = match &post.what {
        Posted::Answer { .. } | Posted::Always { .. } => "an answer".to_owned(),
        Posted::Message { text } => format!("a message: {text}"),
        Posted::Cancel { why } => format!("a wish to stop: {why}"),
        Posted::Label { .. } => "a label".to_owned(),
        Posted::Unknown(what) => format!("{what}, which waits for a version of rath that knows it"),
    };
    page.line(format_args!(
        "{} {}",
        style::session(session.short()),
        style::dim(output::harmless(&format!("posted by {}, not yet taken: {what}", post.actor)))
    ));
}
