//! The cost of an answer, from a table of the prices that providers publish.

use std::time::{Duration, SystemTime};

use genai_prices::{Calculator, PriceRequest, Usage, UsageKey};
use rath_core::Time;

use crate::turn::ProviderTurn;

/// The price table and its version. The table is built in, so the same answer costs the same on every machine.
pub(crate) const TABLE: &str = "genai-prices 0.2.1";

/// The provider that states its charge in the response.
const STATED: &str = "openrouter";

/// Which provider's prices apply.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PriceSource<'a> {
    /// The provider at this address. A server on this machine has no prices.
    At(&'a str),
    /// The provider of this name in the price table.
    Named(&'a str),
}

/// The cost of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The cost in billionths of a US dollar.
    pub(crate) nano_usd: u64,
    /// The name of the price table that the cost was computed with, or `stated by …`.
    pub(crate) prices: String,
}

impl ProviderTurn {
    /// The cost of the turn at this time. `None` if the provider, the model or the usage is unknown.
    pub(crate) fn cost(&self, asked: &str, price_source: PriceSource<'_>, at: Time) -> Option<Cost> {
        if self.used.raw.is_empty() {
            return None;
        }
        let table = Calculator::bundled();
        let provider = match price_source {
            PriceSource::At(url) => table.find_provider(None, Some(url)),
            PriceSource::Named(name) => table.find_provider(Some(name), None),
        };
        let provider = provider.ok()??.id();
        if let Some(dollars) = self.used.raw.read("cost").filter(|_| provider == STATED) {
            return Some(Cost { nano_usd: nano(dollars)?, prices: format!("stated by {STATED}") });
        }
        let usage = self.priced_usage();
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

    /// The usage in the units of the price table, which includes cached tokens in the input too.
    fn priced_usage(&self) -> Usage {
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
    use crate::provider_usage::ProviderUsage;

    const NOW: Time = Time(1_800_000_000_000_000);

    fn turn(model: &str, used: ProviderUsage) -> ProviderTurn {
        ProviderTurn { model: Some(model.into()), used, ..ProviderTurn::default() }
    }

    fn raw(json: &str) -> Fields {
        Fields::parse(json).unwrap()
    }

    fn cost(turn: &ProviderTurn, price_source: PriceSource<'_>) -> Option<u64> {
        turn.cost("asked", price_source, NOW).map(|cost| cost.nano_usd)
    }

    #[test]
    fn the_table_version_matches_cargo_lock() {
        let lock = include_str!("../../../Cargo.lock");
        let (name, version) = TABLE.split_once(' ').unwrap();
        assert!(
            lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"\n")),
            "{TABLE} is not in Cargo.lock"
        );
    }

    #[test]
    fn cached_tokens_have_their_own_price() {
        let used = ProviderUsage::anthropic(raw(
            r#"{"input_tokens":1000,"cache_read_input_tokens":10000,"cache_creation_input_tokens":2000,
                "output_tokens":500}"#,
        ));
        // Dollars per million tokens: input 3, cached 0.30, cache write 3.75, output 15.
        let wanted = 1000 * 3000 + 10_000 * 300 + 2000 * 3750 + 500 * 15_000;
        let price_source = PriceSource::At("https://api.anthropic.com");
        let sonnet = turn("claude-sonnet-4-5-20250929", used);
        assert_eq!(sonnet.cost("asked", price_source, NOW), Some(Cost { nano_usd: wanted, prices: TABLE.into() }));
        let longer =
            ProviderUsage::anthropic(raw(r#"{"input_tokens":0,"cache_creation_input_tokens":2000,"output_tokens":1,
                "cache_creation":{"ephemeral_5m_input_tokens":500,"ephemeral_1h_input_tokens":1500}}"#));
        assert_eq!(cost(&turn("claude-sonnet-4-5", longer), price_source), Some(500 * 3750 + 1500 * 6000 + 15_000));
        let openai = r#"{"prompt_tokens":3000,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":2000},
            "completion_tokens_details":{"reasoning_tokens":60}}"#;
        let mini = turn("gpt-5-mini-2025-08-07", ProviderUsage::chat(raw(openai)));
        let price_source = PriceSource::At("https://api.openai.com/v1");
        assert_eq!(cost(&mini, price_source), Some(1000 * 250 + 2000 * 25 + 100 * 2000));
        let mut flex = mini;
        flex.rest.answer.put("service_tier", "flex");
        assert_eq!(cost(&flex, price_source), Some((1000 * 250 + 2000 * 25 + 100 * 2000) / 2));
    }

    #[test]
    fn an_unknown_price_is_none_and_not_zero() {
        let used = || ProviderUsage::chat(raw(r#"{"prompt_tokens":3000,"completion_tokens":100}"#));
        let known = PriceSource::Named("openai");
        assert_eq!(cost(&turn("gpt-5", used()), known), Some(3000 * 1250 + 100 * 10_000));
        assert_eq!(
            cost(&turn("gpt-5", used()), PriceSource::At("http://localhost:11434/v1")),
            None,
            "local servers have no price"
        );
        assert_eq!(cost(&turn("gpt-5", used()), PriceSource::Named("unknown")), None);
        assert_eq!(cost(&turn("a-model-of-next-year", used()), known), None);
        assert_eq!(cost(&turn("gpt-5", ProviderUsage::default()), known), None, "no usage in the response");
        let odd = ProviderUsage::chat(raw(r#"{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}"#));
        assert_eq!(cost(&turn("gpt-5", odd), known), None, "more cached tokens than input tokens");
        let asked = turn("my-deployment", used()).cost("gpt-5", known, NOW);
        assert_eq!(
            asked.map(|cost| cost.nano_usd),
            Some(3000 * 1250 + 100 * 10_000),
            "priced by the requested model name"
        );
    }

    #[test]
    fn a_cost_stated_by_the_provider_is_used() {
        let used = ProviderUsage::chat(raw(r#"{"prompt_tokens":3,"completion_tokens":1,"cost":0.00014}"#));
        let price_source = PriceSource::At("https://openrouter.ai/api/v1");
        let stated = Cost { nano_usd: 140_000, prices: "stated by openrouter".into() };
        assert_eq!(turn("any/model", used).cost("any/model", price_source, NOW), Some(stated));
    }
}
