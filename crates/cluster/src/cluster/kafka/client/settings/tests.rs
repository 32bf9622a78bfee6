//! Each property is known to librdkafka, and each applied property changes a setting.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::native::takes;
use super::super::super::oauth::Credentials;
use super::super::super::properties::OWNED;
use super::super::super::reader::with_eof_events;
use super::table::{Class, ROWS, look_up};
use super::*;
use crate::cluster::Queues;

/// The properties that are set besides the tested one: a login and TLS, so that their properties can be tested.
const BASE: &[(&str, &str)] = &[
    ("bootstrap.servers", "a:1"),
    ("security.protocol", "sasl_ssl"),
    ("sasl.mechanism", "SCRAM-SHA-256"),
    ("sasl.username", "me"),
    ("sasl.password", "hunter2"),
    ("enable.ssl.certificate.verification", "false"),
];

/// The same with the login OAUTHBEARER.
const OAUTH: &[(&str, &str)] = &[
    ("bootstrap.servers", "a:1"),
    ("security.protocol", "sasl_plaintext"),
    ("sasl.mechanism", "OAUTHBEARER"),
    ("sasl.oauthbearer.method", "oidc"),
    ("sasl.oauthbearer.client.id", "me"),
    ("sasl.oauthbearer.client.secret", "hunter2"),
    ("sasl.oauthbearer.token.endpoint.url", "http://b/"),
];

fn read_all(set: &[(&str, &str)]) -> Result<WireSettings, Unsupported> {
    let all: BTreeMap<String, String> =
        set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let none = BTreeMap::new();
    // As `Kafka::within` does.
    let consumer = |queue: Vec<(&'static str, String)>| {
        let new = queue.into_iter().filter(|(name, _)| !all.contains_key(*name));
        new.fold(Properties::consumer(&all, &none).unwrap(), |properties, (name, value)| properties.with(name, &value))
    };
    let record_bytes = all.get("message.max.bytes").map_or(0, |bytes| bytes.parse().unwrap());
    let queues = Queues::default();
    let [member, reader] = [queues.of_member(record_bytes), queues.of_reader(record_bytes)].map(consumer);
    let producer = Properties::producer(&all, &none).unwrap();
    let (reader, producer) = (reader.sharing(&member), producer.sharing(&member));
    for properties in [&member, &reader, &producer] {
        properties.to_conf().unwrap();
    }
    wire_settings(&member, &with_eof_events(&reader), &producer)
}

/// The settings with these properties besides the bootstrap address.
fn plain(set: &[(&str, &str)]) -> Result<WireSettings, Unsupported> {
    read_all(&[&[("bootstrap.servers", "a:1")], set].concat())
}

fn refusal(set: &[(&str, &str)]) -> String {
    plain(set).err().unwrap().to_string()
}

fn sockets(client: &ClientSettings) -> SocketSettings {
    let Transport::Sockets { settings, .. } = &client.transport else { panic!("it is simulated") };
    *settings
}

fn tls(client: &ClientSettings) -> Option<&Arc<crate::tls::Renewed<rustls::ClientConfig>>> {
    let Transport::Sockets { tls, .. } = &client.transport else { panic!("it is simulated") };
    tls.as_ref()
}

/// All settings as text, including passwords, which `Debug` does not show.
fn all_as_text(outcome: &Result<WireSettings, Unsupported>) -> String {
    let settings = match outcome {
        Ok(settings) => settings,
        Err(unsupported) => return unsupported.to_string(),
    };
    let client = |client: &ClientSettings| {
        let password = match &client.brokers.login {
            Login::None | Login::OAuth(_) | Login::Bearer(_) => "",
            Login::Plain { password, .. } | Login::Scram { password, .. } => password,
        };
        let credentials = client.token_source.as_ref().map(|source| {
            let Credentials { client_id, client_secret, scope, extensions, url, .. } = source.credentials();
            format!("{client_id} {client_secret} {scope:?} {extensions:?} {url}")
        });
        format!(
            "{:?} {:?} {:?} {:?} {password} {credentials:?}",
            client.brokers,
            client.bootstrap,
            sockets(client),
            tls(client).map(|tls| tls.current().unwrap().alpn_protocols.clone())
        )
    };
    let clients = [&settings.member, &settings.reader, &settings.producer].map(client);
    format!("{clients:?} {:?} {:?} {:?}", settings.fetch, settings.reader_fetch, settings.write)
}

#[test]
fn each_property_is_classified_once_and_known_to_librdkafka() {
    let mut seen = BTreeSet::new();
    for name in ROWS.iter().flat_map(|(names, _)| *names) {
        assert!(seen.insert(*name), "{name} is listed twice");
        // Most properties do not accept this value, and the error says so.
        let error = takes(name, "?").err().map(|error| error.message).unwrap_or_default();
        assert!(!error.contains("librdkafka knows"), "{name}: {error}");
    }
    for name in OWNED {
        let (_, class) = look_up(name).unwrap();
        assert!(matches!(class, Class::Fixed(..) | Class::Irrelevant), "{name} is ratchet's own");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn every_applied_property_changes_a_setting() {
    let samples: &[(&str, &str)] = &[
        ("batch.num.messages", "100"),
        ("batch.size", "70000"),
        ("bootstrap.servers", "b"),
        ("broker.address.family", "v6"),
        ("check.crcs", "false"),
        ("client.id", "mine"),
        ("compression.codec", "zstd"),
        ("compression.level", "7"),
        ("compression.type", "gzip"),
        ("connections.max.idle.ms", "180000"),
        ("delivery.timeout.ms", "2000"),
        ("enable.ssl.certificate.verification", "true"),
        ("fetch.error.backoff.ms", "7"),
        ("fetch.max.bytes", "3000000"),
        ("fetch.message.max.bytes", "70000"),
        ("fetch.min.bytes", "7"),
        ("fetch.wait.max.ms", "77"),
        ("https.ca.location", "/nowhere"),
        ("https.ca.pem", "?"),
        ("linger.ms", "0.5"),
        ("max.in.flight", "1"),
        ("max.in.flight.requests.per.connection", "2"),
        ("max.partition.fetch.bytes", "70001"),
        ("message.max.bytes", "2000000"),
        ("message.timeout.ms", "1500"),
        ("metadata.broker.list", "c:2"),
        ("metadata.max.age.ms", "7000"),
        ("queue.buffering.max.kbytes", "700"),
        ("queue.buffering.max.ms", "3"),
        ("queued.max.messages.kbytes", "777"),
        ("receive.message.max.bytes", "70000000"),
        ("reconnect.backoff.max.ms", "700"),
        ("reconnect.backoff.ms", "70"),
        ("request.timeout.ms", "700"),
        ("retry.backoff.max.ms", "70"),
        ("retry.backoff.ms", "7"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.mechanisms", "SCRAM-SHA-512"),
        ("sasl.oauthbearer.client.credentials.client.id", "you"),
        ("sasl.oauthbearer.client.credentials.client.secret", "other"),
        ("sasl.oauthbearer.client.id", "you"),
        ("sasl.oauthbearer.client.secret", "other"),
        ("sasl.oauthbearer.extensions", "a=b"),
        ("sasl.oauthbearer.method", "default"),
        ("sasl.oauthbearer.scope", "other"),
        ("sasl.oauthbearer.token.endpoint.url", "http://c/"),
        ("sasl.password", "other"),
        ("sasl.username", "you"),
        ("security.protocol", "sasl_plaintext"),
        ("socket.connection.setup.timeout.ms", "7000"),
        ("socket.keepalive.enable", "true"),
        ("socket.timeout.ms", "7000"),
        ("ssl.ca.location", "/nowhere"),
        ("ssl.ca.pem", "?"),
        ("ssl.certificate.location", "/nowhere"),
        ("ssl.certificate.pem", "?"),
        ("ssl.endpoint.identification.algorithm", "none"),
        ("ssl.key.location", "/nowhere"),
        ("ssl.key.pem", "?"),
        ("topic.metadata.refresh.interval.ms", "70000"),
        ("transaction.timeout.ms", "20000"),
    ];
    let applied = ROWS.iter().filter(|(_, class)| *class == Class::Applied).flat_map(|(names, _)| *names);
    let applied: BTreeSet<&str> = applied.copied().collect();
    assert_eq!(samples.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(), applied);
    // Properties of certificates are only read with certificates; the tests of `tls` and `oauth` cover them.
    let of_tls =
        |name: &str| ["ssl.", "https.", "enable.ssl.certificate"].iter().any(|prefix| name.starts_with(prefix));
    let of_tokens = |name: &str| name.starts_with("sasl.oauthbearer.");
    let before = all_as_text(&read_all(BASE));
    for (name, value) in samples.iter().filter(|(name, _)| !of_tls(name) && !of_tokens(name)) {
        let base = if *name == "compression.level" { ("compression.type", "gzip") } else { ("client.id", "ratchet") };
        let before = if *name == "compression.level" {
            all_as_text(&read_all(&[BASE, &[base]].concat()))
        } else {
            before.clone()
        };
        let outcome = read_all(&[BASE, &[base, (name, value)]].concat());
        // These properties apply by ruling out some values, with which librdkafka is needed.
        let rules_out = ["batch.num.messages", "connections.max.idle.ms"].contains(name);
        assert_eq!(outcome.is_err(), rules_out, "{name}");
        assert_ne!(all_as_text(&outcome), before, "{name}");
    }
    let before = all_as_text(&read_all(OAUTH));
    for (name, value) in samples.iter().filter(|(name, _)| of_tokens(name) && *name != "sasl.oauthbearer.method") {
        // Of two names of a property the last one counts.
        let usual = name.replace(".credentials.client.", ".");
        let others: Vec<_> = OAUTH.iter().filter(|(other, _)| *other != usual).copied().collect();
        assert_ne!(all_as_text(&read_all(&[&others[..], &[(name, value)]].concat())), before, "{name}");
    }
}

#[test]
fn clients_with_the_same_credentials_have_one_source_of_tokens() {
    let found = read_all(OAUTH).unwrap();
    let [member, reader, producer] =
        [found.member, found.reader, found.producer].map(|client| client.token_source.unwrap());
    assert!(Arc::ptr_eq(&member, &reader) && Arc::ptr_eq(&member, &producer));
    // Without this login there is no source, even if its other properties are set.
    let others = read_all(&[OAUTH, &[("security.protocol", "plaintext")]].concat()).unwrap();
    assert!(others.member.token_source.is_none() && matches!(others.member.brokers.login, Login::None));
    let named = |set: &[(&str, &str)]| {
        let all: BTreeMap<String, String> =
            set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Properties::producer(&all, &BTreeMap::new()).unwrap()
    };
    let own = named(&[OAUTH, &[("sasl.oauthbearer.scope", "write")]].concat()).sharing(&named(OAUTH));
    assert_eq!(own.token_source().unwrap().credentials().scope.as_deref(), Some("write"));
}

#[test]
fn tls_receives_its_properties() {
    let given = |set: &[(&str, &str)]| {
        let all: BTreeMap<String, String> =
            set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let properties = Properties::consumer(&all, &BTreeMap::new()).unwrap();
        tls_properties(&Values::new(&properties).unwrap()).unwrap()
    };
    let base = [("bootstrap.servers", "a:1")];
    let texts = |tls: &TlsProperties| {
        let TlsProperties { ca_location, ca_pem, certificate_location, certificate_pem, key_location, key_pem, .. } =
            tls.clone();
        [ca_location, ca_pem, certificate_location, certificate_pem, key_location, key_pem]
    };
    let names = ["ca.location", "ca.pem", "certificate.location", "certificate.pem", "key.location", "key.pem"];
    for (place, name) in names.iter().enumerate() {
        let found = texts(&given(&[&base[..], &[(&format!("ssl.{name}"), "x")]].concat()));
        let found: Vec<usize> = (0..found.len()).filter(|at| found[*at].as_deref() == Some("x")).collect();
        assert_eq!(found, [place], "{name}");
    }
    let checks = |name: &str, value: &str| {
        let tls = given(&[&base[..], &[(name, value)]].concat());
        [tls.checks_certificate, tls.checks_name]
    };
    assert_eq!(checks("client.id", "x"), [true, true]);
    assert_eq!(checks("enable.ssl.certificate.verification", "F"), [false, true]);
    assert_eq!(checks("ssl.endpoint.identification.algorithm", "None"), [true, false]);
}

#[test]
fn unset_properties_have_the_values_of_librdkafkas_clients() {
    let settings = plain(&[]).unwrap();
    assert_eq!(settings.member.brokers.client_id, "ratchet");
    assert_eq!(settings.member.brokers.request_timeout, Duration::from_secs(10));
    assert_eq!(settings.member.brokers.connect_timeout, Duration::from_secs(30));
    assert_eq!(settings.member.brokers.metadata_max_age, Duration::from_secs(300));
    assert_eq!(settings.producer.brokers.request_timeout, Duration::from_millis(9900));
    assert!(tls(&settings.member).is_none());
    assert_eq!(sockets(&settings.member), SocketSettings { family: Family::Any, keepalive: false });
    let (fetch, write) = (&settings.fetch, &settings.write);
    assert_eq!([fetch.max_wait, settings.reader_fetch.max_wait].map(|wait| wait.as_millis()), [50, 10]);
    assert_eq!([fetch.max_bytes, fetch.partition_max_bytes], [4 << 20, 1 << 20]);
    assert_eq!([fetch.buffered_bytes_max, settings.reader_fetch.buffered_bytes_max], [16 << 20, 2 << 20]);
    assert!(fetch.check_crcs);
    assert_eq!(write.transaction_timeout, Duration::from_secs(10));
    assert_eq!(write.delivery_timeout, Duration::from_secs(8));
    assert_eq!(write.request_timeout, Duration::from_millis(9900));
    assert_eq!([write.batch_bytes, write.message_bytes_max], [1_000_000, 18_874_368]);
    assert_eq!((write.codec, write.level, write.in_flight_max), (Codec::None, None, 5));
    // Values that ratchet sets for librdkafka's sake do not apply to the wire.
    assert_eq!(write.retry_backoff, WriteSettings::default().retry_backoff);
    assert_eq!(fetch.backoff, FetchSettings::default().backoff);
}

#[test]
fn the_longest_response_has_room_for_the_largest_batch() {
    for set in [
        &[][..],
        &[("receive.message.max.bytes", "4194816")],
        &[("fetch.max.bytes", "200000000")],
        &[("fetch.max.bytes", "2147483135"), ("fetch.message.max.bytes", "1000000000")],
        &[("message.max.bytes", "300000000")],
    ] {
        let settings = plain(set).unwrap();
        for (client, fetch) in [(&settings.member, &settings.fetch), (&settings.reader, &settings.reader_fetch)] {
            let most = [fetch.max_bytes, fetch.partition_max_bytes, fetch.batch_max_bytes];
            assert!(most.iter().all(|most| *most > 1000 && *most <= fetch.batch_max_bytes), "{set:?}: {most:?}");
            assert!(client.brokers.response_bytes_max >= fetch.batch_max_bytes as usize + (1 << 20), "{set:?}");
        }
    }
    let error = refusal(&[("receive.message.max.bytes", "4194815")]);
    assert!(error.contains("receive.message.max.bytes"), "{error}");
}

#[test]
fn unsupported_property_is_named_without_its_value() {
    let secret = "hunter2";
    for (name, value) in [
        ("client.rack", secret),
        ("topic.blacklist", secret),
        ("sasl.kerberos.keytab", secret),
        ("message.send.max.retries", "3"),
        ("api.version.request.timeout.ms", "700"),
    ] {
        match plain(&[(name, value)]) {
            Ok(_) => assert_eq!(look_up(name).unwrap().1, Class::Irrelevant, "{name}"),
            Err(error) => {
                assert_eq!(error.property, name);
                assert!(!error.to_string().contains(secret), "{error}");
            }
        }
    }
    for (name, value) in [("socket.nagle.disable", "T"), ("retries", "2147483647"), ("client.rack", "")] {
        plain(&[(name, value)]).unwrap();
    }
    // librdkafka accepts `topic.` before the name of any topic's property, including future ones.
    assert_eq!(
        refusal(&[("topic.request.timeout.ms", "7000")]),
        "the kafka property topic.request.timeout.ms needs librdkafka: the wire does not support it"
    );
}

#[test]
fn unsupported_logins_are_named() {
    let login = |set: &[(&str, &str)]| refusal(&[&[("security.protocol", "SASL_PLAINTEXT")], set].concat());
    assert!(login(&[]).contains("sasl.mechanisms needs librdkafka: the wire does not support the mechanism GSSAPI"));
    let oauth = login(&[("sasl.mechanism", "OAUTHBEARER"), ("enable.sasl.oauthbearer.unsecure.jwt", "true")]);
    assert!(
        oauth.contains("sasl.mechanism needs librdkafka: on the wire, OAUTHBEARER needs sasl.oauthbearer.method=oidc")
    );
    let error = login(&[("sasl.mechanism", "hunter2")]);
    assert!(error.contains("sasl.mechanism needs") && !error.contains("hunter2"), "{error}");
    assert!(login(&[("sasl.mechanism", "PLAIN"), ("sasl.username", "me")]).contains("sasl.password"));
    // Without SASL its properties do not count, and without TLS neither do those of TLS.
    plain(&[("sasl.mechanism", "GSSAPI"), ("ssl.crl.location", "/nowhere")]).unwrap();
    assert!(refusal(&[("security.protocol", "ssl"), ("ssl.crl.location", "/nowhere")]).contains("ssl.crl.location"));
}

#[test]
fn last_of_several_names_counts_and_an_empty_value_is_unset() {
    let linger = |set: &[(&str, &str)]| plain(set).unwrap().write.linger;
    assert_eq!(linger(&[("linger.ms", "1"), ("queue.buffering.max.ms", "0.25")]), Duration::from_micros(250));
    let codec = |set: &[(&str, &str)]| plain(set).unwrap().write.codec;
    assert_eq!(codec(&[("compression.codec", "lz4"), ("compression.type", "ZSTD")]), Codec::Zstd);
    assert_eq!(codec(&[("compression.codec", "lz4"), ("compression.type", "none")]), Codec::None);
    let settings = read_all(&[BASE, &[("sasl.mechanisms", "PLAIN"), ("client.id", "")]].concat()).unwrap();
    assert_eq!(settings.member.brokers.login.mechanism(), Some("PLAIN"));
    assert_eq!(settings.member.brokers.client_id, "rdkafka");
}

#[test]
fn numbers_that_librdkafka_reads_differently_are_left_to_it() {
    for value in ["0100", "0x64", "100ms"] {
        assert!(refusal(&[("fetch.wait.max.ms", value)]).contains("fetch.wait.max.ms"), "{value}");
    }
    assert_eq!(plain(&[("fetch.wait.max.ms", "0")]).unwrap().fetch.max_wait, Duration::ZERO);
}

#[test]
fn settings_with_which_librdkafka_does_not_start_are_left_to_it() {
    for (name, set) in [
        ("reconnect.backoff.max.ms", &[("reconnect.backoff.ms", "5000")][..]),
        ("fetch.max.bytes", &[("fetch.max.bytes", "1000"), ("message.max.bytes", "2000")]),
        ("socket.timeout.ms", &[("socket.timeout.ms", "20000")]),
        ("max.in.flight", &[("max.in.flight", "6")]),
        ("message.timeout.ms", &[("message.timeout.ms", "10001")]),
        ("message.timeout.ms", &[("message.timeout.ms", "7"), ("linger.ms", "7")]),
        ("bootstrap.servers", &[("bootstrap.servers", "SSL://a:1")]),
    ] {
        assert!(refusal(set).contains(&format!("property {name} needs")), "{set:?}: {}", refusal(set));
    }
    assert_eq!(plain(&[("message.timeout.ms", "0")]).unwrap().write.delivery_timeout, Duration::from_secs(10));
}

#[test]
fn record_limits_that_no_batch_reaches_are_accepted() {
    plain(&[("batch.num.messages", "1000000")]).unwrap();
    assert!(refusal(&[("batch.num.messages", "10000")]).contains("batch.num.messages"));
    plain(&[("batch.num.messages", "10000"), ("batch.size", "70000")]).unwrap();
}

#[test]
fn compression_levels_depend_on_the_codec() {
    let level = |codec, level| plain(&[("compression.type", codec), ("compression.level", level)]);
    assert_eq!(level("gzip", "9").unwrap().write.level, Some(9));
    assert_eq!(level("lz4", "-1").unwrap().write.level, None);
    assert!(level("lz4", "9").err().unwrap().to_string().contains("compression.level"));
}

#[test]
fn short_idle_limits_and_azure_need_librdkafka() {
    let azure = ("bootstrap.servers", "me.servicebus.Azure.example:9093");
    assert!(read_all(&[azure]).err().unwrap().to_string().contains("connections.max.idle.ms"));
    assert!(refusal(&[("connections.max.idle.ms", "180000")]).contains("connections.max.idle.ms"));
    read_all(&[azure, ("connections.max.idle.ms", "0")]).unwrap();
    plain(&[("connections.max.idle.ms", "600000")]).unwrap();
}

#[test]
fn metadata_is_requested_at_the_shorter_of_two_intervals() {
    let age = |set: &[(&str, &str)]| plain(set).unwrap().member.brokers.metadata_max_age.as_secs();
    let interval = "topic.metadata.refresh.interval.ms";
    assert_eq!(age(&[(interval, "60000")]), 60);
    assert_eq!(age(&[(interval, "60000"), ("metadata.max.age.ms", "30000")]), 30);
    assert_eq!(age(&[(interval, "-1")]), 900);
}

#[test]
fn authorities_are_read_once() {
    let settings = read_all(BASE).unwrap();
    let [member, reader, producer] =
        [&settings.member, &settings.reader, &settings.producer].map(|client| tls(client).unwrap());
    assert!(Arc::ptr_eq(member, reader) && Arc::ptr_eq(member, producer));
}
