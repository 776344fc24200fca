//! The tests of rath-core, in one binary.

#![allow(missing_docs, reason = "tests")]

mod vectors;
