use std::path::PathBuf;

use anyhow::{Context as _, Result};
use rath::Kind;
use rath_audit::bundle::{Export as Bundle, Redaction};

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Export a session as a bundle that can be verified without rath
///
/// A bundle contains the session and everything that it is based on: exact records, blobs, and a verifier in Python. Its
/// README describes how to check it by hand. `rath import bundle` imports it into another store.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Export {
    /// A session; with a record, the session up to that record
    #[arg(default_value = "@")]
    session: String,
    /// The bundle to write: a zip file if the name ends in .zip, else a directory
    #[arg(long, value_name = "DIR|FILE.zip", required = true)]
    bundle: PathBuf,
    /// Export all related sessions, whole: ancestors and their descendants
    #[arg(long)]
    graph: bool,
    /// Leave out the bodies of a kind of record, or of one record (S@N); can be given several times
    #[arg(long, value_name = "KIND|S@k")]
    redact: Vec<String>,
    /// Leave out every body and blob that contains TEXT; can be given several times
    #[arg(long, value_name = "TEXT")]
    redact_matching: Vec<String>,
    /// Leave out all blobs
    #[arg(long)]
    no_blobs: bool,
    /// Leave out versions of files
    #[arg(long)]
    no_files: bool,
    /// Why something is left out, for the readers of the bundle
    #[arg(long, value_name = "WHY")]
    because: Option<String>,
}

impl Export {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let place = expression::resolve(&store, &self.session).await?;
        let mut redaction = Redaction {
            texts: self.redact_matching,
            no_blobs: self.no_blobs,
            no_files: self.no_files,
            reason: self.because,
            ..Redaction::default()
        };
        anyhow::ensure!(
            !redaction.texts.iter().any(|text| rath_audit::admin::mentions("", text)),
            "--redact-matching needs a text: every record contains the empty one"
        );
        for what in &self.redact {
            match what.parse::<Kind>() {
                Ok(kind) if Kind::KNOWN.contains(&kind) => redaction.kinds.push(kind),
                _ => {
                    let neither = || format!("--redact {what} names neither a kind nor a record");
                    let record = expression::resolve(&store, what).await.with_context(neither)?;
                    anyhow::ensure!(record.exact, "{what} is a session: name one of its records, as S@N, or a kind");
                    redaction.records.insert(rath::Point { session: record.session, seq: record.seq });
                }
            }
        }
        let mut export = Bundle::of(place.session, place.exact.then_some(place.seq));
        (export.graph, export.redaction) = (self.graph, redaction);
        let bar = output::spinner(settings);
        let exported = export.write(&store, &self.bundle, &mut |done| bar.set_position(done)).await;
        bar.finish_and_clear();
        let graph = exported?.graph;
        if settings.json {
            let value = serde_json::json!({ "bundle": self.bundle.to_string_lossy(), "graph": graph });
            output::json("rath.export/1", &value)?;
            return Ok(Answer::Yes);
        }
        output::answer(self.bundle.display())?;
        let held = [
            output::count(graph.sessions.len() as u64, "session"),
            output::count(graph.records, "record"),
            output::count(graph.blobs, "blob"),
        ];
        output::remark(format_args!("{} {}", style::good("✓"), held.join(", ")));
        let missing = graph.omitted_blobs.iter().filter(|blob| blob.rule == "not in the store").count() as u64;
        let left_out = graph.omitted_blobs.len() as u64 - missing;
        let bodies = graph.omitted_records.iter().filter(|left| !left.is_erased()).count() as u64;
        if bodies + left_out > 0 {
            let records = output::count(bodies, "body");
            output::remark(format_args!(
                "left out: {records}, {}; graph.json lists them",
                output::count(left_out, "blob")
            ));
        }
        if missing > 0 {
            output::remark(format_args!(
                "{} referenced but not in this store; graph.json lists them\n  help: `rath verify` shows which records miss them",
                output::count(missing, "blob")
            ));
        }
        Ok(Answer::Yes)
    }
}
