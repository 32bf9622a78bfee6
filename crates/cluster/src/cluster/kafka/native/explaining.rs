//! Trouble with a client's connections. librdkafka reports it by events, separately from the waiting call, which
//! itself only learns that there was no response.

use std::time::Duration;

use super::super::errors::{Code, Failure};
use super::client::Client;
use super::event::Signal;
use super::log;

impl Client {
    /// A background error that a person has to fix, and that matters more than the timeout it caused.
    pub fn trouble(&self) -> Option<Failure> {
        let mut refused = self.missing_token().filter(|failure| self.is_refused_by(failure));
        let events = std::iter::from_fn(|| self.next_event(Duration::ZERO));
        for event in events {
            let Signal::Error(failure) = event.signal() else { continue };
            if self.is_refused_by(&failure) {
                refused = Some(failure.clone());
            }
            // That all brokers are down says nothing about the cause.
            if failure.code != Code::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN {
                self.last_trouble.note(failure);
            }
        }
        refused
    }

    /// That there is no token to log in with.
    fn missing_token(&self) -> Option<Failure> {
        let missing = self.token_source.as_ref()?.missing()?;
        let code = match missing.is_lasting {
            true => Code::RD_KAFKA_RESP_ERR__AUTHENTICATION,
            false => Code::RD_KAFKA_RESP_ERR__TRANSPORT,
        };
        Some(Failure::new(code, format!("there is no token to log in with: {}", missing.why)))
    }

    /// The failure of a call. If there was no response: its cause, or else a message with the last trouble of the
    /// connections.
    pub fn explain(&self, failure: Failure) -> Failure {
        let refused = self.trouble();
        // librdkafka does not connect without a token, and does not say so.
        if let Some(missing) = self.missing_token() {
            self.last_trouble.note(missing);
        }
        self.last_trouble.explain(failure, refused)
    }

    /// Whether a background failure is one that a person has to fix.
    pub fn is_refused_by(&self, failure: &Failure) -> bool {
        self.last_trouble.login.is_refused_by(failure)
    }

    /// A call got its response: earlier trouble no longer explains anything.
    pub fn answered(&self) {
        self.note_login();
        self.last_trouble.set(None);
    }

    /// Some broker has responded, so the login was accepted.
    pub fn note_login(&self) {
        log::reached();
        self.last_trouble.login.note_success();
    }
}
