use anyhow::Result;
use rath::body::QuestionKind;
use rath::control::{Answer as Given, Control, Delivery, Error, Question};
use rath::{Point, SessionId};
use serde::Serialize;

use super::Answer as Exit;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Answer a question of a session
///
/// The answer is `yes`, `no`, `always`, or a text. `always` allows this call and the later calls that the question names,
/// in this session and in forks that are made of it from now on. An answer is bound to the exact text of the question.
/// The first answer counts; a later one is recorded and changes nothing. A question about a call is answered by its
/// record, SESSION@SEQ, as `rath inbox` shows it, because the session may ask something else in the meantime.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Answer {
    /// The record of the question; for a single question that is not about a call, the session is enough
    #[arg(value_name = "QUESTION")]
    session: String,
    /// yes, no, always, or a text
    answer: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

impl Answer {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Exit> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.session).await?;
        let control = Control::new(&store, settings.actor());
        let question = match place.exact {
            true => control.question_at(Point { session: place.session, seq: place.seq }).await.map_err(explained)?,
            false => the_one(control.questions_of(place.session).await.map_err(explained)?, place.session)?,
        };
        if !control.is_open(&question).await.map_err(explained)? {
            output::remark("the question was answered before: this answer is recorded and changes nothing");
        }
        let given = match (self.answer.to_ascii_lowercase().as_str(), question.about) {
            ("always", QuestionKind::Approval) => Given::Always,
            ("yes" | "y", _) => Given::Yes,
            ("no" | "n", _) => Given::No,
            _ => Given::Text(self.answer),
        };
        let delivery = control.answer_because(&question, given, self.why).await.map_err(explained)?;
        report(settings, &delivery)?;
        Ok(Exit::Yes)
    }
}

/// The one question of a session that can be answered without naming its record.
fn the_one(mut asks: Vec<Question>, session: SessionId) -> Result<Question> {
    match (asks.pop(), asks.is_empty()) {
        (None, _) => {
            anyhow::bail!(
                "session {} has no open question\n  help: `rath inbox` lists the open questions",
                session.short()
            )
        }
        (Some(one), true) if one.about == QuestionKind::Question => Ok(one),
        (Some(one), true) => Err(expression::usage_error(format!(
            "this answer decides about a call: name the record of the question that you have read\n  help: `rath inbox`, then `rath answer {} …`",
            one.at
        ))),
        (Some(last), false) => {
            asks.push(last);
            let places: Vec<_> = asks.iter().map(|ask| ask.at.to_string()).collect();
            Err(expression::usage_error(format!(
                "session {} has several open questions: name one of {}",
                session.short(),
                places.join(", ")
            )))
        }
    }
}

/// The error with what to do about it.
pub(super) fn explained(error: Error) -> anyhow::Error {
    match error {
        Error::Session(error) => error.into(),
        Error::NotAQuestion(_) => anyhow::anyhow!("{error}\n  help: `rath inbox` lists the open questions"),
        Error::NoAlways(_) => expression::usage_error("this question does not offer \"always\": answer yes or no"),
        Error::YesOrNo(_) => expression::usage_error(
            "this is a yes-or-no question: answer yes, no, or always where it is offered; give details with --why",
        ),
        Error::AskedElsewhere(at) => {
            anyhow::anyhow!("{error}\n  help: `rath resume {}` asks again", at.session.short())
        }
        Error::NotJson(_) => expression::usage_error(format!("{error}\n  help: quote a text twice: '\"yes\"'")),
        Error::NoEventName | Error::EventTooLarge(_) => expression::usage_error(error.to_string()),
        error => error.into(),
    }
}

/// Prints whether a post was recorded or queued.
pub(super) fn report(settings: &Settings, delivery: &Delivery) -> Result<()> {
    report_with(settings, delivery, ())
}

/// Like [`report`], with more fields in the JSON answer.
pub(super) fn report_with(settings: &Settings, delivery: &Delivery, fields: impl Serialize) -> Result<()> {
    #[derive(Serialize)]
    struct Reported<'a, M> {
        #[serde(flatten)]
        delivery: &'a Delivery,
        #[serde(flatten)]
        fields: M,
    }
    match delivery {
        Delivery::Recorded(head) if !settings.json => return output::answer(head.point()),
        Delivery::Queued { holder: Some(holder), .. } => {
            output::remark(format_args!("{} for {holder}", style::good("queued")));
        }
        Delivery::Queued { holder: None, .. } => {
            output::remark(format_args!("{} until the session is resumed", style::good("queued")));
        }
        Delivery::Recorded(_) | Delivery::NothingToStop { .. } => {}
    }
    if settings.json { output::json("rath.delivery/1", &Reported { delivery, fields }) } else { Ok(()) }
}
