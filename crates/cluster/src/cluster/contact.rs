//! When a broker last answered a client of this process, and how often the clients together try a broker that does not
//! answer.
//!
//! An instance has a dozen clients, each with a backoff of its own. librdkafka's backoff does not always hold: a call
//! that waits for the controller asks for a connection each time that the state of its broker changes
//! (`rd_kafka_admin_common_get_controller`), and that request is served at once (`RD_KAFKA_OP_CONNECT` clears
//! `rkb_ts_reconnect`). If the broker refuses connections, each attempt leads to the next: 14,000 a second.
//!
//! So every client has each attempt to connect admitted here: librdkafka's clients in `native::attempts`, the wire's in
//! `wire::edge`. The first [`FREE`] attempts in a row at an address are made at once; further attempts are [`SPACING`]
//! apart. Any answer from the address releases all attempts that wait.
//!
//! Invariants: no attempt waits longer than its caller allows: [`THREAD_WAIT_MAX`], so that the threads of a client whose
//! broker is gone still serve the client, or half of the time for opening a connection. If more attempts wait than have
//! their turn in this time, attempts are closer together.
//!
//! **Failure**: none. A thread that panics with the lock held leaves at worst an attempt uncounted.
#![expect(clippy::disallowed_methods, reason = "sockets are opened by the real clock, whatever time it is for a lane")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Attempts in a row that are made at once without an answer: the clients of an instance all begin together.
const FREE: u32 = 8;
/// The time between further attempts.
const SPACING: Duration = Duration::from_millis(300);
/// The longest wait of a thread.
pub const THREAD_WAIT_MAX: Duration = Duration::from_secs(15);
/// Maximum number of addresses that are remembered; attempts at other addresses do not wait.
const ADDRESSES_MAX: usize = 1_000;

/// What a process knows of the brokers of one cluster.
pub struct Contact {
    began: Instant,
    /// Milliseconds from then to the last answer; 0 before the first one.
    heard_ms: AtomicU64,
    attempts: AtomicU64,
    tried: Mutex<Tried>,
    changed: Condvar,
}

#[derive(Default)]
struct Tried {
    /// By the brokers' addresses: those that were tried since they last answered.
    addresses: BTreeMap<String, Series>,
    /// The number of the last series.
    last: u64,
}

/// Attempts in a row without an answer.
struct Series {
    number: u64,
    attempts: u32,
    /// When the next one may be made.
    next: Instant,
}

/// An attempt that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// When it may be made.
    pub at: Instant,
    /// The series that it belongs to.
    series: u64,
}

impl Default for Contact {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            heard_ms: AtomicU64::new(0),
            attempts: AtomicU64::new(0),
            tried: Mutex::default(),
            changed: Condvar::new(),
        }
    }
}

impl Contact {
    /// How long ago a broker last answered; `None` if none ever has.
    pub fn heard_ago(&self) -> Option<Duration> {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        (!heard.is_zero()).then(|| self.began.elapsed().saturating_sub(heard))
    }

    /// How long no broker has answered, since the start if none ever has.
    pub fn silent_for(&self) -> Duration {
        self.heard_ago().unwrap_or_else(|| self.began.elapsed())
    }

    /// How many attempts were made to open a connection.
    pub fn attempts(&self) -> u64 {
        self.attempts.load(Ordering::Relaxed)
    }

    /// Notes that some broker has answered.
    pub fn note_response(&self) {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.heard_ms.fetch_max(ms.max(1), Ordering::Relaxed);
    }

    /// Notes the first answer on a connection to this address: clients that wait to connect to it may do so at once.
    pub fn note_first_response(&self, address: &str) {
        self.note_response();
        if self.tried().addresses.remove(address).is_some() {
            self.changed.notify_all();
        }
    }

    /// Admits an attempt to open a connection, for now or later, in `wait_max` at most.
    pub fn admit(&self, address: &str, now: Instant, wait_max: Duration) -> Admitted {
        let mut tried = self.tried();
        if !tried.addresses.contains_key(address) {
            if tried.addresses.len() >= ADDRESSES_MAX {
                return Admitted { at: now, series: 0 };
            }
            tried.last += 1;
            let new = Series { number: tried.last, attempts: 0, next: now };
            tried.addresses.insert(address.to_owned(), new);
        }
        let Some(series) = tried.addresses.get_mut(address) else { return Admitted { at: now, series: 0 } };
        series.attempts = series.attempts.saturating_add(1);
        let at = if series.attempts <= FREE { now } else { series.next.clamp(now, now + wait_max) };
        series.next = at + SPACING;
        Admitted { at, series: series.number }
    }

    /// Whether an attempt may be made now: its time has come, or the broker has answered another client.
    pub fn is_due(&self, address: &str, admitted: Admitted, now: Instant) -> bool {
        admitted.at <= now || !self.tried().goes_on(address, admitted)
    }

    /// Waits until an attempt may be made, or `closing` returns true. A change of what `closing` returns has to be followed
    /// by [`Contact::wake`].
    pub fn wait(&self, address: &str, admitted: Admitted, closing: impl Fn() -> bool) {
        let mut tried = self.tried();
        loop {
            let left = admitted.at.saturating_duration_since(Instant::now());
            if left.is_zero() || closing() || !tried.goes_on(address, admitted) {
                return;
            }
            tried = self.changed.wait_timeout(tried, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Makes all waiting threads check again whether to wait.
    pub fn wake(&self) {
        // While the lock is held, no thread is between its check and its wait.
        let _tried = self.tried();
        self.changed.notify_all();
    }

    /// Counts an attempt to open a connection.
    pub fn count_attempt(&self) {
        self.attempts.fetch_add(1, Ordering::Relaxed);
    }

    fn tried(&self) -> MutexGuard<'_, Tried> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tried {
    /// Whether there has been no answer since this attempt was admitted.
    fn goes_on(&self, address: &str, admitted: Admitted) -> bool {
        self.addresses.get(address).is_some_and(|series| series.number == admitted.series)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    const ADDRESS: &str = "broker:9092";

    /// When attempts may be made that are asked for at this time, after it.
    fn waits(contact: &Contact, now: Instant, count: u32) -> Vec<Duration> {
        (0..count).map(|_| contact.admit(ADDRESS, now, THREAD_WAIT_MAX).at - now).collect()
    }

    #[test]
    fn attempts_without_an_answer_are_spaced() {
        let (contact, now) = (Contact::default(), Instant::now());
        assert_eq!(waits(&contact, now, FREE), vec![Duration::ZERO; FREE as usize]);
        assert_eq!(waits(&contact, now, 3), [SPACING, SPACING * 2, SPACING * 3]);
        // Other brokers are not affected, and time that has passed counts.
        assert_eq!(contact.admit("other:9092", now, THREAD_WAIT_MAX).at, now);
        assert_eq!(waits(&contact, now + SPACING * 9, 2), [Duration::ZERO, SPACING]);
    }

    #[test]
    fn storm_is_a_few_attempts_a_second() {
        let (contact, start) = (Contact::default(), Instant::now());
        let (mut now, mut attempts) = (start, 0);
        while now - start < Duration::from_secs(60) {
            now = contact.admit(ADDRESS, now, THREAD_WAIT_MAX).at;
            attempts += 1;
        }
        assert!(attempts <= 60 * 4, "{attempts} in a minute");
    }

    #[test]
    fn nobody_waits_for_longer_than_a_client_can_do_without_its_thread() {
        let (contact, now) = (Contact::default(), Instant::now());
        let waits = waits(&contact, now, 200);
        assert_eq!(waits.iter().max(), Some(&THREAD_WAIT_MAX));
    }

    #[test]
    fn answer_frees_all_that_wait_for_this_broker() {
        let contact = Arc::new(Contact::default());
        let now = Instant::now();
        waits(&contact, now, FREE + 10);
        let admitted = contact.admit(ADDRESS, now, THREAD_WAIT_MAX);
        assert!(!contact.is_due(ADDRESS, admitted, now));
        let waiting = Arc::clone(&contact);
        let waited = std::thread::spawn(move || {
            waiting.wait(ADDRESS, admitted, || false);
            now.elapsed()
        });
        contact.note_first_response("other:9092");
        assert!(!contact.is_due(ADDRESS, admitted, now), "another one has answered");
        contact.note_first_response(ADDRESS);
        let took = waited.join().unwrap();
        assert!(took < admitted.at - now, "{took:?}");
        assert!(contact.is_due(ADDRESS, admitted, now));
        assert_eq!(waits(&contact, now, 1), [Duration::ZERO]);
        assert!(contact.is_due(ADDRESS, admitted, now), "it does not wait for those that came later");
    }

    #[test]
    fn wait_ends_when_its_client_closes() {
        let contact = Arc::new(Contact::default());
        let (now, closing) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        waits(&contact, now, FREE + 10);
        let admitted = contact.admit(ADDRESS, now, THREAD_WAIT_MAX);
        let (waiting, closes) = (Arc::clone(&contact), Arc::clone(&closing));
        let waited = std::thread::spawn(move || waiting.wait(ADDRESS, admitted, || closes.load(Ordering::Relaxed)));
        closing.store(true, Ordering::Relaxed);
        contact.wake();
        waited.join().unwrap();
        assert!(now.elapsed() < admitted.at - now, "{:?}", now.elapsed());
    }

    #[test]
    fn silence_counts_from_the_last_answer() {
        let contact = Contact::default();
        assert_eq!(contact.heard_ago(), None);
        std::thread::sleep(Duration::from_millis(20));
        assert!(contact.silent_for() >= Duration::from_millis(20));
        let before = Instant::now();
        contact.note_response();
        // It counts whole milliseconds.
        let most = before.elapsed() + Duration::from_millis(2);
        assert!(contact.heard_ago().is_some_and(|ago| ago < most), "{:?}", contact.heard_ago());
    }
}
