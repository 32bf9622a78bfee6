//! What goes wrong with a client's connections. librdkafka tells it by events, apart from the call that waits; the call
//! itself knows no more than that there was no answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::errors::{Code, Failure};
use super::super::properties::Login;
use super::Client;
use super::event::Signal;

/// For how long the last trouble is good for an explanation: librdkafka keeps the same to itself for 30 s.
const GOOD_FOR: Duration = Duration::from_secs(60);

/// The last that was told of a client's connections.
pub(super) struct Told {
    last: Mutex<Option<(Instant, Failure)>>,
    login: Arc<Login>,
}

impl Told {
    pub fn new(login: &Arc<Login>) -> Self {
        Self { last: Mutex::default(), login: Arc::clone(login) }
    }

    fn set(&self, failure: Option<Failure>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = failure.map(|failure| (Instant::now(), failure));
    }

    fn last(&self) -> Option<Failure> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < GOOD_FOR).map(|(_, failure)| failure.clone())
    }

    /// What stands behind a failure, where that was no answer: `refused` was told while it was waited for.
    fn explain(&self, failure: Failure, refused: Option<Failure>) -> Failure {
        // librdkafka does not tell the same again for a while: a refusal stands until there is an answer.
        let message = match (refused, self.last()) {
            (Some(refused), _) => return refused,
            _ if !failure.is_unanswered() => return failure,
            (None, Some(last)) if self.login.is_refused_by(&last) => return last,
            (None, Some(last)) => format!("{failure}: {}", last.message),
            (None, None) => format!("{failure}: no connection came about, or it was closed or left without an answer"),
        };
        Failure { message, ..failure }
    }
}

impl Client {
    /// What went wrong in the background and matters more than the time-out that it led to: a person has to mend it.
    pub fn trouble(&self) -> Option<Failure> {
        let mut refused = None;
        let events = std::iter::from_fn(|| self.next_event(Duration::ZERO));
        for event in events {
            let Signal::Error(failure) = event.signal() else { continue };
            if self.is_refused_by(&failure) {
                refused = Some(failure.clone());
            }
            // That all are gone says nothing of why.
            if failure.code != Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN {
                self.told.set(Some(failure));
            }
        }
        refused
    }

    /// The failure of a call. Where there was no answer: what stands behind it, or else in words that say what librdkafka
    /// was told of the connections.
    pub fn explain(&self, failure: Failure) -> Failure {
        self.told.explain(failure, self.trouble())
    }

    /// Whether a failure in the background is one that a person has to mend.
    pub fn is_refused_by(&self, failure: &Failure) -> bool {
        self.told.login.is_refused_by(failure)
    }

    /// The question was answered: what was told before explains nothing any more.
    pub fn answered(&self) {
        self.let_in();
        self.told.set(None);
    }

    /// Some broker has answered something.
    pub fn let_in(&self) {
        self.told.login.succeeded();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Kind;

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

    fn told() -> Told {
        Told::new(&Arc::default())
    }

    fn explained(told: &Told, refused: Option<Failure>) -> (Kind, String) {
        let failure = told.explain(late(), refused);
        (failure.plain("asking").kind, failure.message)
    }

    #[test]
    fn what_had_no_answer_is_explained_by_what_was_told_of_connections() {
        let told = told();
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
    fn what_was_told_is_forgotten() {
        let told = told();
        told.set(Some(broken()));
        assert_eq!(told.last().map(|failure| failure.message), Some(broken().message));
        told.set(None);
        assert!(told.last().is_none());
    }

    #[test]
    fn a_login_that_was_right_once_is_told_of_and_asked_for_again() {
        let (told, other) = (told(), failure(Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, "no"));
        let refused = |failure: &Failure| told.login.is_refused_by(failure);
        assert!(refused(&password()) && refused(&other) && !refused(&broken()));
        told.login.succeeded();
        assert!(!refused(&password()) && refused(&other));
        told.set(Some(password()));
        let (kind, message) = explained(&told, None);
        assert!(kind == Kind::Retry && message.contains("Timed out: wrong password"), "{message}");
    }
}
