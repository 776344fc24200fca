//! Diff and three-way merge of texts by line.
//!
//! The diff is that of the crate `similar`, which stays fast when the texts have nothing in common. Its three-way merge
//! is not used: with repeated lines, it may place the same removal at two positions and apply it twice.

use std::collections::HashMap;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Splits a text into lines, each with its line feed. Only a line feed ends a line.
pub(super) fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// A range of lines of one text that replaces a range of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The removed lines.
    pub old: Range<usize>,
    /// The added lines.
    pub new: Range<usize>,
}

/// Returns the differences between two texts, in order. There is at least one equal line between two hunks.
pub fn hunks(old: &[&[u8]], new: &[&[u8]]) -> Vec<Hunk> {
    // Comparing numbers is faster than comparing lines.
    let mut known = HashMap::new();
    let (old, new) = (number(&mut known, old), number(&mut known, new));
    // This is the only call of the diff, because its code is generated for each type that it is called with.
    let ops = capture_diff_slices(Algorithm::Myers, &old, &new);
    let found = ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    let found = found.map(|op| Hunk { old: op.old_range(), new: op.new_range() }).collect();
    slide_down(found, &old, &new)
}

fn number<'a>(known: &mut HashMap<&'a [u8], usize>, lines: &[&'a [u8]]) -> Vec<usize> {
    let numbers = lines.iter().map(|line| {
        let next = known.len();
        *known.entry(line).or_insert(next)
    });
    numbers.collect()
}

/// Moves pure additions and pure removals down over equal lines as far as possible, so that the same edit has the same
/// position in every comparison. Joins hunks that become adjacent.
fn slide_down(hunks: Vec<Hunk>, old: &[usize], new: &[usize]) -> Vec<Hunk> {
    let mut done: Vec<Hunk> = Vec::with_capacity(hunks.len());
    for mut hunk in hunks.into_iter().rev() {
        loop {
            let end = done.last().map_or(old.len(), |next| next.old.start);
            let can_move = |hunk: &Hunk| match (hunk.old.is_empty(), hunk.new.is_empty()) {
                (true, false) => hunk.old.end < end && new[hunk.new.start] == new[hunk.new.end],
                (false, true) => hunk.old.end < end && old[hunk.old.start] == old[hunk.old.end],
                _ => false,
            };
            while can_move(&hunk) {
                hunk.old = hunk.old.start + 1..hunk.old.end + 1;
                hunk.new = hunk.new.start + 1..hunk.new.end + 1;
            }
            match done.pop() {
                Some(next) if next.old.start == hunk.old.end => {
                    hunk = Hunk { old: hunk.old.start..next.old.end, new: hunk.new.start..next.new.end };
                }
                next => {
                    done.extend(next);
                    break;
                }
            }
        }
        done.push(hunk);
    }
    done.reverse();
    done
}

/// A three-way comparison of texts.
pub(super) struct ThreeWay<'a> {
    base: Vec<&'a [u8]>,
    ours: Vec<&'a [u8]>,
    theirs: Vec<&'a [u8]>,
    regions: Vec<Region>,
}

/// A range of lines, by the side that changed it.
enum Region {
    /// Lines of the base that neither side changed.
    Same(Range<usize>),
    /// Lines of our side: only we changed them, or both sides made the same change.
    Ours(Range<usize>),
    /// Lines of their side: only they changed them.
    Theirs(Range<usize>),
    /// Both sides changed these lines differently.
    Conflict { base: Range<usize>, ours: Range<usize>, theirs: Range<usize> },
}

impl<'a> ThreeWay<'a> {
    /// Compares both sides with the base. Changes without an unchanged line between them form one region.
    pub(super) fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8]) -> Self {
        let (base, ours, theirs) = (split(base), split(ours), split(theirs));
        let our_hunks = hunks(&base, &ours);
        let their_hunks = hunks(&base, &theirs);
        let (mut our_hunks, mut their_hunks) = (our_hunks.as_slice(), their_hunks.as_slice());
        let mut regions = Vec::new();
        let mut at = 0;
        loop {
            let starts = our_hunks.first().into_iter().chain(their_hunks.first()).map(|hunk| hunk.old.start);
            let Some(start) = starts.min() else { break };
            let mut end = start;
            let (mut o, mut t) = (0, 0);
            loop {
                let next = [our_hunks.get(o), their_hunks.get(t)];
                let meets = next.map(|hunk| hunk.is_some_and(|hunk| hunk.old.start <= end));
                match (meets, next) {
                    ([true, _], [Some(hunk), _]) => (o, end) = (o + 1, end.max(hunk.old.end)),
                    ([_, true], [_, Some(hunk)]) => (t, end) = (t + 1, end.max(hunk.old.end)),
                    _ => break,
                }
            }
            regions.push(Region::Same(at..start));
            let side = |hunks: &[Hunk]| match (hunks.first(), hunks.last()) {
                (Some(first), Some(last)) => {
                    Some(first.new.start - (first.old.start - start)..last.new.end + (end - last.old.end))
                }
                _ => None,
            };
            match (side(&our_hunks[..o]), side(&their_hunks[..t])) {
                (Some(our), Some(their)) if ours[our.clone()] == theirs[their.clone()] => {
                    regions.push(Region::Ours(our));
                }
                (Some(our), Some(their)) => {
                    regions.push(Region::Conflict { base: start..end, ours: our, theirs: their });
                }
                (Some(our), None) => regions.push(Region::Ours(our)),
                (None, Some(their)) => regions.push(Region::Theirs(their)),
                (None, None) => {}
            }
            (our_hunks, their_hunks, at) = (&our_hunks[o..], &their_hunks[t..], end);
        }
        regions.push(Region::Same(at..base.len()));
        Self { base, ours, theirs, regions }
    }

    /// The merged text; `None` if both sides changed the same lines.
    pub(super) fn merged(&self) -> Option<Vec<u8>> {
        let has_conflict = self.regions.iter().any(|region| matches!(region, Region::Conflict { .. }));
        (!has_conflict).then(|| self.marked())
    }

    /// The merged text. Where both sides changed the same lines, it contains both sides and the base between conflict
    /// markers.
    pub(super) fn marked(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for region in &self.regions {
            match region {
                Region::Same(base) => append(&mut text, &self.base[base.clone()]),
                Region::Ours(ours) => append(&mut text, &self.ours[ours.clone()]),
                Region::Theirs(theirs) => append(&mut text, &self.theirs[theirs.clone()]),
                Region::Conflict { base, ours, theirs } => {
                    mark(&mut text, "<<<<<<< ours\n");
                    append(&mut text, &self.ours[ours.clone()]);
                    mark(&mut text, "||||||| base\n");
                    append(&mut text, &self.base[base.clone()]);
                    mark(&mut text, "=======\n");
                    append(&mut text, &self.theirs[theirs.clone()]);
                    mark(&mut text, ">>>>>>> theirs\n");
                }
            }
        }
        text
    }
}

fn append(text: &mut Vec<u8>, lines: &[&[u8]]) {
    lines.iter().for_each(|line| text.extend_from_slice(line));
}

/// Appends a conflict marker on its own line, also after a text that ends without a line feed.
fn mark(text: &mut Vec<u8>, marker: &str) {
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(marker.as_bytes());
}

#[cfg(test)]
#[path = "three_way_tests.rs"]
mod tests;
