//! Verbs of topics, groups and takeovers:
//!
//! - `topic NAME COUNT SETTING=VALUE...`, `delete-topic NAME`, `grow NAME COUNT`, `describe NAME => COUNT POLICY`
//! - `keep-id NAME`, `same-id NAME => same | other`: compares the topic's id then and now
//! - `write PARTITION RECORD...` outside any transaction
//! - `see PARTITION [from OFFSET] => OFFSET:VALUE... | POSITION` by a read_committed reader
//! - `raw PARTITION => OFFSET:VALUE...` by a read_uncommitted one; `ends PARTITION => FIRST STABLE END`
//! - `delete-records PARTITION OFFSET`, `compact PARTITION OFFSET`
//! - `committed GROUP PARTITION => OFFSET/TEXT | none`, `set GROUP OFFSET`, `delete-group GROUP => ok | no`
//! - `settle S GROUP INPUT CHANGELOG` starts a takeover's queries; `open S` watches that they do not end
//! - `settled S => OFFSET/TEXT FIRST..END` the committed offset and the input's ends

use ratchet::cluster::{
    Cluster, CommittedOffset, Error, Inquiry, NewTopic, Reader as _, RecordBatch as _, Settling as _,
};
use ratchet::record::TopicPartition;

use super::{Play, QUIET_MS, STEP, kind, seen, shown};
use crate::differential::ground::{Ground, Pair};
use crate::differential::script;

const ASK: std::time::Duration = std::time::Duration::from_secs(5);

fn committed(found: Option<&CommittedOffset>) -> String {
    found.map_or("none".to_owned(), |found| format!("{}/{}", found.offset, found.metadata))
}

fn done(is_done: bool) -> String {
    String::from(if is_done { "ok" } else { "no" })
}

impl<C: Cluster, G: Ground> Play<C, G> {
    /// Runs a verb of topics or groups; `None` if it is not one.
    pub(super) fn manage(&mut self, words: &[&str], expected: &str) -> Option<String> {
        Some(match words {
            ["topic", name, count, settings @ ..] => seen(self.create(name, count, settings)),
            ["describe", name] => self.look(expected, |play| play.describe(name)),
            ["keep-id", name] => {
                let id = self.id(name);
                self.ids.insert((*name).to_owned(), id);
                "ok".to_owned()
            }
            ["same-id", name] => {
                let is_same = self.ids.get(*name) == Some(&self.id(name));
                String::from(if is_same { "same" } else { "other" })
            }
            ["see", of, rest @ ..] => {
                let of = self.at(of);
                let from = match rest {
                    ["from", offset] => offset.parse().expect("an offset"),
                    _ => self.ground.bounds(&of)[0],
                };
                self.see(&of, from, expected)
            }
            ["raw", of] => {
                let of = self.at(of);
                self.look(expected, |play| {
                    let read = play.ground.read_uncommitted(&of);
                    read.iter().map(|(offset, value)| shown(*offset, value.as_deref())).collect::<Vec<_>>().join(" ")
                })
            }
            ["ends", of] => {
                let of = self.at(of);
                self.look(expected, |play| play.ground.bounds(&of).map(|bound| bound.to_string()).join(" "))
            }
            ["committed", group, of] => {
                let (group, of) = (self.ground.name(group), self.at(of));
                self.look(expected, |play| match play.cluster.committed(&group, std::slice::from_ref(&of), ASK) {
                    Ok(found) => committed(found[0].as_ref()),
                    Err(error) => kind(&error),
                })
            }
            _ => return self.administer(words, expected).or_else(|| self.take_over(words, expected)),
        })
    }

    fn administer(&mut self, words: &[&str], expected: &str) -> Option<String> {
        match words {
            ["write", to, records @ ..] => {
                let records: Vec<Pair<'_>> = records.iter().map(|word| script::record(word)).collect();
                self.ground.write(&self.at(to), &records);
            }
            ["delete-topic", name] => self.ground.delete_topic(&self.ground.name(name)),
            ["grow", name, count] => self.ground.grow(&self.ground.name(name), count.parse().expect("a count")),
            ["delete-records", of, upto] => {
                self.ground.delete_records(&self.at(of), upto.parse().expect("an offset"));
            }
            ["compact", of, upto] => self.ground.compact(&self.at(of), upto.parse().expect("an offset")),
            ["delete-group", group] => {
                let group = self.ground.name(group);
                return Some(self.look(expected, |play| done(play.ground.delete_group(&group))));
            }
            ["set", group, offset] => {
                let ((topic, number), offset, text) = script::offset(offset);
                let of = TopicPartition::new(self.ground.name(topic), number);
                let group = self.ground.name(group);
                return Some(self.look(expected, |play| done(play.ground.set_offset(&group, &of, offset, text))));
            }
            _ => return None,
        }
        Some("ok".to_owned())
    }

    fn take_over(&mut self, words: &[&str], expected: &str) -> Option<String> {
        Some(match words {
            ["settle", name, group, input, changelog] => {
                let (group, input, changelog) = (self.ground.name(group), self.at(input), self.at(changelog));
                let settling = self.cluster.settle(Inquiry::of(&group, &input, &changelog));
                self.settlings.insert((*name).to_owned(), settling);
                "ok".to_owned()
            }
            ["open", name] => {
                let until = self.ground.now_ms() + QUIET_MS;
                let mut is_settled = false;
                while self.ground.now_ms() < until && !is_settled {
                    is_settled = self.settlings.get_mut(*name).expect("one that was started").poll().is_some();
                    self.ground.pause(20);
                }
                done(!is_settled)
            }
            ["settled", name] => {
                let mut settling = self.settlings.remove(*name).expect("one that was started");
                let mut outcome = String::new();
                self.look(expected, |_| {
                    if outcome.is_empty()
                        && let Some(settled) = settling.poll()
                    {
                        outcome = match settled {
                            Ok(found) => {
                                let of = committed(found.committed.as_ref());
                                format!("{of} {}..{}", found.input_start, found.input_end)
                            }
                            Err(error) => kind(&error),
                        };
                    }
                    outcome.clone()
                })
            }
            _ => return None,
        })
    }

    fn create(&self, name: &str, count: &str, settings: &[&str]) -> Result<(), Error> {
        let setting = |word: &&'static str| word.split_once('=').map(|(name, value)| (name, value.to_owned()));
        let known = SETTINGS.iter().filter(|(short, _)| settings.contains(short));
        let settings: Vec<(&str, String)> = known.flat_map(|(_, long)| long.iter().filter_map(setting)).collect();
        let (name, partition_count) = (self.ground.name(name), count.parse().expect("a count"));
        self.cluster.create_topic(&NewTopic {
            name: &name,
            partition_count,
            replication_factor: 1,
            settings: &settings,
        })
    }

    fn describe(&mut self, name: &str) -> String {
        match self.cluster.describe_topic(&self.ground.name(name)) {
            Ok(Some(topic)) => format!("{} {}", topic.partition_count, topic.cleanup_policy),
            Ok(None) => "none".to_owned(),
            Err(error) => kind(&error),
        }
    }

    fn id(&self, name: &str) -> ratchet::cluster::TopicId {
        let found = self.cluster.describe_topic(&self.ground.name(name)).expect("the cluster responds");
        found.expect("the topic exists").id
    }

    /// Reads until the records and the position are as expected; starts again if nothing more comes, as the cleaner
    /// may have run.
    fn see(&mut self, of: &TopicPartition, from: i64, expected: &str) -> String {
        let (mut reader, mut read, mut empty) = (None, Vec::new(), 0);
        self.look(expected, |play| {
            let open = match reader.take() {
                Some(open) if empty < EMPTY_MAX => Ok(open),
                _ => {
                    (read, empty) = (Vec::new(), 0);
                    play.cluster.reader(of, from)
                }
            };
            let mut batch = C::Batch::default();
            let result = open.and_then(|mut open| open.read(&mut batch, 100, STEP).map(|()| open));
            let open = match result {
                Ok(open) => open,
                Err(error) => return kind(&error),
            };
            empty = if batch.is_empty() { empty + 1 } else { 0 };
            for record in (0..batch.len()).map(|index| batch.record(index)) {
                let value = record.value.map(String::from_utf8_lossy);
                read.push(shown(record.offset, value.as_deref()));
            }
            let seen = format!("{} | {}", read.join(" "), open.position()).trim().to_owned();
            reader = Some(open);
            seen
        })
    }
}

/// Reading starts again after this many empty reads. Together they take longer than the wire asks again for an offset that
/// a leader does not have.
const EMPTY_MAX: u32 = 100;

/// Kinds of topics, and the settings they stand for.
static SETTINGS: [(&str, &[&str]); 2] = [
    ("small", &["max.message.bytes=1000"]),
    (
        "compacted",
        &["cleanup.policy=compact", "segment.ms=100", "min.cleanable.dirty.ratio=0.01", "delete.retention.ms=86400000"],
    ),
];
