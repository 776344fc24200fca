//! What the compiler says of sessions, tools and workflows that cannot be.
//!
//! All cases are here: the compiler reads every dependency once more for them, in a directory of their own, and writes
//! nothing as long as none of them is to be run.

#[test]
fn the_compiler_says_what_is_missing() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
