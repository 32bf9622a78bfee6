//! A channel to a broker for one [`Purpose`](super::types::Purpose) (fetching, producing, all else): its connection if
//! it is open, or the time at which it may be opened again.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use super::types::{Address, Link};
use crate::cluster::kafka::wire::connection::{Connection, Fault, Shared, Versions};

/// A connection that is idle for this long is closed, before brokers close it after ten minutes
/// (`connections.max.idle.ms`).
const IDLE_MAX: Duration = Duration::from_mins(9);
/// While any broker would do, another broker is attempted once a connection has not become ready for this long.
const HEDGE_DELAY: Duration = Duration::from_secs(1);

/// A channel to a broker for one purpose.
#[derive(Debug, Default)]
pub struct Channel {
    /// The connection, if it is open or being opened.
    pub open: Option<OpenConnection>,
    /// How many connections have failed in succession.
    pub failures: u32,
    /// Before this time no connection is opened, after a failure.
    pub retry_at: Option<Instant>,
    /// Until when no request is sent, because the broker throttles this client (KIP-219).
    muted_until: Option<Instant>,
    /// Whether the connection is wanted but has to wait until `retry_at`.
    pub is_wanted: bool,
}

/// A connection that is open, or being opened.
#[derive(Debug)]
pub struct OpenConnection {
    /// Its number.
    pub link: Link,
    pub address: Address,
    /// When the attempt to open it started.
    pub started_at: Instant,
    pub connection: Connection,
}

impl Channel {
    /// Whether requests can be sent.
    pub fn is_ready(&self, now: Instant) -> bool {
        self.muted_until.is_none_or(|until| until <= now)
            && self.open.as_ref().is_some_and(|open| open.connection.is_ready(now))
    }

    /// The versions that the broker offers.
    pub fn versions(&self) -> Option<&Versions> {
        self.open.as_ref().map(|open| open.connection.versions())
    }

    /// Makes the channel unready until `until`, or longer if it was muted for longer.
    pub fn mute(&mut self, until: Instant) {
        self.muted_until = self.muted_until.max(Some(until));
    }

    /// Whether no connection is open and one may be opened now.
    pub fn can_open(&self, now: Instant) -> bool {
        self.open.is_none() && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Whether the connection's opening started a short while ago, so that it may soon be ready.
    pub fn is_opening(&self, now: Instant) -> bool {
        self.open.as_ref().is_some_and(|open| !open.connection.was_ready() && open.started_at + HEDGE_DELAY > now)
    }

    /// Whether a connection was lost or could not be opened, and no open connection has become ready since.
    pub fn is_failing(&self) -> bool {
        self.open.as_ref().is_none_or(|open| !open.connection.was_ready()) && self.failures > 0
    }

    /// The times at which a tick is needed. `is_candidate`: whether any broker would do, so that this one may be
    /// attempted.
    pub fn tick_times(&self, is_candidate: bool) -> impl Iterator<Item = Instant> {
        let retry = self.retry_at.filter(|_| self.open.is_none() && (self.is_wanted || is_candidate));
        let open = self.open.as_ref();
        let deadline = open.and_then(|open| open.connection.deadline());
        let idle = open.filter(|open| open.connection.pending_count() == 0);
        let idle = idle.map(|open| open.connection.used_at() + IDLE_MAX);
        let hedge =
            open.filter(|open| is_candidate && !open.connection.was_ready()).map(|open| open.started_at + HEDGE_DELAY);
        [retry, deadline, idle, hedge, self.muted_until].into_iter().flatten()
    }

    /// The buffer to read into.
    pub fn input(&mut self) -> Option<&mut [u8]> {
        self.open.as_mut().map(|open| open.connection.input())
    }

    /// Appends the pending output to `slices`.
    pub fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        if let Some(open) = &self.open {
            open.connection.output(slices);
        }
    }

    /// Whether there is pending output.
    pub fn has_output(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.connection.has_output())
    }

    /// Notes that `bytes` of the output were written.
    pub fn written(&mut self, bytes: usize, shared: &mut Shared<'_>) {
        if let Some(open) = &mut self.open {
            open.connection.written(bytes, shared.pool);
        }
    }

    /// Notes that the socket is open.
    pub fn connected(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        self.open.as_mut().map_or(Ok(()), |open| open.connection.connected(shared))
    }

    /// Applies timeouts, and logs in if that is due. If the connection has to end, returns its link, with the fault if
    /// it failed, and without one if it was idle.
    pub fn tick(&mut self, shared: &mut Shared<'_>) -> Option<(Link, Option<Fault>)> {
        if self.muted_until.is_some_and(|until| until <= shared.now) {
            self.muted_until = None;
        }
        let OpenConnection { link, connection, .. } = self.open.as_mut()?;
        if let Some(fault) = connection.timeout_fault(shared.now) {
            return Some((*link, Some(fault)));
        }
        if connection.pending_count() == 0 && connection.used_at() + IDLE_MAX <= shared.now {
            return Some((*link, None));
        }
        connection.log_in_if_due(shared).err().map(|fault| (*link, Some(fault)))
    }
}
