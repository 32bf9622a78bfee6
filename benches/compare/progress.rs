//! Says where a long run is: a bar on a terminal, plain lines elsewhere. All of it goes to standard error.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// How often a plain line tells of a step that is under way.
const LINE_EVERY: Duration = Duration::from_secs(20);

/// Where things are said.
pub struct Progress {
    bars: Option<MultiProgress>,
    started: Instant,
}

impl Progress {
    /// On standard error.
    pub fn new() -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { bars: terminal.then(MultiProgress::new), started: Instant::now() }
    }

    /// Says a line.
    pub fn say(&self, line: impl AsRef<str>) {
        let elapsed = self.started.elapsed().as_secs();
        let line = format!("bench {:02}:{:02}  {}", elapsed / 60, elapsed % 60, line.as_ref());
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// A step with an end, in records or whatever `total` counts.
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

/// A step that is under way. Dropped, its bar goes.
pub struct Step<'a> {
    progress: &'a Progress,
    what: String,
    total: u64,
    bar: Option<ProgressBar>,
    said: Instant,
}

impl Step<'_> {
    /// How far it has come.
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
