use anyhow::{Result, bail};
use rath::store::Which;
use rath::{Embedded, View};

use super::Answer;
use crate::expression;
use crate::output::{self, style};
use crate::settings::Settings;

/// Take a session from a process that has it and stands still
///
/// A process that was stopped keeps its sessions, as one does that is busy. This frees one, for whoever opens it next. When
/// the process wakes, what it had not published is refused; what it had is safe. The store's operator session keeps a
/// note of it.
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Take {
    /// The session
    session: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Also from a process that works
    #[arg(long)]
    force: bool,
}

impl Take {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let short = id.short();
        let holder = store.sessions(Which::Id(id).into()).await?.pop().and_then(|row| row.holder);
        if let Some(holder) = holder.filter(|holder| !self.force && !Embedded::is_stopped(holder.process)) {
            bail!(
                "session {short} is held by {holder}, and that process is not stopped\n  \
                 help: `rath cancel {short}` asks it to stop; `rath take {short} --force` takes the session away all the same"
            );
        }
        let taken = settings.embedded()?.take(id).await?;
        if let Some(holder) = &taken {
            let why = self.why.map(|why| format!(": {why}")).unwrap_or_default();
            let mut operator = rath_audit::operator(&store, settings.actor()).await?;
            operator.note(format!("took session {id} from {holder}{why}"))?;
            operator.publish().await?;
        }
        if settings.json {
            output::json(&serde_json::json!({ "session": id, "from": taken }))?;
            return Ok(Answer::Yes);
        }
        match taken {
            Some(holder) => output::remark(format_args!("{} from {holder}", style::good("taken"))),
            None => output::remark(format_args!("nobody has session {short}")),
        }
        let head = View::of(&store, id, None).await?;
        output::answer(head.record().point())?;
        Ok(Answer::Yes)
    }
}
