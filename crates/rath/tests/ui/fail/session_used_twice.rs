use rath::{How, Session};

async fn merged_twice(session: Session, branch: Session) -> rath::Result<Session> {
    let merged = session.merge([branch], How::Append).await?;
    drop(merged);
    session.merge([], How::Append).await
}

fn main() {}
