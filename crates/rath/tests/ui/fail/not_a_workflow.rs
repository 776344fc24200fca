use rath::seq;

fn main() {
    let _ = seq().then(5);
}
