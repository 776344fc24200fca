use std::ffi::OsString;

use anyhow::{Result, bail};
use rath::View;
use rath::files::{FilePath, TreeStore};
use rath::inspect::{self, BlamedFile, BlamedLine};

use super::FileAddress;
use crate::commands::Answer;
use crate::commands::log::clip;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Show which record wrote each line of a file: the command, step, actor, branch and time
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Blame {
    /// The file, as `rath file cat` names it; with :LINE at the end only that line
    #[arg(value_name = "SESSION:PATH[:LINE]")]
    pub(crate) what: OsString,
}

impl Blame {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let FileAddress { of, path } = FileAddress::parse(&self.what);
        let store = settings.store()?;
        let place = expression::resolve(&store, &of).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        let (path, only) = split(path.as_bytes());
        let path = FilePath::from(path);
        let known = match &view.state().workspace {
            Some(version) => TreeStore::new(&*store).at(version, &path).await?.is_some(),
            None => false,
        };
        if !known {
            let session = place.session.short();
            let text =
                format!("there is no {path} in {of}\n  help: `rath file ls {session}` lists the files of the session");
            return Err(expression::usage_error(text));
        }
        let BlamedFile { is_text, mut lines } = inspect::blame(&view, &path).await?;
        let count = lines.len();
        if let Some(line) = only.filter(|line| *line == 0 || *line > count) {
            bail!("{path} has lines 1 to {count}; {line} is not one of them");
        }
        lines.retain(|line| only.is_none_or(|only| only == line.line));
        if settings.json {
            return output::json_list("rath.file.blame/1", lines).map(|()| Answer::Yes);
        }
        let mut page = Page::default();
        // The origin takes at most half of the width, so that the text stays readable.
        let width = settings.width.saturating_sub(10) / 2;
        let origins: Vec<_> = lines.iter().map(|line| clip(&origin(line), width.saturating_sub(1))).collect();
        let column = origins.iter().map(|origin| origin.chars().count()).max().unwrap_or(0);
        for (line, origin) in lines.iter().zip(origins) {
            let text = line.text.as_ref().map(|text| output::escaped(text.trim_end_matches(['\n', '\r'])));
            let (point, rest) = origin.split_once(' ').unwrap_or((&origin, ""));
            let gap = column.saturating_sub(origin.chars().count());
            page.line(format_args!(
                "{} {rest}{:gap$} {} {}",
                style::record(point),
                "",
                style::dim(format!("{:>4})", line.line)),
                if is_text { text.unwrap_or_default() } else { "(not text)".into() },
            ));
        }
        page.show(settings)?;
        Ok(Answer::Yes)
    }
}

/// `9f31@4 2026-11-16 bold: sed -i s/20/50/ a.conf [fix] (plan B)`
fn origin(line: &BlamedLine) -> String {
    let origin = &line.origin;
    let what = rath::summary::one_line(&origin.what);
    let step = origin.step.as_ref().map(|step| format!(" [{step}]")).unwrap_or_default();
    let branch = origin.branch.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    format!("{} {} {}: {what}{step}{branch}", origin.record.point(), time::day(origin.time), origin.actor.name)
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
