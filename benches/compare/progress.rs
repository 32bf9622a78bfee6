//! Shows a long run's progress: a bar on a terminal, plain lines elsewhere, all on standard error.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a plain line reports a running step.
const LINE_EVERY: Duration = Duration::from_secs(20);

/// Reports progress.
pub struct Screen {
    bars: Option<MultiProgress>,
    started: Instant,
}

impl Screen {
    /// A screen on standard error.
    pub fn new() -> Screen {
        let terminal = std::io::stderr().is_terminal();
        Screen { bars: terminal.then(MultiProgress::new), started: Instant::now() }
    }

    /// Prints a line.
    pub fn say(&self, line: impl AsRef<str>) {
        let elapsed = self.started.elapsed().as_secs();
        let line = format!("bench {:02}:{:02}  {}", elapsed / 60, elapsed % 60, line.as_ref());
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Starts a step of known length, in records or whatever `total` counts.
    pub fn step(&self, what: impl Into<String>, total: u64) -> Step<'_> {
        let what = what.into();
        let bar = self.bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template("{msg:40!} {wide_bar} {human_pos}/{human_len} {per_sec} {eta}");
            let bar = bars.add(ProgressBar::new(total));
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(what.clone());
            bar
        });
        Step { progress: self, what, total, bar, said: Instant::now() }
    }
}

/// A running step. Dropping this removes its bar.
pub struct Step<'a> {
    progress: &'a Screen,
    what: String,
    total: u64,
    bar: Option<ProgressBar>,
    said: Instant,
}

impl Step<'_> {
    /// Sets how far it has got.
    pub fn at(&mut self, done: u64) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
        } else if self.said.elapsed() >= LINE_EVERY {
            self.said = Instant::now();
            let part = done as f64 / self.total.max(1) as f64 * 100.0;
            self.progress.say(format!("{}: {part:.0} %", self.what));
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
