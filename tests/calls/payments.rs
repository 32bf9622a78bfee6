//! A job that calls a provider, and its checker: what has become of each record is compared with what the provider has
//! done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratchet::format::KIND_IDENTITY;

use crate::cluster::{Fresh, Kafka, Stored};
use crate::job::Job;
use crate::load::now_ms;
use crate::provider::{Move, Provider};

/// What recognises a call.
pub const KEYED: &str = "idempotency_key: {header: Idempotency-Key, honoured_for: 24h}";
/// Nothing does: at most once.
pub const KEYLESS: &str = "on_in_doubt: dead_letter";
/// Nothing does: at least once.
pub const KEYLESS_RETRY: &str = "on_in_doubt: retry";

/// A topology that calls a provider of its own: `POST /charges/ID` for each identity.
pub struct Payments {
    pub job: Job,
    pub provider: Provider,
}

/// What has become of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// A record in the topic for results.
    Result { status: Option<u16>, verdict: String, is_repeated: bool, body: String },
    /// A dead letter.
    Letter { reason: String, status: Option<u16>, attempts: Option<u32>, key: Option<String> },
}

/// Where a record is: partition and offset.
pub type Place = (i32, i64);

/// All that has become of a job's records.
#[derive(Debug, Default)]
pub struct Found {
    /// The records of each identity, in order.
    pub records: BTreeMap<String, Vec<Place>>,
    pub ends: BTreeMap<Place, Vec<End>>,
    /// How often the provider has acted for each identity.
    pub acts: BTreeMap<String, u32>,
    /// The provider's first answers.
    pub receipts: BTreeMap<String, String>,
}

impl Payments {
    /// With these lines of the sink, besides url, timeout, waits and results.
    pub fn new(theme: &str, partitions: i32, lines: &[&str]) -> Payments {
        Payments::at(Provider::start(), theme, partitions, lines)
    }

    /// With this provider.
    pub fn at(provider: Provider, theme: &str, partitions: i32, lines: &[&str]) -> Payments {
        Payments::of(provider, theme, (partitions, &[]), lines, "/charges/{value.id}")
    }

    /// With another path, query included.
    pub fn with(theme: &str, partitions: i32, lines: &[&str], path: &str) -> Payments {
        Payments::of(Provider::start(), theme, (partitions, &[]), lines, path)
    }

    /// With a topic for results that has this setting, and one partition.
    pub fn taking(theme: &str, lines: &[&str], setting: (&str, &str)) -> Payments {
        Payments::of(Provider::start(), theme, (1, &[setting]), lines, "/charges/{value.id}")
    }

    fn of(
        provider: Provider,
        theme: &str,
        (partitions, settings): (i32, &[(&str, &str)]),
        lines: &[&str],
        path: &str,
    ) -> Payments {
        provider.always(Move::receipt());
        let mut job = Job::on(Kafka::shared(), theme);
        job.kafka.create(&job.input, partitions, &[]);
        job.kafka.create(&job.output, partitions, settings);
        job.rules.version = None;
        let has = |key: &str| lines.iter().any(|line| line.starts_with(&format!("{key}:")));
        let url = format!("url: '{}'", provider.url(path));
        let result = format!("result: {{topic: {}}}", job.output);
        let usual = [
            ("url", url.as_str()),
            ("timeout", "timeout: 2s"),
            ("retry", "retry: {first: 50ms, max: 500ms}"),
            ("result", &result),
        ];
        let usual = usual.into_iter().filter(|(key, _)| !has(key)).map(|(_, line)| line);
        let all: Vec<&str> = usual.chain(lines.iter().copied()).collect();
        job.topology = vec![format!("sink:\n  http:\n    {}", all.join("\n    "))];
        Payments { job, provider }
    }

    /// Answers duplicates with what the first one got.
    pub fn answering_duplicates(mut self) -> Payments {
        self.job.topology.push("on_duplicate: result".to_owned());
        self
    }

    /// Waits until everything is settled, and gathers what has become of it.
    #[track_caller]
    pub fn found(&self, deadline: Duration) -> Found {
        self.job.await_drained(deadline);
        let mut found = Found::default();
        for (partition, records) in self.job.kafka.read(&self.job.input) {
            for record in records {
                found.records.entry(id_of(&record)).or_default().push((partition, record.offset));
            }
        }
        for record in self.job.kafka.read(&self.job.output).into_values().flatten() {
            let (place, end) = result(&record);
            found.ends.entry(place).or_default().push(end);
        }
        for (place, end) in self.letters() {
            found.ends.entry(place).or_default().push(end);
        }
        found.acts =
            self.provider.acts_by_target().into_iter().map(|(target, it)| (id_of_target(&target), it)).collect();
        found.receipts = self.provider.receipts().into_iter().map(|(target, it)| (id_of_target(&target), it)).collect();
        found
    }

    /// The dead letters.
    pub fn letters(&self) -> Vec<(Place, End)> {
        let topic = self.job.dead_letter();
        match self.job.kafka.partitions(&topic) {
            None => Vec::new(),
            Some(_) => self.job.kafka.read(&topic).into_values().flatten().map(|record| letter(&record)).collect(),
        }
    }

    /// The keys under which the changelog has identities.
    pub fn identities(&self) -> BTreeSet<Vec<u8>> {
        let records = self.job.kafka.read(&self.job.changelog()).into_values().flatten();
        records.filter_map(|record| record.key).filter(|key| key.first() == Some(&KIND_IDENTITY)).collect()
    }

    /// How many results can be seen.
    pub fn results(&self) -> usize {
        self.job.output().len()
    }
}

impl Found {
    /// The first record of each identity has one end, and it is a result that equals the provider's first answer; the
    /// others have none, or, `answered`, the same result repeated. Each identity has acted once.
    #[track_caller]
    pub fn assert_each_acted_once(&self, answered: bool) -> &Found {
        assert!(!self.records.is_empty());
        let (mut wrong, mut acted) = (Vec::new(), BTreeSet::new());
        for (id, places) in &self.records {
            if self.acts.get(id) != Some(&1) {
                wrong.push(format!("{id} has acted {:?} times", self.acts.get(id)));
            }
            acted.insert(id);
            for (number, place) in places.iter().enumerate() {
                let body = self.receipts.get(id).cloned().unwrap_or_default();
                let (status, verdict, is_repeated) = (Some(201), "done".to_owned(), number > 0);
                let is_expected = number == 0 || answered;
                let expected = is_expected.then_some(End::Result { status, verdict, is_repeated, body });
                let expected: Vec<End> = expected.into_iter().collect();
                let there = self.ends.get(place).cloned().unwrap_or_default();
                if there != expected {
                    wrong.push(format!("{id} at {place:?}: {there:?}, expected {expected:?}"));
                }
            }
        }
        wrong.extend(self.acts.keys().filter(|id| !acted.contains(id)).map(|id| format!("nobody has asked for {id}")));
        let few = &wrong[..wrong.len().min(5)];
        assert!(wrong.is_empty(), "{} are wrong, such as {few:#?}", wrong.len());
        self
    }

    /// The ends of an identity's first record.
    pub fn first(&self, id: &str) -> &[End] {
        self.ends.get(&self.records[id][0]).map_or(&[], Vec::as_slice)
    }

    /// How many dead letters have this reason.
    pub fn letters(&self, wanted: &str) -> usize {
        let is_it = |end: &&End| matches!(end, End::Letter { reason, .. } if reason == wanted);
        self.ends.values().flatten().filter(is_it).count()
    }

    /// How many results there are.
    pub fn results(&self) -> usize {
        self.ends.values().flatten().filter(|end| matches!(end, End::Result { .. })).count()
    }
}

/// A record that asks for a charge.
pub fn charge(partition: i32, id: &str) -> Fresh {
    Fresh::new(partition, id, format!("{{\"id\":\"{id}\",\"amount\":42}}")).at(now_ms())
}

/// The same, many times.
pub fn charges(partition: i32, ids: std::ops::Range<usize>) -> impl Iterator<Item = Fresh> {
    ids.map(move |id| charge(partition, &format!("order-{partition}-{id}")))
}

fn id_of(record: &Stored) -> String {
    let value = serde_json::from_slice::<serde_json::Value>(record.value.as_deref().unwrap_or_default());
    value.expect("the tests write JSON")["id"].as_str().expect("a text").to_owned()
}

fn id_of_target(target: &str) -> String {
    target.trim_start_matches("/charges/").to_owned()
}

fn result(record: &Stored) -> (Place, End) {
    let header = |name: &str| record.header(&format!("__ratchet.result.{name}"));
    let number = |name: &str| header(name).and_then(|text| text.parse().ok());
    let place = (number("partition").expect("a partition") as i32, number("offset").expect("an offset"));
    let end = End::Result {
        status: number("status").map(|status| status as u16),
        verdict: header("verdict").expect("a verdict"),
        is_repeated: header("repeated").is_some(),
        body: String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned(),
    };
    (place, end)
}

fn letter(record: &Stored) -> (Place, End) {
    let header = |name: &str| record.header(&format!("__ratchet.errors.{name}"));
    let number = |name: &str| header(name).and_then(|text| text.parse::<i64>().ok());
    let place = (number("partition").expect("a partition") as i32, number("offset").expect("an offset"));
    let end = End::Letter {
        reason: header("reason").expect("a reason"),
        status: number("status").map(|status| status as u16),
        attempts: number("attempts").map(|attempts| attempts as u32),
        key: header("key"),
    };
    (place, end)
}
