//! What a model was shown: prompt, tools, and messages with their origins.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use rath::body::{Block, StepEntered};
use rath::model::{ContextViews, Message, MessageBody};
use rath::requests::{self, RebuiltRequest, RecordedRequest};
use rath::store::Lookup;
use rath::{Content, Point, RecordId, Store, View};
use serde::Serialize;

/// What a model was shown with one request.
pub(crate) struct ShownContext {
    /// The request, as it is recorded.
    pub(crate) request: RecordedRequest,
    pub(crate) messages: Vec<ShownMessage>,
    pub(crate) rebuilt: RebuiltRequest,
}

/// One message of a request.
#[derive(Serialize)]
pub(crate) struct ShownMessage {
    #[serde(flatten)]
    pub(crate) message: Message,
    pub(crate) bytes: u64,
    /// The name of the step that the message belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<String>,
}

impl ShownContext {
    /// What the model was shown with the last request of the agent step that `view` is in.
    pub(crate) async fn at(store: &Arc<dyn Store>, view: &View) -> Result<Option<Self>> {
        let Some(step) = view.record().header()?.step else { return Ok(None) };
        let Some(request) = requests::last(view).await? else { return Ok(None) };
        let record = request.record();
        if record.session() != view.record().session() || record.header()?.step != Some(step) {
            return Ok(None);
        }
        Ok(Some(Self::of(store, &request).await?))
    }

    /// What the model was shown with this request.
    pub(crate) async fn of(store: &Arc<dyn Store>, request: &View) -> Result<Self> {
        let views = ContextViews::default();
        let request = RecordedRequest::read(request).await?;
        let mut names = StepNames { store: store.clone(), known: HashMap::new() };
        let mut messages = Vec::new();
        for message in request.messages(&views).await?.unwrap_or_default() {
            let step = names.of(message.origin).await?;
            messages.push(ShownMessage { bytes: bytes_of(&message), message, step });
        }
        let rebuilt = request.rebuild(&views).await?;
        Ok(Self { request, messages, rebuilt })
    }

    /// The name of the step that made the request.
    pub(crate) fn step(&self) -> &str {
        self.request.step.as_ref().map_or("", |step| &step.name)
    }
}

/// Names of steps, each read once.
struct StepNames {
    store: Arc<dyn Store>,
    known: HashMap<RecordId, Option<StepEntered>>,
}

impl StepNames {
    async fn step(&mut self, id: RecordId) -> Result<Option<StepEntered>> {
        if let Some(known) = self.known.get(&id) {
            return Ok(known.clone());
        }
        let found = self.store.get(Lookup::Id(id)).await?;
        let step = found.first().and_then(|record| record.body::<StepEntered>().ok());
        self.known.insert(id, step.clone());
        Ok(step)
    }

    /// The name of the step in which the record at `point` was made.
    async fn of(&mut self, point: Point) -> Result<Option<String>> {
        let found = self.store.get(Lookup::At(point)).await?;
        let Some(record) = found.first() else { return Ok(None) };
        match record.header()?.step {
            Some(step) => Ok(self.step(step).await?.map(|step| step.name)),
            None => Ok(None),
        }
    }
}

/// The size of a message's content in bytes.
fn bytes_of(message: &Message) -> u64 {
    let of = |content: &Content| match content {
        Content::Text(text) => text.len() as u64,
        Content::Blob(blob) => blob.bytes,
    };
    match &message.body {
        MessageBody::System(said) => of(&said.text),
        MessageBody::User(said) => {
            of(&said.text) + said.attached.iter().map(|attached| attached.content.bytes).sum::<u64>()
        }
        MessageBody::Assistant(turn) => {
            let block = |block: &Block| match block {
                Block::Text { text } | Block::Reasoning { text } => of(text),
                Block::ToolUse { arguments, .. } => of(arguments),
                Block::Image { image } => image.bytes,
                Block::Unknown(_) => 0,
            };
            turn.blocks.iter().map(block).sum()
        }
        MessageBody::Tool(result) => result.shown.as_ref().map_or(0, of),
        MessageBody::Summary { text } => of(text),
        MessageBody::Marker { .. } | MessageBody::Erased => 0,
    }
}
