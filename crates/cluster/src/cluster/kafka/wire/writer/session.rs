//! The producer's identity, and whether it may still be trusted.
//!
//! The identity is a producer id with an epoch. The next producer that opens the same transactional id gets a higher
//! epoch; brokers then refuse requests with a lower epoch.
//!
//! Invariants: sequences (the numbers of a producer's records in a partition) start at 0 in each epoch; a batch is sent
//! only in the epoch in which it was sealed (got its sequence).
//!
//! **Doubt.** With version 1 of transactions, all transactions of a producer share one epoch. A request that was
//! pending when its connection broke may still be executed later: a late request to end a transaction then ends the
//! next transaction. So after a connection broke while a transaction's request to a coordinator was pending, no further
//! transaction begins ([`Session::is_in_doubt`]); the next holder of the transactional id raises the epoch, and late
//! requests are then refused. A Produce request causes no doubt while its transaction is open: it is sent again until
//! it has a response, and brokers recognise a copy by its sequence. But a batch without a response that is not in the
//! log when its transaction is aborted does cause doubt. With version 2 (KIP-890) each end of a transaction raises the
//! epoch, so that no doubt arises.

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
    pub identity_number: u64,
    /// Whether a late copy of a request might be executed in a later transaction, or the epoch could not be raised.
    in_doubt: bool,
}

impl Session {
    /// A session without an identity.
    pub fn new() -> Self {
        Self { producer_id: -1, epoch: -1, is_v2: false, identity_number: 0, in_doubt: false }
    }

    /// Sets a new identity or epoch.
    pub fn set_identity(&mut self, producer_id: i64, epoch: i16) {
        self.producer_id = producer_id;
        self.epoch = epoch;
        self.identity_number += 1;
    }

    /// Whether no further transaction may begin. [`Mistake::DoubtIgnored`] is a deliberate mistake for a simulation.
    pub fn is_in_doubt(&self) -> bool {
        self.in_doubt && !is_on(Mistake::DoubtIgnored)
    }

    /// Notes that a transaction's request got no readable response, so that it may be executed late. With version 2
    /// that causes no doubt.
    pub fn note_lost_request(&mut self) {
        self.in_doubt |= !self.is_v2;
    }

    /// Notes that the epoch was not raised after an abort, or that this is unknown. The next holder of the
    /// transactional id raises it.
    pub fn note_failed_bump(&mut self) {
        self.in_doubt = true;
    }
}
