use rath::tool;

/// A thing.
#[tool]
struct Thing;

fn main() {}
