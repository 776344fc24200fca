//! Workflows and validators that run files add to those of [`crate::workflow`].

use globset::GlobMatcher;
use rath_core::files::TreeStore;
use rath_core::{BoxWorkflow, Error, ErrorKind, Outline, Result, Session, Workflow};
use serde_json::Value;

use crate::workflow::validator::{BoxValidator, Validation, Validator, validate};
use crate::workflow::{Choose, Map, choose};

/// What a task's text contains where the last answer is inserted.
const ANSWER: &str = "{answer}";

/// What the task of a `map` contains where the item is inserted.
const ITEM: &str = "{item}";

/// Adds a user message: the task of the next workflow.
#[derive(Clone)]
pub(super) struct Task(pub(super) String);

impl Workflow for Task {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        let text = match self.0.contains(ANSWER) {
            true => match session.text().await {
                Ok(answer) => self.0.replace(ANSWER, answer.unwrap_or_default().trim()),
                Err(error) => return Err(error.with_sessions(vec![session])),
            },
            false => self.0.clone(),
        };
        match session.user(text) {
            Ok(_) => Ok(session),
            Err(error) => Err(error.with_sessions(vec![session])),
        }
    }

    fn outline(&self) -> Outline {
        Outline::leaf("task").detail(self.0.lines().next().unwrap_or_default())
    }
}

/// Runs the workflow of the first case whose validator accepts the session.
pub(super) struct ChooseByValidator {
    pub(super) name: String,
    pub(super) cases: Vec<ValidatedCase>,
    pub(super) otherwise: Option<BoxWorkflow>,
}

/// A case of [`ChooseByValidator`].
pub(super) struct ValidatedCase {
    pub(super) name: String,
    pub(super) when: BoxValidator,
    pub(super) then: BoxWorkflow,
}

impl ChooseByValidator {
    /// The combinator, with `chosen` as the case that matches.
    fn with_choice(&self, chosen: Option<usize>) -> Choose {
        let cases = self.cases.iter().enumerate();
        let cases = cases.fold(choose(&self.name), |all, (at, case)| {
            all.when(&case.name, move |_| chosen == Some(at), case.then.clone())
        });
        self.otherwise.iter().fold(cases, |all, otherwise| all.otherwise(otherwise.clone()))
    }
}

impl Workflow for ChooseByValidator {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        let mut chosen = None;
        for (at, case) in self.cases.iter().enumerate() {
            let (validated, validation) = validate(session, &case.when).await?;
            session = validated;
            if validation.is_accepted() {
                chosen = Some(at);
                break;
            }
        }
        self.with_choice(chosen).forward(session).await
    }

    fn outline(&self) -> Outline {
        let outline = self.cases.iter().fold(Outline::leaf("choose").detail(&self.name), |outline, case| {
            outline.child(format!("when {}", case.when.name()), case.then.outline())
        });
        self.otherwise.iter().fold(outline, |outline, otherwise| outline.child("otherwise", otherwise.outline()))
    }
}

/// Where the items of a `map` come from.
#[derive(Clone)]
pub(super) enum Items {
    List(Vec<Value>),
    /// The files of the session's workspace whose paths match.
    Files(GlobMatcher),
    /// The lines of the last answer.
    AnswerLines,
    /// The last answer, a list as JSON.
    AnswerJson,
    /// The last structured output.
    Output,
}

/// Runs a [`Map`] over items that are computed when the step starts.
pub(super) struct MapOver {
    pub(super) map: Map,
    pub(super) items: Items,
    /// The task of each branch, with [`ITEM`] for its item.
    pub(super) task: Option<String>,
}

impl MapOver {
    async fn items(&self, session: &Session) -> Result<Vec<Value>> {
        let items = match &self.items {
            Items::List(items) => items.clone(),
            Items::Files(pattern) => files(session, pattern).await?,
            Items::AnswerLines => {
                let answer = session.text().await?.unwrap_or_default();
                answer.lines().filter_map(item_of_line).map(Value::from).collect()
            }
            Items::AnswerJson => {
                let answer = session.text().await?.unwrap_or_default();
                list_in(&answer).ok_or_else(|| failed("the last answer contains no list as JSON"))?
            }
            Items::Output => {
                let output = session.output::<Vec<Value>>().await?;
                output.ok_or_else(|| failed("map needs `items`, or a list as the output of the agent before it"))?
            }
        };
        let Some(task) = &self.task else { return Ok(items) };
        let task_for = |item: &Value| task.replace(ITEM, item.as_str().unwrap_or(&item.to_string()));
        Ok(items.iter().map(|item| Value::String(task_for(item))).collect())
    }
}

impl Workflow for MapOver {
    async fn forward(&self, session: Session) -> Result<Session> {
        let work = async |session: Session| match self.items(&session).await {
            Ok(items) => Ok((session, items)),
            Err(error) => Err(error.with_sessions(vec![session])),
        };
        let (session, items) = session.step_value("items", work).await?;
        self.map.clone().items(items).forward(session).await
    }

    fn outline(&self) -> Outline {
        self.map.outline()
    }
}

fn failed(why: impl Into<String>) -> Error {
    ErrorKind::Workflow(why.into().into()).into()
}

/// The paths of the files in the session's workspace that match.
async fn files(session: &Session, pattern: &GlobMatcher) -> Result<Vec<Value>> {
    let glob = pattern.glob();
    let Some(version) = &session.state().workspace else {
        return Err(failed(format!("the session has no files, so none match {glob}: start the run with --in DIR")));
    };
    let listed = TreeStore::new(&**session.store()).list(version).await.map_err(ErrorKind::from)?;
    let files = listed.into_iter().filter(|(_, node)| node.is_file()).map(|(path, _)| path.to_string());
    let files: Vec<Value> = files.filter(|path| pattern.is_match(path)).map(Value::from).collect();
    match files.is_empty() {
        true => Err(failed(format!("no file matches {glob}"))),
        false => Ok(files),
    }
}

/// The text of a line without a list marker; `None` for an empty line.
fn item_of_line(line: &str) -> Option<String> {
    let line = line.trim();
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = match numbered.strip_prefix(['.', ')']) {
        Some(rest) if numbered.len() < line.len() && rest.starts_with(' ') => rest,
        _ => line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).unwrap_or(line),
    };
    Some(item.trim().to_owned()).filter(|item| !item.is_empty())
}

/// The list that a text contains as JSON, between its first `[` and its last `]`.
fn list_in(text: &str) -> Option<Vec<Value>> {
    let (start, end) = (text.find('[')?, text.rfind(']')?);
    serde_json::from_str(text.get(start..=end)?).ok()
}

/// Accepts the work if the last answer contains a text.
pub(super) struct AnswerContains(pub(super) String);

impl Validator for AnswerContains {
    fn name(&self) -> String {
        format!("answer contains {:?}", self.0)
    }

    async fn validate(&self, session: Session) -> Result<(Session, Validation)> {
        let answer = match session.text().await {
            Ok(answer) => answer.unwrap_or_default(),
            Err(error) => return Err(error.with_sessions(vec![session])),
        };
        let validation = match answer.contains(&self.0) {
            true => Validation::accept().score(1.0),
            false => Validation::reject(format!("the last answer does not contain {:?}", self.0)).score(0.0),
        };
        Ok((session, validation))
    }
}

/// Accepts the work if the session has a label, with this value if one is given.
pub(super) struct HasLabel {
    pub(super) label: String,
    pub(super) value: Option<String>,
}

impl Validator for HasLabel {
    fn name(&self) -> String {
        match &self.value {
            Some(value) => format!("label {}={value}", self.label),
            None => format!("label {}", self.label),
        }
    }

    async fn validate(&self, session: Session) -> Result<(Session, Validation)> {
        let labels = &session.state().labels;
        let matches = match (labels.get(&self.label), &self.value) {
            (Some(value), Some(wanted)) => value == wanted,
            (found, None) => found.is_some(),
            (None, Some(_)) => false,
        };
        Ok((
            session,
            match matches {
                true => Validation::accept().score(1.0),
                false => Validation::reject(format!("the session has no {}", Validator::name(self))).score(0.0),
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_markers_are_not_part_of_an_item() {
        let items: Vec<_> =
            "- one\n\n * two\n3. three\n4) four\n2026 was\n1.5 kg".lines().filter_map(item_of_line).collect();
        assert_eq!(items, ["one", "two", "three", "four", "2026 was", "1.5 kg"]);
    }

    #[test]
    fn a_list_is_found_in_an_answer() {
        assert_eq!(list_in("Here:\n```json\n[\"a\", 2]\n```"), Some(vec!["a".into(), 2.into()]));
        assert_eq!(list_in("none ]["), None);
    }
}
