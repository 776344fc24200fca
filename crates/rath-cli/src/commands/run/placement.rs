use std::path::PathBuf;

use crate::commands::workspace::PlacementArgs;

/// Where a run works.
#[derive(clap::Args, Clone)]
pub(super) struct RunPlacement {
    /// Work in a copy of this directory [default: the current one]
    #[arg(long = "in", value_name = "DIR")]
    copy_of: Option<PathBuf>,
    /// Work in the directory itself, not in a copy
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    in_place: Option<Option<PathBuf>>,
    /// The backend: `local` isolates commands, `host` runs them as you [default: local]
    #[arg(long, value_name = "BACKEND")]
    on: Option<String>,
    /// Run this shell command once when a copy is made, e.g. "npm ci"; sessions with the same files share its result
    #[arg(long, value_name = "COMMAND")]
    setup: Option<String>,
    /// Allow your home directory and `/`
    #[arg(long)]
    pub(super) anywhere: bool,
}

impl RunPlacement {
    /// The placement that the flags name. If they name no directory, it is `default`.
    pub(super) fn args(&self, default: Option<PathBuf>) -> PlacementArgs {
        let named = self.in_place.clone().flatten().or_else(|| self.copy_of.clone());
        let here = self.in_place.is_some().then(|| PathBuf::from("."));
        let directory = named.or(default).or(here);
        let (copy_of, in_place) = if self.in_place.is_some() { (None, directory) } else { (directory, None) };
        PlacementArgs { on: self.on.clone(), copy_of, in_place, setup: self.setup.clone(), anywhere: self.anywhere }
    }
}
