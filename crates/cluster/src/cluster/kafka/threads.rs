//! A producer's two threads: one receives reports of failed deliveries and never blocks, the other makes the calls
//! that may take long or never return. Successful deliveries are many, and few of them are reported: they are recorded
//! on librdkafka's thread ([`Reports::delivered`]); so are broken connections
//! ([`Reports::note_broken_connection`]).
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
use crate::cluster::{DeliveryFailure, Error, ErrorKind, Expected, Ticket};

/// How long the reports' thread waits for an event before it checks whether to stop.
const POLL_STEP: Duration = Duration::from_millis(100);
/// A connection that broke this close to the end of a transaction may have carried its request.
const DOUBT_PERIOD: Duration = Duration::from_secs(1);

/// The delivery reports of the sent records, and other events of the client.
#[derive(Default)]
pub(super) struct Reports {
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Default)]
struct State {
    failures: Vec<DeliveryFailure>,
    delivered: Vec<(u64, i64)>,
    /// Where each number's reported records must be.
    expected: HashMap<u64, Expected>,
    /// When the end of the last transaction was requested, and when the response came.
    last_end_request: Option<(Instant, Option<Instant>)>,
    in_doubt: bool,
    trouble: Option<Failure>,
}

impl Reports {
    /// The value that librdkafka carries along with a record.
    pub fn opaque(ticket: Ticket) -> usize {
        (ticket.number as usize) << 1 | usize::from(ticket.report)
    }

    /// Records a delivery, if its ticket requests a report. The offset is negative if the broker acknowledged the
    /// record without giving one.
    pub fn delivered(&self, opaque: usize, offset: i64) {
        let (number, wanted) = read_opaque(opaque);
        if wanted && offset >= 0 {
            self.lock().delivered.push((number, offset));
        }
    }

    /// Clears what is expected, when a transaction begins.
    pub fn clear_expectations(&self) {
        self.lock().expected.clear();
    }

    /// Says where the reported records with this number must be.
    pub fn expect(&self, number: u64, expected: Expected) {
        self.lock().expected.insert(number, expected);
    }

    /// Whether anything is expected.
    pub fn has_expectations(&self) -> bool {
        !self.lock().expected.is_empty()
    }

    /// The number and the offset of a record that shows that its partition has lost records.
    pub fn find_loss(&self) -> Option<(u64, i64)> {
        let state = self.lock();
        Expected::find_loss(|number| state.expected.get(&number).copied(), &state.delivered)
    }

    /// Whether there are failures since the last call of [`Reports::take_failures`].
    pub fn has_failed(&self) -> bool {
        !self.lock().failures.is_empty()
    }

    /// The failures since the last call.
    pub fn take_failures(&self) -> Vec<DeliveryFailure> {
        std::mem::take(&mut self.lock().failures)
    }

    /// The numbers and offsets of the reported deliveries since the last call.
    pub fn take_delivered(&self) -> Vec<(u64, i64)> {
        std::mem::take(&mut self.lock().delivered)
    }

    /// Notes that the end of the transaction is about to be requested.
    pub fn note_end_request(&self, at: Instant) {
        self.lock().last_end_request = Some((at, None));
    }

    /// Notes that the response came, or that no caller waits for it any more.
    pub fn note_end_response(&self, at: Instant) {
        if let Some((_, answered)) = &mut self.lock().last_end_request {
            *answered = Some(at);
        }
    }

    /// Notes a broken connection: a request that it carried may arrive late, even after a response to its repetition.
    pub fn note_broken_connection(&self, at: Instant) {
        let mut state = self.lock();
        let around = state.last_end_request.is_some_and(|(asked, answered)| {
            at >= asked && answered.is_none_or(|answered| at <= answered + DOUBT_PERIOD)
        });
        state.in_doubt |= around;
    }

    /// Whether the producer must not be used again: a connection broke around the end of a transaction, so that a copy
    /// of the request may arrive late; or the producer was fenced; or one of its threads has panicked. The doubt is
    /// permanent.
    pub fn is_in_doubt(&self) -> bool {
        self.lock().in_doubt
    }

    /// The last error that a person has to fix.
    pub fn take_trouble(&self) -> Option<Failure> {
        self.lock().trouble.take()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_failures(&self, failures: impl Iterator<Item = Undelivered>) {
        for Undelivered { opaque, failure } in failures {
            // A purged record did not fail itself: its transaction did.
            if failure.is_fencing() {
                // The producer is fenced, and can no longer be used.
                self.lock().in_doubt = true;
            } else if !failure.is_purged() {
                let refused = failure.refuses_record();
                let (number, _) = read_opaque(opaque);
                self.lock().failures.push(DeliveryFailure { number, refused, message: failure.message });
            }
        }
    }

    fn handle_error(&self, failure: Failure, is_refusal: impl FnOnce(&Failure) -> bool) {
        tracing::debug!(target: "librdkafka", "{failure}");
        let broke = [
            Code::RD_KAFKA_RESP_ERR__TRANSPORT,
            Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
            Code::RD_KAFKA_RESP_ERR__TIMED_OUT,
        ];
        if broke.contains(&failure.code) {
            self.note_broken_connection(Instant::now());
        } else if is_refusal(&failure) {
            self.lock().trouble = Some(failure);
        }
    }

    fn serve(&self, client: &Client) {
        let _guard = PanicGuard(self);
        while !self.stop.load(Ordering::Acquire) {
            let Some(event) = client.next_event(POLL_STEP) else { continue };
            match event.signal() {
                Signal::Deliveries => self.record_failures(event.undelivered()),
                Signal::Error(failure) => self.handle_error(failure, |failure| client.is_refused_by(failure)),
                Signal::Assign(_) | Signal::Revoke(_) | Signal::Other => {}
            }
        }
    }
}

/// Held by the producer's threads: if one panics, failures are no longer reported, so the producer must not be used
/// again.
struct PanicGuard<'a>(&'a Reports);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().in_doubt = true;
        }
    }
}

/// Stops the reports' thread when the calls' thread ends, even by a panic.
struct StopGuard(Arc<Reports>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        drop(PanicGuard(&self.0));
        self.0.stop.store(true, Ordering::Release);
    }
}

/// A ticket's number, and whether its record's delivery has to be reported.
fn read_opaque(opaque: usize) -> (u64, bool) {
    ((opaque >> 1) as u64, opaque & 1 == 1)
}

/// A call on its way to the calls' thread.
type Call = Box<dyn FnOnce(&Client) + Send>;

/// Makes one call at a time, on a thread of its own.
pub(super) struct CallThread {
    calls: Sender<Call>,
    /// Whether a call was given up and may never return.
    stuck: AtomicBool,
}

/// The outcome of a call.
pub(super) enum CallOutcome<T> {
    /// The call returned.
    Done(T),
    /// The call was not accepted, or did not return in time; its result is lost.
    GivenUp,
}

impl CallThread {
    /// Starts both threads. They end, and release the client, after the [`CallThread`] is dropped.
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
    ) -> CallOutcome<T> {
        self.begin(patience, call).wait()
    }

    /// Starts a call, which may take up to `patience`; [`PendingCall::wait`] returns its outcome.
    pub fn begin<T: Send + 'static>(
        &self,
        patience: Duration,
        call: impl FnOnce(&Client) -> T + Send + 'static,
    ) -> PendingCall<'_, T> {
        let deadline = Instant::now() + patience;
        let (done, result) = crossbeam_channel::bounded(1);
        let task: Call = Box::new(move |client| {
            let result = call(client);
            // The receiver is gone if the call was given up.
            let _ = done.send(result);
        });
        let is_accepted = !self.stuck.load(Ordering::Relaxed) && self.calls.send(task).is_ok();
        PendingCall { caller: self, result: is_accepted.then_some(result), deadline }
    }
}

/// A call in progress. The next call may be started only after this one has an outcome.
#[must_use]
pub(super) struct PendingCall<'a, T> {
    caller: &'a CallThread,
    /// `None` if the call was not accepted.
    result: Option<Receiver<T>>,
    deadline: Instant,
}

impl<T> PendingCall<'_, T> {
    /// Whether the call was accepted.
    pub fn is_accepted(&self) -> bool {
        self.result.is_some()
    }

    /// The outcome, if the call has returned or its deadline has passed.
    pub fn try_outcome(self) -> Result<CallOutcome<T>, Self> {
        let found = self.result.as_ref().map(Receiver::try_recv);
        match found {
            None => Ok(CallOutcome::GivenUp),
            Some(Ok(result)) => Ok(CallOutcome::Done(result)),
            Some(Err(TryRecvError::Empty)) if Instant::now() < self.deadline => Err(self),
            Some(Err(_)) => Ok(self.give_up()),
        }
    }

    /// Waits for the result.
    pub fn wait(self) -> CallOutcome<T> {
        let Some(result) = &self.result else { return CallOutcome::GivenUp };
        match result.recv_deadline(self.deadline) {
            Ok(result) => CallOutcome::Done(result),
            Err(_) => self.give_up(),
        }
    }

    fn give_up(&self) -> CallOutcome<T> {
        self.caller.stuck.store(true, Ordering::Relaxed);
        CallOutcome::GivenUp
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
    fn connection_broken_around_the_end_of_a_transaction_leaves_permanent_doubt() {
        let start = Instant::now();
        let after = |ms: u64| start + Duration::from_millis(ms);
        let ended = || {
            let reports = Reports::default();
            reports.note_broken_connection(start);
            reports.note_end_request(after(10));
            reports.note_end_response(after(30));
            assert!(!reports.is_in_doubt(), "it broke before the end was requested");
            reports
        };
        for (at, doubtful) in [(5, false), (10, true), (20, true), (1030, true), (1031, false)] {
            let reports = ended();
            reports.note_broken_connection(after(at));
            assert_eq!(reports.is_in_doubt(), doubtful, "{at}");
            // Later broken connections and further transactions do not remove the doubt.
            reports.note_broken_connection(after(5000));
            reports.note_end_request(after(6000));
            reports.note_end_response(after(6010));
            assert_eq!(reports.is_in_doubt(), doubtful, "{at}");
        }
        let reports = Reports::default();
        reports.note_end_request(start);
        reports.note_broken_connection(after(60_000));
        assert!(reports.is_in_doubt(), "no response had come yet");
    }

    #[test]
    fn loss_is_found_in_its_transaction() {
        let reports = Reports::default();
        let deliver = |number, report, offset| reports.delivered(Reports::opaque(Ticket { number, report }), offset);
        reports.clear_expectations();
        assert!(!reports.has_expectations());
        reports.expect(1, Expected { from: 10, count: 3 });
        reports.expect(2, Expected { from: 20, count: 1 });
        assert!(reports.has_expectations());
        deliver(1, true, 10);
        deliver(1, false, 9);
        deliver(3, true, 0);
        assert_eq!(reports.find_loss(), None);
        deliver(2, true, 19);
        assert_eq!(reports.find_loss(), Some((2, 19)));
        reports.clear_expectations();
        assert_eq!(reports.find_loss(), None);
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
        assert!(reports.stop.load(Ordering::Acquire) && reports.is_in_doubt());
        let reports = Arc::new(Reports::default());
        drop(StopGuard(Arc::clone(&reports)));
        assert!(reports.stop.load(Ordering::Acquire) && !reports.is_in_doubt(), "a clean end leaves no doubt");
    }

    #[test]
    fn fenced_delivery_is_not_reported_as_a_failed_record() {
        let reports = Reports::default();
        let undelivered = |code| Undelivered { opaque: 7 << 1, failure: Failure::of(code).unwrap() };
        reports.record_failures([undelivered(Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE)].into_iter());
        assert_eq!(reports.take_failures().len(), 1);
        assert!(!reports.is_in_doubt());
        for code in [
            Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
            Code::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE,
            Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING,
            Code::RD_KAFKA_RESP_ERR__FENCED,
        ] {
            let reports = Reports::default();
            reports.record_failures([undelivered(code)].into_iter());
            assert!(reports.take_failures().is_empty(), "{code:?}");
            assert!(reports.is_in_doubt(), "{code:?}: the producer must not be used again");
        }
    }
}
