//! The driver of agents: its records, the requests to models, and the ends of runs.

mod bare;
mod budgets;
mod calls;
mod cancels;
mod durable;
mod hooked;
mod many;
mod models;
mod outcomes;
mod output;
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
use rath::model::{Delta, Encoded, Failure, MessageBody, Model, ModelAnswer, ModelInput};
use rath::model::{Message, StandardView};
use rath::prelude::*;
use rath::store::{BoxFuture, Post, PostContent, Scan};
use rath::{Durability, Point, Usage};
use rath::{Kind, Record};

/// Only a deadlock takes longer, on any machine.
const FOR_EVER: Duration = Duration::from_secs(120);

/// Fails if the work does not finish.
async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(FOR_EVER, work).await.expect("a deadlock")
}

/// A session with a user message.
fn asked(store: &Arc<dyn Store>) -> Session {
    let mut session = store.create(Actor::person("ada"));
    session.user("Please.").unwrap();
    session
}

/// The records of a session, published or not.
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

/// The number of records of this kind in the session.
async fn count(session: &Session, kind: Kind) -> usize {
    line(session).await.iter().filter(|record| *record.kind() == kind).count()
}

/// The bodies of a kind, in order.
async fn bodies<B: Body>(session: &Session) -> Vec<B> {
    let line = line(session).await;
    line.iter().filter(|record| *record.kind() == B::KIND).map(|record| record.body().unwrap()).collect()
}

/// The stored bodies of a kind, even if the session is locked.
async fn stored<B: Body>(store: &Arc<dyn Store>, id: SessionId) -> Vec<B> {
    let scan = Scan::session(id, 0, u64::MAX - 1).kinds(&[B::KIND]).limit(100_000);
    // The session does not exist before its first commit.
    let page = store.scan(scan).await.unwrap_or_default();
    page.records.iter().map(|record| record.body().unwrap()).collect()
}

/// The results that the model is shown: call, text, whether it failed.
async fn results(session: &Session) -> Vec<(String, String, bool)> {
    let context = session.context().await.unwrap();
    let results = context.into_iter().filter_map(|message| match message.body {
        MessageBody::Tool(ToolResult { call, shown, failed, .. }) => {
            Some((call, shown.map(|shown| shown.to_string()).unwrap_or_default(), failed))
        }
        _ => None,
    });
    results.collect()
}

/// The conversation, one line per message.
fn words(messages: &[Message]) -> Vec<String> {
    let words = |said: &MessageBody| match said {
        MessageBody::Marker { why, .. } => format!("branch {}", why.clone().unwrap_or_default()),
        said => format!("{} {said}", said.role()),
    };
    messages.iter().map(|message| words(&message.body)).collect()
}

async fn transcript(session: &Session) -> Vec<String> {
    words(&session.context().await.unwrap())
}

async fn post(store: &Arc<dyn Store>, session: SessionId, what: PostContent) {
    store.post(Post::new(session, Actor::person("grace"), what)).await.unwrap();
}

/// A scripted model that remembers its requests.
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

    fn encode<'a>(&'a self, shown: &'a ModelInput<'a>) -> BoxFuture<'a, Result<Encoded, Failure>> {
        self.script.encode(shown)
    }

    fn send<'a>(
        &'a self,
        shown: &'a ModelInput<'a>,
        request: &'a Encoded,
        heard: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<ModelAnswer, Failure>> {
        Box::pin(async move {
            let messages = shown.messages().await.unwrap();
            assert_eq!(messages.last().map(|last| last.origin), shown.latest().await.unwrap().map(|last| last.origin));
            self.seen.lock().unwrap().push(words(&messages));
            self.script.send(shown, request, heard).await
        })
    }
}

/// Returns its argument.
#[tool(effect = "pure")]
fn echo(text: String) -> String {
    text
}

/// Takes nothing.
#[tool(effect = "pure")]
fn nothing() -> String {
    "nothing".into()
}

/// Signals its start, works until it is cancelled, and then fails.
#[tool(effect = "pure")]
async fn until_stopped(call: &Call, begun: Resource<tokio::sync::Notify>) -> Result<String, &'static str> {
    begun.notify_one();
    call.cancel.cancelled().await;
    Err("stopped in good order")
}

/// Ignores cancellation.
#[tool(effect = "pure")]
async fn deaf(begun: Resource<tokio::sync::Notify>, dropped: Resource<AtomicU64>) -> String {
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
