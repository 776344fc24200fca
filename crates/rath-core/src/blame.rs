//! Which record wrote each line of a file, through forks, merges and restores.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::actor::Actor;
use crate::body::Forked;
use crate::clock::Time;
use crate::error::{ErrorKind, Result};
use crate::files::{Forest, Hunk, Name, Node, hunks};
use crate::id::{Point, Reference, SessionId};
use crate::kind::Kind;
use crate::reader::Reader;
use crate::store;
use crate::trail::{Event, Trail};
use crate::view::View;

/// A file's lines, and where each comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Blame {
    /// The path.
    pub path: Name,
    /// The records that wrote what is there, in no order.
    pub origins: Vec<Origin>,
    /// For each line the place of its origin in `origins`.
    pub lines: Vec<usize>,
    /// The content.
    #[serde(skip)]
    pub content: Arc<[u8]>,
    /// Whether it has lines; otherwise there is one origin for the whole.
    pub is_text: bool,
}

/// A record that wrote lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// The record.
    pub record: Reference,
    /// Its kind.
    pub kind: String,
    /// Who made it.
    pub actor: Actor,
    /// When.
    pub time: Time,
    /// The command, or what else happened.
    pub what: String,
    /// The step it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Why the branch it stands on was forked; `None` on a root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether somebody changed the file between two records; the record is the one that noticed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Whether the record is erased: it changed the file, and nobody knows how. What came from a branch that it merged, or
    /// from a record that it restored, counts as its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
}

impl View {
    /// Says for each line of `path` which record wrote it.
    pub async fn blame(&self, path: &Name) -> Result<Blame> {
        let none = |what: String| ErrorKind::Store(store::Error::NotFound(what));
        let Some(version) = self.state().workspace.clone() else {
            return Err(none(format!("workspace of session {}", self.reference().session.short())).into());
        };
        let store = self.reader.store.clone();
        let mut search = Search {
            reader: &self.reader,
            forest: Forest::new(&*store),
            path,
            lines: HashMap::new(),
            origins: Vec::new(),
            known: HashMap::new(),
        };
        let node = search.forest.at(&version, path).await?.filter(|node| !node.is_directory());
        let node = node.ok_or_else(|| none(format!("file {path} in version {version}")))?;
        let text = search.text(&node).await?;
        let whole = Text::whole(match &text {
            Some(text) => text.content.clone(),
            None => [].into(),
        });
        let content = whole.content.clone();
        let is_text = text.is_some();
        let text = text.unwrap_or(whole);
        let open = (0..text.lines.len()).map(|line| (line, line)).collect();
        let mut found = vec![0; text.lines.len()];
        search.run(Suspect { at: self.reference().point(), node, text: Arc::new(text), open }, &mut found).await?;
        Ok(Blame { path: path.clone(), origins: search.origins, lines: found, content, is_text })
    }
}

/// A content split into lines. What is no text is one line.
struct Text {
    content: Arc<[u8]>,
    lines: Vec<(usize, usize)>,
}

impl Text {
    fn whole(content: Arc<[u8]>) -> Self {
        Self { lines: vec![(0, content.len())], content }
    }

    fn of(content: Arc<[u8]>) -> Self {
        let mut lines = Vec::new();
        let mut from = 0;
        for at in memchr::memchr_iter(b'\n', &content) {
            lines.push((from, at + 1));
            from = at + 1;
        }
        if from < content.len() {
            lines.push((from, content.len()));
        }
        Self { content, lines }
    }

    fn line(&self, at: usize) -> &[u8] {
        let (from, to) = self.lines[at];
        &self.content[from..to]
    }

    fn slices(&self, range: std::ops::Range<usize>) -> Vec<&[u8]> {
        range.map(|at| self.line(at)).collect()
    }

    /// For each line of this text the same line of `before`, where there is one.
    fn matched(&self, before: &Text) -> Vec<Option<usize>> {
        let (now, then) = (self.lines.len(), before.lines.len());
        let front = (0..now.min(then)).take_while(|at| self.line(*at) == before.line(*at)).count();
        let rest = now.min(then) - front;
        let back = (1..=rest).take_while(|back| self.line(now - back) == before.line(then - back)).count();
        let mut matched = vec![None; now];
        for (at, same) in matched.iter_mut().enumerate().take(front) {
            *same = Some(at);
        }
        for back in 1..=back {
            matched[now - back] = Some(then - back);
        }
        let (old, new) = (before.slices(front..then - back), self.slices(front..now - back));
        // Equal lines are what is between the hunks.
        let end = Hunk { old: old.len()..old.len(), new: new.len()..new.len() };
        let (mut in_old, mut in_new) = (0, 0);
        for hunk in hunks(&old, &new).into_iter().chain([end]) {
            for (old, new) in (in_old..hunk.old.start).zip(in_new..hunk.new.start) {
                matched[front + new] = Some(front + old);
            }
            (in_old, in_new) = (hunk.old.end, hunk.new.end);
        }
        matched
    }
}

/// Lines that are in a file after a record, and may have been there before.
struct Suspect {
    at: Point,
    node: Node,
    text: Arc<Text>,
    /// Line of the answer, line of this text.
    open: Vec<(usize, usize)>,
}

struct Search<'a> {
    reader: &'a Reader,
    forest: Forest<'a>,
    path: &'a Name,
    lines: HashMap<SessionId, Trail>,
    origins: Vec<Origin>,
    known: HashMap<(Point, bool), usize>,
}

impl Search<'_> {
    async fn run(&mut self, first: Suspect, found: &mut [usize]) -> Result<()> {
        let mut suspects = vec![first];
        while let Some(mut suspect) = suspects.pop() {
            let Some((event, before)) = self.changed_before(suspect.at, &suspect.node).await? else { continue };
            let point = event.record.point();
            // The line itself first, then what was merged or restored.
            let mut parents = Vec::new();
            if let Some(before) = before.filter(|_| !event.jumps) {
                parents.push((predecessor(&event, point), before));
            }
            for source in &event.sources {
                let version = self.reader.state_at(*source).await?.workspace;
                if let Some(version) = version
                    && let Some(node) = self.forest.at(&version, self.path).await?.filter(|node| !node.is_directory())
                {
                    parents.push((Some(*source), node));
                }
            }
            for (at, node) in parents {
                let Some(at) = at else { continue };
                if suspect.open.is_empty() {
                    break;
                }
                let Some(text) = self.parent_text(&node, &suspect).await? else { continue };
                let matched = suspect.text.matched(&text);
                let (open, rest) =
                    std::mem::take(&mut suspect.open).into_iter().partition(|(_, line)| matched[*line].is_some());
                suspect.open = rest;
                let open: Vec<(usize, usize)> = open;
                let open: Vec<_> =
                    open.into_iter().filter_map(|(answer, line)| Some((answer, matched[line]?))).collect();
                if !open.is_empty() {
                    suspects.push(Suspect { at, node, text, open });
                }
            }
            if !suspect.open.is_empty() {
                let origin = self.origin(&event).await?;
                suspect.open.iter().for_each(|(answer, _)| found[*answer] = origin);
            }
        }
        Ok(())
    }

    /// The text of a parent's file; the suspect's own where it is the same.
    async fn parent_text(&self, node: &Node, suspect: &Suspect) -> Result<Option<Arc<Text>>> {
        if node.sha256 == suspect.node.sha256 {
            return Ok(Some(suspect.text.clone()));
        }
        Ok(self.text(node).await?.map(Arc::new))
    }

    async fn text(&self, node: &Node) -> Result<Option<Text>> {
        Ok(crate::files::short_text(&self.forest, node).await?.map(Text::of))
    }

    /// The youngest event at or before `at` that changed the path to what `node` is, and what stood there before.
    async fn changed_before(&mut self, at: Point, node: &Node) -> Result<Option<(Arc<Event>, Option<Node>)>> {
        let mut at = at;
        let mut last = None;
        loop {
            self.load(at).await?;
            let Some(line) = self.lines.get(&at.session) else { return Ok(None) };
            let until = line.events.partition_point(|event| event.record.seq() <= at.seq);
            for event in line.events[..until].iter().rev() {
                if let Some(before) = self.before(event).await? {
                    return Ok(Some((event.clone(), before)));
                }
                last = Some(event);
            }
            match line.origin {
                Some(origin) => at = origin,
                // Nothing says that it changed: it was there from the beginning.
                None => return Ok(last.filter(|_| !node.is_directory()).map(|event| (event.clone(), None))),
            }
            last = None;
        }
    }

    /// What stood at the path before an event that changed it; `None` when it did not.
    async fn before(&self, event: &Event) -> Result<Option<Option<Node>>> {
        if event.changes.is_complete() && event.before.is_some() {
            let change = event.changes.paths.iter().find(|change| change.path == *self.path);
            return Ok(change.map(|change| change.before.filter(|node| !node.is_directory())));
        }
        let before = match &event.before {
            Some(version) => self.forest.at(version, self.path).await?,
            None => None,
        };
        let after = self.forest.at(&event.after, self.path).await?;
        let same = before.map(|node| node.sha256) == after.map(|node| node.sha256);
        Ok((!same).then(|| before.filter(|node| !node.is_directory())))
    }

    /// Reads the events of a line up to a point.
    async fn load(&mut self, to: Point) -> Result<()> {
        if self.lines.get(&to.session).is_none_or(|line| line.to < to.seq) {
            self.lines.insert(to.session, Trail::of(self.reader, to).await?);
        }
        Ok(())
    }

    async fn origin(&mut self, event: &Event) -> Result<usize> {
        let key = (event.record.point(), event.outside);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let point = event.record.point();
        let header = event.record.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
        let step = header.step.and_then(|id| self.lines.values().find_map(|line| line.steps.get(&id)).cloned());
        let first = self.reader.record(Point { session: point.session, seq: 0 }).await?;
        let branch = first.body::<Forked>().ok().filter(|_| *first.kind() == Kind::Forked).map(|forked| forked.why);
        self.origins.push(Origin {
            branch,
            record: event.record.reference(),
            kind: event.record.kind().to_string(),
            actor: header.actor.clone(),
            time: header.time,
            what: event.what(),
            step,
            outside: event.outside,
            erased: event.erased,
        });
        self.known.insert(key, self.origins.len() - 1);
        Ok(self.origins.len() - 1)
    }
}

/// The record before an event on its line; `None` at its beginning, where a fork point may follow.
fn predecessor(event: &Event, point: Point) -> Option<Point> {
    event.before.as_ref()?;
    point.seq.checked_sub(1).map(|seq| Point { seq, ..point })
}
