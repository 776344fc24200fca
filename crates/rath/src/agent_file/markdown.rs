//! An agent as a Markdown file: front matter with its settings, followed by its prompt.

use super::{AgentSpec, Error, ToolNames};

/// The default agent.
const DEFAULT: &str = include_str!("default.md");

/// The longest agent file in bytes.
const LONGEST: usize = 1 << 20;

impl AgentSpec {
    /// The default agent, with these tools instead of its own.
    pub fn default_agent(tools: Option<Vec<String>>) -> Result<Self, Error> {
        let default = Self::from_markdown(DEFAULT)?;
        Ok(Self { tools: tools.map(ToolNames::List).or(default.tools), ..default })
    }

    /// Parses a Markdown file with front matter.
    pub fn from_markdown(text: &str) -> Result<Self, Error> {
        if text.len() > LONGEST {
            return Err(Error::TooLong { bytes: text.len(), limit: LONGEST });
        }
        let text = text.trim_start_matches('\u{feff}');
        let rest =
            text.strip_prefix("---").and_then(|rest| rest.trim_start_matches([' ', '\t', '\r']).strip_prefix('\n'));
        let rest = rest.ok_or(Error::NoFrontMatter)?;
        let mut at = 0;
        let end = rest.split_inclusive('\n').find_map(|line| {
            at += line.len();
            (line.trim_end() == "---").then_some((at - line.len(), at))
        });
        let (matter, prompt) = end.map(|(from, to)| (&rest[..from], &rest[to..])).ok_or(Error::NoFrontMatter)?;
        let spec: Self =
            serde_saphyr::from_str(&format!("\n{matter}")).map_err(|error| Error::FrontMatter(error.to_string()))?;
        if !spec.prompt.is_empty() {
            return Err(Error::FrontMatter(
                "`prompt` is not a field: the prompt is the text after the front matter".to_owned(),
            ));
        }
        Self { prompt: prompt.trim().to_owned(), ..spec }.checked()
    }

    /// The Markdown file. Parsing it returns the same agent.
    pub fn to_markdown(&self) -> Result<String, Error> {
        let matter = Self { prompt: String::new(), ..self.clone() };
        let matter = serde_saphyr::to_string(&matter).map_err(|error| Error::FrontMatter(error.to_string()))?;
        Ok(format!("---\n{}\n---\n{}\n", matter.trim_end(), self.prompt))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rath_core::BoxModel;
    use rath_model::Scripted;

    use super::*;
    use crate::agent_file::Resolver;

    struct Offline;

    impl Resolver for Offline {
        type Error = Error;

        fn model(&self, name: &str, _: &[String]) -> Result<BoxModel, Error> {
            Ok(Arc::new(Scripted::new(name)))
        }
    }

    #[test]
    fn an_agent_is_read_and_written_the_same() {
        let text = "---\nname: reviewer\nmodel: anthropic/claude-sonnet-4-5\ntools: read, grep\nask: [grep]\n\
                    deny: { read: \"no: never\" }\nview: own_step\nbudget: $2, 50 turns\neffort: high\n---\n\n# Review\n\n---\nBe kind.\n";
        let agent = AgentSpec::from_markdown(text).unwrap();
        assert_eq!(agent.tools.as_ref().unwrap().names(), ["read", "grep"]);
        assert_eq!(agent.prompt, "# Review\n\n---\nBe kind.");
        assert_eq!(AgentSpec::from_markdown(&agent.to_markdown().unwrap()).unwrap(), agent);
        let default = AgentSpec { model: Some("a: b/c #1".into()), ..AgentSpec::default_agent(None).unwrap() };
        assert_eq!(AgentSpec::from_markdown(&default.to_markdown().unwrap()).unwrap(), default);
        let windows = AgentSpec::from_markdown("---\r\nname: x\r\n---\r\nHello\r\n").unwrap();
        assert_eq!((windows.name.as_str(), windows.prompt.as_str()), ("x", "Hello"));
    }

    #[test]
    fn the_agent_in_the_docs_is_read() {
        let page = include_str!("../../../../docs/reference/agent-files.md");
        let block = page.split("```markdown\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let agent = AgentSpec::from_markdown(block).unwrap();
        let built = agent.agent(&Offline).unwrap();
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
            ("---\nmodel: x\n---\n", "name"),
            ("---\nname: x\nbudget: plenty\n---\n", "plenty"),
            ("---\nname: [\n---\n", "front matter"),
            ("---\nname: x\nview: half\n---\n", "half"),
            ("---\nname: \"x\\ny\"\n---\n", "one line"),
            ("---\nname: x\ntemperature: .nan\n---\n", "temperature"),
            ("---\nname: x\nprompt: y\n---\nz", "after the front matter"),
        ] {
            let error = AgentSpec::from_markdown(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text:?}: {error}");
        }
        let bomb = "---\nname: x\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b]\n---\n";
        assert!(AgentSpec::from_markdown(bomb).is_err());
    }

    #[test]
    fn a_budget_is_one_text_or_the_older_fields() {
        let limits = |fields: &str| {
            AgentSpec::from_markdown(&format!("---\nname: x\n{fields}\n---\n")).unwrap().limits().unwrap()
        };
        assert_eq!(limits("budget: 20 turns, 5k tokens, 90s"), limits("turns: 20\ntokens: 5000\nseconds: 90"));
        assert_eq!(limits("budget: 20 turns, 2usd\nturns: 3"), limits("budget: 3 turns, 2usd"));
    }
}
