//! What a run executes: the text of an agent or run file, with the flags of the command line.

use std::path::Path;

use anyhow::{Result, anyhow};
use rath::agent_file::{self, AgentProgram, AgentSpec};
use rath::workflow::BoxWorkflow;
use toml_edit::{Array, DocumentMut, InlineTable, Item, Table, TableLike, value};

use crate::expression::usage_error;
use crate::providers::Providers;

/// The branches of `--best-of` and the step of its agent.
const AGENT: &str = "attempt";

/// A workflow that is ready to run, and what the terminal shows about it.
pub(super) struct Runnable {
    pub(super) workflow: BoxWorkflow,
    /// The agent that starts; `None` for a workflow.
    pub(super) agent: Option<String>,
    /// The model of the agent that starts.
    pub(super) model: Option<String>,
}

impl Runnable {
    pub(super) fn of(program: &AgentProgram, providers: &Providers<'_>) -> Result<Self> {
        if program.has_workflow() {
            return Ok(Self { workflow: program.workflow(providers)?, agent: None, model: None });
        }
        let agent = program.agent(providers)?;
        let (name, model) = (agent.name().to_owned(), agent.model_name().map(str::to_owned));
        Ok(Self { workflow: BoxWorkflow::new(agent), agent: Some(name), model })
    }
}

/// Parses the text of an agent or run file. The error names the file and the line.
pub(crate) fn parse(text: String, file: Option<&Path>) -> Result<AgentProgram> {
    AgentProgram::parse(text).map_err(|error| match (error, file) {
        (agent_file::Error::Workflow(problems), Some(file)) if !problems.is_empty() => {
            let (first, file) = (&problems[0], file.display());
            let help = first.help.iter().map(|help| format!("\n  help: {help}"));
            let more = (problems.len() > 1)
                .then(|| format!("\n  help: `rath workflow check {file}` lists all {} problems", problems.len()));
            let help: String = help.chain(more).collect();
            anyhow!("{file}:{}:{}: {}{help}", first.line, first.column, first.problem)
        }
        (error, _) => error.into(),
    })
}

/// The text of a run file whose agents all use this model.
pub(super) fn with_model(text: &str, model: &str) -> Result<String> {
    let mut file: DocumentMut = text.parse()?;
    let agents = file.get_mut("agents").and_then(Item::as_table_like_mut);
    for (_, agent) in agents.into_iter().flat_map(TableLike::iter_mut) {
        if let Some(agent) = agent.as_table_like_mut() {
            agent.insert("model", value(model));
            // A model on the command line has no fallback.
            agent.remove("fallback");
        }
    }
    Ok(file.to_string())
}

/// A run file in which `count` copies of the agent work at the same time, and a test command decides which one is kept.
pub(super) fn best_of(agent: &AgentSpec, count: usize, test: &str) -> Result<AgentProgram> {
    let spec = AgentSpec { name: String::new(), ..agent.clone() };
    let spec = toml::to_string(&spec).map_err(|error| anyhow!("the agent cannot be written as TOML: {error}"))?;
    let mut join = InlineTable::new();
    join.insert("best", InlineTable::from_iter([("command", test)]).into());
    let mut workflow = Table::new();
    workflow.insert("kind", value("parallel"));
    workflow.insert("name", value(format!("best of {count}")));
    workflow.insert("branches", value(Array::from_iter(std::iter::repeat_n(AGENT, count))));
    workflow.insert("join", value(join));
    // A failed attempt does not end the others.
    workflow.insert("at_least", value(1));
    let mut file = DocumentMut::new();
    file.insert("workflow", Item::Table(workflow));
    let mut agents = Table::new();
    agents.set_implicit(true);
    agents.insert(AGENT, Item::Table(spec.parse::<DocumentMut>()?.as_table().clone()));
    file.insert("agents", Item::Table(agents));
    AgentProgram::parse(file.to_string()).map_err(|error| usage_error(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_of_all_agents_is_replaced() {
        let text = "# Two agents.\n[agents.one]\nfallback = [\"x/y\"]\n[agents.two]\nmodel = \"a/b\"\n";
        let changed = with_model(text, "c/d").unwrap();
        assert_eq!(changed, "# Two agents.\n[agents.one]\nmodel = \"c/d\"\n[agents.two]\nmodel = \"c/d\"\n");
    }

    #[test]
    fn a_best_of_run_is_a_run_file() {
        let agent = AgentSpec { model: Some("a/b".into()), ..AgentSpec::default_agent(None).unwrap() };
        let program = best_of(&agent, 3, "grep \"x\" 'y'").unwrap();
        let AgentProgram::RunFile { file, text } = program else { panic!("not a run file") };
        assert!(file.has_workflow());
        assert_eq!(file.agents[AGENT].prompt, agent.prompt);
        assert!(text.contains("branches = [\"attempt\", \"attempt\", \"attempt\"]"), "{text}");
    }
}
