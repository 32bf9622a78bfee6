//! What librdkafka's errors mean to a lane.
//!
//! librdkafka says of a transactional error whether it is retriable, whether the transaction must be
//! aborted, and whether the producer is lost; of everything else there is only a code. This module is
//! the one place where those become a [`Kind`].
//!
//! **Failure**: an error that says nothing of itself is [`Kind::Unknown`] in a transactional call and
//! [`Kind::Retry`] elsewhere, where asking again does no harm.

use std::ffi::CStr;
use std::fmt;

use rdkafka::bindings as rd;

use crate::cluster::{Error, Kind};

/// librdkafka's error codes.
pub(super) type Code = rd::rd_kafka_resp_err_t;

/// An error as librdkafka told it.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    /// The code.
    pub code: Code,
    /// librdkafka's or the broker's words.
    pub message: String,
    /// The client is lost: a new one is needed.
    pub fatal: bool,
    /// The same call may be made again.
    pub retriable: bool,
    /// The open transaction must be aborted.
    pub requires_abort: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Failure {
    /// A bare code; `None` where it is no error.
    pub fn of(code: Code) -> Option<Self> {
        (code != Code::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| Self::new(code, describe(code)))
    }

    /// A code with words of its own.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        let fatal = matches!(code, Code::RD_KAFKA_RESP_ERR__FATAL | Code::RD_KAFKA_RESP_ERR__FENCED);
        Self { code, message: message.into(), fatal, retriable: false, requires_abort: false }
    }

    /// Takes an error object over, `None` for null.
    ///
    /// # Safety
    /// `error` is null or an error object that nobody else destroys.
    pub unsafe fn take(error: *mut rd::rd_kafka_error_t) -> Option<Self> {
        if error.is_null() {
            return None;
        }
        // SAFETY: the object lives until it is destroyed here, and the string with it.
        unsafe {
            let failure = Self {
                code: rd::rd_kafka_error_code(error),
                message: CStr::from_ptr(rd::rd_kafka_error_string(error)).to_string_lossy().into_owned(),
                fatal: rd::rd_kafka_error_is_fatal(error) != 0,
                retriable: rd::rd_kafka_error_is_retriable(error) != 0,
                requires_abort: rd::rd_kafka_error_txn_requires_abort(error) != 0,
            };
            rd::rd_kafka_error_destroy(error);
            Some(failure)
        }
    }

    /// Whether the partition does not hold any more what was read of it: see [`super::epochs`]. librdkafka says so in
    /// words only.
    pub fn is_truncation(&self) -> bool {
        self.is_of_truncation() && !self.is_unknown_epoch()
    }

    /// Whether the broker that was asked knows nothing of the epoch that was asked for, nor of a later one. A leader knows
    /// its own, so this is one that leads no more and has not heard of it; or all of the cluster has gone back in time.
    /// See `LeaderEpochFileCache.endOffsetFor` of Kafka.
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
            _ if self.fatal => Kind::Fenced,
            Code::RD_KAFKA_RESP_ERR__AUTHENTICATION if self.is_broken_off() => Kind::Retry,
            code => plain_kind(code),
        };
        let error = Error::new(kind, format!("{what}: {self}{}", self.grant()));
        error.of_missing(is_missing(self.code)).of_right(is_right(self.code))
    }

    /// The error of a transactional call. `late` is the kind of one that may be called again but whose
    /// time is over.
    pub fn transactional(&self, what: impl fmt::Display, late: Kind) -> Error {
        let kind = match self.code {
            code if is_authorization(code) || is_setting(code) => Kind::Refused,
            code if is_stale_membership(code) => Kind::Abort,
            _ if self.fatal => Kind::Fenced,
            _ if self.requires_abort => Kind::Abort,
            _ if self.retriable => late,
            Code::RD_KAFKA_RESP_ERR__TIMED_OUT | Code::RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE => late,
            _ => Kind::Unknown,
        };
        let grant = match self.is_denied_topic() {
            true => "; grant Write on every topic that is written to (librdkafka's own line names the one)",
            false => self.grant(),
        };
        Error::new(kind, format!("{what}: {self}{grant}")).of_right(is_right(self.code))
    }

    /// What to grant, where the code alone says it. Of a topic, it depends on what that is for.
    fn grant(&self) -> &'static str {
        match self.code {
            Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED => "; grant Read on the group",
            Code::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED => {
                "; grant Write on the topology's transactional ids"
            }
            _ => "",
        }
    }

    /// Whether the cluster does not allow something with the topic.
    pub fn is_denied_topic(&self) -> bool {
        self.code == Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
    }

    /// Whether the group has refused the membership that a commit was made with.
    pub fn is_stale_membership(&self) -> bool {
        is_stale_membership(self.code)
    }

    /// Whether a login failed: a password, a certificate.
    pub fn is_login(&self) -> bool {
        matches!(
            self.code,
            Code::RD_KAFKA_RESP_ERR__AUTHENTICATION
                | Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED
                | Code::RD_KAFKA_RESP_ERR__SSL
        )
    }

    /// Whether a question had no answer, which says nothing of why.
    pub fn is_unanswered(&self) -> bool {
        matches!(self.code, Code::RD_KAFKA_RESP_ERR__TIMED_OUT | Code::RD_KAFKA_RESP_ERR__TRANSPORT)
    }

    /// Whether a record was thrown away with its transaction, and not because of itself.
    pub fn is_purged(&self) -> bool {
        matches!(self.code, Code::RD_KAFKA_RESP_ERR__PURGE_QUEUE | Code::RD_KAFKA_RESP_ERR__PURGE_INFLIGHT)
    }

    /// Whether a record was not taken because another has taken its producer's place.
    pub fn is_fencing(&self) -> bool {
        matches!(
            self.code,
            Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH
                | Code::RD_KAFKA_RESP_ERR_PRODUCER_FENCED
                | Code::RD_KAFKA_RESP_ERR__FENCED
                | Code::RD_KAFKA_RESP_ERR__FATAL
        )
    }

    /// Whether a login ended because the connection did, which librdkafka gives the code of a wrong password.
    fn is_broken_off(&self) -> bool {
        [Code::RD_KAFKA_RESP_ERR__TRANSPORT, Code::RD_KAFKA_RESP_ERR__TIMED_OUT]
            .iter()
            .any(|code| self.message.contains(&describe(*code)))
    }

    /// Whether the broker refuses what stands in the record or its batch.
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

/// librdkafka's words for a code.
pub(super) fn describe(code: Code) -> String {
    // SAFETY: a static string for every code.
    unsafe { CStr::from_ptr(rd::rd_kafka_err2str(code)) }.to_string_lossy().into_owned()
}

/// librdkafka's name of a code.
pub(super) fn name(code: Code) -> String {
    // SAFETY: a static string for every code.
    unsafe { CStr::from_ptr(rd::rd_kafka_err2name(code)) }.to_string_lossy().into_owned()
}

/// What a code means outside transactions.
fn plain_kind(code: Code) -> Kind {
    match code {
        code if is_authorization(code) || is_setting(code) || is_missing(code) => Kind::Refused,
        code if is_stale_membership(code) => Kind::Abort,
        Code::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID
        | Code::RD_KAFKA_RESP_ERR__FENCED
        | Code::RD_KAFKA_RESP_ERR__FATAL
        | Code::RD_KAFKA_RESP_ERR__DESTROY
        | Code::RD_KAFKA_RESP_ERR_PRODUCER_FENCED
        | Code::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH => Kind::Fenced,
        Code::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE
        | Code::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET
        | Code::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE
        | Code::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE
        | Code::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP
        | Code::RD_KAFKA_RESP_ERR_INVALID_RECORD => Kind::Refused,
        _ => Kind::Retry,
    }
}

/// Somebody has to grant something.
fn is_right(code: Code) -> bool {
    matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
}

/// Somebody has to grant something, or to correct a name or a password.
fn is_authorization(code: Code) -> bool {
    let login = matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM
            | Code::RD_KAFKA_RESP_ERR_SECURITY_DISABLED
            | Code::RD_KAFKA_RESP_ERR__AUTHENTICATION
            | Code::RD_KAFKA_RESP_ERR__SSL
    );
    login || is_right(code)
}

/// Somebody has to correct a setting, here or at the cluster.
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

/// There is no such topic or partition.
fn is_missing(code: Code) -> bool {
    matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
            | Code::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC
            | Code::RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION
    )
}

/// The membership that a commit was made with is a former one: the transaction has no effect.
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

    fn kind(code: Code, flags: fn(&mut Failure)) -> Kind {
        let mut failure = Failure::of(code).unwrap();
        flags(&mut failure);
        failure.transactional("commit", Kind::Unknown).kind
    }

    #[test]
    fn transactional_errors_follow_their_flags() {
        use rd::rd_kafka_resp_err_t::*;
        assert_eq!(kind(RD_KAFKA_RESP_ERR__FENCED, |f| f.fatal = true), Kind::Fenced);
        assert_eq!(kind(RD_KAFKA_RESP_ERR__STATE, |f| f.requires_abort = true), Kind::Abort);
        assert_eq!(kind(RD_KAFKA_RESP_ERR__TIMED_OUT, |f| f.retriable = true), Kind::Unknown);
        assert_eq!(kind(RD_KAFKA_RESP_ERR__STATE, |_| ()), Kind::Unknown);
        assert_eq!(kind(RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, |f| f.requires_abort = true), Kind::Abort);
        assert_eq!(kind(RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, |_| ()), Kind::Abort);
        assert_eq!(kind(RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, |f| f.fatal = true), Kind::Abort);
        assert_eq!(kind(RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, |f| f.fatal = true), Kind::Refused);
    }

    #[test]
    fn a_login_that_was_broken_off_is_no_wrong_password() {
        let login = |message: &str| Failure::new(Code::RD_KAFKA_RESP_ERR__AUTHENTICATION, message).plain("login").kind;
        assert_eq!(login("SASL authentication error: invalid credentials"), Kind::Refused);
        let broken = "SASL PLAIN mechanism handshake failed: Local: Broker transport failure";
        assert_eq!(login(broken), Kind::Retry);
    }

    #[test]
    fn no_error_is_no_failure() {
        assert!(Failure::of(Code::RD_KAFKA_RESP_ERR_NO_ERROR).is_none());
    }
}
