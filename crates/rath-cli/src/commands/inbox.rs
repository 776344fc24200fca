use anyhow::Result;
use rath::body::QuestionKind;
use rath::control::{Control, InboxEntry, Question, QueuedPost};
use rath::inspect::WaitingFor;
use rath::store::PostContent;

use super::Answer;
use super::answer::explained;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// List open questions, queued messages, events and waits
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
            output::json_list("rath.inbox/1", entries)?;
            return Ok(Answer::Yes);
        }
        if entries.is_empty() {
            output::remark("no open questions, queued messages or waits");
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        for entry in &entries {
            match entry {
                InboxEntry::Question { question, title } => asked(&mut page, question, title.as_deref()),
                InboxEntry::Wait { wait, title, .. } => waiting(&mut page, wait, title.as_deref()),
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
        QuestionKind::Approval if question.always.is_some() => "yes | no | always",
        QuestionKind::Approval => "yes | no",
        QuestionKind::OutcomeUnknown => "yes | no | TEXT",
        QuestionKind::Question => "TEXT",
        QuestionKind::Unknown(_) => "(of a later version of rath)",
    };
    let by = output::escaped(&question.by.to_string());
    page.line(format_args!(
        "{} {} {}",
        style::record(point),
        style::title(title.map_or("(untitled)".into(), output::escaped)),
        style::dim(format!("{}, {by}", time::local(question.time)))
    ));
    for line in output::escaped(&question.shown).lines() {
        page.line(format_args!("    {line}"));
    }
    page.line(style::dim(format!("    rath answer {point} {how}")));
}

fn waiting(page: &mut Page, WaitingFor { at, wait }: &WaitingFor, title: Option<&str>) {
    let what = match (&wait.name, wait.until) {
        (Some(name), _) => format!("event {name}"),
        (None, Some(until)) => time::local(until),
        (None, None) => wait.what.to_string(),
    };
    page.line(format_args!(
        "{} {} {}",
        style::record(*at),
        style::title(title.map_or("(untitled)".into(), output::escaped)),
        style::dim(output::escaped(&format!("waits for {what}")))
    ));
    if let Some(name) = &wait.name {
        let command = format!("    rath send {} --event {} JSON", at.session.short(), output::escaped(name));
        page.line(style::dim(command));
    }
}

fn queued(page: &mut Page, QueuedPost { session, post }: &QueuedPost) {
    let what = match &post.what {
        PostContent::Answer { .. } | PostContent::Always { .. } => "an answer".to_owned(),
        PostContent::Message { text } => format!("a message: {text}"),
        PostContent::Cancel { why } => format!("a cancellation: {why}"),
        PostContent::Label { .. } => "a label".to_owned(),
        PostContent::Event { name, value } => format!("event {name} with the value {value}"),
        PostContent::Unknown(what) => format!("{what}, which needs a later version of rath"),
    };
    page.line(format_args!(
        "{} {}",
        style::session(session.short()),
        style::dim(output::escaped(&format!("queued by {}, not delivered yet: {what}", post.actor)))
    ));
}
