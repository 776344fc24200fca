//! From bytes to a turn.

use rath_core::Delta;

use super::block;
use crate::failure::Failure;
use crate::fields::{Fields, Seen, is_null, text_of};
use crate::reply::Reply;
use crate::stream::{Events, Told, decoder, says_something};
use crate::turn::{Block, Stop, Turn};
use crate::used::Used;

decoder!(Message);

/// Reads an answer that came at once, or an error in place of one.
pub fn decode_whole(reply: &Reply<'_>) -> Result<Turn, Failure> {
    if !(200..300).contains(&reply.status) {
        return Err(Failure::refused(reply));
    }
    let answer: Fields = serde_json::from_slice(reply.body).map_err(|error| Failure::unreadable(reply.body, &error))?;
    if answer.text("type").as_deref() == Some("error") || answer.get("error").is_some_and(says_something) {
        return Err(Failure::refused_quietly(reply));
    }
    let mut message = Message::default();
    message.start(answer);
    Ok(message.turn())
}

/// A message as its events make it.
#[derive(Debug, Default)]
struct Message {
    answer: Fields,
    used: Fields,
    blocks: Vec<(u64, Block)>,
    started: bool,
    stopped: bool,
}

impl Events for Message {
    fn event(&mut self, event: Told<'_>, heard: &mut dyn FnMut(Delta)) -> Result<(), Failure> {
        match &*event.kind {
            _ if self.stopped => {}
            "content_block_delta" => self.grow(&event.seen, heard),
            "content_block_start" => self.begin(&event.seen, heard),
            "message_start" if !self.started => {
                let message = event.seen.get("message").map(|message| Fields::parse(message.get()));
                self.start(message.and_then(Result::ok).unwrap_or_default());
            }
            "message_delta" => self.change(&event.seen),
            "message_stop" => self.stopped = true,
            _ => {}
        }
        Ok(())
    }

    fn whole(&self) -> bool {
        self.stopped
    }

    fn turn(self) -> Turn {
        let Self { mut answer, used, blocks, .. } = self;
        let stop = answer.take_text("stop_reason").map(Stop::of);
        let turn = Turn {
            id: answer.take_text("id"),
            model: answer.take_text("model"),
            blocks: blocks.into_iter().map(|(_, block)| block).collect(),
            stop,
            used: Used::anthropic(used),
            ..Turn::default()
        };
        turn.with_answer(answer)
    }
}

impl Message {
    /// The message begins, or is there as a whole.
    fn start(&mut self, mut answer: Fields) {
        self.started = true;
        let content: Option<Vec<Fields>> = answer.read("content");
        if let Some(content) = content {
            answer.take("content");
            self.blocks = content.into_iter().map(block::read).zip(0..).map(|(block, at)| (at, block)).collect();
        }
        self.used = answer.object("usage");
        answer.take("usage");
        self.answer = answer;
    }

    fn begin(&mut self, event: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
        let fields = event.get("content_block").map(|block| Fields::parse(block.get()));
        if let Some(Ok(fields)) = fields {
            let index = event.index("index").unwrap_or(self.blocks.len() as u64);
            self.blocks.push((index, block::begin(fields, heard)));
        }
    }

    /// Blocks may have gaps between their numbers, and a number may come twice: the younger block is meant.
    fn grow(&mut self, event: &Seen<'_>, heard: &mut dyn FnMut(Delta)) {
        let index = event.index("index");
        let meant = self.blocks.iter_mut().rev().find(|(at, _)| index.is_none_or(|index| index == *at));
        if let Some((_, block)) = meant {
            block::grow(block, &event.object("delta"), heard);
        }
    }

    /// How the message ends, and what it used: figures take the place of those it began with.
    fn change(&mut self, event: &Seen<'_>) {
        for (key, value) in event.object("delta").iter().filter(|(_, value)| !is_null(value)) {
            self.answer.set(key, value.to_owned());
        }
        for (key, value) in event.object("usage").iter().filter(|(_, value)| !is_null(value)) {
            self.used.set(key, value.to_owned());
        }
        let beside = event.iter().filter(|(key, _)| !matches!(*key, "type" | "delta" | "usage"));
        for (key, value) in beside.filter(|(_, value)| text_of(value).is_none() && !is_null(value)) {
            self.answer.set(key, value.to_owned());
        }
    }
}
