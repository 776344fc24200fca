//! Recording tool calls: builds every `tool_started` and `tool_finished` that this crate appends.

use rath_core::body::{
    CallOutcome, Effect, Exit, Output, OutputPart, SHOWN_STREAM, SandboxDenial, StreamChunk, ToolFinished, ToolStarted,
};
use rath_core::files::{Change, Changes, Version};
use rath_core::{Blob, Blobs, CapturedStream, ContentPart, Evidence, INLINE_LIMIT, Result, Session, Time};
use rath_sandbox::{CommandEvent, ExitStatus, Finished, Stream};

/// The name of the stream with a tool's result.
const RESULT: &str = "result";

/// The largest number of stream chunks whose order is recorded. The order of later output is not recorded.
const MOST_STRETCHES: usize = 1_000;

/// A call whose start is recorded.
pub(crate) struct CallRecord {
    id: String,
    isolated: Option<bool>,
    began: Time,
}

impl CallRecord {
    /// Appends `tool_started`.
    pub(crate) fn start(session: &mut Session, started: ToolStarted) -> Result<Self> {
        let record = Self { id: started.call.clone(), isolated: started.isolated, began: Time::now() };
        session.append(started)?;
        Ok(record)
    }

    /// The `tool_finished` of the call with only its outcome.
    pub(crate) fn ended(&self, outcome: CallOutcome) -> ToolFinished {
        ToolFinished { isolated: self.isolated, ..ToolFinished::new(&self.id, outcome) }
    }

    /// The `tool_finished` of the call without its files. Long output is stored as blobs.
    pub(crate) async fn end(
        &self,
        store: &(impl Blobs + ?Sized),
        outcome: CallOutcome,
        content: &[ContentPart],
        mut evidence: Evidence,
    ) -> Result<ToolFinished> {
        let streams = std::mem::take(&mut evidence.streams);
        let output = outputs(store, content, streams).await?;
        let took = Time::now().micros_since(self.began);
        Ok(ToolFinished { output, duration_us: Some(took), ..self.with(outcome, evidence) })
    }

    /// As [`end`](Self::end), for a command whose output no model is shown: the streams are the whole output.
    pub(crate) async fn end_of_command(
        &self,
        store: &(impl Blobs + ?Sized),
        outcome: CallOutcome,
        mut evidence: Evidence,
    ) -> Result<ToolFinished> {
        let output = of_streams(store, std::mem::take(&mut evidence.streams)).await?;
        Ok(ToolFinished { output, ..self.with(outcome, evidence) })
    }

    fn with(&self, outcome: CallOutcome, evidence: Evidence) -> ToolFinished {
        let Evidence {
            outcome: _,
            exit,
            streams: _,
            order,
            effects,
            killed_orphans,
            refused,
            limit_exceeded,
            background,
            rest_ids,
            remarks,
        } = evidence;
        let ended = self.ended(outcome);
        ToolFinished {
            exit,
            order,
            effects,
            killed_orphans,
            refused,
            limit_exceeded,
            background,
            rest_ids,
            remarks,
            ..ended
        }
    }
}

/// The `tool_finished` of a call that was not observed to its end.
pub(crate) fn closed(call: &str, outcome: CallOutcome, words: Option<&str>, remark: String) -> ToolFinished {
    let mut finished = ToolFinished::new(call, outcome);
    let text = words.map(str::to_owned);
    finished.output.extend(text.map(|text| Output { text: Some(text), ..Output::new(RESULT) }));
    finished.remarks.push(remark);
    finished
}

/// Records changes that were made while background commands ran, as a separate call: it is unknown which command made
/// which change.
pub(crate) fn changes_in_background(
    session: &mut Session,
    commands: &[String],
    isolated: bool,
    version: &Version,
    changed: Vec<Change>,
) -> Result<()> {
    if changed.is_empty() {
        return Ok(());
    }
    let started = ToolStarted::new(format!("beside-{}", session.head().seq + 1), "shell", Effect::Workspace);
    let workspace = session.state().workspace.clone();
    let record = CallRecord::start(session, ToolStarted { isolated: Some(isolated), workspace, ..started })?;
    session.append(ToolFinished {
        workspace: Some(version.clone()),
        changed: Changes::of(changed),
        remarks: vec![format!("changed while {} ran in the background", commands.join(", "))],
        ..record.ended(CallOutcome::Done)
    })?;
    Ok(())
}

/// The output of a call: its streams, and the text that the model is shown if it differs from them.
async fn outputs(
    store: &(impl Blobs + ?Sized),
    content: &[ContentPart],
    streams: Vec<CapturedStream>,
) -> Result<Vec<Output>> {
    if streams.is_empty() {
        return shown(store, RESULT, content).await;
    }
    let is_shown = match (content, streams.as_slice()) {
        ([ContentPart::Text(text)], [one]) => one.bytes == text.as_bytes(),
        _ => false,
    };
    let mut outputs = of_streams(store, streams).await?;
    if !is_shown {
        outputs.extend(shown(store, SHOWN_STREAM, content).await?);
    }
    Ok(outputs)
}

async fn of_streams(store: &(impl Blobs + ?Sized), streams: Vec<CapturedStream>) -> Result<Vec<Output>> {
    let mut outputs = Vec::with_capacity(streams.len() + 1);
    for CapturedStream { stream, bytes, cut_from } in streams {
        if !bytes.is_empty() {
            outputs.push(Output { cut_from, ..of_bytes(store, &stream, bytes).await? });
        }
    }
    Ok(outputs)
}

/// The content that the model is shown, part by part. Several texts are joined if one is long, so that readers need at
/// most one blob.
async fn shown(store: &(impl Blobs + ?Sized), stream: &str, content: &[ContentPart]) -> Result<Vec<Output>> {
    let texts = content.iter().filter_map(|part| match part {
        ContentPart::Text(text) | ContentPart::Json(text) => Some(text.as_str()),
        ContentPart::Image(_) | ContentPart::File { .. } => None,
    });
    let texts: Vec<&str> = texts.collect();
    let is_joined = texts.len() > 1 && texts.iter().any(|text| text.len() > INLINE_LIMIT);
    let mut outputs = Vec::new();
    if is_joined {
        outputs.push(of_bytes(store, stream, texts.join("\n").into_bytes()).await?);
    }
    for part in content {
        let output = match part {
            ContentPart::Text(_) | ContentPart::Json(_) if is_joined => continue,
            ContentPart::Text(text) => of_bytes(store, stream, text.clone().into_bytes()).await?,
            ContentPart::Json(text) => {
                let output = of_bytes(store, stream, text.clone().into_bytes()).await?;
                Output { part: Some(OutputPart::Json), ..output }
            }
            ContentPart::Image(image) => {
                store.blob_put(vec![image.clone()]).await?;
                let blob = Some(image.reference.clone());
                Output { part: Some(OutputPart::Image), blob, ..Output::new(stream) }
            }
            ContentPart::File { name, content } => {
                store.blob_put(vec![content.clone()]).await?;
                let (name, blob) = (Some(name.clone()), Some(content.reference.clone()));
                Output { part: Some(OutputPart::File), name, blob, ..Output::new(stream) }
            }
        };
        outputs.push(output);
    }
    Ok(outputs)
}

/// Short text is stored inline, other bytes as a blob.
async fn of_bytes(store: &(impl Blobs + ?Sized), stream: &str, bytes: Vec<u8>) -> Result<Output> {
    let (bytes, media_type) = match String::from_utf8(bytes) {
        Ok(text) if text.len() <= INLINE_LIMIT => return Ok(Output { text: Some(text), ..Output::new(stream) }),
        Ok(text) => (text.into_bytes(), "text/plain; charset=utf-8"),
        Err(error) => (error.into_bytes(), "application/octet-stream"),
    };
    let blob = Blob::new(bytes, media_type);
    let reference = blob.reference.clone();
    store.blob_put(vec![blob]).await?;
    Ok(Output { blob: Some(reference), ..Output::new(stream) })
}

/// The evidence of a command that has ended.
pub(crate) fn evidence_of(finished: Finished, order: Vec<StreamChunk>) -> Evidence {
    let exit = match finished.ended {
        ExitStatus::Exited(code) => Exit::Code(code),
        ExitStatus::Signalled { signal, .. } => Exit::Signal(signal),
    };
    let streams = [("stdout", finished.stdout), ("stderr", finished.stderr)].into_iter();
    let streams: Vec<CapturedStream> = streams
        .filter(|(_, captured)| captured.total > 0)
        .map(|(stream, captured)| CapturedStream {
            stream: stream.into(),
            cut_from: captured.cut.then_some(captured.total),
            bytes: captured.bytes,
        })
        .collect();
    Evidence {
        exit: Some(exit),
        // A single stream needs no order.
        order: if streams.len() > 1 { order } else { Vec::new() },
        streams,
        killed_orphans: u64::from(finished.killed_orphans),
        refused: finished.refused.into_iter().map(|(what, times)| SandboxDenial { what, times }).collect(),
        limit_exceeded: finished.limit_exceeded,
        ..Evidence::default()
    }
}

/// Notes the order in which a command writes to its streams.
pub(crate) fn note_order(event: &CommandEvent, order: &mut Vec<StreamChunk>) {
    let CommandEvent::Output { stream, bytes } = event else { return };
    let (stream, bytes) = (if *stream == Stream::Stdout { "stdout" } else { "stderr" }, bytes.len() as u64);
    if let Some(last) = order.last_mut().filter(|last| last.stream == stream) {
        last.bytes += bytes;
    } else if order.len() < MOST_STRETCHES {
        order.push(StreamChunk { stream: stream.into(), bytes });
    }
}
