//! Writes the progress of a run. Streamed text goes to stdout if that is a terminal. Otherwise everything goes to stderr,
//! so that a pipe gets only the answer.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// How often the status line is redrawn.
const TICK: Duration = Duration::from_millis(120);

/// The terminal on which a run is shown.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Mutex<Inner>>);

struct Inner {
    /// Whether streamed text goes to stdout.
    text_to_stdout: bool,
    /// Whether stderr is a terminal, on which a status line can be redrawn.
    moves: bool,
    busy: Option<ProgressBar>,
    /// Whether the last line has no line end yet.
    mid_line: bool,
    /// Whether anything was written since the last empty line.
    below_text: bool,
}

impl Screen {
    pub(crate) fn new() -> Self {
        let (text_to_stdout, moves) = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        Self(Arc::new(Mutex::new(Inner { text_to_stdout, moves, busy: None, mid_line: false, below_text: false })))
    }

    /// Whether streamed text is shown on stdout.
    pub(crate) fn has_words(&self) -> bool {
        self.inner().text_to_stdout
    }

    /// Shows a status line until something else is written.
    pub(crate) fn busy(&self, what: &str) {
        let mut inner = self.inner();
        if !inner.moves {
            return;
        }
        inner.end_line();
        let what = output::escaped(what).replace('\n', " ");
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

    /// Removes the status line.
    pub(crate) fn idle(&self) {
        let mut inner = self.inner();
        inner.clear();
        inner.end_line();
    }

    /// Writes streamed text.
    pub(crate) fn words(&self, text: &str) {
        let mut inner = self.inner();
        inner.clear();
        let text = output::escaped(text);
        let text = if inner.mid_line { text.as_str() } else { text.trim_start_matches('\n') };
        if text.is_empty() {
            return;
        }
        inner.write_words(text);
        inner.mid_line = !text.ends_with('\n');
        inner.below_text = true;
    }

    /// Writes a line to stderr.
    pub(crate) fn line(&self, text: impl std::fmt::Display) {
        let mut inner = self.inner();
        inner.clear();
        inner.end_line();
        output::remark(text);
        inner.below_text = true;
    }

    /// Writes an empty line, if there is text above.
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

    /// Errors are ignored: they mean that the terminal is gone.
    fn write_words(&self, text: &str) {
        let _ = if self.text_to_stdout {
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        } else {
            std::io::stderr().lock().write_all(text.as_bytes())
        };
    }
}
