//! A request to a model, made again of the records, and whether it is the same.

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use rath::body::ModelRequested;
use rath::store::Scan;
use rath::{BlobRef, Digest, Kind, Message, Point, Record, Said, Store, Talk, View};

use super::Config;

/// A request as what is stored makes it.
pub(crate) struct Remade {
    /// None where it cannot be made.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(crate) verdict: Verdict,
}

/// Whether the request is made again.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// The same, byte for byte.
    Rebuilt,
    /// Another request, with this digest.
    Differs(Digest),
    /// No encoder of this name is in this version.
    EncoderGone(String),
    /// Part of what was shown was erased.
    Erased(Point),
    /// Something else is not there.
    Missing(String),
}

impl Verdict {
    pub(crate) fn is_rebuilt(&self) -> bool {
        *self == Self::Rebuilt
    }

    /// For programs.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Rebuilt => "rebuilt",
            Self::Differs(_) => "differs",
            Self::EncoderGone(_) => "encoder_gone",
            Self::Erased(_) => "erased",
            Self::Missing(_) => "missing",
        }
    }
}

/// Why it is not the same.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rebuilt => f.write_str("the same request, byte for byte"),
            Self::Differs(made) => write!(f, "what is stored makes {made}"),
            Self::EncoderGone(encoder) => write!(f, "this version has no encoder {encoder}"),
            Self::Erased(point) => write!(f, "{point} was erased"),
            Self::Missing(what) => f.write_str(what),
        }
    }
}

impl Remade {
    /// Makes the request `asked` again; `view` is the session just before it.
    pub(crate) async fn of(
        view: &View,
        asked: &ModelRequested,
        named: Option<&BlobRef>,
        config: Option<&Config>,
    ) -> Result<Self> {
        let no = |verdict| Ok(Self { bytes: None, verdict });
        let missing = |what: &str| no(Verdict::Missing(what.to_owned()));
        let shown = view.shown_by(asked.rule).await?;
        if let Some(erased) = shown.iter().find(|message| message.said == Said::Erased) {
            return no(Verdict::Erased(erased.origin));
        }
        let Some(named) = named else { return missing("the step names no configuration") };
        let Some(config) = config else { return missing("the configuration of the agent is not in the store") };
        let made = if asked.encoder == rath::scripted::ENCODER {
            let (head, attempt) = (view.record().id(), asked.attempt.unwrap_or(1));
            Some(rath::scripted::manifest(&asked.model, named.digest, asked.rule, head, attempt))
        } else {
            let (messages, files) = match whole(view, asked).await {
                Ok(whole) => whole,
                Err(error) if error.code() == "not-found" => {
                    return missing(&format!("part of what was shown is not in the store: {error}"));
                }
                Err(error) => return Err(error.into()),
            };
            let talk = Talk {
                model: &asked.model,
                prompt: &config.prompt,
                tools: &config.tools,
                parameters: asked.parameters.as_ref().unwrap_or(&config.parameters),
                messages: &messages,
                files: &files,
            };
            rath::encode_with(&asked.encoder, &talk)
        };
        let Some(bytes) = made.transpose()? else { return no(Verdict::EncoderGone(asked.encoder.clone())) };
        let verdict = match Digest::of(&bytes) {
            digest if digest == asked.request => Verdict::Rebuilt,
            digest => Verdict::Differs(digest),
        };
        Ok(Self { bytes: Some(bytes), verdict })
    }
}

type Files = std::collections::BTreeMap<Digest, Arc<[u8]>>;

async fn whole(view: &View, asked: &ModelRequested) -> rath::Result<(Vec<Message>, Files)> {
    let messages = view.whole_shown_by(asked.rule).await?;
    let files = view.attached_to(&messages).await?;
    Ok((messages, files))
}

/// The last request at or before `record`, also on the lines that its session was forked from.
pub(crate) async fn nearest(store: &Arc<dyn Store>, record: &Record) -> Result<Option<Record>> {
    let mut at = record.point();
    loop {
        let scan = Scan::session(at.session, 0, at.seq).kinds(&[Kind::ModelRequested]).backwards().limit(1);
        if let Some(found) = store.scan(scan).await?.records.into_iter().next() {
            return Ok(Some(found));
        }
        let first = View::of(store, at.session, Some(0)).await?;
        match first.record().origin()? {
            Some(origin) => at = origin.point(),
            None => return Ok(None),
        }
    }
}
