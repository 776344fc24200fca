//! The omitted text of long outputs. A model can read it part by part, without running the command again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::cut;

/// The number of outputs that are kept.
const MOST: usize = 8;

const PREFIX: &str = "out-";

/// The unread parts of the truncated outputs of a tool workspace, by number.
#[derive(Debug, Default)]
pub(super) struct TruncatedOutput(Mutex<Rests>);

#[derive(Debug, Default)]
struct Rests {
    count: u64,
    texts: BTreeMap<u64, String>,
}

impl TruncatedOutput {
    /// Continues the numbers of another process, whose outputs are lost.
    pub(super) fn after<'a>(recorded: impl Iterator<Item = &'a String>) -> Self {
        let number = |id: &String| id.strip_prefix(PREFIX)?.parse().ok();
        let count = recorded.filter_map(number).max().unwrap_or(0);
        Self(Mutex::new(Rests { count, ..Rests::default() }))
    }

    /// Keeps the omitted text of an output. Returns its id.
    pub(super) fn keep(&self, text: &str) -> String {
        let mut rests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        rests.count += 1;
        let number = rests.count;
        rests.texts.insert(number, text.to_owned());
        if rests.texts.len() > MOST {
            rests.texts.pop_first();
        }
        format!("{PREFIX}{number}")
    }

    /// The next `most` characters; `None` if `id` is not the id of an output.
    pub(super) fn read_on(&self, id: &str, most: usize) -> Option<Result<String, String>> {
        let id = id.trim();
        let number = id.strip_prefix(PREFIX)?.parse::<u64>().ok()?;
        let mut rests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(text) = rests.texts.remove(&number) else {
            let advice = "run the command again with `> FILE 2>&1` if it does no harm";
            return Some(Err(format!("{id} was read to its end or is no longer kept: {advice}")));
        };
        let (next, rest) = cut::at(&text, most);
        if rest.is_empty() {
            return Some(Ok(format!("{next}\n[end of the omitted output]")));
        }
        let more = rest.chars().count();
        rests.texts.insert(number, rest.to_owned());
        Some(Ok(format!("{next}\n[… {more} characters more: poll \"{id}\" again]")))
    }
}
