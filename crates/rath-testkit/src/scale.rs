//! The number of iterations in the loops of tests, scaled by one environment variable.

use std::sync::OnceLock;

/// The environment variable with the factor, 1 by default. `cargo xtask test --fast` sets it to 0.1, `--nightly` to 20.
pub const SCALE: &str = "RATH_SCALE";

/// Returns `usual` times the factor in `RATH_SCALE`, at least 2.
///
/// # Panics
/// If the variable is not a positive number.
pub fn scaled(usual: u32) -> u32 {
    static FACTOR: OnceLock<f64> = OnceLock::new();
    let factor = *FACTOR.get_or_init(|| factor(std::env::var(SCALE).ok().as_deref()));
    scaled_by(factor, usual)
}

fn factor(text: Option<&str>) -> f64 {
    let Some(text) = text else { return 1.0 };
    let factor: f64 = text.parse().unwrap_or_else(|_| panic!("{SCALE}={text} is not a number"));
    assert!(factor > 0.0, "{SCALE}={text} is not positive");
    factor
}

fn scaled_by(factor: f64, usual: u32) -> u32 {
    ((f64::from(usual) * factor) as u32).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterations_are_scaled_by_the_factor() {
        assert_eq!(scaled_by(factor(None), 100), 100);
        assert_eq!(scaled_by(factor(Some("0.1")), 100), 10);
        assert_eq!(scaled_by(factor(Some("20")), 100), 2_000);
        assert_eq!(scaled_by(factor(Some("0.1")), 4), 2);
    }

    #[test]
    #[should_panic(expected = "RATH_SCALE=much is not a number")]
    fn a_factor_is_a_number() {
        factor(Some("much"));
    }
}
