use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;

use anyhow::{Result, bail};
use rath::View;
use rath::files::Name;
use serde_json::json;

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
        let blame = view.blame(&path).await?;
        let count = blame.lines.len();
        if let Some(line) = only.filter(|line| *line == 0 || *line > count) {
            bail!("{path} has lines 1 to {count}; {line} is not one of them");
        }
        let texts: Vec<String> =
            blame.content.split_inclusive(|b| *b == b'\n').map(|l| String::from_utf8_lossy(l).into_owned()).collect();
        let wanted = (0..count).filter(|at| only.is_none_or(|only| only == at + 1));
        if settings.json {
            let line =
                |at: usize| json!({ "line": at + 1, "text": texts.get(at), "origin": blame.origins[blame.lines[at]] });
            return output::json_lines(wanted.map(line)).map(|()| Answer::Yes);
        }
        let mut page = Page::default();
        let what = |at: usize| output::harmless(&rath::summary::one_line(&blame.origins[at].what));
        let width = wanted.clone().map(|at| what(blame.lines[at]).chars().count()).max().unwrap_or(0).min(40);
        for at in wanted {
            let origin = &blame.origins[blame.lines[at]];
            let short: String = what(blame.lines[at]).chars().take(40).collect();
            let branch = origin.branch.as_ref().map(|why| format!(" ({})", output::harmless(why))).unwrap_or_default();
            let step = origin.step.as_ref().map(|step| format!(" [{}]", output::harmless(step))).unwrap_or_default();
            let text = texts.get(at).map(|text| output::harmless(text.trim_end_matches(['\n', '\r'])));
            page.line(format_args!(
                "{}{branch} {} {}{step} {short:<width$} {} {}",
                style::record(origin.record.point()),
                style::dim(time::local(origin.time)),
                output::harmless(&origin.actor.to_string()),
                style::dim(format!("{:>4})", at + 1)),
                if blame.is_text { text.unwrap_or_default() } else { "(not text)".into() },
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
