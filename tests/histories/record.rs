//! What was seen, as the judge reads it.

use std::fmt;
use std::time::Instant;

use serde_json::{Value, json};

/// Nanoseconds since it was made.
#[derive(Clone, Copy)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn now(self) -> i64 {
        self.0.elapsed().as_nanos() as i64
    }
}

/// An operation's outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer of this run.
    Answer(u64),
    InProgress,
    InDoubt,
    /// Nothing that says anything of the key.
    None,
}

/// A client's request, or a run of the service.
#[derive(Clone)]
pub struct Operation {
    client: usize,
    key: String,
    kind: &'static str,
    call: i64,
    /// When it ended, if anybody knows.
    ended: Option<i64>,
    outcome: Outcome,
    /// Of a run.
    number: u64,
}

impl Operation {
    pub fn request(client: usize, key: &str, (call, ended): (i64, Option<i64>), outcome: Outcome) -> Self {
        Self { client, key: key.to_owned(), kind: "request", call, ended, outcome, number: 0 }
    }

    /// `is_kept`: whether its answer is one that is remembered.
    pub fn run(key: &str, number: u64, (call, ended): (i64, Option<i64>), is_kept: bool) -> Self {
        let outcome = if is_kept { Outcome::Answer(number) } else { Outcome::None };
        // Nobody else's number.
        let client = 100 + number as usize;
        Self { client, key: key.to_owned(), kind: "run", call, ended, outcome, number }
    }

    fn to_json(&self) -> Value {
        let (result, run) = match self.outcome {
            Outcome::Answer(run) => ("answer", run),
            Outcome::InProgress => ("in_progress", 0),
            Outcome::InDoubt => ("in_doubt", 0),
            Outcome::None => ("none", self.number),
        };
        json!({
            "client": self.client, "key": self.key, "kind": self.kind, "call": self.call, "return": self.ended,
            "result": result, "run": run,
        })
    }
}

/// All that was seen of some keys.
pub struct History {
    pub seed: u64,
    pub store: &'static str,
    pub on_in_doubt: &'static str,
    pub operations: Vec<Operation>,
}

impl History {
    pub fn to_json(&self) -> Value {
        let operations: Vec<_> = self.operations.iter().map(Operation::to_json).collect();
        json!({ "seed": self.seed, "store": self.store, "on_in_doubt": self.on_in_doubt, "operations": operations })
    }
}

/// How often what was seen that makes a history worth judging.
#[derive(Default)]
pub struct Tally {
    unanswered: usize,
    in_doubt: usize,
    run_again: usize,
    repeated: usize,
}

impl Tally {
    pub fn count(&mut self, history: &History) {
        let has = |it: &dyn Fn(&Operation) -> bool| usize::from(history.operations.iter().any(it));
        let answers =
            history.operations.iter().filter(|it| it.kind == "request" && matches!(it.outcome, Outcome::Answer(_)));
        self.unanswered += has(&|it| it.kind == "request" && it.ended.is_none());
        self.in_doubt += has(&|it| it.outcome == Outcome::InDoubt);
        self.run_again += has(&|it| it.kind == "run" && it.number > 1);
        self.repeated += usize::from(answers.count() > 2);
    }

    /// Each has to be seen in one of a hundred histories.
    pub fn expect_all(&self, count: usize) {
        for seen in [self.unanswered, self.in_doubt, self.run_again, self.repeated] {
            assert!(seen * 100 >= count, "{self}");
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { unanswered, in_doubt, run_again, repeated } = self;
        write!(
            f,
            "a client heard nothing in {unanswered}, that a request is in doubt in {in_doubt}, the service was run again in \
             {run_again}, answers were repeated in {repeated}"
        )
    }
}
