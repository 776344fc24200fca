//! Files as values: differences, grafts, merges, patches.

mod diff;
mod garden;
mod merge;
mod merge_laws;
mod patch;
