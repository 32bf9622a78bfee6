//! An attempt's outcome, and its class.
//!
//! | answer | with a key | without | may have acted |
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
//! - A 5xx that is replayed is the answer to the first attempt, repeated for as long as the key is honoured (by Stripe,
//!   for example): another attempt would get the same answer, and nobody knows what the first one has done.
//! - 421 says that the request reached the wrong server, and that it may be sent again (RFC 9110, section 15.5.20).
//!
//! A topology may override the class of a code, or of a hundred codes. That changes the class, but not whether the
//! attempt may have acted: it has certainly not acted after a 404, even if the topology has the call sent again, and
//! may have acted after a 500, even if the topology counts that as rejected.

use std::fmt;

use super::RetryAfter;

/// The headers by which providers say that an answer is a replay, in lower case: Stripe's, and that of the crate
/// axum-idempotent.
const REPLAY_MARKERS: [&str; 2] = ["idempotent-replayed", "idempotency-replayed"];
/// What the body of an answer about a key contains, if not the header's name: it is in the IETF draft's problem types
/// and in Stripe's `idempotency_error`.
const IDEMPOTENCY: &str = "idempotency";

/// An attempt's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The provider has answered.
    Status(Status),
    /// Nothing of the request was written: there was no address, no connection or no handshake.
    NotSent,
    /// The request may have arrived, and there is no answer: a reset, a timeout.
    Lost,
    /// Nothing was written, because the key's window would have passed before an answer.
    TooLate,
    /// It will not be done, and no attempt has done it: the refusal is remembered.
    Refused,
    /// Half of it is done, and will be neither finished nor undone: this is remembered, so that another attempt would
    /// end in the same way.
    HalfDone,
}

/// The parts of a provider's answer that decide anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The status code.
    pub code: u16,
    /// When the provider wants to be asked again.
    pub retry_after: Option<RetryAfter>,
    /// Whether it is about the key ([`names_key`]).
    pub names_key: bool,
    /// Whether it repeats the answer to an earlier attempt ([`is_replay_marker`]).
    pub is_replayed: bool,
}

impl Status {
    /// An answer with this code and nothing else that matters.
    pub const fn of(code: u16) -> Self {
        Self { code, retry_after: None, names_key: false, is_replayed: false }
    }
}

/// The class of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The provider has done it.
    Done,
    /// To be sent again.
    Again,
    /// Another attempt under the key is under way: to be sent again, a bounded number of times.
    InProgress,
    /// Nothing can be sent for now: as if the provider were down.
    Hold,
    /// The key was used for another request.
    Conflict,
    /// The provider will not do it.
    Rejected,
    /// It may have happened, and nothing can be found out.
    InDoubt,
}

impl Class {
    /// All of them, in the order in which they are declared.
    pub const ALL: [Self; 7] =
        [Self::Done, Self::Again, Self::InProgress, Self::Hold, Self::Conflict, Self::Rejected, Self::InDoubt];

    /// The word for it.
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

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Its class.
    pub class: Class,
    /// Whether this attempt may have acted.
    pub may_have_acted: bool,
}

/// The codes that a topology names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codes {
    /// One code, from 100 to 599.
    One(u16),
    /// A hundred codes, by their first digit: from 1 to 5.
    Hundred(u16),
}

impl Codes {
    /// Reads `404` or `5xx`; `None` if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(first) = text.strip_suffix("xx") {
            return matches!(first, "1" | "2" | "3" | "4" | "5").then(|| first.parse().ok().map(Self::Hundred))?;
        }
        let is_code = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let code = is_code.then(|| text.parse().ok())?.filter(|code| (100..600).contains(code));
        code.map(Self::One)
    }
}

impl fmt::Display for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(code) => write!(f, "{code}"),
            Self::Hundred(first) => write!(f, "{first}xx"),
        }
    }
}

/// The classes that a topology can give an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// The provider has done it.
    Done,
    /// To be sent again, even without a key.
    Again,
    /// The provider cannot do it for now: nothing else is sent either.
    Hold,
    /// The key was used for another request.
    Conflict,
    /// The provider will not do it.
    Rejected,
    /// It may have happened.
    InDoubt,
}

impl Named {
    /// All of them.
    pub const ALL: &[Named] =
        &[Named::Done, Named::Again, Named::Hold, Named::Conflict, Named::Rejected, Named::InDoubt];

    /// The word for it.
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

/// Why answers cannot be overridden like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The same codes are named twice.
    Twice(Codes),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Twice(codes) = self;
        write!(f, "the answers {codes} are listed twice: remove one of the entries")
    }
}

impl std::error::Error for Error {}

/// A topology's overrides of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    named: Vec<(Codes, Named)>,
}

impl Answers {
    /// These overrides. A single code takes precedence over its hundred.
    ///
    /// # Errors
    /// The same codes twice.
    pub fn new(named: Vec<(Codes, Named)>) -> Result<Self, Error> {
        let codes = |at: usize| named[at].0;
        match (1..named.len()).find(|at| named[..*at].iter().any(|(other, _)| *other == codes(*at))) {
            Some(at) => Err(Error::Twice(codes(at))),
            None => Ok(Self { named }),
        }
    }

    /// What an answer means, depending on whether the provider honours keys.
    pub fn read(&self, answer: &Answer, has_key: bool) -> Reading {
        let reading = by_default(answer, has_key);
        let Answer::Status(Status { code, .. }) = answer else { return reading };
        let by = |wanted: Codes| self.named.iter().find(|(codes, _)| *codes == wanted).map(|(_, named)| *named);
        let named = by(Codes::One(*code)).or_else(|| by(Codes::Hundred(code / 100)));
        named.map_or(reading, |named| Reading { class: named.class(), ..reading })
    }
}

fn by_default(answer: &Answer, has_key: bool) -> Reading {
    let nothing_done = |class| Reading { class, may_have_acted: false };
    let perhaps_done =
        |with_key| Reading { class: if has_key { with_key } else { Class::InDoubt }, may_have_acted: true };
    let status = match answer {
        Answer::NotSent | Answer::TooLate => return nothing_done(Class::Again),
        Answer::Refused => return nothing_done(Class::Rejected),
        Answer::HalfDone => return perhaps_done(Class::InDoubt),
        Answer::Lost => return perhaps_done(Class::Again),
        Answer::Status(status) => status,
    };
    match status.code {
        200..=299 => Reading { class: Class::Done, may_have_acted: true },
        301 | 307 | 308 => nothing_done(Class::Hold),
        300..=399 => perhaps_done(Class::Hold),
        401 | 403 | 407 => nothing_done(Class::Hold),
        408 | 425 => perhaps_done(Class::Again),
        409 => perhaps_done(Class::InProgress),
        421 | 429 => nothing_done(Class::Again),
        400 | 422 if has_key && status.names_key => nothing_done(Class::Conflict),
        400..=499 => nothing_done(Class::Rejected),
        500..=599 if status.is_replayed => perhaps_done(Class::InDoubt),
        _ => perhaps_done(Class::Again),
    }
}

/// Whether the body of an answer 400 or 422 is about the key, which was sent in `header`.
pub fn names_key(body: &[u8], header: &str) -> bool {
    [header, IDEMPOTENCY].iter().any(|word| {
        let is_word = |part: &[u8]| part.eq_ignore_ascii_case(word.as_bytes());
        !word.is_empty() && body.windows(word.len()).any(is_word)
    })
}

/// Whether a header says that the answer is a replay of an earlier one.
pub fn is_replay_marker(name: &str, value: &str) -> bool {
    REPLAY_MARKERS.iter().any(|marker| name.eq_ignore_ascii_case(marker)) && value.trim().eq_ignore_ascii_case("true")
}

#[cfg(test)]
mod tests;
