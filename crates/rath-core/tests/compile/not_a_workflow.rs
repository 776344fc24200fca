use rath_core::How;

fn main() {
    let _ = How::synthesize("a prompt");
}
