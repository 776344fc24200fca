use anyhow::Result;
use rath::body::Effect;
use rath::policy::{PolicyAction, PolicyDecision, PolicyRule, ProposedCall, RuleTrace};
use rath::tools;
use serde_json::{Value, json};

use super::Answer;
use crate::expression;
use crate::output::{self, Page, style};
use crate::settings::Settings;

/// Show which tool calls are allowed, need approval, or are denied
///
/// The rules are the `[[policy]]` tables of your own and the project's configuration. The first rule that matches
/// decides. Without a match, irreversible calls and calls on likely secrets need approval, and others are allowed. Rules
/// of a project that you do not trust can only make a decision stricter.
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

/// List the rules in the order in which they are tried
#[derive(clap::Args)]
struct List;

/// Show the decision about a call, and why
///
/// Exit code 0: allowed. 5: needs approval. 3: denied.
#[derive(clap::Args)]
struct Test {
    /// The tool
    tool: String,
    /// The arguments, as JSON
    #[arg(conflicts_with_all = ["command", "path"])]
    arguments: Option<String>,
    /// The command, for the tool `shell`
    #[arg(long, value_name = "LINE")]
    command: Option<String>,
    /// The path argument of the call
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The effect of the call [default: that of the tool in a sandbox]
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
    let all: Vec<(&PolicyRule, bool)> =
        rules.map(|rule| (rule, false)).chain(guards.map(|rule| (rule, true))).collect();
    if settings.json {
        let line =
            |(rule, guards): &(&PolicyRule, bool)| json!({ "rule": rule, "origin": rule.origin, "guards": guards });
        output::json_list("rath.policy.list/1", all.iter().map(line))?;
        return Ok(Answer::Yes);
    }
    let mut page = Page::default();
    for (rule, guards) in all {
        let why = rule.why.as_ref().map(|why| format!(": {}", output::escaped(why))).unwrap_or_default();
        page.line(format_args!("{}{why}{}", output::escaped(&rule.to_string()), aside(rule.origin.as_deref(), guards)));
    }
    page.line("ask about likely secrets  # default");
    page.line("ask about irreversible calls  # default");
    page.line("allow the rest  # default");
    page.show(settings)?;
    Ok(Answer::Yes)
}

/// The file that a rule comes from, and whether it can only make a decision stricter.
fn aside(origin: Option<&str>, guards: bool) -> String {
    let guards = if guards { ", can only make decisions stricter" } else { "" };
    origin.map(|origin| style::dim(format!("  # {}{guards}", output::escaped(origin)))).unwrap_or_default()
}

impl Test {
    fn run(self, settings: &Settings) -> Result<Answer> {
        let arguments = match &self.arguments {
            Some(text) => match serde_json::from_str::<Value>(text) {
                Ok(Value::Object(_)) => text.clone(),
                _ => {
                    return Err(expression::usage_error(
                        "the arguments must be a JSON object, such as '{\"path\": \"a\"}'",
                    ));
                }
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
        let proposed = ProposedCall { tool: &self.tool, arguments: &arguments, effect, spec, root: None };
        let (traces, decided) = settings.layers()?.policy.explain(&proposed);
        match settings.json {
            true => output::json(
                "rath.policy.test/1",
                &json!({ "effect": effect, "looked_at": traces, "decided": decided }),
            )?,
            false => show(settings, &traces, &decided)?,
        }
        Ok(match decided.action {
            PolicyAction::Allow => Answer::Yes,
            PolicyAction::Ask => Answer::Waiting,
            PolicyAction::Deny => Answer::No,
        })
    }
}

fn show(settings: &Settings, traces: &[RuleTrace], decided: &PolicyDecision) -> Result<()> {
    let mut page = Page::default();
    let mut command = None;
    for look in traces {
        if look.command.is_some() && look.command != command {
            command.clone_from(&look.command);
            page.line(output::escaped(&format!("{}:", look.command.as_deref().unwrap_or_default())));
        }
        let how = if look.matched { style::label("matches") } else { style::dim("does not match") };
        let rule = output::escaped(&look.rule);
        page.line(format_args!("  {rule} {how}{}", aside(look.origin.as_deref(), look.restricts)));
    }
    let ruling = match decided.action {
        PolicyAction::Allow => style::good("allow"),
        PolicyAction::Ask => style::label("ask"),
        PolicyAction::Deny => style::bad("deny"),
    };
    let why = decided.why.as_ref().map(|why| format!(": {}", output::escaped(why))).unwrap_or_default();
    page.line(format_args!("{ruling}{why}"));
    page.line(format_args!("  by {}{}", output::escaped(&decided.by), aside(decided.origin.as_deref(), false)));
    page.show(settings)
}
