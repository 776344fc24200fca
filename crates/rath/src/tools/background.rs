//! Commands that run in the background of a step.
//!
//! They end with the process that started them, or with their sandbox. A later process learns of them from the records
//! of the calls: it does not reuse their ids, and reports to a model that polls one that it was stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future as _;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rath_core::body::{BackgroundCommand, BackgroundStatus};
use rath_sandbox::{CommandEvent, ExitStatus, OUTPUT_LIMIT, Running, Stream};

/// The background commands of a tool workspace, by number.
#[derive(Debug, Default)]
pub(super) struct BackgroundCommands(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    started: u64,
    running: BTreeMap<u64, Background>,
    /// Commands that were lost with their process or sandbox.
    gone: BTreeMap<u64, BackgroundStatus>,
    /// Lost commands that were not reported yet.
    untold: BTreeSet<u64>,
    /// Commands that may have changed files since the files were last saved.
    dirty: BTreeSet<u64>,
}

#[derive(Debug)]
struct Background {
    call: String,
    running: Running,
    /// The number of bytes of each stream that were shown.
    seen: [u64; 2],
}

/// The new output and the state of a command.
pub(super) struct PollResult {
    pub(super) output: Vec<u8>,
    /// Whether output was lost because it exceeded the limit.
    pub(super) cut: bool,
    /// The exit status; `None` while the command runs.
    pub(super) ended: Option<Result<ExitStatus, String>>,
}

/// The commands that may have changed files, taken just before the files are saved.
#[derive(Default)]
pub(crate) struct DirtyCommands {
    pub(crate) ids: Vec<String>,
    /// Those that had ended before: the save includes all of their changes.
    ended: BTreeSet<u64>,
}

/// The recorded status of a command.
pub(super) fn status_of(id: &str, status: BackgroundStatus) -> BackgroundCommand {
    BackgroundCommand { id: id.into(), status }
}

/// The status as text for people and models.
pub(crate) fn describe_background(BackgroundCommand { id, status }: &BackgroundCommand) -> String {
    match status {
        BackgroundStatus::Running => format!("{id} is running in the background"),
        BackgroundStatus::Ended => format!("{id} has ended"),
        BackgroundStatus::LostWithProcess => format!("{id} was stopped because the process that started it ended"),
        BackgroundStatus::LostWithSandbox => format!("{id} was stopped because its sandbox was lost"),
        BackgroundStatus::Unknown(_) => format!("{id} has a status that this version does not know ({status})"),
    }
}

impl BackgroundCommands {
    /// The commands of a step that another process started, from the records of its calls, oldest first.
    pub(super) fn after<'a>(recorded: impl Iterator<Item = &'a BackgroundCommand>) -> Self {
        let mut all = All::default();
        for BackgroundCommand { id, status } in recorded {
            let Some(number) = id.strip_prefix(PREFIX).and_then(|number| number.parse::<u64>().ok()) else { continue };
            match status {
                BackgroundStatus::Running => {
                    all.started = all.started.max(number);
                    all.gone.insert(number, BackgroundStatus::LostWithProcess);
                    all.untold.insert(number);
                }
                _ => drop(all.untold.remove(&number)),
            }
        }
        // They may have changed files before they were lost, and no call has saved the files since.
        all.dirty = all.untold.clone();
        Self(Mutex::new(all))
    }

    /// The lost commands that were not reported yet. Each is returned once.
    pub(super) fn take_gone(&self) -> Vec<BackgroundCommand> {
        let mut all = self.lock();
        let untold = std::mem::take(&mut all.untold);
        untold.into_iter().filter_map(|number| Some(status_of(&id(number), *all.gone.get(&number)?))).collect()
    }

    /// Marks the running commands as lost with their sandbox. The output of commands that had ended can still be
    /// polled.
    pub(super) fn lose(&self) {
        let mut all = self.lock();
        let All { running, gone, untold, .. } = &mut *all;
        running.retain(|number, one| {
            let has_ended = matches!(one.running.poll(), Some(Ok(_)));
            if !has_ended {
                gone.insert(*number, BackgroundStatus::LostWithSandbox);
                untold.insert(*number);
            }
            has_ended
        });
    }

    /// Adds a command. Returns its id.
    pub(super) fn keep(&self, call: &str, running: Running) -> String {
        let mut all = self.lock();
        all.started += 1;
        let number = all.started;
        all.running.insert(number, Background { call: call.into(), running, seen: [0; 2] });
        all.dirty.insert(number);
        id(number)
    }

    /// The commands that may have changed files since the last save. Call this before the next save: a command that
    /// ends during the save may have made changes that it misses.
    pub(super) fn dirty(&self) -> DirtyCommands {
        let mut all = self.lock();
        let All { dirty, running, .. } = &mut *all;
        let mut has_ended = |number: &u64| running.get_mut(number).is_none_or(|one| one.running.poll().is_some());
        let ended = dirty.iter().copied().filter(|number| has_ended(number)).collect();
        DirtyCommands { ids: dirty.iter().map(|number| id(*number)).collect(), ended }
    }

    /// Notes that the files were saved after `asked` was taken.
    pub(super) fn mark_saved(&self, asked: &DirtyCommands) {
        self.lock().dirty.retain(|number| !asked.ended.contains(number));
    }

    /// The calls of the commands that may have changed files since the last save.
    pub(super) fn unsaved_calls(&self) -> Vec<String> {
        let all = self.lock();
        all.dirty.iter().filter_map(|number| Some(all.running.get(number)?.call.clone())).collect()
    }

    /// The new output of a command. A command that has ended is removed.
    pub(super) fn poll(&self, wanted: &str) -> Result<PollResult, String> {
        let mut all = self.lock();
        let number = all.find(wanted)?;
        let background = all.running.get_mut(&number).ok_or_else(|| format!("there is no {wanted}"))?;
        // Polled before the output is taken, so that the output of an ended command is complete.
        let ended = background.running.poll().map(|done| done.map(|done| done.ended).map_err(ToString::to_string));
        let mut output = Vec::new();
        background.drain(&mut output);
        let cut = background.seen.iter().any(|seen| *seen >= OUTPUT_LIMIT);
        if ended.is_some() {
            all.running.remove(&number);
        }
        Ok(PollResult { output, cut, ended })
    }

    /// Stops a command, and waits for its end.
    pub(super) async fn kill(&self, wanted: &str) -> Result<PollResult, String> {
        let mut background = {
            let mut all = self.lock();
            let number = all.find(wanted)?;
            all.running.remove(&number).ok_or_else(|| format!("there is no {wanted}"))?
        };
        background.running.stop();
        let mut output = Vec::new();
        while let Some(event) = background.running.next().await {
            background.take(event, &mut output);
        }
        let cut = background.seen.iter().any(|seen| *seen >= OUTPUT_LIMIT);
        let ended = background.running.finish().await.map(|done| done.ended).map_err(|error| error.to_string());
        Ok(PollResult { output, cut, ended: Some(ended) })
    }

    /// The calls of the running commands.
    pub(super) fn live(&self) -> Vec<String> {
        let mut all = self.lock();
        let live = all.running.values_mut().filter_map(|background| match background.running.poll() {
            None => Some(background.call.clone()),
            Some(_) => None,
        });
        live.collect()
    }

    /// Kills all commands. Returns the ids of those that were running.
    pub(super) async fn stop_all(&self) -> Vec<String> {
        let all = std::mem::take(&mut self.lock().running);
        let mut stopped = Vec::new();
        let mut ending = Vec::new();
        for (number, mut background) in all {
            if background.running.poll().is_none() {
                background.running.stop();
                stopped.push(id(number));
                ending.push(background.running);
            }
        }
        for running in ending {
            // The exit status does not matter.
            let _ = running.finish().await;
        }
        stopped
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    fn find(&self, wanted: &str) -> Result<u64, String> {
        let found = self.running.keys().copied().find(|number| id(*number) == wanted.trim());
        found.ok_or_else(|| {
            if let Some((number, how)) = self.gone.iter().find(|(number, _)| id(**number) == wanted.trim()) {
                return format!(
                    "{}; start it again if you need it",
                    describe_background(&status_of(&id(*number), *how))
                );
            }
            let known: Vec<String> = self.running.keys().map(|number| id(*number)).collect();
            match known.is_empty() {
                true => format!("unknown id {wanted}: no command is in the background"),
                false => format!("unknown id {wanted}: the background commands are {}", known.join(", ")),
            }
        })
    }
}

impl Background {
    /// Takes the available output without waiting.
    fn drain(&mut self, output: &mut Vec<u8>) {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let next = pin!(self.running.next()).poll(&mut context);
            match next {
                Poll::Ready(Some(event)) => self.take(event, output),
                _ => break,
            }
        }
    }

    fn take(&mut self, event: CommandEvent, output: &mut Vec<u8>) {
        if let CommandEvent::Output { stream, bytes } = event {
            self.seen[usize::from(stream == Stream::Stderr)] += bytes.len() as u64;
            output.extend(bytes);
        }
    }
}

const PREFIX: &str = "bg-";

fn id(number: u64) -> String {
    format!("{PREFIX}{number}")
}
