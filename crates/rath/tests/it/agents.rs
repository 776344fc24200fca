//! The driver of agents: what it records, what models are shown, how runs end.

mod bare;
mod budgets;
mod calls;
mod cancels;
mod durable;
mod hooked;
mod many;
mod models;
mod outcomes;
mod people;
mod requests;
mod rounds;
mod rules;
mod subs;
mod turns;

pub(crate) use hooked::Hooked;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rath::body::{Body, ToolResult};
use rath::prelude::*;
use rath::store::{BoxFuture, Post, Posted, Scan};
use rath::{Answer, Delta, Encoded, Failure, Kind, Model, Record, Said, Shown};

/// Long enough for any machine: only a deadlock takes longer.
const FOR_EVER: Duration = Duration::from_secs(120);

/// Fails where the work does not come to an end.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(FOR_EVER, work).await.expect("a deadlock")
}

/// A session with something to answer.
fn asked(store: &Arc<dyn Store>) -> Session {
    let mut session = store.create(Actor::person("ada"));
    session.user("Please.").unwrap();
    session
}

/// The records of a line, published or not.
async fn line(session: &Session) -> Vec<Record> {
    let mut records = Vec::new();
    for seq in 0..=session.head().seq {
        records.push(session.record_at(seq).await.unwrap());
    }
    records
}

async fn kinds(session: &Session) -> Vec<String> {
    line(session).await.iter().map(|record| record.kind().to_string()).collect()
}

/// How many records of this kind the line has.
async fn count(session: &Session, kind: Kind) -> usize {
    line(session).await.iter().filter(|record| *record.kind() == kind).count()
}

/// The bodies of a kind, in order.
async fn bodies<B: Body>(session: &Session) -> Vec<B> {
    let line = line(session).await;
    line.iter().filter(|record| *record.kind() == B::KIND).map(|record| record.body().unwrap()).collect()
}

/// As stored, whoever holds the session.
async fn stored<B: Body>(store: &Arc<dyn Store>, id: SessionId) -> Vec<B> {
    let scan = Scan::session(id, 0, u64::MAX - 1).kinds(&[B::KIND]).limit(100_000);
    // Before its first commit there is no such session.
    let page = store.scan(scan).await.unwrap_or_default();
    page.records.iter().map(|record| record.body().unwrap()).collect()
}

/// The results that the model is shown: call, text, whether it failed.
async fn results(session: &Session) -> Vec<(String, String, bool)> {
    let context = session.context().await.unwrap();
    let results = context.into_iter().filter_map(|message| match message.said {
        Said::Tool(ToolResult { call, shown, failed, .. }) => {
            Some((call, shown.map(|shown| shown.to_string()).unwrap_or_default(), failed))
        }
        _ => None,
    });
    results.collect()
}

/// The conversation, a line a message.
fn words(messages: &[Message]) -> Vec<String> {
    let words = |said: &Said| match said {
        Said::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        said => format!("{} {said}", said.role()),
    };
    messages.iter().map(|message| words(&message.said)).collect()
}

async fn transcript(session: &Session) -> Vec<String> {
    words(&session.context().await.unwrap())
}

async fn post(store: &Arc<dyn Store>, session: SessionId, what: Posted) {
    store.post(Post::new(session, Actor::person("grace"), what)).await.unwrap();
}

/// A script that remembers what it was shown, request by request.
struct Watched {
    script: Scripted,
    seen: Seen,
}

type Seen = Arc<Mutex<Vec<Vec<String>>>>;

fn watched(script: Scripted) -> (Watched, Seen) {
    let seen = Seen::default();
    (Watched { script, seen: seen.clone() }, seen)
}

impl Model for Watched {
    fn name(&self) -> &str {
        self.script.name()
    }

    fn encoder(&self) -> &str {
        self.script.encoder()
    }

    fn encode<'a>(&'a self, shown: &'a Shown<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        self.script.encode(shown)
    }

    fn send<'a>(
        &'a self,
        shown: &'a Shown<'a>,
        request: &'a Encoded,
        heard: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Answer, Failure>> {
        Box::pin(async move {
            let messages = shown.messages().await.unwrap();
            assert_eq!(messages.last().map(|last| last.origin), shown.latest().await.unwrap().map(|last| last.origin));
            self.seen.lock().unwrap().push(words(&messages));
            self.script.send(shown, request, heard).await
        })
    }
}

/// Gives its words back.
#[tool(effect = "pure")]
fn echo(text: String) -> String {
    text
}

/// Takes nothing.
#[tool(effect = "pure")]
fn nothing() -> String {
    "nothing".into()
}

/// Says when it begins, works until it is told to stop, and says that it did not get to the end.
#[tool(effect = "pure")]
async fn until_stopped(call: &Call, begun: State<tokio::sync::Notify>) -> Result<String, &'static str> {
    begun.notify_one();
    call.cancel.cancelled().await;
    Err("stopped in good order")
}

/// Does not hear that it is to stop.
#[tool(effect = "pure")]
async fn deaf(begun: State<tokio::sync::Notify>, dropped: State<AtomicU64>) -> String {
    struct Dropped<'a>(&'a AtomicU64);
    impl Drop for Dropped<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::AcqRel);
        }
    }
    let _dropped = Dropped(&dropped);
    begun.notify_one();
    std::future::pending().await
}
