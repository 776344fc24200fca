//! One task of a run: the agent works, a person watches, and its changes are brought back.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rath::agent::Patience;
use rath::inspect::RunOutcome;
use rath::policy::Policy;
use rath::store::Which;
use rath::{Agent, Cancel, Conditions, ErrorKind, Session, SessionId, Time, Usage, Workshop};

use super::asking::asker;
use crate::commands::Answer;
use crate::live::{Interrupts, Keyboard, Records, Show};
use crate::output::{self, style};
use crate::settings::Settings;

/// How a run goes on.
#[derive(clap::Args, Clone)]
pub(super) struct Going {
    /// Answer yes to what is asked, and bring the changes back at the end
    #[arg(long, short)]
    yes: bool,
    /// Wait for answers from elsewhere, instead of leaving with exit code 5
    #[arg(long)]
    wait: bool,
    /// Say nothing while it runs
    #[arg(long, short)]
    quiet: bool,
}

impl Going {
    /// Whether a person is there to talk to.
    pub(super) fn may_talk(&self, settings: &Settings) -> bool {
        use std::io::IsTerminal as _;
        !settings.json
            && [std::io::stdin().is_terminal(), std::io::stdout().is_terminal(), std::io::stderr().is_terminal()]
                == [true; 3]
    }
}

/// An agent at work for a person.
pub(super) struct Work<'a> {
    pub(super) settings: &'a Settings,
    pub(super) workshop: Arc<Workshop>,
    pub(super) agent: Agent,
    pub(super) conditions: Conditions,
    pub(super) keyboard: Option<Keyboard>,
    interrupts: Interrupts,
    policy: Arc<Policy>,
    yes: bool,
    wait: bool,
    silent: bool,
    /// The file that was named for the agent, for help.
    file: Option<PathBuf>,
    show: Option<Show>,
    said: bool,
    /// Whether the run began here: then its first records are news too.
    pub(super) is_new: bool,
}

/// How a task ended.
pub(super) enum End {
    Done(Session),
    /// The person stopped it.
    Stopped(SessionId),
    Waiting(SessionId),
    Failed(SessionId, rath::Error),
}

impl<'a> Work<'a> {
    pub(super) fn new(
        settings: &'a Settings,
        workshop: Arc<Workshop>,
        agent: Agent,
        conditions: Conditions,
        going: &Going,
        file: Option<&Path>,
    ) -> Result<Self> {
        let keyboard = match settings.json {
            true => None,
            false => Keyboard::of_terminal(settings.history.clone())?,
        };
        Ok(Self {
            settings,
            workshop,
            agent,
            conditions,
            keyboard,
            interrupts: Interrupts::listen()?,
            policy: Arc::new(settings.layers()?.policy),
            yes: going.yes,
            wait: going.wait,
            silent: going.quiet || settings.json,
            file: file.map(Path::to_owned),
            show: None,
            said: false,
            is_new: false,
        })
    }

    /// Has the agent work until it is done, stopped or waits.
    pub(super) async fn go(&mut self, mut session: Session) -> Result<End> {
        let (first, began) = (session.id(), Time::now());
        let used_before = session.usage();
        if !std::mem::replace(&mut self.said, true) {
            output::remark(format_args!("session {}", style::session(first.short())));
        }
        let store = self.workshop.store().clone();
        let (quiet, asks_here) = (self.silent, self.yes || self.keyboard.is_some());
        let show =
            self.show.get_or_insert_with(|| Show::new(store.clone(), first, self.agent.name(), quiet, asks_here));
        session.equip_shared(self.workshop.clone());
        session.equip_shared(self.policy.clone());
        session.equip(if self.wait { Patience::Wait } else { Patience::Leave });
        if asks_here {
            let by = self.settings.actor();
            session.equip(asker(by, self.yes, self.keyboard.clone(), show.screen().clone(), self.interrupts.clone()));
        }
        let cancel = Cancel::new();
        session.stop_with(cancel.clone());
        self.interrupts.stop(cancel);
        let done = match self.settings.json {
            true => {
                let stored = store.sessions(Which::Id(first).into()).await?.first().map(|row| row.seq);
                let mut records = Records::behind(store, first, stored.filter(|_| !self.is_new));
                session.equip(records.listener());
                records.beside(session.go_on(&self.agent), || self.interrupts.interrupt()).await?
            }
            false => {
                session.equip(show.listener());
                session.go_on(&self.agent).await
            }
        };
        let stopped = self.interrupts.done();
        show.settle(done.is_ok()).await;
        let end = match done {
            Ok(session) => End::Done(session),
            Err(error) => {
                let now = error.sessions().first().map_or(first, Session::id);
                match error.kind() {
                    ErrorKind::Waiting(id) => End::Waiting(*id),
                    _ if error.is_cancelled() && stopped => End::Stopped(now),
                    _ => End::Failed(now, error),
                }
            }
        };
        let now = match &end {
            End::Done(session) => session.id(),
            End::Waiting(id) | End::Stopped(id) | End::Failed(id, _) => *id,
        };
        if self.settings.json && now != first {
            Records::behind(self.workshop.store().clone(), now, None).news().await?;
        }
        self.is_new = false;
        if self.silent {
            went_on(first, now);
        } else if let End::Done(session) = &end {
            self.say_cost(session.usage() - used_before, began);
        }
        Ok(end)
    }

    fn say_cost(&self, used: Usage, began: Time) {
        if used.requests > 0 {
            let requests = output::count(used.requests, "turn");
            let took = crate::transcript::span(Time::now().micros_since(began));
            output::remark(style::dim(format!("{requests}, {used}, {took}")));
        }
    }

    /// Works on the session's task, says how it ended, and brings changes back.
    pub(super) async fn finish(&mut self, session: Session) -> Result<Answer> {
        let first = session.id();
        match self.go(session).await? {
            End::Done(mut session) => {
                let text = session.text().await?.unwrap_or_default();
                let was_shown = !self.silent && self.show.as_ref().is_some_and(|show| show.screen().has_words());
                match self.settings.json {
                    true => output::json(&RunOutcome::Done {
                        session: session.id(),
                        head: session.head(),
                        text,
                        usage: session.usage(),
                    })?,
                    false if was_shown => {}
                    false => output::answer(output::harmless(&text))?,
                }
                match self.offer(&mut session).await {
                    // The work is done, whatever is in the way of a look at the directory.
                    Err(error) if !self.yes => output::complain(self.settings, &error),
                    offered => offered?,
                }
                Ok(Answer::Yes)
            }
            End::Waiting(id) => {
                if self.settings.json {
                    output::json(&RunOutcome::Waiting { session: id })?;
                }
                output::remark(format_args!(
                    "{} for an answer\n  help: `rath inbox` shows what is asked, `rath answer` answers, then `rath resume {}`",
                    style::label("waiting"),
                    id.short()
                ));
                Ok(Answer::Waiting)
            }
            End::Stopped(id) => {
                if self.settings.json {
                    output::json(&RunOutcome::Stopped { session: id })?;
                }
                let id = id.short();
                output::remark(format_args!(
                    "{}\n  help: `rath show {id}` tells what was done, `rath run --continue {id} WORDS` goes on",
                    style::label("stopped")
                ));
                Ok(Answer::Failed)
            }
            End::Failed(_, error) if matches!(error.kind(), ErrorKind::Diverged(_)) => {
                output::complain(self.settings, &error.into());
                let file = self.file.as_ref().map(|file| format!(" -a {}", file.display())).unwrap_or_default();
                let command = format!("rath resume {}{file} --fork", first.short());
                output::remark(format_args!("  help: `{command}` goes on from there on a fork"));
                Ok(Answer::No)
            }
            End::Failed(id, error) => {
                if error.is_read_back() {
                    let id = id.short();
                    output::remark(format_args!("  help: it is over; `rath run --continue {id} WORDS` goes on"));
                }
                if self.settings.json {
                    output::json(&RunOutcome::Failed { session: id, why: error.to_string() })?;
                }
                Err(error.into())
            }
        }
    }

    /// Brings the session's changes back if the person wants that; else says how.
    pub(super) async fn offer(&mut self, session: &mut Session) -> Result<()> {
        let is_copy = session.state().placement.as_ref().is_some_and(|place| place.origin.is_some() && !place.in_place);
        if !is_copy || self.settings.json && !self.yes {
            return Ok(());
        }
        let waiting = self.workshop.apply(session, true).await?;
        if waiting.changed.is_empty() {
            return Ok(());
        }
        let id = session.id();
        if !self.settings.json {
            let files = waiting.changed.iter().filter(|change| !change.is_directory()).count() as u64;
            let (files, to) = (output::count(files, "file"), output::harmless(&waiting.directory.to_string()));
            output::remark(format_args!("{} changed in the copy of {to}:", style::title(files)));
            output::remark_changes(&waiting.changed);
        }
        let wanted = match (&self.keyboard, self.yes) {
            (_, true) => true,
            (Some(keyboard), false) => loop {
                let answer = keyboard.answer("Bring them back? [y]es, [n]o, [d]ifference: ").await?;
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
            output::remark(format_args!("  help: `rath diff {id}` shows them, `rath apply {id}` brings them back"));
            return Ok(());
        }
        let applied = self.workshop.apply(session, false).await?;
        output::remark(format_args!("brought back to {}", output::harmless(&applied.directory.to_string())));
        Ok(())
    }

    pub(super) fn screen(&self) -> Option<&crate::live::Screen> {
        self.show.as_ref().map(Show::screen)
    }
}

/// Says that a run goes on under another name: its agents had changed.
fn went_on(first: SessionId, now: SessionId) {
    if first != now {
        output::remark(format_args!("went on as session {}", style::session(now.short())));
    }
}
