//! A connection to a broker for one use: open, or to be opened again.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use super::types::{Address, Link};
use crate::cluster::kafka::wire::connection::{Connection, Fault, Shared, Versions};

/// A connection that was not used for so long is closed, before brokers do it after ten minutes
/// (`connections.max.idle.ms`).
const IDLE_MAX: Duration = Duration::from_mins(9);
/// Where any broker will do, another one is tried beside one that has not answered for so long.
const HEDGE: Duration = Duration::from_secs(1);

/// What is known of a connection to a broker for a use, whether it is open or not.
#[derive(Debug, Default)]
pub struct Place {
    pub open: Option<Open>,
    /// In succession.
    pub failures: u32,
    pub retry_at: Option<Instant>,
    muted_until: Option<Instant>,
    /// Whether it was asked for and could not be opened yet.
    pub is_wanted: bool,
}

/// A connection that is open, or being opened.
#[derive(Debug)]
pub struct Open {
    pub link: Link,
    pub address: Address,
    /// When it was begun.
    pub since: Instant,
    pub connection: Connection,
}

impl Place {
    /// Whether requests can be sent.
    pub fn is_ready(&self, now: Instant) -> bool {
        self.muted_until.is_none_or(|until| until <= now)
            && self.open.as_ref().is_some_and(|open| open.connection.is_ready(now))
    }

    /// What the broker offers.
    pub fn versions(&self) -> Option<&Versions> {
        self.open.as_ref().map(|open| open.connection.versions())
    }

    /// Not ready until then.
    pub fn mute(&mut self, until: Instant) {
        self.muted_until = self.muted_until.max(Some(until));
    }

    /// Whether it may be opened.
    pub fn is_free(&self, now: Instant) -> bool {
        self.open.is_none() && self.retry_at.is_none_or(|at| at <= now)
    }

    /// Whether it was begun a short while ago, and may soon be ready.
    pub fn is_promising(&self, now: Instant) -> bool {
        self.open.as_ref().is_some_and(|open| !open.connection.was_ready() && open.since + HEDGE > now)
    }

    /// Whether the last attempt to use it failed, and none is under way.
    pub fn is_failing(&self) -> bool {
        self.open.as_ref().is_none_or(|open| !open.connection.was_ready()) && self.failures > 0
    }

    /// When time alone changes something; `is_sought` if any broker is wanted.
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

    /// What is to be written.
    pub fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        if let Some(open) = &self.open {
            open.connection.output(slices);
        }
    }

    /// Whether there is any.
    pub fn has_output(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.connection.has_output())
    }

    /// So many bytes were written.
    pub fn written(&mut self, bytes: usize, shared: &mut Shared<'_>) {
        if let Some(open) = &mut self.open {
            open.connection.written(bytes, shared.pool);
        }
    }

    /// It is open.
    pub fn connected(&mut self, shared: &mut Shared<'_>) -> Result<(), Fault> {
        self.open.as_mut().map_or(Ok(()), |open| open.connection.connected(shared))
    }

    /// Looks at the clock: whether the connection is over, and why if it failed.
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
