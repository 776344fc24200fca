//! A library that is loaded before the C library (`LD_PRELOAD`) into a process that is put to the test.
//!
//! Below one directory, the root, it writes down every change of a file or a directory and every sync, in the order in
//! which they happened, also over several processes ([`trace`]); `rath_testkit::power` builds from that what a disk may
//! hold after a power cut. Nothing below the root is really synced: who loses power on purpose need not wait for disks.
//! And it lets calls fail, or lie, as it is told ([`rules`]).
//!
//! Told by environment: `RATH_FAULTS_ROOT` (the root, as `realpath` says it), `RATH_FAULTS_TRACE` (where to write),
//! `RATH_FAULTS_RULES`. A process changes its rules by writing them into the file `faults` in the root. Without a root
//! nothing happens. Programs that make system calls by themselves (rustix does) are not seen.

#![cfg(target_os = "linux")]

mod calls;
mod entries;
mod place;
mod rules;
mod trace;
