use std::collections::BTreeMap;

use anyhow::Result;
use rath::View;
use rath::body::Labelled;

use super::Answer;
use crate::expression;
use crate::output;
use crate::settings::Settings;

/// Name a session: set or take away labels, or its title; without arguments, list them
#[derive(clap::Args)]
#[command(after_help = expression::HELP)]
pub(crate) struct Label {
    /// The session
    session: String,
    /// Labels to set: NAME or NAME=VALUE
    labels: Vec<String>,
    /// Labels to take away
    #[arg(long, short, value_name = "NAME")]
    unset: Vec<String>,
    /// A new title
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
}

impl Label {
    pub(crate) async fn run(self, settings: &Settings) -> Result<Answer> {
        let store = settings.store()?;
        let id = expression::resolve_session(&store, &self.session).await?;
        if self.labels.is_empty() && self.unset.is_empty() && self.title.is_none() {
            let view = View::of(&store, id, None).await?;
            let state = view.state();
            if settings.json {
                output::json(&serde_json::json!({ "title": state.title, "labels": state.labels }))?;
                return Ok(Answer::Yes);
            }
            if let Some(title) = &state.title {
                output::answer(format_args!("title: {title}"))?;
            }
            for (name, value) in &state.labels {
                match value.as_str() {
                    "" => output::answer(name)?,
                    _ => output::answer(format_args!("{name}={value}"))?,
                }
            }
            return Ok(Answer::Yes);
        }
        let mut set = BTreeMap::new();
        for label in &self.labels {
            let (name, value) = label.split_once('=').unwrap_or((label, ""));
            if name.is_empty() || name.chars().any(char::is_whitespace) {
                let why = format!("{label:?} is not a label: NAME or NAME=VALUE, without spaces in the name");
                return Err(expression::unclear(why));
            }
            set.insert(name.to_owned(), value.to_owned());
        }
        let mut session = store.open(id, settings.actor()).await?;
        session.append(Labelled { title: self.title, set, unset: self.unset })?;
        session.publish().await?;
        output::added(settings, session.head())?;
        Ok(Answer::Yes)
    }
}
