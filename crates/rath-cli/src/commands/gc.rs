use anyhow::Result;

use super::Answer;
use crate::output::{self, bytes};
use crate::settings::Settings;

/// Give back the room of blobs that no record names
///
/// Everything that a record names stays, with all versions behind it. Waits for nobody: while a session works on files
/// it says so and does nothing.
#[derive(clap::Args)]
pub(crate) struct Gc {
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
}

impl Gc {
    pub(crate) fn run(self, settings: &Settings) -> Result<Answer> {
        let progress = output::spinner(settings);
        let garbage = settings.embedded()?.collect(self.dry_run, &mut |records| progress.set_position(records))?;
        progress.finish_and_clear();
        if settings.json {
            output::json(&garbage)?;
            return Ok(Answer::Yes);
        }
        let (dead, size) = (output::count(garbage.dead, "blob"), bytes(garbage.dead_bytes));
        match self.dry_run {
            true => output::answer(format_args!("{dead} that no record names, {size}"))?,
            false => {
                output::answer(format_args!("removed {dead}, {size}; {} went back to the disk", bytes(garbage.freed)))?
            }
        }
        output::remark(format_args!(
            "{} live, {}; of that, versions of files: {}",
            output::count(garbage.live, "blob"),
            bytes(garbage.live_bytes),
            bytes(garbage.version_bytes)
        ));
        Ok(Answer::Yes)
    }
}
