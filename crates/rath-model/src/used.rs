//! What a turn used, by each vendor's way of counting.

use rath_core::Usage;

use crate::fields::Fields;

/// What a turn used. All vendors count here alike: cached tokens are part of the input, reasoning of the output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Tokens read, cached ones included.
    pub input: u64,
    /// Of those, read from a cache.
    pub cached: u64,
    /// Of those, written to a cache.
    pub written: u64,
    /// Tokens written, reasoning included.
    pub output: u64,
    /// Of those, reasoning.
    pub reasoning: u64,
    /// The vendor's own figures, as they came.
    pub raw: Fields,
}

impl Used {
    /// Anthropic counts cached tokens beside the input, and what it used to shorten the conversation in a list beside
    /// both.
    pub fn anthropic(raw: Fields) -> Self {
        let rounds: Vec<Fields> = raw.read("iterations").unwrap_or_default();
        let beside = rounds.iter().filter(|round| round.text("type").as_deref() == Some("compaction"));
        let mut used =
            Self { reasoning: raw.object("output_tokens_details").count("thinking_tokens"), ..Self::default() };
        for counted in beside.chain([&raw]) {
            let cached = counted.count("cache_read_input_tokens");
            let written = counted.count("cache_creation_input_tokens");
            let read = counted.count("input_tokens").saturating_add(cached).saturating_add(written);
            used.input = used.input.saturating_add(read);
            used.cached = used.cached.saturating_add(cached);
            used.written = used.written.saturating_add(written);
            used.output = used.output.saturating_add(counted.count("output_tokens"));
        }
        Self { raw, ..used }
    }

    /// Chat Completions count cached tokens within the input. DeepSeek has a field of its own for them; some count
    /// reasoning beside the output, which their own total gives away.
    pub fn chat(raw: Fields) -> Self {
        let (input, mut output) = (raw.count("prompt_tokens"), raw.count("completion_tokens"));
        let (read, wrote) = (raw.object("prompt_tokens_details"), raw.object("completion_tokens_details"));
        let reasoning = wrote.count("reasoning_tokens");
        let beside = input.saturating_add(output).saturating_add(reasoning);
        if reasoning > 0 && raw.count("total_tokens") == beside {
            output = output.saturating_add(reasoning);
        }
        let cached = read.count("cached_tokens").max(raw.count("prompt_cache_hit_tokens"));
        Self { input, cached, written: read.count("cache_write_tokens"), output, reasoning, raw }
    }

    /// Responses count cached tokens within the input, too.
    pub fn responses(raw: Fields) -> Self {
        let read = raw.object("input_tokens_details");
        Self {
            input: raw.count("input_tokens"),
            cached: read.count("cached_tokens"),
            written: read.count("cache_write_tokens"),
            output: raw.count("output_tokens"),
            reasoning: raw.object("output_tokens_details").count("reasoning_tokens"),
            raw,
        }
    }
}

impl From<&Used> for Usage {
    /// What one answer used. What it cost is for the table of prices to say.
    fn from(used: &Used) -> Self {
        Self {
            requests: 1,
            input_tokens: used.input,
            cached_tokens: used.cached,
            cache_write_tokens: used.written,
            output_tokens: used.output,
            reasoning_tokens: used.reasoning,
            cost_nano_usd: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(used: Used) -> [u64; 5] {
        [used.input, used.cached, used.written, used.output, used.reasoning]
    }

    #[test]
    fn every_vendor_counts_in_its_own_way() {
        let raw = |json| Fields::parse(json).unwrap();
        let anthropic = raw(
            r#"{"input_tokens":3,"cache_read_input_tokens":4512,"cache_creation_input_tokens":10,"output_tokens":6,
                "output_tokens_details":{"thinking_tokens":2}}"#,
        );
        assert_eq!(figures(Used::anthropic(anthropic)), [4525, 4512, 10, 6, 2]);
        let openai = raw(r#"{"prompt_tokens":4466,"completion_tokens":47,"total_tokens":4513,
                "prompt_tokens_details":{"cached_tokens":4352},"completion_tokens_details":{"reasoning_tokens":7}}"#);
        assert_eq!(figures(Used::chat(openai)), [4466, 4352, 0, 47, 7]);
        let deepseek = raw(r#"{"prompt_tokens":492,"completion_tokens":108,"prompt_cache_hit_tokens":384}"#);
        assert_eq!(figures(Used::chat(deepseek)), [492, 384, 0, 108, 0]);
        let beside = raw(r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":45,
                "completion_tokens_details":{"reasoning_tokens":30}}"#);
        assert_eq!(figures(Used::chat(beside)), [10, 0, 0, 35, 30]);
        let responses =
            raw(r#"{"input_tokens":1568,"input_tokens_details":{"cached_tokens":1299,"cache_write_tokens":5},
                "output_tokens":36,"output_tokens_details":{"reasoning_tokens":9}}"#);
        assert_eq!(figures(Used::responses(responses)), [1568, 1299, 5, 36, 9]);
    }
}
