//! Fetch sessions of one broker (KIP-227; `FetchManager`, `FetchSession`, `CachedPartition`).

use std::collections::BTreeMap;

use super::super::kafka::Partition;
use super::fetching::{Asked, Found};

pub const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
pub const INVALID_FETCH_SESSION_EPOCH: i16 = 71;

/// The sessions of a broker.
#[derive(Debug, Default)]
pub struct Sessions {
    next_id: i32,
    sessions: BTreeMap<i32, Session>,
    /// How many there may be; none fits beyond that.
    pub max: usize,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    partitions: Vec<Cached>,
}

#[derive(Debug)]
struct Cached {
    asked: Asked,
    /// What the client was told last, -1 if it must be told again.
    high: i64,
    start: i64,
}

/// How a request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    /// Without a session.
    Sessionless,
    /// All partitions, with a new session.
    Full,
    /// What has changed in this session, which then expects this epoch.
    Incremental { id: i32, expects: i32 },
    /// The session is not what the client believes.
    Refused { code: i16, id: i32 },
}

fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

impl Sessions {
    /// Begins a request: its context, and what is to be read.
    pub fn begin(
        &mut self,
        (id, epoch): (i32, i32),
        asked: Vec<Asked>,
        forgotten: &[Partition],
    ) -> (Context, Vec<Asked>) {
        if epoch == 0 || epoch == -1 {
            self.sessions.remove(&id);
            return (if epoch == 0 { Context::Full } else { Context::Sessionless }, asked);
        }
        let Some(session) = self.sessions.get_mut(&id) else {
            return (Context::Refused { code: FETCH_SESSION_ID_NOT_FOUND, id: 0 }, Vec::new());
        };
        if session.epoch != epoch {
            return (Context::Refused { code: INVALID_FETCH_SESSION_EPOCH, id: 0 }, Vec::new());
        }
        for new in asked {
            match session.partitions.iter_mut().find(|cached| cached.asked.partition == new.partition) {
                Some(cached) => cached.asked = new,
                None => session.partitions.push(Cached { asked: new, high: -1, start: -1 }),
            }
        }
        session.partitions.retain(|cached| !forgotten.contains(&cached.asked.partition));
        if session.partitions.is_empty() {
            self.sessions.remove(&id);
            return (Context::Sessionless, Vec::new());
        }
        session.epoch = next_epoch(epoch);
        let all = session.partitions.iter().map(|cached| cached.asked.clone()).collect();
        (Context::Incremental { id, expects: session.epoch }, all)
    }

    /// Ends a request: what of `found` is told, with the session's id and an error code.
    pub fn end(&mut self, context: &Context, asked: &[Asked], found: Vec<Found>) -> (i16, i32, Vec<Found>) {
        match context {
            Context::Refused { code, id } => (*code, *id, Vec::new()),
            Context::Sessionless => (0, 0, found),
            Context::Full => {
                if self.sessions.len() >= self.max || found.is_empty() {
                    return (0, 0, found);
                }
                self.next_id += 1;
                let both = asked.iter().zip(&found);
                let cached = |(asked, found): (&Asked, &Found)| Cached {
                    asked: asked.clone(),
                    high: if found.code.is_none() { found.high } else { -1 },
                    start: found.start,
                };
                let session = Session { epoch: next_epoch(0), partitions: both.map(cached).collect() };
                self.sessions.insert(self.next_id, session);
                (0, self.next_id, found)
            }
            Context::Incremental { id, expects } => {
                let Some(session) = self.sessions.get_mut(id).filter(|session| session.epoch == *expects) else {
                    return (INVALID_FETCH_SESSION_EPOCH, *id, Vec::new());
                };
                (0, *id, session.changed(found))
            }
        }
    }

    /// Forgets all sessions, as a broker that restarts does, or one with too many (`FetchSessionCache.tryEvict`).
    pub fn clear(&mut self) {
        self.sessions.clear();
    }
}

impl Session {
    /// `CachedPartition.maybeUpdateResponseData`: a new last stable offset alone is no reason to tell. Partitions with
    /// records move to the end.
    fn changed(&mut self, found: Vec<Found>) -> Vec<Found> {
        let mut told = Vec::new();
        let mut moved = Vec::new();
        for one in found {
            let same = |cached: &Cached| cached.asked.partition == one.partition;
            let Some(index) = self.partitions.iter().position(same) else { continue };
            let cached = &mut self.partitions[index];
            let has_records = !one.bytes.is_empty();
            let is_told = has_records || cached.high != one.high || cached.start != one.start || one.code.is_some();
            (cached.high, cached.start) = (if one.code.is_none() { one.high } else { -1 }, one.start);
            if has_records {
                moved.push(self.partitions.remove(index));
            }
            if is_told {
                told.push(one);
            }
        }
        self.partitions.extend(moved);
        told
    }
}
