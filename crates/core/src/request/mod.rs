//! What is remembered of an HTTP request, so that it is carried out once.
//!
//! A request is reserved before it is carried out, and its answer is remembered afterwards. A reservation has a
//! [`Token`] and a lease: as long as the lease lasts nobody else carries the request out; when it is over, its holder
//! is taken for dead, and the next one who asks may take over. A holder that was only slow then has a token that is
//! not the reservation's any more, and whatever it wants to write is refused: **every change is conditional on the
//! token**.
//!
//! ```text
//!            reserve                    complete
//!  nothing ──────────► reserved(token) ──────────► answered ──► forgotten, when its time has come
//!     ▲                 │        │  ▲                 │
//!     └──── release ────┘        └──┘ extend          └─ reserve: the answer
//!                                     reserve, when the lease is over: another token
//! ```
//!
//! A request whose lease is over can also be settled [by an operator](operator): then it is answered, or forgotten.
//!
//! [`entry`] has the rules, as pure functions. A [`Store`] keeps entries by them: in a folder of one process
//! (`requests`), in PostgreSQL (`postgres::requests`), in Redis (`redis::requests`).
//!
//! **Failure.** A change whose outcome is not known may be tried again: with the same token it is the same change.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

pub mod entry;
pub mod operator;

pub use crate::format::request::{Answer, AnswerBody, BY_HAND};

/// Names a request: SHA-256 of who has sent it, its method, its path and its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u8; 32]);

impl Id {
    /// How a request is called in logs: the beginning of its id, which is a digest of the key and more.
    pub fn short(&self) -> String {
        crate::format::hex(&self.0[..6])
    }

    /// An id of lower-case hexadecimal digits; `None` if these are none.
    pub fn read(digits: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let bytes = digits.bytes().all(is_digit).then(|| crate::format::unhex(digits))??;
        Some(Self(bytes.try_into().ok()?))
    }
}

/// SHA-256 of what a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// Names one attempt to carry a request out; drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub [u8; 16]);

/// Names a reservation. Its holder may have lost it to another holder without knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reservation {
    /// The request.
    pub id: Id,
    /// The token that it was reserved with.
    pub token: Token,
}

/// What becomes of a request whose holder has let its lease pass: it may have been carried out, or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInDoubt {
    /// It is carried out again: at least once.
    #[default]
    Run,
    /// It is refused for as long as it is remembered: at most once.
    Refuse,
}

/// A request that is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The request, and the token to reserve it with. A token is used for one attempt only.
    pub held: Reservation,
    /// What it asks for.
    pub fingerprint: Fingerprint,
    /// How long the reservation is good for unless it is extended.
    pub lease: Duration,
    /// How long it is remembered.
    pub retention: Duration,
    /// What becomes of it if its former holder's lease is over.
    pub on_in_doubt: OnInDoubt,
}

/// What a store says to a request that is to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is reserved now, for the caller.
    Reserved {
        /// Whether it was taken over: its former holder may have carried it out.
        taken_over: bool,
    },
    /// It was answered before.
    Answered(Answer),
    /// Somebody else is carrying it out.
    InProgress,
    /// Its former holder's lease is over, and nobody is to take it over ([`OnInDoubt::Refuse`]).
    InDoubt,
    /// The key stands for a request that asks for something else.
    OtherRequest,
}

/// Whether the caller still holds its reservation, as a store says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StillHeld {
    /// The caller holds it: the change was made, or was not necessary.
    Yes,
    /// The caller does not hold it any more, or wants to release a request that is answered: nothing was changed.
    Fenced,
}

/// Why a store could not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It may come back by itself: down, cut off, slow.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// It has no room for what it would have to write. What it holds, it can still tell.
    #[error("the store is full: {0}")]
    Full(String),
    /// Somebody has to do something: no right, another's format, damage.
    #[error("the store refuses: {0}")]
    Refused(String),
}

impl Error {
    /// Whether the same call may succeed later, without anybody's help.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Full(_) => true,
            Self::Refused(_) => false,
        }
    }
}

/// A store's answer, when it is there.
pub type Reply<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// Keeps what is remembered of requests, by the rules of [`entry`].
///
/// Each call is one change that happens or not, even if others change the same request at the same time. Once the call
/// has returned, an answer, and a reservation that is not to be taken over, are as safe as the store promises.
pub trait Store: Send + Sync {
    /// Reserves a request, or says why not.
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found>;

    /// Extends a reservation's lease to `lease` from now on.
    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld>;

    /// Remembers the answer for `retention` from now on. An answer that this holder has completed already is replaced
    /// only if its body was cut off.
    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld>;

    /// Forgets a request that was not carried out, or is to be carried out again.
    fn release(&self, held: Reservation) -> Reply<'_, StillHeld>;

    /// Removes some of what has been remembered for long enough; how many. Zero: nothing is left for now.
    fn tidy(&self) -> Reply<'_, usize>;

    /// Whether it would answer.
    fn check(&self) -> Reply<'_, ()>;
}
