//! Token counts and cost of model requests.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// Token counts and cost. Sums are over distinct records, so a shared prefix counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// The number of answers received.
    pub requests: u64,
    /// Input tokens, including cached ones.
    pub input_tokens: u64,
    /// Input tokens that were read from a cache.
    pub cached_tokens: u64,
    /// Input tokens that were written to a cache. Some providers charge for this.
    #[serde(skip_serializing_if = "is_none")]
    pub cache_write_tokens: u64,
    /// Output tokens, including reasoning.
    pub output_tokens: u64,
    /// Output tokens that are reasoning.
    pub reasoning_tokens: u64,
    /// The known cost, in billionths of a US dollar.
    pub cost_nano_usd: u64,
}

impl Usage {
    /// Whether all fields are zero.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            requests: f(self.requests, other.requests),
            input_tokens: f(self.input_tokens, other.input_tokens),
            cached_tokens: f(self.cached_tokens, other.cached_tokens),
            cache_write_tokens: f(self.cache_write_tokens, other.cache_write_tokens),
            output_tokens: f(self.output_tokens, other.output_tokens),
            reasoning_tokens: f(self.reasoning_tokens, other.reasoning_tokens),
            cost_nano_usd: f(self.cost_nano_usd, other.cost_nano_usd),
        }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_none(tokens: &u64) -> bool {
    *tokens == 0
}

impl Add for Usage {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Usage {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in, {} out", self.input_tokens, self.output_tokens)?;
        if self.cached_tokens > 0 {
            write!(f, ", {} cached", self.cached_tokens)?;
        }
        if self.cost_nano_usd > 0 {
            write!(f, ", ${:.4}", self.cost_nano_usd as f64 / 1e9)?;
        }
        Ok(())
    }
}
