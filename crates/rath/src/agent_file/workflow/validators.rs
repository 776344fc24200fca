//! Validators in run files: tables with one key that says what checks the work.

use toml::de::DeValue;

use super::Builder;
use super::parts::{AnswerContains, HasLabel};
use super::table::{Found, Table, json_of};
use crate::workflow::validator::{BoxValidator, command, judge, only_paths, person, schema};

/// What checks the work, by its key.
const KINDS: &[&str] = &["answer", "command", "judge", "label", "paths", "person", "schema"];

/// The keys that a judge has too.
const OF_A_JUDGE: [&str; 2] = ["agent", "votes"];

const HELP: &str = "a validator is one of { command = \"make test\" }, { paths = [\"src/**\"] }, \
                    { person = \"Accept it?\" }, { judge = \"The text is short.\", agent = \"critic\" }, \
                    { schema = { type = \"array\" } }, { answer = \"ACCEPTED\" }, { label = \"urgent\" }";

impl<'t> Builder<'t> {
    /// A validator.
    pub(super) fn validator(&mut self, found: Found<'t>) -> Option<BoxValidator> {
        let table = match found.get_ref() {
            DeValue::Table(table) => {
                let is_judge = table.iter().any(|(key, _)| key.get_ref() == "judge");
                let more = OF_A_JUDGE.iter().copied().filter(|_| is_judge);
                let keys: Vec<&str> = KINDS.iter().copied().chain(more).collect();
                Table::of(&mut self.source, found.span(), table, "a validator", &keys)
            }
            _ => return self.source.problem_with_help(found.span(), "expected a validator", HELP),
        };
        let given: Vec<&str> = KINDS.iter().copied().filter(|kind| table.get(kind).is_some()).collect();
        let (kind, value) = match given.as_slice() {
            [kind] => (*kind, table.get(kind)?),
            // An unknown key is reported already.
            [] if !self.source.problems.is_empty() => return None,
            _ => return self.source.problem_with_help(found.span(), "expected one validator", HELP),
        };
        match kind {
            "answer" => Some(BoxValidator::new(AnswerContains(self.source.text(value)?))),
            "command" => Some(BoxValidator::new(command(self.source.text(value)?))),
            "judge" => self.judge(&table, value),
            "label" => {
                let text = self.source.text(value)?;
                let (label, value) = match text.split_once('=') {
                    Some((label, value)) => (label.to_owned(), Some(value.to_owned())),
                    None => (text, None),
                };
                Some(BoxValidator::new(HasLabel { label, value }))
            }
            "paths" => match only_paths(self.source.texts(value)?) {
                Ok(paths) => Some(BoxValidator::new(paths)),
                Err(why) => self.source.problem(value.span(), why.to_string()),
            },
            "schema" => match schema(json_of(value.get_ref())) {
                Ok(schema) => Some(BoxValidator::new(schema)),
                Err(why) => self.source.problem(value.span(), why.to_string()),
            },
            _ => Some(BoxValidator::new(person(self.source.text(value)?))),
        }
    }

    fn judge(&mut self, table: &Table<'t>, rubric: Found<'t>) -> Option<BoxValidator> {
        let rubric = self.source.text(rubric)?;
        let found = table.need(&mut self.source, "agent", "`agent` is the name of the agent that judges")?;
        let name = self.source.text(found)?;
        let Some(agent) = self.agents.get(&name) else {
            let agents = self.agents;
            return self.source.unknown(found.span(), "agent", &name, agents.keys().map(String::as_str));
        };
        self.referenced.insert(name);
        let votes = match table.get("votes") {
            Some(votes) => self.source.count(votes)? as usize,
            None => 1,
        };
        Some(BoxValidator::new(judge(agent.clone(), rubric).votes(votes)))
    }
}
