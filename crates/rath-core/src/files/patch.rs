//! A difference as text that `git apply` takes.

use serde::Serialize;

use super::quote::quoted;
use super::text::text;
use super::three_way::{hunks, split};
use super::{Change, Forest, Name, Node, NodeKind, Tree};
use crate::store::Result;

/// How many unchanged lines stand around a hunk.
const CONTEXT: usize = 3;

/// Changes as text and as numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// For `git apply`. What it cannot say (binary contents, empty directories, modes that git does not know) is named
    /// in lines that begin with `#` before the first file; `git apply` passes over them.
    pub text: Vec<u8>,
    /// Every file and link, in the order of the changes.
    pub stat: Vec<Stat>,
}

/// How much of a path changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stat {
    /// The path.
    pub path: Name,
    /// See [`Change::letter`].
    pub letter: char,
    /// Lines that are new.
    pub added: u64,
    /// Lines that are gone.
    pub removed: u64,
    /// Whether a content is not text, or too large: it has no lines, and is not in the text.
    pub binary: bool,
}

/// Writes `changes` as a patch.
pub async fn patch(forest: &Forest<'_>, changes: &[Change]) -> Result<Patch> {
    let mut writer = Writer::default();
    let empty = Tree::default().to_blob().reference.digest;
    for change in changes {
        writer.note_mode(change);
        let is_empty = |node: &Option<Node>| node.is_some_and(|node| node.is_directory() && node.sha256 == empty);
        match (is_empty(&change.before), is_empty(&change.after)) {
            (false, true) => writer.note("empty directory", &change.path),
            (true, false) => writer.note("empty directory gone", &change.path),
            _ => {}
        }
        if change.is_directory() {
            continue;
        }
        let [before, after] = [change.before, change.after].map(|node| node.filter(|node| !node.is_directory()));
        let mut stat = Stat { path: change.path.clone(), letter: change.letter(), added: 0, removed: 0, binary: false };
        match (read(forest, before).await?, read(forest, after).await?) {
            (Some(old), Some(new)) => writer.file(&mut stat, [before, after], [&old, &new]),
            _ => {
                writer.note("binary", &change.path);
                stat.binary = true;
            }
        }
        writer.stat.push(stat);
    }
    let Writer { mut notes, text, stat } = writer;
    notes.extend(text);
    Ok(Patch { text: notes, stat })
}

/// A text; an empty one where there is nothing.
async fn read(forest: &Forest<'_>, node: Option<Node>) -> Result<Option<std::sync::Arc<[u8]>>> {
    match node {
        Some(node) => text(forest, &node).await,
        None => Ok(Some([].into())),
    }
}

/// The mode as git has it.
fn git_mode(node: &Node) -> &'static str {
    match node.kind {
        NodeKind::Symlink => "120000",
        _ if node.mode & 0o100 != 0 => "100755",
        _ => "100644",
    }
}

#[derive(Default)]
struct Writer {
    notes: Vec<u8>,
    text: Vec<u8>,
    stat: Vec<Stat>,
}

impl Writer {
    fn note(&mut self, what: &str, path: &Name) {
        self.notes.extend(format!("# {what}: ").into_bytes());
        self.notes.extend(quoted("", path));
        self.notes.push(b'\n');
    }

    /// Names a mode that changed where git does not tell it from the one before, or from the usual one.
    fn note_mode(&mut self, change: &Change) {
        let told = |node: &Node| match node.kind {
            NodeKind::File => matches!(node.mode, 0o644 | 0o755),
            NodeKind::Directory => node.mode == 0o755,
            NodeKind::Symlink => true,
        };
        let Some(after) = change.after else { return };
        let before = change.before.filter(|before| before.kind == after.kind);
        match before {
            Some(before) if before.mode == after.mode || (told(&before) && told(&after)) => {}
            Some(before) => self.note(&format!("mode {:04o} to {:04o}", before.mode, after.mode), &change.path),
            None if told(&after) => {}
            None => self.note(&format!("mode {:04o}", after.mode), &change.path),
        }
    }

    fn line(&mut self, start: &str, rest: &[u8]) {
        self.text.extend_from_slice(start.as_bytes());
        self.text.extend_from_slice(rest);
        self.text.push(b'\n');
    }

    /// One path. One that becomes of another kind goes first and comes then.
    fn file(&mut self, stat: &mut Stat, nodes: [Option<Node>; 2], [old, new]: [&[u8]; 2]) {
        match nodes {
            [Some(before), Some(after)] if before.kind != after.kind => {
                self.part(stat, [Some(before), None], [old, &[]]);
                self.part(stat, [None, Some(after)], [&[], new]);
            }
            _ => self.part(stat, nodes, [old, new]),
        }
    }

    fn part(&mut self, stat: &mut Stat, nodes: [Option<Node>; 2], [old, new]: [&[u8]; 2]) {
        let modes = nodes.map(|node| node.map(|node| git_mode(&node)));
        if modes[0] == modes[1] && old == new {
            return;
        }
        let [a, b] = ["a/", "b/"].map(|side| quoted(side, &stat.path));
        self.line("diff --git ", &[&a[..], b" ", &b[..]].concat());
        match modes {
            [Some(old), Some(new)] if old != new => {
                self.line("old mode ", old.as_bytes());
                self.line("new mode ", new.as_bytes());
            }
            [None, Some(new)] => self.line("new file mode ", new.as_bytes()),
            [Some(old), None] => self.line("deleted file mode ", old.as_bytes()),
            _ => {}
        }
        if old == new {
            return;
        }
        // Git ends a name that has spaces by a tab.
        let end: &[u8] = if stat.path.as_bytes().contains(&b' ') { b"\t" } else { b"" };
        let name = |mode: Option<_>, name: &[u8]| mode.map_or(b"/dev/null".to_vec(), |_: &str| [name, end].concat());
        self.line("--- ", &name(modes[0], &a));
        self.line("+++ ", &name(modes[1], &b));
        self.hunks(stat, &split(old), &split(new));
    }

    fn hunks(&mut self, stat: &mut Stat, old: &[&[u8]], new: &[&[u8]]) {
        let all = hunks(old, new);
        for group in all.chunk_by(|one, next| next.old.start - one.old.end <= 2 * CONTEXT) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let before = first.old.start.min(CONTEXT);
            let after = (old.len() - last.old.end).min(CONTEXT);
            let range = |start: usize, end: usize| match end - start {
                0 => format!("{start},0"),
                1 => format!("{}", start + 1),
                lines => format!("{},{lines}", start + 1),
            };
            let olds = range(first.old.start - before, last.old.end + after);
            let news = range(first.new.start - before, last.new.end + after);
            self.line("@@ ", format!("-{olds} +{news} @@").as_bytes());
            let mut at = first.old.start - before;
            for hunk in group {
                self.lines(b' ', &old[at..hunk.old.start]);
                self.lines(b'-', &old[hunk.old.clone()]);
                self.lines(b'+', &new[hunk.new.clone()]);
                stat.removed += hunk.old.len() as u64;
                stat.added += hunk.new.len() as u64;
                at = hunk.old.end;
            }
            self.lines(b' ', &old[at..at + after]);
        }
    }

    fn lines(&mut self, sign: u8, lines: &[&[u8]]) {
        for line in lines {
            self.text.push(sign);
            self.text.extend_from_slice(line);
            if line.last() != Some(&b'\n') {
                self.text.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
}
