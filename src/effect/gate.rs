//! A gate: who is asked, before a record is passed on, whether its identity was passed on elsewhere, by another partition,
//! topic or topology.
//!
//! A gate keeps a mark for each identity that was asked about: the coordinates of the record that came first. Asking
//! leaves a mark if there is none, atomically. If several tasks ask at once, one of them leaves its mark, and the
//! others get that mark.
//!
//! - The mark is one's **own** if it names the same topology, topic, topic's id and partition: within a partition the store
//!   decides, and the gate only says what happens elsewhere. So an aborted transaction does no harm, nor does an answer that
//!   was lost: a task that asks again goes on.
//! - Any other mark says that the identity was passed on **elsewhere**, or is about to be.
//!
//! An [`Identity`] is a digest of everything that makes two records the same thing: all rows' identities, scopes and
//! versions. A newer version of the same thing has another one.
//!
//! **Failure**: a session waits for a bounded time. After an [`Error`] each identity that was asked about may have its mark
//! or not; as the mark is one's own, that makes no difference.

use std::fmt;

use sha2::{Digest, Sha256};

pub use super::{Error, ErrorKind};

/// So that no other digest is the same.
const DOMAIN: &[u8] = b"ratchet gate 1";

/// The bytes of an [`Identity`]: enough that nobody finds two records with the same one.
pub const IDENTITY_BYTES: usize = 24;

/// What a gate knows a record by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub [u8; IDENTITY_BYTES]);

/// What one row of a record is: parts of an [`Identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowOf<'a> {
    /// The identity: its store key.
    pub identity: &'a [u8],
    /// The scope of its version; `None` if it is in none.
    pub scope: Option<&'a [u8]>,
    /// The version; `None` if it has none.
    pub version: Option<&'a [u8]>,
}

impl Identity {
    /// The identity of a record of these rows: the first bytes of a SHA-256. Each part says how long it is, so no two
    /// lists of rows give the same bytes. The bytes must last: what is kept under others is forgotten.
    pub fn of<'a>(rows: impl IntoIterator<Item = RowOf<'a>>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        let part = |hasher: &mut Sha256, bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        for RowOf { identity, scope, version } in rows {
            part(&mut hasher, identity);
            for optional in [scope, version] {
                hasher.update([u8::from(optional.is_some())]);
                if let Some(bytes) = optional {
                    part(&mut hasher, bytes);
                }
            }
        }
        let digest: [u8; 32] = hasher.finalize().into();
        let mut bytes = [0; IDENTITY_BYTES];
        bytes.copy_from_slice(&digest[..IDENTITY_BYTES]);
        Self(bytes)
    }
}

/// A record that a gate is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What the gate knows it by.
    pub identity: Identity,
    /// Its offset.
    pub offset: i64,
}

/// Where records are: the coordinates of all records of one partition, but for the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The topology's name.
    pub topology: &'a str,
    /// The input topic.
    pub topic: &'a str,
    /// The topic's id: a topic that is recreated is another place.
    pub topic_id: [u8; 16],
    /// The partition.
    pub partition: i32,
}

/// As marks have it: `topology/topic/id/partition/`, with the offset to follow. No name has a `/` in it.
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topology, topic, topic_id, partition } = self;
        write!(f, "{topology}/{topic}/{:032x}/{partition}/", u128::from_be_bytes(*topic_id))
    }
}

/// What a gate says of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is the first one: the mark is now its own.
    First,
    /// The mark was its partition's own already.
    Own,
    /// It was passed on elsewhere.
    Elsewhere,
}

/// What all lanes of a topology share of its gate.
pub trait Gate: Send + Sync {
    /// A lane's own way to it. Connects when it is first used.
    fn session(&self) -> Box<dyn Session>;
}

/// One lane's way to its topology's gate.
pub trait Session: Send {
    /// Asks about records of one place, all at once, and gives an answer for each, in their order, in `answers`, which is
    /// cleared first. Takes at most some seconds.
    fn ask(&mut self, place: &Place<'_>, asked: &[Asked], answers: &mut Vec<Answer>) -> Result<(), Error>;

    /// Takes back the marks of these records, which were not passed on after all, where they are theirs.
    fn take_back(&mut self, place: &Place<'_>, asked: &[Asked]) -> Result<(), Error>;

    /// Whether it can be reached, without asking anything; takes at most some seconds.
    fn reach(&mut self) -> Result<(), Error>;
}

#[cfg(test)]
mod tests {
    //! Goal: records are the same thing to a gate if and only if all that makes them one is the same.

    use std::collections::HashSet;

    use super::*;

    fn row<'a>(identity: &'a [u8], scope: Option<&'a [u8]>, version: Option<&'a [u8]>) -> RowOf<'a> {
        RowOf { identity, scope, version }
    }

    #[test]
    fn identity_tells_apart_whatever_differs() {
        let all = [
            vec![row(b"ab", None, None)],
            vec![row(b"a", None, None), row(b"b", None, None)],
            vec![row(b"b", None, None), row(b"a", None, None)],
            vec![row(b"ab", Some(b""), None)],
            vec![row(b"ab", None, Some(b""))],
            vec![row(b"ab", Some(b"1"), None)],
            vec![row(b"ab", None, Some(b"1"))],
            vec![row(b"ab", None, Some(b"2"))],
            vec![row(b"ab", Some(b"1"), Some(b"2"))],
            vec![row(b"ab", Some(b"2"), Some(b"1"))],
            vec![],
        ];
        let known: HashSet<Identity> = all.iter().map(|rows| Identity::of(rows.iter().copied())).collect();
        assert_eq!(known.len(), all.len());
        let again: HashSet<Identity> = all.iter().map(|rows| Identity::of(rows.iter().copied())).collect();
        assert_eq!(known, again);
    }

    #[test]
    fn identity_keeps_its_bytes() {
        // What a release has marked, later releases recognise.
        let Identity(bytes) = Identity::of([row(b"id", Some(b"scope"), Some(b"version"))]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "e16cec5387f2f47baef62edfe273c140db5520b0a79ca850");
    }

    #[test]
    fn place_names_every_coordinate() {
        let place = Place { topology: "pay", topic: "in.a", topic_id: [0xab; 16], partition: 3 };
        assert_eq!(place.to_string(), "pay/in.a/abababababababababababababababab/3/");
    }
}
