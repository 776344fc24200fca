use anyhow::Result;
use rath::body::Effect;
use rath::policy::{Decided, Looked, Rule, Ruling, Wish};
use rath::tools;
use serde_json::{Value, json};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Which calls of agents are made, asked about, or refused
///
/// The rules are `[[policy]]` tables of your own and the project's configuration. The first that matches decides; after
/// them what cannot be taken back, and what looks like a secret, is asked about. Rules of a project that you do not trust
/// can only make a decision stricter.
#[derive(clap::Args)]
pub(crate) struct Policy {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    List(List),
    Test(Test),
}

/// List the rules in the order in which they are looked at
#[derive(clap::Args)]
struct List;

/// Say what would be done about a call, and why
///
/// Exit code 0: it is made. 5: a person is asked. 3: it is refused.
#[derive(clap::Args)]
struct Test {
    /// The tool
    tool: String,
    /// The arguments, as JSON
    #[arg(conflicts_with_all = ["command", "path"])]
    arguments: Option<String>,
    /// The command, of `shell`
    #[arg(long, value_name = "LINE")]
    command: Option<String>,
    /// The path that the call names
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The effect of the call; that of the tool in a sandbox unless given
    #[arg(long, value_name = "EFFECT")]
    effect: Option<Effect>,
}

impl Policy {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        match self.what {
            What::List(List) => list(settings),
            What::Test(test) => test.run(settings),
        }
    }
}

fn list(settings: &Settings) -> Result<Answer> {
    let policy = settings.layers()?.policy;
    let (rules, guards) = policy.rules();
    let all: Vec<(&Rule, bool)> = rules.map(|rule| (rule, false)).chain(guards.map(|rule| (rule, true))).collect();
    if settings.json {
        let line = |(rule, guards): &(&Rule, bool)| json!({ "rule": rule, "origin": rule.origin, "guards": guards });
        output::json(&all.iter().map(line).collect::<Vec<_>>())?;
        return Ok(Answer::Yes);
    }
    let mut page = Page::default();
    for (rule, guards) in all {
        let why = rule.why.as_ref().map(|why| format!(": {}", output::harmless(why))).unwrap_or_default();
        page.line(format_args!(
            "{}{why}{}",
            output::harmless(&rule.to_string()),
            aside(rule.origin.as_deref(), guards)
        ));
    }
    page.line("ask about what looks like a secret  # default");
    page.line("ask about what cannot be taken back  # default");
    page.line("allow the rest  # default");
    page.show(settings)?;
    Ok(Answer::Yes)
}

/// Where a rule comes from, and how it counts.
fn aside(origin: Option<&str>, guards: bool) -> String {
    let guards = if guards { ", can only make it stricter" } else { "" };
    origin.map(|origin| style::dim(format!("  # {}{guards}", output::harmless(origin)))).unwrap_or_default()
}

impl Test {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let arguments = match &self.arguments {
            Some(text) => match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(_)) => text.clone(),
                _ => return Err(expression::unclear("the arguments are a JSON object, as in '{\"path\": \"a\"}'")),
            },
            None => {
                let named = [("command", &self.command), ("path", &self.path)];
                let given =
                    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), json!(value.as_ref()?))));
                Value::Object(given.collect()).to_string()
            }
        };
        let spec = tools::spec(&self.tool);
        let effect = self.effect.or(spec.map(|spec| spec.effect)).unwrap_or(Effect::Irreversible);
        let wish = Wish { tool: &self.tool, arguments: &arguments, effect, spec, root: None };
        let (looked, decided) = settings.layers()?.policy.explain(&wish);
        match settings.json {
            true => output::json(&json!({ "effect": effect, "looked_at": looked, "decided": decided }))?,
            false => show(settings, &looked, &decided)?,
        }
        Ok(match decided.ruling {
            Ruling::Allow => Answer::Yes,
            Ruling::Ask => Answer::Waiting,
            Ruling::Deny => Answer::No,
        })
    }
}

fn show(settings: &Settings, looked: &[Looked], decided: &Decided) -> Result<()> {
    let mut page = Page::default();
    let mut command = None;
    for look in looked {
        if look.command.is_some() && look.command != command {
            command.clone_from(&look.command);
            page.line(output::harmless(&format!("{}:", look.command.as_deref().unwrap_or_default())));
        }
        let how = if look.matched { style::label("matches") } else { style::dim("does not match") };
        let rule = output::harmless(&look.rule);
        page.line(format_args!("  {rule} {how}{}", aside(look.origin.as_deref(), look.guards)));
    }
    let ruling = match decided.ruling {
        Ruling::Allow => style::good("allow"),
        Ruling::Ask => style::label("ask"),
        Ruling::Deny => style::bad("deny"),
    };
    let why = decided.why.as_ref().map(|why| format!(": {}", output::harmless(why))).unwrap_or_default();
    page.line(format_args!("{ruling}{why}"));
    page.line(format_args!("  by {}{}", output::harmless(&decided.by), aside(decided.origin.as_deref(), false)));
    page.show(settings)
}
