//! What a person types: lines with history and editing, and answers to short questions.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context as _, Result};
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::DefaultEditor;
use rustyline::config::Configurer as _;
use rustyline::error::ReadlineError;

use crate::output;

/// How many lines are remembered.
const REMEMBERED: usize = 1000;

/// Reads what a person types.
#[derive(Clone)]
pub(crate) struct Keyboard {
    editor: Arc<Mutex<DefaultEditor>>,
    history: Option<PathBuf>,
    /// A line that is being typed and that nobody waits for any more: the next question gets it.
    pending: Arc<tokio::sync::Mutex<Option<Reading>>>,
    _modes: Arc<Modes>,
}

type Reading = tokio::task::JoinHandle<rustyline::Result<String>>;

/// The terminal's modes as the first keyboard found them.
static FOUND: OnceLock<Termios> = OnceLock::new();

/// Gives the terminal the modes that it had at the beginning. Reading a line changes them.
pub(crate) fn restore_terminal() {
    if let Some(modes) = FOUND.get() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, modes);
    }
}

/// Restores the terminal when the last keyboard goes, also after a line that was never ended.
struct Modes;

impl Drop for Modes {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// What was typed.
pub(crate) enum Line {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

impl Keyboard {
    /// The keyboard of this terminal, if there is one. Lines are remembered in this file.
    pub(crate) fn of_terminal(history: Option<PathBuf>) -> Result<Option<Self>> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Ok(None);
        }
        let mut editor = DefaultEditor::new().context("reading from the terminal")?;
        editor.set_max_history_size(REMEMBERED).context("remembering lines")?;
        editor.set_auto_add_history(false);
        if let Some(file) = &history {
            // There is none before the first line.
            let _ = editor.load_history(file);
        }
        if let Ok(modes) = tcgetattr(stdin()) {
            let _ = FOUND.set(modes);
        }
        Ok(Some(Self {
            editor: Arc::new(Mutex::new(editor)),
            history,
            pending: Arc::default(),
            _modes: Arc::new(Modes),
        }))
    }

    /// A line. One that ends with a backslash goes on.
    pub(crate) async fn line(&self, prompt: &str) -> Result<Line> {
        let mut text = String::new();
        loop {
            let line = match self.read(if text.is_empty() { prompt } else { "… " }).await? {
                Line::Text(line) => line,
                other => return Ok(other),
            };
            match line.strip_suffix('\\') {
                Some(begin) => text = text + begin + "\n",
                None => {
                    text += &line;
                    break;
                }
            }
        }
        self.remember(&text);
        Ok(Line::Text(text))
    }

    /// A line that is not remembered: it may be a secret.
    pub(crate) async fn reply(&self, question: &str) -> Result<Line> {
        self.read(question).await
    }

    /// The answer to a question, as it was typed and without spaces around it; `None` where there is none.
    pub(crate) async fn answer(&self, question: &str) -> Result<Option<String>> {
        match self.read(question).await? {
            Line::Text(text) => Ok(Some(text.trim().to_owned())),
            Line::Interrupted | Line::End => Ok(None),
        }
    }

    async fn read(&self, prompt: &str) -> Result<Line> {
        let mut pending = self.pending.lock().await;
        if pending.is_some() {
            output::remark(prompt);
        }
        let reading = pending.get_or_insert_with(|| {
            let (editor, prompt) = (self.editor.clone(), prompt.to_owned());
            tokio::task::spawn_blocking(move || editor.lock().unwrap_or_else(PoisonError::into_inner).readline(&prompt))
        });
        let read = reading.await;
        *pending = None;
        match read.context("reading from the terminal")? {
            Ok(text) => Ok(Line::Text(text)),
            Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(error) => Err(error).context("reading from the terminal"),
        }
    }

    fn remember(&self, text: &str) {
        let mut editor = self.editor.lock().unwrap_or_else(PoisonError::into_inner);
        if text.trim().is_empty() || !editor.add_history_entry(text).unwrap_or(false) {
            return;
        }
        let Some(file) = &self.history else { return };
        // Not worth failing for.
        let _ = file.parent().map_or(Ok(()), private_dir);
        let _ = editor.append_history(file);
    }
}

fn private_dir(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
