//! Token counts of a turn, normalized from each vendor's way of counting.

use rath_core::Usage;

use crate::fields::Fields;

/// Token counts of one turn, in one convention for all vendors: `input` includes cached tokens, and `output` includes
/// reasoning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderUsage {
    /// Input tokens, including cached ones.
    pub input: u64,
    /// The part of `input` that was read from a cache.
    pub cached: u64,
    /// The part of `input` that was written to a cache.
    pub written: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// The part of `output` that is reasoning.
    pub reasoning: u64,
    /// The vendor's own usage object, verbatim.
    pub raw: Fields,
}

impl ProviderUsage {
    /// Anthropic counts cached tokens separately from `input_tokens`, and lists the tokens used to compact the
    /// conversation under `iterations`, separate from both. This adds them up.
    pub fn anthropic(raw: Fields) -> Self {
        let rounds: Vec<Fields> = raw.read("iterations").unwrap_or_default();
        let compactions = rounds.iter().filter(|round| round.text("type").as_deref() == Some("compaction"));
        let mut used =
            Self { reasoning: raw.object("output_tokens_details").count("thinking_tokens"), ..Self::default() };
        for counted in compactions.chain([&raw]) {
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

    /// Chat Completions includes cached tokens in the input. DeepSeek reports them in a field of its own. Some servers
    /// count reasoning separately from the output, which shows in their `total_tokens`.
    pub fn chat(raw: Fields) -> Self {
        let (input, mut output) = (raw.count("prompt_tokens"), raw.count("completion_tokens"));
        let (read, wrote) = (raw.object("prompt_tokens_details"), raw.object("completion_tokens_details"));
        let reasoning = wrote.count("reasoning_tokens");
        let separate = input.saturating_add(output).saturating_add(reasoning);
        if reasoning > 0 && raw.count("total_tokens") == separate {
            output = output.saturating_add(reasoning);
        }
        let cached = read.count("cached_tokens").max(raw.count("prompt_cache_hit_tokens"));
        Self { input, cached, written: read.count("cache_write_tokens"), output, reasoning, raw }
    }

    /// The Responses API includes cached tokens in the input.
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

impl From<&ProviderUsage> for Usage {
    /// Counts one request. The cost is 0 here; the price table sets it.
    fn from(used: &ProviderUsage) -> Self {
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

    fn figures(used: ProviderUsage) -> [u64; 5] {
        [used.input, used.cached, used.written, used.output, used.reasoning]
    }

    #[test]
    fn usage_of_all_vendors_is_normalized() {
        let raw = |json| Fields::parse(json).unwrap();
        let anthropic = raw(
            r#"{"input_tokens":3,"cache_read_input_tokens":4512,"cache_creation_input_tokens":10,"output_tokens":6,
                "output_tokens_details":{"thinking_tokens":2}}"#,
        );
        assert_eq!(figures(ProviderUsage::anthropic(anthropic)), [4525, 4512, 10, 6, 2]);
        let openai = raw(r#"{"prompt_tokens":4466,"completion_tokens":47,"total_tokens":4513,
                "prompt_tokens_details":{"cached_tokens":4352},"completion_tokens_details":{"reasoning_tokens":7}}"#);
        assert_eq!(figures(ProviderUsage::chat(openai)), [4466, 4352, 0, 47, 7]);
        let deepseek = raw(r#"{"prompt_tokens":492,"completion_tokens":108,"prompt_cache_hit_tokens":384}"#);
        assert_eq!(figures(ProviderUsage::chat(deepseek)), [492, 384, 0, 108, 0]);
        let separate = raw(r#"{"prompt_tokens":10,"completion_tokens":5,"total_tokens":45,
                "completion_tokens_details":{"reasoning_tokens":30}}"#);
        assert_eq!(figures(ProviderUsage::chat(separate)), [10, 0, 0, 35, 30]);
        let responses =
            raw(r#"{"input_tokens":1568,"input_tokens_details":{"cached_tokens":1299,"cache_write_tokens":5},
                "output_tokens":36,"output_tokens_details":{"reasoning_tokens":9}}"#);
        assert_eq!(figures(ProviderUsage::responses(responses)), [1568, 1299, 5, 36, 9]);
    }
}
