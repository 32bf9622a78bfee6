//! The progress of a replay or a capture: a bar on a terminal; elsewhere a line on standard error every
//! [`LOG_INTERVAL`].

use std::cell::{Cell, RefCell};
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use super::stderr::say;
use crate::engine::clock::{Clock, SystemClock};
use crate::engine::long_work::LOG_INTERVAL;
use crate::observe::Pace;
use crate::words::agreeing;

/// How many records are counted between two updates of the bar.
const RECORDS_EVERY: u64 = 64;
/// How often it is redrawn while no record arrives.
const TICK: Duration = Duration::from_millis(200);

/// The bar or the lines. How far the work is, is counted in steps: bytes of a capture, or offsets of a topic.
pub struct RecordsBar {
    bar: ProgressBar,
    lines: Option<RefCell<Lines>>,
    clock: SystemClock,
    records: Cell<u64>,
    /// How many records the bar shows.
    shown: Arc<AtomicU64>,
}

impl RecordsBar {
    /// A bar up to this many steps, or a spinner, if standard error is a terminal; lines otherwise. Neither if records go to
    /// standard output (`prints`) and that is a terminal too: they would run into each other.
    pub fn begin(bytes: Option<u64>, prints: bool) -> Self {
        let shown = Arc::new(AtomicU64::new(0));
        let clock = SystemClock::default();
        let on_terminal = io::stderr().is_terminal();
        if prints && io::stdout().is_terminal() || !on_terminal {
            let lines = (!on_terminal).then(|| RefCell::new(Lines::begin(clock.monotonic(), bytes)));
            return Self { bar: ProgressBar::hidden(), lines, clock, records: Cell::new(0), shown };
        }
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
        let template = match bytes {
            Some(_) => "{bar:32} {percent:>3} %  {records}, {eta} left",
            None => "{spinner} {records}, {bytes}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.with_key("records", records_key(Arc::clone(&shown))));
        bar.enable_steady_tick(TICK);
        Self { bar, lines: None, clock, records: Cell::new(0), shown }
    }

    /// Counts a record, to be shown with the next update.
    pub fn add(&self) {
        self.records.set(self.records.get() + 1);
    }

    /// Counts a record. `bytes` is how many steps are done so far.
    pub fn count(&self, bytes: u64) {
        self.add();
        if self.records.get().is_multiple_of(RECORDS_EVERY) {
            self.update(bytes);
        }
    }

    /// Brings the bar or the lines up to date, as before waiting for the next record. `bytes` is how many steps are done
    /// so far.
    pub fn update(&self, bytes: u64) {
        let records = self.records.get();
        if let Some(lines) = &self.lines {
            let line = lines.borrow_mut().at(self.clock.monotonic(), records, bytes);
            if let Some(line) = line {
                say(format_args!("{line}\n"));
            }
        } else if !self.bar.is_hidden() {
            self.shown.store(records, Ordering::Relaxed);
            self.bar.set_position(bytes);
        }
    }

    /// Runs `say` with the bar hidden, so that they do not mix.
    pub fn above(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }

    /// Clears the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Replaces the bar in a file or a pipe.
struct Lines {
    /// When a line was last written.
    last_written: Duration,
    records: Pace,
    bytes: Pace,
    /// `None` if it is not known.
    bytes_total: Option<u64>,
}

impl Lines {
    fn begin(now: Duration, bytes_total: Option<u64>) -> Self {
        let bytes = Pace::begin(now, bytes_total.unwrap_or(0));
        Self { last_written: now, records: Pace::begin(now, 0), bytes, bytes_total }
    }

    /// The line that is due after this many records and bytes, if one is.
    fn at(&mut self, now: Duration, records: u64, bytes: u64) -> Option<String> {
        self.records.at(now, records, 0);
        // a file may have grown meanwhile
        let total = self.bytes_total.map(|total| total.max(bytes));
        self.bytes.at(now, bytes, total.unwrap_or(bytes) - bytes);
        if now.saturating_sub(self.last_written) < LOG_INTERVAL {
            return None;
        }
        self.last_written = now;
        let mut line = format!("{} {}", HumanCount(records), agreeing(records, "record", "records"));
        if let Some(rate) = self.records.per_second() {
            let _ = write!(line, ", {}/s", HumanCount(rate as u64));
        }
        if let Some(total) = total.filter(|&total| total > 0) {
            let _ = write!(line, ", {} %", u128::from(bytes) * 100 / u128::from(total));
            if let Some(left) = self.bytes.left() {
                let left = Duration::from_secs(left.as_secs());
                let _ = write!(line, ", {} left", humantime::format_duration(left));
            }
        }
        Some(line)
    }
}

/// The template's `records`: how many there were, and how many per second. Reads the clock at each drawing.
fn records_key(shown: Arc<AtomicU64>) -> impl Fn(&ProgressState, &mut dyn Write) + Clone + Send + Sync + 'static {
    let clock = SystemClock::default();
    let pace = Arc::new(Mutex::new(Pace::begin(clock.monotonic(), 0)));
    move |_, text| {
        // the pace is numbers: a panic elsewhere cannot leave them half written
        let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.at(clock.monotonic(), shown.load(Ordering::Relaxed), 0);
        // what cannot be drawn is left out
        let _ = write!(text, "{} {}", HumanCount(pace.done()), agreeing(pace.done(), "record", "records"));
        if let Some(rate) = pace.per_second() {
            let _ = write!(text, ", {}/s", HumanCount(rate as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_shows_records_rate_share_and_time_left() {
        let mut lines = Lines::begin(Duration::ZERO, Some(4_000_000));
        assert_eq!(lines.at(Duration::from_millis(400), 400, 40_000), None, "it is too early");
        let line = lines.at(LOG_INTERVAL, 10_000, 1_000_000);
        assert_eq!(line.as_deref(), Some("10,000 records, 1,000/s, 25 %, 30s left"));
        assert_eq!(lines.at(LOG_INTERVAL, 10_001, 1_000_100), None, "one was just written");
        let line = lines.at(LOG_INTERVAL * 2, 20_000, 4_000_000).expect("it is time for one");
        assert!(line.starts_with("20,000 records, ") && line.ends_with(", 100 %, 0s left"), "{line}");
    }

    #[test]
    fn line_without_a_known_end_shows_records_and_rate() {
        let mut lines = Lines::begin(Duration::ZERO, None);
        let line = lines.at(LOG_INTERVAL, 10_000, 1_000_000);
        assert_eq!(line.as_deref(), Some("10,000 records, 1,000/s"));
    }
}
