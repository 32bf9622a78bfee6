//! A redo that is being played.

use crate::cluster::{self, Cluster, ErrorKind};
use crate::engine::failure::Cause;
use crate::engine::transact::Transactor;
use crate::format::Token;
use crate::observe::LaneMetrics;

/// A redo being played.
pub struct RedoReplay<C: Cluster> {
    pub(super) transactor: Transactor<C>,
    pub(super) redo: Vec<u8>,
    /// The transaction whose records it holds.
    pub(super) token: Token,
    /// Whether its records have been handed to the producer.
    pub(super) sent: bool,
}

impl<C: Cluster> RedoReplay<C> {
    /// Plays this `redo` of the transaction `token` with a transactor of its own.
    pub fn new(transactor: Transactor<C>, redo: Vec<u8>, token: Token) -> Self {
        Self { transactor, redo, token, sent: false }
    }

    /// Aborts the open transaction, so that the next owner need not wait for its timeout.
    pub fn abandon(&mut self, cluster: &C, metrics: &LaneMetrics) {
        if self.transactor.is_open() {
            let cause = Cause::Cluster(cluster::Error::new(ErrorKind::Abort, "the task is released"));
            self.transactor.abort(cluster, &cause, metrics);
        }
    }
}
