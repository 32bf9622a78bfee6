//! The contents that an entry knows: a digest of each, oldest first.
//!
//! | a digest, from its highest bit | bits |
//! |---|---|
//! | 1 of a snapshot's read, 0 of anything else | 1 |
//! | by which rule the contents were read: a hash of the rule's text | 11 |
//! | a hash of the contents | 52 |
//!
//! An entry of a read above a streamed change knows contents of both; the first bit distinguishes them. Digests taken by
//! different rules cannot be compared; the second field tells them apart.

use std::num::NonZeroU64;

/// Maximum number of contents that an entry knows; a further one displaces the oldest of the class that has more.
pub const CONTENTS_MAX: usize = 8;
/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 8;
/// How many rules for contents a digest can tell apart.
pub const DIGEST_TAGS: u16 = 1 << TAG_BITS;

const TAG_BITS: u32 = 11;
const HASH_BITS: u32 = 52;
const READ: u64 = 1 << 63;

/// The digest of a record's contents. It is never 0, so that an absent one takes no room of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest(NonZeroU64);

impl Digest {
    /// The digest of contents that hash to `hash`, read by the rule with this tag, below [`DIGEST_TAGS`].
    pub fn new(hash: u64, tag: u16, of_read: bool) -> Self {
        debug_assert!(tag < DIGEST_TAGS, "a tag of more than {TAG_BITS} bits");
        let tag = u64::from(tag % DIGEST_TAGS) << HASH_BITS;
        Self::of_bits(hash & ((1 << HASH_BITS) - 1) | tag | if of_read { READ } else { 0 })
    }

    /// Zero stands for 1.
    fn of_bits(bits: u64) -> Self {
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }

    /// Whether the contents are those of a snapshot's read.
    pub fn is_of_read(self) -> bool {
        self.0.get() & READ != 0
    }

    /// Whether both were taken by the same rule, of records of the same class: reads, or anything else.
    pub fn is_comparable(self, other: Self) -> bool {
        (self.0.get() ^ other.0.get()) >> HASH_BITS == 0
    }

    /// The digest as 16 hexadecimal digits.
    pub fn hex(self) -> String {
        format!("{:016x}", self.0)
    }
}

/// What an entry says about given contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownContents {
    /// It knows no contents that these can be compared with.
    Unknown,
    /// It knows them.
    Same,
    /// It knows others only.
    Other,
}

/// The contents that an entry knows, oldest first; empty if it knows none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents<'a>(&'a [[u8; DIGEST_BYTES]]);

impl<'a> Contents<'a> {
    /// No contents.
    pub const NONE: Self = Self(&[]);

    /// Splits contents off bytes; `None` if these end early or their number is impossible.
    pub(super) fn split(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&count, rest) = bytes.split_first()?;
        let count = usize::from(count);
        let (digests, rest) = rest.split_at_checked(count * DIGEST_BYTES)?;
        (1..=CONTENTS_MAX).contains(&count).then_some((Self(digests.as_chunks().0), rest))
    }

    /// Whether none are known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The digests, oldest first.
    pub fn digests(&self) -> impl Iterator<Item = Digest> + 'a {
        self.0.iter().map(|bytes| Digest::of_bits(u64::from_be_bytes(*bytes)))
    }

    /// What is known about the contents with this digest.
    pub fn know(&self, digest: Digest) -> KnownContents {
        let mut known = KnownContents::Unknown;
        for other in self.digests().filter(|other| other.is_of_read() == digest.is_of_read()) {
            if other == digest {
                return KnownContents::Same;
            }
            // An entry that an earlier rule has written to cannot tell whether it met these.
            if !other.is_comparable(digest) {
                return KnownContents::Unknown;
            }
            known = KnownContents::Other;
        }
        known
    }

    /// Appends their number and the digests, or nothing where there are none.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        if !self.is_empty() {
            out.push(self.0.len() as u8);
            out.extend_from_slice(self.0.as_flattened());
        }
    }
}

/// A list of contents under construction.
#[derive(Clone, Copy, Debug, Default)]
pub struct ContentsList {
    digests: [[u8; DIGEST_BYTES]; CONTENTS_MAX],
    count: usize,
}

impl ContentsList {
    /// Appends a digest. Of nine, the class that has more, reads or anything else, loses its oldest: neither class displaces
    /// all digests of the other.
    pub fn push(&mut self, digest: Digest) {
        if self.count == CONTENTS_MAX {
            let known = self.as_contents().digests().chain([digest]);
            let loses = known.filter(|digest| digest.is_of_read()).count() * 2 > CONTENTS_MAX;
            let oldest = self.as_contents().digests().position(|digest| digest.is_of_read() == loses);
            self.digests[oldest.unwrap_or(0)..].rotate_left(1);
            self.count -= 1;
        }
        self.digests[self.count] = digest.0.get().to_be_bytes();
        self.count += 1;
    }

    /// The list.
    pub fn as_contents(&self) -> Contents<'_> {
        Contents(&self.digests[..self.count])
    }
}

#[cfg(test)]
mod tests {
    //! Goal: contents come back as they were written, and are never taken for others.

    use super::*;

    fn digest(hash: u64) -> Digest {
        Digest::new(hash, 7, false)
    }

    #[test]
    fn ninth_digest_displaces_the_oldest() {
        let mut list = ContentsList::default();
        assert!(list.as_contents().is_empty());
        (0..9).for_each(|hash| list.push(digest(hash)));
        assert_eq!(list.as_contents().know(digest(0)), KnownContents::Other);
        for hash in 1..9 {
            assert_eq!(list.as_contents().know(digest(hash)), KnownContents::Same, "{hash}");
        }
    }

    #[test]
    fn neither_reads_nor_changes_displace_all_of_the_others() {
        for of_read in [false, true] {
            let mut list = ContentsList::default();
            (0..8).for_each(|hash| list.push(Digest::new(hash, 7, !of_read)));
            (0..20).for_each(|hash| list.push(Digest::new(hash, 7, of_read)));
            let expected = (4..8).map(|hash| Digest::new(hash, 7, !of_read));
            let expected = expected.chain((16..20).map(|hash| Digest::new(hash, 7, of_read)));
            assert_eq!(list.as_contents().digests().collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        }
    }

    #[test]
    fn encoded_contents_are_split_off_again() {
        for count in 1..=CONTENTS_MAX {
            let mut list = ContentsList::default();
            (0..count as u64).for_each(|hash| list.push(digest(hash)));
            let mut bytes = Vec::new();
            list.as_contents().encode(&mut bytes);
            assert_eq!(bytes.len(), 1 + count * DIGEST_BYTES);
            bytes.push(0xab);
            assert_eq!(Contents::split(&bytes), Some((list.as_contents(), &[0xab][..])));
            assert_eq!(Contents::split(&bytes[..count * DIGEST_BYTES]), None, "ends early");
        }
        assert_eq!(Contents::split(&[0; 80]), None, "no contents");
        let mut nine = vec![9];
        nine.resize(1 + 9 * DIGEST_BYTES, 0);
        assert_eq!(Contents::split(&nine), None, "too many");
        assert_eq!(Contents::split(&[]), None);
    }

    #[test]
    fn digests_by_another_rule_or_of_the_other_class_say_nothing() {
        let mut list = ContentsList::default();
        list.push(Digest::new(1, 7, false));
        let know = |hash, tag, of_read| list.as_contents().know(Digest::new(hash, tag, of_read));
        assert_eq!(know(1, 7, false), KnownContents::Same);
        assert_eq!(know(2, 7, false), KnownContents::Other);
        assert_eq!(know(1, 8, false), KnownContents::Unknown, "another rule");
        assert_eq!(know(1, 7, true), KnownContents::Unknown, "a read");
        assert_eq!(Contents::NONE.know(digest(1)), KnownContents::Unknown);
    }

    #[test]
    fn parts_of_a_digest_do_not_run_into_each_other() {
        assert_eq!(Digest::new(u64::MAX, 0, false).hex(), "000fffffffffffff");
        assert_eq!(Digest::new(0, DIGEST_TAGS - 1, false).hex(), "7ff0000000000000");
        assert_eq!(Digest::new(0, 0, true).hex(), "8000000000000000");
        assert_eq!(Digest::new(0, 0, false), Digest::new(1, 0, false), "never 0");
        assert_eq!(size_of::<Option<Digest>>(), DIGEST_BYTES);
        assert!(Digest::new(0, 0, true).is_of_read());
        assert!(!Digest::new(u64::MAX, DIGEST_TAGS - 1, false).is_of_read());
    }
}
