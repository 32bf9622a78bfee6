//! Passing over aborted transactions, as a reader at read_committed has to (KIP-98).
//!
//! A broker sends a partition's batches up to the last stable offset, those of aborted transactions included, and
//! beside them which transactions were aborted: the producer and the first offset of each. From that offset on its
//! producer's transactional batches are passed over, up to its marker.

use std::collections::HashSet;

use super::{Batch, Control, Error};

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Whose it was.
    pub producer_id: i64,
    /// Where it begins, possibly before what was fetched.
    pub first_offset: i64,
}

/// What to pass over in one partition's part of one response: [`Aborted::begin`], then [`Aborted::admits`] for each
/// batch in order.
#[derive(Clone, Debug, Default)]
pub struct Aborted {
    /// Those that begin further on, the nearest last.
    ahead: Vec<AbortedTransaction>,
    /// Whose transaction is being passed over.
    producers: HashSet<i64>,
}

impl Aborted {
    /// Begins with the next response, whose list this is.
    pub fn begin(&mut self, list: impl IntoIterator<Item = AbortedTransaction>) {
        self.producers.clear();
        self.ahead.clear();
        self.ahead.extend(list);
        self.ahead.sort_unstable_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
    }

    /// Whether the records of the next batch, whose checksum is right, are for readers: those of aborted transactions
    /// and of control batches are not.
    pub fn admits(&mut self, batch: &Batch<'_>) -> Result<bool, Error> {
        while let Some(next) = self.ahead.pop_if(|next| next.first_offset <= batch.last_offset) {
            self.producers.insert(next.producer_id);
        }
        if batch.is_control() {
            if !self.producers.is_empty() && batch.control()? == Some(Control::Abort) {
                self.producers.remove(&batch.producer_id);
            }
            return Ok(false);
        }
        Ok(!batch.is_transactional() || self.producers.is_empty() || !self.producers.contains(&batch.producer_id))
    }
}
