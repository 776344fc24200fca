//! Output: data on stdout, remarks and errors on stderr, with colour and a pager on a terminal.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Result;
use rath::SessionId;
use rath::store::IoErrorKind;
use serde::Serialize;

use crate::commands::explained_codes;
use crate::expression::UsageError;
use crate::providers::NoCredentials;
use crate::settings::Settings;

/// Text for stdout, collected so that it can go through a pager.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{text}");
    }

    pub(crate) fn text(&mut self, text: impl std::fmt::Display) {
        let _ = write!(self.0, "{text}");
    }

    /// Writes the text to stdout, through the pager on a terminal.
    pub(crate) fn show(self, settings: &Settings) -> Result<()> {
        let text = if settings.colour { self.0 } else { anstream::adapter::strip_str(&self.0).to_string() };
        match &settings.pager {
            Some(pager) if through(pager, &text) => Ok(()),
            _ => write_out(text.as_bytes()),
        }
    }
}

/// Writes to stdout. A closed pipe is not an error.
fn write_out(bytes: &[u8]) -> Result<()> {
    write_while_read(bytes).map(drop)
}

/// Writes to stdout. Returns false if the pipe is closed.
fn write_while_read(bytes: &[u8]) -> Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[allow(clippy::disallowed_methods, reason = "the pager is the one process the command line starts")]
fn through(pager: &str, text: &str) -> bool {
    let mut words = pager.split_whitespace();
    let Some(program) = words.next() else { return false };
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped());
    if program.ends_with("less") {
        // -F: exit if the text fits on one screen; -R: keep colours; -X: do not clear the screen.
        command.arg("-FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(text.as_bytes());
    }
    child.wait().is_ok()
}

/// Writes bytes to stdout unchanged.
pub(crate) fn raw(bytes: &[u8]) -> Result<()> {
    write_out(bytes)
}

/// A progress counter on stderr, hidden with `--json` and where stderr is not a terminal.
pub(crate) fn spinner(settings: &Settings) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::with_draw_target(
        None,
        if settings.json { indicatif::ProgressDrawTarget::hidden() } else { indicatif::ProgressDrawTarget::stderr() },
    );
    if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {human_pos} records") {
        bar.set_style(style);
    }
    bar
}

/// A JSON object with the name and version of its shape.
#[derive(Serialize)]
struct Tagged<'a, T> {
    schema: &'a str,
    #[serde(flatten)]
    value: T,
}

/// A JSON list with the name and version of its shape.
#[derive(Serialize)]
struct TaggedList<'a, T> {
    schema: &'a str,
    items: Vec<T>,
}

/// Prints `value` as one line of JSON. `schema` is `rath.COMMAND/VERSION`, as docs/reference/json.md lists them.
pub(crate) fn json(schema: &str, value: &impl Serialize) -> Result<()> {
    json_while_read(schema, value).map(drop)
}

/// Like [`json`]. Returns false if the pipe is closed.
pub(crate) fn json_while_read(schema: &str, value: &impl Serialize) -> Result<bool> {
    let mut line = serde_json::to_vec(&Tagged { schema, value })?;
    line.push(b'\n');
    write_while_read(&line)
}

/// Prints `items` as one line of JSON: `{"schema": …, "items": […]}`.
pub(crate) fn json_list<T: Serialize>(schema: &str, items: impl IntoIterator<Item = T>) -> Result<()> {
    let items = items.into_iter().collect();
    let mut line = serde_json::to_vec(&TaggedList { schema, items })?;
    line.push(b'\n');
    write_out(&line)
}

/// Prints a result on one line, for scripts.
pub(crate) fn answer(text: impl std::fmt::Display) -> Result<()> {
    write_out(format!("{text}\n").as_bytes())
}

/// Prints a remark on stderr. A failed write is ignored, because the result on stdout matters more.
pub(crate) fn remark(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Asks for confirmation at the terminal. Without a terminal, that is a usage error.
pub(crate) fn confirm(question: &str) -> Result<bool> {
    use std::io::IsTerminal as _;
    if !std::io::stdin().is_terminal() {
        let text = "cannot prompt: stdin is not a terminal; nothing was done\n  help: use --yes to proceed, or --dry-run to see what would be done";
        return Err(crate::expression::usage_error(text));
    }
    let _ = write!(anstream::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Advice for a damaged store that has a write-ahead log.
const WITHOUT_LOG: &str = "`rath verify` shows what is still valid; keep the files, and restore a backup. A copy of the store without \
    rath.db-wal and rath.db-shm may be complete up to the last checkpoint of the database";

/// Prints an error: on stderr, as text or as JSON.
pub(crate) fn complain(settings: &Settings, error: &anyhow::Error) {
    let code = error
        .downcast_ref::<rath::Error>()
        .map(rath::Error::code)
        .or_else(|| error.downcast_ref::<rath::store::Error>().map(rath::store::Error::code))
        .or_else(|| error.downcast_ref::<rath::workspaces::Error>().map(rath::workspaces::Error::code))
        .or_else(|| error.downcast_ref::<rath_audit::bundle::BundleError>().map(rath_audit::bundle::BundleError::code))
        .or_else(|| error.downcast_ref::<rath_audit::import::ImportError>().map(rath_audit::import::ImportError::code));
    let help = of_a_stopped_holder(error).or_else(|| {
        if code == Some("model-failed") {
            return Some("`rath doctor` checks the providers".to_owned());
        }
        if code == Some("still-open") {
            let text = "`rath resume SESSION` continues an interrupted run, `rath cancel SESSION` cancels it";
            return Some(text.to_owned());
        }
        if code == Some("erasure-unfinished") {
            return Some("`rath store erase --finish` finishes the erasure, once the cause is removed".to_owned());
        }
        if let Some(session) = without_place_here(error) {
            let session = session.short();
            return Some(format!(
                "check what it did with `rath show {session}`; then `rath workspace set {session} --in DIR` has it work in a copy \
                 of DIR, isolated, and `--on host` runs its commands as you"
            ));
        }
        let io_error = IoErrorKind::ALL.iter().find(|io_error| Some(io_error.code()) == code)?;
        let is_long = |path: std::path::PathBuf| std::fs::metadata(path).is_ok_and(|log| log.len() > 0);
        let has_log = || settings.store_path().is_ok_and(|store| is_long(store.join("rath.db-wal")));
        if *io_error == IoErrorKind::Damaged && has_log() { Some(WITHOUT_LOG.to_owned()) } else { io_error.advice().map(str::to_owned) }
    });
    let message = format!("{error:#}");
    // Some messages carry their advice with them.
    let mut parts = message.split("\n  help: ").map(str::to_owned);
    let message = parts.next().unwrap_or_default();
    let advice: Vec<String> = parts.chain(help).collect();
    let code = code.unwrap_or(match () {
        () if error.is::<UsageError>() => "usage",
        () if error.is::<NoCredentials>() => "no-credentials",
        () => "failed",
    });
    if settings.json {
        print_json_error(code, &message, Some(advice.join("; ")).filter(|help| !help.is_empty()));
        return;
    }
    remark(format_args!("{} {}", style::bad("error:"), escaped(&message)));
    for help in advice {
        remark(format_args!("  help: {}", escaped(&help)));
    }
    if explained_codes().contains(code) {
        remark(format_args!("  help: rath help error {code}"));
    }
}

/// An error with `--json`.
#[derive(Serialize)]
struct JsonError<'a> {
    code: &'a str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

fn print_json_error(code: &str, message: &str, help: Option<String>) {
    let error = Tagged { schema: "rath.error/1", value: JsonError { code, message, help } };
    if let Ok(line) = serde_json::to_string(&error) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// Prints help, the version, or an error in the command line. Returns the exit code.
pub(crate) fn complain_of_usage(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json");
    if !error.use_stderr() || !is_json {
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text);
    let (message, help) = match message.split_once("\n\n") {
        Some((message, help)) => (message, Some(help.split_whitespace().collect::<Vec<_>>().join(" "))),
        None => (message, None),
    };
    print_json_error("usage", message.trim_end(), help.filter(|help| !help.is_empty()));
    ExitCode::from(2)
}

/// The exit code of a command that ended with this error.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    match () {
        () if error.is::<UsageError>() => 2,
        () if error.is::<NoCredentials>() => 4,
        () => 1,
    }
}

/// The imported session that has no workspace here, if that is the error.
fn without_place_here(error: &anyhow::Error) -> Option<SessionId> {
    let of_session = error.downcast_ref::<rath::Error>();
    let of_workspaces = || match error.downcast_ref::<rath::workspaces::Error>() {
        Some(rath::workspaces::Error::Session(error)) => Some(error),
        _ => None,
    };
    match of_session.or_else(of_workspaces)?.kind() {
        rath::ErrorKind::NotPlacedHere { session, .. } => Some(*session),
        _ => None,
    }
}

/// Advice for a session that is locked by a stopped process: waiting for it would not help.
fn of_a_stopped_holder(error: &anyhow::Error) -> Option<String> {
    let error = match error.downcast_ref::<rath::workspaces::Error>() {
        Some(rath::workspaces::Error::Session(error)) => Some(error),
        _ => error.downcast_ref::<rath::Error>(),
    };
    let rath::ErrorKind::Store(rath::store::Error::Locked { session, holder }) = error?.kind() else { return None };
    rath::Embedded::is_stopped(holder.process).then(|| {
        let (process, session) = (holder.process, session.short());
        format!(
            "process {process} is stopped: `kill -CONT {process}` wakes it, `rath session unlock {session}` unlocks the session"
        )
    })
}

/// Text that is safe on a terminal: control characters, changes of the writing direction and invisible characters are
/// escaped, so that a text cannot move the cursor, colour what follows or hide part of itself. Line breaks and tabs stay.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Whether a character has no width or changes the writing direction. Joiners in words and emoji (U+200C, U+200D) stay.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{feff}'
        | '\u{2060}'..='\u{206f}' | '\u{e0000}'..='\u{e007f}')
}

/// A whole number with separators: `12,345`.
pub(crate) fn whole(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

/// Billionths of a dollar as dollars: `$0.0123`.
pub(crate) fn dollars(nano: u64) -> String {
    match nano {
        0 => "–".to_owned(),
        1..=99_999_999 => format!("${:.4}", nano as f64 / 1e9),
        _ => format!("${:.2}", nano as f64 / 1e9),
    }
}

/// `1 record`, `2 records`, `2 bodies`, `2 days`, `2 processes`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let stem = thing.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (number, stem) {
        (1, _) => format!("{number} {thing}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) if thing.ends_with(['s', 'x', 'h']) => format!("{number} {thing}es"),
        (_, None) => format!("{number} {thing}s"),
    }
}

/// A number of bytes with a unit: `120 kB`.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{} kB", count / 1000),
        10_000_000..=9_999_999_999 => format!("{} MB", count / 1_000_000),
        _ => format!("{} GB", count / 1_000_000_000),
    }
}

/// A duration with a unit: `250 ms`, `12 s`.
pub(crate) fn span(duration: std::time::Duration) -> String {
    match duration.as_millis() {
        0..=9_999 => format!("{} ms", duration.as_millis()),
        _ => format!("{} s", duration.as_secs()),
    }
}

/// Prints changed paths as remarks, one a line. Directories are left out: the paths in them show them.
pub(crate) fn remark_changes(changes: &[rath::files::Change]) {
    const SHOWN: usize = 20;
    let shown: Vec<_> = changes.iter().filter(|change| !change.is_directory()).collect();
    for change in shown.iter().take(SHOWN) {
        remark(format_args!("  {} {}", style::label(change.letter()), change.path));
    }
    if shown.len() > SHOWN {
        remark(format_args!("  and {} more", shown.len() - SHOWN));
    }
}

/// Styles of common parts of the output.
pub(crate) mod style {
    use owo_colors::OwoColorize as _;

    pub(crate) fn session(text: impl std::fmt::Display) -> String {
        text.magenta().bold().to_string()
    }

    pub(crate) fn record(text: impl std::fmt::Display) -> String {
        text.cyan().to_string()
    }

    pub(crate) fn dim(text: impl std::fmt::Display) -> String {
        text.dimmed().to_string()
    }

    pub(crate) fn title(text: impl std::fmt::Display) -> String {
        text.bold().to_string()
    }

    pub(crate) fn good(text: impl std::fmt::Display) -> String {
        text.green().to_string()
    }

    pub(crate) fn bad(text: impl std::fmt::Display) -> String {
        text.red().bold().to_string()
    }

    /// Highlights `not isolated`.
    pub(crate) fn warn_of_isolation(text: &str) -> String {
        text.replace("not isolated", &label("not isolated"))
    }

    pub(crate) fn label(text: impl std::fmt::Display) -> String {
        text.yellow().to_string()
    }

    pub(crate) fn found(text: impl std::fmt::Display) -> String {
        text.red().bold().to_string()
    }
}

/// Prints the session that a command created.
pub(crate) fn created(settings: &Settings, created: &rath::inspect::SessionCreated) -> Result<()> {
    if settings.json { json("rath.session/1", created) } else { answer(created.session.short()) }
}

/// Prints the record that a command added.
pub(crate) fn added(settings: &Settings, head: rath::Reference) -> Result<()> {
    if settings.json { json("rath.reference/1", &head) } else { answer(head.point()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_control_the_terminal_or_hide_part_of_itself() {
        assert_eq!(escaped("a\u{1b}[2Jb\u{200b}c\u{202e}d\n\te"), "a\\u{1b}[2Jb\\u{200b}c\\u{202e}d\n\te");
        assert_eq!(escaped("👩\u{200d}🔬 می\u{200c}خواهم"), "👩\u{200d}🔬 می\u{200c}خواهم");
    }

    #[test]
    fn plurals_are_regular() {
        let plural = |thing: &str| count(2, thing);
        assert_eq!(plural("process"), "2 processes");
        assert_eq!(plural("copy"), "2 copies");
        assert_eq!(plural("day"), "2 days");
        assert_eq!(plural("branch"), "2 branches");
        assert_eq!(count(1, "process"), "1 process");
    }
}
