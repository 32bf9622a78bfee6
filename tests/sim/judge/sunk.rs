//! What a database holds, compared with the input and with what Kafka has (invariant 12): each effect once, in order of
//! its partition, and by the transaction that the changelog names; rows and position records go through the same
//! transactions, one after the other; tasks are refused only where something went back in time.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::database::{Entry, Kind, Server};
use crate::kafka::Partition;

use super::audit::Explanations;
use super::history::History;
use super::runs::Run;
use super::{Case, Ruling, Seen, coverage, show};

/// How many buckets there are to count in.
const BUCKETS: u64 = 3;

/// What a database holds at the end.
pub struct Sunk {
    pub kind: Kind,
    /// By partition: the tokens of its row's transactions, and of the one before each.
    chains: Vec<Vec<(String, Option<String>)>>,
    entries: Vec<(String, Entry)>,
    counts: BTreeMap<String, u64>,
    /// The partitions whose rows have lost transactions.
    lost: BTreeSet<i32>,
    went_back: bool,
    /// Partitions whose tasks were stopped since the database was behind Kafka, and since Kafka was behind it.
    behind: BTreeSet<String>,
    ahead: BTreeSet<String>,
}

impl Sunk {
    pub fn of(server: &Server, kind: Kind, partitions: i32) -> Self {
        let text = |(token, former): (ratchet::format::Token, Option<ratchet::format::Token>)| {
            (token.to_string(), former.map(|former| former.to_string()))
        };
        Self {
            kind,
            chains: (0..partitions).map(|number| server.chain(number).into_iter().map(text).collect()).collect(),
            entries: server.entries().iter().map(|entry| (entry.token.to_string(), entry.clone())).collect(),
            counts: server.counts().clone(),
            lost: (0..partitions).filter(|number| server.has_lost(*number)).collect(),
            went_back: server.went_back(),
            behind: BTreeSet::new(),
            ahead: BTreeSet::new(),
        }
    }

    /// With the inputs whose tasks were stopped since the database was behind Kafka, and since Kafka was behind it.
    pub fn after_refusals(self, behind: BTreeSet<String>, ahead: BTreeSet<String>) -> Self {
        Self { behind, ahead, ..self }
    }

    /// Whether a partition need not be read further: its task was refused for what went back in time.
    pub fn excuses(&self, history: &History, input: &Partition) -> bool {
        let name = format!("{input:?}");
        let is_refused = self.behind.contains(&name) || self.ahead.contains(&name);
        is_refused && (self.lost.contains(&input.number) || self.may_be_ahead(history, input.number))
    }

    /// Whether Kafka may be behind the database: its changelog has lost something.
    fn may_be_ahead(&self, history: &History, number: i32) -> bool {
        history.had_changelog_loss() && !self.chains[number as usize].is_empty()
    }

    /// Whether the database has kept a transaction of a partition.
    fn holds(&self, number: i32, token: &str) -> bool {
        self.chains[number as usize].iter().any(|(known, _)| known == token)
    }

    /// What holds for all partitions together.
    pub(super) fn check(&self, case: &Case<'_>, results: Results, ruling: &mut Ruling) {
        let table = Partition::new("the database", 0);
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut latest: BTreeMap<String, i128> = BTreeMap::new();
        for (_, entry) in &self.entries {
            let column = |at: usize| entry.columns.get(at).cloned().flatten().unwrap_or_default();
            let (id, version) = (column(0), column(1).parse::<i128>().ok());
            let thing: u64 = id.rsplit('-').next().and_then(|thing| thing.parse().ok()).unwrap_or_default();
            *counts.entry((thing % BUCKETS).to_string()).or_default() += 1;
            let Some(version) = version.filter(|_| case.rules.version.is_some()) else { continue };
            if let Some(before) = latest.insert(id, version).filter(|before| *before >= version) {
                ruling.report(12, &table, entry.offset, format!("a version above {before}"), format!("{entry:?}"));
            }
        }
        if counts != self.counts {
            ruling.report(12, &table, None, format!("counts {counts:?}"), format!("{:?}", self.counts));
        }
        for number in 0..case.partitions {
            let input = Partition::new(case.rules.input, number);
            let name = format!("{input:?}");
            // A changelog that has lost nothing but a sweep is told from a database that went back by its transaction's
            // number only.
            let may_be_behind = self.lost.contains(&number) || self.may_be_ahead(case.history, number);
            if self.behind.contains(&name) && !may_be_behind {
                ruling.report(12, &input, None, "a database that went back", "its task was refused: sink_behind");
            }
            if self.ahead.contains(&name) && !self.may_be_ahead(case.history, number) {
                ruling.report(12, &input, None, "a changelog that went back", "its task was refused: sink_ahead");
            }
        }
        if !self.went_back {
            results.end(ruling);
        }
    }

    /// Rows and position records have gone through the same transactions; the row may be one ahead.
    pub(super) fn check_chain(&self, number: i32, runs: &[Run<'_>], ruling: &mut Ruling) {
        let table = Partition::new("the database", number);
        let chain = &self.chains[number as usize];
        let mut former: Option<&String> = None;
        for (token, names) in chain {
            if names.as_ref() != former {
                ruling.report(12, &table, None, format!("{token} after {former:?}"), format!("after {names:?}"));
            }
            former = Some(token);
        }
        let tokens: Vec<String> = runs.iter().map(|run| run.position.token.text()).collect();
        let same = tokens.iter().zip(chain).take_while(|(token, (known, _))| *token == known).count();
        let is_right = match (tokens.len() - same, chain.len() - same) {
            (0, 0 | 1) => {
                if self.lost.contains(&number) {
                    ruling.see(coverage::DONE_AGAIN);
                }
                true
            }
            // The database has lost transactions that Kafka has: that must be noticed, and nothing may follow.
            (_, 0) if self.lost.contains(&number) => {
                let name = format!("{:?}", Partition::new(crate::input::INPUT, number));
                if !self.behind.contains(&name) {
                    let expected = "its task refused, since the database has lost what Kafka has";
                    ruling.report(12, &table, None, expected, "no refusal");
                }
                true
            }
            _ => false,
        };
        if !is_right {
            let expected = format!("the transactions that the changelog has, {:?}", &tokens[same..]);
            ruling.report(12, &table, None, expected, format!("{:?}, after {same} that it has", &chain[same..]));
        }
    }

    /// A transaction has had the effects of the records that survive in it, in their order.
    pub(super) fn check_run(
        &self,
        number: i32,
        (run, survivors): (&Run<'_>, &[&Seen]),
        (explanations, results): (&mut Explanations, &mut Results),
        ruling: &mut Ruling,
    ) {
        let (token, table) = (run.position.token.text(), Partition::new("the database", number));
        let is_kept = self.holds(number, &token);
        let mut entries = self.entries.iter().filter(|(of, _)| *of == token).map(|(_, entry)| entry).peekable();
        for source in survivors {
            let entry = entries.next_if(|entry| entry.offset == source.offset);
            match entry {
                Some(entry) => {
                    if !is_effect(entry, source) {
                        let expected = format!("the effect of {}", show(&source.record));
                        ruling.report(12, &table, entry.offset, expected, format!("{entry:?}"));
                    }
                    results.take((entry, source), run.producer, ruling);
                }
                None if self.kind == Kind::Inbox && explanations.has(number, source.offset, "in_inbox") => {
                    ruling.see(coverage::IN_INBOX);
                    explanations.take(number, source, (("duplicate", "in_inbox"), run.producer), ruling);
                    self.check_known(source, ruling);
                }
                // What the database has lost is reported as such.
                None if !is_kept => {}
                None => {
                    let expected = format!("the effect of input offset {} in {token}", source.offset);
                    ruling.report(12, &table, None, expected, format!("{:?}", entries.peek()));
                }
            }
        }
        if let Some(surplus) = entries.next() {
            ruling.report(12, &table, surplus.offset, "no other effect", format!("{surplus:?}"));
        }
    }

    /// What the inbox is said to have is there.
    fn check_known(&self, source: &Seen, ruling: &mut Ruling) {
        let json = parsed(source);
        let is_as_new = |(_, entry): &(String, Entry)| {
            let version = entry.columns.get(1).cloned().flatten().and_then(|version| version.parse::<i64>().ok());
            entry.columns[0].as_deref() == json["id"].as_str() && version >= json["version"].as_i64()
        };
        if !self.entries.iter().any(is_as_new) {
            let table = Partition::new("the database", 0);
            let expected = "an effect of the same identity that is as new";
            ruling.report(12, &table, source.offset, expected, format!("none for {}", show(&source.record)));
        }
    }
}

fn parsed(source: &Seen) -> Value {
    source.record.value.as_deref().and_then(|value| serde_json::from_slice(value).ok()).unwrap_or_default()
}

/// Whether a record refers to something that the database refuses.
pub fn is_refused(record: &crate::kafka::Record) -> bool {
    let json: Option<Value> = record.value.as_deref().and_then(|value| serde_json::from_slice(value).ok());
    json.is_some_and(|json| json["amount"].as_i64().is_some_and(|amount| amount < 0))
}

/// Whether an entry is what a record causes.
fn is_effect(entry: &Entry, source: &Seen) -> bool {
    let json = parsed(source);
    let text = |name: &str| match &json[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    entry.columns == ["id", "version", "sent", "amount"].map(text)
}

/// The records of the topic for results, to be matched one by one.
#[derive(Default)]
pub(super) struct Results {
    is_wanted: bool,
    topic: Option<Partition>,
    by_serial: BTreeMap<u64, Seen>,
}

impl Results {
    pub(super) fn read(case: &Case<'_>, ruling: &mut Ruling) -> Self {
        if case.history.sunk().is_none_or(|sunk| sunk.kind != Kind::Returning) {
            return Self::default();
        }
        let topic = Partition::new(crate::input::RESULTS, 0);
        let mut by_serial = BTreeMap::new();
        let all = |number: i32| case.committed(&Partition::new(crate::input::RESULTS, number));
        for seen in (0..case.partitions).flat_map(all) {
            let value: Value = parsed(&seen);
            let offset = seen.offset;
            let Some(serial) = value[0]["serial"].as_u64() else {
                ruling.report(12, &topic, offset, "rows that a statement returned", show(&seen.record));
                continue;
            };
            if by_serial.insert(serial, seen).is_some() {
                ruling.report(12, &topic, offset, "one result for a record", format!("another for {serial}"));
            }
        }
        Self { is_wanted: true, topic: Some(topic), by_serial }
    }

    fn take(&mut self, (entry, source): (&Entry, &Seen), producer: Option<i64>, ruling: &mut Ruling) {
        let Some(topic) = self.topic.clone().filter(|_| self.is_wanted) else { return };
        let Some(found) = self.by_serial.remove(&entry.serial) else {
            let expected = format!("the result of input offset {}, {}", source.offset, entry.serial);
            return ruling.report(12, &topic, None, expected, "none");
        };
        ruling.see(coverage::RETURNED);
        let meant = format!("[{}]", entry.returned());
        let is_same = found.record.value.as_deref() == Some(meant.as_bytes())
            && (&found.record.key, found.record.timestamp) == (&source.record.key, source.record.timestamp);
        if !is_same {
            let expected = format!("{meant} for {}", show(&source.record));
            ruling.report(12, &topic, found.offset, expected, show(&found.record));
        }
        if found.producer.is_none() || found.producer != producer {
            let expected = format!("the result of input offset {} written by producer {producer:?}", source.offset);
            ruling.report(12, &topic, found.offset, expected, format!("{:?}", found.producer));
        }
    }

    /// There are no other results.
    fn end(self, ruling: &mut Ruling) {
        let Some(topic) = self.topic else { return };
        for (serial, seen) in self.by_serial {
            ruling.report(12, &topic, seen.offset, "no result for what did not happen", format!("{serial}"));
        }
    }
}
