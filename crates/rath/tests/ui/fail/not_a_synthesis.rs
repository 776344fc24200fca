use rath::How;

fn main() {
    let _ = How::synthesize("a prompt");
}
