//! The demo's output: lines on standard output, a bar on standard error if that is a terminal.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Where lines go.
pub struct Screen<W> {
    out: W,
}

impl<W: Write> Screen<W> {
    pub fn new(out: W) -> Self {
        Self { out }
    }

    /// Writes a line and flushes it.
    pub fn line(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        writeln!(self.out, "{text}")?;
        self.out.flush()
    }

    /// A bar up to `length`, with a message after the position; short enough for 80 columns.
    /// indicatif hides it if standard error is not a terminal.
    pub fn bar(&self, message: &'static str, length: u64) -> ProgressBar {
        let bar = ProgressBar::new(length).with_message(message);
        let style = ProgressStyle::with_template("   {bar:14} {human_pos} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    }
}

/// A number with thousands separators.
pub fn count(number: u64) -> impl fmt::Display {
    indicatif::HumanCount(number)
}

/// A duration in seconds.
pub fn seconds(length: Duration) -> impl fmt::Display {
    let seconds = length.as_secs_f64();
    if seconds < 1.0 { format!("{seconds:.2} s") } else { format!("{seconds:.1} s") }
}

/// A rate, to two digits; nothing if too little was measured.
pub fn per_second(number: u64, length: Duration) -> impl fmt::Display {
    let rate = number as f64 / length.as_secs_f64();
    if !rate.is_finite() || rate < 1.0 {
        return String::new();
    }
    let step = 10f64.powf(rate.log10().floor() - 1.0).max(1.0);
    format!(" ({} a second)", count(((rate / step).round() * step) as u64))
}

/// A size in bytes.
pub fn size(bytes: u64) -> impl fmt::Display {
    indicatif::BinaryBytes(bytes)
}
