//! A model of a disk that distinguishes synced and unsynced changes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::ops::Range;
use std::path::Path;

use super::seeded_rng::SeededRng;
use super::trace::{Operation, TraceEvent};

const SECTOR: u64 = 512;

/// A file or directory, numbered in the order of creation. Inode numbers cannot be used, because they are reused.
type Id = usize;

/// An unsynced change of a file.
#[derive(Clone, Debug)]
enum FileChange {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

/// An unsynced change of a directory.
#[derive(Clone, Debug)]
enum DirectoryChange {
    Add(String, Id),
    Remove(String),
    Move(String, String, Id),
}

#[derive(Clone, Debug, Default)]
struct File {
    synced: Vec<u8>,
    pending: Vec<FileChange>,
    /// The changes of failed syncs. The kernel has marked them as clean, so later syncs do not write them.
    unsyncable: Vec<FileChange>,
}

#[derive(Clone, Debug, Default)]
struct Directory {
    synced: BTreeMap<String, Id>,
    pending: Vec<DirectoryChange>,
}

#[derive(Clone, Debug)]
enum Node {
    File(File),
    Directory(Directory),
}

/// The disk below one root.
pub(super) struct Disk {
    nodes: Vec<Node>,
    /// The current node of each inode.
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

    fn change(&mut self, directory: u64, entry: DirectoryChange) {
        let id = self.of.get(&directory).expect("a directory that nobody made");
        match &mut self.nodes[*id] {
            Node::Directory(directory) => directory.pending.push(entry),
            Node::File(_) => panic!("a file has entries"),
        }
    }

    pub(super) fn apply(&mut self, event: &TraceEvent, bytes: &[u8]) {
        let inode = event.inode;
        match &event.what {
            Operation::Write { offset, data } => {
                let change = FileChange::Write(*offset, bytes[data.clone()].to_vec());
                self.file(inode).expect("a file that nobody made").pending.push(change);
            }
            Operation::Truncate { length } => {
                self.file(inode).expect("a file that nobody made").pending.push(FileChange::Truncate(*length));
            }
            Operation::Sync { failed } => self.sync(inode, *failed),
            Operation::Create { parent, name, directory } => {
                let node = match directory {
                    true => Node::Directory(Directory::default()),
                    false => Node::File(File::default()),
                };
                self.of.insert(inode, self.nodes.len());
                self.change(*parent, DirectoryChange::Add(name.clone(), self.nodes.len()));
                self.nodes.push(node);
            }
            Operation::Link { parent, name } => {
                let id = self.of[&inode];
                self.change(*parent, DirectoryChange::Add(name.clone(), id));
            }
            Operation::Unlink { parent, name } => self.change(*parent, DirectoryChange::Remove(name.clone())),
            Operation::Rename { from, old, to, new } => {
                let id = self.of[&inode];
                match from == to {
                    true => self.change(*from, DirectoryChange::Move(old.clone(), new.clone(), id)),
                    false => {
                        self.change(*to, DirectoryChange::Add(new.clone(), id));
                        self.change(*from, DirectoryChange::Remove(old.clone()));
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
                file.unsyncable.extend(pending);
            }
            Node::File(file) => {
                for change in std::mem::take(&mut file.pending) {
                    overwrite(&mut file.unsyncable, &change);
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

    /// Writes a possible content of the disk to the directory `to`.
    pub(super) fn write(&self, rng: &mut SeededRng, to: &Path) {
        const KEPT: [u64; 6] = [0, 0, 30, 50, 70, 100];
        let any = |rng: &mut SeededRng| KEPT[rng.below(KEPT.len() as u64) as usize];
        // Use the same probability for all files, or one per file.
        let alike = rng.percent(50).then(|| any(rng));
        // A journal keeps directory changes in order, but not every file system has one.
        let journal = rng.percent(50);
        let kept = self.nodes.iter().map(|_| alike.unwrap_or_else(|| any(rng))).collect::<Vec<_>>();
        self.write_node(0, &kept, journal, rng, to);
    }

    fn write_node(&self, id: Id, kept: &[u64], journal: bool, rng: &mut SeededRng, to: &Path) {
        match &self.nodes[id] {
            Node::File(file) => fs::write(to, file.found(kept[id], rng)).unwrap(),
            Node::Directory(directory) => {
                fs::create_dir_all(to).unwrap();
                for (name, child) in directory.found(kept[id], journal, rng) {
                    self.write_node(child, kept, journal, rng, &to.join(name));
                }
            }
        }
    }
}

impl Directory {
    fn found(&self, kept: u64, journal: bool, rng: &mut SeededRng) -> BTreeMap<String, Id> {
        let mut found = self.synced.clone();
        for entry in &self.pending {
            match (rng.percent(kept), journal) {
                (true, _) => enter(&mut found, entry.clone()),
                (false, true) => break,
                (false, false) => {}
            }
        }
        found
    }
}

impl File {
    fn found(&self, kept: u64, rng: &mut SeededRng) -> Vec<u8> {
        let mut found = self.synced.clone();
        for change in self.unsyncable.iter().chain(&self.pending) {
            match change {
                FileChange::Truncate(_) => {
                    if rng.percent(kept) {
                        put(&mut found, change);
                    }
                }
                FileChange::Write(offset, data) => {
                    for piece in sectors(*offset, data.len() as u64) {
                        let bytes = &data[(piece.start - offset) as usize..(piece.end - offset) as usize];
                        write_sector(&mut found, piece.start, bytes, kept, rng);
                    }
                }
            }
        }
        found
    }
}

/// Writes a part of a sector: completely, torn, garbled or not at all.
fn write_sector(found: &mut Vec<u8>, at: u64, bytes: &[u8], kept: u64, rng: &mut SeededRng) {
    // Overwriting a sector with the bytes that it already contains changes nothing, even if the write is torn.
    if found.get(at as usize..at as usize + bytes.len()) == Some(bytes) {
        return;
    }
    if !rng.percent(kept) {
        // The file may have the new length without the bytes.
        if at + bytes.len() as u64 > found.len() as u64 && kept > 0 && rng.percent(30) {
            found.resize(at as usize + bytes.len(), 0);
        }
        return;
    }
    let bytes = match rng.below(32) {
        0 => bytes[..rng.below(bytes.len() as u64) as usize].to_vec(),
        1 => bytes.iter().map(|_| rng.next_number() as u8).collect(),
        _ => bytes.to_vec(),
    };
    put(found, &FileChange::Write(at, bytes));
}

fn put(file: &mut Vec<u8>, change: &FileChange) {
    match change {
        FileChange::Truncate(length) => file.resize(*length as usize, 0),
        FileChange::Write(offset, data) => {
            let (begin, end) = (*offset as usize, *offset as usize + data.len());
            if file.len() < end {
                file.resize(end, 0);
            }
            file[begin..end].copy_from_slice(data);
        }
    }
}

/// Removes ranges that were overwritten by a synced change from the changes of failed syncs.
fn overwrite(unsyncable: &mut Vec<FileChange>, by: &FileChange) {
    let gone: Range<u64> = match by {
        FileChange::Write(offset, data) => *offset..*offset + data.len() as u64,
        FileChange::Truncate(length) => *length..u64::MAX,
    };
    let mut left = Vec::new();
    for change in unsyncable.drain(..) {
        match change {
            FileChange::Write(offset, data) => {
                let end = offset + data.len() as u64;
                let (before, after) = (gone.start.clamp(offset, end), gone.end.clamp(offset, end));
                for part in [offset..before, after..end].into_iter().filter(|part| !part.is_empty()) {
                    let bytes = data[(part.start - offset) as usize..(part.end - offset) as usize].to_vec();
                    left.push(FileChange::Write(part.start, bytes));
                }
            }
            // The later sync determines the length of the file.
            FileChange::Truncate(_) => {}
        }
    }
    *unsyncable = left;
}

fn enter(entries: &mut BTreeMap<String, Id>, entry: DirectoryChange) {
    match entry {
        DirectoryChange::Add(name, id) => drop(entries.insert(name, id)),
        DirectoryChange::Remove(name) => drop(entries.remove(&name)),
        DirectoryChange::Move(old, new, id) => {
            entries.remove(&old);
            entries.insert(new, id);
        }
    }
}

/// Splits a write into parts that are each in one sector.
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
