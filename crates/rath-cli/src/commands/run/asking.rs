//! Questions of a run, put to the person at the terminal.

use rath::Actor;
use rath::agent::{Answer, Asker, Question, Response};
use rath::body::About;

use crate::live::{Interrupts, Keyboard, Line, Screen};
use crate::output::{self, style};

/// Asks at the keyboard; `yes` answers what can be answered with yes.
pub(super) fn asker(by: Actor, yes: bool, keyboard: Option<Keyboard>, screen: Screen, interrupts: Interrupts) -> Asker {
    Asker::new(move |question: Question| {
        let (by, keyboard, screen, interrupts) = (by.clone(), keyboard.clone(), screen.clone(), interrupts.clone());
        async move {
            if yes && question.about == About::Approval {
                return Some(Response { by, answer: Answer::Yes, why: Some("--yes".into()) });
            }
            let keyboard = keyboard?;
            screen.idle();
            put(&keyboard, &question, &interrupts).await.map(|answer| Response { by, answer, why: None })
        }
    })
}

/// What the person says; none leaves the question in the inbox.
async fn put(keyboard: &Keyboard, question: &Question, interrupts: &Interrupts) -> Option<Answer> {
    for line in output::harmless(&question.shown).lines() {
        output::remark(format_args!("{} {line}", style::label("?")));
    }
    let choices = match (question.about, &question.always) {
        (About::Approval, Some(_)) => "[y]es, [n]o, [a]lways, [l]ater: ",
        (About::Approval, None) => "[y]es, [n]o, [l]ater: ",
        (About::InDoubt, _) => "Did it happen? [y]es, [n]o, what came of it, [l]ater: ",
        (About::Question, _) => "› ",
        (About::Unknown(_), _) => "This version of rath does not know what is asked; [l]ater: ",
    };
    loop {
        let text = match keyboard.reply(choices).await.ok()? {
            Line::Text(text) => text.trim().to_owned(),
            Line::Interrupted => {
                interrupts.interrupt();
                return None;
            }
            Line::End => return None,
        };
        let word = text.to_ascii_lowercase();
        match (question.about, word.as_str()) {
            (_, "") => {}
            (About::Question, _) => return Some(Answer::Text(text)),
            (_, "l" | "later") => return None,
            (_, "y" | "yes") => return Some(Answer::Yes),
            (_, "n" | "no") => return Some(Answer::No),
            (About::Approval, "a" | "always") if question.always.is_some() => return Some(Answer::Always),
            (About::InDoubt, _) => return Some(Answer::Text(text)),
            (About::Approval | About::Unknown(_), _) => {}
        }
    }
}
