//! Unpacks batches for the wire, with the same libraries and within the same budget as for librdkafka.
//!
//! **Failure**: [`UnpackError`]; no memory remains reserved.

use super::super::wire::records::{self, Codec, Unpack, UnpackError, strip_xerial};
use super::budget::Rejection;
use super::codecs::{self, Failure, Unpacked};

/// Unpacks batches within the process's budget: see [`super::allow`].
#[derive(Debug, Default)]
pub struct Budgeted;

/// What was unpacked, freed when dropped.
struct Owned(Unpacked);

// SAFETY: plain memory that is owned and never written to again.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: that many bytes were written there, and live as long as this.
        unsafe { std::slice::from_raw_parts(self.0.start.as_ptr(), self.0.len) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: memory from `malloc` that is owned.
        unsafe { libc::free(self.0.start.as_ptr().cast()) }
    }
}

impl Unpack for Budgeted {
    fn unpack(&mut self, codec: Codec, bytes: &[u8]) -> Result<records::Unpacked, UnpackError> {
        let unpacked = match codec {
            Codec::None => return Ok(records::Unpacked::new(bytes.to_vec())),
            Codec::Gzip => codecs::gzip(bytes),
            Codec::Lz4 => codecs::lz4(bytes),
            Codec::Snappy => match strip_xerial(bytes) {
                Some(chunks) => codecs::snappy_chunks(chunks),
                None => codecs::snappy(bytes),
            },
            Codec::Zstd => codecs::zstd(bytes),
        };
        unpacked.map(|unpacked| records::Unpacked::new(Owned(unpacked))).map_err(|failure| match failure {
            Failure::Rejected(Rejection::TooLarge) => UnpackError::TooLarge,
            Failure::Rejected(Rejection::NoRoom) => UnpackError::NoRoom,
            Failure::Damaged => UnpackError::Damaged,
        })
    }
}
