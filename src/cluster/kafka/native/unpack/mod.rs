//! A bound on what compressed batches unpack to.
//!
//! librdkafka unpacks a batch whole, on the thread of its broker's connection, and of what that comes to it bounds
//! nothing (of zstd alone, and that generously): some kilobytes that unpack to gigabytes would end the process, and its
//! successor's, and so on. So the linker sends the calls that unpack (see `build.rs`) to functions of [`wrap`], which do
//! the same by the same libraries ([`codecs`], by what [`heads`] say), reserve room for it as they go ([`room`]), and give
//! up where there is none.
//!
//! Invariants: what is unpacked is reserved before it is written, and given back when librdkafka frees it; a batch that was
//! given up is an error of its partition at its offset, for librdkafka goes on behind no batch that it could not read.
//!
//! **Failure**: a batch that would not fit into all of the room is [`Refusal::TooLarge`]; one that does not fit beside
//! what is there is [`Refusal::NoRoom`], and librdkafka fetches it again. Whoever gets librdkafka's error asks [`refusal`]
//! which it was.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod codecs;
mod heads;
mod room;
mod wrap;

pub(in super::super) use room::{NOTE_BYTES, Refusal};
pub(in super::super) use wrap::shadowed;

/// How many refusals are remembered: they are asked for at once.
const REMEMBERED_MAX: usize = 256;

/// How large the batches were, compressed, that were given up, and why.
static REFUSED: Mutex<VecDeque<(usize, Refusal)>> = Mutex::new(VecDeque::new());

fn refused() -> MutexGuard<'static, VecDeque<(usize, Refusal)>> {
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets batches unpack to so much altogether, from now on. Of the whole process.
pub(in super::super) fn allow(bytes: u64) {
    room::ROOM.allow(bytes);
}

/// How much batches may unpack to altogether.
pub(in super::super) fn allowed_bytes() -> u64 {
    room::ROOM.max()
}

/// Remembers why a batch was given up.
fn note(compressed_bytes: usize, refusal: Refusal) {
    let mut refused = refused();
    if refused.len() >= REMEMBERED_MAX {
        refused.pop_front();
    }
    refused.push_back((compressed_bytes, refusal));
}

/// Why the batch of an error was given up, by librdkafka's words; `None` where it was not, but could not be unpacked.
pub(in super::super) fn refusal(words: &str) -> Option<Refusal> {
    let bytes = compressed_bytes(words)?;
    refused().iter().rev().find(|(of, _)| *of == bytes).map(|(_, refusal)| *refusal)
}

/// How large a batch was that could not be unpacked: "Decompression (codec 0x1) of message at 5 of 700 bytes failed: ...".
fn compressed_bytes(words: &str) -> Option<usize> {
    let (before, _) = words.strip_prefix("Decompression (codec ")?.split_once(" bytes failed")?;
    before.rsplit_once(" of ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn librdkafkas_words_tell_why_a_batch_was_given_up() {
        let words = |bytes: usize| {
            format!(
                "Decompression (codec 0x4) of message at 18 of {bytes} bytes failed: Local: Invalid compressed data"
            )
        };
        note(987_654_321, Refusal::NoRoom);
        note(987_654_321, Refusal::TooLarge);
        note(987_654_322, Refusal::NoRoom);
        assert_eq!(refusal(&words(987_654_321)), Some(Refusal::TooLarge), "the last one");
        assert_eq!(refusal(&words(987_654_322)), Some(Refusal::NoRoom));
        assert_eq!(refusal(&words(987_654_323)), None);
        assert_eq!(refusal("MessageSet at offset 5 (700 bytes) failed CRC32C check"), None);
        (0..2 * REMEMBERED_MAX).for_each(|bytes| note(bytes, Refusal::NoRoom));
        assert!(refused().len() <= REMEMBERED_MAX);
    }
}
