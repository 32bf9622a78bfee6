//! Skips aborted transactions, as a reader with the isolation level read_committed has to (KIP-98).
//!
//! A broker sends a partition's batches up to the last stable offset, including those of aborted transactions, and with
//! them a list of the aborted transactions: the producer and the first offset of each. From that offset on, the
//! producer's transactional batches are skipped, up to the marker of the abort: a control batch, which brokers write.

use std::collections::HashSet;

use super::{Batch, Control, Error};

/// A transaction that was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// The id of its producer.
    pub producer_id: i64,
    /// The offset at which it begins, possibly before the fetched batches.
    pub first_offset: i64,
}

/// Selects the batches to skip in one partition's part of one response: call [`AbortedFilter::begin`] with its list,
/// then [`AbortedFilter::admits`] for each of its batches in order.
#[derive(Clone, Debug, Default)]
pub struct AbortedFilter {
    /// Transactions that begin after the current batch, the nearest last.
    ahead: Vec<AbortedTransaction>,
    /// Producers whose transactions are being skipped.
    producers: HashSet<i64>,
}

impl AbortedFilter {
    /// Starts a partition's part of a response; `list` contains its aborted transactions. Forgets the former part.
    pub fn begin(&mut self, list: impl IntoIterator<Item = AbortedTransaction>) {
        self.producers.clear();
        self.ahead.clear();
        self.ahead.extend(list);
        self.ahead.sort_unstable_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
    }

    /// Whether readers receive the records of the next batch: not those of aborted transactions or of control batches.
    /// The batch's fields are trusted, so its checksum should have been verified.
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
