use rath::workflow::chain;

fn main() {
    let _ = chain("numbers").then(5);
}
