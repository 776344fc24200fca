//! Blame: which record wrote each line of a file. Follows forks, merges and restores.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use crate::actor::Actor;
use crate::body::Forked;
use crate::clock::Time;
use crate::error::{ErrorKind, Result};
use crate::file_history::{FileEvent, FileHistory};
use crate::files::{FilePath, Hunk, Node, TreeStore, hunks};
use crate::id::{Point, Reference, SessionId};
use crate::kind::Kind;
use crate::reader::Reader;
use crate::store;
use crate::view::View;

/// The lines of a file with the record that wrote each.
#[derive(Clone, Debug, Serialize)]
pub struct Blame {
    /// The path of the file.
    pub path: FilePath,
    /// The records that wrote the lines, in no particular order.
    pub origins: Vec<LineOrigin>,
    /// For each line, the index of its origin in `origins`.
    pub lines: Vec<usize>,
    /// The content of the file.
    #[serde(skip)]
    pub content: Arc<[u8]>,
    /// Whether the file is text. Otherwise `lines` has one entry for the whole file.
    pub is_text: bool,
}

/// A record that wrote lines of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LineOrigin {
    /// The record that wrote the line.
    pub record: Reference,
    /// The kind of the record.
    pub kind: String,
    /// The author of the record.
    pub actor: Actor,
    /// The time of the record.
    pub time: Time,
    /// The command, or a description of another change.
    pub what: String,
    /// The name of the step that contains the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Why the record's session was forked; `None` when it is not a fork.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether the file was changed outside the session. `record` is then the record that detected the change.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
    /// Whether the record is erased. It changed the file, but how is unknown: lines that it merged from a branch or
    /// restored from another record are attributed to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub erased: bool,
}

impl View {
    /// Finds the record that wrote each line of `path`.
    pub async fn blame(&self, path: &FilePath) -> Result<Blame> {
        let none = |what: String| ErrorKind::Store(store::Error::NotFound(what));
        let Some(version) = self.state().workspace.clone() else {
            return Err(none(format!("workspace of session {}", self.reference().session.short())).into());
        };
        let store = self.reader.store.clone();
        let mut search = Search {
            reader: &self.reader,
            forest: TreeStore::new(&*store),
            path,
            histories: HashMap::new(),
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
        search.run(BlameTask { at: self.reference().point(), node, text: Arc::new(text), open }, &mut found).await?;
        Ok(Blame { path: path.clone(), origins: search.origins, lines: found, content, is_text })
    }
}

/// Content split into lines. Content that is not text is one line.
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

    /// For each line of this text, the index of the same line in `before`, if there is one.
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
        // The lines between the hunks are equal.
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

/// Lines of a file at a record, whose origin is that record or an earlier one.
struct BlameTask {
    at: Point,
    node: Node,
    text: Arc<Text>,
    /// Pairs of a line number in the result and a line number in `text`.
    open: Vec<(usize, usize)>,
}

struct Search<'a> {
    reader: &'a Reader,
    forest: TreeStore<'a>,
    path: &'a FilePath,
    histories: HashMap<SessionId, FileHistory>,
    origins: Vec<LineOrigin>,
    known: HashMap<(Point, bool), usize>,
}

impl Search<'_> {
    async fn run(&mut self, first: BlameTask, found: &mut [usize]) -> Result<()> {
        let mut tasks = vec![first];
        while let Some(mut task) = tasks.pop() {
            let Some((event, before)) = self.changed_before(task.at, &task.node).await? else { continue };
            let point = event.record.point();
            // The session's own previous version comes first, then merged branches and restored records.
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
                if task.open.is_empty() {
                    break;
                }
                let Some(text) = self.parent_text(&node, &task).await? else { continue };
                let matched = task.text.matched(&text);
                let (open, rest) =
                    std::mem::take(&mut task.open).into_iter().partition(|(_, line)| matched[*line].is_some());
                task.open = rest;
                let open: Vec<(usize, usize)> = open;
                let open: Vec<_> =
                    open.into_iter().filter_map(|(answer, line)| Some((answer, matched[line]?))).collect();
                if !open.is_empty() {
                    tasks.push(BlameTask { at, node, text, open });
                }
            }
            if !task.open.is_empty() {
                let origin = self.origin(&event).await?;
                task.open.iter().for_each(|(answer, _)| found[*answer] = origin);
            }
        }
        Ok(())
    }

    /// Reads the text of the file at a parent. Reuses the task's text if the content is the same.
    async fn parent_text(&self, node: &Node, task: &BlameTask) -> Result<Option<Arc<Text>>> {
        if node.sha256 == task.node.sha256 {
            return Ok(Some(task.text.clone()));
        }
        Ok(self.text(node).await?.map(Arc::new))
    }

    async fn text(&self, node: &Node) -> Result<Option<Text>> {
        Ok(crate::files::short_text(&self.forest, node).await?.map(Text::of))
    }

    /// Finds the last event at or before `at` that changed the path to `node`. Also returns the node before that event.
    async fn changed_before(&mut self, at: Point, node: &Node) -> Result<Option<(Arc<FileEvent>, Option<Node>)>> {
        let mut at = at;
        let mut last = None;
        loop {
            self.load(at).await?;
            let Some(history) = self.histories.get(&at.session) else { return Ok(None) };
            let until = history.events.partition_point(|event| event.record.seq() <= at.seq);
            for event in history.events[..until].iter().rev() {
                if let Some(before) = self.before(event).await? {
                    return Ok(Some((event.clone(), before)));
                }
                last = Some(event);
            }
            match history.origin {
                Some(origin) => at = origin,
                // No event changed the path, so the file existed from the start.
                None => return Ok(last.filter(|_| !node.is_directory()).map(|event| (event.clone(), None))),
            }
            last = None;
        }
    }

    /// The node at the path before an event; `None` when the event did not change the path.
    async fn before(&self, event: &FileEvent) -> Result<Option<Option<Node>>> {
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

    /// Loads the events of a session up to a point.
    async fn load(&mut self, to: Point) -> Result<()> {
        if self.histories.get(&to.session).is_none_or(|history| history.to < to.seq) {
            self.histories.insert(to.session, FileHistory::of(self.reader, to).await?);
        }
        Ok(())
    }

    async fn origin(&mut self, event: &FileEvent) -> Result<usize> {
        let key = (event.record.point(), event.outside);
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        let point = event.record.point();
        let header = event.record.header().map_err(|why| ErrorKind::Record { point, why: why.into() })?;
        let step =
            header.step.and_then(|id| self.histories.values().find_map(|history| history.steps.get(&id)).cloned());
        let first = self.reader.record(Point { session: point.session, seq: 0 }).await?;
        let branch = first.body::<Forked>().ok().filter(|_| *first.kind() == Kind::Forked).map(|forked| forked.why);
        self.origins.push(LineOrigin {
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

/// The record before an event in its session; `None` for the first event with files.
fn predecessor(event: &FileEvent, point: Point) -> Option<Point> {
    event.before.as_ref()?;
    point.seq.checked_sub(1).map(|seq| Point { seq, ..point })
}
