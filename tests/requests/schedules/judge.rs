//! What is wrong with what happened.
//!
//! How long something is remembered passes on the store's own clock, which may be set. When exactly it was remembered
//! nobody outside knows, only between which two moments: so the judge asks what that clock has shown at least, and at
//! most.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet::http::{OnInDoubt, OnStoreDown, Outcome};

use super::clock::Clock;
use super::ledger::{End, Given, Ledger, Reached, Run};
use super::terms::{Kind, Terms};

/// The clock is read in whole milliseconds.
const READ_MS: i64 = 2;
/// How late a change that was sent may come, with all that delays it: those who have sent it may be frozen.
const LATE_MAX: Duration = Duration::from_secs(30);

/// What was done under one key.
pub struct Case<'a> {
    pub key: u64,
    pub terms: Terms,
    pub clock: &'a Clock,
    /// How long a reservation lasts, and the longest that one may take that is used.
    pub lease: Duration,
    pub reserve_max: Duration,
    /// Those that were reserved, by their beginning.
    pub runs: Vec<&'a Run>,
    pub unprotected: Vec<&'a Run>,
    /// When a process was killed.
    pub kills: &'a [Duration],
    /// The answers, and all that was given.
    pub answers: Vec<&'a Given>,
    pub given: Vec<&'a Given>,
}

/// An answer: its run, and when somebody was given it for the first time.
struct Answer<'a> {
    run: &'a Run,
    first: &'a Given,
}

impl<'a> Case<'a> {
    pub fn of(key: u64, book: &'a Ledger, (terms, clock): (Terms, &'a Clock), lease: Duration) -> Case<'a> {
        let mut runs: Vec<&Run> = book.runs.iter().filter(|run| run.key == key).collect();
        runs.sort_by_key(|run| run.begun);
        let (runs, unprotected) = runs.into_iter().partition(|run| run.is_reserved);
        let given: Vec<&Given> = book.given.iter().filter(|given| given.key == key).collect();
        let answers = given.iter().copied().filter(|given| given.is_final()).collect();
        // One that takes longer than half a lease is not used.
        let reserve_max = lease / 2;
        Case { key, terms, clock, lease, reserve_max, runs, unprotected, kills: &book.kills, answers, given }
    }

    pub fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let answers = self.first_of_each(&mut wrong);
        self.judge_answers(&answers, &mut wrong);
        self.judge_runs(&mut wrong);
        self.judge_replays(&answers, &mut wrong);
        self.judge_unprotected(&mut wrong);
        let is_told = |outcome| self.given.iter().any(|given| given.outcome == outcome);
        let is_doubted = self.terms.on_in_doubt == OnInDoubt::Refuse && is_told(Outcome::InDoubt);
        if self.answers.is_empty() && !is_doubted && !is_told(Outcome::Unprotected) {
            wrong.push(format!("nobody was given an answer: {:?}", self.runs));
        }
        wrong.into_iter().map(|what| format!("key {}, {:?}: {what}", self.key, self.terms)).collect()
    }

    /// Each answer, with its first time.
    fn first_of_each(&self, wrong: &mut Vec<String>) -> Vec<Answer<'a>> {
        let mut firsts: BTreeMap<usize, &'a Given> = BTreeMap::new();
        for given in &self.answers {
            let Some(run) = given.run else {
                wrong.push(format!("an answer of no run: {given:?}"));
                continue;
            };
            let first = firsts.entry(run).or_insert(given);
            if given.at < first.at {
                *first = given;
            }
        }
        let mut answers = Vec::new();
        for (number, first) in firsts {
            match self.runs.iter().find(|run| run.number == number && run.ended.is_some()) {
                Some(run) => answers.push(Answer { run, first }),
                None => wrong.push(format!("an answer of a run that was not reserved, or has not ended: {first:?}")),
            }
        }
        answers
    }

    /// Whether an answer may have been forgotten by this moment.
    fn may_be_forgotten(&self, answer: &Answer<'_>, by: Duration) -> bool {
        let (ended, first) = (answer.run.end().0, answer.first.at);
        // Of a large one the digest comes later, and its time begins anew with that.
        let remembered = if answer.run.is_large { first.max(by.min(ended + LATE_MAX)) } else { first };
        let until_ms = self.clock.least(ended, remembered) + self.terms.retention_ms();
        self.clock.most(ended, by) + READ_MS >= until_ms
    }

    /// Whether a run's lease may have ended by this moment, before the run began: the news of its reservation was under way
    /// when the clock was set forth.
    fn may_be_taken_over(&self, run: &Run, by: Duration) -> bool {
        let reserved = run.begun.saturating_sub(self.reserve_max);
        let lease_ms = i64::try_from(self.lease.as_millis()).expect("seconds");
        let can_be_set = self.terms.kind == Kind::Shared;
        can_be_set
            && reserved < by
            && self.clock.most(reserved, by) + READ_MS >= self.clock.least(reserved, by) + lease_ms
    }

    fn judge_answers(&self, answers: &[Answer<'_>], wrong: &mut Vec<String>) {
        for (number, answer) in answers.iter().enumerate() {
            let Answer { run, first } = answer;
            let later = self.runs.iter().filter(|later| later.number != run.number && later.begun > first.at);
            let later = later.filter(|later| !self.may_be_taken_over(later, first.at));
            for later in later.filter(|later| !self.may_be_forgotten(answer, later.begun)) {
                wrong.push(format!("it was answered, and is carried out again: {first:?}, {later:?}"));
            }
            for other in &answers[..number] {
                let one_after_the_other =
                    self.may_be_forgotten(answer, other.first.at) || self.may_be_forgotten(other, answer.first.at);
                if !one_after_the_other {
                    wrong.push(format!("two answers: {first:?}, {:?}", other.first));
                }
            }
        }
    }

    fn judge_runs(&self, wrong: &mut Vec<String>) {
        for (number, run) in self.runs.iter().enumerate() {
            for former in &self.runs[..number] {
                let (ended, end) = former.end();
                if self.terms.is_quiet && ended > run.begun && !self.is_forgotten_by_a_crash(former, run) {
                    wrong.push(format!("two are at work at once, and nobody was silent: {former:?}, {run:?}"));
                }
                let may_not = self.terms.on_in_doubt == OnInDoubt::Refuse && !self.is_forgotten(former, run);
                if may_not && (ended > run.begun || end != End::Declined) {
                    wrong.push(format!("it may have been carried out, and is again: {former:?}, {run:?}"));
                }
            }
        }
    }

    /// Whether that one was given up, and after that the process that held its reservation ended with its store: nobody
    /// knows then what is reserved.
    fn is_forgotten_by_a_crash(&self, former: &Run, run: &Run) -> bool {
        let between = |kill: &Duration| former.begun < *kill && *kill < run.begun;
        former.end().1 == End::GivenUp && self.terms.kind == Kind::Embedded && self.kills.iter().any(between)
    }

    /// Whether that one was carried out may have been forgotten when this one was reserved: it is remembered from its
    /// reservation on, or from when its answer was.
    fn is_forgotten(&self, former: &Run, run: &Run) -> bool {
        let reserved = former.begun.saturating_sub(self.reserve_max);
        let remembered = match former.end() {
            (ended, End::Answered) => (ended + LATE_MAX).min(run.begun),
            _ => former.begun,
        };
        let until_ms = self.clock.least(reserved, remembered) + self.terms.retention_ms();
        self.clock.most(reserved, run.begun) + READ_MS >= until_ms
    }

    /// Nothing is remembered for longer than it is to be.
    fn judge_replays(&self, answers: &[Answer<'_>], wrong: &mut Vec<String>) {
        for replayed in self.answers.iter().filter(|given| given.outcome == Outcome::Replayed) {
            let Some(answer) = answers.iter().find(|answer| Some(answer.run.number) == replayed.run) else { continue };
            let (ended, _) = answer.run.end();
            let until_ms = self.clock.most(ended, ended + LATE_MAX) + self.terms.retention_ms();
            if replayed.asked > ended + LATE_MAX && self.clock.least(replayed.asked, replayed.at) > until_ms + READ_MS {
                wrong.push(format!("it is remembered beyond its time: {replayed:?}, {:?}", answer.run));
            }
        }
    }

    /// Nobody is passed on whom the store could have told something.
    fn judge_unprotected(&self, wrong: &mut Vec<String>) {
        let may_be = self.terms.on_store_down == OnStoreDown::Pass && !self.terms.is_quiet;
        if let Some(run) = self.unprotected.first().filter(|_| !may_be) {
            wrong.push(format!("it is passed on, and the store answers: {run:?}"));
        }
        let passes = self.terms.on_store_down == OnStoreDown::Pass;
        let refused = self.given.iter().find(|given| given.outcome == Outcome::StoreDown);
        if let Some(refused) = refused.filter(|_| self.terms.is_quiet || passes) {
            wrong.push(format!(
                "it is refused because the store is down, which it is not, or is no reason: {refused:?}"
            ));
        }
    }

    /// The outcome that is to come.
    pub fn note(&self, crashes: &[Duration], reached: &mut Reached) {
        for (number, run) in self.runs.iter().enumerate() {
            for former in &self.runs[..number] {
                self.note_two(former, run, reached);
            }
            match run.end().1 {
                End::Failed => reached.note("failed"),
                End::Declined => reached.note("declined"),
                End::GivenUp => reached.note("given up"),
                End::Answered | End::Unknown | End::Killed => {}
            }
            // It was at work when the machine crashed, and nothing is in doubt after that: it is a new one.
            let (ended, end) = run.end();
            if end == End::Killed && crashes.contains(&ended) && self.given.iter().any(|given| given.at > ended) {
                let is_doubted = |given: &&&Given| given.outcome == Outcome::InDoubt && given.asked > ended;
                reached.note(match self.given.iter().any(|given| is_doubted(&given)) {
                    true => "doubt there after a crash",
                    false => "again after a crash",
                });
            }
        }
        for answer in self.first_of_each(&mut Vec::new()) {
            let later = |given: &&&Given| given.run == Some(answer.run.number) && given.outcome == Outcome::Replayed;
            for replayed in self.answers.iter().filter(|given| later(given)) {
                if self.terms.kind == Kind::Embedded
                    && crashes.iter().any(|crash| answer.first.at < *crash && *crash < replayed.asked)
                {
                    reached.note("answer there after a crash");
                }
                if replayed.asked > answer.first.at + self.terms.retention / 2 {
                    reached.note("replayed long after");
                }
            }
            if self.runs.iter().any(|run| run.begun > answer.first.at) {
                reached.note("forgotten");
            }
        }
        for run in &self.unprotected {
            reached.note("passed on");
            if self.runs.iter().any(|reserved| reserved.begun > run.begun) {
                reached.note("passed on, then reserved");
            }
        }
    }

    fn note_two(&self, former: &Run, run: &Run, reached: &mut Reached) {
        let (ended, end) = former.end();
        if ended > run.begun {
            reached.note("two at once");
            // Its own answer is another one than what its client was given.
            let replayed = |given: &&&Given| given.process == former.process && given.outcome == Outcome::Replayed;
            if end == End::Answered && self.answers.iter().any(|one| replayed(&one) && one.at >= ended) {
                reached.note("zombie");
            }
            return;
        }
        match end {
            End::Killed => reached.note("again after a kill"),
            End::GivenUp => reached.note("again after it was given up"),
            End::Declined if self.terms.on_in_doubt == OnInDoubt::Refuse => reached.note("again after it declined"),
            End::Declined | End::Answered | End::Failed | End::Unknown => {}
        }
    }
}
