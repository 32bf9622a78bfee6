//! The outcome of a request, for metrics; and markers among the extensions of responses, which say whether the service
//! was run, or where a response comes from.

/// The outcome of a request; every response has it among its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It was passed on to the service: it has no key, or needs no key.
    Passed,
    /// It was carried out unprotected, because the store does not answer.
    Unprotected,
    /// It was carried out, and its response is remembered.
    Done,
    /// It is forgotten, whether it was carried out or not: the next request under its key is carried out.
    Released,
    /// It was carried out, and its response could not be remembered.
    NotRemembered,
    /// It got the response to the first request under its key.
    Replayed,
    /// Another request under its key is at work.
    InProgress,
    /// Its key belongs to another request.
    OtherRequest,
    /// It has no key.
    KeyMissing,
    /// Its key is invalid.
    KeyInvalid,
    /// It does not say who its caller is.
    CallerMissing,
    /// Its body is too large, or ended early.
    BodyRefused,
    /// It is not known whether it was carried out.
    InDoubt,
    /// The store does not answer.
    StoreDown,
    /// The store has no room for it.
    StoreFull,
    /// Too many requests are at work, or their bodies take too much memory.
    TooMany,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 16] = [
        Self::Passed,
        Self::Unprotected,
        Self::Done,
        Self::Released,
        Self::NotRemembered,
        Self::Replayed,
        Self::InProgress,
        Self::OtherRequest,
        Self::KeyMissing,
        Self::KeyInvalid,
        Self::CallerMissing,
        Self::BodyRefused,
        Self::InDoubt,
        Self::StoreDown,
        Self::StoreFull,
        Self::TooMany,
    ];

    /// Its name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Unprotected => "unprotected",
            Self::Done => "done",
            Self::Released => "released",
            Self::NotRemembered => "not_remembered",
            Self::Replayed => "replayed",
            Self::InProgress => "in_progress",
            Self::OtherRequest => "other_request",
            Self::KeyMissing => "key_missing",
            Self::KeyInvalid => "key_invalid",
            Self::CallerMissing => "caller_missing",
            Self::BodyRefused => "body_refused",
            Self::InDoubt => "in_doubt",
            Self::StoreDown => "store_down",
            Self::StoreFull => "store_full",
            Self::TooMany => "too_many",
        }
    }
}

/// Marks a response that is not the service's own although the service may have been run: a proxy puts it among the
/// extensions of a response that replaces a lost one. The request is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayHaveRun;

/// Says that nobody waits for the service any more, which may still be at work: a proxy puts it among the extensions of
/// a response that replaces a late one, or ends a response's body with this error. The request is in doubt, and stays
/// reserved for a [grace period](super::Idempotency::grace).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing came in time")]
pub struct GivenUp;

/// Marks a response, of any status, that was given without running the service: a proxy puts it among the extensions of
/// its response when it could not reach the service. The request is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRun;

/// Marks a response that the layer or a proxy has made itself, in place of the service's response or a replay: it says
/// why a request was not carried out, or why its response is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnResponse;

/// Marks the replay of an answer that an operator has recorded: it lacks the headers with which the service would have
/// answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedByHand;
