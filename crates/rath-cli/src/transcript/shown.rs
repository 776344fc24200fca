//! What a model was shown: prompt, tools, and the messages with their origins.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use rath::body::{Block, ModelRequested, StepEntered};
use rath::store::{Lookup, Scan};
use rath::{Content, Kind, Message, Point, Record, RecordId, Said, Store, View};
use serde::Serialize;

use super::{Config, Remade};

/// What a model was shown.
pub(crate) struct Shown {
    /// Its `model_requested`.
    pub(crate) request: Record,
    pub(crate) body: ModelRequested,
    /// The step's name.
    pub(crate) step: String,
    pub(crate) config: Option<Config>,
    pub(crate) messages: Vec<Part>,
    pub(crate) remade: Remade,
}

/// One message of it.
#[derive(Serialize)]
pub(crate) struct Part {
    #[serde(flatten)]
    pub(crate) message: Message,
    pub(crate) bytes: u64,
    /// The step in which it was said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<String>,
}

impl Shown {
    /// What the model was shown at the last request of the agent's step that `record` lies in.
    pub(crate) async fn at(store: &Arc<dyn Store>, record: &Record) -> Result<Option<Self>> {
        let Some(step) = record.header()?.step else { return Ok(None) };
        let scan = Scan::session(record.session(), 0, record.seq()).kinds(&[Kind::ModelRequested]).backwards().limit(1);
        let found = store.scan(scan).await?.records.into_iter().next();
        let Some(request) = found else { return Ok(None) };
        if request.header()?.step != Some(step) {
            return Ok(None);
        }
        Ok(Some(Self::of(store, request).await?))
    }

    /// What the model was shown at this request.
    pub(crate) async fn of(store: &Arc<dyn Store>, request: Record) -> Result<Self> {
        let body: ModelRequested = request.body()?;
        let before = request.seq().checked_sub(1).context("a request stands before everything")?;
        let view = View::of(store, request.session(), Some(before)).await?;
        let mut names = Names { store: store.clone(), known: HashMap::new() };
        let entered = match request.header()?.step {
            Some(step) => names.step(step).await?,
            None => None,
        };
        let named = entered.as_ref().and_then(|entered| entered.config.clone());
        let config = Config::read(store, named.as_ref()).await?;
        let shown = view.shown_by(body.rule).await?;
        let mut messages = Vec::with_capacity(shown.len());
        for message in shown {
            let step = names.of(message.origin).await?;
            messages.push(Part { bytes: bytes_of(&message), message, step });
        }
        let remade = Remade::of(&view, &body, named.as_ref(), config.as_ref()).await?;
        let step = entered.map(|entered| entered.name).unwrap_or_default();
        Ok(Self { request, body, step, config, messages, remade })
    }
}

/// The names of steps, each looked up once.
struct Names {
    store: Arc<dyn Store>,
    known: HashMap<RecordId, Option<StepEntered>>,
}

impl Names {
    async fn step(&mut self, id: RecordId) -> Result<Option<StepEntered>> {
        if let Some(known) = self.known.get(&id) {
            return Ok(known.clone());
        }
        let found = self.store.get(Lookup::Id(id)).await?;
        let step = found.first().and_then(|record| record.body::<StepEntered>().ok());
        self.known.insert(id, step.clone());
        Ok(step)
    }

    /// The step in which the record at `point` was made.
    async fn of(&mut self, point: Point) -> Result<Option<String>> {
        let found = self.store.get(Lookup::At(point)).await?;
        let Some(record) = found.first() else { return Ok(None) };
        match record.header()?.step {
            Some(step) => Ok(self.step(step).await?.map(|step| step.name)),
            None => Ok(None),
        }
    }
}

/// How many bytes of words a message has.
fn bytes_of(message: &Message) -> u64 {
    let of = |content: &Content| match content {
        Content::Text(text) => text.len() as u64,
        Content::Blob(blob) => blob.bytes,
    };
    match &message.said {
        Said::System(said) => of(&said.text),
        Said::User(said) => of(&said.text) + said.attached.iter().map(|attached| attached.content.bytes).sum::<u64>(),
        Said::Assistant(turn) => {
            let block = |block: &Block| match block {
                Block::Text { text } | Block::Reasoning { text } => of(text),
                Block::ToolUse { arguments, .. } => of(arguments),
                Block::Image { image } => image.bytes,
            };
            turn.blocks.iter().map(block).sum()
        }
        Said::Tool(result) => result.shown.as_ref().map_or(0, of),
        Said::Summary { text } => of(text),
        Said::Marker { .. } | Said::Erased => 0,
    }
}
