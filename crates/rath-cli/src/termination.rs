//! SIGTERM and SIGHUP: a service manager, a container or a closed terminal terminates the program.
//!
//! The program then exits at once and records nothing, as after `kill -9`: published records are durable, the outcome of
//! an open call is unknown, and `rath resume` continues the run. Recording a cancellation would end the run permanently,
//! which only a person may do (Ctrl-C, `rath cancel`).

use anyhow::{Context as _, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::live::restore_terminal;
use crate::output;

/// The exit code for a signal is this plus its number.
const EXIT_SIGNALLED: i32 = 128;

/// Exits when one of these signals arrives. Must be called within the runtime.
#[allow(clippy::disallowed_methods, reason = "nothing may be recorded after the signal")]
pub(crate) fn exit_when_terminated() -> Result<()> {
    for (number, mut signals) in listen(&[SignalKind::terminate(), SignalKind::hangup()])? {
        tokio::spawn(async move {
            if signals.recv().await.is_some() {
                restore_terminal();
                output::remark("\nterminated; no record is lost, and `rath resume` continues the run");
                std::process::exit(EXIT_SIGNALLED + number);
            }
        });
    }
    Ok(())
}

/// Completes when one of these signals or Ctrl-C arrives. Must be called within the runtime.
pub(crate) fn interrupted_or_terminated() -> Result<impl Future<Output = ()> + use<>> {
    let mut listened = listen(&[SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()])?;
    Ok(async move {
        if listened.is_empty() {
            std::future::pending::<()>().await;
        }
        let arrivals = listened.iter_mut().map(|(_, signals)| Box::pin(signals.recv()));
        futures_util::future::select_all(arrivals).await;
    })
}

/// Listens for signals, except those that this process was started to ignore, for example by `nohup`.
fn listen(kinds: &[SignalKind]) -> Result<Vec<(i32, Signal)>> {
    let wanted = kinds.iter().filter(|kind| !is_ignored(kind.as_raw_value()));
    wanted.map(|kind| Ok((kind.as_raw_value(), signal(*kind).context("listening for signals")?))).collect()
}

/// Whether this process ignores a signal.
fn is_ignored(number: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    mask & (1 << (number - 1)) != 0
}
