//! The target for the policy's shell command parser.

use std::path::Path;
use std::sync::LazyLock;

use rath::policy::{Policy, PolicyAction, PolicyRule, ProposedCall};
use rath_core::body::Effect;

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let rules = vec![
        PolicyRule::new(PolicyAction::Deny).command("rm *"),
        PolicyRule::new(PolicyAction::Ask).command("git push *"),
        PolicyRule::new(PolicyAction::Allow).command("ls *"),
    ];
    Policy::new(rules).expect("the rules are good")
});

/// Runs the target with one input. Bytes that are not UTF-8 are ignored.
pub fn shell(command: &[u8]) {
    let Ok(command) = std::str::from_utf8(command) else { return };
    let arguments = serde_json::json!({ "command": command }).to_string();
    let root = Some(Path::new("/work"));
    let call = ProposedCall { tool: "shell", arguments: &arguments, effect: Effect::Workspace, root, spec: None };
    let (decided, explained) = (POLICY.decide(&call), POLICY.explain(&call).1);
    assert_eq!(decided.action, explained.action, "{command:?}");
    // A denied command on its own is never allowed.
    if command.trim_start().starts_with("rm ") {
        assert_ne!(decided.action, PolicyAction::Allow, "{command:?}");
    }
}
