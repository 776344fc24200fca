//! Scratch: a hot loop for the profiler.
#![allow(clippy::disallowed_methods, reason = "scratch")]
use rath_core::*;
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
fn main() {
    let store = Memory::new();
    let mut session = Session::create(&store, Actor::program("bench"));
    for _ in 0..10_000 { session.user("x".repeat(480)).unwrap(); }
    let n: usize = 2000;
    let t = std::time::Instant::now();
    for _ in 0..n {
        let mut forks = Vec::with_capacity(1000);
        for _ in 0..1000 { let mut f = session.fork("try"); f.user("one more").unwrap(); forks.push(f); }
    }
    println!("{} ns per fork+append+drop; Session is {} bytes", t.elapsed().as_nanos() as usize / n / 1000, std::mem::size_of::<Session>());
}
