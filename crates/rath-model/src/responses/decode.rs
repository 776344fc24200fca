//! From bytes to a turn.

use rath_core::Delta;

use super::growing::{Growing, List, list_of, meant};
use super::item;
use crate::failure::Failure;
use crate::fields::{Fields, Seen};
use crate::reply::Reply;
use crate::stream::{Events, Told, decoder, says_something};
use crate::turn::{Stop, Turn};
use crate::used::Used;

decoder!(Response);

/// Reads an answer that came at once, or an error in place of one.
pub fn decode_whole(reply: &Reply<'_>) -> Result<Turn, Failure> {
    if !(200..300).contains(&reply.status) {
        return Err(Failure::refused(reply));
    }
    let answer: Fields = serde_json::from_slice(reply.body).map_err(|error| Failure::unreadable(reply.body, &error))?;
    if answer.get("output").is_none() && answer.get("error").is_some_and(says_something) {
        return Err(Failure::refused_quietly(reply));
    }
    let failed = has_failed(&answer).then(|| Failure::failed(&answer));
    let turn = turn(answer, Vec::new());
    match failed {
        Some(failure) => Err(failure.with_partial(turn)),
        None => Ok(turn),
    }
}

fn has_failed(answer: &Fields) -> bool {
    answer.text("status").as_deref() == Some("failed")
}

/// An answer as its events make it.
#[derive(Debug, Default)]
struct Response {
    answer: Fields,
    last: Fields,
    items: Vec<Growing>,
    ended: bool,
}

impl Events for Response {
    fn event(&mut self, event: Told<'_>, heard: &mut dyn FnMut(Delta)) -> Result<(), Failure> {
        match &*event.kind {
            "response.output_item.added" => self.begin(&event.seen, heard),
            "response.output_item.done" => self.close(&event.seen),
            "response.created" => {
                *self = Self::default();
                self.hold(&event.seen);
            }
            "response.completed" | "response.incomplete" | "response.failed" => return self.end(event),
            _ if event.seen.get("response").is_some() => self.hold(&event.seen),
            kind => self.grow(kind, &event.seen, heard),
        }
        Ok(())
    }

    fn whole(&self) -> bool {
        self.ended
    }

    fn turn(self) -> Turn {
        let mut turn = turn(self.answer, self.items);
        turn.rest.event = self.last;
        turn
    }
}

impl Response {
    /// Keeps the answer as it is now.
    fn hold(&mut self, event: &Seen<'_>) {
        if let Some(Ok(answer)) = event.get("response").map(|answer| Fields::parse(answer.get())) {
            self.answer = answer;
        }
    }

    fn end(&mut self, event: Told<'_>) -> Result<(), Failure> {
        self.hold(&event.seen);
        self.last = Fields::parse(event.data).unwrap_or_default();
        self.last.take("response");
        self.ended = true;
        match event.kind == "response.failed" || has_failed(&self.answer) {
            true => Err(Failure::failed(&self.answer)),
            false => Ok(()),
        }
    }

    fn begin(&mut self, event: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
        let Some(Ok(item)) = event.get("item").map(|item| Fields::parse(item.get())) else { return };
        if let (Some(id), Some(name)) = (item.text("call_id"), item.text("name")) {
            heard(Delta::Call { id, name });
        }
        let place = event.index("output_index").unwrap_or(self.items.len() as u64);
        self.items.push(Growing::new(place, item));
    }

    fn close(&mut self, event: &Seen<'_>) {
        let Some(Ok(item)) = event.get("item").map(|item| Fields::parse(item.get())) else { return };
        let count = self.items.len() as u64;
        match meant(&mut self.items, event) {
            Some(growing) => {
                growing.item = item;
                growing.whole = true;
            }
            None => {
                let place = event.index("output_index").unwrap_or(count);
                self.items.push(Growing::whole(place, item));
            }
        }
    }

    fn grow(&mut self, kind: &str, event: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
        let (Some(growing), Some(more)) = (meant(&mut self.items, event), event.text("delta")) else { return };
        if let Some(list) = list_of(kind) {
            growing.add(list, event.index(list.index()).unwrap_or(0), &more);
            heard(match list {
                List::Text | List::Refusal => Delta::Text(more.into_owned()),
                _ => Delta::Reasoning(more.into_owned()),
            });
            return;
        }
        match kind {
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                growing.add_value(&more);
                heard(Delta::Arguments(more.into_owned()));
            }
            "response.mcp_call_arguments.delta" | "response.code_interpreter_call_code.delta" => {
                growing.add_value(&more);
            }
            _ => {}
        }
    }
}

/// The turn that an answer is. Where it lists no output, and some gateways leave it out, the items that came are it.
fn turn(mut answer: Fields, mut items: Vec<Growing>) -> Turn {
    let listed: Vec<Fields> = answer.read("output").unwrap_or_default();
    let output = match listed.is_empty() {
        true => {
            items.sort_by_key(|item| item.place);
            items.into_iter().map(Growing::close).collect()
        }
        false => listed,
    };
    answer.take("output");
    let used = Used::responses(answer.object("usage"));
    answer.take("usage");
    let turn = Turn {
        id: answer.take_text("id"),
        model: answer.take_text("model"),
        blocks: output.into_iter().flat_map(item::read).collect(),
        stop: stop(&answer),
        used,
        ..Turn::default()
    };
    turn.with_answer(answer)
}

/// The reason why it is incomplete, or its status.
fn stop(answer: &Fields) -> Option<Stop> {
    let reason = answer.object("incomplete_details").text("reason");
    reason.or_else(|| answer.text("status")).filter(|word| word != "in_progress").map(Stop::of)
}
