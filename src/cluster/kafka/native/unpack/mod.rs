//! A bound on what compressed batches unpack to.
//!
//! librdkafka unpacks a whole batch on the thread of its broker's connection, and does not limit the result
//! (except for zstd, and generously there): some kilobytes that unpack to gigabytes would end the process, then its
//! successor, and so on. So the linker redirects the unpacking calls (see `build.rs`) to functions in [`wrap`], which
//! do the same with the same libraries ([`codecs`], using the hints in [`frames`]), reserve memory for it as they go
//! ([`budget`]), and give up when none is left.
//!
//! Invariants: memory is reserved before unpacked bytes are written to it, and released when librdkafka frees it; a
//! batch that was given up is an error of its partition at its offset, as librdkafka does not read on after a batch
//! that it could not read.
//!
//! **Failure**: a batch larger than the whole budget is [`Rejection::TooLarge`]; one that does not fit into what is
//! left is [`Rejection::NoRoom`], and librdkafka fetches it again. A caller that gets librdkafka's error learns from
//! [`rejection`] which it was.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

mod codecs;
mod heads;
mod room;
mod wrap;

pub(in super::super) use room::{NOTE_BYTES, Refusal};
pub(in super::super) use wrap::shadowed;

/// How many rejections are remembered: they are looked up at once.
const REMEMBERED_MAX: usize = 256;

/// The compressed sizes of the batches that were given up, and why.
static REFUSED: Mutex<VecDeque<(usize, Refusal)>> = Mutex::new(VecDeque::new());

fn refused() -> MutexGuard<'static, VecDeque<(usize, Refusal)>> {
    REFUSED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets what batches may unpack to in total, for the whole process.
pub(in super::super) fn allow(bytes: u64) {
    room::ROOM.allow(bytes);
}

/// What batches may unpack to in total.
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

/// Why the batch of an error was given up, given librdkafka's message; `None` if it could not be unpacked.
pub(in super::super) fn refusal(words: &str) -> Option<Refusal> {
    let bytes = compressed_bytes(words)?;
    refused().iter().rev().find(|(of, _)| *of == bytes).map(|(_, refusal)| *refusal)
}

/// The compressed size in "Decompression (codec 0x1) of message at 5 of 700 bytes failed: ...".
fn compressed_bytes(words: &str) -> Option<usize> {
    let (before, _) = words.strip_prefix("Decompression (codec ")?.split_once(" bytes failed")?;
    before.rsplit_once(" of ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_is_found_by_the_size_in_librdkafkas_message() {
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
