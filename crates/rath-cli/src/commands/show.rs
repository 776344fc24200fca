use anyhow::Result;
use rath::{Record, View};
use serde_json::{Value, json};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;
use crate::time;

/// Show a session as a conversation, or a record with everything it says
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Show {
    /// The session or record; the session that changed last if absent
    #[arg(default_value = "@")]
    what: String,
    /// With a record: the context a model would be shown there, item by item
    #[arg(long)]
    context: bool,
}

impl Show {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.what).await?;
        let view = View::of(&store, place.session, Some(place.seq)).await?;
        match place.exact && !self.context {
            true => record(settings, &view).await?,
            false => session(settings, &view).await?,
        }
        Ok(Answer::Yes)
    }
}

async fn session(settings: &Settings, view: &View) -> Result<()> {
    let (state, context, lineage) = (view.state(), view.context().await?, view.lineage().await?);
    let at = view.reference();
    if settings.json {
        return output::json(&json!({
            "session": at.session, "at": at, "title": state.title, "labels": state.labels, "closed": state.closed,
            "usage": state.usage, "pending": state.pending(), "lineage": lineage, "context": context,
            "placement": state.placement, "workspace": state.workspace,
        }));
    }
    let mut page = Page::default();
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
    if !state.usage.is_zero() {
        page.line(style::dim(format!("usage: {}", state.usage)));
    }
    for step in &state.pending().steps {
        page.line(style::label(format!("open step: {}", output::harmless(&step.name))));
    }
    for call in &state.pending().calls {
        page.line(style::label(output::harmless(&format!("open call: {} [{}]", call.tool, call.id))));
    }
    for conflict in &state.conflicts {
        page.line(style::bad(format!("conflict: {} ({})", conflict.path, conflict.kind)));
    }
    if let Some(placement) = &state.placement {
        let files = match (&placement.origin, placement.in_place) {
            (Some(origin), true) => format!(" in {origin}"),
            (Some(origin), false) => format!(" in a copy of {origin}"),
            (None, _) => String::new(),
        };
        let version = state.workspace.as_ref().map(|version| format!(", version {version}")).unwrap_or_default();
        let works = format!("works on {}{files}{version}", placement.backend);
        match placement.isolated {
            true => page.line(style::dim(works)),
            false => page.line(format_args!("{}, {}", style::dim(works), style::label("not isolated"))),
        }
    }
    if state.closed {
        page.line(style::dim("closed"));
    }
    page.line("");
    for message in context {
        let text = output::harmless(&message.to_string());
        let (role, words) = text.split_at(text.char_indices().nth(9).map_or(text.len(), |(at, _)| at));
        page.line(format_args!("{}{words}", style::record(role)));
        if has_blob(&message) {
            page.line(style::dim(format!("           (whole: rath show {})", message.origin)));
        }
    }
    page.show(settings)
}

/// Whether part of the message is too long to stand in a transcript.
fn has_blob(message: &rath::Message) -> bool {
    serde_json::to_vec(&message.said).is_ok_and(|bytes| !rath::blob_references(&bytes).is_empty())
}

async fn record(settings: &Settings, view: &View) -> Result<()> {
    let record = view.record();
    if settings.json {
        return output::json(&record_json(record)?);
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
        None => page.line("(the body was erased)"),
        Some(bytes) => {
            let body: Value = serde_json::from_slice(bytes)?;
            page.line(output::harmless(&serde_json::to_string_pretty(&body)?));
            // Long texts live in blobs: show them too.
            for blob in rath::blob_references(bytes) {
                if blob.media_type.starts_with("text/") {
                    let text = view.content(&rath::Content::Blob(blob.clone())).await?;
                    page.line(style::dim(format!("\nblob {} ({} bytes)", blob.digest, blob.bytes)));
                    page.line(output::harmless(&text));
                }
            }
        }
    }
    page.show(settings)
}

/// A record as JSON: place, id, header and body.
pub(crate) fn record_json(record: &Record) -> Result<Value> {
    let header: Value = serde_json::from_slice(record.header_bytes())?;
    let body: Value = match record.body_bytes() {
        Some(bytes) => serde_json::from_slice(bytes)?,
        None => Value::Null,
    };
    Ok(json!({ "session": record.session(), "seq": record.seq(), "id": record.id(), "header": header, "body": body }))
}
