//! Decodes responses into turns.

use rath_core::Delta;

use super::block;
use crate::failure::ProviderFailure;
use crate::fields::{BorrowedFields, Fields, is_null, text_of};
use crate::http_response::HttpResponse;
use crate::provider_usage::ProviderUsage;
use crate::stream::{EventHandler, ProviderEvent, decoder, reports_error};
use crate::turn::{ProviderTurn, StopReason, TurnBlock};

decoder!(Message);

/// Decodes an answer that was not streamed, or the error response in its place.
pub fn decode_whole(reply: &HttpResponse<'_>) -> Result<ProviderTurn, ProviderFailure> {
    if !(200..300).contains(&reply.status) {
        return Err(ProviderFailure::refused(reply));
    }
    let answer: Fields =
        serde_json::from_slice(reply.body).map_err(|error| ProviderFailure::unreadable(reply.body, &error))?;
    if answer.text("type").as_deref() == Some("error") || answer.get("error").is_some_and(reports_error) {
        return Err(ProviderFailure::refused_quietly(reply));
    }
    let mut message = Message::default();
    message.start(answer);
    Ok(message.turn())
}

/// A message, assembled from its events.
#[derive(Debug, Default)]
struct Message {
    answer: Fields,
    used: Fields,
    blocks: Vec<(u64, TurnBlock)>,
    started: bool,
    stopped: bool,
}

impl EventHandler for Message {
    fn event(&mut self, event: ProviderEvent<'_>, on_delta: &mut dyn FnMut(Delta)) -> Result<(), ProviderFailure> {
        match &*event.kind {
            _ if self.stopped => {}
            "content_block_delta" => self.grow(&event.seen, on_delta),
            "content_block_start" => self.begin(&event.seen, on_delta),
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

    fn turn(self) -> ProviderTurn {
        let Self { mut answer, used, blocks, .. } = self;
        let stop = answer.take_text("stop_reason").map(StopReason::of);
        let turn = ProviderTurn {
            id: answer.take_text("id"),
            model: answer.take_text("model"),
            blocks: blocks.into_iter().map(|(_, block)| block).collect(),
            stop,
            used: ProviderUsage::anthropic(used),
            ..ProviderTurn::default()
        };
        turn.with_answer(answer)
    }
}

impl Message {
    /// Starts the message, or reads a whole one.
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

    fn begin(&mut self, event: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
        let fields = event.get("content_block").map(|block| Fields::parse(block.get()));
        if let Some(Ok(fields)) = fields {
            let index = event.index("index").unwrap_or(self.blocks.len() as u64);
            self.blocks.push((index, block::begin(fields, on_delta)));
        }
    }

    /// Adds a delta to its block. Indexes may have gaps, and may occur twice: then the later block is meant.
    fn grow(&mut self, event: &BorrowedFields<'_>, on_delta: &mut dyn FnMut(Delta)) {
        let index = event.index("index");
        let meant = self.blocks.iter_mut().rev().find(|(at, _)| index.is_none_or(|index| index == *at));
        if let Some((_, block)) = meant {
            block::grow(block, &event.object("delta"), on_delta);
        }
    }

    /// Adds the stop reason and the usage. The counts replace those from the start of the message.
    fn change(&mut self, event: &BorrowedFields<'_>) {
        for (key, value) in event.object("delta").iter().filter(|(_, value)| !is_null(value)) {
            self.answer.set(key, value.to_owned());
        }
        for (key, value) in event.object("usage").iter().filter(|(_, value)| !is_null(value)) {
            self.used.set(key, value.to_owned());
        }
        let top_level = event.iter().filter(|(key, _)| !matches!(*key, "type" | "delta" | "usage"));
        for (key, value) in top_level.filter(|(_, value)| text_of(value).is_none() && !is_null(value)) {
            self.answer.set(key, value.to_owned());
        }
    }
}
