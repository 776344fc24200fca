//! What an answer costs, by a table of the prices that providers publish.

use std::time::{Duration, SystemTime};

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use rath_core::Time;

use crate::turn::Turn;

/// The table and its version. It comes with the crate, so a cost is the same wherever and whenever it is worked out.
pub(crate) const TABLE: &str = "genai-prices 0.2.1";

/// OpenRouter sends along what it charges.
const STATED: &str = "openrouter";

/// Whose prices hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seller<'a> {
    /// Those of the provider at this address. Nobody sells what runs on this machine.
    At(&'a str),
    /// Those of the provider of this name.
    Named(&'a str),
}

/// What an answer costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// In billionths of a US dollar.
    pub(crate) nano_usd: u64,
    /// The prices it was worked out with.
    pub(crate) prices: String,
}

impl Turn {
    /// What the turn cost at this time; nothing where the provider, the model or what was used is not known.
    pub(crate) fn cost(&self, asked: &str, seller: Seller<'_>, at: Time) -> Option<Cost> {
        if self.used.raw.is_empty() {
            return None;
        }
        let table = Calculator::bundled();
        let provider = match seller {
            Seller::At(url) => table.find_provider(None, Some(url)),
            Seller::Named(name) => table.find_provider(Some(name), None),
        };
        let provider = provider.ok()??.id();
        if let Some(dollars) = self.used.raw.read("cost").filter(|_| provider == STATED) {
            return Some(Cost { nano_usd: nano(dollars)?, prices: format!("stated by {STATED}") });
        }
        let usage = self.sold();
        let tier = self.rest.answer.text("service_tier").or_else(|| self.used.raw.text("service_tier"));
        let when = SystemTime::UNIX_EPOCH + Duration::from_micros(at.0);
        let price = |model: &str| {
            let mut request = PriceRequest::new(model, &usage).with_provider_id(provider).with_timestamp(when);
            if let Some(tier) = &tier {
                request = request.with_price_context("service_tier", tier);
            }
            table.calculate(&request).ok()
        };
        let priced = self.model.as_deref().and_then(price).or_else(|| price(asked))?;
        Some(Cost { nano_usd: nano(priced.total_price)?, prices: TABLE.into() })
    }

    /// What was used, in the table's words. There, too, cached tokens are part of the input.
    fn sold(&self) -> Usage {
        let used = &self.used;
        let long = used.raw.object("cache_creation").count("ephemeral_1h_input_tokens");
        let searches = used.raw.object("server_tool_use").count("web_search_requests");
        let counts = [
            (UsageKey::INPUT_TOKENS, used.input),
            (UsageKey::CACHE_READ_TOKENS, used.cached),
            (UsageKey::CACHE_WRITE_TOKENS, used.written),
            (UsageKey::CACHE_WRITE_1H_TOKENS, long),
            (UsageKey::OUTPUT_TOKENS, used.output),
            (UsageKey::OUTPUT_REASONING_TOKENS, used.reasoning.min(used.output)),
            (UsageKey::WEB_SEARCHES, searches),
        ];
        counts.into_iter().filter(|(_, count)| *count > 0).map(|(key, count)| (key, count as f64)).collect()
    }
}

fn nano(dollars: f64) -> Option<u64> {
    (dollars.is_finite() && dollars >= 0.0).then(|| (dollars * 1e9).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::Fields;
    use crate::used::Used;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn turn(model: &str, used: Used) -> Turn {
        Turn { model: Some(model.into()), used, ..Turn::default() }
    }

    fn raw(json: &str) -> Fields {
        Fields::parse(json).unwrap()
    }

    fn cost(turn: &Turn, seller: Seller<'_>) -> Option<u64> {
        turn.cost("asked", seller, NOW).map(|cost| cost.nano_usd)
    }

    #[test]
    fn the_version_is_the_one_that_is_built_in() {
        let lock = include_str!("../../../Cargo.lock");
        let (name, version) = TABLE.split_once(' ').unwrap();
        assert!(
            lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")),
            "{TABLE} is not in Cargo.lock"
        );
    }

    #[test]
    fn what_is_cached_has_its_own_price() {
        let used = Used::anthropic(raw(
            r#"{"input_tokens":1000,"cache_read_input_tokens":10000,"cache_creation_input_tokens":2000,
                "output_tokens":500}"#,
        ));
        // 3, 0.30, 3.75 and 15 dollars for a million.
        let wanted = 1000 * 3000 + 10_000 * 300 + 2000 * 3750 + 500 * 15_000;
        let seller = Seller::At("https://api.anthropic.com");
        let sonnet = turn("claude-sonnet-4-5-20250929", used);
        assert_eq!(sonnet.cost("asked", seller, NOW), Some(Cost { nano_usd: wanted, prices: TABLE.into() }));
        let longer = Used::anthropic(raw(r#"{"input_tokens":0,"cache_creation_input_tokens":2000,"output_tokens":1,
                "cache_creation":{"ephemeral_5m_input_tokens":500,"ephemeral_1h_input_tokens":1500}}"#));
        assert_eq!(cost(&turn("claude-sonnet-4-5", longer), seller), Some(500 * 3750 + 1500 * 6000 + 15_000));
        let openai = r#"{"prompt_tokens":3000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":2000},
            "completion_tokens_details":{"reasoning_tokens":60}}"#;
        let mini = turn("gpt-5-mini-2025-08-07", Used::chat(raw(openai)));
        let seller = Seller::At("https://api.openai.com/v1");
        assert_eq!(cost(&mini, seller), Some(1000 * 250 + 2000 * 25 + 100 * 2000));
        let mut flex = mini;
        flex.rest.answer.put("service_tier", "flex");
        assert_eq!(cost(&flex, seller), Some((1000 * 250 + 2000 * 25 + 100 * 2000) / 2));
    }

    #[test]
    fn what_is_not_known_is_not_free() {
        let used = || Used::chat(raw(r#"{"prompt_tokens":3000,"completion_tokens":100}"#));
        let known = Seller::Named("openai");
        assert_eq!(cost(&turn("gpt-5", used()), known), Some(3000 * 1250 + 100 * 10_000));
        assert_eq!(cost(&turn("gpt-5", used()), Seller::At("http://localhost:11434/v1")), None, "nobody sells it");
        assert_eq!(cost(&turn("gpt-5", used()), Seller::Named("nobody")), None);
        assert_eq!(cost(&turn("a-model-of-next-year", used()), known), None);
        assert_eq!(cost(&turn("gpt-5", Used::default()), known), None, "nobody said what was used");
        let odd = Used::chat(raw(r#"{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}"#));
        assert_eq!(cost(&turn("gpt-5", odd), known), None, "figures that cannot be");
        let asked = turn("my-deployment", used()).cost("gpt-5", known, NOW);
        assert_eq!(asked.map(|cost| cost.nano_usd), Some(3000 * 1250 + 100 * 10_000), "the name it was asked by");
    }

    #[test]
    fn a_provider_that_says_what_it_charges_is_believed() {
        let used = Used::chat(raw(r#"{"prompt_tokens":3,"completion_tokens":1,"cost":0.00014}"#));
        let seller = Seller::At("https://openrouter.ai/api/v1");
        let stated = Cost { nano_usd: 140_000, prices: "stated by openrouter".into() };
        assert_eq!(turn("any/model", used).cost("any/model", seller, NOW), Some(stated));
    }
}
