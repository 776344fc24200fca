//! Texts as lines: where two differ, and how two that come from a third fit together.
//!
//! The comparison is `similar`'s, which stays fast when nothing is alike. Its three-way merge is not used: where a
//! line is repeated it may place the same removal at two places and so do it twice.

use std::collections::HashMap;
use std::ops::Range;

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// A text in lines, each with its line feed. Nothing else ends a line.
pub(super) fn split(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

/// Lines of one text that stand for lines of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// The lines that go.
    pub old: Range<usize>,
    /// The lines that come.
    pub new: Range<usize>,
}

/// Where two texts differ, in order; an equal line is between any two hunks.
pub fn hunks(old: &[&[u8]], new: &[&[u8]]) -> Vec<Hunk> {
    // Numbers compare faster than lines.
    let mut known = HashMap::new();
    let (old, new) = (number(&mut known, old), number(&mut known, new));
    // The one place where lines are compared: the comparison is compiled for each type that it is used on.
    let ops = capture_diff_slices(Algorithm::Myers, &old, &new);
    let found = ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
    let found = found.map(|op| Hunk { old: op.old_range(), new: op.new_range() }).collect();
    settle(found, &old, &new)
}

fn number<'a>(known: &mut HashMap<&'a [u8], usize>, lines: &[&'a [u8]]) -> Vec<usize> {
    let numbers = lines.iter().map(|line| {
        let next = known.len();
        *known.entry(line).or_insert(next)
    });
    numbers.collect()
}

/// Moves what was only added or only removed down over equal lines as far as it goes, so that the same edit stands at
/// the same place in every comparison, and joins hunks that meet.
fn settle(hunks: Vec<Hunk>, old: &[usize], new: &[usize]) -> Vec<Hunk> {
    let mut settled: Vec<Hunk> = Vec::with_capacity(hunks.len());
    for mut hunk in hunks.into_iter().rev() {
        loop {
            let end = settled.last().map_or(old.len(), |next| next.old.start);
            let moves = |hunk: &Hunk| match (hunk.old.is_empty(), hunk.new.is_empty()) {
                (true, false) => hunk.old.end < end && new[hunk.new.start] == new[hunk.new.end],
                (false, true) => hunk.old.end < end && old[hunk.old.start] == old[hunk.old.end],
                _ => false,
            };
            while moves(&hunk) {
                hunk.old = hunk.old.start + 1..hunk.old.end + 1;
                hunk.new = hunk.new.start + 1..hunk.new.end + 1;
            }
            match settled.pop() {
                Some(next) if next.old.start == hunk.old.end => {
                    hunk = Hunk { old: hunk.old.start..next.old.end, new: hunk.new.start..next.new.end };
                }
                next => {
                    settled.extend(next);
                    break;
                }
            }
        }
        settled.push(hunk);
    }
    settled.reverse();
    settled
}

/// Three texts side by side.
pub(super) struct ThreeWay<'a> {
    base: Vec<&'a [u8]>,
    ours: Vec<&'a [u8]>,
    theirs: Vec<&'a [u8]>,
    stretches: Vec<Stretch>,
}

enum Stretch {
    /// Nobody changed these lines of the base.
    Same(Range<usize>),
    /// We changed it, or both did in the same way.
    Ours(Range<usize>),
    /// They changed it.
    Theirs(Range<usize>),
    /// Both changed it.
    Conflict { base: Range<usize>, ours: Range<usize>, theirs: Range<usize> },
}

impl<'a> ThreeWay<'a> {
    /// Compares both sides to the base. Changes without an unchanged line between them belong together.
    pub(super) fn new(base: &'a [u8], ours: &'a [u8], theirs: &'a [u8]) -> Self {
        let (base, ours, theirs) = (split(base), split(ours), split(theirs));
        let our_hunks = hunks(&base, &ours);
        let their_hunks = hunks(&base, &theirs);
        let (mut our_hunks, mut their_hunks) = (our_hunks.as_slice(), their_hunks.as_slice());
        let mut stretches = Vec::new();
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
            stretches.push(Stretch::Same(at..start));
            let side = |hunks: &[Hunk]| match (hunks.first(), hunks.last()) {
                (Some(first), Some(last)) => {
                    Some(first.new.start - (first.old.start - start)..last.new.end + (end - last.old.end))
                }
                _ => None,
            };
            match (side(&our_hunks[..o]), side(&their_hunks[..t])) {
                (Some(our), Some(their)) if ours[our.clone()] == theirs[their.clone()] => {
                    stretches.push(Stretch::Ours(our));
                }
                (Some(our), Some(their)) => {
                    stretches.push(Stretch::Conflict { base: start..end, ours: our, theirs: their });
                }
                (Some(our), None) => stretches.push(Stretch::Ours(our)),
                (None, Some(their)) => stretches.push(Stretch::Theirs(their)),
                (None, None) => {}
            }
            (our_hunks, their_hunks, at) = (&our_hunks[o..], &their_hunks[t..], end);
        }
        stretches.push(Stretch::Same(at..base.len()));
        Self { base, ours, theirs, stretches }
    }

    /// The merged text; `None` where both changed the same lines.
    pub(super) fn merged(&self) -> Option<Vec<u8>> {
        let clash = self.stretches.iter().any(|stretch| matches!(stretch, Stretch::Conflict { .. }));
        (!clash).then(|| self.marked())
    }

    /// The merged text, with both sides and the base between markers where both changed the same lines.
    pub(super) fn marked(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for stretch in &self.stretches {
            match stretch {
                Stretch::Same(base) => append(&mut text, &self.base[base.clone()]),
                Stretch::Ours(ours) => append(&mut text, &self.ours[ours.clone()]),
                Stretch::Theirs(theirs) => append(&mut text, &self.theirs[theirs.clone()]),
                Stretch::Conflict { base, ours, theirs } => {
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

/// A marker has a line of its own, also after a text that ends without a line feed.
fn mark(text: &mut Vec<u8>, marker: &str) {
    if text.last().is_some_and(|last| *last != b'\n') {
        text.push(b'\n');
    }
    text.extend_from_slice(marker.as_bytes());
}

#[cfg(test)]
#[path = "three_way_tests.rs"]
mod tests;
