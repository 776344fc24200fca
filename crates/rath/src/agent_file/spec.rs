//! The settings of an agent, with models and tools by name.

use std::collections::BTreeMap;
use std::time::Duration;

use rath_core::{BoxModel, Parameters, StandardView};
use serde::{Deserialize, Serialize};

use super::{BadBudget, Error, Resolver};
use crate::agent::{Agent, Budget, Decision};

/// The longest name in characters.
const LONGEST_NAME: usize = 64;

/// The settings of an agent: the front matter of a Markdown file, or an agent's table in a run file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSpec {
    /// The agent's name. In a run file, the key of its table.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The tool description for agents that call this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The model, as PROVIDER/MODEL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Models that are tried in order if the first fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<String>,
    /// The tools and groups of tools that the agent has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<ToolNames>,
    /// Tools whose calls need an approval.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<String>,
    /// Tools whose calls are refused, with the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub deny: BTreeMap<String, String>,
    /// The part of the conversation that the model is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<ContextChoice>,
    /// The JSON Schema of the answer. Without it, the agent answers in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<serde_json::Value>,
    /// The budget, such as `2usd, 50 turns, 10 min`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    /// The limit on turns. An older alternative to `budget`, like the next two fields. They take precedence over it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// The limit on tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// The time limit in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// The largest number of tokens of one answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// The sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The reasoning effort, as the provider names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The prompt. In a Markdown file, the text after the front matter.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prompt: String,
}

/// Names of tools: a list, or a string with commas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ToolNames {
    /// A list.
    List(Vec<String>),
    /// A string with commas.
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

/// The part of the conversation that an agent's model is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextChoice {
    /// The whole conversation.
    Whole,
    /// Messages since the agent's step was entered.
    OwnStep,
    /// The last answer before the agent's step, and messages since.
    LastAnswer,
}

impl AgentSpec {
    /// Validates the name, the temperature and the budget.
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

    /// The agent's budget.
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

    /// Builds the agent. `resolver` resolves its models and tools.
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
        let agent = agent.view(rule).parameters(parameters).budget(self.limits()?);
        match &self.output {
            Some(schema) => agent.output_schema(schema.clone()).map_err(|why| Error::Output(why.to_string())),
            None => Ok(agent),
        }
    }

    /// Applies `ask` and `deny`.
    pub(super) fn with_decisions(&self, mut agent: Agent) -> Result<Agent, Error> {
        let known: Vec<_> = agent.tool_names().map(str::to_owned).collect();
        if let Some(tool) = self.ask.iter().chain(self.deny.keys()).find(|tool| !known.contains(tool)) {
            let (agent, tool) = (agent.name().to_owned(), tool.clone());
            return Err(Error::NotItsTool { agent, tool, known: known.join(", ") });
        }
        for tool in &self.ask {
            agent = agent.tool_policy(tool, Decision::Ask);
        }
        for (tool, why) in &self.deny {
            agent = agent.tool_policy(tool, Decision::Deny(why.clone()));
        }
        Ok(agent)
    }

    /// Converts the model names with `form`.
    #[must_use]
    pub fn with_models(self, form: impl Fn(String) -> String) -> Self {
        let (model, fallback) = (self.model.map(&form), self.fallback.into_iter().map(&form).collect());
        Self { model, fallback, ..self }
    }
}
