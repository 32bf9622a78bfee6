//! Progress bars for restores and sweeps on a terminal, one of each kind for each topology, below the log.
//!
//! Bars and log lines share one terminal: to write a line, the bars are cleared, the line is written and the bars
//! are redrawn, all under one lock, so that they never mix. If the terminal goes away, the bars are silently dropped.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use console::Term;
use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::engine::clock::{Clock, SystemClock};
use crate::observe::{LongWork, Metrics, Pace, Work};
use crate::record::TopicPartition;
use crate::words::{agreeing, counted};

/// How often the bars are updated.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often they are drawn per second, at most.
const DRAWS_PER_SECOND_MAX: u8 = 10;
/// Shorter sweeps get no bar: most are short and frequent, and the bar would flicker.
const SWEEP_SHOWN_AFTER: Duration = Duration::from_secs(1);

/// A terminal that can show bars.
pub struct Bars {
    multi: MultiProgress,
}

/// Bars on screen.
pub struct Shown {
    multi: MultiProgress,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Bars {
    /// Bars on standard error, if that is a terminal.
    pub fn on_terminal() -> Option<Self> {
        let target = || ProgressDrawTarget::term_like_with_hz(Box::new(Lenient::stderr()), DRAWS_PER_SECOND_MAX);
        io::stderr().is_terminal().then(|| Self { multi: MultiProgress::with_draw_target(target()) })
    }

    /// A writer to standard error, above the bars.
    pub fn writer(&self) -> impl Fn() -> Above + Send + Sync + 'static {
        let multi = self.multi.clone();
        move || Above(multi.clone())
    }

    /// Shows a bar for each topology that restores, and one for each that sweeps, while it does.
    pub fn show(self, metrics: Metrics) -> Shown {
        let stop = Arc::new(AtomicBool::new(false));
        let (multi, stopped) = (self.multi.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            let clock = SystemClock::default();
            let mut bars = BTreeMap::new();
            while !stopped.load(Ordering::Relaxed) {
                follow(&mut bars, &multi, clock.monotonic(), metrics.long_work());
                thread::park_timeout(INTERVAL);
            }
            follow(&mut bars, &multi, clock.monotonic(), Vec::new());
        });
        Shown { multi: self.multi, stop, thread }
    }
}

impl Shown {
    /// Clears the bars.
    pub fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // a panic there leaves nothing undone
        let _ = self.thread.join();
        let _ = self.multi.clear();
    }
}

/// Writes above the bars.
pub struct Above(MultiProgress);

impl Write for Above {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.suspend(|| io::stderr().write_all(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// A topology's restores, or its sweeps.
type BarKey = (String, Work);

/// The bar of one kind.
struct Row {
    bar: ProgressBar,
    episode: Episode,
    is_drawn: bool,
}

impl Row {
    fn begin((topology, work): &BarKey, now: Duration) -> Self {
        Self { bar: bar(topology), episode: Episode::begin(*work, now), is_drawn: false }
    }
}

/// Updates the bars to the work in progress.
fn follow(bars: &mut BTreeMap<BarKey, Row>, multi: &MultiProgress, now: Duration, long_work: Vec<LongWork>) {
    let mut by_kind: BTreeMap<BarKey, Vec<LongWork>> = BTreeMap::new();
    for work in long_work {
        by_kind.entry((work.topology.clone(), work.work)).or_default().push(work);
    }
    bars.retain(|kind, row| {
        let continues = by_kind.contains_key(kind);
        if !continues {
            row.bar.finish_and_clear();
            multi.remove(&row.bar);
        }
        continues
    });
    for (kind, long_work) in by_kind {
        let Row { bar, episode, is_drawn } = bars.entry(kind).or_insert_with_key(|kind| Row::begin(kind, now));
        episode.at(now, &long_work);
        let (done, remaining) = (episode.pace.done(), episode.pace.remaining());
        bar.set_message(episode.to_string());
        bar.set_length(done + remaining);
        bar.set_position(done);
        if !*is_drawn && episode.is_shown() {
            // only now, so it is never drawn empty
            *bar = multi.add(bar.clone());
            *is_drawn = true;
        }
    }
}

fn bar(topology: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} {bar:24} {percent:>3} %  {wide_msg}");
    // hidden until it is added to the other bars
    ProgressBar::hidden()
        .with_prefix(topology.to_owned())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A topology's work of one kind, from the first partition's start to the last one's end.
struct Episode {
    work: Work,
    /// How much each partition has done, and how much remains.
    partitions: BTreeMap<TopicPartition, (u64, u64)>,
    at_work: usize,
    pace: Pace,
}

impl Episode {
    fn begin(work: Work, now: Duration) -> Self {
        Self { work, partitions: BTreeMap::new(), at_work: 0, pace: Pace::begin(now, 0) }
    }

    /// Whether it gets a bar.
    fn is_shown(&self) -> bool {
        self.work == Work::Restore || self.pace.took() >= SWEEP_SHOWN_AFTER
    }

    /// Updates it to the work in progress. A partition that is missing has ended, and counts as done.
    fn at(&mut self, now: Duration, long_work: &[LongWork]) {
        for (done, remaining) in self.partitions.values_mut() {
            (*done, *remaining) = (*done + *remaining, 0);
        }
        for work in long_work {
            self.partitions.insert(work.partition.clone(), (work.done, work.remaining));
        }
        self.at_work = long_work.len();
        let (done, remaining) =
            self.partitions.values().fold((0, 0), |sum, (done, remaining)| (sum.0 + done, sum.1 + remaining));
        self.pace.at(now, done, remaining);
    }
}

impl std::fmt::Display for Episode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (partitions, remaining) = (counted(self.at_work, "partition"), self.pace.remaining());
        let (doing, records) = match self.work {
            Work::Restore => ("restoring", agreeing(remaining, "record", "records")),
            Work::Sweep => ("looking for expired entries in", agreeing(remaining, "entry", "entries")),
        };
        write!(f, "{doing} {partitions}: {} {records} to go", HumanCount(remaining))?;
        if let Some(rate) = self.pace.per_second() {
            write!(f, ", {}/s", HumanCount(rate as u64))?;
        }
        match self.pace.left() {
            Some(left) => write!(f, ", {} left", humantime::format_duration(Duration::from_secs(left.as_secs()))),
            None => Ok(()),
        }
    }
}

/// A terminal that never reports an error: once drawing has failed, nothing more is drawn.
#[derive(Debug)]
struct Lenient {
    term: Term,
    gone: AtomicBool,
}

impl Lenient {
    fn stderr() -> Self {
        Self { term: Term::buffered_stderr(), gone: AtomicBool::new(false) }
    }

    fn draw(&self, act: impl FnOnce(&Term) -> io::Result<()>) -> io::Result<()> {
        if !self.gone.load(Ordering::Relaxed) && act(&self.term).is_err() {
            self.gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl TermLike for Lenient {
    fn width(&self) -> u16 {
        self.term.size().1
    }

    fn height(&self) -> u16 {
        self.term.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_up(n))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_down(n))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_right(n))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.draw(|term| term.move_cursor_left(n))
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.draw(|term| term.write_line(line))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.draw(|term| term.write_str(text))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.draw(Term::clear_line)
    }

    fn flush(&self) -> io::Result<()> {
        self.draw(Term::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_work(work: Work, partition: i32, done: u64, remaining: u64) -> LongWork {
        let partition = TopicPartition::new("in", partition);
        LongWork { work, topology: "payments".to_owned(), partition, done, remaining }
    }

    fn restore(partition: i32, done: u64, remaining: u64) -> LongWork {
        at_work(Work::Restore, partition, done, remaining)
    }

    fn sweep(partition: i32, done: u64, remaining: u64) -> LongWork {
        at_work(Work::Sweep, partition, done, remaining)
    }

    #[test]
    fn bar_shows_remaining_records_rate_and_time_left() {
        let mut episode = Episode::begin(Work::Restore, Duration::ZERO);
        episode.at(Duration::ZERO, &[restore(0, 0, 2_000_000), restore(1, 0, 1_000_000)]);
        assert_eq!(episode.to_string(), "restoring 2 partitions: 3,000,000 records to go");
        episode.at(Duration::from_secs(1), &[restore(0, 30_000, 1_970_000), restore(1, 10_000, 990_000)]);
        let text = "restoring 2 partitions: 2,960,000 records to go, 40,000/s, 1m 14s left";
        assert_eq!(episode.to_string(), text);
    }

    #[test]
    fn bar_of_sweeps_counts_entries() {
        let mut episode = Episode::begin(Work::Sweep, Duration::ZERO);
        episode.at(Duration::from_secs(1), &[sweep(0, 40_000, 960_000)]);
        let text = "looking for expired entries in 1 partition: 960,000 entries to go, 40,000/s, 24s left";
        assert_eq!(episode.to_string(), text);
    }

    #[test]
    fn finished_partition_counts_as_done() {
        let mut episode = Episode::begin(Work::Restore, Duration::ZERO);
        episode.at(Duration::from_secs(1), &[restore(0, 500, 500), restore(1, 100, 900)]);
        episode.at(Duration::from_secs(2), &[restore(1, 200, 800)]);
        assert_eq!((episode.pace.done(), episode.pace.remaining()), (1_200, 800));
        episode.at(Duration::from_secs(3), &[restore(1, 300, 700), restore(2, 0, 5_000)]);
        assert_eq!((episode.pace.done(), episode.pace.remaining()), (1_300, 5_700), "another one has started");
        assert!(episode.to_string().starts_with("restoring 2 partitions: 5,700 records to go"), "{episode}");
    }

    #[test]
    fn bar_disappears_when_its_topology_has_restored() {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let mut bars = BTreeMap::new();
        follow(&mut bars, &multi, Duration::ZERO, vec![restore(0, 250, 750)]);
        let bar = bars[&("payments".to_owned(), Work::Restore)].bar.clone();
        assert_eq!((bar.position(), bar.length(), bar.is_finished()), (250, Some(1_000), false));
        follow(&mut bars, &multi, Duration::from_secs(1), Vec::new());
        assert!(bars.is_empty() && bar.is_finished());
    }

    #[test]
    fn only_a_long_sweep_gets_a_bar_of_its_own() {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        let mut bars = BTreeMap::new();
        let drawn = |bars: &BTreeMap<BarKey, Row>| {
            bars.iter().filter(|(_, row)| row.is_drawn).map(|((_, work), _)| *work).collect::<Vec<_>>()
        };
        follow(&mut bars, &multi, Duration::ZERO, vec![restore(0, 250, 750), sweep(1, 0, 900)]);
        assert_eq!(drawn(&bars), [Work::Restore]);
        follow(&mut bars, &multi, SWEEP_SHOWN_AFTER, vec![restore(0, 500, 500), sweep(1, 300, 600)]);
        assert_eq!(drawn(&bars), [Work::Restore, Work::Sweep]);
        follow(&mut bars, &multi, SWEEP_SHOWN_AFTER * 2, vec![restore(0, 750, 250)]);
        assert_eq!(drawn(&bars), [Work::Restore], "the sweep has ended");
    }
}
