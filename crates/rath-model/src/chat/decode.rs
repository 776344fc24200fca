//! Decodes responses into turns.

use std::collections::BTreeMap;

use rath_core::Delta;
use serde_json::value::RawValue;

use super::delta_accumulator::Object;
use super::message::Message;
use super::write;
use crate::failure::ProviderFailure;
use crate::fields::{BorrowedFields, Fields, is_null, items_of};
use crate::http_response::HttpResponse;
use crate::provider_usage::ProviderUsage;
use crate::stream::{EventHandler, ProviderEvent, decoder, reports_error};
use crate::turn::{OtherFields, ProviderTurn, StopReason};

decoder!(Completion);

/// Decodes an answer that was not streamed, or the error response in its place.
pub fn decode_whole(reply: &HttpResponse<'_>) -> Result<ProviderTurn, ProviderFailure> {
    if !(200..300).contains(&reply.status) {
        return Err(ProviderFailure::refused(reply));
    }
    let unreadable = |error: &dyn std::fmt::Display| ProviderFailure::unreadable(reply.body, error);
    let body = std::str::from_utf8(reply.body).map_err(|error| unreadable(&error))?;
    let answer = BorrowedFields::of(body).map_err(|error| unreadable(&error))?;
    if answer.get("error").is_some_and(reports_error) {
        return Err(ProviderFailure::refused_quietly(reply));
    }
    let mut completion = Completion::default();
    completion.answer(&answer);
    completion.choices(&answer, &mut |_| {});
    Ok(completion.turn())
}

/// A completion, assembled from its chunks.
#[derive(Debug, Default)]
struct Completion {
    answer: Fields,
    choices: BTreeMap<u64, Choice>,
    used: Fields,
    closed: bool,
}

/// One of the completion's choices. There is usually only one.
#[derive(Debug, Default)]
struct Choice {
    rest: Object,
    message: Message,
    stop: Option<StopReason>,
}

impl EventHandler for Completion {
    fn event(&mut self, event: ProviderEvent<'_>, on_delta: &mut dyn FnMut(Delta)) -> Result<(), ProviderFailure> {
        self.answer(&event.seen);
        self.choices(&event.seen, on_delta);
        Ok(())
    }

    fn closed(&mut self) {
        self.closed = true;
    }

    /// Not every dialect closes the stream, but all of them give a finish reason.
    fn whole(&self) -> bool {
        let stopped = self.choices.values().next().is_some_and(|choice| choice.stop.is_some());
        stopped || (self.closed && !self.answer.is_empty())
    }

    /// The usage follows the finish reason.
    fn over(&self) -> bool {
        self.closed
    }

    fn turn(self) -> ProviderTurn {
        let mut answer = self.answer;
        let mut choices = self.choices.into_values().map(Choice::turn);
        let mut turn = choices.next().unwrap_or_default();
        turn.rest.others = choices.map(|other| write::choice(&other)).collect();
        let other_places = [answer.object("x_groq").object("usage"), turn.rest.choice.object("usage")];
        let used = [self.used].into_iter().chain(other_places).find(|used| !used.is_empty());
        turn.used = ProviderUsage::chat(used.unwrap_or_default());
        turn.id = answer.take_text("id");
        turn.model = answer.take_text("model");
        turn.with_answer(answer)
    }
}

impl Choice {
    fn turn(self) -> ProviderTurn {
        let (blocks, message) = self.message.close();
        let rest = OtherFields { choice: self.rest.close(), message, ..OtherFields::default() };
        ProviderTurn { blocks, stop: self.stop, rest, ..ProviderTurn::default() }
    }

    fn add(&mut self, choice: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
        for (key, value) in choice.iter() {
            match key {
                "delta" => self.message.add(&BorrowedFields::of_value(value), on_delta),
                "message" if choice.get("delta").is_none() => self.message.add_whole(&BorrowedFields::of_value(value)),
                "message" => {}
                "finish_reason" => self.rest.reserve(key),
                _ => self.rest.add(key, value),
            }
        }
        if let Some(word) = choice.text("finish_reason").filter(|word| !word.is_empty()) {
            self.stop = Some(StopReason::of(word));
        }
    }
}

impl Completion {
    /// Adds the fields outside the choices. Every chunk repeats them: the first value that is not empty is kept.
    fn answer(&mut self, chunk: &BorrowedFields<'_>) {
        for (key, value) in chunk.iter() {
            match key {
                "choices" => {}
                "usage" if !is_null(value) => {
                    self.used = Fields::parse(value.get()).unwrap_or_default();
                    self.keep(key, RawValue::NULL);
                }
                "system_fingerprint" if !is_null(value) => self.answer.set(key, value.to_owned()),
                _ => self.keep(key, value),
            }
        }
    }

    fn keep(&mut self, key: &str, value: &RawValue) {
        match self.answer.get(key) {
            Some(existing) if matches!(existing.get(), "null" | "\"\"" | "0") => self.answer.set(key, value.to_owned()),
            Some(existing) if existing.get().starts_with('{') && value.get().starts_with('{') => {
                let mut fields = self.answer.object(key);
                for (key, value) in BorrowedFields::of_value(value).iter() {
                    if fields.get(key).is_none_or(is_null) {
                        fields.set(key, value.to_owned());
                    }
                }
                self.answer.put(key, &fields);
            }
            Some(_) => {}
            None => self.answer.set(key, value.to_owned()),
        }
    }

    /// Adds the choices. Only the first produces deltas.
    fn choices(&mut self, chunk: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
        for choice in chunk.get("choices").map(items_of).unwrap_or_default() {
            let choice = BorrowedFields::of_value(choice);
            let index = choice.index("index").unwrap_or(0);
            let existing = self.choices.entry(index).or_default();
            match index {
                0 => existing.add(&choice, on_delta),
                _ => existing.add(&choice, &mut |_| {}),
            }
        }
    }
}
