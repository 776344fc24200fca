use rath::Workflow;

#[derive(Workflow)]
struct Paper {
    title: String,
}

#[derive(Workflow)]
enum Either {
    One,
}

fn main() {}
