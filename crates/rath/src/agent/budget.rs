//! Limits on what an agent may use in one step.

use std::time::Duration;

use rath_core::{AgentLoop, Time, Usage};

/// Limits of one agent's step. A run that reaches a limit fails with an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Turns of the model.
    pub turns: Option<u64>,
    /// Tokens, input and output.
    pub tokens: Option<u64>,
    /// Cost, in billionths of a US dollar. Requests to models without known prices are not counted.
    pub cost_nano_usd: Option<u64>,
    /// Time since this process started or resumed the step. When the limit is reached, a request is abandoned, running
    /// calls are cancelled, and nothing is retried. A run that only waits for an answer ends with `Waiting` instead,
    /// and has the whole time again when it is resumed.
    pub wall_time: Option<Duration>,
}

impl Default for Budget {
    /// A thousand turns. A longer run is probably stuck.
    fn default() -> Self {
        Self { turns: Some(1000), tokens: None, cost_nano_usd: None, wall_time: None }
    }
}

impl Budget {
    /// No limit at all.
    pub const UNLIMITED: Budget = Budget { turns: None, tokens: None, cost_nano_usd: None, wall_time: None };

    /// At most this many turns.
    pub fn turns(turns: u64) -> Self {
        Self { turns: Some(turns), ..Self::default() }
    }

    /// Adds a limit on tokens.
    #[must_use]
    pub fn tokens(self, tokens: u64) -> Self {
        Self { tokens: Some(tokens), ..self }
    }

    /// Adds a limit on cost in US dollars. Models without known prices, such as local ones, are not counted.
    #[must_use]
    pub fn usd(self, dollars: f64) -> Self {
        Self { cost_nano_usd: Some((dollars * 1e9) as u64), ..self }
    }

    /// Adds a time limit.
    #[must_use]
    pub fn wall_time(self, time: Duration) -> Self {
        Self { wall_time: Some(time), ..self }
    }

    /// The limit that is reached, if any, as text.
    pub(super) fn spent(&self, run: &AgentLoop, usage: Usage, since: Time) -> Option<String> {
        let used = usage - run.usage_before;
        let tokens = used.input_tokens + used.output_tokens;
        if let Some(turns) = self.turns.filter(|turns| run.turns >= *turns) {
            return Some(format!("{} turns of {turns}", run.turns));
        }
        if let Some(most) = self.tokens.filter(|most| tokens >= *most) {
            return Some(format!("{tokens} tokens of {most}"));
        }
        if let Some(most) = self.cost_nano_usd.filter(|most| used.cost_nano_usd >= *most) {
            return Some(format!("${:.4} of ${:.4}", used.cost_nano_usd as f64 / 1e9, most as f64 / 1e9));
        }
        self.time_left(since).filter(Duration::is_zero).map(|_| self.time_spent(since))
    }

    /// The time used and its limit, as text.
    pub(super) fn time_spent(&self, since: Time) -> String {
        let most = self.wall_time.unwrap_or_default();
        let gone = Duration::from_micros(Time::now().micros_since(since)).max(most);
        format!("{:.1} s of {:.1} s", gone.as_secs_f64(), most.as_secs_f64())
    }

    /// The remaining time; `None` without a limit.
    pub(super) fn time_left(&self, since: Time) -> Option<Duration> {
        let gone = || Duration::from_micros(Time::now().micros_since(since));
        self.wall_time.map(|most| most.saturating_sub(gone()))
    }
}
