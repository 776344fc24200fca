//! The operator session: the store's audit session. It records operations on the store itself, such as erasures.

use std::sync::Arc;

use super::{CachedActor, Session, SessionInit, encode};
use crate::actor::Actor;
use crate::body::Created;
use crate::error::{ErrorKind, Result};
use crate::kind::Kind;
use crate::store::{self, SessionFilter, Store};

/// The run key of a store's operator session.
pub const OPERATOR: &str = "rath/operator";

impl dyn Store {
    /// The operator session, to which records about the store itself are appended: erasures, legal holds, releases. It
    /// is created on first use. Fails with [`store::Error::Locked`] while another process has it open.
    pub async fn operator(self: &Arc<Self>, actor: Actor) -> Result<Session> {
        if let Some(row) = self.sessions(SessionFilter::Run(OPERATOR.into()).into()).await?.into_iter().next() {
            let mut session = Session::open_any(self, row.id, actor).await?;
            session.0.is_operator = true;
            if row.closed {
                // Earlier versions allowed users to close it.
                session.note("this session was closed by hand; the store's audit records continue here")?;
            }
            return Ok(session);
        }
        let created = Created { title: None, run: Some(OPERATOR.into()), program: None };
        let init = SessionInit::root(self.clone(), CachedActor::new(actor.clone()));
        let mut session = Session::start(init, Kind::Created, &encode(&created), None);
        session.0.is_operator = true;
        session.set_title("operator")?;
        match session.publish().await {
            Ok(()) => Ok(session),
            Err(error) => match error.kind() {
                // Another process created it at the same time.
                ErrorKind::Store(store::Error::RunTaken { session: existing, .. }) => {
                    let mut session = Session::open_any(self, *existing, actor).await?;
                    session.0.is_operator = true;
                    Ok(session)
                }
                _ => Err(error),
            },
        }
    }
}
