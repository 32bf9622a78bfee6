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

mod budget;
mod codecs;
mod frames;
mod owned;
mod wrap;

pub(super) use budget::{RECORD_OVERHEAD_BYTES, Rejection};
pub(super) use owned::Budgeted;
pub(super) use wrap::shadowed;

/// How many rejections are remembered: they are looked up at once.
const REMEMBERED_MAX: usize = 256;

/// The compressed sizes of the batches that were given up, and why.
static REJECTED: Mutex<VecDeque<(usize, Rejection)>> = Mutex::new(VecDeque::new());

fn rejected() -> MutexGuard<'static, VecDeque<(usize, Rejection)>> {
    REJECTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets what batches may unpack to in total, for the whole process.
pub(super) fn allow(bytes: u64) {
    budget::BUDGET.allow(bytes);
}

/// What batches may unpack to in total.
pub(super) fn allowed_bytes() -> u64 {
    budget::BUDGET.max()
}

/// Remembers why a batch was given up.
fn note(compressed_bytes: usize, rejection: Rejection) {
    let mut rejected = rejected();
    if rejected.len() >= REMEMBERED_MAX {
        rejected.pop_front();
    }
    rejected.push_back((compressed_bytes, rejection));
}

/// Why the batch of an error was given up, given librdkafka's message; `None` if it could not be unpacked.
pub(super) fn rejection(message: &str) -> Option<Rejection> {
    let bytes = compressed_bytes(message)?;
    rejected().iter().rev().find(|(of, _)| *of == bytes).map(|(_, rejection)| *rejection)
}

/// The compressed size in "Decompression (codec 0x1) of message at 5 of 700 bytes failed: ...".
fn compressed_bytes(message: &str) -> Option<usize> {
    let (before, _) = message.strip_prefix("Decompression (codec ")?.split_once(" bytes failed")?;
    before.rsplit_once(" of ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejection_is_found_by_the_size_in_librdkafkas_message() {
        let message = |bytes: usize| {
            format!(
                "Decompression (codec 0x4) of message at 18 of {bytes} bytes failed: Local: Invalid compressed data"
            )
        };
        note(987_654_321, Rejection::NoRoom);
        note(987_654_321, Rejection::TooLarge);
        note(987_654_322, Rejection::NoRoom);
        assert_eq!(rejection(&message(987_654_321)), Some(Rejection::TooLarge), "the last one");
        assert_eq!(rejection(&message(987_654_322)), Some(Rejection::NoRoom));
        assert_eq!(rejection(&message(987_654_323)), None);
        assert_eq!(rejection("MessageSet at offset 5 (700 bytes) failed CRC32C check"), None);
        (0..2 * REMEMBERED_MAX).for_each(|bytes| note(bytes, Rejection::NoRoom));
        assert!(rejected().len() <= REMEMBERED_MAX);
    }
}
