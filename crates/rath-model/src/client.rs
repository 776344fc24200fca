//! What the three clients have in common: one request, its answer read as it comes.

use rath_core::{Blob, Delta, Encoded, Shown};

use crate::failure::{Cause, Failure};
use crate::hiding::Hiding;
use crate::http::{Broken, Came, Http};
use crate::reply::Reply;
use crate::stream::Wants;
use crate::talk::Talk;
use crate::turn::{Part, Turn};

/// Reads a vendor's answers.
pub(crate) trait Decode: Default + Send {
    fn feed(&mut self, bytes: &[u8], heard: &mut dyn FnMut(Delta));
    fn wants(&self) -> Wants;
    fn finish(self) -> Result<Turn, Failure>;
    fn whole(reply: &Reply<'_>) -> Result<Turn, Failure>;
}

/// Makes the request of what is shown.
pub(crate) async fn encode(
    shown: &Shown<'_>,
    model: &str,
    encoder: impl FnOnce(&Talk<'_>) -> serde_json::Result<Vec<u8>>,
) -> Result<Encoded, rath_core::Failure> {
    let unread = |error| rath_core::Failure::for_good(format!("what is shown cannot be read: {error}"));
    let messages = shown.whole_messages().await.map_err(unread)?;
    let files = shown.attached(&messages).await.map_err(unread)?;
    let talk = Talk::of(model, shown, &messages, &files);
    let unwritten = |error| rath_core::Failure::for_good(format!("the request cannot be written: {error}"));
    Ok(Encoded::new(encoder(&talk).map_err(unwritten)?))
}

/// Sends the request and reads the answer: the turn, and the response as it came.
pub(crate) async fn ask<D: Decode>(
    http: &Http,
    path: &str,
    request: &Encoded,
    heard: &(dyn Fn(Delta) + Send + Sync),
) -> Result<(Turn, Blob), rath_core::Failure> {
    let mut decoder = D::default();
    let body = request.body();
    let secrets = http.secrets();
    let mut hiding = Hiding::new(&secrets, heard);
    let mut each = |came: &Came, piece: &[u8]| {
        if !came.is_stream(piece) {
            return Wants::More;
        }
        decoder.feed(piece, &mut |delta| hiding.tell(delta));
        decoder.wants()
    };
    let mut came = http.post(path, body, &mut each).await;
    hiding.flush();
    if secrets.iter().any(|secret| secret.is_in(&came.body)) {
        // The provider sent the key back. What is kept is read again without it.
        came.body = secrets.iter().fold(came.body, |body, secret| secret.cut_out_of(&body));
        decoder = D::default();
        decoder.feed(&came.body, &mut |_| {});
    }
    let answer = came.read(decoder);
    // In pieces, or written otherwise, it was not found in the bytes.
    let holds_key = |text: &str| secrets.iter().any(|secret| secret.is_in(text.as_bytes()));
    let is_whole = match &answer {
        Ok(turn) => !turn.blocks.iter().any(|block| words_of(&block.part).iter().any(|words| holds_key(words))),
        Err(failure) => !failure.partial.as_deref().is_some_and(holds_key),
    };
    if !is_whole {
        let why = "the provider sent the key back in its answer, which is not kept; change the key, and look at who answers there";
        return Err(rath_core::Failure { status: came.status, ..rath_core::Failure::for_good(why) });
    }
    if let Ok(turn) = answer.as_ref()
        && !came.is_stream(&came.body)
    {
        turn.blocks.iter().for_each(|block| tell(&block.part, heard));
    }
    match answer {
        Ok(turn) => Ok((turn, came.into_blob())),
        Err(failure) => {
            let hide = |text| secrets.iter().fold(text, |text, secret| secret.hide_in(text));
            let raw = (!came.body.is_empty()).then(|| Box::new(came.into_blob()));
            Err(rath_core::Failure { why: hide(failure.why), partial: failure.partial.map(hide), raw, ..failure })
        }
    }
}

/// Asks for something that is no turn. Returns the body.
pub(crate) async fn ask_whole(http: &Http, path: &str, body: &[u8]) -> Result<Vec<u8>, rath_core::Failure> {
    let came = http.post(path, body, &mut |_, _| Wants::More).await;
    let failure = match (&came.broken, came.status) {
        (None, Some(200..300)) => return Ok(came.body),
        (Some(broken), _) => broken.failure(),
        (None, _) => Failure::refused(&came.reply()).into(),
    };
    let why = http.secrets().iter().fold(failure.why, |why, secret| secret.hide_in(why));
    Err(rath_core::Failure { why, ..failure })
}

impl Came {
    fn reply(&self) -> Reply<'_> {
        Reply { status: self.status.unwrap_or_default(), headers: &self.headers, body: &self.body }
    }

    /// Whether the body is a stream of events; where no header says so, by how it begins.
    fn is_stream(&self, piece: &[u8]) -> bool {
        let begin = if self.body.is_empty() { piece } else { &self.body };
        let kind = self.reply().header("content-type").unwrap_or_default().to_ascii_lowercase();
        let is_good = self.status.is_some_and(|status| (200..300).contains(&status));
        let looks_whole = matches!(begin.trim_ascii_start().first(), Some(b'{' | b'[' | b'<'));
        is_good && (kind.contains("event-stream") || !(kind.contains("json") || looks_whole))
    }

    /// The body as it is kept.
    fn into_blob(self) -> Blob {
        let is_json = self.reply().header("content-type").is_some_and(|kind| kind.contains("json"));
        let media_type = match () {
            () if self.is_stream(&self.body) => "text/event-stream",
            () if is_json || self.body.trim_ascii_start().starts_with(b"{") => "application/json",
            () => "application/octet-stream",
        };
        Blob::new(self.body, media_type)
    }

    /// The turn, or why there is none.
    fn read<D: Decode>(&self, decoder: D) -> Result<Turn, rath_core::Failure> {
        let broken = self.broken.as_ref().map(Broken::failure);
        let reply = self.reply();
        match (reply.status, broken) {
            (0, broken) => Err(broken.unwrap_or_else(|| rath_core::Failure::for_now("nothing came"))),
            (300..400, _) => {
                let to = reply.header("location").unwrap_or("another address");
                let why = format!("the provider points to {to}; set that as base URL, or check the one in use");
                Err(rath_core::Failure { status: self.status, ..rath_core::Failure::for_good(why) })
            }
            (200..300, _) if self.body.trim_ascii_start().starts_with(b"<") => {
                let why = "a web page came instead of an answer; check the base URL";
                Err(rath_core::Failure { status: self.status, ..rath_core::Failure::for_good(why) })
            }
            (200..300, Some(broken)) if !self.is_stream(&self.body) => Err(broken),
            (200..300, broken) if self.is_stream(&self.body) => decoder.finish().map_err(|failure| {
                let was_cut = matches!(failure.cause, Cause::Cut | Cause::Unreadable);
                let failure = rath_core::Failure::from(failure);
                match broken.filter(|_| was_cut) {
                    Some(broken) => rath_core::Failure { partial: failure.partial, ..broken },
                    None => failure,
                }
            }),
            _ => D::whole(&reply).map_err(Into::into),
        }
    }
}

/// All that is written in a part.
fn words_of(part: &Part) -> Vec<&str> {
    match part {
        Part::Text { text } | Part::Refusal { text } | Part::Reasoning { text, .. } => vec![text],
        Part::Call { id, name, arguments } => vec![id, name, arguments],
        Part::Sealed { data } => vec![data],
        Part::Server { kind, input } => vec![kind, input],
        Part::Other { kind } => vec![kind],
    }
}

/// Tells of a part that came at once.
fn tell(part: &Part, heard: &(dyn Fn(Delta) + Send + Sync)) {
    match part {
        Part::Text { text } | Part::Refusal { text } => heard(Delta::Text(text.clone())),
        Part::Reasoning { text, .. } if !text.is_empty() => heard(Delta::Reasoning(text.clone())),
        Part::Call { id, name, arguments } => {
            heard(Delta::Call { id: id.clone(), name: name.clone() });
            heard(Delta::Arguments(arguments.clone()));
        }
        _ => {}
    }
}
