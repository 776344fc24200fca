//! Commands that a model wants to run, as the rules read them.

use std::path::Path;
use std::sync::LazyLock;

use rath::policy::{Policy, Rule, Ruling, Wish};
use rath_core::body::Effect;

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let rules = vec![
        Rule::new(Ruling::Deny).command("rm *"),
        Rule::new(Ruling::Ask).command("git push *"),
        Rule::new(Ruling::Allow).command("ls *"),
    ];
    Policy::new(rules).expect("the rules are good")
});

/// Feeds it one input. Bytes that are not UTF-8 are passed over.
pub fn shell(command: &[u8]) {
    let Ok(command) = std::str::from_utf8(command) else { return };
    let arguments = serde_json::json!({ "command": command }).to_string();
    let root = Some(Path::new("/work"));
    let wish = Wish { tool: "shell", arguments: &arguments, effect: Effect::Workspace, root, spec: None };
    let (decided, explained) = (POLICY.decide(&wish), POLICY.explain(&wish).1);
    assert_eq!(decided.ruling, explained.ruling, "{command:?}");
    // What stands alone and is forbidden is never allowed.
    if command.trim_start().starts_with("rm ") {
        assert_ne!(decided.ruling, Ruling::Allow, "{command:?}");
    }
}
