//! The store's own session: what is done to a store and belongs to no work.

use std::sync::Arc;

use super::{Birth, Session, Voice, encode};
use crate::actor::Actor;
use crate::body::Created;
use crate::error::{ErrorKind, Result};
use crate::kind::Kind;
use crate::store::{self, Store, Which};

/// The key by which a store's operator session is found.
pub const OPERATOR: &str = "rath/operator";

impl dyn Store {
    /// The operator session, for a record about the store itself: what was erased, held, released. Made when it is first
    /// asked for. Fails with [`store::Error::Held`] while another process has it.
    pub async fn operator(self: &Arc<Self>, actor: Actor) -> Result<Session> {
        if let Some(row) = self.sessions(Which::Run(OPERATOR.into()).into()).await?.into_iter().next() {
            let mut session = Session::open_any(self, row.id, actor).await?;
            session.0.is_operator = true;
            if row.closed {
                // Earlier versions let it be closed by hand.
                session.note("it was closed by hand; the store's account goes on here")?;
            }
            return Ok(session);
        }
        let created = Created { title: None, run: Some(OPERATOR.into()), program: None };
        let birth = Birth::root(self.clone(), Voice::new(actor.clone()));
        let mut session = Session::born(birth, Kind::Created, &encode(&created), None);
        session.0.is_operator = true;
        session.set_title("operator")?;
        match session.publish().await {
            Ok(()) => Ok(session),
            Err(error) => match error.kind() {
                // Somebody made it a moment ago.
                ErrorKind::Store(store::Error::RunTaken { session: taken, .. }) => {
                    let mut session = Session::open_any(self, *taken, actor).await?;
                    session.0.is_operator = true;
                    Ok(session)
                }
                _ => Err(error),
            },
        }
    }
}
