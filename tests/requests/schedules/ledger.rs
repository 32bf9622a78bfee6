//! What has happened: each run of the service, and what each client was given.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratchet::http::Outcome;

/// When a run has ended whose end nobody has seen.
pub const END: Duration = Duration::from_secs(90);

/// How often something happened that is to happen.
#[derive(Debug, Default)]
pub struct Reached(BTreeMap<&'static str, u64>);

impl Reached {
    pub fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub fn add(&mut self, other: &Reached) {
        other.0.iter().for_each(|(what, count)| *self.0.entry(what).or_default() += count);
    }

    /// All of it was reached.
    pub fn check(&self) {
        let all = ["killed", "frozen", "cut off", "client gone", "done", "replayed", "released", "in_progress"];
        let more = ["in_doubt", "store_down", "not_remembered", "again after a kill", "two at once", "zombie", "calm"];
        let large = ["large, cut off", "large, its digest"];
        let time = ["clock set forth", "clock set back", "forgotten", "tidied", "replayed long after"];
        let down = ["unprotected", "passed on", "passed on, then reserved"];
        let ends = ["failed", "declined", "again after it declined", "given up", "again after it was given up"];
        let disk =
            ["crashed", "writes lost", "reservation lost", "answer there after a crash", "doubt there after a crash"];
        for what in all.into_iter().chain(more).chain(large).chain(time).chain(down).chain(disk).chain(ends) {
            assert!(self.0.contains_key(what), "{what} was never reached: {self:?}");
        }
    }
}

/// One run of the service.
#[derive(Clone, Debug)]
pub struct Run {
    pub number: usize,
    pub key: u64,
    pub process: usize,
    /// Whether it was reserved: one that was not is nothing that the store knows of.
    pub is_reserved: bool,
    /// Whether its answer is larger than what is remembered.
    pub is_large: bool,
    pub begun: Duration,
    pub ended: Option<(Duration, End)>,
}

impl Run {
    pub fn end(&self) -> (Duration, End) {
        self.ended.unwrap_or((END, End::Killed))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It has done its work, and said so.
    Answered,
    /// It has failed, and said so: it may have done its work before.
    Failed,
    /// It has said that it has done nothing.
    Declined,
    /// Nobody has waited for it any longer, and it has gone on for a while.
    GivenUp,
    /// Nobody knows.
    Unknown,
    /// Its process was killed.
    Killed,
}

/// What a client was given.
#[derive(Clone, Debug)]
pub struct Given {
    pub key: u64,
    pub asked: Duration,
    pub at: Duration,
    pub outcome: Outcome,
    /// The run that it is the answer of; also where its body was too large to be remembered.
    pub run: Option<usize>,
    pub process: usize,
}

impl Given {
    /// Whether it is the answer, for as long as it is remembered.
    pub fn is_final(&self) -> bool {
        matches!(self.outcome, Outcome::Done | Outcome::Replayed)
    }
}

#[derive(Default)]
pub struct Ledger {
    pub runs: Vec<Run>,
    pub given: Vec<Given>,
    /// When a process was killed.
    pub kills: Vec<Duration>,
    /// When the machine has crashed.
    pub crashes: Vec<Duration>,
    pub reached: Reached,
}

pub type Book = Arc<Mutex<Ledger>>;
