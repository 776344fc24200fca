//! Random workflows of all combinators, with failures, kills and cancellations, compared with a plain model of what each
//! combinator does.
//!
//! Everything runs on one thread and depends only on the test case, so that failures can be shrunk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rath::body::{Asked, QuestionKind, Rejected, ToolFinished, Verdict};
use rath::model::MessageBody;
use rath::prelude::*;
use rath::session::RunOptions;
use rath::store::{Post, PostContent, Query};
use rath::workflow::validator::{self, Validation, Validator};
use rath::workflow::{
    BoxWorkflow, Join, OnReject, SkippingClock, chain, choose, compensate, gate, map, parallel, race, repeat, retry,
    sleep, timeout, wait_for,
};
use rath::{Durability, ErrorKind, Kind, Record};
use rath_testkit::{CrashPoint, CrashingStore};
use serde_json::json;

use crate::agents::Hooked;

/// A workflow.
#[derive(Clone, Debug)]
enum Node {
    /// A user message.
    Say,
    /// An agent that gives one answer.
    Agent,
    /// An agent that sends a message, which cannot be undone, and gives an answer.
    Send,
    Fail,
    /// Fails until the context says that this attempt failed.
    Flaky(u32),
    Sleep,
    WaitFor,
    Chain(Vec<Node>),
    /// Branches, how they are joined, and how many must succeed if failures are collected.
    Parallel(Vec<Node>, Joined, Option<usize>),
    Map(usize, Box<Node>),
    /// A branch that may succeed, and whether another one hangs until it is cancelled.
    Race(Box<Node>, bool),
    Retry(Box<Node>, u32, bool),
    Repeat(Box<Node>, u32),
    Choose(Box<Node>, Box<Node>),
    Timeout(Box<Node>),
    /// Whether a person is asked after a rejection.
    Gate(Box<Node>, bool),
    /// Steps, each with whether it has an undo.
    Compensate(Vec<(Node, bool)>),
}

#[derive(Clone, Copy, Debug)]
enum Joined {
    All,
    Answers,
    Best,
}

fn simple() -> impl Strategy<Value = Node> {
    prop_oneof![2 => Just(Node::Say), 4 => Just(Node::Agent), 1 => Just(Node::Fail)]
}

fn a_workflow() -> impl Strategy<Value = Node> {
    let leaf = prop_oneof![
        2 => Just(Node::Say),
        4 => Just(Node::Agent),
        4 => Just(Node::Send),
        2 => Just(Node::Fail),
        2 => (1..3_u32).prop_map(Node::Flaky),
        1 => Just(Node::Sleep),
        1 => Just(Node::WaitFor),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        let nodes = || proptest::collection::vec(inner.clone(), 1..4);
        let one = || inner.clone().prop_map(Box::new);
        let joined = prop_oneof![Just(Joined::All), Just(Joined::Best)];
        // Values of steps become answers, which the model does not know: these branches have none.
        let answers = (proptest::collection::vec(simple(), 1..4), proptest::option::of(0..3_usize))
            .prop_map(|(nodes, least)| Node::Parallel(nodes, Joined::Answers, least));
        prop_oneof![
            3 => nodes().prop_map(Node::Chain),
            3 => (nodes(), joined, proptest::option::of(0..3_usize))
                .prop_map(|(nodes, joined, least)| Node::Parallel(nodes, joined, least)),
            1 => answers,
            1 => (1..4_usize, simple()).prop_map(|(items, node)| Node::Map(items, Box::new(node))),
            2 => (one(), any::<bool>()).prop_map(|(node, hangs)| Node::Race(node, hangs)),
            3 => (one(), 1..4_u32, any::<bool>()).prop_map(|(node, most, tell)| Node::Retry(node, most, tell)),
            2 => (one(), 1..4_u32).prop_map(|(node, rounds)| Node::Repeat(node, rounds)),
            1 => (one(), one()).prop_map(|(then, otherwise)| Node::Choose(then, otherwise)),
            1 => one().prop_map(Node::Timeout),
            2 => (one(), any::<bool>()).prop_map(|(node, asks)| Node::Gate(node, asks)),
            2 => proptest::collection::vec((inner.clone(), any::<bool>()), 1..4).prop_map(Node::Compensate),
        ]
    })
}

/// What every validator of these tests decides, from the number of lines in the context.
fn validation(lines: usize) -> Validation {
    let score = (lines % 4) as f64;
    match lines % 3 {
        0 => Validation::reject(format!("{lines} lines")).score(score),
        _ => Validation::accept().score(score),
    }
}

fn by_lines() -> impl Validator + 'static {
    validator::check("lines", |session: Session| async move {
        let validation = validation(lines(&session).await?.len());
        Ok((session, validation))
    })
}

/// The context without tool calls and their results.
async fn lines(session: &Session) -> Result<Vec<String>> {
    let describe = |body: &MessageBody| match body {
        MessageBody::Marker { why, .. } => Some(format!("branch {}", why.clone().unwrap_or_default())),
        MessageBody::Tool(_) => None,
        MessageBody::Assistant(_) if !body.to_string().starts_with("answer") => None,
        body => Some(format!("{} {body}", body.role())),
    };
    Ok(session.context().await?.iter().filter_map(|message| describe(&message.body)).collect())
}

/// Sends a message.
#[tool(effect = "irreversible")]
async fn send(
    /// The text.
    text: String,
    world: Resource<World>,
) -> String {
    world.sent.lock().unwrap().push(text.clone());
    format!("sent {text}")
}

/// The outside world, which outlives every process.
#[derive(Default)]
struct World {
    sent: Mutex<Vec<String>>,
    /// Whether each record is committed at once, so that there are more places to be killed at.
    commits_each: bool,
}

impl World {
    fn new(commits_each: bool) -> Arc<Self> {
        Arc::new(Self { commits_each, ..Self::default() })
    }
}

fn agent(at: &str, sends: bool) -> Agent {
    let script = Scripted::new("scripted");
    let script = if sends { script.call("send", json!({ "text": at })) } else { script };
    Agent::new("agent").model(script.say(format!("answer {at}"))).tools(send).retries(0, Duration::ZERO)
}

/// Stops when it is told to, or fails soon after.
async fn hang(mut session: Session) -> Result<Session> {
    let cancel = session.cancel_token();
    tokio::select! {
        () = cancel.cancelled() => Err(Error::new(ErrorKind::Cancelled { why: "told to stop".into() }, vec![session])),
        // Not for ever: the store may be dead.
        () = tokio::time::sleep(Duration::from_millis(20)) => Err(Error::coded("too-slow", "too slow", session)),
    }
}

async fn fail(session: Session) -> Result<Session> {
    Err(Error::coded("broken", "bad", session))
}

/// The workflow of a node. Names and texts follow from its position.
fn workflow(node: &Node, at: &str) -> BoxWorkflow {
    let below = |index: usize| format!("{at}.{index}");
    let child = |node: &Node| workflow(node, &below(0));
    match node {
        Node::Say => {
            let text = format!("words {at}");
            BoxWorkflow::new(move |mut session: Session| {
                let text = text.clone();
                async move {
                    session.user(text)?;
                    Ok(session)
                }
            })
        }
        Node::Agent => BoxWorkflow::new(agent(at, false)),
        Node::Send => BoxWorkflow::new(agent(at, true)),
        Node::Fail => BoxWorkflow::new(fail),
        Node::Flaky(fails) => {
            let told = format!("attempt {fails} failed");
            BoxWorkflow::new(move |session: Session| {
                let told = told.clone();
                async move {
                    match lines(&session).await?.iter().any(|line| line.contains(&told)) {
                        true => Ok(session),
                        false => fail(session).await,
                    }
                }
            })
        }
        Node::Sleep => BoxWorkflow::new(sleep(format!("sleep {at}"), Duration::from_secs(60))),
        Node::WaitFor => BoxWorkflow::new(wait_for(format!("event {at}"))),
        Node::Chain(nodes) => {
            let links = nodes.iter().enumerate();
            BoxWorkflow::new(
                links.fold(chain(format!("chain {at}")), |chain, (index, node)| {
                    chain.then(workflow(node, &below(index)))
                }),
            )
        }
        Node::Parallel(nodes, joined, least) => {
            let branches = nodes.iter().enumerate();
            let step = branches.fold(parallel(format!("parallel {at}")), |step, (index, node)| {
                step.branch(below(index), workflow(node, &below(index)))
            });
            let step = match least {
                Some(least) => step.collect(*least),
                None => step,
            };
            BoxWorkflow::new(step.at_most(2).join(match joined {
                Joined::All => Join::all(),
                Joined::Answers => Join::answers(),
                Joined::Best => Join::best(by_lines()),
            }))
        }
        Node::Map(items, node) => {
            let items: Vec<String> = (0..*items).map(|item| format!("item {at} {item}")).collect();
            BoxWorkflow::new(map(format!("map {at}"), child(node)).items(items).at_most(2))
        }
        Node::Race(node, hangs) => {
            let step = race(format!("race {at}")).branch("loser", fail).branch("winner", child(node));
            BoxWorkflow::new(if *hangs { step.branch("hangs", hang) } else { step })
        }
        Node::Retry(node, most, tell) => {
            let step = retry(format!("retry {at}"), child(node)).attempts(*most);
            BoxWorkflow::new(if *tell { step.tell_reason() } else { step })
        }
        Node::Repeat(node, rounds) => {
            BoxWorkflow::new(repeat(format!("repeat {at}"), child(node)).rounds(*rounds).until_accepted(by_lines()))
        }
        Node::Choose(then, otherwise) => {
            let titled = |session: &Session| session.head().seq > u64::MAX / 2;
            let step = choose(format!("choose {at}")).when("then", titled, workflow(then, &below(0)));
            BoxWorkflow::new(step.otherwise(workflow(otherwise, &below(1))))
        }
        Node::Timeout(node) => {
            BoxWorkflow::new(timeout(format!("timeout {at}"), Duration::from_secs(1 << 30), child(node)))
        }
        Node::Gate(node, asks) => {
            let on_reject = if *asks { OnReject::Ask } else { OnReject::Fail };
            BoxWorkflow::new(gate(format!("gate {at}"), child(node)).validator(by_lines()).on_reject(on_reject))
        }
        Node::Compensate(steps) => {
            let steps = steps.iter().enumerate();
            BoxWorkflow::new(steps.fold(compensate(format!("scope {at}")), |scope, (index, (node, undo))| {
                let work = workflow(node, &below(index));
                match undo {
                    true => scope.step(format!("step {index}"), work, agent(&format!("{at}.undo{index}"), true)),
                    false => scope.then(format!("step {index}"), work),
                }
            }))
        }
    }
}

/// The plain model of a session.
#[derive(Clone, Debug, Default)]
struct Modelled {
    lines: Vec<String>,
    requests: u64,
    rejected: u64,
    /// What was sent, also by branches that are not merged.
    sent: Vec<String>,
    /// Whether nothing was cancelled, so that `sent` is certain.
    exact: bool,
    /// Whether an error whose text is uncertain came into the context.
    vague: bool,
}

/// An error's text; `None` if it depends on which of several branches fails first.
type Failure = Option<String>;

impl Modelled {
    /// A fork.
    fn fork(&self) -> Self {
        Self { requests: 0, rejected: 0, sent: Vec::new(), exact: true, vague: false, ..self.clone() }
    }

    fn answer(&mut self, at: &str) {
        self.requests += 1;
        self.lines.push(format!("assistant answer {at}"));
    }

    /// Adds what a branch did outside.
    fn add_effects(&mut self, branch: &Self) {
        self.sent.extend(branch.sent.iter().cloned());
        self.exact &= branch.exact;
        self.vague |= branch.vague;
    }

    /// Merges the usage of a branch.
    fn merge(&mut self, branch: &Self, rejected: bool) {
        self.requests += branch.requests;
        self.rejected += branch.rejected + u64::from(rejected);
    }

    /// Runs a node, as the documentation of its combinator says.
    fn run(&mut self, node: &Node, at: &str) -> Result<(), Failure> {
        let below = |index: usize| format!("{at}.{index}");
        match node {
            Node::Say => self.lines.push(format!("user words {at}")),
            Node::Agent => self.answer(at),
            Node::Send => {
                self.requests += 1;
                self.sent.push(at.to_owned());
                self.answer(at);
            }
            Node::Fail => return Err(Some("bad".into())),
            Node::Flaky(fails) => {
                let told = format!("attempt {fails} failed");
                if !self.lines.iter().any(|line| line.contains(&told)) {
                    return Err(Some("bad".into()));
                }
            }
            Node::Sleep | Node::WaitFor => {}
            Node::Chain(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    self.run(node, &below(index))?;
                }
            }
            Node::Parallel(nodes, joined, least) => self.parallel(nodes, at, *joined, *least)?,
            Node::Map(items, node) => {
                let (mut branches, mut failed) = (Vec::new(), false);
                for item in 0..*items {
                    let mut branch = self.fork();
                    branch.lines.push(format!("user item {at} {item}"));
                    failed |= branch.run(node, &below(0)).is_err();
                    branches.push(branch);
                }
                branches.iter().for_each(|branch| self.add_effects(branch));
                if failed {
                    return Err(Some("bad".into()));
                }
                let names: Vec<String> = (1..=*items).map(|name| name.to_string()).collect();
                let ends: Vec<_> = branches.into_iter().map(|branch| (branch, Ok(()))).collect();
                self.join_answers(&names, &ends);
            }
            Node::Race(node, hangs) => {
                let mut branch = self.fork();
                let ended = branch.run(node, &below(0));
                self.add_effects(&branch);
                if ended.is_err() {
                    // The text lists the failures.
                    return Err(None);
                }
                self.merge(&branch, false);
                self.rejected += 1 + u64::from(*hangs);
                self.lines = branch.lines;
            }
            Node::Retry(node, most, tell) => {
                let start = self.lines.clone();
                let mut reason: Option<Failure> = None;
                for attempt in 1..=*most {
                    let mut branch = Self { lines: start.clone(), ..self.fork() };
                    if let Some(reason) = reason.take().filter(|_| *tell) {
                        branch.vague |= reason.is_none();
                        let reason = reason.unwrap_or_default();
                        branch
                            .lines
                            .push(format!("user attempt {} failed: {reason}\nAvoid this mistake now.", attempt - 1));
                    }
                    let ended = branch.run(node, &below(0));
                    self.add_effects(&branch);
                    self.merge(&branch, ended.is_err());
                    match ended {
                        Ok(()) => {
                            self.lines = branch.lines;
                            return Ok(());
                        }
                        Err(why) if attempt == *most => return Err(why),
                        Err(why) => reason = Some(why),
                    }
                }
            }
            Node::Repeat(node, rounds) => {
                for round in 1..=*rounds {
                    self.run(node, &below(0))?;
                    let verdict = validation(self.lines.len());
                    if verdict.is_accepted() {
                        break;
                    }
                    if round == *rounds {
                        return Err(Some(format!("{rounds} rounds were used up: {verdict}")));
                    }
                    self.lines.push(format!("user Rejected: {verdict}"));
                }
            }
            Node::Choose(_, otherwise) => self.run(otherwise, &below(1))?,
            Node::Timeout(node) => self.run(node, &below(0))?,
            Node::Gate(node, asks) => {
                self.run(node, &below(0))?;
                let verdict = validation(self.lines.len());
                if !verdict.is_accepted() && !asks {
                    return Err(Some(format!("lines did not accept the work: {verdict}")));
                }
            }
            Node::Compensate(steps) => {
                for (index, (node, _)) in steps.iter().enumerate() {
                    if let Err(why) = self.run(node, &below(index)) {
                        for index in (0..index).rev().filter(|index| steps[*index].1) {
                            let undo = format!("{at}.undo{index}");
                            self.requests += 1;
                            self.sent.push(undo.clone());
                            self.answer(&undo);
                        }
                        return Err(why);
                    }
                }
            }
        }
        Ok(())
    }

    fn parallel(&mut self, nodes: &[Node], at: &str, joined: Joined, least: Option<usize>) -> Result<(), Failure> {
        let mut ends = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            let mut branch = self.fork();
            let ended = branch.run(node, &format!("{at}.{index}"));
            ends.push((branch, ended));
        }
        ends.iter().for_each(|(branch, _)| self.add_effects(branch));
        let failures: Vec<&Failure> = ends.iter().filter_map(|(_, ended)| ended.as_ref().err()).collect();
        match least {
            None if !failures.is_empty() => {
                // The others are cancelled somewhere on their way.
                self.exact &= ends.len() == 1;
                let first = failures[0].clone();
                return Err(first.filter(|_| failures.iter().all(|why| *why == failures[0])));
            }
            Some(least) if ends.len() - failures.len() < least => return Err(None),
            _ => {}
        }
        let names: Vec<String> = (0..nodes.len()).map(|index| format!("{at}.{index}")).collect();
        match joined {
            Joined::All => {
                let from = self.lines.len();
                for (name, (branch, ended)) in names.iter().zip(&ends) {
                    self.merge(branch, ended.is_err());
                    // A branch that adds nothing to the context has no marker either.
                    if ended.is_ok() && branch.lines.len() > from {
                        self.lines.push(format!("branch {name}"));
                        self.lines.extend(branch.lines[from..].iter().cloned());
                    }
                }
            }
            Joined::Answers => self.join_answers(&names, &ends),
            Joined::Best => {
                let mut best: Option<(usize, f64)> = None;
                for (index, (branch, ended)) in ends.iter().enumerate() {
                    let verdict = validation(branch.lines.len());
                    let score = verdict.score.unwrap_or_default();
                    if ended.is_ok() && verdict.is_accepted() && best.is_none_or(|(_, known)| score > known) {
                        best = Some((index, score));
                    }
                }
                let Some((chosen, _)) = best else { return Err(None) };
                for (index, (branch, _)) in ends.iter().enumerate() {
                    self.merge(branch, index != chosen);
                }
                self.lines = ends.swap_remove(chosen).0.lines;
            }
        }
        Ok(())
    }

    fn join_answers(&mut self, names: &[String], ends: &[(Self, Result<(), Failure>)]) {
        let mut text = String::from("user Answers of the branches:\n");
        for (name, (branch, ended)) in names.iter().zip(ends) {
            self.merge(branch, ended.is_err());
            let last = branch.lines.iter().rev().find_map(|line| line.strip_prefix("assistant "));
            let answer = match ended {
                Ok(()) => last.unwrap_or("(no answer)").to_owned(),
                Err(why) => format!("(failed: {})", why.clone().unwrap_or_default()),
            };
            text.push_str(&format!("\n## {name}\n\n{answer}\n"));
        }
        self.lines.push(text);
    }
}

/// How often each text may be sent at most.
fn bounds(node: &Node, at: &str, times: usize, bounds: &mut BTreeMap<String, usize>) {
    let below = |index: usize| format!("{at}.{index}");
    match node {
        Node::Send => drop(bounds.insert(at.to_owned(), times)),
        Node::Say | Node::Agent | Node::Fail | Node::Flaky(_) | Node::Sleep | Node::WaitFor => {}
        Node::Chain(nodes) | Node::Parallel(nodes, ..) => {
            for (index, node) in nodes.iter().enumerate() {
                self::bounds(node, &below(index), times, bounds);
            }
        }
        Node::Retry(node, most, _) | Node::Repeat(node, most) => {
            self::bounds(node, &below(0), times * *most as usize, bounds);
        }
        Node::Map(_, node) | Node::Race(node, _) | Node::Timeout(node) | Node::Gate(node, _) => {
            self::bounds(node, &below(0), times, bounds);
        }
        Node::Choose(_, otherwise) => self::bounds(otherwise, &below(1), times, bounds),
        Node::Compensate(steps) => {
            for (index, (node, undo)) in steps.iter().enumerate() {
                self::bounds(node, &below(index), times, bounds);
                if *undo {
                    bounds.insert(format!("{at}.undo{index}"), times);
                }
            }
        }
    }
}

/// How a run ended, in terms of the model.
#[derive(Debug, PartialEq)]
struct Ending {
    error: Option<String>,
    lines: Vec<String>,
    requests: u64,
    rejected: u64,
}

async fn ending(session: &Session, error: Option<String>) -> Ending {
    let history = session.history().await.unwrap().all().await.unwrap();
    let rejected = history.iter().filter(|record| *record.kind() == Kind::Rejected);
    let rejected = rejected.filter(|record| !record.body::<Rejected>().unwrap().why.starts_with("the process ended"));
    let rejected = rejected.count() as u64;
    Ending { error, lines: lines(session).await.unwrap(), requests: session.usage().requests, rejected }
}

/// How often the records say that `text` was sent.
async fn recorded_sends(store: &Arc<dyn Store>, text: &str) -> usize {
    let mut count = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        let records = View::of(store, row.id, None).await.unwrap().own_records().await.unwrap();
        let output = |record: &Record| record.body::<ToolFinished>().map(|body| format!("{:?}", body.output));
        let is_sent = |record: &&Record| output(record).is_ok_and(|output| output.contains(&format!("sent {text}\"")));
        count += records.iter().filter(|record| *record.kind() == Kind::ToolFinished).filter(is_sent).count();
    }
    count
}

/// Answers all questions truthfully, posts the awaited events, and moves the clock. Returns their number.
async fn answer(store: &Arc<dyn Store>, world: &World, clock: &SkippingClock) -> usize {
    let mut answered = 0;
    for row in store.sessions(Query::default()).await.unwrap() {
        let pending = View::of(store, row.id, None).await.unwrap().pending();
        for ask in pending.asks {
            let asked: Asked = View::of(store, row.id, Some(ask.seq)).await.unwrap().record().body().unwrap();
            let shown = asked.shown.to_string();
            let verdict = match asked.about {
                QuestionKind::OutcomeUnknown => {
                    let arguments: serde_json::Value = serde_json::from_str(shown.lines().nth(1).unwrap()).unwrap();
                    let text = arguments["text"].as_str().unwrap();
                    let sent = world.sent.lock().unwrap().iter().filter(|sent| *sent == text).count();
                    match sent > recorded_sends(store, text).await {
                        true => Verdict::Text(format!("sent {text}").into()),
                        false => Verdict::No,
                    }
                }
                _ => Verdict::Yes,
            };
            let what = PostContent::Answer { asked: ask.record, shown_digest: ask.shown_digest, verdict, why: None };
            store.post(Post::new(row.id, Actor::person("ada"), what)).await.unwrap();
            answered += 1;
        }
        for wait in pending.waits {
            answered += 1;
            if let Some(until) = wait.until {
                clock.skip_to(until);
            }
            if let Some(name) = wait.name {
                let what = PostContent::Event { name: name.to_string(), value: "1".into() };
                let id = format!("event for {}@{}", row.id, wait.seq);
                store.post(Post { id, ..Post::new(row.id, Actor::person("ada"), what) }).await.unwrap();
            }
        }
    }
    answered
}

/// The end of a process, or of a run.
enum End {
    Killed,
    Ended(Session, Option<Error>),
}

/// Runs the workflow on the store `through` until it ends or is killed.
async fn live(
    store: &Arc<dyn Store>,
    through: &Arc<dyn Store>,
    node: &Node,
    world: &Arc<World>,
    clock: &SkippingClock,
) -> End {
    let workflow = workflow(node, "w");
    for _ in 0..200 {
        let input = async |session: &mut Session| session.user("Go.").map(|_| ());
        let session = through.begin_run("random", RunOptions::from(Actor::program("test")), input).await;
        let executed = match session {
            Ok(mut session) => {
                if world.commits_each {
                    session.set_durability(Durability::Record);
                }
                session.provide_shared(world.clone());
                session.provide(clock.clone());
                session.execute(&workflow).await
            }
            Err(error) => Err(error),
        };
        if through.sessions(Query::default()).await.is_err() {
            return End::Killed;
        }
        match executed {
            Ok(session) => return End::Ended(session, None),
            Err(error) if matches!(error.kind(), ErrorKind::Waiting(_)) => {
                drop(error);
                assert!(answer(store, world, clock).await > 0, "a run that waits has something to wait for");
            }
            Err(mut error) => {
                let mut sessions = error.take_sessions();
                assert!(!sessions.is_empty(), "{error}");
                return End::Ended(sessions.swap_remove(0), Some(error));
            }
        }
    }
    panic!("the run does not come to an end");
}

/// A process that dies at a commit.
#[derive(Clone, Copy, Debug)]
struct Kill {
    after: u64,
    before_it: bool,
}

fn kills() -> impl Strategy<Value = Vec<Kill>> {
    let kill = (0..40_u64, any::<bool>()).prop_map(|(after, before_it)| Kill { after, before_it });
    proptest::collection::vec(kill, 1..5)
}

fn on_one_thread<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(work)
}

/// The configured number of cases, with a fixed seed.
fn runner() -> TestRunner {
    let cases = rath_testkit::scaled(48);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn counted(sent: &[String]) -> BTreeMap<String, usize> {
    sent.iter().fold(BTreeMap::new(), |mut counts, text| {
        *counts.entry(text.clone()).or_default() += 1;
        counts
    })
}

/// Compares the end of a run with the model.
async fn compare(session: &Session, error: Option<&Error>, node: &Node, world: &World) {
    let mut model = Modelled { lines: vec!["user Go.".into()], exact: true, ..Modelled::default() };
    let failed = model.run(node, "w").err();
    let ended = ending(session, error.map(ToString::to_string)).await;
    assert_eq!(ended.error.is_some(), failed.is_some(), "{ended:?} {failed:?}");
    if let Some(Some(why)) = failed.filter(|_| !model.vague) {
        assert_eq!(ended.error, Some(why));
    }
    if !model.vague {
        assert_eq!(ended.lines, model.lines);
        assert_eq!(ended.requests, model.requests);
        assert_eq!(ended.rejected, model.rejected);
    }
    let (sent, mut most) = (counted(&world.sent.lock().unwrap()), BTreeMap::new());
    bounds(node, "w", 1, &mut most);
    for (text, times) in &sent {
        assert!(most.get(text).is_some_and(|most| times <= most), "{text} was sent {times} times: {most:?}");
    }
    if model.exact && !model.vague {
        assert_eq!(sent, counted(&model.sent));
    }
    assert!(session.pending().is_empty() && session.unpublished_count() == 0, "{:?}", session.pending());
}

/// Nothing is open on any session of the store.
async fn nothing_is_open(store: &Arc<dyn Store>) {
    for row in store.sessions(Query::default()).await.unwrap() {
        let pending = View::of(store, row.id, None).await.unwrap().pending();
        assert!(pending.is_empty(), "{}: {pending:?}", row.id);
    }
}

#[test]
fn a_run_ends_as_the_model_says() {
    let failed = AtomicU64::new(0);
    let done = runner().run(&a_workflow(), |node| {
        on_one_thread(async {
            let (world, clock) = (World::new(false), SkippingClock::default());
            let store: Arc<dyn Store> = InMemory::new();
            let End::Ended(session, error) = live(&store, &store, &node, &world, &clock).await else {
                panic!("killed")
            };
            failed.fetch_add(u64::from(error.is_some()), Ordering::Relaxed);
            compare(&session, error.as_ref(), &node, &world).await;
            drop((session, error));
            nothing_is_open(&store).await;
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
    eprintln!("{} runs failed", failed.into_inner());
}

#[test]
fn a_killed_run_ends_as_the_model_says() {
    let killed = AtomicU64::new(0);
    let done = runner().run(&(a_workflow(), kills(), any::<bool>()), |(node, kills, commits_each)| {
        on_one_thread(async {
            let (world, clock) = (World::new(commits_each), SkippingClock::default());
            let store: Arc<dyn Store> = InMemory::new();
            for Kill { after, before_it } in kills {
                let moment = if before_it { CrashPoint::Before } else { CrashPoint::After };
                let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), after, moment);
                match live(&store, &mortal, &node, &world, &clock).await {
                    End::Killed => drop(killed.fetch_add(1, Ordering::Relaxed)),
                    End::Ended(..) => break,
                }
            }
            let End::Ended(session, error) = live(&store, &store, &node, &world, &clock).await else {
                panic!("killed")
            };
            compare(&session, error.as_ref(), &node, &world).await;
            drop((session, error));
            nothing_is_open(&store).await;
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
    eprintln!("{} kills", killed.into_inner());
}

#[test]
fn a_cancelled_workflow_leaves_nothing_open() {
    let cancelled = AtomicU64::new(0);
    let strategy = (a_workflow(), 1..24_u64, proptest::option::of(kills()), any::<bool>());
    let done = runner().run(&strategy, |(node, stop_at, kills, commits_each)| {
        on_one_thread(async {
            let (world, clock) = (World::new(commits_each), SkippingClock::default());
            let commits = AtomicU64::new(0);
            // The session whose records are in that commit is cancelled.
            let store = Hooked::new(InMemory::new(), move |batch| {
                let at = commits.fetch_add(1, Ordering::AcqRel) + 1;
                let session = batch.parts.last().filter(|_| at == stop_at)?.session;
                Some(Post::new(session, Actor::person("grace"), PostContent::Cancel { why: "enough".into() }))
            });
            for Kill { after, before_it } in kills.into_iter().flatten() {
                let moment = if before_it { CrashPoint::Before } else { CrashPoint::After };
                let mortal: Arc<dyn Store> = CrashingStore::new(store.clone(), after, moment);
                if let End::Ended(..) = live(&store, &mortal, &node, &world, &clock).await {
                    break;
                }
            }
            let End::Ended(session, error) = live(&store, &store, &node, &world, &clock).await else {
                panic!("killed")
            };
            if let Some(error) = &error {
                assert!(error.is_recorded(), "{error}");
                cancelled.fetch_add(u64::from(error.is_cancelled()), Ordering::Relaxed);
            }
            drop((session, error));
            nothing_is_open(&store).await;
            let (sent, mut most) = (counted(&world.sent.lock().unwrap()), BTreeMap::new());
            bounds(&node, "w", 1, &mut most);
            for (text, times) in &sent {
                assert!(most.get(text).is_some_and(|most| times <= most), "{text} was sent {times} times: {most:?}");
            }
        });
        Ok(())
    });
    done.unwrap_or_else(|failure| panic!("{failure}"));
    eprintln!("{} runs were cancelled", cancelled.into_inner());
}
