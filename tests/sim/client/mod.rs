//! ratchet's cluster traits on the simulated cluster. Records are read and written by the client that lanes run on
//! (`cluster::kafka::client`); librdkafka's part, which is membership, takeovers and topics, is imitated by the rules of
//! `crates/cluster/src/cluster/kafka`.
//!
//! - `group`: librdkafka's main thread for a member; `assignor`: the leader's part; `member`: the lane's side
//! - `producer`, `reader`, `batch`: on the wire; `settle`: the trait of the same name
//! - `errors`: the meaning of error codes

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratchet::cluster::kafka::client::{AcceptedLogins, ClientSettings, FetchClient};
use ratchet::cluster::kafka::wire::brokers::{self, Address};
use ratchet::cluster::kafka::wire::fetcher::FetchSettings;
use ratchet::cluster::kafka::wire::writer::WriteSettings;
use ratchet::cluster::{
    Cluster, CommittedOffset, Error, ErrorKind, Inquiry, Message, NewTopic, Rights, TopicDescription, TopicId,
};
use ratchet::record::TopicPartition;

use crate::kafka::{Broker, Code, Isolation, MS, Partition, Record, SECOND, Settings, Time};
use crate::net::Nets;
use crate::random::Random;
use crate::speech::{PORT, host};
use crate::world::{Broken, Process};

mod assignor;
mod batch;
mod errors;
mod group;
mod member;
mod producer;
mod reader;
mod settle;

pub use batch::Batch;
pub use member::{Member, Metadata};
pub use producer::Producer;
pub use reader::Reader;
pub use settle::{Settling, Waits};

/// How long a transaction may be open, and how long ending one may take.
const TRANSACTION_TIMEOUT: Time = 3 * SECOND;
/// How long taking an id may take.
const INIT_TIMEOUT: Time = 30 * SECOND;
/// Pause before it is tried again (`RD_KAFKA_IDEMP_PID_RETRY`...: 500 ms).
const INIT_RETRY_PAUSE: Time = 500 * MS;
/// How long a request about topics is retried.
const PATIENCE: Time = 5 * SECOND;

/// A partition in ratchet's type.
pub fn ours(partition: &Partition) -> TopicPartition {
    TopicPartition::new(partition.topic.clone(), partition.number)
}

/// A partition in the cluster's type.
pub fn theirs(partition: &TopicPartition) -> Partition {
    Partition::new(partition.topic.clone(), partition.partition)
}

/// Ends dead owners' transactions, each id once, in a task of its own (`crates/cluster/src/cluster/kafka/fences.rs`).
#[derive(Clone, Default)]
pub struct Fences(Arc<Mutex<BTreeSet<String>>>);

impl Fences {
    pub fn fence(&self, process: &Process, id: &str) {
        if !self.with(|ids| ids.insert(id.to_owned())) {
            return;
        }
        process.lock().reach("an owner was fenced by its successor");
        let (fences, own, id): (Self, Process, Arc<str>) = (self.clone(), process.clone(), id.into());
        process.spawn(move || {
            if init(&own, &id).is_err() {
                fences.with(|ids| ids.remove(&*id));
            }
        });
    }

    fn with<T>(&self, look: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Takes a transactional id, which aborts any transaction open under it.
fn init(process: &Process, id: &Arc<str>) -> Result<(), Broken> {
    let deadline = process.now() + INIT_TIMEOUT;
    loop {
        let name = id.clone();
        let taken = process.ask("init producer", move |broker| broker.init_producer(&name, TRANSACTION_TIMEOUT));
        match taken {
            Ok(_) | Err(Broken::Code(Code::ProducerFenced | Code::InvalidProducerEpoch)) => {
                return taken.map(drop);
            }
            Err(broken) if process.now() >= deadline || process.is_dead() => return Err(broken),
            Err(_) => process.sleep(INIT_RETRY_PAUSE),
        }
    }
}

/// How lanes read and write.
pub struct Clients {
    pub brokers: ClientSettings,
    pub fetch: Arc<FetchSettings>,
    pub write: Arc<WriteSettings>,
    pub accepted: AcceptedLogins,
}

impl Clients {
    fn of(process: &Process) -> Self {
        let millis = Duration::from_millis;
        let brokers = brokers::Settings {
            request_timeout: millis(1_000),
            connect_timeout: millis(1_000),
            reconnect_backoff_max: millis(500),
            ..brokers::Settings::default()
        };
        // From a separate generator, so that other draws stay the same. With few bytes, a response has no room for some
        // partitions, although these are not empty.
        let mut separate = Random::new(process.lock().random.clone().next());
        let usual = FetchSettings::default();
        let max_bytes = [usual.max_bytes, usual.max_bytes, 4_000, 1_000][separate.below(4) as usize];
        let fetch = FetchSettings { request_timeout: millis(2_000), max_bytes, ..usual };
        // Small batches: several batches of a partition are in flight at the same time, with the smallest size many.
        let batch_bytes = [1_000, 1_000, 1_000, 200][separate.below(4) as usize];
        let transaction_timeout = Duration::from_micros(TRANSACTION_TIMEOUT);
        let write = WriteSettings {
            transaction_timeout,
            delivery_timeout: millis(2_000),
            request_timeout: transaction_timeout - millis(100),
            linger: millis(1),
            batch_bytes,
            // The topics bound records.
            message_bytes_max: 16 << 20,
            ..WriteSettings::default()
        };
        let bootstrap = vec![Address { host: host(1), port: PORT }];
        Self {
            brokers: ClientSettings::simulated(brokers, bootstrap, Arc::new(Nets(process.clone()))),
            fetch: Arc::new(fetch),
            write: Arc::new(write),
            accepted: AcceptedLogins::default(),
        }
    }
}

/// The simulated cluster, as seen by one process.
#[derive(Clone)]
pub struct Sim {
    pub process: Process,
    fences: Fences,
    clients: Arc<Clients>,
}

impl Sim {
    pub fn new(process: Process) -> Self {
        let clients = Arc::new(Clients::of(&process));
        Self { process, fences: Fences::default(), clients }
    }

    /// Starts the queries of a takeover, with these waits.
    pub fn settle_by(&self, inquiry: Inquiry, waits: Waits) -> Settling {
        Settling::start(settle::Query {
            process: self.process.clone(),
            fences: self.fences.clone(),
            group: inquiry.group.as_str().into(),
            input: theirs(&inquiry.input),
            changelog: theirs(&inquiry.changelog),
            fencing: inquiry.fencing,
            wants_time: inquiry.wants_time,
            brokers: self.clients.brokers.clone(),
            looks_from: inquiry.looks_from,
            waits,
        })
    }

    fn ask<T: 'static>(
        &self,
        what: &'static str,
        request: impl Fn(&mut Broker) -> Result<T, Code> + Clone + Send + 'static,
    ) -> Result<T, Error> {
        let deadline = self.process.now() + PATIENCE;
        loop {
            match self.process.ask(what, request.clone()) {
                Ok(result) => return Ok(result),
                Err(Broken::Code(code)) if errors::plain(code, String::new()).kind != ErrorKind::Retry => {
                    return Err(errors::plain(code, format!("{what}: {code:?}")));
                }
                Err(broken) if self.process.now() >= deadline || self.process.is_dead() => {
                    return Err(Error::new(ErrorKind::Retry, format!("{what}: {broken:?}")));
                }
                Err(_) => self.process.sleep(50 * MS),
            }
        }
    }
}

fn describe(broker: &Broker, name: &str) -> Option<TopicDescription> {
    let topic = broker.topics.get(name)?;
    Some(TopicDescription {
        id: TopicId(topic.id.to_be_bytes()),
        partition_count: topic.logs.len() as i32,
        cleanup_policy: if topic.settings.compacted { "compact" } else { "delete" }.to_owned(),
        delete_retention_ms: (topic.settings.delete_retention / MS) as i64,
        retention_ms: i64::MAX,
        retention_bytes: i64::MAX,
        stamps: topic.settings.stamps,
        timestamp_before_max_ms: i64::MAX,
        timestamp_after_max_ms: i64::MAX,
        message_bytes_max: topic.settings.message_bytes_max as i64,
        replicas: Some(3),
        min_insync_replicas: Some(2),
        elects_uncleanly: Some(false),
        rights: Some(Rights::ALL),
    })
}

impl Cluster for Sim {
    type Batch = Batch;
    type Metadata = Metadata;
    type Member = Member;
    type Producer = Producer;
    type Reader = Reader;
    type Settling = Settling;

    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, Error> {
        let topic = topic.to_owned();
        self.ask("describe topic", move |broker| Ok(describe(broker, &topic)))
    }

    fn list_topics(&self) -> Result<Vec<String>, Error> {
        self.ask("list topics", |broker| Ok(broker.topics.names().map(|name| name.to_string()).collect()))
    }

    fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), Error> {
        let partition = theirs(partition);
        self.ask("bounds", move |broker| broker.ends(&partition, Isolation::Uncommitted))
    }

    fn group_rights(&self, _group: &str) -> Result<Option<Rights>, Error> {
        Ok(Some(Rights::ALL))
    }

    fn members_of(&self, group: &str) -> Result<usize, Error> {
        let group = group.to_owned();
        self.ask("describe group", move |broker| Ok(broker.groups.members(&group)))
    }

    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), Error> {
        let setting =
            |name: &str| topic.settings.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        let number = |name: &str| setting(name).and_then(|value| value.parse::<u64>().ok());
        let settings = Settings {
            compacted: setting("cleanup.policy") == Some("compact"),
            delete_retention: number("delete.retention.ms").unwrap_or(86_400_000) * MS,
            message_bytes_max: number("max.message.bytes").unwrap_or(1 << 20) as usize,
            stamps: setting("message.timestamp.type") == Some("LogAppendTime"),
        };
        let (name, count) = (topic.name.to_owned(), topic.partition_count);
        self.ask("create topic", move |broker| match broker.topics.create(&name, count, settings) {
            Ok(()) | Err(Code::TopicAlreadyExists) => Ok(()),
            Err(code) => Err(code),
        })
    }

    fn append_one(&self, message: &Message<'_>) -> Result<i64, Error> {
        let partition = Partition::new(message.topic, message.partition);
        let record = Record {
            timestamp: Some(message.timestamp.unwrap_or(self.process.lock().wall_ms(self.process.number))),
            key: message.key.map(Into::into),
            value: message.value.map(Into::into),
            headers: message.headers.as_bytes().into(),
        };
        let appended = self.process.ask("append", move |broker| {
            let log = broker.topics.log_mut(&partition).ok_or(Code::UnknownTopicOrPartition)?;
            Ok(log.append([record.clone()]))
        });
        appended.map_err(|broken| match broken {
            Broken::Code(code) => errors::plain(code, format!("append: {code:?}")),
            Broken::Lost => Error::new(ErrorKind::Unknown, "append: no answer"),
        })
    }

    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Member, Error> {
        let Clients { brokers, fetch, accepted, .. } = &*self.clients;
        Ok(Member::join(self.process.clone(), group, topics, FetchClient::new(brokers, fetch, accepted)))
    }

    fn producer(&self, transactional_id: &str) -> Result<Producer, Error> {
        Producer::open(self.process.clone(), &self.clients, transactional_id)
    }

    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Reader, Error> {
        self.process.lock().reach("a changelog or an input was read outside of the group");
        Reader::open(self.process.clone(), &self.clients, partition, offset)
    }

    fn settle(&self, inquiry: Inquiry) -> Settling {
        self.settle_by(inquiry, Waits::RIGHT)
    }

    fn fence(&self, transactional_id: &str) {
        self.fences.fence(&self.process, transactional_id);
    }

    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        _wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error> {
        let (group, partitions): (String, Vec<Partition>) = (group.to_owned(), partitions.iter().map(theirs).collect());
        let found = self.ask("committed", move |broker| {
            partitions
                .iter()
                .map(|partition| broker.fetch_offset(&group, partition, false))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let of = |found: crate::kafka::Committed| CommittedOffset { offset: found.offset, metadata: found.metadata };
        Ok(found.into_iter().map(|found| found.map(of)).collect())
    }
}
