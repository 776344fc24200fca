use rath::tool;

struct Colour;

/// Paints the door.
#[tool]
async fn paint(colour: Colour) -> String {
    let Colour = colour;
    String::new()
}

fn main() {}
