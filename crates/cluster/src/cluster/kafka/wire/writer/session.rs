//! Who the writer is to the brokers, and whether it may still be trusted.
//!
//! Invariants: a sequence counts from 0 under each epoch; what was built under one epoch is never sent under another.
//!
//! **Doubt.** With version 1 of transactions all transactions of a producer have one epoch. A request that was on a
//! connection when it broke may be executed later, as a copy that nobody waits for any more: one to end a transaction
//! then ends the next one. So after a connection broke with such a request under way, no further transaction begins
//! ([`Session::is_doubtful`]); the next holder of the id raises its epoch, and with that all late copies are refused.
//! A Produce request is not meant: it is sent again until it is answered, and a copy of it is known by its sequence;
//! what was not answered when its transaction was aborted raises the epoch too. With version 2 (KIP-890) each end of a
//! transaction raises the epoch, so that there is nothing to doubt.

use super::super::mistakes::{Mistake, is_on};

/// The producer's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// Its id; -1 before it has one.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Whether the brokers have version 2 of transactions, and it is wanted.
    pub is_v2: bool,
    /// Rises with each epoch that is learnt.
    pub stamp: u64,
    /// Whether a late copy of a request might be executed in a later transaction.
    pub is_doubted: bool,
}

impl Session {
    /// Nobody yet.
    pub fn new() -> Self {
        Self { producer_id: -1, epoch: -1, is_v2: false, stamp: 0, is_doubted: false }
    }

    /// The identity from now on.
    pub fn becomes(&mut self, producer_id: i64, epoch: i16) {
        self.producer_id = producer_id;
        self.epoch = epoch;
        self.stamp += 1;
    }

    /// Whether no further transaction may begin.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubted && !is_on(Mistake::DoubtIgnored)
    }

    /// A connection broke with a request of a transaction under way.
    pub fn broke(&mut self) {
        self.is_doubted |= !self.is_v2;
    }
}
