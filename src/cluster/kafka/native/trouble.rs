//! What goes wrong with a client's connections. librdkafka tells it by events, apart from the call that waits; the call
//! itself knows no more than that there was no answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::errors::{Code, Failure};
use super::Client;
use super::event::Signal;
use crate::cluster::Kind;

/// For how long the last trouble is good for an explanation: librdkafka keeps the same to itself for 30 s.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The last that was told of a client's connections, and whether there was ever an answer.
#[derive(Default)]
pub(super) struct Told {
    last: Mutex<Option<(Instant, Failure)>>,
    answered: AtomicBool,
}

impl Told {
    fn set(&self, failure: Option<Failure>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = failure.map(|failure| (Instant::now(), failure));
    }

    fn last(&self) -> Option<Failure> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < GOOD_FOR).map(|(_, failure)| failure.clone())
    }

    fn answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        self.set(None);
    }

    /// Whether the failure says that this client is not let in and never was. One that was is let in again: a broker
    /// that comes back may refuse a login before it knows who may log in, and a password may be put right.
    fn is_refusal(&self, failure: &Failure) -> bool {
        failure.plain("").kind == Kind::Refused && !self.answered.load(Ordering::Relaxed)
    }

    /// What stands behind a failure without an answer: `refused` was told while it was waited for.
    fn explain(&self, failure: Failure, refused: Option<Failure>) -> Failure {
        // librdkafka does not tell the same again for a while: a refusal stands until there is an answer.
        let message = match (refused, self.last()) {
            (Some(refused), _) => return refused,
            (None, Some(last)) if self.is_refusal(&last) => return last,
            (None, Some(last)) => format!("{failure}: {}", last.message),
            (None, None) => format!("{failure}: no connection came about, or it was closed or left without an answer"),
        };
        Failure { message, ..failure }
    }
}

impl Client {
    /// What went wrong in the background and matters more than the time-out that it led to: this client is not let in.
    pub fn trouble(&self) -> Option<Failure> {
        let mut refused = None;
        let events = std::iter::from_fn(|| self.next_event(Duration::ZERO));
        for event in events {
            let Signal::Error(failure) = event.signal() else { continue };
            if self.told.is_refusal(&failure) {
                refused = Some(failure.clone());
            }
            // That all are gone says nothing of why.
            if failure.code != Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN {
                self.told.set(Some(failure));
            }
        }
        refused
    }

    /// The failure of a call that had no answer: what stands behind it, or else in words that say what librdkafka was
    /// told of the connections.
    pub fn explain(&self, failure: Failure) -> Failure {
        self.told.explain(failure, self.trouble())
    }

    /// There was an answer: what was told before explains nothing any more.
    pub fn answered(&self) {
        self.told.answered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, message: &str) -> Failure {
        Failure::new(code, message)
    }

    fn late() -> Failure {
        failure(Code::RD_KAFKA_RESP_ERR__TIMED_OUT, "Timed out")
    }

    fn broken() -> Failure {
        failure(Code::RD_KAFKA_RESP_ERR__TRANSPORT, "a:1: Connection refused")
    }

    fn password() -> Failure {
        failure(Code::RD_KAFKA_RESP_ERR__AUTHENTICATION, "wrong password")
    }

    fn explained(told: &Told, refused: Option<Failure>) -> (Kind, String) {
        let failure = told.explain(late(), refused);
        (failure.plain("asking").kind, failure.message)
    }

    #[test]
    fn what_had_no_answer_is_explained_by_what_was_told_of_connections() {
        let told = Told::default();
        let (kind, message) = explained(&told, None);
        assert!(kind == Kind::Retry && message.contains("no connection came about"), "{message}");
        told.set(Some(broken()));
        let (kind, message) = explained(&told, None);
        assert!(kind == Kind::Retry && message.contains("Timed out: a:1: Connection refused"), "{message}");
        assert_eq!(explained(&told, Some(password())), (Kind::Refused, "wrong password".to_owned()));
        told.set(Some(password()));
        assert_eq!(explained(&told, None), (Kind::Refused, "wrong password".to_owned()));
    }

    #[test]
    fn an_answer_ends_what_was_told_before() {
        let told = Told::default();
        told.set(Some(broken()));
        assert_eq!(told.last().map(|failure| failure.message), Some(broken().message));
        told.answered();
        assert!(told.last().is_none());
    }

    #[test]
    fn a_client_that_was_let_in_once_is_told_of_a_refusal_and_asks_again() {
        let told = Told::default();
        assert!(told.is_refusal(&password()) && !told.is_refusal(&broken()));
        told.answered();
        assert!(!told.is_refusal(&password()));
        told.set(Some(password()));
        let (kind, message) = explained(&told, None);
        assert!(kind == Kind::Retry && message.contains("Timed out: wrong password"), "{message}");
    }
}
