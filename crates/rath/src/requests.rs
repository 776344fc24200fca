//! Recorded requests to models, and rebuilding their bytes from the records.
//!
//! A `model_requested` record stores the digest of a request and names what determines its bytes: the context view, the
//! encoder, the agent's configuration, what is injected. [`rebuild`] encodes the request again from that and compares.
//! It needs a [`View`], not a session: nothing is written and no lease is taken.
//!
//! ```
//! use rath::prelude::*;
//! use rath::requests::{self, RequestVerdict};
//! use rath::model::ContextViews;
//! # pollster::block_on(async {
//! let agent = Agent::new("greeter").prompt("Greet the user.").model(Scripted::new("scripted").say("Good morning."));
//! let mut session = InMemory::new().create(Actor::person("ada"));
//! session.user("Hello.")?;
//! let session = agent.forward(session).await?;
//! let request = requests::last(&session.view().await?).await?.expect("the agent asked its model");
//! let rebuilt = requests::rebuild(&request, &ContextViews::default()).await?;
//! assert_eq!(rebuilt.verdict, RequestVerdict::Rebuilt);
//! # Ok::<(), rath::Error>(())
//! # }).unwrap();
//! ```

use std::fmt;

use rath_core::body::{ModelRequested, StepEntered};
use rath_core::{
    ContextView, ContextViews, Digest, Error, ErrorKind, Kind, Message, MessageBody, ModelInput, Parameters, Point,
    Record, RequestSpec, Result, View, store,
};
use rath_model::{RequestInput, encode_with, scripted};
use serde::Serialize;

use crate::agent::AgentConfig;

/// A request to a model, as the records describe it.
#[derive(Debug)]
pub struct RecordedRequest {
    /// Its `model_requested` record.
    pub record: Record,
    /// The body of the `model_requested` record.
    pub body: ModelRequested,
    /// The step of the agent that sent the request.
    pub step: Option<StepEntered>,
    /// The agent's configuration; `None` if it is not stored.
    pub config: Option<AgentConfig>,
    /// The session before the request.
    before: View,
}

/// A request rebuilt from the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RebuiltRequest {
    /// Its bytes; `None` if they cannot be rebuilt.
    pub bytes: Option<Vec<u8>>,
    /// Whether they equal the bytes of the request that was sent.
    pub verdict: RequestVerdict,
}

/// The result of rebuilding a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RequestVerdict {
    /// The bytes equal those that were sent.
    Rebuilt,
    /// The bytes differ from those that were sent.
    Differs {
        /// The digest of the rebuilt bytes.
        made: Digest,
    },
    /// This version of Rath has no such encoder.
    EncoderGone {
        /// The encoder's name and version.
        encoder: String,
    },
    /// No context view of this name is registered.
    ViewNotRegistered {
        /// The view's name and version.
        view: String,
    },
    /// A record that the request contains was erased.
    Erased {
        /// The erased record.
        at: Point,
    },
    /// Other data that is needed is not in the store.
    Missing {
        /// A description of the missing data.
        what: String,
    },
}

/// The last request at or before this view, in its session or those that it was forked from, as a view of the
/// `model_requested` record.
pub async fn last(view: &View) -> Result<Option<View>> {
    view.last_of(&Kind::ModelRequested).await
}

/// Rebuilds the request whose `model_requested` record `request` is a view of. Context views are looked up in `views`.
pub async fn rebuild(request: &View, views: &ContextViews) -> Result<RebuiltRequest> {
    match request.record().body_bytes() {
        Some(_) => RecordedRequest::read(request).await?.rebuild(views).await,
        None => Ok(RequestVerdict::Erased { at: request.record().point() }.into()),
    }
}

impl RecordedRequest {
    /// Reads the request whose `model_requested` record `request` is a view of.
    pub async fn read(request: &View) -> Result<Self> {
        let record = request.record().clone();
        let point = record.point();
        let bad = |why| ErrorKind::Record { point, why };
        let body: ModelRequested = record.body().map_err(bad)?;
        let before = request.earlier(point.seq.saturating_sub(1)).await?;
        let step = match record.header().map_err(|why| bad(why.into()))?.step {
            Some(step) => request.record_of(step).await?.body::<StepEntered>().ok(),
            None => None,
        };
        let config = match body.config.as_ref().or(step.as_ref().and_then(|step| step.config.as_ref())) {
            Some(config) => request.blob(config.digest).await?.and_then(|bytes| AgentConfig::read(&bytes)),
            None => None,
        };
        Ok(Self { record, body, step, config, before })
    }

    /// The parameters of the request, or else those of the agent.
    pub fn parameters(&self) -> Option<&Parameters> {
        self.body.parameters.as_ref().or(self.config.as_ref().map(|config| &config.parameters))
    }

    /// The messages of the request, with long texts as blobs. `None` if the context view is not registered.
    pub async fn messages(&self, views: &ContextViews) -> Result<Option<Vec<Message>>> {
        match views.get(&self.body.view) {
            Some(view) => Ok(Some(self.shown(&**view).messages().await?)),
            None => Ok(None),
        }
    }

    /// The input of the model through this context view.
    fn shown<'a>(&'a self, view: &'a dyn ContextView) -> ModelInput<'a> {
        const NONE: &Parameters = &Parameters::NONE;
        let asking = RequestSpec {
            agent: self.step.as_ref().map_or("", |step| &step.name),
            prompt: self.config.as_ref().map_or("", |config| &config.prompt),
            tools: self.config.as_ref().map_or(&[], |config| &config.tools),
            parameters: self.parameters().unwrap_or(NONE),
            view,
            injected: &self.body.injected,
            config: self.config_digest().unwrap_or(Digest::of(b"")),
        };
        let mut shown = ModelInput::of(&self.before, asking);
        shown.attempt = self.body.attempt.unwrap_or(1);
        shown
    }

    fn config_digest(&self) -> Option<Digest> {
        let of_step = || self.step.as_ref()?.config.as_ref();
        Some(self.body.config.as_ref().or_else(of_step)?.digest)
    }

    /// Rebuilds the request. Context views are looked up in `views`.
    pub async fn rebuild(&self, views: &ContextViews) -> Result<RebuiltRequest> {
        let missing = |what: &str| Ok(RequestVerdict::Missing { what: what.into() }.into());
        let Some(view) = views.get(&self.body.view) else {
            return Ok(RequestVerdict::ViewNotRegistered { view: self.body.view.clone() }.into());
        };
        let shown = self.shown(&**view);
        let messages = match shown.whole_messages().await {
            Ok(messages) => messages,
            Err(error) => return self.unreadable(error),
        };
        if let Some(erased) = messages.iter().find(|message| message.body == MessageBody::Erased) {
            return Ok(RequestVerdict::Erased { at: erased.origin }.into());
        }
        if self.config_digest().is_none() {
            return missing("the step names no configuration");
        }
        if self.config.is_none() {
            return missing("the configuration of the agent is not in the store");
        }
        let encoder = &self.body.encoder;
        let made = if encoder == scripted::ENCODER {
            Some(scripted::manifest(&self.body.model, &shown))
        } else {
            let files = match shown.attached(&messages).await {
                Ok(files) => files,
                Err(error) => return self.unreadable(error),
            };
            encode_with(encoder, &RequestInput::of(&self.body.model, &shown, &messages, &files))
        };
        let Some(made) = made else { return Ok(RequestVerdict::EncoderGone { encoder: encoder.clone() }.into()) };
        let bytes = made.map_err(|error| ErrorKind::Workflow(Box::new(error)))?;
        let verdict = match Digest::of(&bytes) {
            same if same == self.body.request => RequestVerdict::Rebuilt,
            made => RequestVerdict::Differs { made },
        };
        Ok(RebuiltRequest { bytes: Some(bytes), verdict })
    }

    /// The verdict for messages that cannot be read. Returns other errors.
    fn unreadable(&self, error: Error) -> Result<RebuiltRequest> {
        match error.kind() {
            ErrorKind::Store(store::Error::NotFound(what)) => {
                let what = format!("part of what was shown is not in the store: {what}");
                Ok(RequestVerdict::Missing { what }.into())
            }
            ErrorKind::Store(store::Error::Erased { point }) => Ok(RequestVerdict::Erased { at: *point }.into()),
            _ => Err(error),
        }
    }
}

impl From<RequestVerdict> for RebuiltRequest {
    fn from(verdict: RequestVerdict) -> Self {
        Self { bytes: None, verdict }
    }
}

impl RequestVerdict {
    /// Whether the request was rebuilt.
    pub fn is_rebuilt(&self) -> bool {
        *self == Self::Rebuilt
    }

    /// The verdict as one word, as in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Rebuilt => "rebuilt",
            Self::Differs { .. } => "differs",
            Self::EncoderGone { .. } => "encoder_gone",
            Self::ViewNotRegistered { .. } => "view_not_registered",
            Self::Erased { .. } => "erased",
            Self::Missing { .. } => "missing",
        }
    }
}

impl fmt::Display for RequestVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rebuilt => f.write_str("the same request, byte for byte"),
            Self::Differs { made } => write!(f, "what is stored makes {made}"),
            Self::EncoderGone { encoder } => write!(f, "this version has no encoder {encoder}"),
            Self::ViewNotRegistered { view } => write!(f, "no context view {view} is registered"),
            Self::Erased { at } => write!(f, "{at} was erased"),
            Self::Missing { what } => f.write_str(what),
        }
    }
}
