//! Verbs of members:
//!
//! - `member M GROUP TOPIC...`, `leave M`
//! - `share M... => COUNT...` polls them, accepting all events, until they hold this many partitions
//! - `await M => assigned COUNT | revoked COUNT | lost COUNT` polls it until there is an event; `accept M` accepts it
//! - `proof M NAME` keeps the current proof of its membership
//! - `start M PARTITION OFFSET`, `pause M PARTITION`
//! - `poll M => OFFSET:VALUE...` what it read since the last time; `quiet M => ...` the same, watched for half a
//!   second
//! - `fails M => KIND` polls it until it fails; `position M PARTITION => OFFSET`, `end M PARTITION => OFFSET`

use std::collections::BTreeSet;
use std::sync::Arc;

use ratchet::cluster::{Cluster, Error, ErrorKind, GroupEvent, Member as _, RecordBatch as _};
use ratchet::record::TopicPartition;

use super::{Play, QUIET_MS, STEP, kind, seen, shown};
use crate::differential::ground::Ground;

/// Maximum number of records in a poll.
const RECORDS: usize = 1000;

/// A member, and what was seen of it.
pub struct Reading<C: Cluster> {
    pub member: C::Member,
    held: BTreeSet<TopicPartition>,
    event: Option<GroupEvent>,
    seen: Vec<String>,
}

impl<C: Cluster> Reading<C> {
    /// Polls once; keeps the result.
    fn poll(&mut self) -> Result<(), Error> {
        let mut batch = C::Batch::default();
        self.event = self.member.poll(&mut batch, RECORDS, STEP)?;
        for record in (0..batch.len()).map(|index| batch.record(index)) {
            let value = record.value.map(String::from_utf8_lossy);
            self.seen.push(shown(record.offset, value.as_deref()));
        }
        Ok(())
    }

    /// Accepts the last event.
    fn accept(&mut self) -> Result<(), Error> {
        match self.event.take() {
            Some(GroupEvent::Assigned(partitions)) => {
                self.member.accept_assigned(&partitions)?;
                self.held.extend(partitions);
            }
            Some(GroupEvent::Revoked(partitions) | GroupEvent::Lost(partitions)) => {
                self.member.accept_revoked(&partitions)?;
                self.held.retain(|held| !partitions.contains(held));
            }
            None => {}
        }
        Ok(())
    }

    fn event_text(&self) -> String {
        match &self.event {
            None => "nothing".to_owned(),
            Some(GroupEvent::Assigned(partitions)) => format!("assigned {}", partitions.len()),
            Some(GroupEvent::Revoked(partitions)) => format!("revoked {}", partitions.len()),
            Some(GroupEvent::Lost(partitions)) => format!("lost {}", partitions.len()),
        }
    }
}

/// An offset, which may not be known yet, as text.
fn offset_text(offset: Option<i64>) -> String {
    offset.map_or("none".to_owned(), |offset| offset.to_string())
}

impl<C: Cluster, G: Ground> Play<C, G> {
    /// Runs a member's verb; `None` if it is not one.
    pub(super) fn consume(&mut self, words: &[&str], expected: &str) -> Option<String> {
        Some(match words {
            ["member", name, group, topics @ ..] => self.join(name, group, topics),
            ["leave", name] => seen(self.members.remove(*name).expect("a member").member.leave()),
            ["share", names @ ..] => self.look(expected, |play| play.share(names)),
            ["await", name] => self.look(expected, |play| play.ask(name)),
            ["accept", name] => seen(self.reading(name).accept()),
            ["proof", name, proof] => {
                let kept = self.reading(name).member.metadata();
                seen(kept.map(|kept| self.proofs.insert((*proof).to_owned(), kept)))
            }
            ["start", name, of, offset] => {
                let of = self.at(of);
                seen(self.reading(name).member.start(&of, offset.parse().expect("an offset")))
            }
            ["pause", name, of] => {
                let of = self.at(of);
                seen(self.reading(name).member.pause(&of))
            }
            ["poll", name] => {
                let seen = self.look(expected, |play| play.read(name));
                self.reading(name).seen.clear();
                seen
            }
            ["quiet", name] => self.watch(name),
            ["fails", name] => self.look(expected, |play| match play.reading(name).poll() {
                Ok(()) => "ok".to_owned(),
                Err(error) => kind(&error),
            }),
            ["position", name, of] => {
                let of = self.at(of);
                self.look(expected, |play| {
                    let _ = play.reading(name).poll();
                    offset_text(play.reading(name).member.position(&of))
                })
            }
            ["end", name, of] => {
                let of = self.at(of);
                self.look(expected, |play| {
                    let _ = play.reading(name).poll();
                    offset_text(play.reading(name).member.end(&of))
                })
            }
            _ => return None,
        })
    }

    pub(super) fn reading(&mut self, name: &str) -> &mut Reading<C> {
        self.members.get_mut(name).unwrap_or_else(|| panic!("there is no member {name:?}"))
    }

    fn join(&mut self, name: &str, group: &str, topics: &[&str]) -> String {
        let topics: Vec<Arc<str>> = topics.iter().map(|topic| self.ground.name(topic).into()).collect();
        let joined = self.cluster.member(&self.ground.name(group), &topics).map(|member| {
            let reading = Reading { member, held: BTreeSet::new(), event: None, seen: Vec::new() };
            self.members.insert(name.to_owned(), reading);
        });
        seen(joined)
    }

    /// Polls members and accepts their events; returns how many partitions each holds.
    fn share(&mut self, names: &[&str]) -> String {
        let mut counts = Vec::new();
        for name in names {
            let reading = self.reading(name);
            if let Err(error) = reading.poll().and_then(|()| reading.accept()) {
                return kind(&error);
            }
            counts.push(reading.held.len().to_string());
        }
        counts.join(" ")
    }

    /// Polls a member once, without accepting.
    fn ask(&mut self, name: &str) -> String {
        let reading = self.reading(name);
        match reading.poll() {
            Ok(()) => reading.event_text(),
            Err(error) => kind(&error),
        }
    }

    fn read(&mut self, name: &str) -> String {
        let reading = self.reading(name);
        match reading.poll() {
            Ok(()) => reading.seen.join(" "),
            Err(error) => kind(&error),
        }
    }

    fn watch(&mut self, name: &str) -> String {
        let until = self.ground.now_ms() + QUIET_MS;
        while self.ground.now_ms() < until {
            // Errors that go away by themselves are reported once.
            if let Err(error) = self.reading(name).poll()
                && error.kind != ErrorKind::Retry
            {
                return kind(&error);
            }
        }
        let seen = std::mem::take(&mut self.reading(name).seen);
        if seen.is_empty() { "nothing".to_owned() } else { seen.join(" ") }
    }
}
