use std::sync::Arc;

use anyhow::{Result, bail};
use rath::inspect::transcript::{Differences, Transcript};
use rath::inspect::{self, RecordDetails, RunStatus, SessionSummary, placement_text};
use rath::requests::{self, Rebuilt, Verdict};
use rath::{Digest, Kind, Record, Store, View};
use rath_audit::bundle::LeftOut;
use rath_audit::care::{Erasure, Erasures};
use serde::Serialize;
use serde_json::{Value, json};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;
use crate::transcript::{self, Blocks, How, Shown, run_lines};

/// Show a session as a conversation with its steps and calls, or a record with everything it says
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Show {
    /// The session or record; the session that changed last if absent
    #[arg(default_value = "@")]
    what: String,
    /// What the model saw there, part by part
    #[arg(long, conflicts_with_all = ["patch", "no_diff", "all"])]
    context: bool,
    /// The request to the model there, made again of the records and compared; exit code 3 if it is not the same
    #[arg(long, conflicts_with_all = ["context", "patch", "no_diff", "all"])]
    request: bool,
    /// The bytes of the request as they were sent
    #[arg(long, requires = "request")]
    raw: bool,
    /// Show differences of files whole
    #[arg(long, short, conflicts_with = "no_diff")]
    patch: bool,
    /// Show no differences of files
    #[arg(long)]
    no_diff: bool,
    /// Show every record, a line each
    #[arg(long, conflicts_with_all = ["patch", "no_diff"])]
    all: bool,
}

impl Show {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.what).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        let is_session = !place.exact || self.all || self.patch || self.no_diff;
        if self.request {
            return request(settings, &store, &view, self.raw).await;
        }
        if self.context {
            match Shown::at(&store, &view).await? {
                Some(shown) => context(settings, &shown)?,
                None => self.session(settings, &store, &view).await?,
            }
        } else if is_session {
            self.session(settings, &store, &view).await?;
        } else {
            record(settings, &store, &view).await?;
        }
        Ok(Answer::Yes)
    }

    async fn session(&self, settings: &Settings, store: &Arc<dyn Store>, view: &View) -> Result<()> {
        let lineage = view.lineage().await?;
        let at = view.reference();
        if settings.json {
            return output::json(&SessionSummary::of(store, view).await?);
        }
        let run = RunStatus::of(store, view).await?;
        let mut page = Page::default();
        header(&mut page, view, &lineage, run.as_ref())?;
        let records = inspect::records(store, at.session, 0, at.seq, &[]).await?;
        gone(&mut page, store, &records).await?;
        page.line("");
        if self.all {
            for record in &records {
                page.line(transcript::record_line(record)?);
            }
        } else if self.context || !has_work(&records) {
            conversation(&mut page, view).await?;
        } else {
            let differences = match (self.no_diff, self.patch) {
                (true, _) => Differences::None,
                (false, true) => Differences::All,
                (false, false) => Differences::Few,
            };
            let how = How { whole: self.patch, live: false };
            let mut transcript = Transcript::new(store.clone(), differences);
            let mut blocks = Blocks::default();
            for record in &records {
                blocks.add(
                    transcript.read(record).await?.into_iter().map(|entry| transcript::told(entry, how)).collect(),
                );
            }
            blocks.write(&mut page);
        }
        page.show(settings)
    }
}

/// Who took bodies out, and why: an erasure a line.
async fn gone(page: &mut Page, store: &Arc<dyn Store>, records: &[Record]) -> Result<()> {
    let without: Vec<&Record> = records.iter().filter(|record| record.body_bytes().is_none()).collect();
    if without.is_empty() {
        return Ok(());
    }
    let erasures = Erasures::of(store).await?;
    let left_out = LeftOut::of(store).await?;
    let mut lines: Vec<(String, u64)> = Vec::new();
    for record in without {
        let why = match (erasures.over(record.point()), left_out.records.get(&record.id())) {
            (Some(Erasure { record, by, time, erased }), _) => {
                let (time, place) = (time::local(*time), record.point());
                format!("erased {time} by {by}: {} (rath show {place})", erased.why)
            }
            (None, Some(left)) if left.is_erased() => "had been erased where their bundle was made".into(),
            (None, Some(_)) => format!("left out of the bundle that they came in{}", because(&left_out)),
            (None, None) => "gone, and no record says why: rath verify".into(),
        };
        match lines.iter_mut().find(|(said, _)| *said == why) {
            Some((_, count)) => *count += 1,
            None => lines.push((why, 1)),
        }
    }
    for (why, count) in lines {
        page.line(output::harmless(&format!("{} {why}", output::count(count, "record"))));
    }
    Ok(())
}

/// Whether there is more to show than what was said.
fn has_work(records: &[Record]) -> bool {
    let work = [Kind::StepEntered, Kind::ToolStarted, Kind::Asked, Kind::ModelRequested];
    records.iter().any(|record| work.contains(record.kind()))
}

fn header(page: &mut Page, view: &View, lineage: &[rath::Ancestor], run: Option<&RunStatus>) -> Result<()> {
    let (state, at) = (view.state(), view.reference());
    let header = view.record().header()?;
    page.line(format_args!(
        "{} {}",
        style::session(at.session.short()),
        style::title(state.title.as_deref().map_or("(untitled)".into(), output::harmless))
    ));
    page.line(style::dim(format!(
        "{}@{}, {}, by {}",
        at.session,
        at.seq,
        time::local(header.time),
        output::harmless(&header.actor.to_string())
    )));
    for line in lineage.iter().filter(|line| line.session != at.session || line.origin.is_some()) {
        let from = line.origin.map(|origin| format!(", forked from {}", origin.point())).unwrap_or_default();
        let who = if line.session == at.session {
            "this session".into()
        } else {
            format!("stands on {}@{}", line.session.short(), line.to)
        };
        page.line(style::dim(format!("{who}{from}")));
    }
    for line in run.iter().flat_map(|run| run_lines(run, at.session)) {
        page.line(line);
    }
    if !state.usage.is_zero() {
        page.line(style::dim(format!("usage: {}", state.usage)));
    }
    for step in &state.pending().steps {
        page.line(style::label(format!("open step: {}", output::harmless(&step.name))));
    }
    for call in &state.pending().calls {
        page.line(style::label(output::harmless(&format!("open call: {} [{}]", call.tool, call.id))));
    }
    for wait in &state.pending().waits {
        let name = wait.name.iter().map(|name| format!(" {name}"));
        let until = wait.until.iter().map(|until| format!(" until {}", time::local(*until)));
        let what: String = std::iter::once(wait.what.to_string()).chain(name).chain(until).collect();
        page.line(style::label(output::harmless(&format!("waits for: {what} [{}]", wait.id))));
    }
    for conflict in &state.conflicts {
        page.line(style::bad(format!("conflict: {} ({})", conflict.path, conflict.kind)));
    }
    if let Some(placement) = &state.placement {
        let version = state.workspace.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
        let works = format!("works on {}{version}", placement_text(placement));
        match placement.isolated {
            true => page.line(style::dim(works)),
            false => page.line(format_args!("{}, {}", style::dim(works), style::label("not isolated"))),
        }
    }
    if state.arrived {
        page.line(style::label("came from elsewhere: it has no place here, and no permissions of before"));
    }
    if state.closed {
        page.line(style::dim("closed"));
    }
    Ok(())
}

/// What a model would be shown here.
async fn conversation(page: &mut Page, view: &View) -> Result<()> {
    for message in view.context().await? {
        said(page, &message);
    }
    Ok(())
}

fn said(page: &mut Page, message: &rath::Message) {
    let text = output::harmless(&message.to_string());
    let (role, words) = text.split_at(text.char_indices().nth(9).map_or(text.len(), |(at, _)| at));
    page.line(format_args!("{}{words}", style::record(role)));
    if has_blob(message) {
        page.line(style::dim(format!("           (whole: rath show {})", message.origin)));
    }
}

/// Whether part of the message is too long to stand in a transcript.
fn has_blob(message: &rath::Message) -> bool {
    serde_json::to_vec(&message.said).is_ok_and(|bytes| !rath::blob_references(&bytes).is_empty())
}

/// Whether a request is made again, in a line.
fn told(verdict: &Verdict) -> String {
    let why = output::harmless(&verdict.to_string());
    match verdict {
        Verdict::Rebuilt => format!("{} rebuilt: {why}", style::good("✓")),
        Verdict::Differs { .. } => format!("{} differs: {why}", style::bad("✗")),
        _ => format!("{} cannot be rebuilt: {why}", style::bad("✗")),
    }
}

/// The request to the model at or before this place.
async fn request(settings: &Settings, store: &Arc<dyn Store>, view: &View, raw: bool) -> Result<Answer> {
    let here = view.record().point();
    let Some(request) = requests::last(view).await? else {
        bail!("no model was asked up to {here}\n  help: `rath show {} --all` lists the records", here.session.short());
    };
    if request.record().body_bytes().is_none() {
        let verdict = Verdict::Erased { at: request.record().point() };
        match settings.json {
            true => output::json(
                &json!({ "at": request.reference(), "verdict": verdict.word(), "why": verdict.to_string() }),
            )?,
            false => output::remark(told(&verdict)),
        }
        return Ok(Answer::No);
    }
    let shown = Shown::of(store, &request).await?;
    let (step, record, body) = (shown.step(), &shown.request.record, &shown.request.body);
    let Rebuilt { bytes, verdict } = &shown.rebuilt;
    let answer = if verdict.is_rebuilt() { Answer::Yes } else { Answer::No };
    if settings.json && !raw {
        let made = bytes.as_ref().map(|bytes| Digest::of(bytes));
        let content = bytes.as_deref().map(serde_json::from_slice::<Value>).transpose()?;
        output::json(&json!({
            "at": record.reference(), "step": step, "model": body.model, "encoder": body.encoder, "rule": body.view,
            "attempt": body.attempt.unwrap_or(1), "recorded": body.request, "made": made,
            "bytes": bytes.as_ref().map(Vec::len), "verdict": verdict.word(),
            "why": (!verdict.is_rebuilt()).then(|| verdict.to_string()), "request": content,
        }))?;
        return Ok(answer);
    }
    let before = if record.point() == here { "" } else { ", the last request before" };
    let asks = output::harmless(&format!("{step} asks {} by {}", body.model, body.encoder));
    output::remark(format_args!("{} {asks}{before}", style::record(record.point())));
    output::remark(told(verdict));
    match bytes {
        Some(bytes) if raw => output::raw(bytes)?,
        Some(bytes) => {
            let mut page = Page::default();
            page.line(output::harmless(&pretty(bytes)?));
            page.show(settings)?;
        }
        None => {}
    }
    Ok(answer)
}

/// The same JSON on many lines. What is in it stays in its order.
fn pretty(json: &[u8]) -> Result<String> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut reader = serde_json::Deserializer::from_slice(json);
    serde_transcode::transcode(&mut reader, &mut serde_json::Serializer::pretty(&mut out))?;
    Ok(String::from_utf8(out)?)
}

/// What a model saw, part by part.
fn context(settings: &Settings, shown: &Shown) -> Result<()> {
    let Shown { request, messages, rebuilt: Rebuilt { verdict, .. } } = shown;
    let (step, config, body, parameters) = (shown.step(), &request.config, &request.body, request.parameters());
    let request = &request.record;
    if settings.json {
        let (rebuilt, why) = (verdict.is_rebuilt(), (!verdict.is_rebuilt()).then(|| verdict.to_string()));
        return output::json(&json!({
            "at": request.reference(), "step": step, "model": body.model, "rule": body.view, "encoder": body.encoder,
            "request": body.request, "attempt": body.attempt.unwrap_or(1), "parameters": parameters,
            "prompt": config.as_ref().map(|config| &config.prompt), "tools": config.as_ref().map(|config| &config.tools),
            "messages": messages, "rebuilt": rebuilt, "why": why,
        }));
    }
    let mut page = Page::default();
    let attempt = body.attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
    page.line(format_args!(
        "{} {} asks {}{attempt}",
        style::record(request.point()),
        style::title(output::harmless(step)),
        output::harmless(&body.model)
    ));
    page.line(style::dim(format!("view      {}", output::harmless(&body.view))));
    page.line(style::dim(format!("encoder   {}", output::harmless(&body.encoder))));
    page.line(style::dim(format!("request   {}", body.request)));
    page.line(told(verdict));
    if let Some(parameters) = parameters.and_then(|parameters| serde_json::to_value(parameters).ok()) {
        for (name, value) in parameters.as_object().into_iter().flatten() {
            page.line(style::dim(format!("{name:<9} {value}")));
        }
    }
    if let Some(config) = config {
        page.line("");
        page.line(format_args!("{} {}", style::title("prompt"), style::dim(format!("{} bytes", config.prompt.len()))));
        for line in output::harmless(&config.prompt).lines() {
            page.line(format_args!("  {line}"));
        }
        page.line("");
        page.line(format_args!("{} {}", style::title("tools"), style::dim(config.tools.len())));
        for tool in &config.tools {
            let about = rath::summary::one_line(&tool.description);
            page.line(format_args!(
                "  {}  {}",
                style::record(output::harmless(&tool.name)),
                super::log::clip(&about, 100)
            ));
        }
    }
    page.line("");
    page.line(format_args!("{} {}", style::title("messages"), style::dim(messages.len())));
    for part in messages {
        let step = part.step.as_ref().map(|step| format!(", in {step}")).unwrap_or_default();
        let about = output::harmless(&format!("{} bytes{step}", part.bytes));
        page.line(format_args!("{} {}", style::record(part.message.origin), style::dim(about)));
        said(&mut page, &part.message);
    }
    page.show(settings)
}

async fn record(settings: &Settings, store: &Arc<dyn Store>, view: &View) -> Result<()> {
    let record = view.record();
    let erasure = match record.body_bytes() {
        None => Erasures::of(store).await?.over(record.point()).cloned(),
        Some(_) => None,
    };
    if settings.json {
        #[derive(Serialize)]
        struct Shown {
            #[serde(flatten)]
            record: RecordDetails,
            #[serde(skip_serializing_if = "Option::is_none")]
            erased: Option<Erasure>,
        }
        return output::json(&Shown { record: RecordDetails::of(record)?, erased: erasure });
    }
    let header = record.header()?;
    let mut page = Page::default();
    page.line(format_args!(
        "{} {} {}",
        style::record(record.point()),
        style::title(record.kind()),
        style::dim(record.id())
    ));
    page.line(style::dim(format!("time     {}", time::local(header.time))));
    page.line(style::dim(format!("by       {}", output::harmless(&header.actor.to_string()))));
    for parent in &header.parents {
        page.line(style::dim(format!("parent   {parent}")));
    }
    if let Some(step) = header.step {
        page.line(style::dim(format!("step     {step}")));
    }
    page.line("");
    match record.body_bytes() {
        None => match erasure {
            Some(Erasure { record, by, time, erased }) => {
                let who = output::harmless(&format!("{by}: {}", erased.why));
                page.line(format_args!("(erased {} by {who})", time::local(time)));
                page.line(style::dim(format!("see      rath show {}", record.point())));
            }
            None => {
                let left_out = LeftOut::of(&settings.store()?).await?;
                page.line(match left_out.records.get(&record.id()) {
                    Some(left) if left.is_erased() => "(the body had been erased where its bundle was made)".to_owned(),
                    Some(_) => format!("(the body was left out of the bundle that it came in{})", because(&left_out)),
                    None => "(the body is gone; no record says why)".to_owned(),
                });
            }
        },
        Some(bytes) => {
            let body: Value = serde_json::from_slice(bytes)?;
            page.line(output::harmless(&serde_json::to_string_pretty(&body)?));
            // Long texts live in blobs: show them too.
            for blob in rath::blob_references(bytes) {
                if blob.media_type.starts_with("text/") {
                    page.line(style::dim(format!("\nblob {} ({} bytes)", blob.digest, blob.bytes)));
                    match view.content(&rath::Content::Blob(blob.clone())).await {
                        Ok(text) => page.line(output::harmless(&text)),
                        Err(error) => {
                            let left_out = LeftOut::of(&settings.store()?).await?;
                            anyhow::ensure!(left_out.blobs.contains_key(&blob.digest), error);
                            page.line(format!("(left out of the bundle that it came in{})", because(&left_out)));
                        }
                    }
                }
            }
        }
    }
    page.show(settings)
}

fn because(left_out: &LeftOut) -> String {
    left_out.because.as_deref().map(|why| format!(": {}", output::harmless(why))).unwrap_or_default()
}
