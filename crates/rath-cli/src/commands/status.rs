use std::path::PathBuf;

use anyhow::Result;
use rath::files::Change;
use rath::inspect::{Activity, FileComparison, RunState, RunStatus, WaitingFor, placement_text};
use rath::store::{Post, PostContent, SessionFilter};
use rath::{Actor, Reference, SessionId, Time, Usage, View};
use serde::Serialize;

use super::Answer;
use super::ls::state_word;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;
use crate::transcript::run_lines;

/// Show a session's run, questions, unapplied changes and next steps
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Status {
    /// The session
    #[arg(default_value = "@")]
    session: String,
}

/// Where a session is, and what can be done next.
#[derive(Serialize)]
struct SessionStatus {
    /// The directory of the store.
    store: PathBuf,
    session: SessionId,
    head: Reference,
    title: Option<String>,
    state: Activity,
    /// The process that has the session locked.
    process: Option<u32>,
    /// The run that works on the session; null if none does.
    run: Option<RunStatus>,
    usage: Usage,
    /// Where it works, in words; null if it has no workspace.
    workspace: Option<String>,
    /// Changes in the copy that its directory does not have yet.
    unapplied: Vec<Change>,
    /// Changes in the workspace that no record has.
    unsaved: Vec<Change>,
    /// Paths in conflict.
    conflicts: Vec<String>,
    /// Events in the session's inbox that no wait has consumed.
    events: Vec<QueuedEvent>,
    /// What to do next, as command lines with a reason.
    next: Vec<Suggestion>,
}

#[derive(Serialize)]
struct QueuedEvent {
    name: String,
    /// JSON text.
    value: String,
    by: Actor,
}

#[derive(Serialize)]
struct Suggestion {
    command: String,
    why: String,
}

impl Status {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let workspaces = settings.workspaces(true)?;
        let store = workspaces.store();
        let id = expression::resolve_session(store, &self.session).await?;
        let view = View::of(store, id, None).await?;
        let row = store.sessions(SessionFilter::Id(id).into()).await?.into_iter().next();
        let row = row.ok_or_else(|| expression::usage_error(format!("session {} is gone", id.short())))?;
        let state = view.state();
        let is_copy = state.placement.as_ref().is_some_and(|place| place.origin.is_some() && !place.in_place);
        let unapplied = if is_copy { FileComparison::since_placed(&**store, state).await?.changes } else { Vec::new() };
        let mut status = SessionStatus {
            store: settings.store_path()?,
            session: id,
            head: view.reference(),
            title: state.title.clone(),
            state: Activity::of(&row, &view),
            process: row.holder.as_ref().map(|holder| holder.process),
            run: RunStatus::of(store, &view).await?,
            usage: state.usage,
            workspace: state.placement.as_ref().map(|place| placement_text(place)),
            unapplied,
            // A workspace that cannot be read now is reported by the commands that need it.
            unsaved: workspaces.unsaved(&view).await.unwrap_or_default(),
            conflicts: state.conflicts.iter().map(|conflict| conflict.path.to_string()).collect(),
            events: store.posts(id).await?.into_iter().filter_map(queued_event).collect(),
            next: Vec::new(),
        };
        status.next = status.suggestions();
        if settings.json {
            output::json("rath.status/1", &status)?;
            return Ok(Answer::Yes);
        }
        let mut page = Page::default();
        let mut line = |name: &str, text: &str| page.line(format_args!("{} {text}", style::dim(format!("{name:<10}"))));
        line("store", &output::escaped(&settings.shown(&status.store)));
        let title = status.title.as_deref().map_or("(untitled)".into(), output::escaped);
        line("session", &format!("{} {}", style::session(id.short()), style::title(title)));
        let process = status.process.map(|process| format!(", locked by process {process}")).unwrap_or_default();
        let records = output::count(row.seq + 1, "record");
        let state = state_word(status.state);
        line("state", &format!("{state}{process}, {records}, changed {}", time::ago(row.time)));
        for text in status.run.iter().flat_map(|run| run_lines(run, id)) {
            let (name, text) = text.split_once(": ").unwrap_or(("run", &text));
            line(&anstream::adapter::strip_str(name).to_string(), text);
        }
        if !status.usage.is_zero() {
            line("usage", &status.usage.to_string());
        }
        if let Some(workspace) = &status.workspace {
            line("workspace", &output::escaped(workspace));
        }
        let changes = [("unapplied", &status.unapplied), ("unsaved", &status.unsaved)];
        for (name, changes) in changes {
            let files = changes.iter().filter(|change| !change.is_directory()).count() as u64;
            if files > 0 {
                line(name, &style::label(output::count(files, "changed file")));
            }
        }
        for path in &status.conflicts {
            line("conflict", &style::bad(output::escaped(path)));
        }
        for QueuedEvent { name, value, by } in &status.events {
            let by = style::dim(output::escaped(&format!("from {by}")));
            line("queued", &format!("event {} {by}", output::escaped(&format!("{name} {value}"))));
        }
        for Suggestion { command, why } in &status.next {
            line("next", &format!("{command}  {}", style::dim(format!("# {why}"))));
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

fn queued_event(post: Post) -> Option<QueuedEvent> {
    match post.what {
        PostContent::Event { name, value } => Some(QueuedEvent { name, value, by: post.actor }),
        _ => None,
    }
}

impl SessionStatus {
    fn suggestions(&self) -> Vec<Suggestion> {
        let id = self.session.short();
        let mut next = Vec::new();
        let mut add = |command: String, why: &str| next.push(Suggestion { command, why: why.to_owned() });
        for question in self.run.iter().flat_map(|run| &run.waiting) {
            add(format!("rath answer {} …", question.at), "a question waits for you; `rath inbox` shows it");
        }
        for WaitingFor { at, wait } in self.run.iter().flat_map(|run| &run.waits) {
            let queued = |name: &String| self.events.iter().any(|event| event.name == *name);
            match (&wait.name, wait.until) {
                (Some(name), _) if !queued(name) => {
                    let command = format!("rath send {} --event {} JSON", at.session.short(), output::escaped(name));
                    add(command, "the run waits for this event");
                }
                (None, Some(until)) if until > Time::now() => {}
                _ if self.process.is_none() => add(format!("rath resume {id}"), "what it waited for has come"),
                _ => {}
            }
        }
        match self.run.as_ref().map(|run| run.is) {
            Some(RunState::Interrupted) if self.process.is_none() => {
                add(format!("rath resume {id}"), "the run was interrupted");
            }
            Some(RunState::NotBegun)
                if self.process.is_none() && self.run.as_ref().is_some_and(|run| run.key.is_some()) =>
            {
                add(format!("rath resume {id}"), "the run has not started");
            }
            Some(RunState::Running) => add(format!("rath tail {id}"), "a process works on it"),
            _ => {}
        }
        if !self.conflicts.is_empty() {
            add(format!("rath resolve --list {id}"), "files are in conflict");
        }
        if !self.unsaved.is_empty() {
            add(format!("rath workspace save {id}"), "changes in the workspace are in no record");
        }
        if !self.unapplied.is_empty() && self.conflicts.is_empty() {
            add(format!("rath diff {id}"), "shows the unapplied changes");
            add(format!("rath apply {id}"), "writes them to the directory");
        }
        let is_over = self.run.as_ref().is_some_and(|run| {
            run.key.is_some() && matches!(run.is, RunState::Done | RunState::Failed | RunState::Cancelled)
        });
        if is_over && self.state != Activity::Closed {
            add(format!("rath run -c {id} TASK"), "continues the session with another task");
        }
        next
    }
}
