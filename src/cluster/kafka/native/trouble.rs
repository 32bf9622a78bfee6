//! What goes wrong with a client's connections. librdkafka tells it by events, apart from the call that waits; the call
//! itself knows no more than that there was no answer.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::errors::{Code, Failure};
use super::Client;
use super::event::Signal;
use crate::cluster::Kind;

/// For how long the last trouble is good for an explanation: librdkafka keeps the same to itself for 30 s.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The last that was told of a connection, and when.
#[derive(Default)]
pub(super) struct LastTrouble(Mutex<Option<(Instant, Failure)>>);

impl LastTrouble {
    fn set(&self, failure: Option<Failure>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = failure.map(|failure| (Instant::now(), failure));
    }

    fn get(&self) -> Option<Failure> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < GOOD_FOR).map(|(_, failure)| failure.clone())
    }
}

impl Client {
    /// What went wrong in the background and matters more than the time-out that it led to.
    pub fn trouble(&self) -> Option<Failure> {
        let mut refused = None;
        let events = std::iter::from_fn(|| self.next_event(Duration::ZERO));
        for event in events {
            let Signal::Error(failure) = event.signal() else { continue };
            if failure.plain("").kind == Kind::Refused {
                refused = Some(failure.clone());
            }
            // That all are gone says nothing of why.
            if failure.code != Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN {
                self.last_trouble.set(Some(failure));
            }
        }
        refused
    }

    /// The failure of a call that had no answer: what stands behind it, or else in words that say what librdkafka was
    /// told of the connections.
    pub fn explain(&self, failure: Failure) -> Failure {
        explained(failure, self.trouble(), self.last_trouble.get())
    }

    /// There was an answer: what was told before explains nothing any more.
    pub fn answered(&self) {
        self.last_trouble.set(None);
    }
}

/// What stands behind a failure without an answer: `refused` was told while it was waited for, `last` some time before.
fn explained(failure: Failure, refused: Option<Failure>, last: Option<Failure>) -> Failure {
    // librdkafka does not tell the same again for a while: a refusal stands until there is an answer.
    let is_refusal = |last: &Failure| last.plain("").kind == Kind::Refused;
    let message = match (refused, last) {
        (Some(refused), _) => return refused,
        (None, Some(last)) if is_refusal(&last) => return last,
        (None, Some(last)) => format!("{failure}: {}", last.message),
        (None, None) => format!("{failure}: no connection came about, or it was closed or left without an answer"),
    };
    Failure { message, ..failure }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: Code, message: &str) -> Failure {
        Failure::new(code, message)
    }

    #[test]
    fn what_had_no_answer_is_explained_by_what_was_told_of_connections() {
        let late = || failure(Code::RD_KAFKA_RESP_ERR__TIMED_OUT, "Timed out");
        let broken = || failure(Code::RD_KAFKA_RESP_ERR__TRANSPORT, "a:1: Connection refused");
        let password = || failure(Code::RD_KAFKA_RESP_ERR__AUTHENTICATION, "wrong password");
        let explained = |refused, last| {
            let failure = explained(late(), refused, last);
            (failure.plain("asking").kind, failure.message)
        };
        let (kind, message) = explained(None, Some(broken()));
        assert!(kind == Kind::Retry && message.contains("Timed out: a:1: Connection refused"), "{message}");
        let (kind, message) = explained(None, None);
        assert!(kind == Kind::Retry && message.contains("no connection came about"), "{message}");
        for (refused, last) in [(Some(password()), Some(broken())), (None, Some(password()))] {
            assert_eq!(explained(refused, last), (Kind::Refused, "wrong password".to_owned()));
        }
    }

    #[test]
    fn an_answer_ends_what_was_told_before() {
        let last = LastTrouble::default();
        assert!(last.get().is_none());
        last.set(Some(failure(Code::RD_KAFKA_RESP_ERR__TRANSPORT, "gone")));
        assert_eq!(last.get().map(|failure| failure.message), Some("gone".to_owned()));
        last.set(None);
        assert!(last.get().is_none());
    }
}
