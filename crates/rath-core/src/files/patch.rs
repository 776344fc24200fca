//! Patches in the format of `git apply`.

use serde::Serialize;

use super::quote::quoted;
use super::text::text;
use super::three_way::{hunks, split};
use super::{Change, FilePath, Node, NodeKind, Tree, TreeStore};
use crate::store::Result;

/// The number of unchanged lines around a hunk.
const CONTEXT: usize = 3;

/// Changes as a patch, and the number of changed lines of each file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// The patch, for `git apply`. Changes that the format cannot express (binary content, empty directories, modes
    /// that git does not store) are listed in lines that start with `#` before the first file; `git apply` ignores
    /// them.
    pub text: Vec<u8>,
    /// Statistics for every file and link, in the order of the changes.
    pub stat: Vec<Stat>,
}

/// How one path changed, and by how many lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stat {
    /// The path of the file or link.
    pub path: FilePath,
    /// The kind of change, see [`Change::letter`].
    pub letter: char,
    /// The number of added lines.
    pub added: u64,
    /// The number of removed lines.
    pub removed: u64,
    /// Whether the content before or after the change is not text, or is too large. Its lines are not counted, and it
    /// is not in the patch.
    pub binary: bool,
}

/// Formats `changes` as a patch.
pub async fn patch(forest: &TreeStore<'_>, changes: &[Change]) -> Result<Patch> {
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

/// Reads a text; an empty one for `None`. Returns `None` when the content is not text.
async fn read(forest: &TreeStore<'_>, node: Option<Node>) -> Result<Option<std::sync::Arc<[u8]>>> {
    match node {
        Some(node) => text(forest, &node).await,
        None => Ok(Some([].into())),
    }
}

/// The mode as git stores it.
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
    fn note(&mut self, what: &str, path: &FilePath) {
        self.notes.extend(format!("# {what}: ").into_bytes());
        self.notes.extend(quoted("", path));
        self.notes.push(b'\n');
    }

    /// Adds a note for a mode that git cannot represent.
    fn note_mode(&mut self, change: &Change) {
        let representable = |node: &Node| match node.kind {
            NodeKind::File => matches!(node.mode, 0o644 | 0o755),
            NodeKind::Directory => node.mode == 0o755,
            NodeKind::Symlink => true,
        };
        let Some(after) = change.after else { return };
        let before = change.before.filter(|before| before.kind == after.kind);
        match before {
            Some(before) if before.mode == after.mode || (representable(&before) && representable(&after)) => {}
            Some(before) => self.note(&format!("mode {:04o} to {:04o}", before.mode, after.mode), &change.path),
            None if representable(&after) => {}
            None => self.note(&format!("mode {:04o}", after.mode), &change.path),
        }
    }

    fn line(&mut self, start: &str, rest: &[u8]) {
        self.text.extend_from_slice(start.as_bytes());
        self.text.extend_from_slice(rest);
        self.text.push(b'\n');
    }

    /// Writes one path. A change of kind is written as a removal followed by an addition.
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
        // git ends a file name that contains spaces with a tab.
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
