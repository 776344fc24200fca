//! A run while it happens, on the person's terminal: words as they come, calls with what they changed, and a line that
//! says what is going on.
//!
//! A [`Show`] is told what happens by a listener and writes it on a [`Screen`]. [`Interrupts`] are Ctrl-C. A [`Keyboard`]
//! reads lines and answers. [`Records`] prints records as JSON instead.

mod headline;
mod interrupts;
mod keyboard;
mod records;
mod screen;
mod show;

pub(crate) use headline::headline;
pub(crate) use interrupts::Interrupts;
pub(crate) use keyboard::restore_terminal;
pub(crate) use keyboard::{Keyboard, Line};
pub(crate) use records::Records;
pub(crate) use screen::Screen;
pub(crate) use show::Show;
