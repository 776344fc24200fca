use std::path::PathBuf;

use super::super::place::PlaceArgs;

/// Where a run works.
#[derive(clap::Args, Clone)]
pub(super) struct RunPlace {
    /// The directory, instead of this one
    #[arg(long = "in", value_name = "DIR")]
    copy_of: Option<PathBuf>,
    /// Work in the directory itself, not in a copy
    #[arg(long)]
    in_place: bool,
    /// The backend: `local` is isolated and the default, `host` runs commands as you
    #[arg(long, value_name = "BACKEND")]
    on: Option<String>,
    /// Run this shell line once when a copy is made, e.g. "npm ci"; others with the same files share what it leaves
    #[arg(long, value_name = "LINE")]
    setup: Option<String>,
    /// Allow your home directory and `/`
    #[arg(long)]
    pub(super) anywhere: bool,
}

impl RunPlace {
    /// `here`: in this directory, where nothing else is said.
    pub(super) fn args(&self, here: bool) -> PlaceArgs {
        let dir = self.copy_of.clone().or_else(|| (here || self.in_place).then(|| PathBuf::from(".")));
        let (copy_of, in_place) = if self.in_place { (None, dir) } else { (dir, None) };
        PlaceArgs { on: self.on.clone(), copy_of, in_place, setup: self.setup.clone(), anywhere: self.anywhere }
    }
}
