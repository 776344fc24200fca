//! Where a run is shown. Words go to stdout where that is a terminal, else to stderr with everything else, so that a pipe
//! gets the answer and nothing besides.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// How often the line that says what is going on moves.
const TICK: Duration = Duration::from_millis(120);

/// A terminal, or what stands for it.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Mutex<Inner>>);

struct Inner {
    /// Whether words go to stdout.
    words_out: bool,
    /// Whether a line may be drawn and drawn again.
    moves: bool,
    busy: Option<ProgressBar>,
    /// Whether the last line is not ended.
    mid_line: bool,
    /// Whether anything was written since the last empty line.
    below_text: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let (words_out, moves) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        Self(Arc::new(Mutex::new(Inner { words_out, moves, busy: None, mid_line: false, below_text: false })))
    }

    /// Whether the words of the run were shown on stdout.
    pub(crate) fn has_words(&self) -> bool {
        self.inner().words_out
    }

    /// Says what is going on, until something else is written.
    pub(crate) fn busy(&self, what: &str) {
        let mut inner = self.inner();
        if !inner.moves {
            return;
        }
        inner.end_line();
        let what = output::harmless(what).replace('\n', " ");
        match &inner.busy {
            Some(bar) => bar.set_message(what),
            None => {
                let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
                if let Ok(style) = ProgressStyle::with_template("{spinner:.cyan} {wide_msg} {elapsed:.dim}") {
                    bar.set_style(style);
                }
                bar.set_message(what);
                bar.enable_steady_tick(TICK);
                inner.busy = Some(bar);
            }
        }
    }

    /// Nothing is going on.
    pub(crate) fn idle(&self) {
        let mut inner = self.inner();
        inner.clear();
        inner.end_line();
    }

    /// More words of an answer, as they came.
    pub(crate) fn words(&self, text: &str) {
        let mut inner = self.inner();
        inner.clear();
        let text = output::harmless(text);
        let text = if inner.mid_line { text.as_str() } else { text.trim_start_matches('\n') };
        if text.is_empty() {
            return;
        }
        inner.write_words(text);
        inner.mid_line = !text.ends_with('\n');
        inner.below_text = true;
    }

    /// A line besides the words.
    pub(crate) fn line(&self, text: impl std::fmt::Display) {
        let mut inner = self.inner();
        inner.clear();
        inner.end_line();
        output::remark(text);
        inner.below_text = true;
    }

    /// An empty line, where something stands above.
    pub(crate) fn gap(&self) {
        let mut inner = self.inner();
        inner.clear();
        inner.end_line();
        if inner.moves && std::mem::take(&mut inner.below_text) {
            output::remark("");
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn clear(&mut self) {
        if let Some(bar) = self.busy.take() {
            bar.finish_and_clear();
        }
    }

    fn end_line(&mut self) {
        if std::mem::take(&mut self.mid_line) {
            self.write_words("\n");
        }
    }

    /// Nobody is left to tell when the terminal is gone.
    fn write_words(&self, text: &str) {
        let _ = match self.words_out {
            true => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            false => std::io::stderr().lock().write_all(text.as_bytes()),
        };
    }
}
