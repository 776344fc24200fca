//! From bytes to a turn.

use std::collections::BTreeMap;

use rath_core::Delta;
use serde_json::value::RawValue;

use super::grown::Object;
use super::message::Message;
use super::write;
use crate::failure::Failure;
use crate::fields::{Fields, Seen, is_null, items_of};
use crate::reply::Reply;
use crate::stream::{Events, Told, decoder, says_something};
use crate::turn::{Rest, Stop, Turn};
use crate::used::Used;

decoder!(Completion);

/// Reads an answer that came at once, or an error in place of one.
pub fn decode_whole(reply: &Reply<'_>) -> Result<Turn, Failure> {
    if !(200..300).contains(&reply.status) {
        return Err(Failure::refused(reply));
    }
    let unreadable = |error: &dyn std::fmt::Display| Failure::unreadable(reply.body, error);
    let body = std::str::from_utf8(reply.body).map_err(|error| unreadable(&error))?;
    let answer = Seen::of(body).map_err(|error| unreadable(&error))?;
    if answer.get("error").is_some_and(says_something) {
        return Err(Failure::refused_quietly(reply));
    }
    let mut completion = Completion::default();
    completion.answer(&answer);
    completion.choices(&answer, &mut |_| {});
    Ok(completion.turn())
}

/// A completion as its chunks make it.
#[derive(Debug, Default)]
struct Completion {
    answer: Fields,
    choices: BTreeMap<u64, Choice>,
    used: Fields,
    closed: bool,
}

/// One of the answers. Mostly there is one.
#[derive(Debug, Default)]
struct Choice {
    rest: Object,
    message: Message,
    stop: Option<Stop>,
}

impl Events for Completion {
    fn event(&mut self, event: Told<'_>, heard: &mut dyn FnMut(Delta)) -> Result<(), Failure> {
        self.answer(&event.seen);
        self.choices(&event.seen, heard);
        Ok(())
    }

    fn closed(&mut self) {
        self.closed = true;
    }

    /// Not every dialect closes the stream, but all say why the turn ended.
    fn whole(&self) -> bool {
        let stopped = self.choices.values().next().is_some_and(|choice| choice.stop.is_some());
        stopped || (self.closed && !self.answer.is_empty())
    }

    /// What was used comes after the word that it is whole.
    fn over(&self) -> bool {
        self.closed
    }

    fn turn(self) -> Turn {
        let mut answer = self.answer;
        let mut choices = self.choices.into_values().map(Choice::turn);
        let mut turn = choices.next().unwrap_or_default();
        turn.rest.others = choices.map(|other| write::choice(&other)).collect();
        let elsewhere = [answer.object("x_groq").object("usage"), turn.rest.choice.object("usage")];
        let used = [self.used].into_iter().chain(elsewhere).find(|used| !used.is_empty());
        turn.used = Used::chat(used.unwrap_or_default());
        turn.id = answer.take_text("id");
        turn.model = answer.take_text("model");
        turn.with_answer(answer)
    }
}

impl Choice {
    fn turn(self) -> Turn {
        let (blocks, message) = self.message.close();
        let rest = Rest { choice: self.rest.close(), message, ..Rest::default() };
        Turn { blocks, stop: self.stop, rest, ..Turn::default() }
    }

    fn add(&mut self, choice: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
        for (key, value) in choice.iter() {
            match key {
                "delta" => self.message.add(&Seen::of_value(value), heard),
                "message" if choice.get("delta").is_none() => self.message.add_whole(&Seen::of_value(value)),
                "message" => {}
                "finish_reason" => self.rest.keep_place(key),
                _ => self.rest.add(key, value),
            }
        }
        if let Some(word) = choice.text("finish_reason").filter(|word| !word.is_empty()) {
            self.stop = Some(Stop::of(word));
        }
    }
}

impl Completion {
    /// Takes the fields around the choices. They are sent again with every chunk: the first that says something counts.
    fn answer(&mut self, chunk: &Seen<'_>) {
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
            Some(held) if matches!(held.get(), "null" | "\"\"" | "0") => self.answer.set(key, value.to_owned()),
            Some(held) if held.get().starts_with('{') && value.get().starts_with('{') => {
                let mut fields = self.answer.object(key);
                for (key, value) in Seen::of_value(value).iter() {
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

    /// Takes the choices. Only the first is heard.
    fn choices(&mut self, chunk: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
        for choice in chunk.get("choices").map(items_of).unwrap_or_default() {
            let choice = Seen::of_value(choice);
            let index = choice.index("index").unwrap_or(0);
            let held = self.choices.entry(index).or_default();
            match index {
                0 => held.add(&choice, heard),
                _ => held.add(&choice, &mut |_| {}),
            }
        }
    }
}
