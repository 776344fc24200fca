//! What an agent is made of, by name.

use std::collections::BTreeMap;
use std::time::Duration;

use rath_core::{BoxModel, Parameters, StandardView};
use serde::{Deserialize, Serialize};

use super::{BadBudget, Error, Resolver};
use crate::agent::{Agent, Budget, Decision};

/// No name is longer.
const LONGEST_NAME: usize = 64;

/// What an agent is made of: the fields of a Markdown file's front matter, and of an agent in a run file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSpec {
    /// The agent's name. In a run file, the key of its table.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it is for: agents that call it are told this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The model, as PROVIDER/MODEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Models that are asked if the first does not answer, in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// The tools and groups of tools it may call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolNames>,
    /// Tools that a person is asked about before each call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// Tools that are refused, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub deny: BTreeMap<String, String>,
    /// Which part of the conversation it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<ContextChoice>,
    /// What it may use up: `2usd, 50 turns, 10 min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// At most this many turns. The older way to say `budget`, as are the next two; what they limit wins over `budget`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// At most this many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// At most this much time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// At most this many tokens in one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How much the model should think, in the provider's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The prompt. In a Markdown file, the text below the front matter.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prompt: String,
}

/// Names of tools: a list, or one line with commas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToolNames {
    /// A list.
    List(Vec<String>),
    /// One line with commas.
    Line(String),
}

impl ToolNames {
    /// The names.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::List(list) => list.iter().map(String::as_str).collect(),
            Self::Line(line) => line.split(',').map(str::trim).filter(|name| !name.is_empty()).collect(),
        }
    }
}

/// Which part of the conversation an agent is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextChoice {
    /// All of it.
    Whole,
    /// What was said since its step was entered.
    OwnStep,
    /// The last answer before its step, and what was said since.
    LastAnswer,
}

impl AgentSpec {
    /// Checks what the types do not.
    pub(super) fn checked(self) -> Result<Self, Error> {
        if self.name.trim().is_empty() {
            return Err(Error::NoName);
        }
        if self.name.chars().any(char::is_control) || self.name.chars().count() > LONGEST_NAME {
            return Err(Error::BadName(LONGEST_NAME));
        }
        if self.temperature.is_some_and(|warmth| !(0.0..=10.0).contains(&warmth)) {
            return Err(Error::BadTemperature);
        }
        self.limits()?;
        Ok(self)
    }

    /// Its budget.
    pub fn limits(&self) -> Result<Budget, Error> {
        let budget: Budget = self.budget.as_deref().map(str::parse).transpose()?.unwrap_or_default();
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).map_err(|_| BadBudget::seconds(seconds));
        let wall_time = self.seconds.map(seconds).transpose()?;
        Ok(Budget {
            turns: self.turns.or(budget.turns),
            tokens: self.tokens.or(budget.tokens),
            wall_time: wall_time.or(budget.wall_time),
            ..budget
        })
    }

    /// The agent, with the model and the tools that `resolver` knows by these names.
    pub fn agent<R: Resolver>(&self, resolver: &R) -> Result<Agent, R::Error> {
        let model = self.model.as_deref().ok_or(Error::NoModel)?;
        let mut agent = self.without_tools(resolver.model(model, &self.fallback)?)?;
        for name in self.tools.iter().flat_map(ToolNames::names) {
            agent = agent.tools(resolver.tools(name)?);
        }
        Ok(self.with_decisions(agent)?)
    }

    pub(super) fn without_tools(&self, model: BoxModel) -> Result<Agent, Error> {
        let rule = match self.view {
            None | Some(ContextChoice::Whole) => StandardView::Whole,
            Some(ContextChoice::OwnStep) => StandardView::OwnStep,
            Some(ContextChoice::LastAnswer) => StandardView::LastAnswer,
        };
        let parameters = Parameters {
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            effort: self.effort.clone(),
            ..Parameters::default()
        };
        let agent = Agent::new(&self.name).prompt(&self.prompt).shared_model(model);
        Ok(agent.view(rule).parameters(parameters).budget(self.limits()?))
    }

    /// Has a person asked about some tools, and refuses others.
    pub(super) fn with_decisions(&self, mut agent: Agent) -> Result<Agent, Error> {
        let known: Vec<_> = agent.tool_names().map(str::to_owned).collect();
        if let Some(tool) = self.ask.iter().chain(self.deny.keys()).find(|tool| !known.contains(tool)) {
            let (agent, tool) = (agent.name().to_owned(), tool.clone());
            return Err(Error::NotItsTool { agent, tool, known: known.join(", ") });
        }
        for tool in &self.ask {
            agent = agent.policy(tool, Decision::Ask);
        }
        for (tool, why) in &self.deny {
            agent = agent.policy(tool, Decision::Deny(why.clone()));
        }
        Ok(agent)
    }

    /// The same, with the names of its models in another form.
    #[must_use]
    pub fn with_models(self, form: impl Fn(String) -> String) -> Self {
        let (model, fallback) = (self.model.map(&form), self.fallback.into_iter().map(&form).collect());
        Self { model, fallback, ..self }
    }
}
