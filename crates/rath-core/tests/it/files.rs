//! Files as values: differences, changes, merges, patches.

mod diff;
mod merge;
mod merge_laws;
mod patch;
mod test_files;
