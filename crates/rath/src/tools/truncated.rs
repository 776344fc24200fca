//! What was left out of long outputs: read on part by part, so that nothing has to be run again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::cut;

/// How many of them are kept.
const MOST: usize = 8;

const PREFIX: &str = "out-";

/// The rests of a desk, as far as nobody has read them, by number.
#[derive(Debug, Default)]
pub(super) struct LeftOut(Mutex<Rests>);

#[derive(Debug, Default)]
struct Rests {
    count: u64,
    texts: BTreeMap<u64, String>,
}

impl LeftOut {
    /// After those of another process, which are gone.
    pub(super) fn after<'a>(recorded: impl Iterator<Item = &'a String>) -> Self {
        let number = |id: &String| id.strip_prefix(PREFIX)?.parse().ok();
        let count = recorded.filter_map(number).max().unwrap_or(0);
        Self(Mutex::new(Rests { count, ..Rests::default() }))
    }

    /// Keeps what was left out of an output. Says its id.
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

    /// The next `most` characters; `None` where this is not the id of an output.
    pub(super) fn read_on(&self, id: &str, most: usize) -> Option<Result<String, String>> {
        let id = id.trim();
        let number = id.strip_prefix(PREFIX)?.parse::<u64>().ok()?;
        let mut rests = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(text) = rests.texts.remove(&number) else {
            let advice = "run the command again with `> FILE 2>&1` if it does no harm";
            return Some(Err(format!("{id} was read to its end, or is not kept any more: {advice}")));
        };
        let (next, rest) = cut::at(&text, most);
        if rest.is_empty() {
            return Some(Ok(format!("{next}\n[that was all that was left out]")));
        }
        let more = rest.chars().count();
        rests.texts.insert(number, rest.to_owned());
        Some(Ok(format!("{next}\n[… {more} characters more: poll \"{id}\" again]")))
    }
}
