//! The last trouble with a client's connections, which explains why there was no response.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::errors::{Code, Failure};
use super::super::login::Login;

/// How long the last trouble may explain a failure: librdkafka does not repeat the same error for 30 s.
const GOOD_FOR: Duration = Duration::from_secs(60);
/// What librdkafka says of a broker that does not speak TLS, with its hint and without, as it happens.
const CLOSED: &str = "SSL connection closed by peer (";
const CLOSED_AND_HINT: &str = "SSL connection closed by peer: connecting to a PLAINTEXT broker listener? (";

/// The message with which librdkafka says that a response cannot be Kafka's; it ends with advice for another case.
const NO_RESPONSE: (&str, &str) = ("Invalid response size ", ": increase receive.message.max.bytes");
/// The size that librdkafka reads from a response that begins with `HTTP`.
const HTTP: u32 = u32::from_be_bytes(*b"HTTP");

/// If the response shows that the server is not Kafka, a message that says what it is instead.
fn other_protocol(message: &str) -> String {
    let (start, end) = NO_RESPONSE;
    let parted = message.split_once(start).and_then(|(before, rest)| Some((before, rest.split_once(end)?)));
    let Some((before, (size, after))) = parted else { return message.to_owned() };
    let size = size.split(' ').next().and_then(|size| size.parse::<u32>().ok());
    let what = match size {
        Some(HTTP) => {
            "it answers in HTTP: this may be the address of a web server, of a REST proxy or of a schema registry, \
             and not of a Kafka broker"
        }
        // A record of TLS that holds an alert: its type, then its version.
        Some(size) if size >> 16 == 0x1503 => {
            "it answers with an alert of TLS: this listener may need `security.protocol: SSL` or `SASL_SSL`"
        }
        _ => return message.to_owned(),
    };
    format!("{before}{what}{after}")
}

/// The last trouble reported with a client's connections.
pub(super) struct LastTrouble {
    last: Mutex<Option<(Instant, Failure)>>,
    /// The state of the login.
    pub login: Arc<Login>,
}

impl LastTrouble {
    pub fn new(login: &Arc<Login>) -> Self {
        Self { last: Mutex::default(), login: Arc::clone(login) }
    }

    /// Notes the latest trouble.
    pub fn set(&self, failure: Option<Failure>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = failure.map(|failure| (Instant::now(), failure));
    }

    /// Notes a report. A closed connection says less than a failure of TLS on another connection, or than a foreign protocol;
    /// librdkafka reports either, by chance.
    pub fn note(&self, mut failure: Failure) {
        failure.message = other_protocol(&failure.message.replace(CLOSED, CLOSED_AND_HINT));
        let is_closed = failure.code == Code::RD_KAFKA_RESP_ERR__TRANSPORT && failure.message.contains("Disconnected");
        let telling = [Code::RD_KAFKA_RESP_ERR__SSL, Code::RD_KAFKA_RESP_ERR__BAD_MSG];
        let is_told = self.last().is_some_and(|last| telling.contains(&last.code));
        if !(is_closed && is_told) {
            self.set(Some(failure));
        }
    }

    fn last(&self) -> Option<Failure> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < GOOD_FOR).map(|(_, failure)| failure.clone())
    }

    /// The cause of a failure, if that was a missing response: `refused` was reported during the wait.
    pub fn explain(&self, failure: Failure, refused: Option<Failure>) -> Failure {
        // librdkafka does not repeat an error for a while: a refusal is valid until there is a response.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ErrorKind;

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

    fn last_trouble() -> LastTrouble {
        LastTrouble::new(&Arc::default())
    }

    fn explained(last_trouble: &LastTrouble, refused: Option<Failure>) -> (ErrorKind, String) {
        let failure = last_trouble.explain(late(), refused);
        (failure.plain("asking").kind, failure.message)
    }

    #[test]
    fn missing_response_is_explained_by_connection_trouble() {
        let last_trouble = last_trouble();
        let (kind, message) = explained(&last_trouble, None);
        assert!(kind == ErrorKind::Retry && message.contains("no connection came about"), "{message}");
        last_trouble.set(Some(broken()));
        let (kind, message) = explained(&last_trouble, None);
        assert!(kind == ErrorKind::Retry && message.contains("Timed out: a:1: Connection refused"), "{message}");
        assert_eq!(explained(&last_trouble, Some(password())), (ErrorKind::Refused, "wrong password".to_owned()));
        last_trouble.set(Some(password()));
        assert_eq!(explained(&last_trouble, None), (ErrorKind::Refused, "wrong password".to_owned()));
    }

    #[test]
    fn closed_connection_does_not_replace_the_reason_why_tls_failed() {
        let last_trouble = last_trouble();
        let tls = failure(Code::RD_KAFKA_RESP_ERR__SSL, "SSL handshake failed: connecting to a PLAINTEXT listener?");
        let closed = failure(Code::RD_KAFKA_RESP_ERR__TRANSPORT, "Disconnected: SSL connection closed by peer");
        let noted = |failure: &Failure| {
            last_trouble.note(failure.clone());
            last_trouble.last().map(|last| last.message)
        };
        assert_eq!(noted(&closed), Some(closed.message.clone()));
        let without_hint = failure(closed.code, "Disconnected: SSL connection closed by peer (after 1ms)");
        assert!(
            noted(&without_hint).is_some_and(|message| message.contains("a PLAINTEXT broker listener? (after 1ms)"))
        );
        assert_eq!(noted(&tls), Some(tls.message.clone()));
        assert_eq!(noted(&closed), Some(tls.message.clone()));
        assert_eq!(noted(&broken()), Some(broken().message), "another reason does");
    }

    #[test]
    fn response_in_another_protocol_is_named() {
        let last_trouble = last_trouble();
        let noted = |size: u32| {
            let message = format!(
                "localhost:80/bootstrap: Receive failed: Invalid response size {size} (0..100000000): increase \
                 receive.message.max.bytes (after 1ms in state APIVERSION_QUERY)"
            );
            last_trouble.set(None);
            last_trouble.note(failure(Code::RD_KAFKA_RESP_ERR__BAD_MSG, &message));
            last_trouble.last().map(|last| last.message).unwrap_or_default()
        };
        for (size, words) in [(0x4854_5450, "answers in HTTP"), (0x1503_0300, "an alert of TLS")] {
            let said = noted(size);
            assert!(said.starts_with("localhost:80/bootstrap: Receive failed: it ") && said.contains(words), "{said}");
            assert!(said.ends_with(" (after 1ms in state APIVERSION_QUERY)") && !said.contains("increase"), "{said}");
        }
        assert!(noted(200_000_000).contains("increase receive.message.max.bytes"), "that may be a large response");
        let told = noted(HTTP);
        last_trouble.note(failure(Code::RD_KAFKA_RESP_ERR__TRANSPORT, "Disconnected (after 0ms in state UP)"));
        assert_eq!(last_trouble.last().map(|last| last.message), Some(told), "that it was closed then says less");
    }

    #[test]
    fn trouble_is_forgotten_after_a_response() {
        let last_trouble = last_trouble();
        last_trouble.set(Some(broken()));
        assert_eq!(last_trouble.last().map(|failure| failure.message), Some(broken().message));
        last_trouble.set(None);
        assert!(last_trouble.last().is_none());
    }

    #[test]
    fn rejected_login_is_retried_if_it_worked_before() {
        let (last_trouble, other) = (last_trouble(), failure(Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, "no"));
        let refused = |failure: &Failure| last_trouble.login.is_refused_by(failure);
        assert!(refused(&password()) && refused(&other) && !refused(&broken()));
        last_trouble.login.note_success();
        assert!(!refused(&password()) && refused(&other));
        last_trouble.set(Some(password()));
        let (kind, message) = explained(&last_trouble, None);
        assert!(kind == ErrorKind::Retry && message.contains("Timed out: wrong password"), "{message}");
    }
}
