//! An agent as a Markdown file: front matter says what it is made of, the rest is its prompt.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, bail};
use rath::agent::{Agent, Budget};
use rath::{BoxModel, Parameters, StandardView};
use serde::{Deserialize, Serialize};

use super::{budget, parts};

/// The agent that works where nobody names one.
const DEFAULT: &str = include_str!("default.md");

/// No name is longer.
const LONGEST_NAME: usize = 64;

/// No file is longer.
const LONGEST: usize = 1 << 20;

/// An agent, as a file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentFile {
    pub(crate) name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// PROVIDER/MODEL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    /// Models that are asked where the first does not answer, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) fallback: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<Tools>,
    /// Tools that a person is asked about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ask: Vec<String>,
    /// Tools that are refused, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    deny: BTreeMap<String, String>,
    /// Which part of the conversation it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<View>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effort: Option<String>,
    /// What stands below the front matter.
    #[serde(skip)]
    prompt: String,
}

/// Names of tools: a list, or one line with commas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum Tools {
    List(Vec<String>),
    Line(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum View {
    Whole,
    OwnStep,
    LastAnswer,
}

/// What the command line and the configuration say of an agent. It wins over its file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    pub(crate) model: Option<String>,
    pub(crate) budget: Option<String>,
}

impl AgentFile {
    /// The agent that works where nobody names one.
    pub(crate) fn usual(tools: Option<Vec<String>>) -> Result<Self> {
        let usual = Self::parse(DEFAULT)?;
        Ok(Self { tools: tools.map(Tools::List).or(usual.tools), ..usual })
    }

    /// Reads a file.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.len() > LONGEST {
            bail!("this is too long for an agent: {} bytes, at most {LONGEST}", text.len());
        }
        let text = text.trim_start_matches('\u{feff}');
        let no_matter = "an agent's file begins with front matter: a line ---, `name: …`, and a line ---";
        let rest =
            text.strip_prefix("---").and_then(|rest| rest.trim_start_matches([' ', '\t', '\r']).strip_prefix('\n'));
        let rest = rest.context(no_matter)?;
        let mut at = 0;
        let end = rest.split_inclusive('\n').find_map(|line| {
            at += line.len();
            (line.trim_end() == "---").then_some((at - line.len(), at))
        });
        let (matter, prompt) = end.map(|(from, to)| (&rest[..from], &rest[to..])).context(no_matter)?;
        let file: Self =
            serde_saphyr::from_str(&format!("\n{matter}")).map_err(|error| anyhow::anyhow!("{error}")).context(
                "the front matter cannot be read (name, description, model, fallback, tools, ask, deny, view, budget, \
             max_tokens, temperature, effort)",
            )?;
        if file.name.trim().is_empty() {
            bail!("an agent has a name: `name: …` in the front matter");
        }
        if file.name.chars().any(char::is_control) || file.name.chars().count() > LONGEST_NAME {
            bail!("an agent's name is one line of at most {LONGEST_NAME} characters");
        }
        if file.temperature.is_some_and(|warmth| !(0.0..=10.0).contains(&warmth)) {
            bail!("a temperature is a number from 0 on: mostly 0 to 1");
        }
        if let Some(text) = &file.budget {
            budget::parse(text)?;
        }
        Ok(Self { prompt: prompt.trim().to_owned(), ..file })
    }

    /// With no model to ask but its own.
    pub(crate) fn without_fallback(self) -> Self {
        Self { fallback: Vec::new(), ..self }
    }

    /// With the names of its models in another form.
    pub(crate) fn with_models(self, form: impl Fn(String) -> String) -> Self {
        let (model, fallback) = (self.model.map(&form), self.fallback.into_iter().map(&form).collect());
        Self { model, fallback, ..self }
    }

    /// With what was said elsewhere.
    pub(crate) fn with(self, given: Given) -> Self {
        Self { model: given.model.or(self.model), budget: given.budget.or(self.budget), ..self }
    }

    /// The file's text; reading it gives the same agent.
    pub(crate) fn text(&self) -> Result<String> {
        let matter = serde_saphyr::to_string(self).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(format!("---\n{}\n---\n{}\n", matter.trim_end(), self.prompt))
    }

    /// The agent.
    pub(crate) fn agent(&self, model: BoxModel) -> Result<Agent> {
        let limits = self.budget.as_deref().map(budget::parse).transpose()?.unwrap_or(Budget::default());
        let rule = match self.view {
            None | Some(View::Whole) => StandardView::Whole,
            Some(View::OwnStep) => StandardView::OwnStep,
            Some(View::LastAnswer) => StandardView::LastAnswer,
        };
        let parameters = Parameters {
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            effort: self.effort.clone(),
            ..Parameters::default()
        };
        let mut agent = Agent::new(&self.name)
            .prompt(&self.prompt)
            .shared_model(model)
            .view(rule)
            .parameters(parameters)
            .budget(limits);
        for tool in self.tools() {
            agent = parts::with_tool(agent, &tool)?;
        }
        parts::with_policy(agent, &self.ask, &self.deny)
    }

    fn tools(&self) -> Vec<String> {
        match &self.tools {
            Some(Tools::List(list)) => list.clone(),
            Some(Tools::Line(line)) => {
                line.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
            }
            None => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_read_and_written_the_same() {
        let text = "---\nname: reviewer\nmodel: anthropic/claude-sonnet-4-5\ntools: read, grep\nask: [grep]\n\
                    deny: { read: \"no: never\" }\nview: own_step\nbudget: $2, 50 turns\neffort: high\n---\n\n# Review\n\n---\nBe kind.\n";
        let agent = AgentFile::parse(text).unwrap();
        assert_eq!(agent.tools(), ["read", "grep"]);
        assert_eq!(agent.prompt, "# Review\n\n---\nBe kind.");
        assert_eq!(AgentFile::parse(&agent.text().unwrap()).unwrap(), agent);
        let usual = AgentFile::usual(None).unwrap().with(Given { model: Some("a: b/c #1".into()), budget: None });
        assert_eq!(AgentFile::parse(&usual.text().unwrap()).unwrap(), usual);
        let windows = AgentFile::parse("---\r\nname: x\r\n---\r\nHello\r\n").unwrap();
        assert_eq!((windows.name.as_str(), windows.prompt.as_str()), ("x", "Hello"));
    }

    #[test]
    fn the_agent_in_the_docs_is_read() {
        let page = include_str!("../../../../docs/runs.md");
        let block = page.split("```markdown\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let agent = AgentFile::parse(block).unwrap();
        let model: BoxModel = std::sync::Arc::new(rath::Scripted::new("x"));
        let built = agent.agent(model).unwrap();
        assert_eq!(built.tool_names().collect::<Vec<_>>(), ["read", "ls", "glob", "grep", "shell"]);
        assert_eq!((agent.fallback.len(), agent.budget.as_deref()), (1, Some("2usd, 50 turns, 10 min")));
    }

    #[test]
    fn what_is_no_agent_is_refused() {
        for (text, why) in [
            ("You review.", "front matter"),
            ("---\nname: x\nYou review.", "front matter"),
            ("---\nname: \"\"\n---\n", "name"),
            ("---\nnme: x\n---\n", "nme"),
            ("---\nname: x\nbudget: plenty\n---\n", "plenty"),
            ("---\nname: [\n---\n", "front matter"),
            ("---\nname: x\nview: half\n---\n", "half"),
            ("---\nname: \"x\\ny\"\n---\n", "one line"),
            ("---\nname: x\ntemperature: .nan\n---\n", "temperature"),
        ] {
            let error = format!("{:#}", AgentFile::parse(text).unwrap_err());
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let bomb = "---\nname: x\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\n---\n";
        assert!(AgentFile::parse(bomb).is_err());
    }
}
