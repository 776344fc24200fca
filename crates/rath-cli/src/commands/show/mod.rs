//! `rath show`: a session as a conversation, or one record.

mod state;
mod steps;

use std::sync::Arc;

use anyhow::{Result, bail};
use rath::inspect::transcript::{Differences, Transcript};
use rath::inspect::{self, FileComparison, RecordDetails, RunStatus, SessionSummary, placement_text};
use rath::requests::{self, RebuiltRequest, RequestVerdict};
use rath::{Digest, Kind, Record, Store, View};
use rath_audit::admin::{Erasure, Erasures};
use rath_audit::bundle::Omissions;
use serde::Serialize;
use serde_json::{Value, json};

use super::Answer;
use super::diff::show_stat;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;
use crate::transcript::{self, Blocks, RenderOptions, ShownContext, run_lines};

pub(crate) use state::State;
pub(crate) use steps::Steps;

/// Show a session as a conversation, or a single record
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Show {
    /// The session or record
    #[arg(default_value = "@", value_name = "SESSION")]
    what: String,
    /// Show open steps, pending calls, usage and the next action
    #[arg(long, group = "view")]
    state: bool,
    /// Show the steps of the session and its branches: duration, outcome, usage
    #[arg(long, group = "view")]
    steps: bool,
    /// Show changed files with line counts: of the session, or of the record
    #[arg(long, group = "view")]
    stat: bool,
    /// Show what the model was shown last: prompt, tools and messages
    #[arg(long, group = "view")]
    context: bool,
    /// Rebuild the last model request from the records and compare it; exit code 3 if it differs
    #[arg(long, group = "view")]
    request: bool,
    /// With --request: print the exact bytes of the request
    #[arg(long, requires = "request")]
    raw: bool,
    /// Show complete diffs of files
    #[arg(long, short, group = "view")]
    patch: bool,
    /// Show no diffs of files
    #[arg(long, group = "view")]
    no_diff: bool,
    /// Show every record on one line
    #[arg(long, group = "view")]
    all: bool,
}

impl Show {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.what).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        if self.state {
            return State { what: self.what }.run(settings).await;
        }
        if self.steps {
            return Steps { session: self.what }.run(settings).await;
        }
        if self.stat {
            return stat(settings, &store, &view, place.exact).await;
        }
        let is_session = !place.exact || self.all || self.patch || self.no_diff;
        if self.request {
            return request(settings, &store, &view, self.raw).await;
        }
        if self.context {
            match ShownContext::at(&store, &view).await? {
                Some(shown) => context(settings, &shown)?,
                None if settings.json => self.session(settings, &store, &view).await?,
                None => {
                    output::remark("no model was called here; this is the conversation so far");
                    self.session(settings, &store, &view).await?;
                }
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
            return output::json("rath.show/1", &SessionSummary::of(store, view).await?);
        }
        // A run has a state now, not at an earlier record.
        let is_head = View::of(store, at.session, None).await?.reference() == at;
        let run = if is_head { RunStatus::of(store, view).await? } else { None };
        let mut page = Page::default();
        header(&mut page, view, &lineage, run.as_ref())?;
        let records = inspect::records(store, at.session, 0, at.seq, &[]).await?;
        missing_bodies(&mut page, store, &records).await?;
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
            let how = RenderOptions { whole: self.patch, live: false };
            let mut transcript = Transcript::new(store.clone(), differences);
            let mut blocks = Blocks::default();
            for record in &records {
                blocks.add(
                    transcript.read(record).await?.into_iter().map(|entry| transcript::render(entry, how)).collect(),
                );
            }
            blocks.write(&mut page);
        }
        page.show(settings)
    }
}

/// Shows which files a session changed in its workspace, or which a record changed.
async fn stat(settings: &Settings, store: &Arc<dyn Store>, view: &View, exact: bool) -> Result<Answer> {
    let files = match (exact, view.reference().seq.checked_sub(1)) {
        (true, Some(before)) => {
            let before = View::of(store, view.reference().session, Some(before)).await?;
            let (before, after) = (before.state().workspace.clone(), view.state().workspace.clone());
            FileComparison::between(&**store, before, after).await?
        }
        _ => FileComparison::since_placed(&**store, view.state()).await?,
    };
    if settings.json {
        output::json("rath.show.stat/1", &files)?;
        return Ok(Answer::Yes);
    }
    let mut page = Page::default();
    show_stat(&files, &mut page);
    page.show(settings)?;
    Ok(Answer::Yes)
}

/// Writes why bodies are missing: one line for each erasure or bundle.
async fn missing_bodies(page: &mut Page, store: &Arc<dyn Store>, records: &[Record]) -> Result<()> {
    let without: Vec<&Record> = records.iter().filter(|record| record.body_bytes().is_none()).collect();
    if without.is_empty() {
        return Ok(());
    }
    let erasures = Erasures::of(store).await?;
    let omissions = Omissions::of(store).await?;
    let mut lines: Vec<(String, u64)> = Vec::new();
    for record in without {
        let why = match (erasures.over(record.point()), omissions.records.get(&record.id())) {
            (Some(Erasure { record, by, time, erased }), _) => {
                let (time, place) = (time::local(*time), record.point());
                format!("erased {time} by {by}: {} (rath show {place})", erased.why)
            }
            (None, Some(left)) if left.is_erased() => "erased before their bundle was made".into(),
            (None, Some(_)) => format!("left out of their bundle{}", because(&omissions)),
            (None, None) => "missing, and no record says why; run `rath verify`".into(),
        };
        match lines.iter_mut().find(|(said, _)| *said == why) {
            Some((_, count)) => *count += 1,
            None => lines.push((why, 1)),
        }
    }
    for (why, count) in lines {
        page.line(output::escaped(&format!("{} {why}", output::count(count, "record"))));
    }
    Ok(())
}

/// Whether there is more to show than messages.
fn has_work(records: &[Record]) -> bool {
    let work = [Kind::StepEntered, Kind::ToolStarted, Kind::Asked, Kind::ModelRequested];
    records.iter().any(|record| work.contains(record.kind()))
}

fn header(page: &mut Page, view: &View, lineage: &[rath::session::Ancestor], run: Option<&RunStatus>) -> Result<()> {
    let (state, at) = (view.state(), view.reference());
    let header = view.record().header()?;
    page.line(format_args!(
        "{} {}",
        style::session(at.session.short()),
        style::title(state.title.as_deref().map_or("(untitled)".into(), output::escaped))
    ));
    page.line(style::dim(format!(
        "{}@{}, {}, by {}",
        at.session,
        at.seq,
        time::local(header.time),
        output::escaped(&header.actor.to_string())
    )));
    for line in lineage.iter().filter(|line| line.session != at.session || line.origin.is_some()) {
        let from = line.origin.map(|origin| format!(", forked from {}", origin.point())).unwrap_or_default();
        let who = if line.session == at.session {
            "this session".into()
        } else {
            format!("based on {}@{}", line.session.short(), line.to)
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
        page.line(style::label(format!("open step: {}", output::escaped(&step.name))));
    }
    for call in &state.pending().calls {
        page.line(style::label(output::escaped(&format!("open call: {} [{}]", call.tool, call.id))));
    }
    for wait in &state.pending().waits {
        let name = wait.name.iter().map(|name| format!(" {name}"));
        let until = wait.until.iter().map(|until| format!(" until {}", time::local(*until)));
        let what: String = std::iter::once(wait.what.to_string()).chain(name).chain(until).collect();
        page.line(style::label(output::escaped(&format!("waits for: {what} [{}]", wait.id))));
    }
    for conflict in &state.conflicts {
        page.line(style::bad(format!("conflict: {} ({})", conflict.path, conflict.kind)));
    }
    if let Some(placement) = &state.placement {
        let version = state.workspace.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
        let works = format!("workspace: {}{version}", placement_text(placement));
        match placement.isolated {
            true => page.line(style::dim(works)),
            false => page.line(format_args!("{}, {}", style::dim(works), style::label("not isolated"))),
        }
    }
    if state.arrived {
        page.line(style::label("imported: it has no workspace here, and earlier permissions do not count"));
    }
    if state.closed {
        page.line(style::dim("closed"));
    }
    Ok(())
}

/// Writes the messages that a model would be shown here.
async fn conversation(page: &mut Page, view: &View) -> Result<()> {
    for message in view.context().await? {
        said(page, &message);
    }
    Ok(())
}

fn said(page: &mut Page, message: &rath::model::Message) {
    let text = output::escaped(&message.to_string());
    let (role, words) = text.split_at(text.char_indices().nth(9).map_or(text.len(), |(at, _)| at));
    page.line(format_args!("{}{words}", style::record(role)));
    if has_blob(message) {
        page.line(style::dim(format!("           (full text: rath show {})", message.origin)));
    }
}

/// Whether part of the message is in a blob, because it is too long for a transcript.
fn has_blob(message: &rath::model::Message) -> bool {
    serde_json::to_vec(&message.body).is_ok_and(|bytes| !rath::record::blob_references(&bytes).is_empty())
}

/// The result of rebuilding a request, in one line.
fn verdict_line(verdict: &RequestVerdict) -> String {
    let why = output::escaped(&verdict.to_string());
    match verdict {
        RequestVerdict::Rebuilt => format!("{} rebuilt: {why}", style::good("✓")),
        RequestVerdict::Differs { .. } => format!("{} differs: {why}", style::bad("✗")),
        _ => format!("{} cannot be rebuilt: {why}", style::bad("✗")),
    }
}

/// Shows the last model request at or before this record.
async fn request(settings: &Settings, store: &Arc<dyn Store>, view: &View, raw: bool) -> Result<Answer> {
    let here = view.record().point();
    let Some(request) = requests::last(view).await? else {
        bail!(
            "there is no model request up to {here}\n  help: `rath show {} --all` lists the records",
            here.session.short()
        );
    };
    if request.record().body_bytes().is_none() {
        let verdict = RequestVerdict::Erased { at: request.record().point() };
        if settings.json {
            let (at, why) = (request.reference(), verdict.to_string());
            output::json("rath.show.request/1", &json!({ "at": at, "verdict": verdict.word(), "why": why }))?;
        } else {
            output::remark(verdict_line(&verdict));
        }
        return Ok(Answer::No);
    }
    let shown = ShownContext::of(store, &request).await?;
    let (step, record, body) = (shown.step(), &shown.request.record, &shown.request.body);
    let RebuiltRequest { bytes, verdict } = &shown.rebuilt;
    let answer = if verdict.is_rebuilt() { Answer::Yes } else { Answer::No };
    if settings.json && !raw {
        let made = bytes.as_ref().map(|bytes| Digest::of(bytes));
        let content = bytes.as_deref().map(serde_json::from_slice::<Value>).transpose()?;
        output::json(
            "rath.show.request/1",
            &json!({
                "at": record.reference(), "step": step, "model": body.model, "encoder": body.encoder, "rule": body.view,
                "attempt": body.attempt.unwrap_or(1), "recorded": body.request, "made": made,
                "bytes": bytes.as_ref().map(Vec::len), "verdict": verdict.word(),
                "why": (!verdict.is_rebuilt()).then(|| verdict.to_string()), "request": content,
            }),
        )?;
        return Ok(answer);
    }
    let before = if record.point() == here { "" } else { ", the last request before this record" };
    let asks = output::escaped(&format!("{step} calls {}, encoder {}", body.model, body.encoder));
    output::remark(format_args!("{} {asks}{before}", style::record(record.point())));
    output::remark(verdict_line(verdict));
    match bytes {
        Some(bytes) if raw => output::raw(bytes)?,
        Some(bytes) => {
            let mut page = Page::default();
            page.line(output::escaped(&pretty(bytes)?));
            page.show(settings)?;
        }
        None => {}
    }
    Ok(answer)
}

/// Indents JSON. Fields keep their order.
fn pretty(json: &[u8]) -> Result<String> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut reader = serde_json::Deserializer::from_slice(json);
    serde_transcode::transcode(&mut reader, &mut serde_json::Serializer::pretty(&mut out))?;
    Ok(String::from_utf8(out)?)
}

/// Shows what a model was shown: prompt, tools, messages.
fn context(settings: &Settings, shown: &ShownContext) -> Result<()> {
    let ShownContext { request, messages, rebuilt: RebuiltRequest { verdict, .. } } = shown;
    let (step, config, body, parameters) = (shown.step(), &request.config, &request.body, request.parameters());
    let request = &request.record;
    if settings.json {
        let (rebuilt, why) = (verdict.is_rebuilt(), (!verdict.is_rebuilt()).then(|| verdict.to_string()));
        return output::json(
            "rath.show.context/1",
            &json!({
                "at": request.reference(), "step": step, "model": body.model, "rule": body.view, "encoder": body.encoder,
                "request": body.request, "attempt": body.attempt.unwrap_or(1), "parameters": parameters,
                "prompt": config.as_ref().map(|config| &config.prompt), "tools": config.as_ref().map(|config| &config.tools),
                "messages": messages, "rebuilt": rebuilt, "why": why,
            }),
        );
    }
    let mut page = Page::default();
    let attempt = body.attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
    page.line(format_args!(
        "{} {} calls {}{attempt}",
        style::record(request.point()),
        style::title(output::escaped(step)),
        output::escaped(&body.model)
    ));
    page.line(style::dim(format!("view      {}", output::escaped(&body.view))));
    page.line(style::dim(format!("encoder   {}", output::escaped(&body.encoder))));
    page.line(style::dim(format!("request   {}", body.request)));
    page.line(verdict_line(verdict));
    if let Some(parameters) = parameters.and_then(|parameters| serde_json::to_value(parameters).ok()) {
        for (name, value) in parameters.as_object().into_iter().flatten() {
            page.line(style::dim(format!("{name:<9} {value}")));
        }
    }
    if let Some(config) = config {
        page.line("");
        page.line(format_args!("{} {}", style::title("prompt"), style::dim(format!("{} bytes", config.prompt.len()))));
        for line in output::escaped(&config.prompt).lines() {
            page.line(format_args!("  {line}"));
        }
        page.line("");
        page.line(format_args!("{} {}", style::title("tools"), style::dim(config.tools.len())));
        for tool in &config.tools {
            let about = rath::summary::one_line(&tool.description);
            page.line(format_args!(
                "  {}  {}",
                style::record(output::escaped(&tool.name)),
                crate::commands::log::clip(&about, 100)
            ));
        }
    }
    page.line("");
    page.line(format_args!("{} {}", style::title("messages"), style::dim(messages.len())));
    for part in messages {
        let step = part.step.as_ref().map(|step| format!(", in {step}")).unwrap_or_default();
        let about = output::escaped(&format!("{} bytes{step}", part.bytes));
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
        struct ShownRecord {
            #[serde(flatten)]
            record: RecordDetails,
            #[serde(skip_serializing_if = "Option::is_none")]
            erased: Option<Erasure>,
        }
        return output::json("rath.record/1", &ShownRecord { record: RecordDetails::of(record)?, erased: erasure });
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
    page.line(style::dim(format!("by       {}", output::escaped(&header.actor.to_string()))));
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
                let who = output::escaped(&format!("{by}: {}", erased.why));
                page.line(format_args!("(erased {} by {who})", time::local(time)));
                page.line(style::dim(format!("see      rath show {}", record.point())));
            }
            None => {
                let omissions = Omissions::of(&settings.store()?).await?;
                page.line(match omissions.records.get(&record.id()) {
                    Some(left) if left.is_erased() => "(the body was erased before its bundle was made)".to_owned(),
                    Some(_) => format!("(the body was left out of its bundle{})", because(&omissions)),
                    None => "(the body is missing, and no record says why)".to_owned(),
                });
            }
        },
        Some(bytes) => {
            let body: Value = serde_json::from_slice(bytes)?;
            page.line(output::escaped(&serde_json::to_string_pretty(&body)?));
            // Long texts are in blobs: show them too.
            for blob in rath::record::blob_references(bytes) {
                if blob.media_type.starts_with("text/") {
                    page.line(style::dim(format!("\nblob {} ({} bytes)", blob.digest, blob.bytes)));
                    match view.content(&rath::Content::Blob(blob.clone())).await {
                        Ok(text) => page.line(output::escaped(&text)),
                        Err(error) => {
                            let omissions = Omissions::of(&settings.store()?).await?;
                            anyhow::ensure!(omissions.blobs.contains_key(&blob.digest), error);
                            page.line(format!("(left out of its bundle{})", because(&omissions)));
                        }
                    }
                }
            }
        }
    }
    page.show(settings)
}

fn because(omissions: &Omissions) -> String {
    omissions.reason.as_deref().map(|why| format!(": {}", output::escaped(why))).unwrap_or_default()
}
