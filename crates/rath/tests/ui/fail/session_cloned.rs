use rath::Session;

fn two(session: &Session) -> (Session, Session) {
    (session.clone(), session.clone())
}

fn main() {}
