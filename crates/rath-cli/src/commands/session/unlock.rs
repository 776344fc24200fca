use anyhow::{Result, bail};
use rath::store::{Holder, SessionFilter};
use rath::{Embedded, SessionId, View};
use serde::Serialize;

use crate::commands::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Release a session that is locked by a stopped process
///
/// A stopped process keeps its sessions locked, like a busy one. This revokes its lease, so that another process can
/// open the session. When the stopped process wakes, what it had not published is refused; what it had published
/// stays. The store's audit session records it.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Unlock {
    /// The session
    session: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Also if the process is not stopped
    #[arg(long)]
    force: bool,
}

/// A session whose lease was revoked; `from` is null if no process had it locked.
#[derive(Serialize)]
struct Unlocked {
    session: SessionId,
    from: Option<Holder>,
}

impl Unlock {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let short = id.short();
        let holder = store.sessions(SessionFilter::Id(id).into()).await?.pop().and_then(|row| row.holder);
        if let Some(holder) = holder.filter(|holder| !self.force && !Embedded::is_stopped(holder.process)) {
            bail!(
                "session {short} is locked by {holder}, and that process is not stopped\n  \
                 help: `rath cancel {short}` asks it to stop; `rath session unlock {short} --force` unlocks the session anyway"
            );
        }
        let from = settings.embedded()?.revoke_lease(id).await?;
        if let Some(holder) = &from {
            let why = self.why.map(|why| format!(": {why}")).unwrap_or_default();
            let mut operator = rath_audit::operator(&store, settings.actor()).await?;
            operator.note(format!("unlocked session {id}, which was locked by {holder}{why}"))?;
            operator.publish().await?;
        }
        if settings.json {
            output::json("rath.session.unlock/1", &Unlocked { session: id, from })?;
            return Ok(Answer::Yes);
        }
        match from {
            Some(holder) => output::remark(format_args!("{}; it was locked by {holder}", style::good("unlocked"))),
            None => output::remark(format_args!("no process has session {short} locked")),
        }
        let head = View::of(&store, id, None).await?;
        output::answer(head.record().point())?;
        Ok(Answer::Yes)
    }
}
