use rath::tool;

/// Takes a borrowed argument.
#[tool]
async fn borrowed(name: &str) {}

/// Takes an argument without a name.
#[tool]
async fn nameless((a, b): (u8, u8)) {}

/// Takes the call away.
#[tool]
async fn owned(call: rath::tool::Call) {}

/// Takes anything.
#[tool]
async fn anything<T>(value: T) {}

struct Door;

impl Door {
    /// Opens it.
    #[tool]
    async fn open(&self) {}
}

struct Gate;

#[tool]
impl Gate {
    /// Opens it.
    #[tool]
    async fn open(&mut self) {}
}

fn main() {}
