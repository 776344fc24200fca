//! One reader for each kind of workflow.

use std::ops::Range;

use globset::GlobBuilder;
use rath_core::BoxWorkflow;
use rath_core::Time;
use rath_core::files::{Driver, Drivers};
use toml::de::{DeTable, DeValue};

use super::parts::{ChooseByValidator, Items, MapOver, Task, ValidatedCase};
use super::table::{Found, Table, json_of};
use super::{Builder, Named, STEPS, numbered};
use crate::agent::Budget;
use crate::workflow::{
    Chain, Join, OnConflict, OnReject, Parallel, chain, compensate, gate, map, parallel, race, repeat, retry, sleep,
    sleep_until, timeout, wait_for,
};

/// The kinds of workflows, with their keys.
const KINDS: &[(&str, &[&str])] = &[
    ("chain", &["run"]),
    ("choose", &["cases", "otherwise"]),
    ("compensate", &["run"]),
    ("gate", &["work", "validators", "on_reject"]),
    ("map", &["each", "items", "task", "at_most", "join", "on_conflict", "at_least"]),
    ("parallel", &["branches", "at_most", "join", "on_conflict", "at_least", "budget"]),
    ("race", &["branches", "at_most", "on_conflict", "budget"]),
    ("repeat", &["work", "until", "rounds", "budget"]),
    ("retry", &["work", "attempts", "backoff", "on", "tell_reason", "irreversible_ok"]),
    ("sleep", &["for", "until"]),
    ("timeout", &["work", "limit"]),
    ("wait_for", &["event"]),
];

const WORK: &str = "`work` is the name of an agent or step, or a table with a kind";

impl<'t> Builder<'t> {
    /// Builds the workflow of a table by its `kind`.
    pub(super) fn kind(&mut self, span: Range<usize>, table: &'t DeTable<'t>, name: &str) -> Option<Named> {
        let is_root = self.depth == 1 && self.open.is_empty();
        let kind = table.iter().find(|(key, _)| key.get_ref() == "kind").map(|(_, kind)| kind);
        let Some(kind) = kind else {
            let kinds: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            let help = format!("the kinds are {}", kinds.join(", "));
            return self.source.problem_with_help(span, "missing key \"kind\"", help);
        };
        let kind_name = self.source.text(kind)?;
        let Some((kind, keys)) = KINDS.iter().find(|(known, _)| *known == kind_name) else {
            return self.source.unknown(kind.span(), "kind", &kind_name, KINDS.iter().map(|(kind, _)| *kind));
        };
        let common = ["kind", "name"].into_iter().chain(is_root.then_some(STEPS));
        let keys: Vec<&str> = keys.iter().copied().chain(common).collect();
        let table = Table::of(&mut self.source, span, table, kind, &keys);
        let name = match table.get("name") {
            Some(name) => self.source.text(name)?,
            None if name.is_empty() => (*kind).to_owned(),
            None => name.to_owned(),
        };
        let workflow = match *kind {
            "chain" => self.chain(&table, &name),
            "choose" => self.choose(&table, &name),
            "compensate" => self.compensate(&table, &name),
            "gate" => self.gate(&table, &name),
            "map" => self.map(&table, &name),
            "parallel" => self.branches(&table, parallel(&name)),
            "race" => self.branches(&table, race(&name)),
            "repeat" => self.repeat(&table, &name),
            "retry" => self.retry(&table, &name),
            "sleep" => self.sleep(&table, &name),
            "timeout" => self.timeout(&table, &name),
            _ => self.wait_for(&table),
        }?;
        Some(Named { name, workflow })
    }

    fn chain(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        const HELP: &str = "`run` lists what runs one after the other: run = [\"plan\", \"execute\"]";
        let run = table.need(&mut self.source, "run", HELP)?;
        let links = self.source.list(run, "agents and steps")?;
        let links: Vec<Option<BoxWorkflow>> = links.iter().map(|link| self.link(link)).collect();
        let chained = |all: Chain, link: Option<BoxWorkflow>| Some(all.then(link?));
        Some(BoxWorkflow::new(links.into_iter().try_fold(chain(name), chained)?))
    }

    /// A link of a chain: a workflow, or the task of the next one.
    fn link(&mut self, link: Found<'t>) -> Option<BoxWorkflow> {
        let table = link.get_ref().as_table();
        match table.filter(|table| table.iter().any(|(key, _)| key.get_ref() == "task")) {
            Some(table) => {
                let table = Table::of(&mut self.source, link.span(), table, "a task", &["task"]);
                let task = table.get("task")?;
                Some(BoxWorkflow::new(Task(self.source.text(task)?)))
            }
            None => self.workflow(link).map(|named| named.workflow),
        }
    }

    fn branches(&mut self, table: &Table<'t>, mut all: Parallel) -> Option<BoxWorkflow> {
        const HELP: &str = "`branches` lists agents and steps: branches = [\"one\", \"two\"]";
        let branches = table.need(&mut self.source, "branches", HELP);
        if let Some(join) = table.get("join").map(|join| self.join(join)) {
            all = all.join(join?);
        }
        if let Some(on_conflict) = table.get("on_conflict").map(|on_conflict| self.on_conflict(on_conflict)) {
            all = all.on_conflict(on_conflict?);
        }
        if let Some(at_most) = table.get("at_most") {
            all = all.at_most(self.source.count(at_most)? as usize);
        }
        if let Some(at_least) = table.get("at_least") {
            all = all.collect(self.source.count(at_least)? as usize);
        }
        if let Some(budget) = table.get("budget") {
            all = all.budget(self.shared_budget(budget)?);
        }
        let branches = self.source.list(branches?, "agents and steps")?;
        let branches: Vec<Option<Named>> = branches.iter().map(|branch| self.workflow(branch)).collect();
        let branches = numbered(branches.into_iter().collect::<Option<Vec<Named>>>()?);
        Some(BoxWorkflow::new(branches.into_iter().fold(all, |all, (name, workflow)| all.branch(name, workflow))))
    }

    fn map(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        const HELP: &str = "`each` is the agent or step that runs once for each item";
        let each = self.workflow_of(table, "each", HELP);
        let items = match table.get("items") {
            Some(items) => self.items(items),
            None => Some(Items::Output),
        };
        let task = match table.get("task") {
            Some(task) => Some(self.source.text(task)?),
            None => None,
        };
        let mut map = map(name, each?.workflow);
        if let Some(join) = table.get("join").map(|join| self.join(join)) {
            map = map.join(join?);
        }
        if let Some(on_conflict) = table.get("on_conflict").map(|on_conflict| self.on_conflict(on_conflict)) {
            map = map.on_conflict(on_conflict?);
        }
        if let Some(at_most) = table.get("at_most") {
            map = map.at_most(self.source.count(at_most)? as usize);
        }
        if let Some(at_least) = table.get("at_least") {
            map = map.collect(self.source.count(at_least)? as usize);
        }
        Some(BoxWorkflow::new(MapOver { map, items: items?, task }))
    }

    fn items(&mut self, items: Found<'t>) -> Option<Items> {
        const HELP: &str =
            "items are a list, { files = \"docs/*.md\" }, { answer = \"lines\" } or { answer = \"json\" }";
        let table = match items.get_ref() {
            DeValue::Array(list) => {
                return Some(Items::List(list.iter().map(|item| json_of(item.get_ref())).collect()));
            }
            DeValue::Table(table) => Table::of(&mut self.source, items.span(), table, "items", &["files", "answer"]),
            _ => return self.source.problem_with_help(items.span(), "expected a list or a table", HELP),
        };
        match (table.get("files"), table.get("answer")) {
            (Some(files), None) => {
                let pattern = self.source.text(files)?;
                match GlobBuilder::new(&pattern).literal_separator(true).build() {
                    Ok(glob) => Some(Items::Files(glob.compile_matcher())),
                    Err(why) => self.source.problem(files.span(), format!("not a path pattern: {why}")),
                }
            }
            (None, Some(answer)) => match self.source.text(answer)?.as_str() {
                "lines" => Some(Items::AnswerLines),
                "json" => Some(Items::AnswerJson),
                other => self.source.unknown(answer.span(), "form of an answer", other, ["lines", "json"]),
            },
            _ => self.source.problem_with_help(items.span(), "expected either `files` or `answer`", HELP),
        }
    }

    fn join(&mut self, join: Found<'t>) -> Option<Join> {
        const NAMES: [&str; 3] = ["all", "answers", "majority"];
        const HELP: &str = "a join is \"all\", \"answers\", \"majority\", { best = { command = \"make test\" } }, \
                            { first = 2 } or { synthesize = \"AGENT\" }";
        let table = match join.get_ref() {
            DeValue::String(name) => {
                return match name.as_ref() {
                    "all" => Some(Join::all()),
                    "answers" => Some(Join::answers()),
                    "majority" => Some(Join::majority()),
                    other if ["best", "first", "synthesize"].contains(&other) => {
                        self.source.problem_with_help(join.span(), format!("the join {other:?} is a table"), HELP)
                    }
                    other => self.source.unknown(join.span(), "join", other, NAMES),
                };
            }
            DeValue::Table(table) => table,
            _ => return self.source.problem_with_help(join.span(), "expected a join", HELP),
        };
        let table = Table::of(&mut self.source, join.span(), table, "a join", &["best", "first", "synthesize"]);
        match (table.get("best"), table.get("first"), table.get("synthesize")) {
            (Some(best), None, None) => Some(Join::best(self.validator(best)?)),
            (None, Some(first), None) => Some(Join::first(self.source.count(first)? as usize)),
            (None, None, Some(with)) => Some(Join::synthesize(self.workflow(with)?.workflow)),
            _ => self.source.problem_with_help(join.span(), "expected one join", HELP),
        }
    }

    fn on_conflict(&mut self, found: Found<'t>) -> Option<OnConflict> {
        const HELP: &str = "on_conflict is \"fail\", \"ask\", { resolve = \"AGENT\" } or \
                            { sides = { \"*.lock\" = \"theirs\" } }";
        let table = match found.get_ref() {
            DeValue::String(name) => {
                return match name.as_ref() {
                    "fail" => Some(OnConflict::Fail),
                    "ask" => Some(OnConflict::Ask),
                    other => self.source.unknown(found.span(), "value of on_conflict", other, ["fail", "ask"]),
                };
            }
            DeValue::Table(table) => table,
            _ => return self.source.problem_with_help(found.span(), "expected a text or a table", HELP),
        };
        let table = Table::of(&mut self.source, found.span(), table, "on_conflict", &["resolve", "sides"]);
        match (table.get("resolve"), table.get("sides")) {
            (Some(resolve), None) => Some(OnConflict::resolve(self.workflow(resolve)?.workflow)),
            (None, Some(sides)) => self.sides(sides),
            _ => self.source.problem_with_help(found.span(), "expected either `resolve` or `sides`", HELP),
        }
    }

    fn sides(&mut self, found: Found<'t>) -> Option<OnConflict> {
        let Some(sides) = found.get_ref().as_table() else {
            return self.source.expected(found, "a table of path patterns and sides");
        };
        let mut rules = Vec::with_capacity(sides.len());
        for (pattern, side) in sides {
            let driver = match self.source.text(side)?.as_str() {
                "ours" => Driver::Ours,
                "theirs" => Driver::Theirs,
                other => return self.source.unknown(side.span(), "side", other, ["ours", "theirs"]),
            };
            rules.push((pattern.get_ref().to_string(), driver));
        }
        match Drivers::new(rules) {
            Ok(drivers) => Some(OnConflict::Drivers(drivers)),
            Err(why) => self.source.problem(found.span(), why.to_string()),
        }
    }

    fn retry(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        let mut retry = retry(name, self.workflow_of(table, "work", WORK)?.workflow);
        if let Some(attempts) = table.get("attempts") {
            retry = retry.attempts(self.source.count(attempts)?);
        }
        if let Some(backoff) = table.get("backoff") {
            retry = retry.backoff(self.source.duration(backoff)?);
        }
        if let Some(codes) = table.get("on") {
            retry = retry.on_codes(self.source.texts(codes)?);
        }
        if let Some(tell) = table.get("tell_reason")
            && self.source.flag(tell)?
        {
            retry = retry.tell_reason();
        }
        if let Some(ok) = table.get("irreversible_ok")
            && self.source.flag(ok)?
        {
            retry = retry.irreversible_ok();
        }
        Some(BoxWorkflow::new(retry))
    }

    fn repeat(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        let work = self.workflow_of(table, "work", WORK);
        let until = table.get("until").map(|until| self.validator(until));
        let mut repeat = repeat(name, work?.workflow);
        if let Some(until) = until {
            repeat = repeat.until_accepted(until?);
        }
        if let Some(rounds) = table.get("rounds") {
            repeat = repeat.rounds(self.source.count(rounds)?);
        }
        if let Some(found) = table.get("budget") {
            let budget = self.shared_budget(found)?;
            repeat = budget.tokens.iter().fold(repeat, |repeat, tokens| repeat.tokens(*tokens));
            repeat = budget.cost_nano_usd.iter().fold(repeat, |repeat, cost| repeat.usd(*cost as f64 / 1e9));
        }
        Some(BoxWorkflow::new(repeat))
    }

    /// A budget in dollars and tokens, for several rounds or branches together.
    fn shared_budget(&mut self, found: Found<'t>) -> Option<Budget> {
        const HELP: &str = "a budget of rounds or branches is in dollars or tokens: \"2usd\", \"200k tokens\"";
        let text = self.source.text(found)?;
        match text.parse::<Budget>() {
            Ok(budget) if Budget { tokens: None, cost_nano_usd: None, ..budget } == Budget::default() => Some(budget),
            _ => self.source.problem_with_help(found.span(), format!("{text:?} is not a budget"), HELP),
        }
    }

    fn choose(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        const HELP: &str = "`cases` is a list: cases = [{ when = { answer = \"BUG\" }, then = \"fixer\" }]";
        let cases = table.need(&mut self.source, "cases", HELP)?;
        let cases = self.source.list(cases, "cases")?;
        let (mut conditions, mut workflows) = (Vec::new(), Vec::new());
        for case in cases {
            let Some(case_table) = case.get_ref().as_table() else {
                return self.source.problem_with_help(case.span(), "expected a case", HELP);
            };
            let case = Table::of(&mut self.source, case.span(), case_table, "a case", &["when", "then"]);
            let when = case.need(&mut self.source, "when", HELP);
            conditions.push(self.validator(when?)?);
            workflows.push(self.workflow_of(&case, "then", HELP)?);
        }
        let otherwise = match table.get("otherwise") {
            Some(otherwise) => Some(self.workflow(otherwise)?.workflow),
            None => None,
        };
        let cases = conditions.into_iter().zip(numbered(workflows));
        let cases = cases.map(|(when, (name, then))| ValidatedCase { name, when, then }).collect();
        Some(BoxWorkflow::new(ChooseByValidator { name: name.into(), cases, otherwise }))
    }

    fn timeout(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        let work = self.workflow_of(table, "work", WORK);
        let limit = table.need(&mut self.source, "limit", "`limit` is a time: limit = \"10 min\"")?;
        let limit = self.source.duration(limit)?;
        Some(BoxWorkflow::new(timeout(name, limit, work?.workflow)))
    }

    fn sleep(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        const HELP: &str = "`for` is a time such as \"2h\", `until` a date with an offset such as 2027-01-31T08:00:00Z";
        match (table.get("for"), table.get("until")) {
            (Some(length), None) => Some(BoxWorkflow::new(sleep(name, self.source.duration(length)?))),
            (None, Some(until)) => {
                let text = match until.get_ref() {
                    DeValue::Datetime(time) => time.to_string(),
                    DeValue::String(text) => text.to_string(),
                    _ => String::new(),
                };
                let time: Option<jiff::Timestamp> = text.parse().ok();
                match time.and_then(|time| u64::try_from(time.as_microsecond()).ok()) {
                    Some(time) => Some(BoxWorkflow::new(sleep_until(name, Time(time)))),
                    None => self.source.problem_with_help(until.span(), "expected a time with an offset", HELP),
                }
            }
            _ => self.source.problem_with_help(table.span.clone(), "expected either `for` or `until`", HELP),
        }
    }

    fn wait_for(&mut self, table: &Table<'t>) -> Option<BoxWorkflow> {
        let event =
            table.need(&mut self.source, "event", "`event` is the name given to `rath send S --event NAME JSON`")?;
        Some(BoxWorkflow::new(wait_for(self.source.text(event)?)))
    }

    fn gate(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        const HELP: &str = "`validators` is a list: validators = [{ command = \"make test\" }]";
        let work = self.workflow_of(table, "work", WORK);
        let validators = table.need(&mut self.source, "validators", HELP)?;
        let validators: Vec<_> = match validators.get_ref() {
            DeValue::Table(_) => vec![self.validator(validators)],
            _ => self.source.list(validators, "validators")?.iter().map(|one| self.validator(one)).collect(),
        };
        let on_reject = table.get("on_reject").map(|on_reject| self.on_reject(on_reject));
        let mut gate = gate(name, work?.workflow);
        for validator in validators {
            gate = gate.validator(validator?);
        }
        if let Some(on_reject) = on_reject {
            gate = gate.on_reject(on_reject?);
        }
        Some(BoxWorkflow::new(gate))
    }

    fn on_reject(&mut self, found: Found<'t>) -> Option<OnReject> {
        const HELP: &str = "on_reject is \"fail\", \"ask\" or { retry = 2 }";
        match found.get_ref() {
            DeValue::String(name) => match name.as_ref() {
                "fail" => Some(OnReject::Fail),
                "ask" => Some(OnReject::Ask),
                "retry" => self.source.problem_with_help(found.span(), "how many times?", HELP),
                other => self.source.unknown(found.span(), "value of on_reject", other, ["fail", "ask", "retry"]),
            },
            DeValue::Table(table) => {
                let table = Table::of(&mut self.source, found.span(), table, "on_reject", &["retry"]);
                let times = table.need(&mut self.source, "retry", HELP)?;
                Some(OnReject::Retry(self.source.count(times)?))
            }
            _ => self.source.problem_with_help(found.span(), "expected a text or a table", HELP),
        }
    }

    fn compensate(&mut self, table: &Table<'t>, name: &str) -> Option<BoxWorkflow> {
        const HELP: &str = "`run` is a list: run = [{ work = \"book\", undo = \"cancel\" }, \"pay\"]";
        let run = table.need(&mut self.source, "run", HELP)?;
        let (mut works, mut undos) = (Vec::new(), Vec::new());
        for step in self.source.list(run, "steps")? {
            let fields = step.get_ref().as_table();
            match fields.filter(|fields| fields.iter().any(|(key, _)| key.get_ref() == "work")) {
                // A table with a kind is a workflow, which can have the key `work` too.
                Some(fields) if fields.iter().all(|(key, _)| key.get_ref() != "kind") => {
                    let fields = Table::of(&mut self.source, step.span(), fields, "a step", &["work", "undo"]);
                    let work = self.workflow_of(&fields, "work", HELP);
                    undos.push(Some(self.workflow_of(&fields, "undo", HELP)?.workflow));
                    works.push(work?);
                }
                _ => {
                    works.push(self.workflow(step)?);
                    undos.push(None);
                }
            }
        }
        let steps = numbered(works).into_iter().zip(undos);
        Some(BoxWorkflow::new(steps.fold(compensate(name), |all, ((name, work), undo)| match undo {
            Some(undo) => all.step(name, work, undo),
            None => all.then(name, work),
        })))
    }
}
