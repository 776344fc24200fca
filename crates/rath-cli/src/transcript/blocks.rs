//! Groups the lines of each call under the call. Other lines stay in the order of the records.

use std::collections::HashMap;

use super::CallLines;
use crate::output::{Page, style};

/// A transcript that is being put together.
#[derive(Default)]
pub(crate) struct Blocks {
    lines: Vec<Vec<String>>,
    /// The index of each call's block, and whether the block has a result.
    calls: HashMap<String, (usize, bool)>,
}

impl Blocks {
    pub(crate) fn add(&mut self, entries: Vec<CallLines>) {
        for CallLines { call, starts_block, lines } in entries {
            let block = call.as_ref().filter(|_| !starts_block).and_then(|call| self.calls.get_mut(call));
            match block {
                Some((at, answered)) => {
                    *answered |= !lines.is_empty();
                    self.lines[*at].extend(lines);
                }
                None => {
                    if let Some(call) = call {
                        self.calls.insert(call, (self.lines.len(), false));
                    }
                    self.lines.push(lines);
                }
            }
        }
    }

    /// Writes the transcript. A call without a result is marked.
    pub(crate) fn write(self, page: &mut Page) {
        let mut lines = self.lines;
        for (at, answered) in self.calls.into_values() {
            if !answered {
                let indent = lines[at].first().map_or(0, |line| call_column(line));
                lines[at].push(format!("{:indent$}{}", "", style::label("… no result")));
            }
        }
        for line in lines.into_iter().flatten() {
            page.line(line);
        }
    }
}

/// The column of a call's arrow.
fn call_column(line: &str) -> usize {
    let plain = anstream::adapter::strip_str(line).to_string();
    plain.chars().position(|c| c == '→').unwrap_or(0)
}
