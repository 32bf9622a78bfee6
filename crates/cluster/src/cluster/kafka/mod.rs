//! Apache Kafka as a [`Cluster`]: the only module that uses librdkafka.
//!
//! - `properties`: the clients' properties: ratchet's defaults, the user's, and those that only ratchet sets
//! - `misnamed`: advice about properties that librdkafka does not have
//! - `oauth`: tokens for logins, for librdkafka's clients and for those of the wire
//! - `native`: safe wrappers of librdkafka's objects, without any of Kafka's semantics
//! - `errors`: what librdkafka's errors mean to a lane
//! - `descriptions`, `login`, `rights`, `unreadable`, `unsupported`, `limits`: error messages and limits of both data
//!   paths
//! - `tls`: TLS as librdkafka's properties describe it; `unpack`: a bound on what compressed batches unpack to
//! - `epochs`: the leader epochs of the records that were read (KIP-320)
//! - `abilities`: the requests that ratchet needs from brokers, and those that it can do without
//! - `path`: whether records are read and written by librdkafka or on the wire
//! - `wire`: ratchet's own implementation of Kafka's protocol; `client`: the clients of lanes on it
//! - `member` (with its `slots`, `seek`, `metadata` and `leaving`), `producer` (with its `send` and `threads`),
//!   `reader`: the traits of the same names; `append`: records outside of any transaction; `scan`: reading outside of any
//!   group
//! - `settle` (with its `pool` and `probe`): a takeover's queries; `admin`: queries about topics; `fences`: ends dead
//!   owners' transactions
//!
//! Invariants: uncommitted records are never read; an offset is committed only in a transaction, with the
//! current membership; automatic commits, resets and topic creation are off.
//!
//! **Failure**: see each module. No error and no log line contains a property's value.
//!
//! librdkafka writes a record with timestamp 0 with the current time: 0 means "not given" to it.
#![expect(clippy::disallowed_methods, reason = "a real cluster answers by the real clock: calls to it have deadlines")]

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use self::abilities::Judgement;
use self::client::{ClientSettings, FetchClient, WireSettings};
use self::epochs::{Epochs, Groups};
use self::fences::Fences;
use self::properties::Properties;
use self::settle::{QueryClients, Stability};
use self::unsupported::Unsupported;
use super::{
    Abilities, Cluster, CommittedOffset, Contact, Error, ErrorKind, Inquiry, Message, NewTopic, QUEUED_RECORD_BYTES,
    Queues, Rights, TopicDescription, TopicOutline,
};
use crate::record::TopicPartition;

mod abilities;
mod admin;
mod append;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod client;
mod descriptions;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod epochs;
mod errors;
mod fences;
mod leaving;
mod limits;
mod login;
mod member;
mod metadata;
mod misnamed;
mod native;
mod oauth;
mod path;
mod pool;
mod probe;
mod producer;
mod properties;
mod reader;
mod renewal;
mod rights;
mod scan;
mod seek;
mod send;
mod settle;
mod slots;
mod threads;
mod tls;
mod unpack;
mod unreadable;
mod unsupported;
#[cfg_attr(not(ratchet_internals), doc(hidden))]
pub mod wire;

pub use append::Appender;
pub use member::Member;
pub use metadata::Metadata;
pub use misnamed::explained;
pub use native::takes;
pub use oauth::{AccessTokens, NoAccess, TokenClient};
pub use path::{Batch, DataPath, Producer, Reader};
pub use properties::OWNED;
pub use scan::{Isolation, Scan, Scanner, Span};
pub use settle::Settling;

/// A Kafka cluster. See [`Cluster`].
#[derive(Clone)]
pub struct Kafka {
    inner: Arc<Inner>,
}

struct Inner {
    member: Properties,
    reader: Properties,
    producer: Properties,
    clients: Arc<QueryClients>,
    epochs: Arc<Groups>,
    fences: Arc<Fences>,
    path: DataPath,
    /// The settings of lanes on the wire; `None` if the data path or a property requires librdkafka.
    wire: Option<WireSettings>,
    /// The settings of clients for queries on the wire; `None` if a property needs librdkafka.
    query_settings: Option<ClientSettings>,
    /// The brokers' abilities, once they have responded.
    judgement: OnceLock<Judgement>,
}

impl Kafka {
    /// A cluster that uses only librdkafka, for commands without lanes. The properties are librdkafka's: for all
    /// clients, for those that read, and for those that write. They are checked; no connection is made yet.
    pub fn new(
        common: &BTreeMap<String, String>,
        consumer: &BTreeMap<String, String>,
        producer: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        Self::within(Queues::default(), DataPath::Librdkafka, common, consumer, producer)
    }

    /// Like [`Kafka::new`], with bounds on the memory of its clients' queues; explicit properties take precedence. The
    /// bound on unpacked batches applies to the whole process; the last one that was set is in force. Lanes read and
    /// write by `path`.
    pub fn within(
        queues: Queues,
        path: DataPath,
        common: &BTreeMap<String, String>,
        consumer: &BTreeMap<String, String>,
        producer: &BTreeMap<String, String>,
    ) -> Result<Self, Error> {
        let of_queues = |settings: Vec<(&str, String)>| {
            let is_set = |name: &str| common.contains_key(name) || consumer.contains_key(name);
            let new = settings.into_iter().filter(|(name, _)| !is_set(name));
            new.fold(Properties::consumer(common, consumer), |properties, (name, value)| {
                Ok(properties?.with(name, &value))
            })
        };
        // A value that is not a number is rejected below.
        let record_bytes = consumer.get("message.max.bytes").or_else(|| common.get("message.max.bytes"));
        let record_bytes = record_bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or_default();
        let member = of_queues(queues.of_member(record_bytes))?;
        let reader = of_queues(queues.of_reader(record_bytes))?.sharing(&member);
        let producer = Properties::producer(common, producer)?.sharing(&member);
        for properties in [&member, &reader, &producer] {
            properties.check_login()?;
            properties.to_conf()?;
        }
        producer.delivery_timeout_ms()?;
        let set_up = client::wire_settings(&member, &reader::with_eof_events(&reader), &producer);
        let query_settings = set_up.as_ref().ok().map(|wire| wire.member.clone());
        let wire = choose_data_path(path, set_up)?;
        unpack::allow(queues.unpacked_bytes);
        let epochs = Arc::new(Groups::default());
        let clients = Arc::new(QueryClients::new(&member, &epochs));
        let fences = Arc::new(Fences::new(&producer));
        let judgement = OnceLock::new();
        let inner = Inner { member, reader, producer, clients, epochs, fences, path, wire, query_settings, judgement };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// A client that reads outside of any group, by librdkafka.
    pub fn scanner(&self, isolation: Isolation) -> Result<Scanner, Error> {
        Scanner::open(&self.inner.reader, isolation)
    }

    /// A producer that writes many records to this topic, outside of any transaction, by librdkafka. `batch_bytes_max`: the
    /// largest batch that the topic takes, if that is known.
    pub fn appender(&self, topic: &str, batch_bytes_max: Option<i64>) -> Result<Appender, Error> {
        Appender::open(&Appender::properties(&self.inner.producer, batch_bytes_max), topic)
    }

    fn open_reader(
        &self,
        partition: &TopicPartition,
        offset: i64,
        epochs: Option<Arc<Epochs>>,
    ) -> Result<Reader, Error> {
        let reader = &self.inner.reader;
        let Some(wire) = self.inner.wire() else {
            let reader = reader::Reader::open(reader, partition, offset, epochs)?;
            return Ok(Reader::Librdkafka(Box::new(reader)));
        };
        let at = (partition, offset);
        let reader = client::Reader::open(&wire.reader, &wire.reader_fetch, &wire.accepted, at, epochs)?;
        Ok(Reader::Wire(Box::new(reader)))
    }
}

impl Inner {
    /// The settings of lanes on the wire, if the properties and the brokers allow the wire.
    fn wire(&self) -> Option<&WireSettings> {
        let brokers_allow = self.judgement.get().is_none_or(|judgement| judgement.is_on_the_wire);
        self.wire.as_ref().filter(|_| brokers_allow)
    }

    /// The brokers' abilities, if they have ever responded; queries them if not.
    fn judgement(&self) -> Option<&Judgement> {
        if let Some(known) = self.judgement.get() {
            return Some(known);
        }
        let offers = client::query_api_versions(self.query_settings.as_ref()?)?;
        let judgement = abilities::judge(&offers, self.path, self.wire.is_some());
        Some(self.judgement.get_or_init(|| judgement))
    }
}

/// The settings of lanes on the wire, if this data path and the properties allow the wire.
fn choose_data_path(path: DataPath, set_up: Result<WireSettings, Unsupported>) -> Result<Option<WireSettings>, Error> {
    if path == DataPath::Librdkafka {
        return Ok(None);
    }
    match set_up {
        Ok(wire) => Ok(Some(wire)),
        Err(unsupported) if path == DataPath::Auto => {
            tracing::info!("records are read and written by librdkafka, since {unsupported}");
            Ok(None)
        }
        Err(unsupported) => {
            let message = format!("with data_path `wire`, {unsupported}; choose `auto` or `librdkafka`");
            Err(Error::new(ErrorKind::Refused, message))
        }
    }
}

impl std::fmt::Debug for Kafka {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Properties may be secrets.
        f.write_str("Kafka")
    }
}

impl Cluster for Kafka {
    type Batch = Batch;
    type Metadata = Metadata;
    type Member = Member;
    type Producer = Producer;
    type Reader = Reader;
    type Settling = Settling;

    fn contact(&self) -> Option<Arc<Contact>> {
        Some(Arc::clone(self.inner.member.contact()))
    }

    fn abilities(&self) -> Option<Abilities> {
        self.inner.judgement().map(|judgement| judgement.abilities.clone())
    }

    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, Error> {
        admin::describe(&self.inner.clients.ends()?, topic)
    }

    fn describe_topic_briefly(&self, topic: &str) -> Result<Option<TopicOutline>, Error> {
        let outline = native::outline(&self.inner.clients.ends()?, topic);
        let outline = outline.map_err(|failure| failure.plain(format_args!("describing the topic {topic}")))?;
        Ok(outline.map(|found| TopicOutline { id: found.id, partition_count: found.partition_count }))
    }

    fn open_transaction(&self, partition: &TopicPartition, wait: Duration) -> Result<Option<i64>, Error> {
        settle::open_transaction(&self.inner.clients, partition, wait)
    }

    fn list_topics(&self) -> Result<Vec<String>, Error> {
        native::list_topics(&self.inner.clients.ends()?)
    }

    fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), Error> {
        settle::watermarks(&self.inner.clients.ends()?, partition, settle::RESPONSE_MAX)
    }

    fn group_rights(&self, group: &str) -> Result<Option<Rights>, Error> {
        if self.inner.judgement.get().is_some_and(|judgement| !judgement.describes_groups) {
            return Ok(None);
        }
        admin::group(|| self.inner.clients.new_client(), group).map(|group| group.rights)
    }

    fn members_of(&self, group: &str) -> Result<usize, Error> {
        admin::group(|| self.inner.clients.new_client(), group).map(|group| group.members)
    }

    fn check_creation(&self, topic: &NewTopic<'_>) -> Result<(), Error> {
        native::create_or_validate(&self.inner.clients.ends()?, topic, true)
    }

    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), Error> {
        admin::create(&self.inner.clients.ends()?, topic)
    }

    fn append_one(&self, message: &Message<'_>) -> Result<i64, Error> {
        append::append(&self.inner.producer, message)
    }

    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Member, Error> {
        // The first partitions will be assigned soon: the connections for the queries should then be open.
        self.inner.clients.warm_up(group, topics);
        let member = &self.inner.member;
        let fetch_client = self.inner.wire().map(|wire| FetchClient::new(&wire.member, &wire.fetch, &wire.accepted));
        Member::join(&member.with("group.id", group), topics, self.inner.epochs.of(group), fetch_client)
    }

    fn record_overhead_bytes(&self) -> usize {
        match self.inner.wire() {
            // Records have no overhead in their batches. This is the changelog's record in its batch and the entry
            // in the overlay, together some 345 bytes for the longest identity and a version that is a number.
            Some(_) => 384,
            None => QUEUED_RECORD_BYTES,
        }
    }

    fn producer(&self, transactional_id: &str) -> Result<Producer, Error> {
        let producer = &self.inner.producer;
        match self.inner.wire() {
            Some(wire) => client::Producer::open(&wire.producer, &wire.write, &wire.accepted, transactional_id)
                .map(|producer| Producer::Wire(Box::new(producer))),
            None => producer::Producer::open(producer, transactional_id)
                .map(|producer| Producer::Librdkafka(Box::new(producer))),
        }
    }

    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Reader, Error> {
        self.open_reader(partition, offset, None)
    }

    fn reader_for(&self, group: &str, partition: &TopicPartition, offset: i64) -> Result<Reader, Error> {
        self.open_reader(partition, offset, Some(self.inner.epochs.of(group)))
    }

    fn settle(&self, inquiry: Inquiry) -> Settling {
        let Inner { clients, fences, query_settings, judgement, .. } = &*self.inner;
        let tells_time = judgement.get().is_none_or(|judgement| judgement.tells_time);
        let stamps = query_settings.as_ref().filter(|_| !tells_time).cloned();
        Settling::start(clients, fences, stamps, inquiry)
    }

    fn fence(&self, transactional_id: &str) {
        self.inner.fences.fence(transactional_id);
    }

    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error> {
        let clients = &self.inner.clients;
        let _querier = clients.querier(group);
        clients.committed(group, Stability::Plain, partitions, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_takes_less_on_the_wire_than_in_the_queue_of_librdkafka() {
        let common = BTreeMap::from([("bootstrap.servers".to_owned(), "localhost:9092".to_owned())]);
        let overhead = |path| {
            let none = BTreeMap::new();
            let kafka = Kafka::within(Queues::default(), path, &common, &none, &none).expect("nothing is connected");
            kafka.record_overhead_bytes()
        };
        assert_eq!([DataPath::Wire, DataPath::Librdkafka].map(overhead), [384, 1024]);
    }
}
