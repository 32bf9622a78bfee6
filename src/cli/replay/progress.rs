//! How far a replay has come, as a bar on a terminal and as nothing anywhere else.

use std::cell::Cell;
use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// After how many records the bar is told.
const RECORDS_EVERY: u64 = 1024;

/// The bar, if there is one.
pub struct Progress {
    bar: ProgressBar,
    records: Cell<u64>,
}

impl Progress {
    /// A bar up to this many bytes, or a spinner. Hidden unless standard error is a terminal, and hidden
    /// where standard output is one too: survivors would run into it.
    pub fn begin(bytes: Option<u64>) -> Self {
        let shown = io::stderr().is_terminal() && !io::stdout().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(bytes, target);
        let template = match bytes {
            Some(_) => "{bar:32} {percent:>3} %  {msg} records, {bytes_per_sec}, {eta} to go",
            None => "{spinner} {bytes}  {msg} records, {bytes_per_sec}",
        };
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, records: Cell::new(0) }
    }

    /// One more record was judged; so many bytes have been read.
    pub fn at(&self, bytes: u64) {
        let records = self.records.get() + 1;
        self.records.set(records);
        if records.is_multiple_of(RECORDS_EVERY) && !self.bar.is_hidden() {
            self.bar.set_position(bytes);
            self.bar.set_message(records.to_string());
        }
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
