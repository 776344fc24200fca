use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Result, bail};
use rath::View;
use rath::files::Name;
use rath::inspect::{self, BlamedFile, BlamedLine};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Say which record wrote each line of a file: the command, step, actor, branch and time
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Blame {
    /// The file, by its path in the workspace; with :LINE only that line
    #[arg(value_name = "FILE[:LINE]")]
    file: OsString,
    /// The session or record; the session that changed last if absent
    #[arg(long, short = 'S', value_name = "SESSION", default_value = "@")]
    session: String,
}

impl Blame {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.session).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        let (path, only) = split(self.file.as_bytes());
        let path = Name::from(path);
        let BlamedFile { is_text, mut lines } = inspect::blame(&view, &path).await?;
        let count = lines.len();
        if let Some(line) = only.filter(|line| *line == 0 || *line > count) {
            bail!("{path} has lines 1 to {count}; {line} is not one of them");
        }
        lines.retain(|line| only.is_none_or(|only| only == line.line));
        if settings.json {
            return output::json_lines(lines).map(|()| Answer::Yes);
        }
        let mut page = Page::default();
        let what = |line: &BlamedLine| output::harmless(&rath::summary::one_line(&line.origin.what));
        let width = lines.iter().map(|line| what(line).chars().count()).max().unwrap_or(0).min(40);
        for line in &lines {
            let origin = &line.origin;
            let short: String = what(line).chars().take(40).collect();
            let branch = origin.branch.as_ref().map(|why| format!(" ({})", output::harmless(why))).unwrap_or_default();
            let step = origin.step.as_ref().map(|step| format!(" [{}]", output::harmless(step))).unwrap_or_default();
            let text = line.text.as_ref().map(|text| output::harmless(text.trim_end_matches(['\n', '\r'])));
            page.line(format_args!(
                "{}{branch} {} {}{step} {short:<width$} {} {}",
                style::record(origin.record.point()),
                style::dim(time::local(origin.time)),
                output::harmless(&origin.actor.to_string()),
                style::dim(format!("{:>4})", line.line)),
                if is_text { text.unwrap_or_default() } else { "(not text)".into() },
            ));
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

/// The path, and the line after the last colon.
fn split(argument: &[u8]) -> (&[u8], Option<usize>) {
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let at = argument.iter().rposition(|byte| *byte == b':');
    match at.and_then(|at| Some((at, number(&argument[at + 1..])?))) {
        Some((at, line)) => (&argument[..at], Some(line)),
        None => (argument, None),
    }
}
