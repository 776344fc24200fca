//! Workspaces, permissions and answers of another store have no effect after an import.

use rath::body::{Arrived, Effect, Grant, Granted, Placed, Scope, Verdict};
use rath::control::{Answer, Control};
use rath::prelude::*;
use rath::{Digest, ErrorKind};
use rath_audit::bundle::{Export, SessionImportOutcome};

use super::{embedded, export, import, is_valid};

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

fn has_no_workspace_or_grants(session: &Session) -> bool {
    session.state().placement.is_none() && session.state().granted.is_empty()
}

#[tokio::test]
async fn imported_workspaces_and_permissions_have_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    let (there, here) = (embedded(dir.path(), "there"), embedded(dir.path(), "here"));
    let (eve, ada) = (Actor::person("eve"), Actor::person("ada"));
    let mut session = there.create(eve);
    let asked = session.note("a question that nobody asked").unwrap();
    session.append(on_the_host()).unwrap();
    session.append(Granted { asked, allows: grant() }).unwrap();
    // As if the session had been continued in this store.
    let listed = Some(session.head().id);
    session.append(Arrived { from: "nowhere".into(), sessions: Vec::new(), listed }).unwrap();
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
    assert_eq!(imported.origins[&id].workspace.as_deref(), Some("on host (not isolated)"));
    assert_eq!(imported.origins[&id].granted, 2);

    for id in [id, forked] {
        let view = View::of(&here, id, None).await.unwrap();
        assert!(view.is_from_elsewhere() && view.state().placement.is_none() && view.state().granted.is_empty());
        assert_eq!(view.recorded_state().placement.as_ref().unwrap().backend, "host");
        assert!(has_no_workspace_or_grants(&view.fork(ada.clone(), "of a view").unwrap()));

        let mut session = here.open(id, ada.clone()).await.unwrap();
        assert!(has_no_workspace_or_grants(&session) && session.state().arrived);
        assert!(has_no_workspace_or_grants(&session.fork("of the session")));
        let mut earlier = session.fork_at(given_at.point(), "of an earlier record").await.unwrap();
        assert!(has_no_workspace_or_grants(&earlier));
        earlier.publish().await.unwrap();
        let earlier_id = earlier.id();
        drop(earlier);
        session.publish().await.unwrap();
        let head = session.head();
        drop(session);
        assert!(has_no_workspace_or_grants(&here.open(earlier_id, ada.clone()).await.unwrap()));

        let mut session = here.open(id, ada.clone()).await.unwrap();
        assert_eq!(session.head(), head, "the arrival is recorded once");
        session.append(on_the_host()).unwrap();
        session.append(Granted { asked, allows: grant() }).unwrap();
        session.publish().await.unwrap();
        drop(session);
        let session = here.open(id, ada.clone()).await.unwrap();
        assert_eq!(session.state().placement.as_ref().unwrap().backend, "host");
        assert_eq!(session.state().granted, [grant()]);
        assert!(!has_no_workspace_or_grants(&session.fork("what was given here is inherited")));
    }
    is_valid(dir.path(), "here");
}

#[tokio::test]
async fn questions_of_an_imported_run_are_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let (there, here) = (embedded(dir.path(), "there"), embedded(dir.path(), "here"));
    let workflow = |mut session: Session| async move {
        let answer = session.ask("Deploy?").await?;
        session.note(format!("answered: {}", answer == Verdict::Yes))?;
        Ok(session)
    };
    let result = there
        .run("deployment", Actor::person("eve"), &workflow, async |session: &mut Session| {
            session.user("Deploy it.").map(drop)
        })
        .await;
    let error = result.unwrap_err();
    let ErrorKind::Waiting(id) = error.kind() else { panic!("{error}") };
    let id = *id;
    drop(error);
    let bundle = dir.path().join("bundle");
    export(&Export::of(id, None), &there, &bundle).await;
    assert_eq!(import(&here, &bundle).await.unwrap().sessions[&id], SessionImportOutcome::New);

    let ada = Control::new(&here, Actor::person("ada"));
    assert!(ada.questions().await.unwrap().is_empty());
    for _ in 0..2 {
        let waits = here
            .run("deployment", Actor::person("ada"), &workflow, async |session: &mut Session| {
                session.user("Deploy it.").map(drop)
            })
            .await;
        let error = waits.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Waiting(_)), "{error}");
        drop(error);
        assert_eq!(ada.questions().await.unwrap().len(), 1);
    }
    let questions = ada.questions().await.unwrap();
    assert_eq!(questions[0].shown_digest, Digest::of(b"Deploy?"));
    ada.answer(&questions[0], Answer::Yes).await.unwrap();
    let done = here
        .run("deployment", Actor::person("ada"), &workflow, async |session: &mut Session| {
            session.user("Deploy it.").map(drop)
        })
        .await
        .unwrap();
    drop(done);
    let again = here
        .run("deployment", Actor::person("ada"), &workflow, async |session: &mut Session| {
            session.user("Deploy it.").map(drop)
        })
        .await
        .unwrap();
    drop(again);
    is_valid(dir.path(), "here");
}
