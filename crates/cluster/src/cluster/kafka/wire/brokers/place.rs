//! A connection to a broker for one use: open, or to be opened again.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use super::types::{Address, Link};
use crate::cluster::kafka::wire::connection::{Connection, Fault, Shared, Versions};

/// A connection idle for this long is closed, before brokers close it after ten minutes (`connections.max.idle.ms`).
const IDLE_MAX: Duration = Duration::from_mins(9);
/// Where any broker will do, another one is tried beside one that has not answered for this long.
const HEDGE: Duration = Duration::from_secs(1);

/// The state of a broker's connection for one use, whether it is open or not.
#[derive(Debug, Default)]
pub struct Place {
    pub open: Option<Open>,
    /// Failures in succession.
    pub failures: u32,
    pub retry_at: Option<Instant>,
    muted_until: Option<Instant>,
    /// Whether it is wanted but has to wait for `retry_at`.
    pub is_wanted: bool,
}

/// A connection that is open, or being opened.
#[derive(Debug)]
pub struct Open {
    pub link: Link,
    pub address: Address,
    /// When opening it began.
    pub since: Instant,
    pub connection: Connection,
}

impl Place {
    /// Whether requests can be sent.
    pub fn is_ready(&self, now: Instant) -> bool {
        self.muted_until.is_none_or(|until| until <= now)
            && self.open.as_ref().is_some_and(|open| open.connection.is_ready(now))
    }

    /// The versions that the broker offers.
    pub fn versions(&self) -> Option<&Versions> {
        self.open.as_ref().map(|open| open.connection.versions())
    }

    /// Makes it unready until `until`.
    pub fn mute(&mut self, until: Instant) {
        self.muted_until = self.muted_until.max(Some(until));
    }

    /// Whether it may be opened.
    pub fn is_free(&self, now: Instant) -> bool {
        self.open.is_none() && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Whether opening it began a short while ago, so that it may soon be ready.
    pub fn is_promising(&self, now: Instant) -> bool {
        self.open.as_ref().is_some_and(|open| !open.connection.was_ready() && open.since + HEDGE > now)
    }

    /// Whether the last attempt to open or use it failed, and it has not been ready since.
    pub fn is_failing(&self) -> bool {
        self.open.as_ref().is_none_or(|open| !open.connection.was_ready()) && self.failures > 0
    }

    /// The times at which a tick is needed; `is_sought` if any broker is wanted.
    pub fn times(&self, is_sought: bool) -> impl Iterator<Item = Instant> {
        let retry = self.retry_at.filter(|_| self.open.is_none() && (self.is_wanted || is_sought));
        let open = self.open.as_ref();
        let deadline = open.and_then(|open| open.connection.deadline());
        let idle = open.filter(|open| open.connection.unanswered() == 0);
        let idle = idle.map(|open| open.connection.used_at() + IDLE_MAX);
        let hedge = open.filter(|open| is_sought && !open.connection.was_ready()).map(|open| open.since + HEDGE);
        [retry, deadline, idle, hedge, self.muted_until].into_iter().flatten()
    }

    /// Where to read into.
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

    /// `bytes` of the output were written.
    pub fn written(&mut self, bytes: usize, shared: &mut Shared<'_>) {
        if let Some(open) = &mut self.open {
            open.connection.written(bytes, shared.pool);
        }
    }

    /// The socket is open.
    pub fn connected(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        self.open.as_mut().map_or(Ok(()), |open| open.connection.connected(shared))
    }

    /// Applies timeouts: returns the connection's link if it is over, and the fault if it failed.
    pub fn tick(&mut self, shared: &mut Shared<'_>) -> Option<(Link, Option<Fault>)> {
        if self.muted_until.is_some_and(|until| until <= shared.now) {
            self.muted_until = None;
        }
        let Open { link, connection, .. } = self.open.as_mut()?;
        if let Some(fault) = connection.expired(shared.now) {
            return Some((*link, Some(fault)));
        }
        if connection.unanswered() == 0 && connection.used_at() + IDLE_MAX <= shared.now {
            return Some((*link, None));
        }
        connection.renew(shared).err().map(|fault| (*link, Some(fault)))
    }
}
