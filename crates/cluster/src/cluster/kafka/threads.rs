//! A producer's two threads: one takes reports of failed deliveries and never blocks, the other makes the calls
//! that may take long or never return. Successes are many, and few of them matter: they are recorded as they come in,
//! on librdkafka's thread ([`Reports::delivered`]); so are broken connections ([`Reports::broke`]).
//!
//! Invariants: a report is recorded before its record stops being in flight; the reports' thread runs for as
//! long as a call may be in progress, since commits and aborts wait for reports.
//!
//! **Failure**: a thread that panics disables its producer: no further transaction is begun on it. A call that exceeds
//! its time limit is given up: its result is ignored, no other call is made, and both threads end when it returns.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use super::errors::{Code, Failure};
use super::native::{Client, Signal, Undelivered};
use crate::cluster::{DeliveryFailure, Error, ErrorKind, Ticket};

/// How long the reports' thread waits for an event before it checks whether to stop.
const POLL_STEP: Duration = Duration::from_millis(100);
/// A connection that broke this close to the end of a transaction may have carried its request.
const DOUBT: Duration = Duration::from_secs(1);

/// What became of the sent records, and what else the client reported.
#[derive(Default)]
pub(super) struct Reports {
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Default)]
struct State {
    failures: Vec<DeliveryFailure>,
    delivered: Vec<(u64, i64)>,
    /// The lowest offset allowed for each number's reported records.
    expected: HashMap<u64, i64>,
    /// When the last transaction was asked to end, and when the response came.
    ending: Option<(Instant, Option<Instant>)>,
    doubted: bool,
    trouble: Option<Failure>,
}

impl Reports {
    /// The value that librdkafka carries along with a record.
    pub fn opaque(ticket: Ticket) -> usize {
        (ticket.number as usize) << 1 | usize::from(ticket.report)
    }

    /// Records a delivery, if it is to be reported. The offset is negative if the broker acknowledged the
    /// record without giving one.
    pub fn delivered(&self, opaque: usize, offset: i64) {
        let (number, wanted) = read_opaque(opaque);
        if wanted && offset >= 0 {
            self.lock().delivered.push((number, offset));
        }
    }

    /// A transaction begins: there are no expectations yet.
    pub fn begun(&self) {
        self.lock().expected.clear();
    }

    /// Expects this number's reported records at this offset or beyond.
    pub fn expect_from(&self, number: u64, offset: i64) {
        self.lock().expected.insert(number, offset);
    }

    /// Whether any offsets are expected.
    pub fn expects(&self) -> bool {
        !self.lock().expected.is_empty()
    }

    /// A record that was written below the offset expected for it.
    pub fn below_expected(&self) -> Option<(u64, i64)> {
        let state = self.lock();
        let is_below = |(number, offset): &&(u64, i64)| state.expected.get(number).is_some_and(|from| offset < from);
        state.delivered.iter().find(is_below).copied()
    }

    /// Whether there are failures since the last call of [`Reports::take_failures`].
    pub fn has_failed(&self) -> bool {
        !self.lock().failures.is_empty()
    }

    /// The failures since the last call.
    pub fn take_failures(&self) -> Vec<DeliveryFailure> {
        std::mem::take(&mut self.lock().failures)
    }

    /// The wanted successes since the last call.
    pub fn take_delivered(&self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.lock().delivered)
    }

    /// The transaction is about to be asked to end.
    pub fn asked_to_end(&self, at: Instant) {
        self.lock().ending = Some((at, None));
    }

    /// The response came, or is no longer waited for.
    pub fn answered(&self, at: Instant) {
        if let Some((_, answered)) = &mut self.lock().ending {
            *answered = Some(at);
        }
    }

    /// A connection broke. What it carried may arrive late, whatever is seen afterwards.
    pub fn broke(&self, at: Instant) {
        let mut state = self.lock();
        let around = state
            .ending
            .is_some_and(|(asked, answered)| at >= asked && answered.is_none_or(|answered| at <= answered + DOUBT));
        state.doubted |= around;
    }

    /// Whether a connection ever broke around the end of a transaction: there may be a copy of a request that no
    /// response accounts for. The doubt is permanent.
    pub fn is_doubted(&self) -> bool {
        self.lock().doubted
    }

    /// The last error that a person has to fix.
    pub fn take_trouble(&self) -> Option<Failure> {
        self.lock().trouble.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, failures: impl Iterator<Item = Undelivered>) {
        for Undelivered { opaque, failure } in failures {
            // A record that was purged because another one failed says nothing about itself.
            if failure.is_fencing() {
                // The producer's trouble: it is as good as lost.
                self.lock().doubted = true;
            } else if !failure.is_purged() {
                let refused = failure.refuses_record();
                let (number, _) = read_opaque(opaque);
                self.lock().failures.push(DeliveryFailure { number, refused, message: failure.message });
            }
        }
    }

    fn note(&self, failure: Failure, is_refusal: impl FnOnce(&Failure) -> bool) {
        tracing::debug!(target: "librdkafka", "{failure}");
        let broke = [
            Code::RD_KAFKA_RESP_ERR__TRANSPORT,
            Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
            Code::RD_KAFKA_RESP_ERR__TIMED_OUT,
        ];
        if broke.contains(&failure.code) {
            self.broke(Instant::now());
        } else if is_refusal(&failure) {
            self.lock().trouble = Some(failure);
        }
    }

    fn serve(&self, client: &Client) {
        let _guard = PanicGuard(self);
        while !self.stop.load(Ordering::Acquire) {
            let Some(event) = client.next_event(POLL_STEP) else { continue };
            match event.signal() {
                Signal::Deliveries => self.record(event.undelivered()),
                Signal::Error(failure) => self.note(failure, |failure| client.is_refused_by(failure)),
                Signal::Assign(_) | Signal::Revoke(_) | Signal::Other => {}
            }
        }
    }
}

/// Held by the producer's threads: if one panics, nobody is left to report failures, so the producer is given up.
struct PanicGuard<'a>(&'a Reports);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().doubted = true;
        }
    }
}

/// Stops the reports' thread, however the calls' thread ends.
struct StopGuard(Arc<Reports>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        drop(PanicGuard(&self.0));
        self.0.stop.store(true, Ordering::Release);
    }
}

/// A ticket's number, and whether its record's delivery is to be reported.
fn read_opaque(opaque: usize) -> (u64, bool) {
    ((opaque >> 1) as u64, opaque & 1 == 1)
}

/// A call on its way to the calls' thread.
type Call = Box<dyn FnOnce(&Client) + Send>;

/// Makes one call at a time, on a thread of its own.
pub(super) struct Caller {
    calls: Sender<Call>,
    /// Whether a call was given up and may never return.
    stuck: AtomicBool,
}

/// What became of a call.
pub(super) enum Watched<T> {
    /// It returned.
    Done(T),
    /// It did not return in time; its result is lost.
    GivenUp,
}

impl Caller {
    /// Starts both threads. They end, and release the client, after the caller is dropped.
    pub fn start(client: Arc<Client>, reports: Arc<Reports>) -> Result<Self, Error> {
        let (calls, inbox): (Sender<Call>, Receiver<Call>) = crossbeam_channel::bounded(1);
        let polling = (Arc::clone(&client), Arc::clone(&reports));
        spawn("kafka-reports", move || polling.1.serve(&polling.0))?;
        spawn("kafka-calls", move || {
            let _guard = StopGuard(reports);
            for call in inbox {
                call(&client);
            }
        })?;
        Ok(Self { calls, stuck: AtomicBool::new(false) })
    }

    /// Makes a call and waits for it, at most for `patience`.
    pub fn call<T: Send + 'static>(
        &self,
        patience: Duration,
        call: impl FnOnce(&Client) -> T + Send + 'static,
    ) -> Watched<T> {
        self.begin(patience, call).wait()
    }

    /// Starts a call, which may take up to `patience`; [`Pending::wait`] returns its result.
    pub fn begin<T: Send + 'static>(
        &self,
        patience: Duration,
        call: impl FnOnce(&Client) -> T + Send + 'static,
    ) -> Pending<'_, T> {
        let deadline = Instant::now() + patience;
        let (done, answer) = crossbeam_channel::bounded(1);
        let task: Call = Box::new(move |client| {
            let result = call(client);
            // Nobody is listening if the call was given up.
            let _ = done.send(result);
        });
        let is_taken = !self.stuck.load(Ordering::Relaxed) && self.calls.send(task).is_ok();
        Pending { caller: self, answer: is_taken.then_some(answer), deadline }
    }
}

/// A call in progress. The next one may be started only after this one was waited for.
#[must_use]
pub(super) struct Pending<'a, T> {
    caller: &'a Caller,
    /// `None` if the call was not accepted.
    answer: Option<Receiver<T>>,
    deadline: Instant,
}

impl<T> Pending<'_, T> {
    /// Whether the call was accepted.
    pub fn is_taken(&self) -> bool {
        self.answer.is_some()
    }

    /// The result, if it is there, or is not waited for any longer.
    pub fn look(self) -> Result<Watched<T>, Self> {
        let found = self.answer.as_ref().map(Receiver::try_recv);
        match found {
            None => Ok(Watched::GivenUp),
            Some(Ok(result)) => Ok(Watched::Done(result)),
            Some(Err(TryRecvError::Empty)) if Instant::now() < self.deadline => Err(self),
            Some(Err(_)) => Ok(self.give_up()),
        }
    }

    /// Waits for the result.
    pub fn wait(self) -> Watched<T> {
        let Some(answer) = &self.answer else { return Watched::GivenUp };
        match answer.recv_deadline(self.deadline) {
            Ok(result) => Watched::Done(result),
            Err(_) => self.give_up(),
        }
    }

    fn give_up(&self) -> Watched<T> {
        self.caller.stuck.store(true, Ordering::Relaxed);
        Watched::GivenUp
    }
}

/// Starts a thread.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(body);
    started.map(drop).map_err(|error| Error::new(ErrorKind::Retry, format!("no thread for {name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_around_transaction_end_leaves_permanent_doubt() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let ended = || {
            let reports = Reports::default();
            reports.broke(start);
            reports.asked_to_end(after(10));
            reports.answered(after(30));
            assert!(!reports.is_doubted(), "a break before it was asked to end");
            reports
        };
        for (at, doubtful) in [(5, false), (10, true), (20, true), (1030, true), (1031, false)] {
            let reports = ended();
            reports.broke(after(at));
            assert_eq!(reports.is_doubted(), doubtful, "{at}");
            // Later breaks that have nothing to do with it, and further transactions, do not remove the doubt.
            reports.broke(after(5000));
            reports.asked_to_end(after(6000));
            reports.answered(after(6010));
            assert_eq!(reports.is_doubted(), doubtful, "{at}");
        }
        let reports = Reports::default();
        reports.asked_to_end(start);
        reports.broke(after(60_000));
        assert!(reports.is_doubted(), "it was not answered yet");
    }

    #[test]
    fn record_below_expected_offset_is_found_in_its_transaction() {
        let reports = Reports::default();
        let deliver = |number, report, offset| reports.delivered(Reports::opaque(Ticket { number, report }), offset);
        reports.begun();
        assert!(!reports.expects());
        reports.expect_from(1, 10);
        reports.expect_from(2, 20);
        assert!(reports.expects());
        deliver(1, true, 10);
        deliver(1, false, 9);
        deliver(3, true, 0);
        assert_eq!(reports.below_expected(), None);
        deliver(2, true, 19);
        assert_eq!(reports.below_expected(), Some((2, 19)));
        reports.begun();
        assert_eq!(reports.below_expected(), None);
    }

    #[test]
    fn panicking_call_ends_both_threads_and_the_producer() {
        let reports = Arc::new(Reports::default());
        let last = StopGuard(Arc::clone(&reports));
        let calls = thread::spawn(move || {
            let _guard = last;
            panic!("a call");
        });
        assert!(calls.join().is_err());
        assert!(reports.stop.load(Ordering::Acquire) && reports.is_doubted());
        let reports = Arc::new(Reports::default());
        drop(StopGuard(Arc::clone(&reports)));
        assert!(reports.stop.load(Ordering::Acquire) && !reports.is_doubted(), "a clean end leaves no doubt");
    }

    #[test]
    fn fenced_delivery_is_not_reported_as_a_failed_record() {
        let reports = Reports::default();
        let undelivered = |code| Undelivered { opaque: 7 << 1, failure: Failure::of(code).unwrap() };
        reports.record([undelivered(Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)].into_iter());
        assert_eq!(reports.take_failures().len(), 1);
        assert!(!reports.is_doubted());
        for code in [
            Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
            Code::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE,
            Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING,
            Code::RD_KAFKA_RESP_ERR__FENCED,
        ] {
            let reports = Reports::default();
            reports.record([undelivered(code)].into_iter());
            assert!(reports.take_failures().is_empty(), "{code:?}");
            assert!(reports.is_doubted(), "{code:?}: the producer must not be used again");
        }
    }
}
