//! Shows a run on the terminal while it happens: text as it streams in, calls with the files that they changed, and a
//! status line.
//!
//! A [`Progress`] receives the events of a run and writes them to a [`Screen`]. [`Interrupts`] handles Ctrl-C. A
//! [`Keyboard`] reads lines and answers. With `--json`, [`JsonRecords`] prints the records instead.

mod headline;
mod interrupts;
mod json;
mod keyboard;
mod progress;
mod screen;

pub(crate) use headline::headline;
pub(crate) use interrupts::Interrupts;
pub(crate) use json::JsonRecords;
pub(crate) use keyboard::restore_terminal;
pub(crate) use keyboard::{Keyboard, TypedLine};
pub(crate) use progress::Progress;
pub(crate) use screen::Screen;
