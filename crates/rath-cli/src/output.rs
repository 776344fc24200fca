//! What a person or a program reads: data on stdout, remarks on stderr, colour and pager where they help.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::Result;
use rath::SessionId;
use rath::store::Trouble;
use serde::Serialize;

use crate::settings::Settings;

/// Text for stdout, gathered so that it can go through a pager.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{text}");
    }

    pub(crate) fn text(&mut self, text: impl std::fmt::Display) {
        let _ = write!(self.0, "{text}");
    }

    /// Shows it, through the pager on a terminal.
    pub(crate) fn show(self, settings: &Settings) -> Result<()> {
        let text = match settings.colour {
            true => self.0,
            false => anstream::adapter::strip_str(&self.0).to_string(),
        };
        match &settings.pager {
            Some(pager) if through(pager, &text) => Ok(()),
            _ => write_out(text.as_bytes()),
        }
    }
}

/// Writes to stdout. A reader that has seen enough is no error.
fn write_out(bytes: &[u8]) -> Result<()> {
    write_while_read(bytes).map(drop)
}

/// Writes to stdout. Says whether somebody still reads.
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
        // Leave when it fits on a screen, keep colours, do not clear.
        command.arg("-FRX");
    }
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        let _ = stdin.write_all(text.as_bytes());
    }
    child.wait().is_ok()
}

/// Prints bytes as they are.
pub(crate) fn raw(bytes: &[u8]) -> Result<()> {
    write_out(bytes)
}

/// A counter on stderr for long work; nothing where nobody looks.
pub(crate) fn spinner(settings: &Settings) -> indicatif::ProgressBar {
    let bar = indicatif::ProgressBar::with_draw_target(
        None,
        match settings.json {
            true => indicatif::ProgressDrawTarget::hidden(),
            false => indicatif::ProgressDrawTarget::stderr(),
        },
    );
    if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {human_pos} records") {
        bar.set_style(style);
    }
    bar
}

/// Prints `value` as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<()> {
    json_while_read(value).map(drop)
}

/// Prints a line of JSON. Says whether somebody still reads.
pub(crate) fn json_while_read(value: &impl Serialize) -> Result<bool> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    write_while_read(&line)
}

/// Prints each of `values` as a line of JSON.
pub(crate) fn json_lines<T: Serialize>(values: impl IntoIterator<Item = T>) -> Result<()> {
    let mut out = Vec::new();
    for value in values {
        serde_json::to_writer(&mut out, &value)?;
        out.push(b'\n');
    }
    write_out(&out)
}

/// Prints the one thing a script wants.
pub(crate) fn answer(text: impl std::fmt::Display) -> Result<()> {
    write_out(format!("{text}\n").as_bytes())
}

/// A remark for the person: not data. One that cannot be written is dropped: the answer is worth more.
pub(crate) fn remark(text: impl std::fmt::Display) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Asks the person at the terminal. Where nobody can be asked, that is an error.
pub(crate) fn confirm(question: &str) -> Result<bool> {
    use std::io::IsTerminal as _;
    if !std::io::stdin().is_terminal() {
        let text = "there is nobody to ask here: nothing was done\n  help: --yes does it without asking, --dry-run only says what would be done";
        return Err(crate::expression::unclear(text));
    }
    let _ = write!(anstream::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Advice for a damaged store that has a log.
const WITHOUT_LOG: &str = "`rath verify` says what is still good; keep the files, and go back to a copy. A copy of the store \
    without rath.db-wal and rath.db-shm may be whole up to what was moved into the database last";

/// What went wrong, and where to read on.
pub(crate) fn complain(settings: &Settings, error: &anyhow::Error) {
    let code = error
        .downcast_ref::<rath::Error>()
        .map(rath::Error::code)
        .or_else(|| error.downcast_ref::<rath::store::Error>().map(rath::store::Error::code))
        .or_else(|| error.downcast_ref::<rath::workshop::Error>().map(rath::workshop::Error::code))
        .or_else(|| error.downcast_ref::<rath_audit::bundle::Error>().map(rath_audit::bundle::Error::code))
        .or_else(|| error.downcast_ref::<rath_audit::import::Error>().map(rath_audit::import::Error::code));
    let help = of_a_stopped_holder(error).or_else(|| {
        if code == Some("erasure-unfinished") {
            return Some("`rath erase --finish` does the rest, once what was in its way is gone".to_owned());
        }
        if let Some(session) = without_place_here(error) {
            let session = session.short();
            return Some(format!(
                "look at what it did with `rath show {session}`; then `rath place {session} --in DIR` has it work in a copy of \
                 DIR, isolated, and `--on host` runs its commands as you"
            ));
        }
        let trouble = Trouble::ALL.iter().find(|trouble| Some(trouble.code()) == code)?;
        let is_long = |path: std::path::PathBuf| std::fs::metadata(path).is_ok_and(|log| log.len() > 0);
        let has_log = || settings.store_path().is_ok_and(|store| is_long(store.join("rath.db-wal")));
        match *trouble == Trouble::Damaged && has_log() {
            true => Some(WITHOUT_LOG.to_owned()),
            false => trouble.advice().map(str::to_owned),
        }
    });
    if settings.json {
        let mut value = serde_json::json!({ "error": { "code": code, "message": format!("{error:#}") } });
        if let Some(help) = help {
            value["error"]["help"] = help.into();
        }
        let _ = writeln!(std::io::stderr(), "{value}");
        return;
    }
    remark(format_args!("{} {}", style::bad("error:"), harmless(&format!("{error:#}"))));
    if let Some(help) = help {
        remark(format_args!("  help: {help}"));
    }
    if let Some(code) = code {
        remark(format_args!("  help: rath explain {code}"));
    }
}

/// The session that came from elsewhere and was given no place here.
fn without_place_here(error: &anyhow::Error) -> Option<SessionId> {
    let of_session = error.downcast_ref::<rath::Error>();
    let of_workshop = || match error.downcast_ref::<rath::workshop::Error>() {
        Some(rath::workshop::Error::Session(error)) => Some(error),
        _ => None,
    };
    match of_session.or_else(of_workshop)?.kind() {
        rath::ErrorKind::NoPlaceHere { session, .. } => Some(*session),
        _ => None,
    }
}

/// What to do about a session whose process was stopped: it would be waited for in vain.
fn of_a_stopped_holder(error: &anyhow::Error) -> Option<String> {
    let error = match error.downcast_ref::<rath::workshop::Error>() {
        Some(rath::workshop::Error::Session(error)) => Some(error),
        _ => error.downcast_ref::<rath::Error>(),
    };
    let rath::ErrorKind::Store(rath::store::Error::Held { session, holder }) = error?.kind() else { return None };
    rath::Embedded::is_stopped(holder.process).then(|| {
        let (process, session) = (holder.process, session.short());
        format!(
            "that process is stopped: `kill -CONT {process}` wakes it, `rath take {session}` takes the session from it"
        )
    })
}

/// Content as a terminal may show it: control characters are written out, so that a text cannot move the cursor,
/// set a title or colour what follows. Line breaks and tabs stay.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            c if c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c) || ('\u{2066}'..='\u{2069}').contains(&c) => {
                out.extend(c.escape_unicode());
            }
            c => out.push(c),
        }
    }
    out
}

/// A whole number as a person reads it: `12,345`.
pub(crate) fn whole(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}

/// Billionths of a dollar as a person reads them.
pub(crate) fn dollars(nano: u64) -> String {
    match nano {
        0 => "–".to_owned(),
        1..=99_999_999 => format!("${:.4}", nano as f64 / 1e9),
        _ => format!("${:.2}", nano as f64 / 1e9),
    }
}

/// `1 record`, `2 records`, `2 bodies`, `2 days`.
pub(crate) fn count(number: u64, thing: &str) -> String {
    let stem = thing.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u']));
    match (number, stem) {
        (1, _) => format!("{number} {thing}"),
        (_, Some(stem)) => format!("{number} {stem}ies"),
        (_, None) => format!("{number} {thing}s"),
    }
}

/// A number of bytes as a person reads it.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        0..=9_999 => format!("{count} B"),
        10_000..=9_999_999 => format!("{} kB", count / 1000),
        10_000_000..=9_999_999_999 => format!("{} MB", count / 1_000_000),
        _ => format!("{} GB", count / 1_000_000_000),
    }
}

/// A time span as a person reads it.
pub(crate) fn span(duration: std::time::Duration) -> String {
    match duration.as_millis() {
        0..=9_999 => format!("{} ms", duration.as_millis()),
        _ => format!("{} s", duration.as_secs()),
    }
}

/// Changed paths, a line each, as a remark. Directories are seen by what is in them.
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

/// Styles for what is shown often.
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

    /// What says that nothing keeps a command away from the machine is seen at a glance.
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

/// What a command prints that made a session.
pub(crate) fn born(settings: &Settings, session: &rath::Session) -> Result<()> {
    match settings.json {
        true => json(&rath::inspect::SessionCreated::from(session)),
        false => answer(session.id().short()),
    }
}

/// What a command prints that added a record.
pub(crate) fn added(settings: &Settings, head: rath::Reference) -> Result<()> {
    match settings.json {
        true => json(&head),
        false => answer(head.point()),
    }
}
