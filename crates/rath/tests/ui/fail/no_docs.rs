use rath::tool;

#[tool]
async fn count() -> String {
    String::new()
}

fn main() {}
