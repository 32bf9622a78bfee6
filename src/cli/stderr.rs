//! What is said to a person, on standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Says this, as it is. Not by `eprint!`, which panics where nobody listens any more: that is no reason
/// not to do what was asked for.
pub fn say(text: impl Display) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
}

/// Whether messages may have colours: standard error is a terminal, and `NO_COLOR` is not set.
pub fn is_colored() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
