//! How far a replay has come, as a bar on a terminal and as nothing anywhere else.

use std::cell::Cell;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::engine::clock::{Clock, SystemClock};
use crate::observe::Pace;

/// After how many records the bar is told.
const RECORDS_EVERY: u64 = 64;
/// How often it is drawn where no record comes.
const TICK: Duration = Duration::from_millis(200);

/// The bar, if there is one.
pub struct Progress {
    bar: ProgressBar,
    records: Cell<u64>,
    told: Arc<AtomicU64>,
}

impl Progress {
    /// A bar up to this many bytes, or a spinner. Hidden unless standard error is a terminal, and hidden
    /// where standard output is one too: survivors would run into it.
    pub fn begin(bytes: Option<u64>) -> Self {
        let told = Arc::new(AtomicU64::new(0));
        if io::stdout().is_terminal() || !io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), records: Cell::new(0), told };
        }
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::stderr());
        let template = match bytes {
            Some(_) => "{bar:32} {percent:>3} %  {records}, {eta} left",
            None => "{spinner} {records}, {bytes}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.with_key("records", shown(Arc::clone(&told))));
        bar.enable_steady_tick(TICK);
        Self { bar, records: Cell::new(0), told }
    }

    /// One more record was judged; so many bytes have been read.
    pub fn at(&self, bytes: u64) {
        let records = self.records.get() + 1;
        self.records.set(records);
        if records.is_multiple_of(RECORDS_EVERY) {
            self.tell(bytes);
        }
    }

    /// The next record may have to be waited for; so many bytes have been read.
    pub fn tell(&self, bytes: u64) {
        if !self.bar.is_hidden() {
            self.told.store(self.records.get(), Ordering::Relaxed);
            self.bar.set_position(bytes);
        }
    }

    /// Has something said where the bar does not run into it.
    pub fn above(&self, say: impl FnOnce()) {
        self.bar.suspend(say);
    }

    /// Takes the bar away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// Shows how many records were judged, and how many in a second; each drawing is a look at the clock.
fn shown(told: Arc<AtomicU64>) -> impl Fn(&ProgressState, &mut dyn Write) + Clone + Send + Sync + 'static {
    let clock = SystemClock::default();
    let pace = Arc::new(Mutex::new(Pace::begin(clock.monotonic(), 0)));
    move |_, text| {
        // the pace is numbers: a panic elsewhere cannot leave them half written
        let mut pace = pace.lock().unwrap_or_else(PoisonError::into_inner);
        pace.at(clock.monotonic(), told.load(Ordering::Relaxed), 0);
        // what cannot be drawn is not
        let _ = write!(text, "{} records", HumanCount(pace.done()));
        if let Some(rate) = pace.per_second() {
            let _ = write!(text, ", {}/s", HumanCount(rate as u64));
        }
    }
}
