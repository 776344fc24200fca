//! Holds, erasure and retention as a person types them.

use crate::workspace::Bench;

#[test]
fn a_reason_has_words() {
    let bench = Bench::new();
    let session = bench.ok(&["new", "a try"]);
    for why in ["", "  "] {
        for arguments in [
            &["erase", &session, "--yes", "--why", why][..],
            &["hold", &session, "--why", why],
            &["gc", "--yes", "--why", why],
        ] {
            assert!(bench.fails(2, arguments).contains("needs words"), "{arguments:?}");
        }
    }
    for about in ["", " ", "\u{ad}"] {
        let said = bench.fails(2, &["erase", "--about", about, "--why", "ticket 12", "--yes"]);
        assert!(said.contains("--about needs words"), "{said}");
    }
    let said = bench.fails(2, &["erase", "--about", "Zo\u{eb}", "--why", "for Zoe\u{308}", "--yes"]);
    assert!(said.contains("the reason says what is to be erased"), "{said}");
    bench.ok(&["log", &session]);
}
