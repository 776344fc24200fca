use rath::tool;

/// Counts the doors.
#[tool]
async fn count() -> u32 {
    3
}

fn main() {}
