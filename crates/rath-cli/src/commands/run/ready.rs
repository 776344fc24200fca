//! `rath resume --ready`: resumes all runs that can continue.

use std::sync::Arc;

use anyhow::{Result, anyhow};
use futures_util::stream::{self, StreamExt as _};
use rath::agent::OnQuestion;
use rath::inspect::{Readiness, ReadyReason, UnfinishedRun};
use rath::policy::Policy;
use rath::session::{Ancestry, OnDivergence};
use rath::store::{Error as StoreError, Holder};
use rath::{ErrorKind, RunOptions, Session, SessionId, Time, Workspaces};
use serde::Serialize;

use super::program::{self, Runnable};
use super::resume::{has_user_message, no_task};
use crate::commands::Answer;
use crate::output::{self, style};
use crate::providers::Providers;
use crate::settings::Settings;

/// The number of runs that are resumed at the same time.
const AT_MOST: usize = 4;

/// What became of a run, as JSON.
#[derive(Serialize)]
struct ResumedRun<'a> {
    session: SessionId,
    title: Option<&'a str>,
    because: &'a [ReadyReason],
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Outcome {
    Done,
    /// The run waits again.
    Waiting,
    Failed {
        why: String,
    },
    /// Another process works on the run.
    Locked {
        holder: Holder,
    },
}

/// Resumes the runs of `rath run` that can continue. With `approve`, approves all calls and applies the changes.
pub(super) async fn resume_all(settings: &Settings, approve: bool) -> Result<Answer> {
    let workspaces = Arc::new(settings.workspaces(true)?);
    let policy = Arc::new(settings.layers()?.policy);
    let providers = Providers::new(settings)?;
    let (mut ready, mut waiting, mut of_programs) = (Vec::new(), 0, 0);
    for run in UnfinishedRun::list(workspaces.store(), Time::now()).await? {
        match &run.readiness {
            _ if !run.has_program => of_programs += 1,
            Readiness::Ready { because } => ready.push((because.clone(), run)),
            Readiness::Waiting { .. } => waiting += 1,
            Readiness::Locked { .. } => {}
        }
    }
    if ready.is_empty() && !settings.json {
        output::remark("no run is ready to continue");
    }
    let resumed = ready.into_iter().map(async |(because, run)| {
        let outcome = resume(settings, &workspaces, &policy, &providers, &run, approve).await;
        (because, run, outcome)
    });
    let mut resumed = std::pin::pin!(stream::iter(resumed).buffer_unordered(AT_MOST));
    let (mut failed, mut waits) = (false, false);
    while let Some((because, run, outcome)) = resumed.next().await {
        let outcome = outcome.unwrap_or_else(|error| Outcome::Failed { why: format!("{error:#}") });
        failed |= matches!(outcome, Outcome::Failed { .. });
        waits |= matches!(outcome, Outcome::Waiting);
        let title = run.title.as_deref();
        if settings.json {
            output::json("rath.resumed/1", &ResumedRun { session: run.session, title, because: &because, outcome })?;
            continue;
        }
        let outcome = match &outcome {
            Outcome::Done => style::good("done").to_string(),
            Outcome::Waiting => style::label("waiting").to_string(),
            Outcome::Failed { why } => {
                let why = why.lines().next().unwrap_or_default();
                format!("{}: {}", style::bad("failed"), output::escaped(why))
            }
            Outcome::Locked { holder } => format!("skipped: locked by process {}", holder.process),
        };
        let reasons: Vec<String> = because.iter().map(ToString::to_string).collect();
        let (title, reasons) = (output::escaped(title.unwrap_or("(untitled)")), output::escaped(&reasons.join(", ")));
        let session = style::session(run.session.short());
        let line = format!("{session} {title}: {outcome} {}", style::dim(format!("({reasons})")));
        match settings.colour {
            true => output::answer(line)?,
            false => output::answer(anstream::adapter::strip_str(&line))?,
        }
    }
    if !settings.json {
        if waiting > 0 {
            let runs = output::count(waiting, "run");
            output::remark(style::dim(format!("waiting: {runs}; `rath inbox` shows their questions")));
        }
        if of_programs > 0 {
            let runs = output::count(of_programs, "run");
            output::remark(style::dim(format!("of programs: {runs}; the Worker of such a program resumes them")));
        }
    }
    Ok(match (failed, waits) {
        (true, _) => Answer::Failed,
        (false, true) => Answer::Waiting,
        (false, false) => Answer::Yes,
    })
}

async fn resume(
    settings: &Settings,
    workspaces: &Arc<Workspaces>,
    policy: &Arc<Policy>,
    providers: &Providers<'_>,
    run: &UnfinishedRun,
    approve: bool,
) -> Result<Outcome> {
    let (store, id) = (workspaces.store(), run.session);
    let ancestry = Ancestry::of(store, id).await?;
    let text = super::text_of(store, id, &ancestry).await?.ok_or_else(|| anyhow!("the text of its agent is erased"))?;
    let program = program::parse(text, None)?;
    let runnable = Runnable::of(&program, providers)?;
    let options = RunOptions {
        actor: run.started_by.clone(),
        program: Some(program.blob()?),
        workflow: None,
        on_divergence: OnDivergence::Stop,
    };
    let work = async || -> rath::Result<Session> {
        let mut session = store.resume(id, options).await?;
        if !ancestry.is_started() {
            let has_task = has_user_message(&session).await.map_err(|error| ErrorKind::Workflow(error.into()))?;
            if !has_task {
                return Err(ErrorKind::Workflow(no_task(id).into()).into());
            }
        }
        session.provide_shared(workspaces.clone());
        session.provide_shared(policy.clone());
        session.provide(OnQuestion::Leave);
        if approve {
            session.provide(super::questions::approver(settings.actor()));
        }
        let mut session = session.execute(&runnable.workflow).await?;
        session.publish().await?;
        Ok(session)
    };
    let mut session = match work().await {
        Ok(session) => session,
        Err(error) => {
            return match error.kind() {
                ErrorKind::Waiting(_) => Ok(Outcome::Waiting),
                ErrorKind::Store(StoreError::Locked { holder, .. }) => Ok(Outcome::Locked { holder: holder.clone() }),
                _ => Err(error.into()),
            };
        }
    };
    let is_copy = session.state().placement.as_ref().is_some_and(|place| place.origin.is_some() && !place.in_place);
    if approve && is_copy {
        workspaces.apply(&mut session, false).await?;
    }
    Ok(Outcome::Done)
}
