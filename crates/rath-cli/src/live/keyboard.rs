//! Reads from the terminal: lines with history and editing, and answers to short questions.

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

/// How many lines the history keeps.
const HISTORY_SIZE: usize = 1000;

/// Reads lines from the terminal.
#[derive(Clone)]
pub(crate) struct Keyboard {
    editor: Arc<Mutex<DefaultEditor>>,
    history: Option<PathBuf>,
    /// A read that was started and abandoned: the next question gets its line.
    pending: Arc<tokio::sync::Mutex<Option<Reading>>>,
    _modes: Arc<Modes>,
}

type Reading = tokio::task::JoinHandle<rustyline::Result<String>>;

/// The modes of the terminal before the first keyboard was created.
static ORIGINAL_MODES: OnceLock<Termios> = OnceLock::new();

/// Restores the original modes of the terminal, which reading a line changes.
pub(crate) fn restore_terminal() {
    if let Some(modes) = ORIGINAL_MODES.get() {
        let _ = tcsetattr(stdin(), OptionalActions::Now, modes);
    }
}

/// Restores the terminal when the last keyboard is dropped, also in the middle of a line.
struct Modes;

impl Drop for Modes {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// The result of reading a line.
pub(crate) enum TypedLine {
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the end of the input.
    End,
}

impl Keyboard {
    /// The keyboard of the terminal; `None` if stdin or stderr is not one. `history` is the file for typed lines.
    pub(crate) fn of_terminal(history: Option<PathBuf>) -> Result<Option<Self>> {
        if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Ok(None);
        }
        let mut editor = DefaultEditor::new().context("reading from the terminal")?;
        editor.set_max_history_size(HISTORY_SIZE).context("setting the size of the history")?;
        editor.set_auto_add_history(false);
        if let Some(file) = &history {
            // The file does not exist before the first line.
            let _ = editor.load_history(file);
        }
        if let Ok(modes) = tcgetattr(stdin()) {
            let _ = ORIGINAL_MODES.set(modes);
        }
        Ok(Some(Self {
            editor: Arc::new(Mutex::new(editor)),
            history,
            pending: Arc::default(),
            _modes: Arc::new(Modes),
        }))
    }

    /// Reads a line. A line that ends with a backslash continues.
    pub(crate) async fn line(&self, prompt: &str) -> Result<TypedLine> {
        let mut text = String::new();
        loop {
            let line = match self.read(if text.is_empty() { prompt } else { "… " }).await? {
                TypedLine::Text(line) => line,
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
        Ok(TypedLine::Text(text))
    }

    /// Reads a line that is not added to the history: it may be a secret.
    pub(crate) async fn reply(&self, question: &str) -> Result<TypedLine> {
        self.read(question).await
    }

    /// Reads the answer to a question, without spaces around it; `None` after Ctrl-C or Ctrl-D.
    pub(crate) async fn answer(&self, question: &str) -> Result<Option<String>> {
        match self.read(question).await? {
            TypedLine::Text(text) => Ok(Some(text.trim().to_owned())),
            TypedLine::Interrupted | TypedLine::End => Ok(None),
        }
    }

    async fn read(&self, prompt: &str) -> Result<TypedLine> {
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
            Ok(text) => Ok(TypedLine::Text(text)),
            Err(ReadlineError::Interrupted) => Ok(TypedLine::Interrupted),
            Err(ReadlineError::Eof) => Ok(TypedLine::End),
            Err(error) => Err(error).context("reading from the terminal"),
        }
    }

    fn remember(&self, text: &str) {
        let mut editor = self.editor.lock().unwrap_or_else(PoisonError::into_inner);
        if text.trim().is_empty() || !editor.add_history_entry(text).unwrap_or(false) {
            return;
        }
        let Some(file) = &self.history else { return };
        // A history that cannot be written is not an error.
        let _ = file.parent().map_or(Ok(()), private_dir);
        let _ = editor.append_history(file);
    }
}

fn private_dir(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)
}
