//! `rath workflow`: looks at the workflow of a run file without running it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use rath::agent_file::{self, AgentProgram, AgentSpec, FileProblem, Resolver, RunFile};
use rath::model::{BoxModel, Scripted};
use rath::workflow::{BoxWorkflow, Outline, Workflow as _};
use serde::Serialize;

use super::{Answer, run};
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Show or check the workflow of a run file, without running it
///
/// A run file can have a `[workflow]` over its agents: branches that work at the same time, retries, gates, timers.
/// `rath run -a FILE` runs it, and `rath help agents` describes its tables.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    rath workflow check review.toml\n  \
    rath workflow show review.toml")]
pub(crate) struct Workflow {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Print the workflow as a tree
    Show {
        /// The run file, or an agent file
        file: PathBuf,
    },
    /// Report each error with its line and column
    ///
    /// Exit code 0: the file is valid. 3: it has errors.
    Check {
        /// The run file, or an agent file
        file: PathBuf,
    },
}

/// Resolves every model, so that a workflow can be built without providers and keys.
struct NoModels;

impl Resolver for NoModels {
    type Error = agent_file::Error;

    fn model(&self, name: &str, _: &[String]) -> Result<BoxModel, Self::Error> {
        Ok(Arc::new(Scripted::new(name)))
    }
}

/// A node of the tree, as JSON.
#[derive(Serialize)]
struct Node<'a> {
    /// The name that its parent has for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    kind: &'a str,
    detail: &'a str,
    children: Vec<Node<'a>>,
}

impl<'a> Node<'a> {
    fn of(role: Option<&'a str>, outline: &'a Outline) -> Self {
        let children = outline.children.iter().map(|(role, child)| Node::of(Some(role), child)).collect();
        Self { role, kind: &outline.kind, detail: &outline.detail, children }
    }
}

impl Workflow {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::Show { file } => show(settings, &file),
            What::Check { file } => check(settings, &file),
        }
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    workflow: Node<'a>,
}

fn show(settings: &Settings, file: &Path) -> Result<Answer> {
    let program = run::parse(run::read(file)?, Some(file))?;
    let outline = workflow_of(program)?.outline();
    if settings.json {
        output::json("rath.workflow.show/1", &Shown { workflow: Node::of(None, &outline) })?;
        return Ok(Answer::Yes);
    }
    let mut page = Page::default();
    add(&mut page, 0, None, &outline);
    page.show(settings)?;
    Ok(Answer::Yes)
}

/// Adds a workflow and those in it, each on a line.
fn add(page: &mut Page, depth: usize, role: Option<&str>, outline: &Outline) {
    let role = role.map(|role| format!("{}: ", output::escaped(role))).unwrap_or_default();
    let (kind, detail) = (outline.kind.to_lowercase(), output::escaped(&outline.detail));
    page.line(format_args!("{:1$}{role}{2} {detail}", "", depth * 2, style::title(output::escaped(&kind))));
    for (role, child) in &outline.children {
        add(page, depth + 1, Some(role), child);
    }
}

#[derive(Serialize)]
struct Checked<'a> {
    valid: bool,
    problems: &'a [FileProblem],
}

fn check(settings: &Settings, file: &Path) -> Result<Answer> {
    let problems = problems(run::read(file)?);
    if settings.json {
        output::json("rath.workflow.check/1", &Checked { valid: problems.is_empty(), problems: &problems })?;
    } else {
        let mut page = Page::default();
        for FileProblem { line, column, problem, help } in &problems {
            let at = style::title(format!("{}:{line}:{column}:", output::escaped(&file.display().to_string())));
            page.line(format_args!("{at} {}", output::escaped(problem)));
            if let Some(help) = help {
                page.line(format_args!("  help: {}", output::escaped(help)));
            }
        }
        page.show(settings)?;
        if problems.is_empty() {
            output::remark(style::good("valid"));
        }
    }
    Ok(if problems.is_empty() { Answer::Yes } else { Answer::No })
}

/// The workflow of a file, with models that do not answer.
fn workflow_of(program: AgentProgram) -> Result<BoxWorkflow, agent_file::Error> {
    match program {
        // The model of an agent can come from the command line.
        AgentProgram::Agent(agent) if agent.model.is_none() => {
            let agent = AgentSpec { model: Some("default".into()), ..*agent };
            Ok(BoxWorkflow::new(agent.agent(&NoModels)?))
        }
        program => program.workflow(&NoModels),
    }
}

/// The errors of an agent file or a run file.
fn problems(text: String) -> Vec<FileProblem> {
    if !text.trim_start_matches('\u{feff}').starts_with("---") {
        return RunFile::check(&text, &NoModels);
    }
    let built = AgentProgram::parse(text).and_then(workflow_of);
    let problem = |error: agent_file::Error| FileProblem { line: 1, column: 1, problem: error.to_string(), help: None };
    built.err().into_iter().map(problem).collect()
}
