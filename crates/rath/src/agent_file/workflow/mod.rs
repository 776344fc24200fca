//! The `[workflow]` tables of a run file.
//!
//! `[workflow]` is the workflow that the run starts with, and `[workflow.steps.NAME]` are workflows that others refer to by
//! name. Names refer to agents and to these steps. The tables are read twice: once without agents when the file is parsed,
//! which finds all problems with their lines, and once to build the workflow.

mod kinds;
mod parts;
mod table;
mod validators;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use rath_core::BoxWorkflow;
use toml::de::{DeTable, DeValue};

use super::problem::FileProblem;
use crate::agent::Agent;
use table::{Found, Source, Table};

/// The largest number of workflows in a tree. A step that is referred to twice counts twice.
const LARGEST: u64 = 10_000;

/// How deep workflows can be nested.
const DEEPEST: usize = 32;

/// The key of the named workflows.
const STEPS: &str = "steps";

/// Checks the `[workflow]` tables of a run file. Returns the names of the agents that they refer to.
pub(super) fn check(text: &str, agents: &[&str]) -> Result<BTreeSet<String>, Vec<FileProblem>> {
    let placeholders = agents.iter().map(|name| ((*name).to_owned(), Agent::new(*name))).collect();
    read(text, &placeholders).map(|(_, referenced)| referenced)
}

/// Builds the workflow of a run file from its agents.
pub(super) fn build(text: &str, agents: &BTreeMap<String, Agent>) -> Result<BoxWorkflow, Vec<FileProblem>> {
    read(text, agents).map(|(workflow, _)| workflow)
}

fn read(text: &str, agents: &BTreeMap<String, Agent>) -> Result<(BoxWorkflow, BTreeSet<String>), Vec<FileProblem>> {
    let file = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or_default();
        vec![FileProblem::at(text, &span, error.message(), None)]
    })?;
    let mut builder = Builder {
        source: Source::new(text),
        agents,
        steps: BTreeMap::new(),
        built: HashMap::new(),
        open: Vec::new(),
        depth: 0,
        size: 0,
        referenced: BTreeSet::new(),
    };
    let workflow = builder.file(file.get_ref());
    let mut problems = builder.source.problems;
    problems.sort_by_key(|problem| (problem.line, problem.column));
    problems.dedup();
    match workflow {
        Some(workflow) if problems.is_empty() => Ok((workflow, builder.referenced)),
        _ => Err(problems),
    }
}

/// Builds workflows from tables.
struct Builder<'t> {
    source: Source<'t>,
    agents: &'t BTreeMap<String, Agent>,
    /// The named steps that are not built yet or are built.
    steps: BTreeMap<&'t str, (Range<usize>, Found<'t>)>,
    /// The steps that are built, with their sizes. `None`: there is a problem in the step.
    built: HashMap<&'t str, Option<(BoxWorkflow, u64)>>,
    /// The steps that are being built, outermost first.
    open: Vec<&'t str>,
    depth: usize,
    /// The number of workflows in the tree so far.
    size: u64,
    /// The agents that the tables refer to.
    referenced: BTreeSet<String>,
}

/// A workflow with the name that its step or branch has by default.
struct Named {
    name: String,
    workflow: BoxWorkflow,
}

impl<'t> Builder<'t> {
    fn file(&mut self, file: &'t DeTable<'t>) -> Option<BoxWorkflow> {
        let (key, root) = file.iter().find(|(key, _)| key.get_ref() == "workflow")?;
        let Some(table) = root.get_ref().as_table() else { return self.source.expected(root, "a table [workflow]") };
        let steps = table.iter().find(|(key, _)| key.get_ref() == STEPS).map(|(_, steps)| steps);
        if let Some(steps) = steps {
            let Some(steps) = steps.get_ref().as_table() else {
                return self.source.expected(steps, "tables [workflow.steps.NAME]");
            };
            for (name, step) in steps {
                let text = name.get_ref().as_ref();
                if self.agents.contains_key(text) {
                    self.source
                        .problem_with_help(
                            name.span(),
                            format!("{text:?} is the name of an agent and of a step"),
                            "rename one of them",
                        )
                        .unwrap_or(())
                }
                self.steps.insert(text, (name.span(), step));
            }
        }
        let workflow = self.table(key.span(), table, "workflow");
        // Steps that nothing refers to are checked too.
        let names: Vec<&'t str> = self.steps.keys().copied().collect();
        for name in names {
            self.step(name);
        }
        workflow.map(|named| named.workflow)
    }

    /// The workflow that a value refers to by name or describes by a table.
    fn workflow(&mut self, found: Found<'t>) -> Option<Named> {
        match found.get_ref() {
            DeValue::String(name) => self.reference(found.span(), name),
            DeValue::Table(table) => self.table(found.span(), table, ""),
            _ => self.source.expected(found, "the name of an agent or step, or a table with a kind"),
        }
    }

    /// The workflow of a key that must be there.
    fn workflow_of(&mut self, table: &Table<'t>, key: &str, help: &str) -> Option<Named> {
        let found = table.need(&mut self.source, key, help)?;
        self.workflow(found)
    }

    fn reference(&mut self, span: Range<usize>, name: &'t str) -> Option<Named> {
        if let Some(agent) = self.agents.get(name) {
            self.size += 1;
            self.referenced.insert(name.to_owned());
            return Some(Named { name: name.into(), workflow: BoxWorkflow::new(agent.clone()) });
        }
        let Some((&name, _)) = self.steps.get_key_value(name) else {
            let known: Vec<&str> = self.agents.keys().map(String::as_str).chain(self.steps.keys().copied()).collect();
            return self.source.unknown(span, "agent or step", name, known);
        };
        if let Some(start) = self.open.iter().position(|open| *open == name) {
            let circle = [&self.open[start..], &[name]].concat().join(" → ");
            return self.source.problem(span, format!("steps refer to each other in a circle: {circle}"));
        }
        let workflow = self.step(name)?;
        if self.size > LARGEST {
            return self.source.problem(span, format!("the workflow is too large: more than {LARGEST} workflows"));
        }
        Some(Named { name: name.into(), workflow })
    }

    /// Builds a named step once.
    fn step(&mut self, name: &'t str) -> Option<BoxWorkflow> {
        if let Some(built) = self.built.get(name) {
            let (workflow, size) = built.clone()?;
            self.size = self.size.saturating_add(size);
            return Some(workflow);
        }
        let (span, found) = self.steps.get(name).cloned()?;
        let before = self.size;
        self.open.push(name);
        let built = match found.get_ref().as_table() {
            Some(table) => self.table(span, table, name).map(|named| named.workflow),
            None => self.source.expected(found, "a table with a kind"),
        };
        self.open.pop();
        let size = self.size.saturating_sub(before);
        self.built.insert(name, built.clone().map(|workflow| (workflow, size)));
        built
    }

    /// Builds the workflow that a table describes. `name` is its name unless the table has a key `name`.
    fn table(&mut self, span: Range<usize>, table: &'t DeTable<'t>, name: &str) -> Option<Named> {
        if self.depth >= DEEPEST {
            return self.source.problem(span, format!("workflows are nested more than {DEEPEST} levels deep"));
        }
        (self.depth, self.size) = (self.depth + 1, self.size.saturating_add(1));
        let built = self.kind(span, table, name);
        self.depth -= 1;
        built
    }
}

/// Gives each name that occurs several times a number: `fixer 1`, `fixer 2`.
fn numbered(names: Vec<Named>) -> Vec<(String, BoxWorkflow)> {
    let all: Vec<String> = names.iter().map(|named| named.name.clone()).collect();
    let count = |name: &str, of: &[String]| of.iter().filter(|other| *other == name).count();
    let with_number = |(at, Named { name, workflow }): (usize, Named)| match count(&name, &all) {
        1 => (name, workflow),
        _ => (format!("{name} {}", count(&name, &all[..=at])), workflow),
    };
    names.into_iter().enumerate().map(with_number).collect()
}

#[cfg(test)]
mod tests;
