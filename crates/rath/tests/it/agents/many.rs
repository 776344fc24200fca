//! Many sessions and turns.

use rath::Kind;
use serde_json::json;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_sessions_at_once() {
    let store = InMemory::new();
    let script = Scripted::from_fn(|seen| match seen.turn {
        0 => Turn::new()
            .call("echo", json!({ "text": seen.latest }))
            .call("nothing", json!({}))
            .call("echo", json!({ "text": "x" })),
        1 => Turn::new().call("nothing", json!({})),
        _ => Turn::from("Done."),
    });
    let agent = Agent::new("one of many").model(script).tools((echo, nothing));
    let all: Vec<_> = (0..1000)
        .map(|at| {
            let (agent, store) = (agent.clone(), store.clone());
            tokio::spawn(async move {
                let mut session = store.create(Actor::person("ada"));
                session.user(format!("I am {at}.")).unwrap();
                agent.forward(session).await
            })
        })
        .collect();
    in_time(async {
        for (at, one) in all.into_iter().enumerate() {
            let session = one.await.unwrap().unwrap();
            let results = results(&session).await;
            assert_eq!(results[0].1, format!("I am {at}."), "nobody hears what another one said");
            assert_eq!((results.len(), session.usage().requests), (4, 3));
            assert!(session.pending().is_empty() && session.unpublished_count() == 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_sessions_at_once_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = Embedded::create(&path).unwrap();
    let turn = Turn::new().call("echo", json!({ "text": "a" })).call("echo", json!({ "text": "b" }));
    let agent = Agent::new("one of many").model(Scripted::new("scripted").turn(turn).say("Done.")).tools(echo);
    let all: Vec<_> = (0..100)
        .map(|_| {
            let (agent, session) = (agent.clone(), asked(&store));
            tokio::spawn(async move { agent.forward(session).await })
        })
        .collect();
    in_time(async {
        for one in all {
            let session = one.await.unwrap().unwrap();
            assert_eq!(count(&session, Kind::ToolResult).await, 2);
        }
    })
    .await;
    drop(store);
    let report = Embedded::open_as(&path, "test").unwrap().verify(None, &mut |_, _| {}).unwrap();
    assert!(report.is_valid(), "{:?}", report.findings);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_turns_in_a_row() {
    let script = Scripted::from_fn(|seen| match seen.turn {
        300 => Turn::from("Done."),
        turn => Turn::new().call("echo", json!({ "text": turn.to_string() })),
    });
    let agent = Agent::new("patient").model(script).tools(echo);
    let session = in_time(agent.forward(asked(&InMemory::new()))).await.unwrap();
    let results = results(&session).await;
    assert_eq!(results.len(), 300);
    assert!(results.iter().enumerate().all(|(at, (_, text, _))| *text == at.to_string()));
}
