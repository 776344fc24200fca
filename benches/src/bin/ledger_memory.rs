//! Measures the memory of a fork. This is a separate binary because the counting allocator is slower.

use rath_bench::{Better, Row};
use rath_core::{Actor, InMemory, Session};

fn main() {
    let store = InMemory::new();
    let mut session = Session::create(&store, Actor::program("bench"));
    for _ in 0..10_000 {
        assert!(session.user("x".repeat(480)).is_ok());
    }
    let mut forks = Vec::with_capacity(1000);
    let counted = allocation_counter::measure(|| {
        for _ in 0..1000 {
            let mut fork = session.fork("try");
            assert!(fork.user("one more").is_ok());
            forks.push(fork);
        }
    });
    let each = counted.bytes_current as f64 / forks.len() as f64;
    Row::new(
        "ledger",
        "memory of a fork of 10,000 records with one record of its own",
        "B",
        each,
        2048.0,
        Better::Less,
    )
    .print();
}
