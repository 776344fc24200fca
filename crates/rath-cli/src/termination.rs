//! SIGTERM and SIGHUP: a service manager, a container or a closed terminal ends the program.
//!
//! The program then leaves at once and records nothing, as after `kill -9`: what was published is durable, a call that
//! is not over is in doubt, and `rath resume` goes on. To record a cancellation instead would end the run for good,
//! which only a person may ask for (Ctrl-C, `rath cancel`).

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::live::restore_terminal;
use crate::output;

/// A shell's exit code for a program that signal 0 ended.
const SIGNALLED: i32 = 128;

/// Leaves when one of them comes. Call it within the runtime.
#[allow(clippy::disallowed_methods, reason = "nothing may be recorded any more")]
pub(crate) fn leave_when_terminated() -> Result<()> {
    for (number, mut signals) in listen(&[SignalKind::terminate(), SignalKind::hangup()])? {
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                restore_terminal();
                output::remark("\nterminated; nothing that was recorded is lost, and `rath resume` continues a run");
                std::process::exit(SIGNALLED + number);
            }
        });
    }
    Ok(())
}

/// Comes when one of them or Ctrl-C does. Call it within the runtime.
pub(crate) fn interrupted_or_terminated() -> Result<impl Future<Output = ()> + use<>> {
    let mut listened = listen(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])?;
    Ok(async move {
        if listened.is_empty() {
            std::future::pending::<()>().await;
        }
        let come = listened.iter_mut().map(|(_, signals)| Box::pin(signals.recv()));
        futures_util::future::select_all(come).await;
    })
}

/// Listens for signals, each with its number; but for those that this process was told to ignore, as by `nohup`.
fn listen(kinds: &[SignalKind]) -> Result<Vec<(i32, Signal)>> {
    let heard = kinds.iter().filter(|kind| !is_ignored(kind.as_raw_value()));
    heard.map(|kind| Ok((kind.as_raw_value(), signal(*kind).context("listening for signals")?))).collect()
}

/// Whether this process was started so that it ignores a signal.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & (1 << (number - 1)) != 0
}
