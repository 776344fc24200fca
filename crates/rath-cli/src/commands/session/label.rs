use std::collections::BTreeMap;

use anyhow::Result;
use rath::View;
use rath::body::Labelled;
use serde::Serialize;

use crate::commands::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Set or remove a session's labels, or set its title; without arguments, list them
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Label {
    /// The session
    #[arg(default_value = "@")]
    session: String,
    /// Labels to set: NAME or NAME=VALUE
    labels: Vec<String>,
    /// Labels to remove
    #[arg(long, short, value_name = "NAME")]
    unset: Vec<String>,
    /// A new title
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

/// The JSON answer: the session's title and labels.
#[derive(Serialize)]
struct Names<'a> {
    title: &'a Option<String>,
    labels: &'a BTreeMap<String, String>,
}

impl Label {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        if self.labels.is_empty() && self.unset.is_empty() && self.title.is_none() {
            let view = View::of(&store, id, None).await?;
            let state = view.state();
            if settings.json {
                output::json("rath.session.label/1", &Names { title: &state.title, labels: &state.labels })?;
                return Ok(Answer::Yes);
            }
            if let Some(title) = &state.title {
                output::answer(format_args!("title: {}", output::escaped(title)))?;
            }
            for (name, value) in &state.labels {
                output::answer(output::escaped(&rath::inspect::label_text(name, value)))?;
            }
            return Ok(Answer::Yes);
        }
        let mut set = BTreeMap::new();
        for label in &self.labels {
            let (name, value) = label.split_once('=').unwrap_or((label, ""));
            if name.is_empty() || name.chars().any(char::is_whitespace) {
                let why = format!("{label:?} is not a label: write NAME or NAME=VALUE, without spaces in the name");
                return Err(expression::usage_error(why));
            }
            set.insert(name.to_owned(), value.to_owned());
        }
        let mut session = crate::commands::open_session(settings, &store, id).await?;
        session.append(Labelled { title: self.title, set, unset: self.unset })?;
        session.publish().await?;
        output::added(settings, session.head())?;
        Ok(Answer::Yes)
    }
}
