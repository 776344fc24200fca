//! A session is used once: the compiler says so.

#[test]
fn the_compiler_refuses_a_session_used_twice() {
    trybuild::TestCases::new().compile_fail("tests/compile/*.rs");
}
