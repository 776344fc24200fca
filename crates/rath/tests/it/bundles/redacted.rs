//! What is left out is listed, and stays known.

use std::process::Command;

use rath::bundle::{Export, LeftOut, Redaction};
use rath::prelude::*;
use rath::store::{Scan, Which};
use rath::{Kind, Point};

use super::{Family, embedded, export, family, files, import};

fn everything(redaction: Redaction, main: SessionId) -> Export {
    Export { redaction, graph: true, ..Export::of(main, None) }
}

#[tokio::test]
async fn left_out_bodies_are_listed_and_the_chain_holds() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, .. } = family(Memory::new()).await;
    let redaction = Redaction {
        kinds: vec![Kind::Assistant],
        records: [Point { session: main, seq: 1 }].into(),
        texts: vec!["mr secret".into()],
        because: Some("for the auditors".into()),
        ..Redaction::default()
    };
    let what = everything(redaction, main);
    let graph = export(&what, &store, &at("a")).await;
    let rules: Vec<_> = graph.left_out.iter().map(|left| (left.kind.as_str(), left.rule.as_str())).collect();
    assert_eq!(rules.iter().filter(|rule| **rule == ("assistant", "kind")).count(), 4);
    assert!(rules.contains(&("labelled", "record")) && rules.contains(&("user", "text")), "{rules:?}");
    assert_eq!(graph.without_body, graph.left_out.len() as u64 + 1, "one was erased before");
    for (name, bytes) in files(&at("a")) {
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        assert!(!text.contains("mr secret") && !text.contains("red, then"), "{}", name.display());
    }
    let into = embedded(dir.path(), "into");
    let imported = import(&into, &at("a")).await.unwrap();
    assert_eq!(imported.graph.because.as_deref(), Some("for the auditors"));
    let left_out = LeftOut::of(&into).await.unwrap();
    assert_eq!(left_out.records.len(), graph.left_out.len());
    // What was left out before is listed again, with nothing said about it.
    export(&Export { graph: true, ..Export::of(main, None) }, &into, &at("b")).await;
    assert_eq!(files(&at("a")), files(&at("b")));
    drop(into);
    super::is_sound(dir.path(), "into");
    let verified = Command::new("python3").args(["-B", "verify.py", "."]).current_dir(at("a")).output();
    if let Ok(verified) = verified {
        assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    }
}

#[tokio::test]
async fn blobs_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let Family { store, main, .. } = family(Memory::new()).await;
    let whole = export(&everything(Redaction::default(), main), &store, &at("whole")).await;
    let none = Redaction { no_blobs: true, ..Redaction::default() };
    let graph = export(&everything(none, main), &store, &at("none")).await;
    assert_eq!((graph.blobs, graph.left_out_blobs.len() as u64), (0, whole.blobs));
    let text = Redaction { texts: vec!["RED RED".into()], ..Redaction::default() };
    let graph = export(&everything(text, main), &store, &at("text")).await;
    let rules: Vec<_> = graph.left_out_blobs.iter().map(|left| left.rule.as_str()).collect();
    assert_eq!((rules, graph.blobs), (vec!["text"], whole.blobs - 1));
    assert!(graph.left_out.is_empty(), "the body names the blob, and does not say it");
    for name in ["none", "text"] {
        let into = Memory::new();
        import(&into, &at(name)).await.unwrap();
        export(&everything(Redaction::default(), main), &into, &at(&format!("{name}-again"))).await;
        assert_eq!(files(&at(name)), files(&at(&format!("{name}-again"))));
        let known = LeftOut::of(&into).await.unwrap();
        assert!(!known.blobs.is_empty());
    }
}

#[tokio::test]
async fn erased_here_stays_erased() {
    let dir = tempfile::tempdir().unwrap();
    let Family { store, main, .. } = family(Memory::new()).await;
    export(&Export::of(main, None), &store, &dir.path().join("a")).await;
    let record = store.scan(Scan::session(main, 2, 2)).await.unwrap().records.remove(0);
    store.erase(vec![record.reference()]).await.unwrap();
    let imported = import(&store, &dir.path().join("a")).await.unwrap();
    assert_eq!(imported.records, 0);
    let record = store.scan(Scan::session(main, 2, 2)).await.unwrap().records.remove(0);
    assert!(record.body_bytes().is_none());
    assert!(store.sessions(Which::Run(rath::OPERATOR.into()).into()).await.unwrap().is_empty());
}
