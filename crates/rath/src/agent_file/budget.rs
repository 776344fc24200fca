//! Parsing budgets such as `2usd` or `50 turns, 10 min`.

use std::str::FromStr;
use std::time::Duration;

use crate::agent::Budget;

const HELP: &str = "a budget looks like \"2usd\", \"50 turns\", \"200k tokens\" or \"10 min\", several with commas";

/// A malformed budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is not a budget: {why}")]
pub struct BadBudget {
    part: String,
    why: &'static str,
}

impl BadBudget {
    pub(super) fn seconds(number: f64) -> Self {
        Self { part: format!("seconds = {number}"), why: "the time must not be negative" }
    }
}

impl FromStr for Budget {
    type Err = BadBudget;

    /// Parses a budget such as `2usd` or `50 turns, 10 min`. Limits that it does not name have their defaults.
    fn from_str(text: &str) -> Result<Self, BadBudget> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<Budget, BadBudget> {
    let mut budget = Budget::default();
    for part in text.split(',').map(str::trim) {
        let part = part.to_ascii_lowercase();
        let (part, dollars) = match part.strip_prefix('$') {
            Some(rest) => (rest.trim().to_owned(), true),
            None => (part, false),
        };
        let end = part.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(part.len());
        let (digits, unit) = (part[..end].replace('_', ""), part[end..].trim());
        let (unit, times) = match unit.strip_prefix('k').map(str::trim_start) {
            Some(rest) => (rest, 1e3),
            None => match unit.strip_prefix("m ").or_else(|| unit.strip_prefix('m').filter(|it| it.starts_with("tok")))
            {
                Some(rest) => (rest.trim_start(), 1e6),
                None => (unit, 1.0),
            },
        };
        let Some(number) = digits.parse::<f64>().ok().map(|number| number * times).filter(|it| *it > 0.0 && *it < 1e15)
        else {
            return Err(BadBudget { part, why: HELP });
        };
        let whole = || match number.fract() == 0.0 {
            true => Ok(Some(number as u64)),
            false => Err(BadBudget { part: part.clone(), why: "turns and tokens must be whole numbers" }),
        };
        let minutes = |minutes: f64| Some(Duration::from_secs_f64(minutes * 60.0));
        match unit {
            "" if dollars => budget = budget.usd(number),
            "usd" | "$" | "dollars" | "dollar" if !dollars => budget = budget.usd(number),
            "turn" | "turns" if !dollars => budget.turns = whole()?,
            "token" | "tokens" | "tok" if !dollars => budget.tokens = whole()?,
            "s" | "sec" | "second" | "seconds" if !dollars => budget.wall_time = minutes(number / 60.0),
            "m" | "min" | "minute" | "minutes" if !dollars => budget.wall_time = minutes(number),
            "h" | "hour" | "hours" if !dollars => budget.wall_time = minutes(number * 60.0),
            _ => return Err(BadBudget { part: part.clone(), why: HELP }),
        }
    }
    Ok(budget)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read() {
        let usual = Budget::default();
        for text in ["2usd", "$2", "2 USD", "2.0$", "2 dollars"] {
            assert_eq!(parse(text).unwrap(), usual.usd(2.0), "{text}");
        }
        assert_eq!(parse("50 turns").unwrap(), Budget::turns(50));
        assert_eq!(parse("200k tokens").unwrap(), usual.tokens(200_000));
        assert_eq!(parse("1_000tokens").unwrap(), usual.tokens(1000));
        assert_eq!(parse("1.5m tokens").unwrap(), usual.tokens(1_500_000));
        assert_eq!(parse("10 min").unwrap().wall_time, Some(Duration::from_secs(600)));
        assert_eq!(parse("10m").unwrap().wall_time, Some(Duration::from_secs(600)));
        assert_eq!(parse("90s, 3 turns, $0.5").unwrap(), Budget::turns(3).usd(0.5).wall_time(Duration::from_secs(90)));
    }

    #[test]
    fn malformed_budgets_are_refused() {
        for text in [
            "",
            "2",
            "usd",
            "-2usd",
            "0 turns",
            "2 apples",
            "0.5 turns",
            "0.0005k tokens",
            "$2 turns",
            "1e9usd",
            "nan usd",
            "2usd,",
            "𝟚usd",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
