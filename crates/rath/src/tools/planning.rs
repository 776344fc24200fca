//! The tool `todo`.

use rath_macros::tool;
use schemars::JsonSchema;
use serde::Deserialize;

/// An item of the to-do list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Todo {
    /// The task.
    pub text: String,
    /// Its progress.
    pub progress: Progress,
}

/// The progress of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Not started.
    Open,
    /// In progress.
    Doing,
    /// Finished.
    Done,
}

/// Keeps a to-do list for work in several steps. Send the whole list each time: it replaces the list before.
#[tool(effect = "pure", paths = "")]
pub fn todo(
    /// The whole list, in the order of work. At most one item is `doing`.
    items: Vec<Todo>,
) -> Result<String, String> {
    if let Some(at) = items.iter().position(|item| item.text.trim().is_empty()) {
        return Err(format!("`items[{at}].text` is empty: describe the task"));
    }
    let doing: Vec<&Todo> = items.iter().filter(|item| item.progress == Progress::Doing).collect();
    if let [first, second, ..] = doing.as_slice() {
        return Err(format!(
            "two items are in progress, \"{}\" and \"{}\": leave one `doing`",
            first.text, second.text
        ));
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
