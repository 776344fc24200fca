use rath::tool;

/// Sends a letter.
#[tool(effect = "harmless")]
async fn send() {}

/// Sends a letter.
#[tool(efect = "pure")]
async fn send_again() {}

/// Sends a letter.
#[tool(effect = "pure", writes)]
async fn send_purely() {}

/// Sends a letter.
#[tool(timeout = "soon")]
async fn send_soon() {}

/// Sends a letter.
#[tool(name = "send a letter")]
async fn send_a_letter() {}

/// Moves a file.
#[tool(paths = "form, to")]
async fn move_file(from: String, to: String) {}

fn main() {}
