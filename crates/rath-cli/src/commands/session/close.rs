use anyhow::Result;

use crate::commands::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Close a session: it can still be read and forked
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Close {
    /// The session
    session: String,
    /// The reason
    #[arg(default_value = "", hide_default_value = true)]
    why: String,
}

impl Close {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        let session = crate::commands::open_session(settings, &store, id).await?;
        let mut head = session.head();
        session.close(self.why).await?;
        head.seq += 1;
        let closed = store.get(rath::store::Lookup::At(head.point())).await?;
        output::added(settings, closed.first().map_or(head, rath::Record::reference))?;
        Ok(Answer::Yes)
    }
}
