//! Places, permissions and answers of another store do not count, whatever its records say.

use rath::body::{Arrived, Effect, Grant, Granted, Placed, Scope};
use rath::prelude::*;
use rath_audit::bundle::Export;

use super::{embedded, export, import, is_sound};

fn on_the_host() -> Placed {
    Placed {
        backend: "host".into(),
        isolated: false,
        origin: None,
        in_place: false,
        workspace: None,
        base: None,
        setup: None,
        why: None,
    }
}

fn grant() -> Grant {
    let scope = Scope::Command { words: vec!["git".into(), "push".into()] };
    Grant { tool: "shell".into(), effect: Effect::Irreversible, scope }
}

fn has_nothing(session: &Session) -> bool {
    session.state().placement.is_none() && session.state().granted.is_empty()
}

#[tokio::test]
async fn nothing_counts_before_it_is_given_here() {
    let dir = tempfile::tempdir().unwrap();
    let (there, here) = (embedded(dir.path(), "there"), embedded(dir.path(), "here"));
    let (eve, ada) = (Actor::person("eve"), Actor::person("ada"));
    let mut session = there.create(eve);
    let asked = session.note("a question that nobody asked").unwrap();
    session.append(on_the_host()).unwrap();
    session.append(Granted { asked, allows: grant() }).unwrap();
    // As if somebody had gone on with it here.
    let listed = Some(session.head().id);
    session.append(Arrived { from: "nowhere".into(), lines: Vec::new(), listed }).unwrap();
    session.append(on_the_host()).unwrap();
    session.append(Granted { asked, allows: grant() }).unwrap();
    let given_at = session.head();
    let mut fork = session.fork("another way");
    fork.publish().await.unwrap();
    let (id, forked) = (session.id(), fork.id());
    drop((session, fork));
    let bundle = dir.path().join("bundle");
    export(&Export { graph: true, ..Export::of(id, None) }, &there, &bundle).await;
    let imported = import(&here, &bundle).await.unwrap();
    assert_eq!(imported.worked[&id].place.as_deref(), Some("on host (not isolated)"));
    assert_eq!(imported.worked[&id].granted, 2);

    for id in [id, forked] {
        let view = View::of(&here, id, None).await.unwrap();
        assert!(view.is_from_elsewhere() && view.state().placement.is_none() && view.state().granted.is_empty());
        assert_eq!(view.recorded_state().placement.as_ref().unwrap().backend, "host");
        assert!(has_nothing(&view.fork(ada.clone(), "of a view").unwrap()));

        let mut session = here.open(id, ada.clone()).await.unwrap();
        assert!(has_nothing(&session) && session.state().arrived);
        assert!(has_nothing(&session.fork("of the session")));
        let mut earlier = session.fork_at(given_at.point(), "of an earlier record").await.unwrap();
        assert!(has_nothing(&earlier));
        earlier.publish().await.unwrap();
        let earlier_id = earlier.id();
        drop(earlier);
        session.publish().await.unwrap();
        let head = session.head();
        drop(session);
        assert!(has_nothing(&here.open(earlier_id, ada.clone()).await.unwrap()));

        let mut session = here.open(id, ada.clone()).await.unwrap();
        assert_eq!(session.head(), head, "that it arrived is said once");
        session.append(on_the_host()).unwrap();
        session.append(Granted { asked, allows: grant() }).unwrap();
        session.publish().await.unwrap();
        drop(session);
        let session = here.open(id, ada.clone()).await.unwrap();
        assert_eq!(session.state().placement.as_ref().unwrap().backend, "host");
        assert_eq!(session.state().granted, [grant()]);
        assert!(!has_nothing(&session.fork("what was given here is inherited")));
    }
    is_sound(dir.path(), "here");
}
