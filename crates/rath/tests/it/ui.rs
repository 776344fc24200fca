//! What the compiler says of tools and workflows that cannot be.

#[test]
fn the_compiler_says_what_is_missing() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/fail/*.rs");
}
