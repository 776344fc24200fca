//! Entries in the order of the records, but for what belongs to a call: that stands under the call.

use std::collections::HashMap;

use super::Told;
use crate::output::{Page, style};

/// A transcript in the making.
#[derive(Default)]
pub(crate) struct Blocks {
    lines: Vec<Vec<String>>,
    /// Where a call's block is, and whether something was said below it.
    calls: HashMap<String, (usize, bool)>,
}

impl Blocks {
    pub(crate) fn add(&mut self, entries: Vec<Told>) {
        for Told { call, begins, lines } in entries {
            let block = call.as_ref().filter(|_| !begins).and_then(|call| self.calls.get_mut(call));
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

    /// Writes it; calls without a word below them say so.
    pub(crate) fn write(self, page: &mut Page) {
        let mut lines = self.lines;
        for (at, answered) in self.calls.into_values() {
            if !answered {
                let indent = lines[at].first().map_or(0, |line| words_begin(line));
                lines[at].push(format!("{:indent$}{}", "", style::label("… no result")));
            }
        }
        for line in lines.into_iter().flatten() {
            page.line(line);
        }
    }
}

/// The column at which the arrow of a call stands.
fn words_begin(line: &str) -> usize {
    let plain = anstream::adapter::strip_str(line).to_string();
    plain.chars().position(|c| c == '→').unwrap_or(0)
}
