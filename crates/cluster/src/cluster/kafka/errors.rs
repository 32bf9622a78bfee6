//! What librdkafka's errors mean to a lane.
//!
//! For a transactional error, librdkafka says whether it is retriable, whether the transaction must be
//! aborted, and whether the producer is lost; any other error has only a code. Only this module turns
//! librdkafka's errors into an [`ErrorKind`].
//!
//! **Failure**: an error without further information is [`ErrorKind::Unknown`] in a transactional call and
//! [`ErrorKind::Retry`] elsewhere, where a retry does no harm.

use std::fmt;

pub(super) use super::descriptions::Code;
use super::descriptions::describe;
use super::login::Login;
use super::rights;
use crate::cluster::{Detail, Error, ErrorKind};

/// An error as reported by librdkafka.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The code.
    pub code: Code,
    /// librdkafka's or the broker's message.
    pub message: String,
    /// Whether the client is lost: a new one is needed.
    pub fatal: bool,
    /// Whether the same call may be repeated.
    pub retriable: bool,
    /// Whether the open transaction must be aborted.
    pub requires_abort: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    /// The failure for a code without a message; `None` if the code is not an error.
    pub fn of(code: Code) -> Option<Self> {
        (code != Code::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| Self::new(code, describe(code)))
    }

    /// A code with its own message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let fatal = matches!(code, Code::RD_KAFKA_RESP_ERR__FATAL | Code::RD_KAFKA_RESP_ERR__FENCED);
        Self { code, message: message.into(), fatal, retriable: false, requires_abort: false }
    }

    /// Whether the partition no longer holds the records that were read from it: see [`super::epochs`]. librdkafka says
    /// this only in the message.
    pub fn is_truncation(&self) -> bool {
        self.is_of_truncation() && !self.is_unknown_epoch()
    }

    /// Whether the broker knows neither the requested epoch nor a later one. A leader knows its own epoch, so this
    /// broker was replaced and has not learnt of it yet, or the whole cluster was restored from an earlier state. See
    /// `LeaderEpochFileCache.endOffsetFor` of Kafka.
    pub fn is_unknown_epoch(&self) -> bool {
        self.is_of_truncation() && self.message.contains("broker end offset is -1 (")
    }

    fn is_of_truncation(&self) -> bool {
        self.code == Code::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET
            && self.message.contains(&describe(Code::RD_KAFKA_RESP_ERR__LOG_TRUNCATION))
    }

    /// The error of a call outside transactions.
    pub fn plain(&self, what: impl fmt::Display) -> Error {
        let kind = match self.code {
            _ if self.fatal => ErrorKind::Fenced,
            Code::RD_KAFKA_RESP_ERR__AUTHENTICATION if self.is_broken_off() => ErrorKind::Retry,
            code => plain_kind(code),
        };
        let error = Error::new(kind, format!("{what}: {self}{}", self.grant()));
        error.with(self.detail())
    }

    /// The error of a transactional call. `late` is the kind for a call that could be repeated if its deadline had not
    /// passed.
    pub fn transactional(&self, what: impl fmt::Display, late: ErrorKind) -> Error {
        let kind = match self.code {
            code if is_authorization(code) || is_setting(code) => ErrorKind::Refused,
            code if is_stale_membership(code) => ErrorKind::Abort,
            _ if self.fatal => ErrorKind::Fenced,
            _ if self.requires_abort => ErrorKind::Abort,
            _ if self.retriable => late,
            Code::RD_KAFKA_RESP_ERR__TIMED_OUT | Code::RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE => late,
            _ => ErrorKind::Unknown,
        };
        let grant = match self.is_denied_topic() {
            true => "; grant Write on every topic that is written to (librdkafka's own line names the one)",
            false => self.grant(),
        };
        Error::new(kind, format!("{what}: {self}{grant}"))
            .with(self.detail().filter(|detail| *detail != Detail::Missing))
    }

    /// The detail that the code reveals besides the kind.
    pub fn detail(&self) -> Option<Detail> {
        match self.code {
            code if is_missing(code) => Some(Detail::Missing),
            code if rights::is_denial(of_broker(code)) => Some(Detail::Denied(None)),
            _ => None,
        }
    }

    /// The right to grant, if the code alone determines it. For a topic, the right depends on what the topic is used
    /// for.
    pub fn grant(&self) -> &'static str {
        rights::grant(of_broker(self.code))
    }

    /// Whether the cluster denies an operation on the topic.
    pub fn is_denied_topic(&self) -> bool {
        self.code == Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
    }

    /// Whether the group has rejected the membership used for a commit.
    pub fn is_stale_membership(&self) -> bool {
        is_stale_membership(self.code)
    }

    /// Whether a login failed, because of a password or a certificate, say.
    pub fn is_login(&self) -> bool {
        matches!(
            self.code,
            Code::RD_KAFKA_RESP_ERR__AUTHENTICATION
                | Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED
                | Code::RD_KAFKA_RESP_ERR__SSL
        )
    }

    /// Whether a request got no response, which says nothing about the cause.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.code, Code::RD_KAFKA_RESP_ERR__TIMED_OUT | Code::RD_KAFKA_RESP_ERR__TRANSPORT)
    }

    /// Whether a record was purged with its transaction, and not because of the record itself.
    pub fn is_purged(&self) -> bool {
        matches!(self.code, Code::RD_KAFKA_RESP_ERR__PURGE_QUEUE | Code::RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
    }

    /// Whether a record was rejected because another producer has taken its producer's place, or ended its transaction:
    /// a broker that asks the coordinator (KIP-890) learns of this before it has the marker with the next epoch.
    pub fn is_fencing(&self) -> bool {
        matches!(
            self.code,
            Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH
                | Code::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE
                | Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING
                | Code::RD_KAFKA_RESP_ERR_PRODUCER_FENCED
                | Code::RD_KAFKA_RESP_ERR__FENCED
                | Code::RD_KAFKA_RESP_ERR__FATAL
        )
    }

    /// Whether a login failed because the connection broke, for which librdkafka uses the code of a wrong password.
    fn is_broken_off(&self) -> bool {
        [Code::RD_KAFKA_RESP_ERR__TRANSPORT, Code::RD_KAFKA_RESP_ERR__TIMED_OUT]
            .iter()
            .any(|code| self.message.contains(&describe(*code)))
    }

    /// Whether the broker will always reject the record or its batch.
    pub fn refuses_record(&self) -> bool {
        matches!(
            self.code,
            Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
                | Code::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE
                | Code::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP
                | Code::RD_KAFKA_RESP_ERR_INVALID_RECORD
                | Code::RD_KAFKA_RESP_ERR_INVALID_MSG
                | Code::RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE
                | Code::RD_KAFKA_RESP_ERR__BAD_MSG
        )
    }
}

impl Login {
    /// Whether a person has to fix a failure: not a failed login if a login was accepted before.
    pub fn is_refused_by(&self, failure: &Failure) -> bool {
        failure.plain("").kind == ErrorKind::Refused && !(failure.is_login() && self.has_succeeded())
    }
}

/// What a code means outside transactions.
fn plain_kind(code: Code) -> ErrorKind {
    match code {
        code if is_authorization(code) || is_setting(code) || is_missing(code) => ErrorKind::Refused,
        code if is_stale_membership(code) => ErrorKind::Abort,
        Code::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID
        | Code::RD_KAFKA_RESP_ERR__FENCED
        | Code::RD_KAFKA_RESP_ERR__FATAL
        | Code::RD_KAFKA_RESP_ERR__DESTROY
        | Code::RD_KAFKA_RESP_ERR_PRODUCER_FENCED
        | Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH => ErrorKind::Fenced,
        Code::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE
        | Code::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET
        | Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
        | Code::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE
        | Code::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP
        | Code::RD_KAFKA_RESP_ERR_INVALID_RECORD => ErrorKind::Refused,
        _ => ErrorKind::Retry,
    }
}

/// The code as brokers send it. librdkafka's own codes are below -1; no broker sends them.
fn of_broker(code: Code) -> i16 {
    i16::try_from(code as i32).unwrap_or(-1)
}

/// Whether a right has to be granted, or a name or a password corrected.
fn is_authorization(code: Code) -> bool {
    let login = matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM
            | Code::RD_KAFKA_RESP_ERR_SECURITY_DISABLED
            | Code::RD_KAFKA_RESP_ERR__AUTHENTICATION
            | Code::RD_KAFKA_RESP_ERR__SSL
    );
    login || rights::is_denial(of_broker(code))
}

/// Whether a setting has to be corrected, here or on the cluster.
fn is_setting(code: Code) -> bool {
    matches!(
        code,
        Code::RD_KAFKA_RESP_ERR__INVALID_ARG
            | Code::RD_KAFKA_RESP_ERR__UNSUPPORTED_FEATURE
            | Code::RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION
            | Code::RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION
            | Code::RD_KAFKA_RESP_ERR_INVALID_PARTITIONS
            | Code::RD_KAFKA_RESP_ERR_INVALID_REPLICATION_FACTOR
            | Code::RD_KAFKA_RESP_ERR_INVALID_CONFIG
            | Code::RD_KAFKA_RESP_ERR_POLICY_VIOLATION
            | Code::RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT
            | Code::RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT
            | Code::RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL
            | Code::RD_KAFKA_RESP_ERR_GROUP_MAX_SIZE_REACHED
            | Code::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE
    )
}

/// Whether the topic or partition does not exist.
fn is_missing(code: Code) -> bool {
    matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
            | Code::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC
            | Code::RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION
    )
}

/// The codes for a commit whose membership is out of date: the transaction has no effect.
pub(super) const STALE_MEMBERSHIPS: [Code; 4] = [
    Code::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
    Code::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
    Code::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS,
    Code::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID,
];

fn is_stale_membership(code: Code) -> bool {
    STALE_MEMBERSHIPS.contains(&code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, flags: fn(&mut Failure)) -> ErrorKind {
        let mut failure = Failure::of(code).unwrap();
        flags(&mut failure);
        failure.transactional("commit", ErrorKind::Unknown).kind
    }

    #[test]
    fn transactional_errors_follow_their_flags() {
        use rdkafka::bindings::rd_kafka_resp_err_t::*;
        assert_eq!(kind(RD_KAFKA_RESP_ERR__FENCED, |f| f.fatal = true), ErrorKind::Fenced);
        assert_eq!(kind(RD_KAFKA_RESP_ERR__STATE, |f| f.requires_abort = true), ErrorKind::Abort);
        assert_eq!(kind(RD_KAFKA_RESP_ERR__TIMED_OUT, |f| f.retriable = true), ErrorKind::Unknown);
        assert_eq!(kind(RD_KAFKA_RESP_ERR__STATE, |_| ()), ErrorKind::Unknown);
        assert_eq!(kind(RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, |f| f.requires_abort = true), ErrorKind::Abort);
        assert_eq!(kind(RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, |_| ()), ErrorKind::Abort);
        assert_eq!(kind(RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, |f| f.fatal = true), ErrorKind::Abort);
        assert_eq!(
            kind(RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, |f| f.fatal = true),
            ErrorKind::Refused
        );
    }

    #[test]
    fn interrupted_login_is_not_taken_for_a_wrong_password() {
        let login = |message: &str| Failure::new(Code::RD_KAFKA_RESP_ERR__AUTHENTICATION, message).plain("login").kind;
        assert_eq!(login("SASL authentication error: invalid credentials"), ErrorKind::Refused);
        let broken = "SASL PLAIN mechanism handshake failed: Local: Broker transport failure";
        assert_eq!(login(broken), ErrorKind::Retry);
    }

    #[test]
    fn code_without_error_is_no_failure() {
        assert!(Failure::of(Code::RD_KAFKA_RESP_ERR_NO_ERROR).is_none());
    }
}
