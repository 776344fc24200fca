//! The part of an agent's loop that calls the model.

use std::sync::{Arc, Mutex};

use pollster::block_on;
use rath_core::body::{Assistant, Block, ModelFailed, ModelRequested, ModelResponded, Role, StepEntered};
use rath_core::{
    Actor, Delta, Digest, Encoded, Failure, InMemory, Model, ModelAnswer, ModelInput, Parameters, RequestSpec, Session,
    StandardView, Store,
};

/// An agent's step in its own session.
pub(crate) struct Step {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: Session,
    agent: String,
}

impl Step {
    pub(crate) fn new() -> Self {
        Self::of("agent")
    }

    pub(crate) fn of(agent: &str) -> Self {
        let store = InMemory::new();
        let mut session = Session::create(&store, Actor::program("test"));
        session.user("Begin.").unwrap();
        enter(&mut session, agent);
        Self { store, session, agent: agent.into() }
    }

    /// Calls `look` with the model's current input.
    pub(crate) fn shown<T>(&self, look: impl FnOnce(&ModelInput<'_>) -> T) -> T {
        let parameters = Parameters::default();
        look(&ModelInput::of(&self.session, self.asking(&parameters)))
    }

    fn asking<'a>(&'a self, parameters: &'a Parameters) -> RequestSpec<'a> {
        let config = Digest::of(b"config");
        RequestSpec {
            agent: &self.agent,
            prompt: "Be brief.",
            tools: &[],
            parameters,
            view: &StandardView::Whole,
            injected: &[],
            config,
        }
    }

    pub(crate) fn encode(&self, model: &impl Model) -> Encoded {
        self.shown(|shown| block_on(model.encode(shown))).unwrap()
    }

    /// Sends a request and ignores the deltas.
    pub(crate) async fn send(&self, model: &impl Model, request: &Encoded) -> Result<ModelAnswer, Failure> {
        let parameters = Parameters::default();
        model.send(&ModelInput::of(&self.session, self.asking(&parameters)), request, &|_| {}).await
    }

    /// Makes a request and records nothing. Returns the answer and the deltas.
    pub(crate) fn ask(&self, model: &impl Model) -> (Result<ModelAnswer, Failure>, Vec<Delta>) {
        let deltas = Mutex::new(Vec::new());
        let request = self.encode(model);
        let answer =
            self.shown(|shown| block_on(model.send(shown, &request, &|delta| deltas.lock().unwrap().push(delta))));
        (answer, deltas.into_inner().unwrap())
    }

    /// Makes a turn and records it with the results of its calls, as the runtime does. Returns the turn as text, or why
    /// it failed.
    pub(crate) fn turn(&mut self, model: &impl Model) -> String {
        let request = self.encode(model).digest;
        let requested = ModelRequested::new(model.name(), "whole@1", model.encoder(), request);
        self.session.append(requested).unwrap();
        let answer = match self.ask(model).0 {
            Ok(answer) => answer,
            Err(Failure { why, retry, status, .. }) => {
                let failed = ModelFailed { status, retried: retry, ..ModelFailed::new(&*why) };
                self.session.append(failed).unwrap();
                return format!("failed: {why}");
            }
        };
        let responded = ModelResponded { usage: answer.usage, stop: answer.stop, ..ModelResponded::default() };
        self.session.append(responded).unwrap();
        let said = said(&answer.blocks);
        let turn = Assistant { blocks: answer.blocks, sent: answer.sent };
        let calls: Vec<String> = turn.calls().map(|(id, _)| id.to_owned()).collect();
        self.session.append(turn).unwrap();
        for call in calls {
            self.session.tool_result(&call, format!("result of {call}")).unwrap();
        }
        said
    }

    /// The same step, opened again as by another process.
    pub(crate) fn reopened(self) -> Self {
        let Self { store, mut session, agent } = self;
        block_on(session.publish()).unwrap();
        let id = session.id();
        drop(session);
        let session = block_on(store.open(id, Actor::program("test"))).unwrap();
        Self { store, session, agent }
    }
}

pub(crate) fn enter(session: &mut Session, agent: &str) {
    session.append(StepEntered { role: Some(Role::Agent), ..StepEntered::new(agent) }).unwrap();
}

fn said(blocks: &[Block]) -> String {
    let part = |block: &Block| match block {
        Block::Text { text } => text.to_string(),
        Block::Reasoning { text } => format!("({text})"),
        Block::ToolUse { id, name, arguments } => format!("{name}({arguments}) [{id}]"),
        Block::Image { .. } => "[picture]".into(),
        Block::Unknown(block) => format!("[{block}]"),
    };
    blocks.iter().map(part).collect::<Vec<_>>().join(" ")
}
