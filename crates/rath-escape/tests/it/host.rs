//! Checks that the attempts are real: without a sandbox, they succeed.

use pollster::block_on;
use rath_sandbox::{Backend as _, Host, SandboxSpec};

use crate::outside::Outside;
use crate::probe::attempt_all;
use crate::role::as_each_user;

/// Attempts that any user can make successfully without a sandbox.
const SUCCEED: &str = "\
    read-secret read-ssh-key read-aws-credentials read-netrc read-cargo-token read-github-token \
    read-docker-login read-other-workspace read-store read-sandbox-state read-by-dots read-by-link \
    list-outside other-environments see-outsiders root-of-any directory-of-any files-of-any up-from-directory \
    up-from-root root-of-thread connections-of-host write-outside write-by-dots write-in-parent write-by-link \
    write-by-hard-link link-outside rename-out rename-over rename-in exchange create-outside \
    make-directory-outside make-link-outside delete-outside truncate-outside chmod-outside chown-outside \
    touch-outside lock-outside watch-outside run-outside enter-outside write-other-workspace write-store \
    replace-store write-sandbox-state delete-sandbox-state write-home git-hook-change git-hook-new \
    git-hook-mode git-hook-rename git-hook-hard-link git-hook-link git-hooks-replaced git-config-change \
    git-config-rename git-config-delete git-config-by-proc git-replaced rath-change rath-new rath-hard-link \
    rath-replaced inherited-files new-user-namespace clone-user-namespace limit-outsider slow-outsider \
    pin-outsider signal-outsider signal-thread signal-queue signal-handle set-user-bit set-group-bit \
    own-terminal shared-memory shared-memory-file shared-tmp abstract-socket path-socket datagram-socket \
    socket-by-link ssh-agent session-bus loopback loopback-any loopback-message";

#[test]
fn without_a_sandbox_the_attempts_succeed() {
    as_each_user("host::without_a_sandbox_the_attempts_succeed", |role| {
        let mut outside = Outside::create(&role.base);
        let spec = SandboxSpec::new(outside.workspace(), outside.state()).env("PATH", "/usr/local/bin:/usr/bin:/bin");
        let sandbox = block_on(Host::new().open(spec)).unwrap();
        let table = attempt_all(&sandbox, &mut outside, role, false);
        table.print_line("host", role, &[]);
        assert!(table.broken().is_empty(), "{table}");
        let escaped = table.escaped();
        let refused: Vec<_> = SUCCEED.split_whitespace().filter(|name| !escaped.contains(name)).collect();
        assert!(refused.is_empty(), "{refused:?} did not escape\n{table}");
    });
}
