//! `todo`: a plan.

use rath_macros::tool;
use schemars::JsonSchema;
use serde::Deserialize;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Todo {
    /// What is to be done.
    pub text: String,
    /// How far it is.
    pub progress: Progress,
}

/// How far something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Nobody works on it.
    Open,
    /// It is being worked on.
    Doing,
    /// It is done.
    Done,
}

/// Keeps a plan of work in several steps. Send the whole list each time: what you send is the list from then on.
#[tool(effect = "pure", paths = "")]
pub fn todo(
    /// The whole list, in the order of work. At most one item is being done.
    items: Vec<Todo>,
) -> Result<String, String> {
    if let Some(at) = items.iter().position(|item| item.text.trim().is_empty()) {
        return Err(format!("`items[{at}].text` is empty: say what is to be done"));
    }
    let doing: Vec<&Todo> = items.iter().filter(|item| item.progress == Progress::Doing).collect();
    if let [first, second, ..] = doing.as_slice() {
        return Err(format!("two items are being done, \"{}\" and \"{}\": leave one `doing`", first.text, second.text));
    }
    if items.is_empty() {
        return Ok("The list is empty.".into());
    }
    let mark = |progress| match progress {
        Progress::Open => " ",
        Progress::Doing => ">",
        Progress::Done => "x",
    };
    let lines: Vec<String> = items.iter().map(|item| format!("[{}] {}", mark(item.progress), item.text)).collect();
    let done = items.iter().filter(|item| item.progress == Progress::Done).count();
    Ok(format!("{}\n{done} of {} done.", lines.join("\n"), items.len()))
}
