//! Decodes responses into turns.

use rath_core::Delta;

use super::item;
use super::partial_item::{List, PartialItem, item_of_event, list_of};
use crate::failure::ProviderFailure;
use crate::fields::{BorrowedFields, Fields};
use crate::http_response::HttpResponse;
use crate::provider_usage::ProviderUsage;
use crate::stream::{EventHandler, ProviderEvent, decoder, reports_error};
use crate::turn::{ProviderTurn, StopReason};

decoder!(Response);

/// Decodes an answer that was not streamed, or the error response in its place.
pub fn decode_whole(reply: &HttpResponse<'_>) -> Result<ProviderTurn, ProviderFailure> {
    if !(200..300).contains(&reply.status) {
        return Err(ProviderFailure::refused(reply));
    }
    let answer: Fields =
        serde_json::from_slice(reply.body).map_err(|error| ProviderFailure::unreadable(reply.body, &error))?;
    if answer.get("output").is_none() && answer.get("error").is_some_and(reports_error) {
        return Err(ProviderFailure::refused_quietly(reply));
    }
    let failed = has_failed(&answer).then(|| ProviderFailure::failed(&answer));
    let turn = turn(answer, Vec::new());
    match failed {
        Some(failure) => Err(failure.with_partial(turn)),
        None => Ok(turn),
    }
}

fn has_failed(answer: &Fields) -> bool {
    answer.text("status").as_deref() == Some("failed")
}

/// A response, assembled from its events.
#[derive(Debug, Default)]
struct Response {
    answer: Fields,
    last: Fields,
    items: Vec<PartialItem>,
    ended: bool,
}

impl EventHandler for Response {
    fn event(&mut self, event: ProviderEvent<'_>, on_delta: &mut dyn FnMut(Delta)) -> Result<(), ProviderFailure> {
        match &*event.kind {
            "response.output_item.added" => self.begin(&event.seen, on_delta),
            "response.output_item.done" => self.close(&event.seen),
            "response.created" => {
                *self = Self::default();
                self.set_response(&event.seen);
            }
            "response.completed" | "response.incomplete" | "response.failed" => return self.end(event),
            _ if event.seen.get("response").is_some() => self.set_response(&event.seen),
            kind => self.grow(kind, &event.seen, on_delta),
        }
        Ok(())
    }

    fn whole(&self) -> bool {
        self.ended
    }

    fn turn(self) -> ProviderTurn {
        let mut turn = turn(self.answer, self.items);
        turn.rest.event = self.last;
        turn
    }
}

impl Response {
    /// Replaces the response fields with those of this event.
    fn set_response(&mut self, event: &BorrowedFields<'_>) {
        if let Some(Ok(answer)) = event.get("response").map(|answer| Fields::parse(answer.get())) {
            self.answer = answer;
        }
    }

    fn end(&mut self, event: ProviderEvent<'_>) -> Result<(), ProviderFailure> {
        self.set_response(&event.seen);
        self.last = Fields::parse(event.data).unwrap_or_default();
        self.last.take("response");
        self.ended = true;
        match event.kind == "response.failed" || has_failed(&self.answer) {
            true => Err(ProviderFailure::failed(&self.answer)),
            false => Ok(()),
        }
    }

    fn begin(&mut self, event: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
        let Some(Ok(item)) = event.get("item").map(|item| Fields::parse(item.get())) else { return };
        if let (Some(id), Some(name)) = (item.text("call_id"), item.text("name")) {
            on_delta(Delta::Call { id, name });
        }
        let index = event.index("output_index").unwrap_or(self.items.len() as u64);
        self.items.push(PartialItem::new(index, item));
    }

    fn close(&mut self, event: &BorrowedFields<'_>) {
        let Some(Ok(item)) = event.get("item").map(|item| Fields::parse(item.get())) else { return };
        let count = self.items.len() as u64;
        match item_of_event(&mut self.items, event) {
            Some(partial_item) => {
                partial_item.item = item;
                partial_item.whole = true;
            }
            None => {
                let index = event.index("output_index").unwrap_or(count);
                self.items.push(PartialItem::whole(index, item));
            }
        }
    }

    fn grow(&mut self, kind: &str, event: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
        let (Some(partial_item), Some(more)) = (item_of_event(&mut self.items, event), event.text("delta")) else {
            return;
        };
        if let Some(list) = list_of(kind) {
            partial_item.add(list, event.index(list.index()).unwrap_or(0), &more);
            on_delta(match list {
                List::Text | List::Refusal => Delta::Text(more.into_owned()),
                _ => Delta::Reasoning(more.into_owned()),
            });
            return;
        }
        match kind {
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                partial_item.add_value(&more);
                on_delta(Delta::Arguments(more.into_owned()));
            }
            "response.mcp_call_arguments.delta" | "response.code_interpreter_call_code.delta" => {
                partial_item.add_value(&more);
            }
            _ => {}
        }
    }
}

/// Builds the turn. Some gateways omit the output from the final event: then the streamed items are the output.
fn turn(mut answer: Fields, mut items: Vec<PartialItem>) -> ProviderTurn {
    let listed: Vec<Fields> = answer.read("output").unwrap_or_default();
    let output = match listed.is_empty() {
        true => {
            items.sort_by_key(|item| item.index);
            items.into_iter().map(PartialItem::close).collect()
        }
        false => listed,
    };
    answer.take("output");
    let used = ProviderUsage::responses(answer.object("usage"));
    answer.take("usage");
    let turn = ProviderTurn {
        id: answer.take_text("id"),
        model: answer.take_text("model"),
        blocks: output.into_iter().flat_map(item::read).collect(),
        stop: stop(&answer),
        used,
        ..ProviderTurn::default()
    };
    turn.with_answer(answer)
}

/// The stop reason: why the response is incomplete, or its status.
fn stop(answer: &Fields) -> Option<StopReason> {
    let reason = answer.object("incomplete_details").text("reason");
    reason.or_else(|| answer.text("status")).filter(|word| word != "in_progress").map(StopReason::of)
}
