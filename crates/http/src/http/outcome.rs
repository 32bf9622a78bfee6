//! The outcome of a request, for metrics; and what an answer says of the service behind it.

/// What has become of a request; every answer has it among its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It was not looked at: it has no key, or needs none.
    Passed,
    /// It was carried out without being looked at, since the store does not answer.
    Unprotected,
    /// It was carried out, and its answer is remembered.
    Done,
    /// It was carried out, or not, and is forgotten: the next one under its key is carried out.
    Released,
    /// It was carried out, and its answer could not be remembered.
    NotRemembered,
    /// It was answered as the first one was.
    Replayed,
    /// Another one under its key is at work.
    InProgress,
    /// Its key stands for another request.
    OtherRequest,
    /// It has no key.
    KeyMissing,
    /// Its key is none.
    KeyInvalid,
    /// It does not say who its caller is.
    CallerMissing,
    /// Its body is too large, or ended early.
    BodyRefused,
    /// Nobody knows whether it was carried out.
    InDoubt,
    /// The store does not answer.
    StoreDown,
    /// The store has no room for it.
    StoreFull,
    /// As many as may be are at work.
    TooMany,
}

impl Outcome {
    /// All of them.
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

    /// Its word in metrics.
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

/// Says of an answer that it is not the service's own, and that the service may have been run: a proxy puts it among the
/// extensions of an answer that it gives in place of one that was lost. Such a request is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MayHaveRun;

/// Says that nobody waits for the service any more, which may still be at work: a proxy puts it among the extensions of an
/// answer that it gives in place of one that is late, or ends an answer's body with it. Such a request is in doubt, and
/// stays reserved for a [grace](super::Idempotency::grace).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing came in time")]
pub struct GivenUp;

/// Says of an answer that the service was not run, whatever its status: a proxy puts it among the extensions of an answer
/// that it gives because it could not reach the service. Such a request is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRun;

/// Says of an answer that it is neither the service's nor one that was remembered: the layer itself says why a request was
/// not carried out, or was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own;
