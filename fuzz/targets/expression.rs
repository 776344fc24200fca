//! The names that people give to sessions and records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use rath_core::expression::Expression;

fuzz_target!(|text: &str| {
    let Ok(expression) = Expression::parse(text) else { return };
    let written = expression.to_string();
    assert_eq!(Expression::parse(&written), Ok(expression), "{text:?} is written as {written:?}");
});
