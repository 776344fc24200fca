//! Commands that run on while the agent does something else.
//!
//! They end with the process that started them, and with their sandbox. What a call records of them is how the next
//! process knows: their ids are not given out again, and a model that asks for one is told.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future as _;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use rath_core::body::{BackgroundCommand, BackgroundStatus};
use rath_sandbox::{Ended, Event, OUTPUT_LIMIT, Running, Stream};

/// The commands of a desk that run in the background, by number.
#[derive(Debug, Default)]
pub(super) struct Backgrounds(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    started: u64,
    running: BTreeMap<u64, Background>,
    /// Those of a process or of a sandbox that ended before them.
    gone: BTreeMap<u64, BackgroundStatus>,
    /// Those of them that nobody was told of.
    untold: BTreeSet<u64>,
    /// Those that may have changed files since the files were last looked at.
    busy: BTreeSet<u64>,
}

#[derive(Debug)]
struct Background {
    call: String,
    running: Running,
    /// How much of each stream was shown.
    seen: [u64; 2],
}

/// What a command did since it was last looked at.
pub(super) struct News {
    pub(super) output: Vec<u8>,
    /// Whether there is output that nobody kept.
    pub(super) cut: bool,
    /// How it ended, if it did.
    pub(super) ended: Option<Result<Ended, String>>,
}

/// Those that may have changed files when the files were about to be looked at.
#[derive(Default)]
pub(crate) struct Busy {
    pub(crate) ids: Vec<String>,
    /// Those of them that had ended: whatever they changed is seen.
    ended: BTreeSet<u64>,
}

/// What is recorded of a command.
pub(super) fn status_of(id: &str, status: BackgroundStatus) -> BackgroundCommand {
    BackgroundCommand { id: id.into(), status }
}

/// The same for people and models.
pub(crate) fn in_words(BackgroundCommand { id, status }: &BackgroundCommand) -> String {
    match status {
        BackgroundStatus::Running => format!("{id} runs on in the background"),
        BackgroundStatus::Ended => format!("{id} has ended"),
        BackgroundStatus::LostWithProcess => format!("{id} is gone with the process that started it"),
        BackgroundStatus::LostWithSandbox => format!("{id} is gone with the sandbox that it ran in"),
        BackgroundStatus::Unknown(_) => format!("{id} has a status that this version does not know ({status})"),
    }
}

impl Backgrounds {
    /// Those of a step that another process began, as its calls recorded them, oldest first.
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
        // Until they were gone they may have changed files, which no call has looked at since.
        all.busy = all.untold.clone();
        Self(Mutex::new(all))
    }

    /// Those that are gone, each once.
    pub(super) fn take_gone(&self) -> Vec<BackgroundCommand> {
        let mut all = self.lock();
        let untold = std::mem::take(&mut all.untold);
        untold.into_iter().filter_map(|number| Some(status_of(&id(number), *all.gone.get(&number)?))).collect()
    }

    /// Their sandbox is lost, and those that had not ended are gone with it. Of the others the output can still be seen.
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

    /// Keeps a command. Says its id.
    pub(super) fn keep(&self, call: &str, running: Running) -> String {
        let mut all = self.lock();
        all.started += 1;
        let number = all.started;
        all.running.insert(number, Background { call: call.into(), running, seen: [0; 2] });
        all.busy.insert(number);
        id(number)
    }

    /// Those that may have changed files since the files were last looked at. To be asked before they are looked at
    /// again: what one changes that ends meanwhile may not be seen.
    pub(super) fn busy(&self) -> Busy {
        let mut all = self.lock();
        let All { busy, running, .. } = &mut *all;
        let mut has_ended = |number: &u64| running.get_mut(number).is_none_or(|one| one.running.poll().is_some());
        let ended = busy.iter().copied().filter(|number| has_ended(number)).collect();
        Busy { ids: busy.iter().map(|number| id(*number)).collect(), ended }
    }

    /// The files were looked at, after these had been asked for.
    pub(super) fn looked_at(&self, asked: &Busy) {
        self.lock().busy.retain(|number| !asked.ended.contains(number));
    }

    /// The calls of those that may have changed files since the files were last looked at.
    pub(super) fn beside(&self) -> Vec<String> {
        let all = self.lock();
        all.busy.iter().filter_map(|number| Some(all.running.get(number)?.call.clone())).collect()
    }

    /// What a command did since. One that has ended is forgotten.
    pub(super) fn poll(&self, wanted: &str) -> Result<News, String> {
        let mut all = self.lock();
        let number = all.find(wanted)?;
        let background = all.running.get_mut(&number).ok_or_else(|| format!("there is no {wanted}"))?;
        // Asked before the output is taken: of one that has ended, all of it is there.
        let ended = background.running.poll().map(|done| done.map(|done| done.ended).map_err(ToString::to_string));
        let mut output = Vec::new();
        background.drain(&mut output);
        let cut = background.seen.iter().any(|seen| *seen >= OUTPUT_LIMIT);
        if ended.is_some() {
            all.running.remove(&number);
        }
        Ok(News { output, cut, ended })
    }

    /// Stops a command, and waits for its end.
    pub(super) async fn kill(&self, wanted: &str) -> Result<News, String> {
        let mut background = {
            let mut all = self.lock();
            let number = all.find(wanted)?;
            all.running.remove(&number).ok_or_else(|| format!("there is no {wanted}"))?
        };
        background.running.kill();
        let mut output = Vec::new();
        while let Some(event) = background.running.next().await {
            background.take(event, &mut output);
        }
        let cut = background.seen.iter().any(|seen| *seen >= OUTPUT_LIMIT);
        let ended = background.running.finish().await.map(|done| done.ended).map_err(|error| error.to_string());
        Ok(News { output, cut, ended: Some(ended) })
    }

    /// The calls of those that run.
    pub(super) fn live(&self) -> Vec<String> {
        let mut all = self.lock();
        let live = all.running.values_mut().filter_map(|background| match background.running.poll() {
            None => Some(background.call.clone()),
            Some(_) => None,
        });
        live.collect()
    }

    /// Stops all of them. Says which still ran.
    pub(super) async fn stop_all(&self) -> Vec<String> {
        let all = std::mem::take(&mut self.lock().running);
        let mut stopped = Vec::new();
        let mut ending = Vec::new();
        for (number, mut background) in all {
            if background.running.poll().is_none() {
                background.running.kill();
                stopped.push(id(number));
                ending.push(background.running);
            }
        }
        for running in ending {
            // However it ended: it did.
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
                return format!("{}; start it again if you need it", in_words(&status_of(&id(*number), *how)));
            }
            let known: Vec<String> = self.running.keys().map(|number| id(*number)).collect();
            match known.is_empty() {
                true => format!("there is no {wanted}: nothing is in the background"),
                false => format!("there is no {wanted}: there is {}", known.join(", ")),
            }
        })
    }
}

impl Background {
    /// Takes what is there, and waits for nothing.
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

    fn take(&mut self, event: Event, output: &mut Vec<u8>) {
        if let Event::Output { stream, bytes } = event {
            self.seen[usize::from(stream == Stream::Stderr)] += bytes.len() as u64;
            output.extend(bytes);
        }
    }
}

const PREFIX: &str = "bg-";

fn id(number: u64) -> String {
    format!("{PREFIX}{number}")
}
