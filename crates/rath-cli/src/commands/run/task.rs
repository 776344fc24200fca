//! One task of a run: the agent works, its progress is shown, and its changes are applied.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rath::agent::OnQuestion;
use rath::control::Control;
use rath::inspect::{RunOutcome, RunStatus};
use rath::policy::Policy;
use rath::store::SessionFilter;
use rath::{Cancel, ErrorKind, RunOptions, Session, SessionId, Time, Usage, View, Workspaces};

use super::program::Runnable;
use super::questions::{self, asker};
use crate::commands::Answer;
use crate::commands::answer::explained;
use crate::live::{Interrupts, JsonRecords, Keyboard, Progress};
use crate::output::{self, style};
use crate::settings::Settings;

/// Flags of `run` and `resume`.
#[derive(clap::Args, Clone)]
pub(super) struct RunFlags {
    /// Approve all calls, and apply the changes at the end
    #[arg(long, short)]
    yes: bool,
    /// Block until questions are answered [default: exit with code 5]
    #[arg(long)]
    wait: bool,
    /// Show no progress
    #[arg(long, short)]
    quiet: bool,
}

impl RunFlags {
    /// Whether all calls are approved and the changes applied.
    pub(super) fn approves(&self) -> bool {
        self.yes
    }

    /// Whether a conversation is possible: all three streams are a terminal.
    pub(super) fn may_talk(&self, settings: &Settings) -> bool {
        use std::io::IsTerminal as _;
        !settings.json
            && [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()]
                == [true; 3]
    }
}

/// Runs an agent or a workflow on tasks, shows its progress, and offers to apply its changes.
pub(super) struct TaskRunner<'a> {
    pub(super) settings: &'a Settings,
    pub(super) workspaces: Arc<Workspaces>,
    pub(super) runnable: Runnable,
    pub(super) conditions: RunOptions,
    pub(super) keyboard: Option<Keyboard>,
    interrupts: Interrupts,
    policy: Arc<Policy>,
    yes: bool,
    wait: bool,
    silent: bool,
    /// The agent file on the command line, for help texts.
    file: Option<PathBuf>,
    progress: Option<Progress>,
    session_shown: bool,
    /// Whether this process started the run: then `--json` prints its first records too.
    pub(super) is_new: bool,
}

/// How a task ended.
pub(super) enum TaskEnd {
    Done(Session),
    /// The person stopped it.
    Stopped(SessionId),
    Waiting(SessionId),
    Failed(SessionId, rath::Error),
}

impl<'a> TaskRunner<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        workspaces: Arc<Workspaces>,
        runnable: Runnable,
        conditions: RunOptions,
        flags: &RunFlags,
        file: Option<&Path>,
    ) -> Result<Self> {
        let keyboard = if settings.json { None } else { Keyboard::of_terminal(settings.history.clone())? };
        Ok(Self {
            settings,
            workspaces,
            runnable,
            conditions,
            keyboard,
            interrupts: Interrupts::listen()?,
            policy: Arc::new(settings.layers()?.policy),
            yes: flags.yes,
            wait: flags.wait,
            silent: flags.quiet || settings.json,
            file: file.map(Path::to_owned),
            progress: None,
            session_shown: false,
            is_new: false,
        })
    }

    /// Runs the agent until it is done, is stopped or waits.
    pub(super) async fn go(&mut self, mut session: Session) -> Result<TaskEnd> {
        let (first, started) = (session.id(), Time::now());
        let used_before = session.usage();
        if !std::mem::replace(&mut self.session_shown, true) {
            output::remark(format_args!("session {}", style::session(first.short())));
        }
        let store = self.workspaces.store().clone();
        let (quiet, asks_here) = (self.silent, self.yes || self.keyboard.is_some());
        let agent = self.runnable.agent.as_deref().unwrap_or("the workflow");
        let progress =
            self.progress.get_or_insert_with(|| Progress::new(store.clone(), first, agent, quiet, asks_here));
        session.provide_shared(self.workspaces.clone());
        session.provide_shared(self.policy.clone());
        session.provide(if self.wait { OnQuestion::Wait } else { OnQuestion::Leave });
        if asks_here {
            let by = self.settings.actor();
            session.provide(asker(
                by,
                self.yes,
                self.keyboard.clone(),
                progress.screen().clone(),
                self.interrupts.clone(),
            ));
        }
        let cancel = Cancel::new();
        session.stop_with(cancel.clone());
        self.interrupts.stop(cancel);
        let before = store.sessions(SessionFilter::Id(first).into()).await?.first().map(|row| row.seq);
        let done = if self.settings.json {
            let mut records = JsonRecords::after(store, first, before.filter(|_| !self.is_new));
            session.provide(records.listener());
            records.print_during(session.execute(&self.runnable.workflow), || self.interrupts.interrupt()).await?
        } else {
            session.provide(progress.listener());
            session.execute(&self.runnable.workflow).await
        };
        let stopped = self.interrupts.done();
        progress.settle(done.is_ok()).await;
        let end = match done {
            Ok(session) => TaskEnd::Done(session),
            Err(error) => {
                let now = error.sessions().first().map_or(first, Session::id);
                match error.kind() {
                    ErrorKind::Waiting(id) => TaskEnd::Waiting(*id),
                    _ if error.is_cancelled() && stopped => TaskEnd::Stopped(now),
                    _ => TaskEnd::Failed(now, error),
                }
            }
        };
        let now = match &end {
            TaskEnd::Done(session) => session.id(),
            TaskEnd::Waiting(id) | TaskEnd::Stopped(id) | TaskEnd::Failed(id, _) => *id,
        };
        if self.settings.json && now != first {
            JsonRecords::after(self.workspaces.store().clone(), now, None).print_new().await?;
        }
        let is_new = std::mem::take(&mut self.is_new);
        if self.silent {
            remark_continued(first, now);
        } else if let TaskEnd::Done(session) = &end {
            if now == first && !is_new && before == Some(session.head().seq) {
                output::remark(style::dim("the run was already done; nothing ran"));
            } else {
                self.remark_cost(session.usage() - used_before, started);
            }
        }
        Ok(end)
    }

    fn remark_cost(&self, used: Usage, started: Time) {
        if used.requests > 0 {
            let requests = output::count(used.requests, "turn");
            let took = crate::transcript::span(Time::now().micros_since(started));
            output::remark(style::dim(format!("{requests}, {used}, {took}")));
        }
    }

    /// Runs the session's task, prints the result, and offers to apply the changes.
    pub(super) async fn finish(&mut self, session: Session) -> Result<Answer> {
        let first = session.id();
        let mut end = self.go(session).await?;
        while let TaskEnd::Waiting(id) = end
            && self.answer_here(id).await?
        {
            end = self.go(self.workspaces.store().resume(first, self.conditions.clone()).await?).await?;
        }
        match end {
            TaskEnd::Done(mut session) => {
                let text = session.text().await?.unwrap_or_default();
                let was_shown =
                    !self.silent && self.progress.as_ref().is_some_and(|progress| progress.screen().has_words());
                match self.settings.json {
                    true => output::json(
                        "rath.run/1",
                        &RunOutcome::Done { session: session.id(), head: session.head(), text, usage: session.usage() },
                    )?,
                    false if was_shown => {}
                    false => output::answer(output::escaped(&text))?,
                }
                match self.offer(&mut session).await {
                    // The task is done, even if the directory cannot be read.
                    Err(error) if !self.yes => output::complain(self.settings, &error),
                    offered => offered?,
                }
                Ok(Answer::Yes)
            }
            TaskEnd::Waiting(id) => {
                if self.settings.json {
                    output::json("rath.run/1", &RunOutcome::Waiting { session: id })?;
                }
                let store = self.workspaces.store();
                let run = RunStatus::of(store, &View::of(store, id, None).await?).await?;
                let is_asked = run.is_none_or(|run| run.waits.is_empty());
                let (waiting, id) = (style::label("waiting"), id.short());
                match is_asked {
                    true => output::remark(format_args!(
                        "{waiting} for an answer\n  help: `rath inbox` shows the question, `rath answer` answers it, then `rath resume {id}`"
                    )),
                    false => output::remark(format_args!(
                        "{waiting}\n  help: `rath status {id}` shows what it waits for; `rath resume --ready` continues it after that"
                    )),
                }
                Ok(Answer::Waiting)
            }
            TaskEnd::Stopped(id) => {
                if self.settings.json {
                    output::json("rath.run/1", &RunOutcome::Stopped { session: id })?;
                }
                let id = id.short();
                output::remark(format_args!(
                    "{}\n  help: `rath show {id}` shows what was done, `rath run -c {id} TASK` continues",
                    style::label("stopped")
                ));
                Ok(Answer::Failed)
            }
            TaskEnd::Failed(_, error) if matches!(error.kind(), ErrorKind::Diverged(_)) => {
                output::complain(self.settings, &error.into());
                let file = self.file.as_ref().map(|file| format!(" -a {}", file.display())).unwrap_or_default();
                let command = format!("rath resume {}{file} --fork", first.short());
                output::remark(format_args!("  help: `{command}` continues from there on a fork"));
                Ok(Answer::No)
            }
            TaskEnd::Failed(id, error) => {
                if error.is_replayed() {
                    let id = id.short();
                    output::remark(format_args!(
                        "  help: the run is over; `rath resume {id} --again` runs its failed steps again, `rath run -c {id} TASK` \
                         continues the session"
                    ));
                }
                if self.settings.json {
                    output::json("rath.run/1", &RunOutcome::Failed { session: id, why: error.to_string() })?;
                }
                Err(error.into())
            }
        }
    }

    /// Asks the questions that a workflow waits for at the terminal. Returns whether all have an answer now. Questions
    /// about calls are asked while the run works.
    async fn answer_here(&self, id: SessionId) -> Result<bool> {
        let Some(keyboard) = &self.keyboard else { return Ok(false) };
        let control = Control::new(self.workspaces.store(), self.settings.actor());
        let questions = control.questions_of(id).await.map_err(explained)?;
        let questions: Vec<_> = questions.into_iter().filter(|question| question.call.is_none()).collect();
        for question in &questions {
            let Some(answer) = questions::answer_to(keyboard, question, &self.interrupts).await else {
                return Ok(false);
            };
            control.answer(question, answer).await.map_err(explained)?;
        }
        Ok(!questions.is_empty())
    }

    /// Applies the session's changes if the person wants that; otherwise prints how to.
    pub(super) async fn offer(&mut self, session: &mut Session) -> Result<()> {
        let is_copy = session.state().placement.as_ref().is_some_and(|place| place.origin.is_some() && !place.in_place);
        if !is_copy || self.settings.json && !self.yes {
            return Ok(());
        }
        let pending = self.workspaces.apply(session, true).await?;
        if pending.changed.is_empty() {
            return Ok(());
        }
        let id = session.id();
        if !self.settings.json {
            let files = pending.changed.iter().filter(|change| !change.is_directory()).count() as u64;
            let (files, to) = (output::count(files, "file"), output::escaped(&pending.directory.to_string()));
            output::remark(format_args!("{} changed in the copy of {to}:", style::title(files)));
            output::remark_changes(&pending.changed);
        }
        let wanted = match (&self.keyboard, self.yes) {
            (_, true) => true,
            (Some(keyboard), false) => loop {
                let answer = keyboard.answer("Apply them? [y]es, [n]o, [d]iff: ").await?;
                match answer.as_deref().unwrap_or("n") {
                    "y" | "yes" => break true,
                    "d" | "diff" | "difference" => super::super::diff::since_placed(self.settings, session).await?,
                    "n" | "no" | "" => break false,
                    _ => {}
                }
            },
            (None, false) => false,
        };
        if !wanted {
            let id = id.short();
            output::remark(format_args!("  help: `rath diff {id}` shows them, `rath apply {id}` applies them"));
            return Ok(());
        }
        let applied = self.workspaces.apply(session, false).await?;
        output::remark(format_args!("applied to {}", output::escaped(&applied.directory.to_string())));
        Ok(())
    }

    pub(super) fn screen(&self) -> Option<&crate::live::Screen> {
        self.progress.as_ref().map(Progress::screen)
    }
}

/// Reports that a run continued as another session, because its agent had changed.
fn remark_continued(first: SessionId, now: SessionId) {
    if first != now {
        output::remark(format_args!("continued as session {}", style::session(now.short())));
    }
}
