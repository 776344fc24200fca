use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Hunk, ThreeWay, hunks, split};

fn merged(base: &str, ours: &str, theirs: &str) -> Option<String> {
    let merged = ThreeWay::new(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()).merged();
    merged.map(|text| String::from_utf8(text).unwrap())
}

#[test]
fn changes_separated_by_an_unchanged_line_merge() {
    assert_eq!(merged("a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n").as_deref(), Some("A\nb\nC\n"));
    assert_eq!(merged("a\nb\nc\n", "b\nc\n", "a\nb\nc\nd\n").as_deref(), Some("b\nc\nd\n"));
    assert_eq!(merged("a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\n").as_deref(), Some("A\r\nb\r\nC\n"));
}

#[test]
fn a_change_made_on_both_sides_is_applied_once() {
    assert_eq!(merged("a\n", "b\n", "b\n").as_deref(), Some("b\n"));
    assert_eq!(merged("", "new\n", "new\n").as_deref(), Some("new\n"));
    assert_eq!(merged("gone\n", "", "").as_deref(), Some(""));
    assert_eq!(merged("a\nb\nc\n", "a\nX\nc\nours\n", "a\nX\nc\n").as_deref(), Some("a\nX\nc\nours\n"));
    // Each side also changes another line, so the two diffs may remove a different one of the equal lines.
    let (base, ours) = ("1\n2\n}\n}\n}\n3\n4\n5\n", "1\nours\n2\n}\n}\n3\n4\n5\n");
    assert_eq!(
        merged(base, ours, "1\n2\n}\n}\n3\n4\ntheirs\n5\n").as_deref(),
        Some("1\nours\n2\n}\n}\n3\n4\ntheirs\n5\n")
    );
}

#[test]
fn adjacent_changes_conflict() {
    assert_eq!(merged("a\nb\n", "A\nb\n", "a\nB\n"), None);
    assert_eq!(merged("a\nb\n", "a\nours\nb\n", "a\ntheirs\nb\n"), None);
    assert_eq!(merged("a\nb\n", "a\nours\nb\n", "a\n"), None);
    assert_eq!(merged("", "ours\n", "theirs\n"), None);
}

#[test]
fn a_missing_line_feed_is_a_change_of_the_last_line() {
    assert_eq!(merged("a\nb\nc", "A\nb\nc", "a\nb\nc\n").as_deref(), Some("A\nb\nc\n"));
    assert_eq!(merged("a\nb\nc\n", "A\nb\nc\n", "a\nb\nc").as_deref(), Some("A\nb\nc"));
    assert_eq!(merged("a\nb\nc", "a\nb\nc\nours", "a\nb\nc\ntheirs"), None);
    assert_eq!(merged("a\n", "a", "a\nb\n"), None);
}

#[test]
fn markers_are_on_their_own_lines() {
    let text = ThreeWay::new(b"a\nb\nc", b"a\nb\nours", b"a\nb\ntheirs").marked();
    let expected = "a\nb\n<<<<<<< ours\nours\n||||||| base\nc\n=======\ntheirs\n>>>>>>> theirs\n";
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn additions_slide_down_as_far_as_possible() {
    let found = hunks(&split(b"x\n}\n\n}\n\ny\n"), &split(b"x\n}\n\n}\n\n}\n\ny\n"));
    assert_eq!(found, [Hunk { old: 5..5, new: 5..7 }]);
}

/// For each line of a base: whether it is removed, and whether a line is added before it.
type Edits = Vec<(bool, bool)>;

/// A base with repeated lines, and the edits of each side.
fn edits() -> impl Strategy<Value = (Vec<u8>, Edits, Edits)> {
    let edit = || (prop::bool::weighted(0.15), prop::bool::weighted(0.15));
    (1usize..25, 1u8..12).prop_flat_map(move |(lines, alphabet)| {
        let side = || prop::collection::vec(edit(), lines);
        (prop::collection::vec(0..alphabet, lines), side(), side())
    })
}

fn edited(base: &[u8], edits: &[(bool, bool)], own: &str) -> String {
    let mut text = String::new();
    for (at, (line, (remove, add))) in base.iter().zip(edits).enumerate() {
        if *add {
            text += &format!("{own} {at}\n");
        }
        if !*remove {
            text += &format!("{line}\n");
        }
    }
    text
}

fn counted(text: &str) -> BTreeMap<&str, i64> {
    let mut counts = BTreeMap::new();
    text.lines().for_each(|line| *counts.entry(line).or_default() += 1);
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Applying the hunks to one text gives the other, also with repeated lines.
    #[test]
    fn hunks_are_the_whole_difference((base, ours, theirs) in edits()) {
        let (old, new) = (edited(&base, &ours, "a"), edited(&base, &theirs, "b"));
        let (old, new) = (split(old.as_bytes()), split(new.as_bytes()));
        let mut made = Vec::new();
        let mut at = 0;
        for hunk in hunks(&old, &new) {
            prop_assert!(at < hunk.old.start || made.is_empty());
            made.extend_from_slice(&old[at..hunk.old.start]);
            prop_assert_eq!(made.len(), hunk.new.start);
            made.extend_from_slice(&new[hunk.new]);
            at = hunk.old.end;
        }
        made.extend_from_slice(&old[at..]);
        prop_assert_eq!(made, new);
    }

    /// Without repeated lines, it is known which edits conflict and what the merge of the others is.
    #[test]
    fn distinct_lines_merge_as_expected((base, ours, theirs) in edits()) {
        let base: Vec<u8> = (0..base.len() as u8).collect();
        let text = |edits: &[(bool, bool)], own| edited(&base, edits, own);
        let plain = text(&vec![(false, false); base.len()], "");
        let found = merged(&plain, &text(&ours, "ours"), &text(&theirs, "theirs"));
        // Edits are adjacent when no line that both sides keep is between them. Adjacent edits conflict, unless both
        // sides only remove the same lines.
        let conflicts = |[ours, theirs]: &[Edits; 2]| {
            let touched = |edits: &Edits| edits.iter().any(|(gone, added)| *gone || *added);
            let added = ours.iter().chain(theirs).any(|(_, added)| *added);
            touched(ours) && touched(theirs) && (added || ours != theirs)
        };
        let (mut expected, mut conflict, mut adjacent) = (String::new(), false, [Edits::new(), Edits::new()]);
        for (at, line) in base.iter().enumerate() {
            let sides = [&ours, &theirs].into_iter().zip(adjacent.iter_mut().zip(["ours", "theirs"]));
            for (edits, (adjacent, own)) in sides {
                adjacent.push(edits[at]);
                expected += &if edits[at].1 { format!("{own} {at}\n") } else { String::new() };
            }
            if !ours[at].0 && !theirs[at].0 {
                conflict |= conflicts(&std::mem::take(&mut adjacent));
                expected += &format!("{line}\n");
            }
        }
        conflict |= conflicts(&adjacent);
        prop_assert_eq!(found, (!conflict).then_some(expected));
    }

    /// A merge without conflicts contains every added line once, and every line that both sides kept.
    #[test]
    fn no_edit_is_lost_or_applied_twice((base, ours, theirs) in edits()) {
        let plain = edited(&base, &vec![(false, false); base.len()], "");
        let (ours, theirs) = (edited(&base, &ours, "ours"), edited(&base, &theirs, "theirs"));
        let found = merged(&plain, &ours, &theirs);
        prop_assert_eq!(&found, &merged(&plain, &theirs, &ours));
        let Some(found) = found else { return Ok(()) };
        let [base, ours, theirs, found] = [&plain, &ours, &theirs, &found].map(|text| counted(text));
        for line in base.keys().chain(ours.keys()).chain(theirs.keys()).chain(found.keys()) {
            let [base, ours, theirs, found] = [&base, &ours, &theirs, &found].map(|c| c.get(line).copied().unwrap_or(0));
            let fewest = (ours + theirs - base).max(0);
            let most = if base == 0 { ours + theirs } else { ours.min(theirs) };
            prop_assert!((fewest..=most).contains(&found), "{}: {} of {}, {}, {}", line, found, base, ours, theirs);
        }
    }
}
