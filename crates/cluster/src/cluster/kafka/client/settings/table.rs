//! What the wire does about each of librdkafka's properties.
//!
//! Every property that librdkafka documents is here, once: see its `CONFIGURATION.md`. Any other, such as one of a
//! future librdkafka, is unknown to the wire.

/// What the wire does about a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// It is one of the wire's settings.
    Acts,
    /// It may have one of these values, with which the wire does what librdkafka does; and why no other.
    Fixed(&'static [&'static str], &'static str),
    /// It has no bearing on what the wire does: comments in the table say why.
    Elsewhere,
    /// Only librdkafka supports it, and why.
    Fallback(&'static str),
    /// The same with TLS; without TLS librdkafka ignores it as well.
    FallbackOfTls(&'static str),
}

use Class::{Acts, Elsewhere, Fallback, FallbackOfTls, Fixed};

const TRUE: &[&str] = &["true", "t", "1"];
const FALSE: &[&str] = &["false", "f", "0"];

/// The class of a property that librdkafka does not accept as text.
pub(super) const ONLY_PROGRAMS: Class = Fallback("it can only be set in code");

/// The names of one property that acts, its key first; or the names of several properties of another class.
type Row = (&'static [&'static str], Class);

/// The properties.
pub(super) const ROWS: &[Row] = &[
    // Connections.
    (&["bootstrap.servers", "metadata.broker.list"], Acts),
    (&["client.id"], Acts),
    (&["socket.timeout.ms"], Acts),
    (&["socket.connection.setup.timeout.ms"], Acts),
    (&["reconnect.backoff.ms"], Acts),
    (&["reconnect.backoff.max.ms"], Acts),
    (&["receive.message.max.bytes"], Acts),
    (&["topic.metadata.refresh.interval.ms"], Acts),
    (&["metadata.max.age.ms"], Acts),
    (&["connections.max.idle.ms"], Acts),
    (&["socket.keepalive.enable"], Acts),
    (&["socket.nagle.disable"], Fixed(TRUE, "the wire never delays what it sends")),
    (&["socket.max.fails"], Fixed(&["1"], "the wire closes a connection whose request timed out")),
    (
        &["socket.send.buffer.bytes", "socket.receive.buffer.bytes"],
        Fixed(&["0"], "the wire leaves socket buffer sizes to the system"),
    ),
    (&["broker.address.family"], Acts),
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
    (&["api.version.fallback.ms", "broker.version.fallback"], Elsewhere),
    // The wire looks names up for each connection: its knowledge of them is never older than librdkafka's.
    (&["broker.address.ttl"], Elsewhere),
    // Login and TLS.
    (&["security.protocol"], Acts),
    (&["sasl.mechanisms", "sasl.mechanism"], Acts),
    (&["sasl.username"], Acts),
    (&["sasl.password"], Acts),
    // How tokens for the login OAUTHBEARER are requested, for the wire and for librdkafka's clients alike, by way of
    // `oauth::Credentials`.
    (&["sasl.oauthbearer.method"], Acts),
    (&["sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id"], Acts),
    (&["sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"], Acts),
    (&["sasl.oauthbearer.scope"], Acts),
    (&["sasl.oauthbearer.extensions"], Acts),
    (&["sasl.oauthbearer.token.endpoint.url"], Acts),
    (&["https.ca.location"], Acts),
    (&["https.ca.pem"], Acts),
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
        Elsewhere,
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
        Elsewhere,
    ),
    (&["ssl.ca.location"], Acts),
    (&["ssl.ca.pem"], Acts),
    (&["ssl.certificate.location"], Acts),
    (&["ssl.certificate.pem"], Acts),
    (&["ssl.key.location"], Acts),
    (&["ssl.key.pem"], Acts),
    (&["enable.ssl.certificate.verification"], Acts),
    (&["ssl.endpoint.identification.algorithm"], Acts),
    // A key that is not encrypted needs no password; an encrypted one is detected when it is read.
    (&["ssl.key.password"], Elsewhere),
    (&["ssl.keystore.location", "ssl.keystore.password"], FallbackOfTls("the wire does not read PKCS#12")),
    (&["ssl.crl.location"], FallbackOfTls("the wire does not support certificate revocation lists")),
    (
        &["ssl.cipher.suites", "ssl.curves.list", "ssl.sigalgs.list"],
        FallbackOfTls("it is in OpenSSL's syntax, and the wire does not use OpenSSL"),
    ),
    (
        &["ssl.engine.location", "ssl.engine.id", "ssl.providers"],
        FallbackOfTls("it is specific to OpenSSL, which the wire does not use"),
    ),
    // Only Windows has these stores.
    (&["ssl.ca.certificate.stores"], Elsewhere),
    // Reading.
    (&["fetch.wait.max.ms"], Acts),
    (&["fetch.min.bytes"], Acts),
    (&["fetch.max.bytes"], Acts),
    (&["fetch.message.max.bytes", "max.partition.fetch.bytes"], Acts),
    (&["fetch.error.backoff.ms"], Acts),
    (&["queued.max.messages.kbytes"], Acts),
    (&["check.crcs"], Acts),
    (&["client.rack"], Fallback("the wire reads from leaders only")),
    // How librdkafka's own queue is filled: the wire has none, and bounds its buffers in bytes.
    (&["queued.min.messages", "fetch.queue.backoff.ms"], Elsewhere),
    // Writing.
    (&["message.max.bytes"], Acts),
    (&["batch.size"], Acts),
    (&["batch.num.messages"], Acts),
    (&["linger.ms", "queue.buffering.max.ms"], Acts),
    (&["compression.codec", "compression.type"], Acts),
    (&["compression.level"], Acts),
    (&["max.in.flight.requests.per.connection", "max.in.flight"], Acts),
    (&["request.timeout.ms"], Acts),
    (&["message.timeout.ms", "delivery.timeout.ms"], Acts),
    (&["transaction.timeout.ms"], Acts),
    (&["queue.buffering.max.kbytes"], Acts),
    (&["retry.backoff.ms"], Acts),
    (&["retry.backoff.max.ms"], Acts),
    (
        &["message.send.max.retries", "retries"],
        Fixed(&["2147483647"], "the wire retries until delivery.timeout.ms is over"),
    ),
    (&["queue.buffering.backpressure.threshold"], Fixed(&["1"], "it must be 1 for exactly-once")),
    // For librdkafka's own queue and memory: the wire bounds its buffers in bytes, by queue.buffering.max.kbytes.
    (&["queue.buffering.max.messages", "message.copy.max.bytes"], Elsewhere),
    // A record's partition is always given.
    (&["partitioner", "sticky.partitioning.linger.ms"], Elsewhere),
    // Set by ratchet only; the wire behaves like this anyway.
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
        Elsewhere,
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
        Elsewhere,
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
        Elsewhere,
    ),
    // Without effect in librdkafka, according to its documentation; or for its clients from before groups, which are
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
        Elsewhere,
    ),
    (&["plugin.library.paths", "interceptors"], Fallback("plug-ins work only with librdkafka")),
    // librdkafka accepts none of them as text.
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
        ONLY_PROGRAMS,
    ),
];

/// A property's key, by which its value is looked up, and its class. All names of a property that acts have the same
/// key. `None` for an unknown property.
pub(super) fn look_up(name: &str) -> Option<(&'static str, Class)> {
    let (names, class) = ROWS.iter().find(|(names, _)| names.contains(&name))?;
    let own = names.iter().find(|own| **own == name);
    let key = if *class == Acts { names.first() } else { own };
    key.map(|key| (*key, *class))
}
