//! An attempt's outcome, and its class.
//!
//! | outcome | class with a key | class without a key | may have acted |
//! |---|---|---|---|
//! | not sent | again | again | no |
//! | 2xx | done | done | yes |
//! | 429, 421 | again | again | no |
//! | 408, 425, 5xx, reset, timeout, codes that HTTP does not define | again | in doubt | yes |
//! | 409 | in progress | in doubt | yes |
//! | a 5xx that the provider replays | in doubt | in doubt | yes |
//! | 401, 403, 407, 301, 307, 308 | hold | hold | no |
//! | other 3xx | hold | in doubt | yes |
//! | 400, 422 that name the key | conflict | rejected | no |
//! | other 4xx | rejected | rejected | no |
//! | refused for good | rejected, whatever was attempted before | the same | no |
//! | half done for good | in doubt, whatever `on_in_doubt` says | the same | yes |
//!
//! - The provider recognises a repeated request by its key. If it honours no keys, only requests that have certainly
//!   not been carried out are repeated.
//! - A wrong secret, or an address that has moved, is the topology's mistake, not the record's: it must not empty a
//!   topic into the dead letters. If other calls succeed meanwhile, it is the record's mistake after all: its attempts
//!   count, and once they are exhausted the record is rejected, or in doubt if an attempt may have acted.
//! - A 5xx that is replayed is the response to the first attempt, repeated for as long as the key is honoured (by
//!   Stripe, for example): another attempt would get the same response, and nobody knows what the first one has done.
//! - 421 means that the request reached the wrong server, and that it may be sent again (RFC 9110, section 15.5.20).
//!
//! A topology may override the class of a status code, or of a hundred codes. An override changes the class, but not
//! whether the attempt may have acted: it has certainly not acted after a 404, even if the topology has the call sent
//! again, and it may have acted after a 500, even if the topology counts that as rejected.

use std::fmt;

use super::RetryAfter;

/// The headers by which providers mark a response as a replay, in lower case: Stripe's header, and the header of the
/// crate axum-idempotent.
const REPLAY_MARKERS: [&str; 2] = ["idempotent-replayed", "idempotency-replayed"];
/// The word that the body of a response about the key contains, unless it contains the header's name: the word is in
/// the IETF draft's problem types and in Stripe's `idempotency_error`.
const IDEMPOTENCY: &str = "idempotency";

/// An attempt's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// The provider has responded.
    Status(Status),
    /// Nothing of the request was written: there was no address, no connection or no handshake.
    NotSent,
    /// The request may have arrived, and there is no response: a reset, a timeout.
    Lost,
    /// Nothing was written, because the key's window would have passed before a response could arrive.
    TooLate,
    /// The handler refuses the work, and no attempt has done it. The refusal is remembered.
    Refused,
    /// Half of the handler's work is done, and will be neither finished nor undone. This is remembered, so that another
    /// attempt would end in the same way.
    HalfDone,
}

/// The parts of a provider's response that its class and the next attempt depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The status code.
    pub code: u16,
    /// When the provider wants the next request.
    pub retry_after: Option<RetryAfter>,
    /// Whether the response is about the key ([`names_key`]).
    pub names_key: bool,
    /// Whether it repeats the response to an earlier attempt ([`is_replay_marker`]).
    pub is_replayed: bool,
}

impl Status {
    /// A response with this code, and without headers or a body that matter.
    pub const fn of(code: u16) -> Self {
        Self { code, retry_after: None, names_key: false, is_replayed: false }
    }
}

/// The class of an attempt's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The provider has carried out the request.
    Done,
    /// The request is sent again.
    Again,
    /// Another attempt under the key is under way: the request is sent again, a bounded number of times.
    InProgress,
    /// No request can be sent for now: as if the provider were down.
    Hold,
    /// The key was used for another request.
    Conflict,
    /// The provider refuses the request.
    Rejected,
    /// The request may have been carried out, and no attempt can determine whether it was.
    InDoubt,
}

impl Class {
    /// All classes, in the order of their declaration.
    pub const ALL: [Self; 7] =
        [Self::Done, Self::Again, Self::InProgress, Self::Hold, Self::Conflict, Self::Rejected, Self::InDoubt];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Again => "again",
            Self::InProgress => "in_progress",
            Self::Hold => "hold",
            Self::Conflict => "conflict",
            Self::Rejected => "rejected",
            Self::InDoubt => "in_doubt",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The meaning of an attempt's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Classification {
    /// Its class.
    pub class: Class,
    /// Whether this attempt may have acted.
    pub may_have_acted: bool,
}

/// The status codes that an override is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusCodes {
    /// One code, from 100 to 599.
    One(u16),
    /// A hundred codes, by their first digit: from 1 to 5.
    Hundred(u16),
}

impl StatusCodes {
    /// Reads `404` or `5xx`; `None` if the text has neither form.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(first) = text.strip_suffix("xx") {
            return matches!(first, "1" | "2" | "3" | "4" | "5").then(|| first.parse().ok().map(Self::Hundred))?;
        }
        let is_code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let code = is_code.then(|| text.parse().ok())?.filter(|code| (100..600).contains(code));
        code.map(Self::One)
    }
}

impl fmt::Display for StatusCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(code) => write!(f, "{code}"),
            Self::Hundred(first) => write!(f, "{first}xx"),
        }
    }
}

/// The classes that a topology can give to status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideClass {
    /// The provider has carried out the request.
    Done,
    /// The request is sent again, even without a key.
    Again,
    /// The provider cannot carry out the request for now: no other request is sent either.
    Hold,
    /// The key was used for another request.
    Conflict,
    /// The provider refuses the request.
    Rejected,
    /// The request may have been carried out.
    InDoubt,
}

impl OverrideClass {
    /// All classes that an override may give.
    pub const ALL: &[OverrideClass] = &[
        OverrideClass::Done,
        OverrideClass::Again,
        OverrideClass::Hold,
        OverrideClass::Conflict,
        OverrideClass::Rejected,
        OverrideClass::InDoubt,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        self.class().as_str()
    }

    const fn class(self) -> Class {
        match self {
            Self::Done => Class::Done,
            Self::Again => Class::Again,
            Self::Hold => Class::Hold,
            Self::Conflict => Class::Conflict,
            Self::Rejected => Class::Rejected,
            Self::InDoubt => Class::InDoubt,
        }
    }
}

/// A mistake in a topology's overrides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Two overrides are for the same codes.
    Twice(StatusCodes),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Twice(codes) = self;
        write!(f, "the answers {codes} are listed twice: remove one of the entries")
    }
}

impl std::error::Error for Error {}

/// A topology's overrides of the classes in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    overrides: Vec<(StatusCodes, OverrideClass)>,
}

impl Answers {
    /// Checks the overrides. The override for a single code takes precedence over the one for its hundred.
    ///
    /// # Errors
    /// Two overrides are for the same codes.
    pub fn new(overrides: Vec<(StatusCodes, OverrideClass)>) -> Result<Self, Error> {
        let codes = |index: usize| overrides[index].0;
        match (1..overrides.len()).find(|index| overrides[..*index].iter().any(|(other, _)| *other == codes(*index))) {
            Some(index) => Err(Error::Twice(codes(index))),
            None => Ok(Self { overrides }),
        }
    }

    /// Returns the class of an outcome, depending on whether the provider honours keys.
    pub fn read(&self, outcome: &AttemptOutcome, has_key: bool) -> Classification {
        let default = default_classification(outcome, has_key);
        let AttemptOutcome::Status(Status { code, .. }) = outcome else { return default };
        let override_for =
            |wanted: StatusCodes| self.overrides.iter().find(|(codes, _)| *codes == wanted).map(|(_, class)| *class);
        let class = override_for(StatusCodes::One(*code)).or_else(|| override_for(StatusCodes::Hundred(code / 100)));
        class.map_or(default, |class| Classification { class: class.class(), ..default })
    }
}

fn default_classification(outcome: &AttemptOutcome, has_key: bool) -> Classification {
    let not_done = |class| Classification { class, may_have_acted: false };
    let maybe_done =
        |with_key| Classification { class: if has_key { with_key } else { Class::InDoubt }, may_have_acted: true };
    let status = match outcome {
        AttemptOutcome::NotSent | AttemptOutcome::TooLate => return not_done(Class::Again),
        AttemptOutcome::Refused => return not_done(Class::Rejected),
        AttemptOutcome::HalfDone => return maybe_done(Class::InDoubt),
        AttemptOutcome::Lost => return maybe_done(Class::Again),
        AttemptOutcome::Status(status) => status,
    };
    match status.code {
        200..=299 => Classification { class: Class::Done, may_have_acted: true },
        301 | 307 | 308 => not_done(Class::Hold),
        300..=399 => maybe_done(Class::Hold),
        401 | 403 | 407 => not_done(Class::Hold),
        408 | 425 => maybe_done(Class::Again),
        409 => maybe_done(Class::InProgress),
        421 | 429 => not_done(Class::Again),
        400 | 422 if has_key && status.names_key => not_done(Class::Conflict),
        400..=499 => not_done(Class::Rejected),
        500..=599 if status.is_replayed => maybe_done(Class::InDoubt),
        _ => maybe_done(Class::Again),
    }
}

/// Whether the body of a response 400 or 422 is about the key, which was sent in `header`.
pub fn names_key(body: &[u8], header: &str) -> bool {
    [header, IDEMPOTENCY].iter().any(|word| {
        let is_word = |part: &[u8]| part.eq_ignore_ascii_case(word.as_bytes());
        !word.is_empty() && body.windows(word.len()).any(is_word)
    })
}

/// Whether a header marks the response as a replay of an earlier one.
pub fn is_replay_marker(name: &str, value: &str) -> bool {
    REPLAY_MARKERS.iter().any(|marker| name.eq_ignore_ascii_case(marker)) && value.trim().eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests;
