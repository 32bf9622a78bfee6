//! What is stored with a committed offset: who may have written last, and by which rules.

use std::fmt;

use super::{Error, Token, hex};

/// The text stored with a committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetMetadata {
    /// The transaction that committed the offset.
    pub token: Token,
    /// The first 16 hex digits of the rules' digest.
    pub digest: String,
    /// The transactional id of the last possible writer; `None` after a graceful hand-over.
    pub owner: Option<String>,
}

/// How an [`OffsetMetadata`] begins; its format number follows.
const METADATA_PREFIX: &str = "ratchet/";
/// The format of [`OffsetMetadata`] that is written.
pub const METADATA_FORMAT: u32 = 1;

/// The owner of a partition that was handed over.
const RELEASED: &str = "released";

impl OffsetMetadata {
    /// The short form of a rules digest, as carried in the metadata.
    pub fn short_digest(digest: &[u8; 32]) -> String {
        hex(&digest[..8])
    }

    /// Reads the text stored with a committed offset: `None` if it is empty (the group was reset or never
    /// committed by ratchet), an error if it is another release's or not ratchet's.
    pub fn parse(text: &str) -> Result<Option<Self>, Error> {
        const WHAT: &str = "the committed offset's metadata";
        if text.is_empty() {
            return Ok(None);
        }
        let damaged = |reason: String| Error::Damaged { what: WHAT, reason };
        let mut parts = text.split(' ');
        let (header, token, digest, owner) = (parts.next(), parts.next(), parts.next(), parts.next());
        let format =
            header.and_then(|header| header.strip_prefix(METADATA_PREFIX)).and_then(|format| format.parse().ok());
        match format {
            Some(METADATA_FORMAT) => {}
            Some(found) => return Err(Error::Format { what: WHAT, found, expected: METADATA_FORMAT }),
            None => return Err(damaged(format!("it does not begin with {METADATA_PREFIX:?} and a number"))),
        }
        match (token.map(str::parse), digest, owner, parts.next()) {
            (Some(Ok(token)), Some(digest), Some(owner), None) => Ok(Some(Self {
                token,
                digest: digest.to_owned(),
                owner: (owner != RELEASED).then(|| owner.to_owned()),
            })),
            _ => Err(damaged("it is not `TOKEN DIGEST OWNER`".to_owned())),
        }
    }
}

impl fmt::Display for OffsetMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = self.owner.as_deref().unwrap_or(RELEASED);
        write!(f, "{METADATA_PREFIX}{METADATA_FORMAT} {} {} {owner}", self.token, self.digest)
    }
}
