//! A gate is asked, before a record is passed on, whether its identity was passed on elsewhere: by another partition,
//! topic or topology.
//!
//! A gate keeps a mark for each identity that it was asked about: the coordinates of the first record with the
//! identity. A query marks an identity that has no mark, atomically. If several tasks ask at once, one of them leaves
//! its mark, and the others get that mark.
//!
//! - A mark is the task's **own** if it names the same topology, topic, topic id and partition: within a partition the
//!   store decides, and the gate only reports what happens elsewhere. So neither an aborted transaction nor a lost
//!   response does any harm: a task that asks again finds its own mark, and continues.
//! - Any other mark says that the identity was passed on **elsewhere**, or is about to be.
//!
//! An [`Identity`] is a digest of all values that decide whether two records are the same: the identities, scopes and
//! versions of all rows. A newer version has a different identity.
//!
//! **Failure**: a session waits for a bounded time. After an [`Error`] each identity of the query may or may not be
//! marked; as any new mark is the task's own, that makes no difference.

use std::fmt;

use sha2::{Digest, Sha256};

pub use super::{Error, ErrorKind};

/// Domain separation: the input of no other digest begins with these bytes.
const DOMAIN: &[u8] = b"ratchet gate 1";

/// The length of an [`Identity`] in bytes: long enough that nobody finds two different records with the same identity.
pub const IDENTITY_BYTES: usize = 24;

/// The identity of a record at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(pub [u8; IDENTITY_BYTES]);

/// The part of one row in its record's [`Identity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowIdentity<'a> {
    /// The identity: its store key.
    pub identity: &'a [u8],
    /// The scope of the version; `None` without a scope.
    pub scope: Option<&'a [u8]>,
    /// The version; `None` without a version.
    pub version: Option<&'a [u8]>,
}

impl Identity {
    /// The identity of a record with these rows: the first bytes of a SHA-256. Each part is preceded by its length, so
    /// no two lists of rows give the same input. The bytes must never change: marks under other bytes would be
    /// forgotten.
    pub fn of<'a>(rows: impl IntoIterator<Item = RowIdentity<'a>>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        let add = |hasher: &mut Sha256, bytes: &[u8]| {
            hasher.update((bytes.len() as u64).to_be_bytes());
            hasher.update(bytes);
        };
        for RowIdentity { identity, scope, version } in rows {
            add(&mut hasher, identity);
            for optional in [scope, version] {
                hasher.update([u8::from(optional.is_some())]);
                if let Some(bytes) = optional {
                    add(&mut hasher, bytes);
                }
            }
        }
        let digest: [u8; 32] = hasher.finalize().into();
        let mut bytes = [0; IDENTITY_BYTES];
        bytes.copy_from_slice(&digest[..IDENTITY_BYTES]);
        Self(bytes)
    }
}

/// A record in a query to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateRecord {
    /// The record's identity at the gate.
    pub identity: Identity,
    /// The record's offset.
    pub offset: i64,
}

/// The coordinates that all records of one partition share: all but the offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcePartition<'a> {
    /// The topology's name.
    pub topology: &'a str,
    /// The input topic.
    pub topic: &'a str,
    /// The topic's id: a recreated topic has a different id.
    pub topic_id: [u8; 16],
    /// The partition.
    pub partition: i32,
}

/// The form in marks: `topology/topic/id/partition/`, which the offset follows. No name contains a `/`.
impl fmt::Display for SourcePartition<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { topology, topic, topic_id, partition } = self;
        write!(f, "{topology}/{topic}/{:032x}/{partition}/", u128::from_be_bytes(*topic_id))
    }
}

/// A gate's verdict on a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateVerdict {
    /// The record is the first one with its identity: it has left the mark.
    First,
    /// The mark is of the record's own partition, and was there before.
    Own,
    /// A record with the same identity was passed on elsewhere.
    Elsewhere,
}

/// A topology's gate, shared by all its lanes.
pub trait Gate: Send + Sync {
    /// A session of one lane. Connects when it is first used.
    fn session(&self) -> Box<dyn Session>;
}

/// One lane's access to its topology's gate.
pub trait Session: Send {
    /// Asks about records of one partition, all at once. Clears `verdicts`, and fills it with one verdict for each
    /// record, in order. Takes a few seconds at most.
    fn ask(
        &mut self,
        source: &SourcePartition<'_>,
        records: &[GateRecord],
        verdicts: &mut Vec<GateVerdict>,
    ) -> Result<(), Error>;

    /// Removes the marks of these records, which were not passed on after all. Marks of other records remain.
    fn remove_marks(&mut self, source: &SourcePartition<'_>, records: &[GateRecord]) -> Result<(), Error>;

    /// Checks that the gate can be reached, without a query. Takes a few seconds at most.
    fn reach(&mut self) -> Result<(), Error>;
}

#[cfg(test)]
mod tests {
    //! Goal: two records have the same identity at a gate if and only if all parts of their rows are equal.

    use std::collections::HashSet;

    use super::*;

    fn row<'a>(identity: &'a [u8], scope: Option<&'a [u8]>, version: Option<&'a [u8]>) -> RowIdentity<'a> {
        RowIdentity { identity, scope, version }
    }

    #[test]
    fn records_that_differ_have_different_identities() {
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
        let identities: HashSet<Identity> = all.iter().map(|rows| Identity::of(rows.iter().copied())).collect();
        assert_eq!(identities.len(), all.len());
        let again: HashSet<Identity> = all.iter().map(|rows| Identity::of(rows.iter().copied())).collect();
        assert_eq!(identities, again);
    }

    #[test]
    fn bytes_of_an_identity_never_change() {
        // Later releases recognise the marks of earlier ones.
        let Identity(bytes) = Identity::of([row(b"id", Some(b"scope"), Some(b"version"))]);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "e16cec5387f2f47baef62edfe273c140db5520b0a79ca850");
    }

    #[test]
    fn source_partition_shows_every_coordinate() {
        let source = SourcePartition { topology: "pay", topic: "in.a", topic_id: [0xab; 16], partition: 3 };
        assert_eq!(source.to_string(), "pay/in.a/abababababababababababababababab/3/");
    }
}
