//! A conversation: the person types a message, the agent works, and so on.

use anyhow::Result;
use rath::{Cancel, Session, SessionId};

use super::task::{TaskEnd, TaskRunner};
use crate::commands::Answer;
use crate::live::TypedLine;
use crate::output::{self, style};

const HELP: &str = "\
type a task; a line that ends with \\ continues on the next line
  /diff     show the changed files
  /apply    apply the changes now
  /undo     undo the last change of files
  /cost     show the usage so far
  /session  show the id of this session
  /quit     quit (or Ctrl-D); Ctrl-C stops the agent";

/// Runs the conversation until the person quits.
pub(super) async fn talk(runner: &mut TaskRunner<'_>, session: Session) -> Result<Answer> {
    let Some(keyboard) = runner.keyboard.clone() else { return runner.finish(session).await };
    let (id, model) = (session.id(), runner.runnable.model.clone().unwrap_or_else(|| "a workflow".into()));
    let place = session.state().placement.as_ref().and_then(|place| {
        let origin = place.origin.as_ref()?;
        Some(format!("{} {origin}", if place.in_place { "in" } else { "a copy of" }))
    });
    output::remark(format_args!(
        "{} {}",
        style::title("rath"),
        style::dim(output::escaped(&format!("{model}, {}", place.unwrap_or_else(|| "no files".into()))))
    ));
    output::remark(style::dim("/help lists the commands, Ctrl-D quits"));
    let (mut session, mut quits) = (Some(session), false);
    let mut name = id;
    loop {
        if let Some(screen) = runner.screen() {
            screen.gap();
        }
        let text = match keyboard.line("› ").await? {
            TypedLine::Text(text) => text,
            TypedLine::Interrupted if quits => break,
            TypedLine::Interrupted => {
                output::remark(style::dim("Ctrl-C again or Ctrl-D quits"));
                quits = true;
                continue;
            }
            TypedLine::End => break,
        };
        quits = false;
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
                // An error of a command does not end the conversation.
                if let Err(error) = run_command(runner, &mut here, command).await {
                    output::complain(runner.settings, &error);
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
        session = match runner.go(here).await? {
            TaskEnd::Done(session) => Some(session),
            TaskEnd::Waiting(id) => {
                output::remark(format_args!(
                    "the question stays open\n  help: `rath answer {} …`, then `rath resume {}`",
                    id.short(),
                    name.short()
                ));
                return Ok(Answer::Waiting);
            }
            TaskEnd::Stopped(id) => {
                output::remark(style::label("stopped; type what to do instead"));
                Some(reopen(runner, id).await?)
            }
            TaskEnd::Failed(id, error) => {
                let is_open = error.leaves_the_run_open();
                output::complain(runner.settings, &error.into());
                if is_open {
                    output::remark(format_args!("  help: `rath resume {}` continues it", id.short()));
                    return Ok(Answer::Failed);
                }
                Some(reopen(runner, id).await?)
            }
        };
        name = session.as_ref().map_or(name, Session::id);
    }
    let Some(mut session) = session else { return Ok(Answer::Yes) };
    if runner.is_new {
        session.close("no message was sent").await?;
        return Ok(Answer::Yes);
    }
    session.publish().await?;
    runner.offer(&mut session).await?;
    let id = session.id().short();
    output::remark(style::dim(format!("`rath run -c {id}` continues, `rath show {id}` shows it")));
    Ok(Answer::Yes)
}

/// Opens the session again after its work was stopped.
async fn reopen(runner: &TaskRunner<'_>, id: SessionId) -> Result<Session> {
    let mut session = runner.workspaces.store().continue_run(id, runner.conditions.clone()).await?;
    session.stop_with(Cancel::new());
    Ok(session)
}

async fn run_command(runner: &mut TaskRunner<'_>, session: &mut Session, command: &str) -> Result<()> {
    match command {
        "/help" => output::remark(HELP),
        "/session" => output::remark(session.id()),
        "/cost" => output::remark(session.usage()),
        "/apply" => {
            session.publish().await?;
            let applied = runner.workspaces.apply(session, false).await?;
            if applied.changed.is_empty() {
                output::remark("there are no changes to apply")
            } else {
                output::remark_changes(&applied.changed)
            }
        }
        "/diff" => {
            session.publish().await?;
            super::super::diff::since_placed(runner.settings, session).await?;
        }
        "/undo" => {
            session.publish().await?;
            let back = runner.workspaces.undo(session, false).await?;
            output::remark_changes(&back.changed);
        }
        other => output::remark(format_args!("unknown command {}\n{HELP}", output::escaped(other))),
    }
    Ok(())
}
