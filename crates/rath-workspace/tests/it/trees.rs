//! Decoding of untrusted trees: only the canonical encoding is accepted.

use proptest::prelude::*;
use rath_core::Digest;
use rath_core::files::{FilePath, Node, NodeKind, Tree, TreeEntry};

fn entry(name: &[u8]) -> TreeEntry {
    let node = Node { kind: NodeKind::File, mode: 0o644, sha256: Digest::of(name), size: name.len() as u64 };
    TreeEntry { name: FilePath::from(name), node }
}

fn is_refused(names: &[&[u8]]) -> bool {
    Tree::decode(&Tree { entries: names.iter().map(|name| entry(name)).collect() }.encode()).is_err()
}

#[test]
fn names_that_escape_the_directory_are_refused() {
    for bad in [&b""[..], b".", b"..", b"/", b"a/b", b"/etc", b"../x", b"a\0b", b"\0", b"\xff/\xff", b"a/"] {
        assert!(is_refused(&[bad]), "{:?}", FilePath::from(bad));
    }
    for good in [&b"..."[..], b".x", b"-rf", b" ", b"\n", b"\xff", b"~", b"C:\\x", "\u{202e}".as_bytes()] {
        assert!(!is_refused(&[good]), "{:?}", FilePath::from(good));
    }
}

#[test]
fn order_is_by_bytes_and_no_name_comes_twice() {
    assert!(!is_refused(&[b"B", b"a", b"a.b", b"a0", b"\xc3\xa9", b"\xff"]));
    assert!(is_refused(&[b"a", b"B"]));
    assert!(is_refused(&[b"a", b"a"]));
    assert!(is_refused(&[b"b", b"a"]));
    assert!(is_refused(&[b"\xff", b"\xc3\xa9"]));
}

/// Checks that the tree of `a` and `b` is refused after these replacements in its encoding.
#[track_caller]
fn assert_refused(changes: &[(&str, &str)]) {
    let plain = String::from_utf8(Tree { entries: vec![entry(b"a"), entry(b"b")] }.encode()).unwrap();
    assert!(Tree::decode(plain.as_bytes()).is_ok());
    for (from, to) in changes {
        let other = plain.replacen(from, to, 1);
        assert_ne!(other, plain);
        assert!(Tree::decode(other.as_bytes()).is_err(), "{other}");
    }
}

#[test]
fn malformed_trees_are_refused() {
    let digest = Digest::of(b"a").to_string();
    assert_refused(&[
        ("\"0644\"", "\"644\""),
        ("\"0644\"", "\"00644\""),
        ("\"0644\"", "\"0o644\""),
        ("\"0644\"", "\"0648\""),
        ("\"0644\"", "\"-644\""),
        ("\"0644\"", "\" 644\""),
        ("\"0644\"", "420"),
        ("\"file\"", "\"File\""),
        ("\"file\"", "\"fifo\""),
        ("\"tree\":1", "\"tree\":2"),
        ("\"tree\":1", "\"tree\":1,\"x\":1"),
        ("\"size\":1", "\"size\":-1"),
        ("\"size\":1", "\"size\":1.0"),
        ("\"size\":1", "\"size\":1,\"extra\":0"),
        ("\"size\":1", "\"size\":1,\"size\":1"),
        ("\"a\"", "{\"base64\":\"YQ==\"}"),
        ("\"tree\":1}", "\"tree\":1}{}"),
        (&digest, &digest.to_uppercase()),
    ]);
}

/// A tree has exactly one encoding, so it has exactly one digest.
#[test]
fn non_canonical_trees_are_refused() {
    assert_refused(&[
        ("\"0644\"", "\"+644\""),
        ("\"a\"", "\"\\u0061\""),
        ("{\"entries\"", " {\"entries\""),
        ("{\"entries\"", "{ \"entries\""),
        ("\"tree\":1}", "\"tree\":1}\n"),
    ]);
}

proptest! {
    /// Bytes that decode are the canonical encoding.
    #[test]
    fn decoded_trees_are_canonical(at in 0..400usize, to in any::<u8>()) {
        let mut bytes = Tree { entries: vec![entry(b"a"), entry(b"\xff\xfe")] }.encode();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(tree) = Tree::decode(&bytes) {
            prop_assert_eq!(tree.encode(), bytes);
        }
    }
}
