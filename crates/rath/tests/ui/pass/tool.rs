//! Only `rath` is needed to make a tool.

use rath::tool;

/// Says hello.
#[tool]
pub async fn hello(name: String) -> String {
    format!("hello {name}")
}

struct Door;

#[tool]
impl Door {
    /// Opens it.
    #[tool]
    fn open(&self) {}
}

fn main() {
    use rath::IntoTools as _;
    assert_eq!((hello, Door).into_tools().len(), 2);
}
