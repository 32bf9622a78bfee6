//! What the wire (ratchet's own client) does about each of librdkafka's properties.
//!
//! Every property that librdkafka documents in its `CONFIGURATION.md` is listed here once. Any other property, such as
//! one of a future librdkafka, is unknown to the wire.

/// What the wire does about a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// The wire applies the property.
    Applied,
    /// The wire supports only these values, with which it does what librdkafka does; and why no other value.
    Fixed(&'static [&'static str], &'static str),
    /// The property is irrelevant to the wire: comments in the table say why.
    Irrelevant,
    /// Only librdkafka supports the property, and why.
    Fallback(&'static str),
    /// With TLS only librdkafka supports the property, and why; without TLS librdkafka ignores it too.
    TlsFallback(&'static str),
}

use Class::{Applied, Fallback, Fixed, Irrelevant, TlsFallback};

const TRUE: &[&str] = &["true", "t", "1"];
const FALSE: &[&str] = &["false", "f", "0"];

/// The class of a property that librdkafka does not accept as text.
pub(super) const CODE_ONLY: Class = Fallback("it can only be set in code");

/// The names of one applied property, its key first; or the names of several properties of another class.
type Row = (&'static [&'static str], Class);

/// The properties.
pub(super) const ROWS: &[Row] = &[
    // Connections.
    (&["bootstrap.servers", "metadata.broker.list"], Applied),
    (&["client.id"], Applied),
    (&["socket.timeout.ms"], Applied),
    (&["socket.connection.setup.timeout.ms"], Applied),
    (&["reconnect.backoff.ms"], Applied),
    (&["reconnect.backoff.max.ms"], Applied),
    (&["receive.message.max.bytes"], Applied),
    (&["topic.metadata.refresh.interval.ms"], Applied),
    (&["metadata.max.age.ms"], Applied),
    (&["connections.max.idle.ms"], Applied),
    (&["socket.keepalive.enable"], Applied),
    (&["socket.nagle.disable"], Fixed(TRUE, "the wire never delays what it sends")),
    (&["socket.max.fails"], Fixed(&["1"], "the wire closes a connection whose request timed out")),
    (
        &["socket.send.buffer.bytes", "socket.receive.buffer.bytes"],
        Fixed(&["0"], "the wire leaves socket buffer sizes to the system"),
    ),
    (&["broker.address.family"], Applied),
    (&["client.dns.lookup"], Fixed(&["use_all_dns_ips"], "the wire does not look up canonical names")),
    (&["metadata.recovery.strategy"], Fixed(&["rebootstrap"], "the wire always falls back to the bootstrap servers")),
    (
        &["metadata.recovery.rebootstrap.trigger.ms"],
        Fixed(&["300000"], "the wire falls back to the bootstrap servers once no other broker can be reached"),
    ),
    (&["topic.metadata.refresh.sparse"], Fixed(TRUE, "the wire requests metadata of its own topics only")),
    (&["topic.metadata.refresh.fast.interval.ms"], Fallback("the wire looks for a new leader at its own intervals")),
    (&["topic.metadata.propagation.max.ms"], Fallback("the wire waits for new topics for a time of its own")),
    (&["topic.blacklist"], Fallback("the wire reads and writes every configured topic")),
    (&["api.version.request"], Fixed(TRUE, "the wire always asks brokers for their versions")),
    (&["api.version.request.timeout.ms"], Fallback("on the wire, socket.timeout.ms applies to all requests")),
    // For brokers from before 0.10, which have no transactions.
    (&["api.version.fallback.ms", "broker.version.fallback"], Irrelevant),
    // The wire looks host names up for each connection: its addresses are never older than librdkafka's.
    (&["broker.address.ttl"], Irrelevant),
    // Login and TLS.
    (&["security.protocol"], Applied),
    (&["sasl.mechanisms", "sasl.mechanism"], Applied),
    (&["sasl.username"], Applied),
    (&["sasl.password"], Applied),
    // How tokens for the login OAUTHBEARER are requested, for the wire and for librdkafka's clients alike, by way of
    // `oauth::Credentials`.
    (&["sasl.oauthbearer.method"], Applied),
    (&["sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"], Applied),
    (&["sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"], Applied),
    (&["sasl.oauthbearer.scope"], Applied),
    (&["sasl.oauthbearer.extensions"], Applied),
    (&["sasl.oauthbearer.token.endpoint.url"], Applied),
    (&["https.ca.location"], Applied),
    (&["https.ca.pem"], Applied),
    // If one of these requests tokens in another way, no client with this login starts: ratchet requests the tokens of
    // librdkafka's clients, too.
    (
        &[
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.jwt.template.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.private.key.pem",
            "sasl.oauthbearer.grant.type",
            "sasl.oauthbearer.metadata.authentication.type",
        ],
        Irrelevant,
    ),
    // For the login GSSAPI and for librdkafka's own unsecured tokens, with which all lanes use librdkafka anyway.
    (
        &[
            "enable.sasl.oauthbearer.unsecure.jwt",
            "sasl.kerberos.keytab",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.principal",
            "sasl.kerberos.service.name",
            "sasl.oauthbearer.config",
        ],
        Irrelevant,
    ),
    (&["ssl.ca.location"], Applied),
    (&["ssl.ca.pem"], Applied),
    (&["ssl.certificate.location"], Applied),
    (&["ssl.certificate.pem"], Applied),
    (&["ssl.key.location"], Applied),
    (&["ssl.key.pem"], Applied),
    (&["enable.ssl.certificate.verification"], Applied),
    (&["ssl.endpoint.identification.algorithm"], Applied),
    // A key that is not encrypted needs no password; an encrypted one is detected when it is read.
    (&["ssl.key.password"], Irrelevant),
    (&["ssl.keystore.location", "ssl.keystore.password"], TlsFallback("the wire does not read PKCS#12")),
    (&["ssl.crl.location"], TlsFallback("the wire does not support certificate revocation lists")),
    (
        &["ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list"],
        TlsFallback("it is in OpenSSL's syntax, and the wire does not use OpenSSL"),
    ),
    (
        &["ssl.engine.location", "ssl.engine.id", "ssl.providers"],
        TlsFallback("it is specific to OpenSSL, which the wire does not use"),
    ),
    // Only Windows has these stores.
    (&["ssl.ca.certificate.stores"], Irrelevant),
    // Reading.
    (&["fetch.wait.max.ms"], Applied),
    (&["fetch.min.bytes"], Applied),
    (&["fetch.max.bytes"], Applied),
    (&["fetch.message.max.bytes", "max.partition.fetch.bytes"], Applied),
    (&["fetch.error.backoff.ms"], Applied),
    (&["queued.max.messages.kbytes"], Applied),
    (&["check.crcs"], Applied),
    (&["client.rack"], Fallback("the wire reads from leaders only")),
    // How librdkafka's own queue is filled: the wire has none, and bounds its buffers in bytes.
    (&["queued.min.messages", "fetch.queue.backoff.ms"], Irrelevant),
    // Writing.
    (&["message.max.bytes"], Applied),
    (&["batch.size"], Applied),
    (&["batch.num.messages"], Applied),
    (&["linger.ms", "queue.buffering.max.ms"], Applied),
    (&["compression.codec", "compression.type"], Applied),
    (&["compression.level"], Applied),
    (&["max.in.flight.requests.per.connection", "max.in.flight"], Applied),
    (&["request.timeout.ms"], Applied),
    (&["message.timeout.ms", "delivery.timeout.ms"], Applied),
    (&["transaction.timeout.ms"], Applied),
    (&["queue.buffering.max.kbytes"], Applied),
    (&["retry.backoff.ms"], Applied),
    (&["retry.backoff.max.ms"], Applied),
    (
        &["message.send.max.retries", "retries"],
        Fixed(&["2147483647"], "the wire retries until delivery.timeout.ms is over"),
    ),
    (&["queue.buffering.backpressure.threshold"], Fixed(&["1"], "it must be 1 for exactly-once")),
    // For librdkafka's own queue and memory: the wire bounds its buffers in bytes, by queue.buffering.max.kbytes.
    (&["queue.buffering.max.messages", "message.copy.max.bytes"], Irrelevant),
    // A record's partition is always given.
    (&["partitioner", "sticky.partitioning.linger.ms"], Irrelevant),
    // Only ratchet sets these; the wire always behaves like this.
    (&["isolation.level"], Fixed(&["read_committed"], "the wire reads committed records only")),
    (&["enable.idempotence"], Fixed(TRUE, "the wire writes in transactions")),
    (&["acks", "request.required.acks"], Fixed(&["all", "-1"], "the wire writes in transactions")),
    (&["allow.auto.create.topics"], Fixed(FALSE, "the wire creates no topics")),
    (
        &[
            "auto.offset.reset",
            "delivery.report.only.error",
            "enable.gapless.guarantee",
            "enable.partition.eof",
            "enabled_events",
            "queuing.strategy",
            "transactional.id",
        ],
        Irrelevant,
    ),
    // Membership in the group and its offsets, for which librdkafka is used.
    (
        &[
            "auto.commit.enable",
            "auto.commit.interval.ms",
            "coordinator.query.interval.ms",
            "enable.auto.commit",
            "enable.auto.offset.store",
            "group.id",
            "group.instance.id",
            "group.protocol",
            "group.protocol.type",
            "group.remote.assignor",
            "heartbeat.interval.ms",
            "max.poll.interval.ms",
            "offset.store.method",
            "partition.assignment.strategy",
            "session.timeout.ms",
        ],
        Irrelevant,
    ),
    // librdkafka's own threads, logs, metrics and build.
    (
        &[
            "builtin.features",
            "debug",
            "enable.metrics.push",
            "enable.random.seed",
            "internal.termination.signal",
            "log.connection.close",
            "log.queue",
            "log.thread.name",
            "log_level",
            "statistics.interval.ms",
        ],
        Irrelevant,
    ),
    // Without effect in librdkafka, according to its documentation; or for its old consumers without groups, which are
    // not used here.
    (
        &[
            "consume.callback.max.messages",
            "offset.store.path",
            "offset.store.sync.interval.ms",
            "produce.offset.report",
            "reconnect.backoff.jitter.ms",
            "socket.blocking.max.ms",
            "topic.metadata.refresh.fast.cnt",
        ],
        Irrelevant,
    ),
    (&["plugin.library.paths", "interceptors"], Fallback("plug-ins work only with librdkafka")),
    // librdkafka accepts none of these as text.
    (
        &[
            "background_event_cb",
            "closesocket_cb",
            "connect_cb",
            "consume_cb",
            "default_topic_conf",
            "dr_cb",
            "dr_msg_cb",
            "error_cb",
            "log_cb",
            "msg_order_cmp",
            "oauthbearer_token_refresh_cb",
            "offset_commit_cb",
            "opaque",
            "open_cb",
            "partitioner_cb",
            "rebalance_cb",
            "resolve_cb",
            "socket_cb",
            "ssl.certificate.verify_cb",
            "ssl_ca",
            "ssl_certificate",
            "ssl_engine_callback_data",
            "ssl_key",
            "stats_cb",
            "throttle_cb",
        ],
        CODE_ONLY,
    ),
];

/// A property's key, by which its value is looked up, and its class. All names of an applied property have the same
/// key. `None` for an unknown property.
pub(super) fn look_up(name: &str) -> Option<(&'static str, Class)> {
    let (names, class) = ROWS.iter().find(|(names, _)| names.contains(&name))?;
    let same_name = names.iter().find(|other| **other == name);
    let key = if *class == Applied { names.first() } else { same_name };
    key.map(|key| (*key, *class))
}
