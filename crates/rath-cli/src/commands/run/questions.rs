//! Asks the person at the terminal when a run has a question.

use rath::Actor;
use rath::agent::{Answer, HumanReply, Question, QuestionHandler};
use rath::body::QuestionKind;

use crate::live::{Interrupts, Keyboard, Screen, TypedLine};
use crate::output::{self, style};

/// Asks at the keyboard. With `yes`, approvals are given without asking.
pub(super) fn asker(
    by: Actor,
    yes: bool,
    keyboard: Option<Keyboard>,
    screen: Screen,
    interrupts: Interrupts,
) -> QuestionHandler {
    QuestionHandler::new(move |question: Question| {
        let (by, keyboard, screen, interrupts) = (by.clone(), keyboard.clone(), screen.clone(), interrupts.clone());
        async move {
            if yes && question.about == QuestionKind::Approval {
                return Some(HumanReply { by, answer: Answer::Yes, why: Some("--yes".into()) });
            }
            let keyboard = keyboard?;
            screen.idle();
            ask(&keyboard, &question, &interrupts).await.map(|answer| HumanReply { by, answer, why: None })
        }
    })
}

/// Gives approvals without asking, and leaves questions in the inbox.
pub(super) fn approver(by: Actor) -> QuestionHandler {
    QuestionHandler::new(move |question: Question| {
        let by = by.clone();
        async move {
            let is_approval = question.about == QuestionKind::Approval;
            is_approval.then(|| HumanReply { by, answer: Answer::Yes, why: Some("--yes".into()) })
        }
    })
}

/// The person's answer to a question of a workflow, which can be yes or no. `None` leaves the question in the inbox.
pub(super) async fn answer_to(keyboard: &Keyboard, question: &Question, interrupts: &Interrupts) -> Option<Answer> {
    let answer = ask(keyboard, question, interrupts).await?;
    Some(match &answer {
        Answer::Text(text) if ["y", "yes"].contains(&text.to_ascii_lowercase().as_str()) => Answer::Yes,
        Answer::Text(text) if ["n", "no"].contains(&text.to_ascii_lowercase().as_str()) => Answer::No,
        _ => answer,
    })
}

/// The person's answer; `None` leaves the question in the inbox.
async fn ask(keyboard: &Keyboard, question: &Question, interrupts: &Interrupts) -> Option<Answer> {
    for line in output::escaped(&question.shown).lines() {
        output::remark(format_args!("{} {line}", style::label("?")));
    }
    let choices = match (question.about, &question.always) {
        (QuestionKind::Approval, Some(_)) => "[y]es, [n]o, [a]lways, [l]ater: ",
        (QuestionKind::Approval, None) => "[y]es, [n]o, [l]ater: ",
        (QuestionKind::OutcomeUnknown, _) => "Did it happen? [y]es, [n]o, or describe the result, [l]ater: ",
        (QuestionKind::Question, _) => "› ",
        (QuestionKind::Unknown(_), _) => "This version of rath does not know this kind of question; [l]ater: ",
    };
    loop {
        let text = match keyboard.reply(choices).await.ok()? {
            TypedLine::Text(text) => text.trim().to_owned(),
            TypedLine::Interrupted => {
                interrupts.interrupt();
                return None;
            }
            TypedLine::End => return None,
        };
        let word = text.to_ascii_lowercase();
        match (question.about, word.as_str()) {
            (_, "") => {}
            (QuestionKind::Question, _) => return Some(Answer::Text(text)),
            (_, "l" | "later") => return None,
            (_, "y" | "yes") => return Some(Answer::Yes),
            (_, "n" | "no") => return Some(Answer::No),
            (QuestionKind::Approval, "a" | "always") if question.always.is_some() => return Some(Answer::Always),
            (QuestionKind::OutcomeUnknown, _) => return Some(Answer::Text(text)),
            (QuestionKind::Approval | QuestionKind::Unknown(_), _) => {}
        }
    }
}
