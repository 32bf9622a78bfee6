//! The producer's identity, and whether it may still be trusted.
//!
//! Invariants: sequences start at 0 in each epoch; a batch sealed in one epoch is never sent in another.
//!
//! **Doubt.** With version 1 of transactions, all transactions of a producer share one epoch. A request that was under
//! way when its connection broke may still be executed later: a late request to end a transaction then ends the next
//! one. So after a connection broke with a transaction's request to a coordinator under way, no further transaction
//! begins ([`Session::is_doubtful`]); the next holder of the id raises its epoch, and all late copies are then refused.
//! A Produce request causes no doubt while its transaction is open: it is sent again until it is answered, and brokers
//! recognise a copy by its sequence. A batch that got no answer and is not in the log when its transaction is aborted
//! does. With version 2 (KIP-890) each end of a transaction raises the epoch, so that there is nothing to doubt.

use super::super::mistakes::{Mistake, is_on};

/// The producer's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// Its id; -1 before it has one.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// Whether the brokers support version 2 of transactions, and the settings ask for it.
    pub is_v2: bool,
    /// Rises with each new identity or epoch.
    pub stamp: u64,
    /// Whether a late copy of a request might be executed in a later transaction.
    pub is_doubted: bool,
}

impl Session {
    /// No identity yet.
    pub fn new() -> Self {
        Self { producer_id: -1, epoch: -1, is_v2: false, stamp: 0, is_doubted: false }
    }

    /// Takes a new identity.
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
