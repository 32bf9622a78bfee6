//! What the engine says, mostly in its log: refusals, and situations that nothing else shows. A seed runs on one
//! thread, and so does everything heard of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::coverage;
use crate::world::INJECTED_PANIC;

/// What was heard during a seed.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    pub seen: BTreeMap<&'static str, u64>,
    /// The partitions whose tasks were stopped, as `topic:number`.
    pub refused: BTreeSet<String>,
    /// Those stopped because their database was behind Kafka, and because Kafka was behind it.
    pub behind: BTreeSet<String>,
    pub ahead: BTreeSet<String>,
    /// Those stopped at a call, since their topology wants that.
    pub at_calls: BTreeSet<String>,
    /// Whether an instance was refused at its start.
    pub start_refused: bool,
    /// Panics that the schedule did not inject.
    pub panics: Vec<String>,
    /// What was said last of each task, as `topic:number`.
    pub last: BTreeMap<String, String>,
}

thread_local! {
    static HEARD: RefCell<Heard> = RefCell::default();
    /// Whether a commit has just succeeded and nothing has waited since: what is logged now is about its store write.
    static COMMITTED: RefCell<bool> = const { RefCell::new(false) };
}

/// Starts listening; with `verbose`, the log is printed too.
pub fn listen(verbose: bool) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let layer = || tracing_subscriber::fmt::layer().without_time().with_ansi(false);
        let printed = verbose.then(|| layer().with_filter(LevelFilter::INFO));
        // Injected panics are many, and are counted.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload_as_str().is_some_and(|words| words.starts_with(INJECTED_PANIC)) {
                hook(info);
            }
        }));
        // An error means that a listener is set already.
        let _ = tracing_subscriber::registry().with(Listener.with_filter(LevelFilter::WARN)).with(printed).try_init();
    });
}

/// What was heard on this thread since the last call.
pub fn take() -> Heard {
    HEARD.take()
}

/// A commit has succeeded.
pub fn committed() {
    COMMITTED.set(true);
}

/// An instance was refused at its start.
pub fn start_refused() {
    HEARD.with_borrow_mut(|heard| heard.start_refused = true);
}

impl Heard {
    fn panicked(&mut self, words: &str) {
        if !words.starts_with(INJECTED_PANIC) {
            self.panics.push(words.to_owned());
        }
    }
}

/// Something waits.
pub fn waits() {
    COMMITTED.set(false);
}

/// Prefix of the reason why a panicked lane ended.
const LANE_PANICKED: &str = "panicked: ";

/// What the reason says if a task stops at a call since its topology wants that.
const CALL_STOPS: [&str; 2] = ["the topology says `on_in_doubt: fail`", "the topology says `on_rejected: fail`"];

struct Listener;

impl<S: Subscriber> Layer<S> for Listener {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut said = Said::default();
        event.record(&mut said);
        HEARD.with_borrow_mut(|heard| said.count(heard));
    }
}

/// An event's texts.
#[derive(Default)]
struct Said {
    message: String,
    reason: String,
    task: String,
}

impl Said {
    fn count(self, heard: &mut Heard) {
        if !self.task.is_empty() {
            heard.last.insert(self.task.clone(), format!("{}: {}", self.message, self.reason));
        }
        let is_full = self.reason.contains("No space left");
        let situation = match &self.message[..] {
            "task stopped" => {
                if self.reason.starts_with("sink_behind") {
                    heard.behind.insert(self.task.clone());
                }
                if self.reason.starts_with("sink_ahead") {
                    heard.ahead.insert(self.task.clone());
                }
                let is_at_call = CALL_STOPS.iter().any(|words| self.reason.contains(words));
                if is_at_call {
                    heard.at_calls.insert(self.task.clone());
                }
                heard.refused.insert(self.task);
                match &self.reason {
                    _ if is_at_call => return,
                    reason if reason.contains("the processed offsets fall apart") => coverage::RANGES_MET,
                    reason if reason.contains("the records are of more than") => coverage::SCOPES_MET,
                    reason if reason.contains("have taken turns more than") => coverage::SEGMENTS_MET,
                    reason if reason.contains("records that the store has applied") => coverage::TAIL_MISSED,
                    reason if reason.contains("and the store has applied it up to") => coverage::TAIL_MISSED,
                    reason if reason.contains("any more what the store has applied") => coverage::TAIL_REGROWN,
                    reason if reason.starts_with("sink_behind") => coverage::SINK_BEHIND,
                    reason if reason.starts_with("sink_ahead") => coverage::SINK_AHEAD,
                    _ => coverage::REFUSED,
                }
            }
            "the task panicked; restarting it" => {
                heard.panicked(&self.reason);
                coverage::TASK_PANICKED
            }
            "lane restarts" | "lane given up" if self.reason.starts_with(LANE_PANICKED) => {
                heard.panicked(&self.reason[LANE_PANICKED.len()..]);
                if self.message == "lane given up" { coverage::LANE_GIVEN_UP } else { coverage::LANE_PANICKED }
            }
            "the watch panicked; restarting it" => {
                heard.panicked(&self.reason);
                coverage::WATCH_PANICKED
            }
            "restore set back" if is_full && COMMITTED.take() => coverage::FULL_AT_COMMIT,
            "store is damaged; rebuilding it from the changelog" => coverage::DAMAGE_MET,
            "store cannot be built upon; rebuilding it from the changelog" => coverage::REBUILT,
            "this task's output fails; isolating the task" => coverage::ISOLATED,
            text if text.starts_with("a record's timestamp is in the future by this host's clock but not") => {
                coverage::CLOCK_DOUBTED
            }
            text if text.starts_with("the group was reset") => coverage::RESET_MET,
            text if text.starts_with("the group has no offset any more:") => coverage::DELETED_MET,
            _ => return,
        };
        *heard.seen.entry(situation).or_default() += 1;
    }

    fn note(&mut self, field: &Field, text: impl FnOnce() -> String) {
        match field.name() {
            "message" => self.message = text(),
            "reason" => self.reason = text(),
            "task" => self.task = text(),
            _ => {}
        }
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field, || value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.note(field, || format!("{value:?}"));
    }
}
