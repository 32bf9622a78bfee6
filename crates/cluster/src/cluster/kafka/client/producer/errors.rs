//! The writer's errors. If librdkafka knows a broker's error code, the message has librdkafka's words for it, as on its
//! data path.

use super::super::super::descriptions;
use super::super::super::rights;
use super::super::super::wire::code;
use super::super::super::wire::writer::{WriteError, WriteErrorKind};
use crate::cluster::{Detail, Error, ErrorKind};

/// The kind of an error: always the one that the writer chose, since the caller acts upon it.
pub(super) fn kind(kind: WriteErrorKind) -> ErrorKind {
    match kind {
        WriteErrorKind::Retry => ErrorKind::Retry,
        WriteErrorKind::Abort => ErrorKind::Abort,
        WriteErrorKind::Fenced => ErrorKind::Fenced,
        WriteErrorKind::Unknown => ErrorKind::Unknown,
        WriteErrorKind::Refused => ErrorKind::Refused,
    }
}

/// Converts a writer's error.
pub(super) fn error(error: &WriteError) -> Error {
    let kind = kind(error.kind);
    let known = error.code.and_then(|code| Some((code, descriptions::of_broker(code)?)));
    let Some((code, words)) = known else { return Error::new(kind, &*error.message) };
    let message = error.operation().map_or_else(|| error.message.clone(), |what| format!("{what}: {words}"));
    let grant = match code {
        code::TOPIC_AUTHORIZATION_FAILED => "; grant Write on every topic that is written to",
        _ => rights::grant(code),
    };
    let detail = rights::is_denial(code).then_some(Detail::Denied(None));
    Error::new(kind, format!("{message}{grant}")).with(detail)
}

/// Converts a writer's error during the operation `what`. The message begins with `what`, unless it names a more
/// specific operation.
pub(super) fn error_during(what: &str, failed: &WriteError) -> Error {
    const SPECIFIC: [&str; 2] = ["adding ", "finding "];
    let error = error(failed);
    let names_operation =
        error.message.starts_with(what) || SPECIFIC.iter().any(|prefix| error.message.starts_with(prefix));
    if names_operation { error } else { Error { message: format!("{what}: {}", error.message), ..error } }
}

/// The error of opening this transactional id.
pub(super) fn open_error(id: &str, failed: &WriteError) -> Error {
    let (what, error) = (format!("opening the transactional id {id}"), error(failed));
    if error.message.starts_with(&what) {
        return error;
    }
    let why = error.message.strip_prefix("opening the transactional id: ").unwrap_or(&error.message);
    Error { message: format!("{what}: {why}"), ..error }
}

#[cfg(test)]
mod tests {
    use super::super::super::super::errors::{Code, Failure};
    use super::*;

    fn coded(kind: WriteErrorKind, what: &str, name: &str, code: i16) -> WriteError {
        let error = WriteError { kind, code: Some(code), message: format!("{what}: {name} (code {code})") };
        assert_eq!(error.operation(), Some(what), "the writer's wording has changed");
        error
    }

    #[test]
    fn missing_rights_are_named_as_on_librdkafkas_path() {
        let (what, refused) = ("adding the offsets to the transaction", WriteErrorKind::Refused);
        let on_wire = error_during(
            "committing",
            &coded(refused, what, "GroupAuthorizationFailed", code::GROUP_AUTHORIZATION_FAILED),
        );
        let failure = Failure::of(Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED).unwrap();
        let other = failure.transactional(what, ErrorKind::Unknown);
        assert_eq!((on_wire.kind, on_wire.message, on_wire.detail), (other.kind, other.message, other.detail));
        let denied = coded(refused, "writing to out:0", "TopicAuthorizationFailed", code::TOPIC_AUTHORIZATION_FAILED);
        let error = error_during("committing the transaction", &denied);
        assert!(error.is_denied());
        let words = "committing the transaction: writing to out:0: Broker: Topic authorization failed; \
                     grant Write on every topic that is written to";
        assert_eq!(error.message, words);
    }

    #[test]
    fn error_of_opening_names_the_id() {
        let denied = code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
        let (refused, name) = (WriteErrorKind::Refused, "TransactionalIdAuthorizationFailed");
        for what in ["opening the transactional id", "finding the transactional id's coordinator"] {
            let error = open_error("tx", &coded(refused, what, name, denied));
            assert_eq!(error.kind, ErrorKind::Refused);
            assert!(error.message.starts_with("opening the transactional id tx: "), "{error}");
            assert!(error.message.ends_with("; grant Write on the topology's transactional ids"), "{error}");
        }
        let message = "opening the transactional id tx: no response".to_owned();
        let late = WriteError { kind: WriteErrorKind::Retry, code: None, message: message.clone() };
        assert_eq!(open_error("tx", &late).message, message);
    }

    #[test]
    fn kind_is_the_writers_whatever_the_code_would_mean() {
        // A commit that was requested twice: its outcome is unknown, although this response alone would decide it.
        let unsure = coded(
            WriteErrorKind::Unknown,
            "committing the transaction",
            "TransactionalIdAuthorizationFailed",
            code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        );
        assert_eq!(error(&unsure).kind, ErrorKind::Unknown);
        // A code that librdkafka does not know.
        let strange = WriteError { kind: WriteErrorKind::Abort, code: Some(120), message: "unchanged".to_owned() };
        assert_eq!(error(&strange).message, "unchanged");
    }
}
