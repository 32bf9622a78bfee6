//! librdkafka's properties as the wire (ratchet's own client) interprets them.
//!
//! Each property either applies to the wire too, is irrelevant to it, or is supported by librdkafka only: always, with
//! some values, or with TLS. `table` says which. A property that is not set has librdkafka's default, except properties
//! about librdkafka's inner workings (its backoffs), for which the wire has its own defaults.
//!
//! - `table`: every property and how it is treated; `values`: reads them; `hosts`: brokers' addresses
//!
//! **Failure**: the first property with a value that only librdkafka supports is reported as [`Unsupported`]. So is a
//! property with which librdkafka itself does not start, such as a file that cannot be read: librdkafka then reports
//! the error in its own words. No message contains a value, except the names of mechanisms.

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
use super::client_settings::ClientSettings;
use super::network::Transport;
use super::trouble::AcceptedLogins;
use crate::cluster::MISSING_WAIT;
use crate::tls::Renewed;

mod hosts;
mod table;
#[cfg(test)]
mod tests;
mod values;

/// The shortest backoff; librdkafka allows 0.
const BACKOFF_MIN: Duration = Duration::from_millis(1);
/// The wire closes a connection that was idle for this long; no property changes that.
const IDLE_MS_MAX: i32 = 9 * 60 * 1000;
/// The bytes of the longest response if `receive.message.max.bytes` is not set (librdkafka's default).
const RESPONSE_BYTES_MAX: usize = 100_000_000;
/// The most bytes of a response besides its records: its partitions, and the transactions that were aborted in them.
const RESPONSE_HEAD_BYTES: usize = 1 << 20;
/// The fewest bytes that librdkafka requires to be left for that part of a response.
const RESPONSE_HEAD_BYTES_MIN: usize = 512;
/// The fewest bytes that a record takes in a batch.
const RECORD_BYTES_MIN: usize = 7;
/// The most pending requests with which the order of records is kept.
const IN_FLIGHT_MAX: usize = 5;

/// The settings of lanes on the wire.
pub(in super::super) struct WireSettings {
    /// A member's connections for reading.
    pub member: ClientSettings,
    /// How a member reads.
    pub fetch: Arc<FetchSettings>,
    /// The connections of a changelog's reader.
    pub reader: ClientSettings,
    /// How the changelog's reader reads.
    pub reader_fetch: Arc<FetchSettings>,
    /// A producer's connections.
    pub producer: ClientSettings,
    /// How a producer writes.
    pub write: Arc<WriteSettings>,
    /// The logins that the cluster has accepted before.
    pub accepted: AcceptedLogins,
}

/// The settings from the properties of a member, a changelog's reader and a producer. `reader` includes the properties
/// that only the reader's librdkafka client needs.
///
/// # Errors
/// The first property that only librdkafka supports.
pub(in super::super) fn wire_settings(
    member: &Properties,
    reader: &Properties,
    producer: &Properties,
) -> Result<WireSettings, Unsupported> {
    let accepted = AcceptedLogins::new(member.login());
    let [member, reader, producer] = [Values::new(member)?, Values::new(reader)?, Values::new(producer)?];
    let mut tls = Tls::default();
    let (member_client, fetch) = fetch_client_settings(&member, &mut tls)?;
    let (reader_client, reader_fetch) = fetch_client_settings(&reader, &mut tls)?;
    let (producer_client, write) = producer_client_settings(&producer, &mut tls)?;
    Ok(WireSettings {
        member: member_client,
        fetch: Arc::new(fetch),
        reader: reader_client,
        reader_fetch: Arc::new(reader_fetch),
        producer: producer_client,
        write: Arc::new(write),
        accepted,
    })
}

/// The names of all properties that librdkafka accepts as text.
pub(in super::super) fn known_properties() -> impl Iterator<Item = &'static str> {
    table::ROWS.iter().filter(|(_, class)| *class != table::CODE_ONLY).flat_map(|(names, _)| names.iter().copied())
}

/// The TLS configurations, shared by clients with the same properties, so that authorities are read once.
#[derive(Default)]
struct Tls(Vec<(TlsProperties, Arc<Renewed<rustls::ClientConfig>>)>);

impl Tls {
    fn config_for(&mut self, properties: TlsProperties) -> Result<Arc<Renewed<rustls::ClientConfig>>, Unsupported> {
        if let Some((_, config)) = self.0.iter().find(|(known, _)| *known == properties) {
            return Ok(Arc::clone(config));
        }
        let config = tls::config(properties.clone())?;
        self.0.push((properties, Arc::clone(&config)));
        Ok(config)
    }
}

/// The settings of a client's connections. `timeout_ms` is the default timeout of a request. A response must have room
/// for `records_bytes` bytes of records, which is 0 for a client that does not fetch.
fn client_settings(
    values: &Values<'_>,
    tls: &mut Tls,
    timeout_ms: u64,
    records_bytes: usize,
) -> Result<ClientSettings, Unsupported> {
    let protocols = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];
    let protocol = values.word("security.protocol", &protocols, "plaintext")?;
    let speaks_tls = protocol.ends_with("ssl");
    values.check(speaks_tls)?;
    let addresses = values.text("bootstrap.servers").unwrap_or_default();
    let bootstrap =
        hosts::addresses(addresses, protocol).map_err(|why| values.unsupported("bootstrap.servers", why))?;
    check_idle(values, addresses)?;
    let backoff = match values.text("reconnect.backoff.ms") {
        Some(_) => values.millis("reconnect.backoff.ms", 0)?,
        None => Settings::default().reconnect_backoff,
    };
    let backoff_max = values.millis("reconnect.backoff.max.ms", 10_000)?;
    if backoff_max < backoff {
        return Err(values.unsupported("reconnect.backoff.max.ms", "it is less than reconnect.backoff.ms"));
    }
    let brokers = Settings {
        client_id: values.text("client.id").unwrap_or("rdkafka").to_owned(),
        request_timeout: values.millis("socket.timeout.ms", timeout_ms)?,
        connect_timeout: values.millis("socket.connection.setup.timeout.ms", 30_000)?,
        reconnect_backoff: backoff.max(BACKOFF_MIN),
        reconnect_backoff_max: backoff_max.max(BACKOFF_MIN),
        response_bytes_max: response_bytes_max(values, records_bytes)?,
        metadata_max_age: metadata_max_age(values)?,
        login: if protocol.starts_with("sasl") { login(values)? } else { Login::None },
    };
    let tls = if speaks_tls { Some(tls.config_for(tls_properties(values)?)?) } else { None };
    let token_source = values.token_source().filter(|_| matches!(brokers.login, Login::OAuth(_))).cloned();
    let transport =
        Transport::Sockets { tls, settings: socket_settings(values)?, contact: Arc::clone(values.contact()) };
    Ok(ClientSettings { brokers: Arc::new(brokers), bootstrap, transport, token_source })
}

fn socket_settings(values: &Values<'_>) -> Result<SocketSettings, Unsupported> {
    let names = Family::NAMED.map(|(name, _)| name);
    let name = values.word("broker.address.family", &names, "any")?;
    let family = Family::NAMED.iter().find(|(known, _)| *known == name).map_or(Family::Any, |(_, family)| *family);
    Ok(SocketSettings { family, keepalive: values.flag("socket.keepalive.enable", false)? })
}

/// Checks that the wire closes idle connections no later than the properties require. If the property is not set,
/// librdkafka closes idle connections to Azure before four minutes have passed, as Azure drops them silently after
/// that.
fn check_idle(values: &Values<'_>, addresses: &str) -> Result<(), Unsupported> {
    let key = "connections.max.idle.ms";
    let closes_early_enough = match values.text(key) {
        None => !addresses.to_ascii_lowercase().contains("azure"),
        Some(_) => values.number(key, 0).map(|ms| ms == 0 || ms >= IDLE_MS_MAX)?,
    };
    if closes_early_enough {
        Ok(())
    } else {
        Err(values.unsupported(key, "the wire closes idle connections after nine minutes"))
    }
}

fn response_bytes_max(values: &Values<'_>, records_bytes: usize) -> Result<usize, Unsupported> {
    let key = "receive.message.max.bytes";
    let Some(_) = values.text(key) else { return Ok(RESPONSE_BYTES_MAX.max(records_bytes + RESPONSE_HEAD_BYTES)) };
    let limit = values.count(key, 0)?;
    if limit < records_bytes + RESPONSE_HEAD_BYTES_MIN && records_bytes > 0 {
        return Err(
            values.unsupported(key, "it is less than fetch.max.bytes plus 512 bytes for the rest of a response")
        );
    }
    Ok(limit)
}

/// The age at which the wire requests metadata again. librdkafka requests metadata at an interval, and forgets metadata
/// that is older than `metadata.max.age.ms` (by default, three intervals): the wire uses the shorter time.
fn metadata_max_age(values: &Values<'_>) -> Result<Duration, Unsupported> {
    let interval_ms = values.number("topic.metadata.refresh.interval.ms", 300_000)?;
    let interval = u64::try_from(interval_ms).ok().filter(|ms| *ms > 0);
    let age = values.millis("metadata.max.age.ms", interval.map_or(900_000, |ms| ms * 3))?;
    Ok(interval.map_or(age, |ms| age.min(Duration::from_millis(ms))))
}

fn login(values: &Values<'_>) -> Result<Login, Unsupported> {
    let key = "sasl.mechanisms";
    // The name of an unknown mechanism is not shown: it may be any text.
    let sha512 = match values.text(key).unwrap_or("GSSAPI") {
        "PLAIN" => None,
        "SCRAM-SHA-256" => Some(false),
        "SCRAM-SHA-512" => Some(true),
        "GSSAPI" => return Err(values.unsupported(key, "the wire does not support the mechanism GSSAPI")),
        "OAUTHBEARER" => {
            let why = "on the wire, OAUTHBEARER needs sasl.oauthbearer.method=oidc";
            let token_source = values.token_source().ok_or_else(|| values.unsupported(key, why))?;
            return Ok(Login::OAuth(Arc::clone(token_source.tokens())));
        }
        _ => return Err(values.unsupported(key, "the wire does not support this mechanism")),
    };
    let part = |key| {
        let text = values.text(key).map(str::to_owned);
        text.ok_or_else(|| values.unsupported(key, "the login requires it, and it is not set"))
    };
    let (user, password) = (part("sasl.username")?, part("sasl.password")?);
    Ok(match sha512 {
        None => Login::Plain { user, password },
        Some(sha512) => Login::Scram { sha512, user, password },
    })
}

fn tls_properties(values: &Values<'_>) -> Result<TlsProperties, Unsupported> {
    let text = |key| values.text(key).map(str::to_owned);
    let key = "ssl.endpoint.identification.algorithm";
    Ok(TlsProperties {
        ca_location: text("ssl.ca.location"),
        ca_pem: text("ssl.ca.pem"),
        certificate_location: text("ssl.certificate.location"),
        certificate_pem: text("ssl.certificate.pem"),
        key_location: text("ssl.key.location"),
        key_pem: text("ssl.key.pem"),
        checks_certificate: values.flag("enable.ssl.certificate.verification", true)?,
        checks_name: values.word(key, &["https", "none"], "https")? == "https",
    })
}

/// The settings of a client that reads: a member's or a reader's.
fn fetch_client_settings(values: &Values<'_>, tls: &mut Tls) -> Result<(ClientSettings, FetchSettings), Unsupported> {
    let defaults = FetchSettings::default();
    let record_bytes = values.count("message.max.bytes", 1_000_000)?;
    let max_bytes = values.count("fetch.max.bytes", record_bytes.max(50 << 20))?;
    if max_bytes < record_bytes {
        return Err(values.unsupported("fetch.max.bytes", "it is less than message.max.bytes"));
    }
    let client = client_settings(values, tls, 60_000, max_bytes)?;
    let response_bytes_max = client.brokers.response_bytes_max;
    let batch_bytes_max = response_bytes_max - RESPONSE_HEAD_BYTES.min(response_bytes_max / 4);
    let as_i32 = |bytes: usize| i32::try_from(bytes).unwrap_or(i32::MAX);
    let backoff_max = values.millis("retry.backoff.max.ms", 1000)?.max(BACKOFF_MIN);
    let backoff = match values.is_set_by_user("fetch.error.backoff.ms") {
        true => values.millis("fetch.error.backoff.ms", 0)?,
        false => defaults.backoff,
    };
    let fetch = FetchSettings {
        max_wait: values.millis("fetch.wait.max.ms", 500)?,
        min_bytes: values.number("fetch.min.bytes", 1)?,
        max_bytes: as_i32(max_bytes.min(batch_bytes_max)),
        partition_max_bytes: as_i32(values.count("fetch.message.max.bytes", 1 << 20)?.min(batch_bytes_max)),
        batch_max_bytes: as_i32(batch_bytes_max),
        buffered_bytes_max: values.count("queued.max.messages.kbytes", 64 << 10)? << 10,
        check_crcs: values.flag("check.crcs", false)?,
        request_timeout: client.brokers.request_timeout,
        backoff: backoff.max(BACKOFF_MIN),
        backoff_max: backoff_max.max(backoff),
        missing_wait: MISSING_WAIT,
        unknown_epoch_wait: UNKNOWN_MAX,
    };
    Ok((client, fetch))
}

/// The settings of a producer's client.
fn producer_client_settings(
    values: &Values<'_>,
    tls: &mut Tls,
) -> Result<(ClientSettings, WriteSettings), Unsupported> {
    let defaults = WriteSettings::default();
    let transaction_timeout = values.millis("transaction.timeout.ms", 60_000)?;
    let transaction_ms = u64::try_from(transaction_timeout.as_millis()).unwrap_or(u64::MAX);
    // The default of socket.timeout.ms, and its bound below, are librdkafka's for a transactional producer.
    let client = client_settings(values, tls, transaction_ms.saturating_sub(100).max(900), 0)?;
    if client.brokers.request_timeout > transaction_timeout + Duration::from_millis(100) {
        return Err(values.unsupported("socket.timeout.ms", "it is more than transaction.timeout.ms"));
    }
    let linger = values.fractional_millis("linger.ms", 5)?;
    let message_bytes_max = values.count("message.max.bytes", 1_000_000)?;
    let batch_bytes = values.count("batch.size", 1_000_000)?;
    check_batch_count(values, batch_bytes.min(message_bytes_max))?;
    let (codec, level) = codec(values)?;
    let retry_backoff = match values.is_set_by_user("retry.backoff.ms") {
        true => values.millis("retry.backoff.ms", 0)?.max(BACKOFF_MIN),
        false => defaults.retry_backoff,
    };
    let retry_backoff_max = match values.is_set_by_user("retry.backoff.max.ms") {
        true => values.millis("retry.backoff.max.ms", 0)?,
        false => defaults.retry_backoff_max,
    };
    let buffered = values.text("queue.buffering.max.kbytes").map(|_| values.count("queue.buffering.max.kbytes", 0));
    let write = WriteSettings {
        transaction_timeout,
        delivery_timeout: delivery_timeout(values, transaction_timeout, linger)?,
        request_timeout: values.millis("request.timeout.ms", 30_000)?.min(client.brokers.request_timeout),
        linger,
        batch_bytes,
        request_bytes: defaults.request_bytes.min(message_bytes_max),
        in_flight_max: in_flight_max(values)?,
        codec,
        level,
        message_bytes_max,
        buffered_bytes_max: buffered.transpose()?.map_or(defaults.buffered_bytes_max, |kbytes| kbytes << 10),
        retry_backoff,
        retry_backoff_max: retry_backoff_max.max(retry_backoff),
        transactions: defaults.transactions,
    };
    Ok((client, write))
}

/// The wire does not limit the number of records in a batch: only a limit that no batch can reach is supported.
fn check_batch_count(values: &Values<'_>, batch_bytes: usize) -> Result<(), Unsupported> {
    let key = "batch.num.messages";
    match values.count(key, usize::MAX)?.saturating_mul(RECORD_BYTES_MIN) >= batch_bytes {
        true => Ok(()),
        false => Err(values.unsupported(key, "the wire limits batches by bytes, not by records")),
    }
}

fn codec(values: &Values<'_>) -> Result<(Codec, Option<i32>), Unsupported> {
    let codecs = ["none", "gzip", "snappy", "lz4", "zstd"];
    let codec = match values.word("compression.codec", &codecs, "none")? {
        "gzip" => Codec::Gzip,
        "snappy" => Codec::Snappy,
        "lz4" => Codec::Lz4,
        "zstd" => Codec::Zstd,
        _ => Codec::None,
    };
    let key = "compression.level";
    let level = Some(values.number(key, -1)?).filter(|level| *level != -1);
    match Packer::new(codec, level) {
        Ok(_) => Ok((codec, level)),
        Err(_) => Err(values.unsupported(key, "the wire does not support this level for this codec")),
    }
}

fn in_flight_max(values: &Values<'_>) -> Result<usize, Unsupported> {
    let key = "max.in.flight.requests.per.connection";
    let limit = values.count(key, IN_FLIGHT_MAX)?;
    if limit > IN_FLIGHT_MAX { Err(values.unsupported(key, "exactly-once allows 5 at most")) } else { Ok(limit) }
}

/// The delivery timeout: the transaction's timeout if the property is 0 or not set.
fn delivery_timeout(
    values: &Values<'_>,
    transaction_timeout: Duration,
    linger: Duration,
) -> Result<Duration, Unsupported> {
    let key = "message.timeout.ms";
    match values.millis(key, 0)? {
        Duration::ZERO => Ok(transaction_timeout),
        timeout if timeout > transaction_timeout => {
            Err(values.unsupported(key, "it is more than transaction.timeout.ms"))
        }
        timeout if timeout <= linger => Err(values.unsupported(key, "it is not more than linger.ms")),
        timeout => Ok(timeout),
    }
}
