//! What a duplicate is answered with: a result, or what is left of one. Its bytes are in the table of what is settled.
//!
//! What is written is within bounds: a longer body is remembered by its digest, a longer reason is cut off, both by
//! its writer.

use super::{Error, array, bounded, damaged};

/// A longer result is remembered by its digest.
pub const RESULT_BYTES_MAX: usize = 64 << 10;
/// A longer reason is to be cut off.
pub const REASON_BYTES_MAX: usize = 4 << 10;

const RESULT_NONE: u8 = 0;
const RESULT_WHOLE: u8 = 1;
const RESULT_DIGEST: u8 = 2;
const RESULT_REASON: u8 = 3;

/// A result, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultRef<'a> {
    /// All of it.
    Whole {
        /// The answer's status; 0 if it has none.
        status: u16,
        /// Its body, of at most [`RESULT_BYTES_MAX`] bytes.
        body: &'a [u8],
    },
    /// Of one that was too long.
    Digest {
        /// The answer's status; 0 if it has none.
        status: u16,
        /// The body's SHA-256.
        sha256: [u8; 32],
        /// How many bytes the body had.
        bytes: u64,
    },
    /// Why there is none, in at most [`REASON_BYTES_MAX`] bytes.
    Reason(&'a str),
}

impl<'a> ResultRef<'a> {
    pub(super) fn decode(rest: &mut &'a [u8]) -> Result<Option<Self>, Error> {
        let [kind] = array(rest)?;
        if kind == RESULT_NONE {
            return Ok(None);
        }
        if kind == RESULT_REASON {
            let length = u16::from_be_bytes(array(rest)?).into();
            let text = str::from_utf8(bounded(rest, length, REASON_BYTES_MAX)?);
            return text.map(|text| Some(Self::Reason(text))).map_err(|_| damaged("its reason is not UTF-8"));
        }
        if kind != RESULT_WHOLE && kind != RESULT_DIGEST {
            return Err(damaged("its result is of an unknown kind"));
        }
        let status = u16::from_be_bytes(array(rest)?);
        Ok(Some(match kind {
            RESULT_WHOLE => {
                let length = u32::from_be_bytes(array(rest)?) as usize;
                Self::Whole { status, body: bounded(rest, length, RESULT_BYTES_MAX)? }
            }
            _ => Self::Digest { status, sha256: array(rest)?, bytes: u64::from_be_bytes(array(rest)?) },
        }))
    }

    pub(super) fn encode(result: Option<Self>, out: &mut Vec<u8>) {
        match result {
            None => out.push(RESULT_NONE),
            Some(Self::Whole { status, body }) => {
                assert!(body.len() <= RESULT_BYTES_MAX, "a longer result is remembered by its digest");
                out.push(RESULT_WHOLE);
                out.extend_from_slice(&status.to_be_bytes());
                out.extend_from_slice(&(body.len() as u32).to_be_bytes());
                out.extend_from_slice(body);
            }
            Some(Self::Digest { status, sha256, bytes }) => {
                out.push(RESULT_DIGEST);
                out.extend_from_slice(&status.to_be_bytes());
                out.extend_from_slice(&sha256);
                out.extend_from_slice(&bytes.to_be_bytes());
            }
            Some(Self::Reason(text)) => {
                assert!(text.len() <= REASON_BYTES_MAX, "a longer reason is cut off");
                out.push(RESULT_REASON);
                out.extend_from_slice(&(text.len() as u16).to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
    }
}
