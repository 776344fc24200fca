//! A disk with what was synced and what was not.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::path::Path;

use super::chance::Chance;
use super::trace::{Event, What};

const SECTOR: u64 = 512;

/// A file or directory by the order in which they were made: numbers of inodes are used again.
type Id = usize;

/// Something written that no sync was about.
#[derive(Clone, Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

/// A change of a directory.
#[derive(Clone, Debug)]
enum Entry {
    Add(String, Id),
    Remove(String),
    Move(String, String, Id),
}

#[derive(Clone, Debug, Default)]
struct File {
    synced: Vec<u8>,
    pending: Vec<Change>,
    /// What a failed sync was about: the kernel takes it for clean, and no later sync writes it. Each with the number of
    /// pending changes that were made before it.
    doomed: Vec<Change>,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    synced: BTreeMap<String, Id>,
    pending: Vec<Entry>,
}

#[derive(Clone, Debug)]
enum Node {
    File(File),
    Directory(Directory),
}

/// The disk below one root.
pub(super) struct Disk {
    nodes: Vec<Node>,
    /// Which node an inode is now.
    of: HashMap<u64, Id>,
}

impl Disk {
    pub(super) fn new(root: u64) -> Self {
        Self { nodes: vec![Node::Directory(Directory::default())], of: HashMap::from([(root, 0)]) }
    }

    fn file(&mut self, inode: u64) -> Option<&mut File> {
        match self.of.get(&inode).map(|id| &mut self.nodes[*id]) {
            Some(Node::File(file)) => Some(file),
            _ => None,
        }
    }

    fn change(&mut self, directory: u64, entry: Entry) {
        let id = self.of.get(&directory).expect("a directory that nobody made");
        match &mut self.nodes[*id] {
            Node::Directory(directory) => directory.pending.push(entry),
            Node::File(_) => panic!("a file has entries"),
        }
    }

    pub(super) fn apply(&mut self, event: &Event, bytes: &[u8]) {
        let inode = event.inode;
        match &event.what {
            What::Write { offset, data } => {
                let change = Change::Write(*offset, bytes[data.clone()].to_vec());
                self.file(inode).expect("a file that nobody made").pending.push(change);
            }
            What::Truncate { length } => {
                self.file(inode).expect("a file that nobody made").pending.push(Change::Truncate(*length));
            }
            What::Sync { failed } => self.sync(inode, *failed),
            What::Create { parent, name, directory } => {
                let node = match directory {
                    true => Node::Directory(Directory::default()),
                    false => Node::File(File::default()),
                };
                self.of.insert(inode, self.nodes.len());
                self.change(*parent, Entry::Add(name.clone(), self.nodes.len()));
                self.nodes.push(node);
            }
            What::Link { parent, name } => {
                let id = self.of[&inode];
                self.change(*parent, Entry::Add(name.clone(), id));
            }
            What::Unlink { parent, name } => self.change(*parent, Entry::Remove(name.clone())),
            What::Rename { from, old, to, new } => {
                let id = self.of[&inode];
                match from == to {
                    true => self.change(*from, Entry::Move(old.clone(), new.clone(), id)),
                    false => {
                        self.change(*to, Entry::Add(new.clone(), id));
                        self.change(*from, Entry::Remove(old.clone()));
                    }
                }
            }
        }
    }

    fn sync(&mut self, inode: u64, failed: bool) {
        let Some(id) = self.of.get(&inode) else { return };
        match &mut self.nodes[*id] {
            Node::File(file) if failed => {
                let pending = std::mem::take(&mut file.pending);
                file.doomed.extend(pending);
            }
            Node::File(file) => {
                for change in std::mem::take(&mut file.pending) {
                    overwrite(&mut file.doomed, &change);
                    put(&mut file.synced, &change);
                }
            }
            Node::Directory(_) if failed => {}
            Node::Directory(directory) => {
                for entry in std::mem::take(&mut directory.pending) {
                    enter(&mut directory.synced, entry);
                }
            }
        }
    }

    /// Writes the disk out as it may be found.
    pub(super) fn write(&self, chance: &mut Chance, to: &Path) {
        const KEPT: [u64; 6] = [0, 0, 30, 50, 70, 100];
        let any = |chance: &mut Chance| KEPT[chance.below(KEPT.len() as u64) as usize];
        // All alike, or each file as it comes.
        let alike = chance.percent(50).then(|| any(chance));
        // A journal keeps changes of directories in order; not every file system has one.
        let journal = chance.percent(50);
        let kept = self.nodes.iter().map(|_| alike.unwrap_or_else(|| any(chance))).collect::<Vec<_>>();
        self.write_node(0, &kept, journal, chance, to);
    }

    fn write_node(&self, id: Id, kept: &[u64], journal: bool, chance: &mut Chance, to: &Path) {
        match &self.nodes[id] {
            Node::File(file) => fs::write(to, file.found(kept[id], chance)).unwrap(),
            Node::Directory(directory) => {
                fs::create_dir_all(to).unwrap();
                for (name, child) in directory.found(kept[id], journal, chance) {
                    self.write_node(child, kept, journal, chance, &to.join(name));
                }
            }
        }
    }
}

impl Directory {
    fn found(&self, kept: u64, journal: bool, chance: &mut Chance) -> BTreeMap<String, Id> {
        let mut found = self.synced.clone();
        for entry in &self.pending {
            match (chance.percent(kept), journal) {
                (true, _) => enter(&mut found, entry.clone()),
                (false, true) => break,
                (false, false) => {}
            }
        }
        found
    }
}

impl File {
    fn found(&self, kept: u64, chance: &mut Chance) -> Vec<u8> {
        let mut found = self.synced.clone();
        for change in self.doomed.iter().chain(&self.pending) {
            match change {
                Change::Truncate(_) => {
                    if chance.percent(kept) {
                        put(&mut found, change);
                    }
                }
                Change::Write(offset, data) => {
                    for piece in sectors(*offset, data.len() as u64) {
                        let bytes = &data[(piece.start - offset) as usize..(piece.end - offset) as usize];
                        land(&mut found, piece.start, bytes, kept, chance);
                    }
                }
            }
        }
        found
    }
}

/// What becomes of a part of a sector.
fn land(found: &mut Vec<u8>, at: u64, bytes: &[u8], kept: u64, chance: &mut Chance) {
    // Written over with what it holds, a sector holds it, torn or not.
    if found.get(at as usize..at as usize + bytes.len()) == Some(bytes) {
        return;
    }
    if !chance.percent(kept) {
        // The length may be there without the bytes.
        if at + bytes.len() as u64 > found.len() as u64 && kept > 0 && chance.percent(30) {
            found.resize(at as usize + bytes.len(), 0);
        }
        return;
    }
    let bytes = match chance.below(32) {
        0 => bytes[..chance.below(bytes.len() as u64) as usize].to_vec(),
        1 => bytes.iter().map(|_| chance.next_number() as u8).collect(),
        _ => bytes.to_vec(),
    };
    put(found, &Change::Write(at, bytes));
}

fn put(file: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Truncate(length) => file.resize(*length as usize, 0),
        Change::Write(offset, data) => {
            let (begin, end) = (*offset as usize, *offset as usize + data.len());
            if file.len() < end {
                file.resize(end, 0);
            }
            file[begin..end].copy_from_slice(data);
        }
    }
}

/// What was written again and synced is no longer doomed there.
fn overwrite(doomed: &mut Vec<Change>, by: &Change) {
    let gone: Range<u64> = match by {
        Change::Write(offset, data) => *offset..*offset + data.len() as u64,
        Change::Truncate(length) => *length..u64::MAX,
    };
    let mut left = Vec::new();
    for change in doomed.drain(..) {
        match change {
            Change::Write(offset, data) => {
                let end = offset + data.len() as u64;
                let (before, after) = (gone.start.clamp(offset, end), gone.end.clamp(offset, end));
                for part in [offset..before, after..end].into_iter().filter(|part| !part.is_empty()) {
                    let bytes = data[(part.start - offset) as usize..(part.end - offset) as usize].to_vec();
                    left.push(Change::Write(part.start, bytes));
                }
            }
            // How long the file is, the later sync says.
            Change::Truncate(_) => {}
        }
    }
    *doomed = left;
}

fn enter(entries: &mut BTreeMap<String, Id>, entry: Entry) {
    match entry {
        Entry::Add(name, id) => drop(entries.insert(name, id)),
        Entry::Remove(name) => drop(entries.remove(&name)),
        Entry::Move(old, new, id) => {
            entries.remove(&old);
            entries.insert(new, id);
        }
    }
}

/// The parts of a write that lie in one sector each.
fn sectors(offset: u64, length: u64) -> impl Iterator<Item = Range<u64>> {
    let end = offset + length;
    let mut at = offset;
    std::iter::from_fn(move || {
        let next = ((at / SECTOR + 1) * SECTOR).min(end);
        let piece = at..next;
        at = next;
        (!piece.is_empty()).then_some(piece)
    })
}
