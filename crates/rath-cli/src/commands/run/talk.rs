//! A conversation: the person says something, the agent works, again.

use anyhow::Result;
use rath::{Cancel, Session, SessionId};

use super::work::{End, Work};
use crate::commands::Answer;
use crate::live::Line;
use crate::output::{self, style};

const HELP: &str = "\
say what is to be done; a line that ends with \\ goes on
  /diff     what changed in the files
  /apply    bring the changes back now
  /undo     take back the last change of files
  /cost     what was used so far
  /session  the name of this session
  /quit     leave (or Ctrl-D); Ctrl-C stops what is being done";

/// Talks until the person leaves.
pub(super) async fn talk(work: &mut Work<'_>, session: Session) -> Result<Answer> {
    let Some(keyboard) = work.keyboard.clone() else { return work.finish(session).await };
    let (id, model) = (session.id(), work.agent.model_name().unwrap_or("no model").to_owned());
    let place = session.state().placement.as_ref().and_then(|place| {
        let origin = place.origin.as_ref()?;
        Some(format!("{} {origin}", if place.in_place { "in" } else { "a copy of" }))
    });
    output::remark(format_args!(
        "{} {}",
        style::title("rath"),
        style::dim(output::harmless(&format!("{model}, {}", place.unwrap_or_else(|| "no files".into()))))
    ));
    output::remark(style::dim("/help says what there is, Ctrl-D leaves"));
    let (mut session, mut leaves) = (Some(session), false);
    let mut name = id;
    loop {
        if let Some(screen) = work.screen() {
            screen.gap();
        }
        let text = match keyboard.line("› ").await? {
            Line::Text(text) => text,
            Line::Interrupted if leaves => break,
            Line::Interrupted => {
                output::remark(style::dim("Ctrl-C again, or Ctrl-D, leaves"));
                leaves = true;
                continue;
            }
            Line::End => break,
        };
        leaves = false;
        let text = text.trim();
        let Some(mut here) = session.take() else { break };
        match text {
            "" => {
                session = Some(here);
                continue;
            }
            "/quit" | "/exit" | "/q" => {
                session = Some(here);
                break;
            }
            command if command.starts_with('/') && !command.contains([' ', '\n']) => {
                // What goes wrong here ends no conversation.
                if let Err(error) = obey(work, &mut here, command).await {
                    output::complain(work.settings, &error);
                }
                session = Some(here);
                continue;
            }
            text => {
                if here.title().is_none()
                    && let Some(title) = super::title_of(text)
                {
                    here.set_title(title)?;
                }
                here.user(text)?
            }
        };
        session = match work.go(here).await? {
            End::Done(session) => Some(session),
            End::Waiting(id) => {
                output::remark(format_args!(
                    "the question stays open\n  help: `rath answer {} …`, then `rath resume {}`",
                    id.short(),
                    name.short()
                ));
                return Ok(Answer::Waiting);
            }
            End::Stopped(id) => {
                output::remark(style::label("stopped; say what to do instead"));
                Some(again(work, id).await?)
            }
            End::Failed(id, error) => {
                let is_open = error.leaves_the_run_open();
                output::complain(work.settings, &error.into());
                if is_open {
                    output::remark(format_args!("  help: `rath resume {}` goes on with it", id.short()));
                    return Ok(Answer::Failed);
                }
                Some(again(work, id).await?)
            }
        };
        name = session.as_ref().map_or(name, Session::id);
    }
    let Some(mut session) = session else { return Ok(Answer::Yes) };
    if work.is_new {
        session.close("nothing was said").await?;
        return Ok(Answer::Yes);
    }
    session.publish().await?;
    work.offer(&mut session).await?;
    let id = session.id().short();
    output::remark(style::dim(format!("`rath run --continue {id}` goes on, `rath show {id}` tells it again")));
    Ok(Answer::Yes)
}

/// The session after its work was stopped.
async fn again(work: &Work<'_>, id: SessionId) -> Result<Session> {
    let mut session = work.workshop.store().continue_run(id, work.conditions.clone()).await?;
    session.stop_with(Cancel::new());
    Ok(session)
}

async fn obey(work: &mut Work<'_>, session: &mut Session, command: &str) -> Result<()> {
    match command {
        "/help" => output::remark(HELP),
        "/session" => output::remark(session.id()),
        "/cost" => output::remark(session.usage()),
        "/apply" => {
            session.publish().await?;
            let applied = work.workshop.apply(session, false).await?;
            match applied.changed.is_empty() {
                true => output::remark("there is nothing to bring back"),
                false => output::remark_changes(&applied.changed),
            }
        }
        "/diff" => {
            session.publish().await?;
            super::super::diff::since_placed(work.settings, session).await?;
        }
        "/undo" => {
            session.publish().await?;
            let back = work.workshop.undo(session, false).await?;
            output::remark_changes(&back.changed);
        }
        other => output::remark(format_args!("there is no {}\n{HELP}", output::harmless(other))),
    }
    Ok(())
}
