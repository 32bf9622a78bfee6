//! The librdkafka properties of each kind of client: ratchet's defaults, then the user's, then those
//! that exactly-once depends on and that the user cannot change.
//!
//! **Failure**: a property that ratchet sets itself, one that librdkafka does not know and an invalid value
//! are [`ErrorKind::Refused`]. No message ever contains a value: it may be a password.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::login::Login;
use super::oauth::{Credentials, Source};
use super::unpack::RECORD_OVERHEAD_BYTES;
use crate::cluster::{Contact, Error, ErrorKind, Queues};

/// Properties that only ratchet sets; an error in the user's configuration.
pub const OWNED: &[&str] = &[
    "acks",
    "allow.auto.create.topics",
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "delivery.report.only.error",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "enable.partition.eof",
    "enabled_events",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.protocol.type",
    "group.remote.assignor",
    "isolation.level",
    "log.queue",
    "offset.store.method",
    "partition.assignment.strategy",
    "queuing.strategy",
    "request.required.acks",
    "transactional.id",
];

/// Ratchet's defaults for every client.
const COMMON: &[(&str, &str)] = &[
    ("client.id", "ratchet"),
    // The connection to a restarted broker is restored within a second instead of ten.
    ("reconnect.backoff.max.ms", "1000"),
    ("statistics.interval.ms", "0"),
];

/// Ratchet's defaults for clients that read.
const CONSUMER: &[(&str, &str)] = &[
    ("check.crcs", "true"),
    // A full local queue is checked again soon: with the default of a second, a fast lane starves.
    ("fetch.queue.backoff.ms", "20"),
    // How soon a batch for which there was no memory is fetched again.
    ("fetch.error.backoff.ms", "100"),
    // A new partition is fetched once the fetch in progress has returned: with the default of 500 ms, a
    // partition that moves to a quiet lane is not read for that long.
    ("fetch.wait.max.ms", "50"),
    // A member learns of a rebalance from its heartbeat: all members wait for the last one to learn of it.
    ("heartbeat.interval.ms", "100"),
    // How long a dead member's partitions remain assigned to it.
    ("session.timeout.ms", "10000"),
    // How long to wait for a frozen broker to name the coordinator: as long as for a dead member or transaction.
    // librdkafka's default of a minute is meant for large responses on slow networks; see FETCH_BYTES.
    ("socket.timeout.ms", "10000"),
];

/// Beyond this number, queued records only evict each other from the processor's caches (measured: 100,000 are read at
/// 5.0 M/s with 290 ns of CPU each, a million at 3.3 M/s with 470 ns).
const QUEUED_RECORDS_MAX: u64 = 100_000;
const QUEUED_RECORDS_MIN: u64 = 1_000;
const QUEUED_KBYTES_MAX: u64 = 65_536;
const QUEUED_KBYTES_MIN: u64 = 256;
/// Fetch size of one partition: the default or less.
const PARTITION_FETCH_BYTES: std::ops::RangeInclusive<u64> = 128 << 10..=1 << 20;
/// Fetch size of all partitions of a broker. The response has to arrive within `socket.timeout.ms`, together with the
/// responses of other brokers and to other lanes over the same network: the largest is a quarter of what Java's clients request
/// (50 MiB in 30 s).
const FETCH_BYTES: std::ops::RangeInclusive<u64> = 1 << 20..=4 << 20;

impl Queues {
    /// A member's properties, for this `message.max.bytes`.
    pub(super) fn of_member(self, record_bytes: u64) -> Vec<(&'static str, String)> {
        queue_properties(self.member_bytes, record_bytes)
    }

    /// A reader's properties.
    pub(super) fn of_reader(self, record_bytes: u64) -> Vec<(&'static str, String)> {
        queue_properties(self.reader_bytes, record_bytes)
    }
}

/// Properties of queues that hold at most `bytes`: a quarter for a response in transit, the rest for records and their
/// overhead. librdkafka requires a response to have room for a record.
fn queue_properties(bytes: u64, record_bytes: u64) -> Vec<(&'static str, String)> {
    let quarter = bytes / 4;
    let records = (quarter * 2 / RECORD_OVERHEAD_BYTES).clamp(QUEUED_RECORDS_MIN, QUEUED_RECORDS_MAX);
    let kbytes = (quarter / 1024).clamp(QUEUED_KBYTES_MIN, QUEUED_KBYTES_MAX);
    let partition_fetch = quarter.clamp(*PARTITION_FETCH_BYTES.start(), *PARTITION_FETCH_BYTES.end());
    let fetch = quarter.clamp(*FETCH_BYTES.start(), *FETCH_BYTES.end()).max(record_bytes);
    vec![
        ("queued.min.messages", records.to_string()),
        ("queued.max.messages.kbytes", kbytes.to_string()),
        ("fetch.message.max.bytes", partition_fetch.to_string()),
        ("fetch.max.bytes", fetch.to_string()),
    ]
}

/// Ratchet's defaults for producers.
const PRODUCER: &[(&str, &str)] = &[
    ("linger.ms", "5"),
    ("batch.size", "1000000"),
    // The broker decides what a topic accepts; ratchet's own limit on records is below this.
    ("message.max.bytes", "18874368"),
    // A queue that fills up mid-transaction makes the lane wait.
    ("queue.buffering.max.messages", "1000000"),
    ("transaction.timeout.ms", "10000"),
    // A transaction's markers trail its commit, and until they are written the next one has to
    // retry: with the default of 100 ms, transactions in close succession take that long each.
    ("retry.backoff.ms", "5"),
    // How soon a new client tries another broker if the first choice cannot be reached: a takeover waits for it.
    ("reconnect.backoff.ms", "20"),
];

/// Properties of every consumer, which the user cannot change.
const CONSUMER_OWNED: &[(&str, &str)] = &[
    ("allow.auto.create.topics", "false"),
    ("auto.offset.reset", "error"),
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    ("group.protocol", "classic"),
    ("partition.assignment.strategy", "cooperative-sticky"),
];

/// Both names of the property for the mechanism of the login.
const MECHANISM: [&str; 2] = ["sasl.mechanism", "sasl.mechanisms"];
/// librdkafka's default mechanism.
const KERBEROS: &str = "GSSAPI";
const NO_KERBEROS: &str = "logins by Kerberos are not built into ratchet's librdkafka; set `sasl.mechanism` to \
                           SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER, or `security.protocol: ssl` with a \
                           client's certificate";

/// Checks that a property does not set a mechanism that is not built in.
pub(super) fn check_mechanism(property: &str, value: &str) -> Result<(), Error> {
    if MECHANISM.contains(&property) && value.eq_ignore_ascii_case(KERBEROS) {
        return Err(refused(format!("the kafka property {property} is GSSAPI: {NO_KERBEROS}")));
    }
    Ok(())
}

/// The role of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The client reads, or only makes queries.
    Consumer,
    /// The client writes.
    Producer,
}

/// The properties of one kind of client. Has no `Debug`, since values may be secrets.
#[derive(Clone)]
pub(super) struct Properties {
    role: Role,
    values: BTreeMap<String, String>,
    /// The names of the properties that the user set.
    user_names: Arc<BTreeSet<String>>,
    login: Arc<Login>,
    contact: Arc<Contact>,
    /// The source of the login's tokens, if it needs tokens and librdkafka does not create them itself.
    token_source: Option<Arc<Source>>,
}

impl Properties {
    /// A consumer's properties, read_committed unless changed by [`Properties::with`].
    pub fn consumer(common: &BTreeMap<String, String>, own: &BTreeMap<String, String>) -> Result<Self, Error> {
        let mut values = layered(&[COMMON, CONSUMER], common, own)?;
        put_all(&mut values, CONSUMER_OWNED);
        put_all(&mut values, &[("isolation.level", "read_committed")]);
        Self::of(Role::Consumer, values, user_names(common, own))
    }

    /// A producer's properties, without the transactional id.
    pub fn producer(common: &BTreeMap<String, String>, own: &BTreeMap<String, String>) -> Result<Self, Error> {
        let mut values = layered(&[COMMON, PRODUCER], common, own)?;
        // Successes are reported by an interceptor: see `native::Listener`.
        put_all(&mut values, &[("delivery.report.only.error", "true"), ("enable.idempotence", "true")]);
        let mut properties = Self::of(Role::Producer, values, user_names(common, own))?;
        let named = ["message.timeout.ms", "delivery.timeout.ms"];
        if !named.iter().any(|name| properties.values.contains_key(*name)) {
            // A delivery fails while its transaction is still open.
            let timeout_ms = properties.transaction_timeout_ms()? * 4 / 5;
            properties.values.insert("message.timeout.ms".to_owned(), timeout_ms.to_string());
        }
        Ok(properties)
    }

    fn of(role: Role, values: BTreeMap<String, String>, user_names: Arc<BTreeSet<String>>) -> Result<Self, Error> {
        let token_source = Credentials::of(&values)?.map(Source::of).transpose()?;
        Ok(Self { role, values, user_names, login: Arc::default(), contact: Arc::default(), token_source })
    }

    /// These properties, sharing the state of the login and of the brokers with `others`.
    pub fn sharing(self, others: &Self) -> Self {
        Self { login: Arc::clone(&others.login), contact: Arc::clone(&others.contact), ..self }
    }

    /// The state of the brokers, as far as it is known.
    pub fn contact(&self) -> &Arc<Contact> {
        &self.contact
    }

    /// The state of the login.
    pub fn login(&self) -> &Arc<Login> {
        &self.login
    }

    /// These properties with one changed.
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut changed = self.clone();
        changed.values.insert(name.to_owned(), value.to_owned());
        changed
    }

    /// These properties with this duration limited to `milliseconds`.
    pub fn at_most(&self, name: &str, milliseconds: u64) -> Self {
        // A value that is not a number is rejected when a client is created with it.
        let limited = self.milliseconds(name).unwrap_or(milliseconds).min(milliseconds);
        self.with(name, &limited.to_string())
    }

    /// How long a transaction may last before the broker aborts it.
    pub fn transaction_timeout_ms(&self) -> Result<u64, Error> {
        self.milliseconds("transaction.timeout.ms")
    }

    /// How often a member sends a heartbeat.
    pub fn heartbeat_interval_ms(&self) -> Result<u64, Error> {
        self.milliseconds("heartbeat.interval.ms")
    }

    /// How long the delivery of a record may take before it fails.
    pub fn delivery_timeout_ms(&self) -> Result<u64, Error> {
        let name = "delivery.timeout.ms";
        self.milliseconds(if self.values.contains_key(name) { name } else { "message.timeout.ms" })
    }

    /// The source of the login's tokens, if it needs tokens and librdkafka does not create them itself.
    pub fn token_source(&self) -> Option<&Arc<Source>> {
        self.token_source.as_ref()
    }

    /// Whether librdkafka has to create tokens itself.
    pub fn makes_tokens(&self) -> bool {
        self.token_source.is_none()
            && self.mechanism().is_some_and(|mechanism| mechanism.eq_ignore_ascii_case("OAUTHBEARER"))
    }

    fn mechanism(&self) -> Option<&str> {
        MECHANISM.iter().find_map(|name| self.values.get(*name)).map(String::as_str)
    }

    /// Checks that the mechanism of the login is built in: librdkafka itself reports an error only when it connects.
    pub fn check_login(&self) -> Result<(), Error> {
        let protocol = self.values.get("security.protocol").map_or("", String::as_str);
        let is_kerberos = self.mechanism().is_none_or(|mechanism| mechanism.eq_ignore_ascii_case(KERBEROS));
        if protocol.to_ascii_lowercase().starts_with("sasl") && is_kerberos {
            let what = "the login is by GSSAPI, librdkafka's default unless the kafka property sasl.mechanism is set";
            return Err(refused(format!("{what}: {NO_KERBEROS}")));
        }
        Ok(())
    }

    /// The bootstrap servers, separated by commas.
    pub fn bootstrap(&self) -> &str {
        let named = ["bootstrap.servers", "metadata.broker.list"].map(|name| self.values.get(name));
        named.into_iter().flatten().next_back().map_or("", String::as_str)
    }

    /// All properties, sorted by name. They are passed to librdkafka in this order, so that of several names of the
    /// same property the last one counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether the user set the property by this name.
    pub fn is_set_by_user(&self, name: &str) -> bool {
        self.user_names.contains(name)
    }

    /// The role of the client.
    pub fn role(&self) -> Role {
        self.role
    }

    /// `text` without the value of any property whose name says that it is secret.
    pub fn redact(&self, text: &str) -> String {
        let is_secret =
            |name: &str| ["password", "secret", "pem", "token", "jaas", "config"].iter().any(|s| name.contains(s));
        let values = self.values.iter().filter(|(name, value)| is_secret(name) && !value.is_empty());
        values.fold(text.to_owned(), |text, (_, value)| text.replace(value.as_str(), "***"))
    }

    fn milliseconds(&self, name: &str) -> Result<u64, Error> {
        let value = self.values.get(name).map_or("", String::as_str);
        value.parse().map_err(|_| refused(format!("the kafka property {name} must be a number of milliseconds")))
    }
}

/// Defaults, then the properties for all clients, then those for this role.
fn layered(
    defaults: &[&[(&str, &str)]],
    common: &BTreeMap<String, String>,
    own: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Error> {
    let mut values = BTreeMap::new();
    defaults.iter().for_each(|defaults| put_all(&mut values, defaults));
    for (name, value) in common.iter().chain(own) {
        if OWNED.contains(&name.as_str()) {
            return Err(refused(format!(
                "the kafka property {name} is ratchet's own: remove it from the configuration"
            )));
        }
        values.insert(name.clone(), value.clone());
    }
    if !values.contains_key("bootstrap.servers") && !values.contains_key("metadata.broker.list") {
        return Err(refused("no brokers are given: set kafka.bootstrap.servers in the configuration".to_owned()));
    }
    Ok(values)
}

fn user_names(common: &BTreeMap<String, String>, own: &BTreeMap<String, String>) -> Arc<BTreeSet<String>> {
    Arc::new(common.keys().chain(own.keys()).cloned().collect())
}

fn put_all(values: &mut BTreeMap<String, String>, pairs: &[(&str, &str)]) {
    values.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
}

fn refused(message: String) -> Error {
    Error::new(ErrorKind::Refused, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut values = BTreeMap::new();
        put_all(&mut values, &[("bootstrap.servers", "127.0.0.1:1")]);
        put_all(&mut values, pairs);
        values
    }

    fn message(result: Result<impl Sized, Error>) -> String {
        let error = result.err().unwrap();
        assert_eq!(error.kind, ErrorKind::Refused);
        error.message
    }

    #[test]
    fn properties_of_a_role_override_common_ones_and_these_override_defaults() {
        let own = map(&[("linger.ms", "7")]);
        let properties = Properties::producer(&map(&[("linger.ms", "6"), ("client.id", "me")]), &own).unwrap();
        assert_eq!(properties.values["linger.ms"], "7");
        assert_eq!(properties.values["client.id"], "me");
        assert_eq!(properties.values["batch.size"], "1000000");
    }

    #[test]
    fn duration_is_capped_only_if_longer() {
        let at_most = |given: &str| {
            let properties = Properties::consumer(&map(&[("socket.timeout.ms", given)]), &map(&[])).unwrap();
            properties.at_most("socket.timeout.ms", 5000).values["socket.timeout.ms"].clone()
        };
        assert_eq!([at_most("60000"), at_most("2000")], ["5000", "2000"]);
    }

    #[test]
    fn fetch_size_has_room_for_the_largest_record() {
        let fetch = |record_bytes| {
            let settings = Queues::default().of_member(record_bytes);
            settings.into_iter().find(|(name, _)| *name == "fetch.max.bytes").unwrap().1
        };
        assert_eq!([fetch(0), fetch(20_000_000)], ["4194304", "20000000"]);
    }

    #[test]
    fn delivery_timeout_stays_below_the_transaction_timeout() {
        let own = map(&[("transaction.timeout.ms", "5000")]);
        let properties = Properties::producer(&map(&[]), &own).unwrap();
        assert_eq!(properties.delivery_timeout_ms().unwrap(), 4000);
        let own = map(&[("delivery.timeout.ms", "3000")]);
        assert_eq!(Properties::producer(&map(&[]), &own).unwrap().delivery_timeout_ms().unwrap(), 3000);
    }

    #[test]
    fn owned_properties_are_rejected_by_name() {
        let error = message(Properties::consumer(&map(&[("group.id", "mine")]), &map(&[])));
        assert_eq!(error, "the kafka property group.id is ratchet's own: remove it from the configuration");
    }

    #[test]
    fn unknown_properties_and_bad_values_are_rejected_without_the_value() {
        let conf = |name: &str, value: &str| {
            Properties::consumer(&map(&[(name, value)]), &map(&[])).and_then(|properties| properties.to_conf())
        };
        assert!(message(conf("fetch.wait", "hunter2")).contains("fetch.wait"));
        let error = message(conf("security.protocol", "hunter2"));
        assert!(error.contains("security.protocol") && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn secrets_are_redacted_from_any_text() {
        let properties = Properties::consumer(&map(&[("sasl.password", "hunter2")]), &map(&[])).unwrap();
        assert_eq!(properties.redact("no such user: hunter2"), "no such user: ***");
    }

    #[test]
    fn missing_brokers_are_rejected() {
        let none = BTreeMap::new();
        assert!(message(Properties::consumer(&none, &none)).contains("kafka.bootstrap.servers"));
    }
}
