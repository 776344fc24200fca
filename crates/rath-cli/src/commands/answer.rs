use anyhow::Result;
use rath::body::About;
use rath::control::{Answer as Given, Control, Delivery, Error, Question};
use rath::{Point, SessionId};
use serde::Serialize;

use super::Answer as Exit;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Answer a question that a session asks
///
/// `yes`, `no`, `always`, or words. `always` is yes to this call and to those that the question says it allows, on this
/// session and forks that are made of it later. The answer binds to exactly what was shown. The first answer counts; a late one is kept and
/// changes nothing. What allows or repeats a call is answered at its record, SESSION@SEQ, as `rath inbox` shows it: by
/// then the session may ask something else.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Answer {
    /// The record that asks; the session will do where it asks one thing that is not about a call
    session: String,
    /// yes, no, always, or words
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
            output::remark("it was answered before: this answer is kept, and changes nothing");
        }
        let given = match (self.answer.to_ascii_lowercase().as_str(), question.about) {
            ("always", About::Approval) => Given::Always,
            ("yes" | "y", _) => Given::Yes,
            ("no" | "n", _) => Given::No,
            _ => Given::Text(self.answer),
        };
        let delivery = control.answer_because(&question, given, self.why).await.map_err(explained)?;
        say(settings, &delivery)?;
        Ok(Exit::Yes)
    }
}

/// The one question of a session that can be answered without naming its record.
fn the_one(mut asks: Vec<Question>, session: SessionId) -> Result<Question> {
    match (asks.pop(), asks.is_empty()) {
        (None, _) => {
            anyhow::bail!("session {} asks nothing\n  help: `rath inbox` lists what is asked", session.short())
        }
        (Some(one), true) if one.about == About::Question => Ok(one),
        (Some(one), true) => Err(expression::unclear(format!(
            "this answer decides on a call: name what you have read\n  help: `rath inbox`, then `rath answer {} …`",
            one.at
        ))),
        (Some(last), false) => {
            asks.push(last);
            let places: Vec<_> = asks.iter().map(|ask| ask.at.to_string()).collect();
            Err(expression::unclear(format!(
                "session {} asks several things: name one of {}",
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
        Error::NotAQuestion(_) => anyhow::anyhow!("{error}\n  help: `rath inbox` lists what is asked"),
        Error::NoAlways(_) => expression::unclear("this question offers no \"always\": answer yes or no"),
        Error::YesOrNo(_) => expression::unclear(
            "this is a yes-or-no question: answer yes or no, or always where it is offered, and say more with --why",
        ),
        Error::AskedElsewhere(at) => {
            anyhow::anyhow!("{error}\n  help: `rath resume {}` asks again", at.session.short())
        }
        error => error.into(),
    }
}

/// Prints what became of it.
pub(super) fn say(settings: &Settings, delivery: &Delivery) -> Result<()> {
    say_more(settings, delivery, ())
}

/// Prints what became of it: in words, or as JSON with more fields.
pub(super) fn say_more(settings: &Settings, delivery: &Delivery, more: impl Serialize) -> Result<()> {
    #[derive(Serialize)]
    struct Said<'a, M> {
        #[serde(flatten)]
        delivery: &'a Delivery,
        #[serde(flatten)]
        more: M,
    }
    match delivery {
        Delivery::Recorded(head) if !settings.json => return output::answer(head.point()),
        Delivery::Queued { holder: Some(holder), .. } => {
            output::remark(format_args!("{} with {holder}", style::good("left")));
        }
        Delivery::Queued { holder: None, .. } => {
            output::remark(format_args!("{} until it goes on", style::good("left")));
        }
        Delivery::Recorded(_) | Delivery::NothingToStop { .. } => {}
    }
    if settings.json { output::json(&Said { delivery, more }) } else { Ok(()) }
}
