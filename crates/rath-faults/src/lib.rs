//! A library that is preloaded (`LD_PRELOAD`) into a process under test. It replaces functions of the C library.
//!
//! It records every change of a file or directory below one directory, the root, and every sync, in the order in which
//! they happened, across processes ([`trace`]). `rath_testkit::power` computes from the record what a disk may have
//! after a power cut. Files below the root are not really synced, because the tests simulate the power cut. It also
//! makes calls fail, or succeed without an effect, according to rules ([`rules`]).
//!
//! Environment variables: `RATH_FAULTS_ROOT` is the root, as `realpath` returns it; without it the library does
//! nothing. `RATH_FAULTS_TRACE` is the file for the record. `RATH_FAULTS_RULES` are the rules; a process changes them
//! by writing to the file `faults` in the root. System calls that do not go through the C library, as in rustix, are
//! not intercepted.

#![cfg(target_os = "linux")]

mod calls;
mod entries;
mod file_path;
mod rules;
mod trace;
