//! The target for expressions that name sessions and records.

use rath_core::expression::Expression;

/// Runs the target with one input. Bytes that are not UTF-8 are ignored.
pub fn expression(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(expression) = Expression::parse(text) else { return };
    let written = expression.to_string();
    assert_eq!(Expression::parse(&written), Ok(expression), "{text:?} is written as {written:?}");
}
