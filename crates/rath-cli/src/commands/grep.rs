use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use anyhow::Result;
use rath::inspect::LabelFilter;
use rath::search::{ActorFilter, MatchedPassage, Pattern, SearchHit, SearchOrder, SearchQuery};
use rath::{Kind, SessionId, Store, Time, View};
use serde::Serialize;

use super::Answer;
use crate::expression::{self, usage_error};
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// How many records are shown by default.
const LIMIT: usize = 50;

/// How many lines of one record are shown.
const LINES: usize = 10;

/// How many characters of a long line are shown, and how many of them before the match.
const LONG: usize = 240;
const BEFORE: usize = 80;

const HELP: &str = "\
The pattern is one argument:
  pool small         both words, anywhere in one record; case and accents are ignored
  \"error rate\"       these words in this order
  check*             words that start with check
  pool -small        pool, without small
  roll back OR undo  either
Punctuation separates words: checkout.conf is checkout followed by conf. Text without
spaces (Chinese, Japanese, Thai, …) is found by any part of it.
Times: 2h, 3d, yesterday, 2026-11-16, \"2026-11-16 14:30\".
Exit code 3 if nothing is found.";

/// Search all records for words
///
/// Searches titles, messages, answers, reasoning, arguments and output of tools, questions, notes, and names of changed
/// files. Contents of files and images are not searched.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Grep {
    /// The words to search for
    pattern: String,
    /// Only in this session, or up to this record
    session: Option<String>,
    /// Only records of this kind (user, assistant, tool_finished, …); can be given several times
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<Kind>,
    /// Only records by this actor: NAME, KIND:NAME, or KIND: for all of a kind
    #[arg(long, value_name = "ACTOR")]
    actor: Option<String>,
    /// Only in sessions with this label, NAME or NAME=VALUE
    #[arg(long, value_name = "LABEL")]
    label: Vec<LabelFilter>,
    /// Only records since this time
    #[arg(long, value_name = "TIME", value_parser = time::since)]
    since: Option<Time>,
    /// Only records until this time
    #[arg(long, value_name = "TIME", value_parser = time::until)]
    until: Option<Time>,
    /// Only in this session and the sessions that it is based on
    #[arg(long, value_name = "SESSION", conflicts_with = "session")]
    branch: Option<String>,
    /// Lines to show around a match
    #[arg(long, short = 'C', value_name = "N", default_value_t = 0)]
    context: usize,
    /// Lines to show after a match
    #[arg(long, short = 'A', value_name = "N")]
    after: Option<usize>,
    /// Lines to show before a match
    #[arg(long, short = 'B', value_name = "N")]
    before: Option<usize>,
    /// Only print the number of records
    #[arg(long)]
    count: bool,
    /// Show at most this many records; 0 for all
    #[arg(long, short = 'n', value_name = "N", default_value_t = LIMIT)]
    limit: usize,
    /// The default
    #[arg(long, conflicts_with = "oldest", hide = true)]
    newest: bool,
    /// Show the oldest first
    #[arg(long)]
    oldest: bool,
}

/// The number of records, with `--count`.
#[derive(Serialize)]
struct Counted {
    count: u64,
}

impl Grep {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let question = self.question(&settings.store()?).await?;
        let store = settings.embedded()?;
        let progress = output::spinner(settings);
        // If the index cannot be written, the search reports it and reads the records instead.
        let _ = store.index(&mut |records| progress.set_position(records));
        progress.finish_and_clear();
        if self.count {
            let mut count = 0;
            let unindexed = store.each_hit(&question, &mut |_| {
                count += 1;
                ControlFlow::Continue(())
            })?;
            remark_unindexed(unindexed);
            if settings.json {
                output::json("rath.grep.count/1", &Counted { count })?;
            } else {
                output::answer(count)?;
            }
            return Ok(if count > 0 { Answer::Yes } else { Answer::No });
        }
        let found = store.search(&question)?;
        remark_unindexed(found.unindexed);
        let (before, after) = (self.before.unwrap_or(self.context), self.after.unwrap_or(self.context));
        if settings.json {
            output::json_list("rath.grep/1", found.hits.iter().map(|hit| FoundRecord::of(hit, before, after)))?;
        } else {
            let mut page = Page::default();
            found.hits.iter().for_each(|hit| show(&mut page, hit, before, after));
            page.show(settings)?;
            if found.hits.is_empty() {
                output::remark(self.nothing());
            }
            if found.more {
                output::remark(format_args!(
                    "there are more matches\n  help: -n {} shows more, --count counts all",
                    self.limit.saturating_mul(10)
                ));
            }
        }
        Ok(if found.hits.is_empty() { Answer::No } else { Answer::Yes })
    }

    async fn question(&self, store: &Arc<dyn Store>) -> Result<SearchQuery> {
        let pattern: Pattern = self.pattern.parse().map_err(|error: rath::search::PatternError| {
            usage_error(format!("{error}\n  help: `rath grep --help` shows what a pattern may be"))
        })?;
        let mut question = SearchQuery::new(pattern);
        question.kinds.clone_from(&self.kind);
        question.actor = self.actor.as_deref().map(ActorFilter::from);
        question.labels = self.label.iter().cloned().map(|label| (label.name, label.value)).collect();
        (question.since, question.until) = (self.since, self.until);
        question.within = self.within(store).await?;
        question.order = if self.oldest { SearchOrder::Oldest } else { SearchOrder::Newest };
        question.limit = Some(self.limit).filter(|limit| *limit > 0);
        Ok(question)
    }

    async fn within(&self, store: &Arc<dyn Store>) -> Result<Option<Vec<(SessionId, u64)>>> {
        if let Some(session) = &self.session {
            let place = expression::resolve(store, session).await.map_err(|error| {
                match error.is::<expression::UsageError>() {
                    true => usage_error(format!(
                        "{error}\n  help: quote a pattern of several words: rath grep '{} {session}'",
                        self.pattern
                    )),
                    false => error,
                }
            })?;
            return Ok(Some(vec![(place.session, if place.exact { place.seq } else { u64::MAX })]));
        }
        let Some(branch) = &self.branch else { return Ok(None) };
        let place = expression::resolve(store, branch).await?;
        let lineage = View::of(store, place.session, Some(place.seq)).await?.lineage().await?;
        Ok(Some(lineage.into_iter().map(|line| (line.session, line.to)).collect()))
    }

    /// The remark if nothing is found.
    fn nothing(&self) -> String {
        let strange: Vec<_> = self.kind.iter().filter(|kind| !Kind::KNOWN.contains(kind)).map(Kind::as_str).collect();
        let mut text = "nothing found".to_owned();
        if !strange.is_empty() {
            text.push_str(&format!("\n  help: rath writes no records of kind {}", strange.join(", ")));
        }
        if !self.pattern.ends_with('*') && !self.pattern.contains('"') {
            text.push_str("\n  help: a pattern matches whole words; check* matches words that start with check");
        }
        text
    }
}

fn remark_unindexed(why: Option<String>) {
    if let Some(why) = why {
        output::remark(format_args!(
            "the search index could not be updated, so the records were read one by one: {why}\n  \
             help: `rath doctor` checks the store"
        ));
    }
}

/// A line with a match, and the lines around it.
#[derive(Serialize)]
struct Line<'a> {
    /// Counted from 1.
    line: usize,
    text: &'a str,
    /// Bytes of it.
    places: Vec<Range<usize>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    before: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    after: Vec<&'a str>,
}

/// A text with its lines.
#[derive(Serialize)]
struct Part<'a> {
    field: &'a str,
    /// Whether the text is longer than what was searched.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
    lines: Vec<Line<'a>>,
    #[serde(skip)]
    total: usize,
}

impl<'a> Part<'a> {
    fn of(matched: &'a MatchedPassage, before: usize, after: usize) -> Self {
        let text = &matched.passage.text;
        let mut starts = vec![0];
        starts.extend(text.match_indices('\n').map(|(at, _)| at + 1));
        let whole = |n: usize| {
            let end = starts.get(n + 1).map_or(text.len(), |next| next - 1);
            text[starts[n]..end].trim_end_matches('\r')
        };
        let mut lines: Vec<Line<'a>> = Vec::new();
        for place in &matched.ranges {
            let first = starts.partition_point(|start| *start <= place.start) - 1;
            let last = starts.partition_point(|start| *start < place.end).max(first + 1) - 1;
            for n in first..=last {
                let text = whole(n);
                let inside = |at: usize| at.saturating_sub(starts[n]).min(text.len());
                let place = inside(place.start)..inside(place.end);
                match lines.last_mut().filter(|line| line.line == n + 1) {
                    Some(line) => line.places.push(place),
                    None => lines.push(Line {
                        line: n + 1,
                        text,
                        places: vec![place],
                        before: (n.saturating_sub(before)..n).map(whole).collect(),
                        after: (n + 1..(n + 1 + after).min(starts.len())).map(whole).collect(),
                    }),
                }
            }
        }
        Self { field: &matched.passage.field, cut: matched.passage.cut, lines, total: starts.len() }
    }
}

/// A record that was found, as a program reads it.
#[derive(Serialize)]
struct FoundRecord<'a> {
    at: String,
    #[serde(flatten)]
    reference: rath::Reference,
    kind: &'a str,
    actor: &'a rath::Actor,
    time: Time,
    found: Vec<Part<'a>>,
}

impl<'a> FoundRecord<'a> {
    fn of(hit: &'a SearchHit, before: usize, after: usize) -> Self {
        Self {
            at: hit.record.point().to_string(),
            reference: hit.record.reference(),
            kind: hit.record.kind().as_str(),
            actor: &hit.header.actor,
            time: hit.header.time,
            found: hit.passages.iter().map(|matched| Part::of(matched, before, after)).collect(),
        }
    }
}

fn show(page: &mut Page, hit: &SearchHit, before: usize, after: usize) {
    page.line(format_args!(
        "{} {} {} {}",
        style::session(hit.record.point()),
        style::title(hit.record.kind()),
        output::escaped(&hit.header.actor.to_string()),
        style::dim(time::local(hit.header.time))
    ));
    let mut room = LINES;
    let mut left_out = 0;
    for matched in &hit.passages {
        let part = Part::of(matched, before, after);
        let plain = matches!(part.field, "text" | "");
        let field = if plain { String::new() } else { format!("{}:", output::escaped(part.field)) };
        let number = |n: usize, sign: char| match part.total {
            1 if plain => String::new(),
            1 => format!("{field} "),
            _ => format!("{field}{n}{sign} "),
        };
        // The last line that was shown, so that no line is shown twice.
        let mut shown = 0;
        for (n, line) in part.lines.iter().enumerate() {
            if room == 0 {
                left_out += part.lines.len() - n;
                break;
            }
            room -= 1;
            let first = line.line - line.before.len();
            if shown > 0 && first > shown + 1 && before + after > 0 {
                page.line(style::dim("  --"));
            }
            for (n, text) in line.before.iter().enumerate().filter(|(n, _)| first + n > shown) {
                page.line(format_args!("  {}{}", style::dim(number(first + n, '-')), style::dim(coloured(text, &[]))));
            }
            page.line(format_args!("  {}{}", style::dim(number(line.line, ':')), coloured(line.text, &line.places)));
            shown = line.line;
            let next = part.lines.get(n + 1).map_or(usize::MAX, |next| next.line);
            for (n, text) in line.after.iter().enumerate().filter(|(n, _)| line.line + 1 + n < next) {
                shown = line.line + 1 + n;
                page.line(format_args!("  {}{}", style::dim(number(shown, '-')), style::dim(coloured(text, &[]))));
            }
        }
    }
    if left_out > 0 {
        page.line(style::dim(format!("  … {} more", output::count(left_out as u64, "line"))));
    }
}

/// A line with its matches coloured; of a long line, the part around the first match.
fn coloured(text: &str, places: &[Range<usize>]) -> String {
    let chars = text.chars().count();
    let first = places.first().map_or(0, |place| text[..place.start].chars().count());
    let from = if chars > LONG { first.saturating_sub(BEFORE).min(chars - LONG) } else { 0 };
    let byte = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let (begin, end) = (byte(from), byte(from + LONG));
    let mut out = String::from(if begin > 0 { "…" } else { "" });
    let plain = |text: &str| output::escaped(text).replace('\n', " ");
    let mut at = begin;
    for place in places {
        let (start, stop) = (place.start.clamp(at, end), place.end.clamp(at, end));
        if stop > start {
            out.push_str(&plain(&text[at..start]));
            out.push_str(&style::found(plain(&text[start..stop])));
            at = stop;
        }
    }
    out.push_str(&plain(&text[at..end]));
    out.push_str(if end < text.len() { "…" } else { "" });
    out
}
