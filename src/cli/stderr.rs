//! Messages for people, on standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Writes this text. Not with `eprint!`, which panics if standard error is closed: the command should still do its
/// work then.
pub fn say(text: impl Display) {
    let mut stderr = io::stderr().lock();
    let _ = write!(stderr, "{text}").and_then(|()| stderr.flush());
}

/// Whether messages may have colours: standard error is a terminal, and `NO_COLOR` is not set.
pub fn is_colored() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
