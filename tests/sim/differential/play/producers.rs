//! Verbs of producers:
//!
//! - `producer P ID`, `brief P ID` (its transactions time out after 3 s), `drop P`
//! - `begin P`, `send P PARTITION RECORD...`, `large P PARTITION BYTES`, `abort P`
//! - `flush P => OFFSET...` what was delivered since the last time; `=> refused`, `=> failed` if something was not
//! - `commit P M OFFSET...` with a member's current proof, or with a kept one: `commit P @PROOF OFFSET...`
//! - `fence ID` ends any transaction open under it
//! - `foreign F begin | write PARTITION RECORD | offset GROUP OFFSET | commit | abort`: another client's transaction

use ratchet::cluster::{Cluster, CommittedOffset, Error, Member as _, Message, OffsetCommit, Producer as _, Ticket};
use ratchet::record::{Headers, TopicPartition};

use super::{Play, seen};
use crate::differential::ground::Ground;
use crate::differential::script;

/// A producer, and what was seen of it.
pub struct Writing<C: Cluster> {
    producer: C::Producer,
    delivered: Vec<(u64, i64)>,
    sent: u64,
}

impl<C: Cluster> Writing<C> {
    fn send(&mut self, to: &TopicPartition, key: Option<&str>, value: Option<&str>) -> Result<(), Error> {
        let message = Message {
            topic: &to.topic,
            partition: to.partition,
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            headers: Headers::default(),
            timestamp: None,
        };
        self.sent += 1;
        self.producer.send(Ticket { number: self.sent, report: true }, &message)
    }

    /// What became of the records sent; "in flight" while any is.
    fn delivered(&mut self) -> String {
        if self.producer.in_flight() > 0 {
            return "in flight".to_owned();
        }
        let failures = self.producer.take_failures();
        if let Some(failure) = failures.first() {
            return String::from(if failure.refused { "refused" } else { "failed" });
        }
        self.delivered.extend(self.producer.take_delivered());
        self.delivered.sort_unstable();
        let offsets: Vec<String> = self.delivered.iter().map(|(_, offset)| offset.to_string()).collect();
        offsets.join(" ")
    }
}

impl<C: Cluster, G: Ground> Play<C, G> {
    /// Runs a producer's verb; `None` if it is not one.
    pub(super) fn produce(&mut self, words: &[&str], expected: &str) -> Option<String> {
        Some(match words {
            ["producer", name, id] => self.open(name, self.cluster.producer(&self.ground.name(id))),
            ["brief", name, id] => self.open(name, self.brief.producer(&self.ground.name(id))),
            ["drop", name] => {
                self.producers.remove(*name).expect("a producer");
                "ok".to_owned()
            }
            ["begin", name] => seen(self.writing(name).producer.begin()),
            ["abort", name] => seen(self.writing(name).producer.abort()),
            ["send", name, to, records @ ..] => {
                let to = self.at(to);
                let writing = self.writing(name);
                seen(records.iter().try_for_each(|word| {
                    let (key, value) = script::record(word);
                    writing.send(&to, key, value)
                }))
            }
            ["large", name, to, bytes] => {
                let (to, value) = (self.at(to), "x".repeat(bytes.parse().expect("how many bytes")));
                seen(self.writing(name).send(&to, Some("large"), Some(&value)))
            }
            ["flush", name] => {
                let seen = self.look(expected, |play| play.writing(name).delivered());
                self.writing(name).delivered.clear();
                seen
            }
            ["commit", name, proof, offsets @ ..] => self.commit(name, proof, offsets),
            ["fence", id] => {
                self.cluster.fence(&self.ground.name(id));
                "ok".to_owned()
            }
            ["foreign", name, what @ ..] => self.foreign(name, what),
            _ => return None,
        })
    }

    fn open(&mut self, name: &str, opened: Result<C::Producer, Error>) -> String {
        let opened = opened.map(|producer| {
            self.producers.insert(name.to_owned(), Writing { producer, delivered: Vec::new(), sent: 0 });
        });
        seen(opened)
    }

    fn writing(&mut self, name: &str) -> &mut Writing<C> {
        self.producers.get_mut(name).unwrap_or_else(|| panic!("there is no producer {name:?}"))
    }

    fn commit(&mut self, name: &str, proof: &str, offsets: &[&str]) -> String {
        let of = |word: &&str| {
            let ((topic, number), offset, text) = script::offset(word);
            let partition = TopicPartition::new(self.ground.name(topic), number);
            OffsetCommit { partition, committed: CommittedOffset { offset, metadata: text.to_owned() } }
        };
        let offsets: Vec<OffsetCommit> = offsets.iter().map(of).collect();
        let proof = match proof.strip_prefix('@') {
            Some(kept) => Ok(self.proofs.remove(kept).expect("a proof that was kept")),
            None => self.reading(proof).member.metadata(),
        };
        match proof {
            Ok(proof) => {
                let committed = self.writing(name).producer.commit(&offsets, proof);
                seen(committed)
            }
            Err(error) => format!("no proof: {}", super::kind(&error)),
        }
    }

    fn foreign(&mut self, name: &str, what: &[&str]) -> String {
        let id = self.ground.name(name);
        match what {
            ["begin"] => self.ground.foreign_begin(&id),
            ["write", to, record] => {
                let to = self.at(to);
                self.ground.foreign_write(&id, &to, script::record(record));
            }
            ["offset", group, offset] => {
                let ((topic, number), offset, text) = script::offset(offset);
                let of = TopicPartition::new(self.ground.name(topic), number);
                let group = self.ground.name(group);
                self.ground.foreign_offset(&id, &group, &of, offset, text);
            }
            ["commit"] => self.ground.foreign_end(&id, true),
            ["abort"] => self.ground.foreign_end(&id, false),
            _ => panic!("{what:?} is not a foreign call"),
        }
        "ok".to_owned()
    }
}
