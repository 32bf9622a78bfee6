//! librdkafka's properties as the wire interprets them.
//!
//! Each property either acts on the wire too, has no bearing on it, or is supported by librdkafka only: always, with
//! some values, or with TLS. `table` says which. A property that is not set has librdkafka's default, except those
//! about librdkafka's inner workings (its pauses between attempts), for which the wire has its own.
//!
//! - `table`: every property and how it is treated; `values`: reads them; `hosts`: brokers' addresses
//!
//! **Failure**: the first property that only librdkafka supports, as it is set, is [`Unsupported`]. So is one with
//! which librdkafka itself does not start, such as a file that cannot be read: librdkafka then says so in its own
//! words. No value is ever shown except the names of mechanisms.

use std::sync::Arc;
use std::time::Duration;

use self::values::Values;
use super::super::epochs::UNKNOWN_MAX;
use super::super::properties::Properties;
use super::super::tls::{self, TlsProperties};
use super::super::unsupported::Unsupported;
use super::super::wire::brokers::Settings;
use super::super::wire::edge::{Family, SocketSettings};
use super::super::wire::fetcher::FetchSettings;
use super::super::wire::login::Login;
use super::super::wire::records::{Codec, Packer};
use super::super::wire::writer::WriteSettings;
use super::connecting::ClientSettings;
use super::network::Transport;
use super::trouble::Accepted;
use crate::cluster::MISSING_WAIT;
use crate::tls::Renewed;

mod hosts;
mod table;
#[cfg(test)]
mod tests;
mod values;

/// The shortest pause, where librdkafka would allow none.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The wire closes a connection that was idle for this long, whatever is set.
const IDLE_MS_MAX: i32 = 9 * 60 * 1000;
/// The longest response unless it is set (librdkafka's default).
const RESPONSE_BYTES_MAX: usize = 100_000_000;
/// The most bytes of a response besides its records: partitions, and the transactions that were aborted in them.
const RESPONSE_HEAD_BYTES: usize = 1 << 20;
/// The room that librdkafka requires for these.
const RESPONSE_HEAD_BYTES_MIN: usize = 512;
/// The fewest bytes that a record takes in a batch.
const RECORD_BYTES_MIN: usize = 7;
/// The most requests at once that still keep the order of records.
const IN_FLIGHT_MAX: usize = 5;

/// The settings of lanes on the wire.
pub(in super::super) struct Wired {
    /// A member's connections for reading.
    pub member: ClientSettings,
    /// How it reads.
    pub fetch: Arc<FetchSettings>,
    /// The connections of a changelog's reader.
    pub reader: ClientSettings,
    /// How the changelog's reader reads.
    pub reader_fetch: Arc<FetchSettings>,
    /// A producer's connections.
    pub producer: ClientSettings,
    /// How it writes.
    pub write: Arc<WriteSettings>,
    /// What the cluster has accepted before.
    pub accepted: Accepted,
}

/// The settings from these properties; `reader` holds the properties of librdkafka's readers.
///
/// # Errors
/// The first property that only librdkafka knows.
pub(in super::super) fn wire(
    member: &Properties,
    reader: &Properties,
    producer: &Properties,
) -> Result<Wired, Unsupported> {
    let accepted = Accepted::new(member.login());
    let [member, reader, producer] = [Values::new(member)?, Values::new(reader)?, Values::new(producer)?];
    let mut tls = Tls::default();
    let (of_member, fetch) = reading(&member, &mut tls)?;
    let (of_reader, reader_fetch) = reading(&reader, &mut tls)?;
    let (of_producer, write) = writing(&producer, &mut tls)?;
    Ok(Wired {
        member: of_member,
        fetch: Arc::new(fetch),
        reader: of_reader,
        reader_fetch: Arc::new(reader_fetch),
        producer: of_producer,
        write: Arc::new(write),
        accepted,
    })
}

/// The names of all properties that librdkafka accepts as text.
pub(in super::super) fn known_properties() -> impl Iterator<Item = &'static str> {
    table::ROWS.iter().filter(|(_, class)| *class != table::ONLY_PROGRAMS).flat_map(|(names, _)| names.iter().copied())
}

/// TLS, shared by clients whose properties are the same, so that authorities are read once.
#[derive(Default)]
struct Tls(Vec<(TlsProperties, Arc<Renewed<rustls::ClientConfig>>)>);

impl Tls {
    fn by(&mut self, properties: TlsProperties) -> Result<Arc<Renewed<rustls::ClientConfig>>, Unsupported> {
        if let Some((_, config)) = self.0.iter().find(|(known, _)| *known == properties) {
            return Ok(Arc::clone(config));
        }
        let config = tls::config(properties.clone())?;
        self.0.push((properties, Arc::clone(&config)));
        Ok(config)
    }
}

/// A client's connections. `timeout_ms` is a request's timeout, unless that is set; a response has room for `room`
/// bytes of records.
fn connecting(given: &Values<'_>, tls: &mut Tls, timeout_ms: u64, room: usize) -> Result<ClientSettings, Unsupported> {
    let protocols = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];
    let protocol = given.word("security.protocol", &protocols, "plaintext")?;
    let speaks_tls = protocol.ends_with("ssl");
    given.check(speaks_tls)?;
    let list = given.text("bootstrap.servers").unwrap_or_default();
    let bootstrap = hosts::addresses(list, protocol).map_err(|why| given.unsupported("bootstrap.servers", why))?;
    check_idle(given, list)?;
    let backoff = match given.text("reconnect.backoff.ms") {
        Some(_) => given.millis("reconnect.backoff.ms", 0)?,
        None => Settings::default().reconnect_backoff,
    };
    let backoff_max = given.millis("reconnect.backoff.max.ms", 10_000)?;
    if backoff_max < backoff {
        return Err(given.unsupported("reconnect.backoff.max.ms", "it is less than reconnect.backoff.ms"));
    }
    let brokers = Settings {
        client_id: given.text("client.id").unwrap_or("rdkafka").to_owned(),
        request_timeout: given.millis("socket.timeout.ms", timeout_ms)?,
        connect_timeout: given.millis("socket.connection.setup.timeout.ms", 30_000)?,
        reconnect_backoff: backoff.max(PAUSE_MIN),
        reconnect_backoff_max: backoff_max.max(PAUSE_MIN),
        response_bytes_max: response_bytes_max(given, room)?,
        metadata_max_age: metadata_max_age(given)?,
        login: if protocol.starts_with("sasl") { login(given)? } else { Login::None },
    };
    let tls = if speaks_tls { Some(tls.by(tls_properties(given)?)?) } else { None };
    let tokens = given.tokens().filter(|_| matches!(brokers.login, Login::OAuth(_))).cloned();
    let transport = Transport::Sockets { tls, settings: sockets(given)?, contact: Arc::clone(given.contact()) };
    Ok(ClientSettings { brokers: Arc::new(brokers), bootstrap, transport, tokens })
}

fn sockets(given: &Values<'_>) -> Result<SocketSettings, Unsupported> {
    let names = Family::NAMED.map(|(name, _)| name);
    let name = given.word("broker.address.family", &names, "any")?;
    let family = Family::NAMED.iter().find(|(of, _)| *of == name).map_or(Family::Any, |(_, family)| *family);
    Ok(SocketSettings { family, keepalive: given.flag("socket.keepalive.enable", false)? })
}

/// Azure silently drops idle connections after four minutes, so librdkafka closes them before that.
fn check_idle(given: &Values<'_>, brokers: &str) -> Result<(), Unsupported> {
    let key = "connections.max.idle.ms";
    let is_in_time = match given.text(key) {
        None => !brokers.to_ascii_lowercase().contains("azure"),
        Some(_) => given.number(key, 0).map(|ms| ms == 0 || ms >= IDLE_MS_MAX)?,
    };
    if is_in_time { Ok(()) } else { Err(given.unsupported(key, "the wire closes idle connections after nine minutes")) }
}

fn response_bytes_max(given: &Values<'_>, room: usize) -> Result<usize, Unsupported> {
    let key = "receive.message.max.bytes";
    let Some(_) = given.text(key) else { return Ok(RESPONSE_BYTES_MAX.max(room + RESPONSE_HEAD_BYTES)) };
    let most = given.count(key, 0)?;
    if most < room + RESPONSE_HEAD_BYTES_MIN && room > 0 {
        return Err(given.unsupported(key, "it is less than fetch.max.bytes plus the rest of a response"));
    }
    Ok(most)
}

/// librdkafka requests metadata at an interval, and forgets metadata older than three intervals.
fn metadata_max_age(given: &Values<'_>) -> Result<Duration, Unsupported> {
    let interval_ms = given.number("topic.metadata.refresh.interval.ms", 300_000)?;
    let interval = u64::try_from(interval_ms).ok().filter(|ms| *ms > 0);
    let age = given.millis("metadata.max.age.ms", interval.map_or(900_000, |ms| ms * 3))?;
    Ok(interval.map_or(age, |ms| age.min(Duration::from_millis(ms))))
}

fn login(given: &Values<'_>) -> Result<Login, Unsupported> {
    let key = "sasl.mechanisms";
    // An unknown mechanism may be any text, and is not shown.
    let sha512 = match given.text(key).unwrap_or("GSSAPI") {
        "PLAIN" => None,
        "SCRAM-SHA-256" => Some(false),
        "SCRAM-SHA-512" => Some(true),
        "GSSAPI" => return Err(given.unsupported(key, "the wire does not support the mechanism GSSAPI")),
        "OAUTHBEARER" => {
            let why = "on the wire, OAUTHBEARER needs sasl.oauthbearer.method=oidc";
            let tokens = given.tokens().ok_or_else(|| given.unsupported(key, why))?;
            return Ok(Login::OAuth(Arc::clone(tokens.tokens())));
        }
        _ => return Err(given.unsupported(key, "the wire does not support this mechanism")),
    };
    let part = |key| {
        let text = given.text(key).map(str::to_owned);
        text.ok_or_else(|| given.unsupported(key, "the login requires it, and it is not set"))
    };
    let (user, password) = (part("sasl.username")?, part("sasl.password")?);
    Ok(match sha512 {
        None => Login::Plain { user, password },
        Some(sha512) => Login::Scram { sha512, user, password },
    })
}

fn tls_properties(given: &Values<'_>) -> Result<TlsProperties, Unsupported> {
    let text = |key| given.text(key).map(str::to_owned);
    let key = "ssl.endpoint.identification.algorithm";
    Ok(TlsProperties {
        ca_location: text("ssl.ca.location"),
        ca_pem: text("ssl.ca.pem"),
        certificate_location: text("ssl.certificate.location"),
        certificate_pem: text("ssl.certificate.pem"),
        key_location: text("ssl.key.location"),
        key_pem: text("ssl.key.pem"),
        checks_certificate: given.flag("enable.ssl.certificate.verification", true)?,
        checks_name: given.word(key, &["https", "none"], "https")? == "https",
    })
}

/// The settings of a client that reads.
fn reading(given: &Values<'_>, tls: &mut Tls) -> Result<(ClientSettings, FetchSettings), Unsupported> {
    let own = FetchSettings::default();
    let record_bytes = given.count("message.max.bytes", 1_000_000)?;
    let max_bytes = given.count("fetch.max.bytes", record_bytes.max(50 << 20))?;
    if max_bytes < record_bytes {
        return Err(given.unsupported("fetch.max.bytes", "it is less than message.max.bytes"));
    }
    let client = connecting(given, tls, 60_000, max_bytes)?;
    let response = client.brokers.response_bytes_max;
    let batch_max = response - RESPONSE_HEAD_BYTES.min(response / 4);
    let bytes = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let backoff_max = given.millis("retry.backoff.max.ms", 1000)?.max(PAUSE_MIN);
    let backoff = match given.is_users("fetch.error.backoff.ms") {
        true => given.millis("fetch.error.backoff.ms", 0)?,
        false => own.backoff,
    };
    let fetch = FetchSettings {
        max_wait: given.millis("fetch.wait.max.ms", 500)?,
        min_bytes: given.number("fetch.min.bytes", 1)?,
        max_bytes: bytes(max_bytes.min(batch_max)),
        partition_max_bytes: bytes(given.count("fetch.message.max.bytes", 1 << 20)?.min(batch_max)),
        batch_max_bytes: bytes(batch_max),
        buffered_bytes_max: given.count("queued.max.messages.kbytes", 64 << 10)? << 10,
        check_crcs: given.flag("check.crcs", false)?,
        request_timeout: client.brokers.request_timeout,
        backoff: backoff.max(PAUSE_MIN),
        backoff_max: backoff_max.max(backoff),
        missing_wait: MISSING_WAIT,
        unknown_epoch_wait: UNKNOWN_MAX,
    };
    Ok((client, fetch))
}

/// The settings of a client that writes.
fn writing(given: &Values<'_>, tls: &mut Tls) -> Result<(ClientSettings, WriteSettings), Unsupported> {
    let own = WriteSettings::default();
    let transaction_timeout = given.millis("transaction.timeout.ms", 60_000)?;
    let transaction_ms = u64::try_from(transaction_timeout.as_millis()).unwrap_or(u64::MAX);
    let client = connecting(given, tls, transaction_ms.saturating_sub(100).max(900), 0)?;
    if client.brokers.request_timeout > transaction_timeout + Duration::from_millis(100) {
        return Err(given.unsupported("socket.timeout.ms", "it is more than transaction.timeout.ms"));
    }
    let linger = given.fine_millis("linger.ms", 5)?;
    let message_bytes_max = given.count("message.max.bytes", 1_000_000)?;
    let batch_bytes = given.count("batch.size", 1_000_000)?;
    check_batch_count(given, batch_bytes.min(message_bytes_max))?;
    let (codec, level) = codec(given)?;
    let retry_backoff = match given.is_users("retry.backoff.ms") {
        true => given.millis("retry.backoff.ms", 0)?.max(PAUSE_MIN),
        false => own.retry_backoff,
    };
    let retry_backoff_max = match given.is_users("retry.backoff.max.ms") {
        true => given.millis("retry.backoff.max.ms", 0)?,
        false => own.retry_backoff_max,
    };
    let buffered = given.text("queue.buffering.max.kbytes").map(|_| given.count("queue.buffering.max.kbytes", 0));
    let write = WriteSettings {
        transaction_timeout,
        delivery_timeout: delivery_timeout(given, transaction_timeout, linger)?,
        request_timeout: given.millis("request.timeout.ms", 30_000)?.min(client.brokers.request_timeout),
        linger,
        batch_bytes,
        request_bytes: own.request_bytes.min(message_bytes_max),
        in_flight_max: in_flight_max(given)?,
        codec,
        level,
        message_bytes_max,
        buffered_bytes_max: buffered.transpose()?.map_or(own.buffered_bytes_max, |kbytes| kbytes << 10),
        retry_backoff,
        retry_backoff_max: retry_backoff_max.max(retry_backoff),
        transactions: own.transactions,
    };
    Ok((client, write))
}

/// The wire does not count the records of a batch: a limit that no batch can reach is as good as none.
fn check_batch_count(given: &Values<'_>, batch_bytes: usize) -> Result<(), Unsupported> {
    let key = "batch.num.messages";
    match given.count(key, usize::MAX)?.saturating_mul(RECORD_BYTES_MIN) >= batch_bytes {
        true => Ok(()),
        false => Err(given.unsupported(key, "the wire limits batches by bytes, not by records")),
    }
}

fn codec(given: &Values<'_>) -> Result<(Codec, Option<i32>), Unsupported> {
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let codec = match given.word("compression.codec", &codecs, "none")? {
        "gzip" => Codec::Gzip,
        "snappy" => Codec::Snappy,
        "lz4" => Codec::Lz4,
        "zstd" => Codec::Zstd,
        _ => Codec::None,
    };
    let key = "compression.level";
    let level = Some(given.number(key, -1)?).filter(|level| *level != -1);
    match Packer::new(codec, level) {
        Ok(_) => Ok((codec, level)),
        Err(_) => Err(given.unsupported(key, "the wire does not support this level for compression.type")),
    }
}

fn in_flight_max(given: &Values<'_>) -> Result<usize, Unsupported> {
    let key = "max.in.flight.requests.per.connection";
    let most = given.count(key, IN_FLIGHT_MAX)?;
    if most > IN_FLIGHT_MAX { Err(given.unsupported(key, "exactly-once allows 5 at most")) } else { Ok(most) }
}

/// 0 means no separate limit: the transaction's applies.
fn delivery_timeout(given: &Values<'_>, transaction: Duration, linger: Duration) -> Result<Duration, Unsupported> {
    let key = "message.timeout.ms";
    match given.millis(key, 0)? {
        Duration::ZERO => Ok(transaction),
        timeout if timeout > transaction => Err(given.unsupported(key, "it is more than transaction.timeout.ms")),
        timeout if timeout <= linger => Err(given.unsupported(key, "it is not more than linger.ms")),
        timeout => Ok(timeout),
    }
}
