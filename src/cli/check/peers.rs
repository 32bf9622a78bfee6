//! Notes about servers on other machines that are not authenticated: Kafka, and the servers of a topology or a proxy.
//! Notes never show a secret address.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::config::{ClusterKind, Config};
use crate::postgres;
use crate::proxy::{self, StoreConfig};
use crate::topology::Topology;
use crate::topology::sink::Sink;
use crate::topology::sink::http::address::Address;

/// The risk, for any server.
const TRAFFIC: &str = "an attacker on the network can read and change the traffic";

/// A note for each server of a topology that is not authenticated.
pub fn notes(topology: &Topology) -> Vec<String> {
    let of_sink = topology.sink().and_then(|sink| match sink {
        Sink::Postgres(sink) => database_note("the database", sink.url.reveal()),
        Sink::Http(http) => {
            let address = Address::read(&http.url).ok()?;
            let hosts = address.host().map_or_else(|| http.hosts.clone(), |host| vec![host]);
            service_note("the provider", &address.scheme(), &hosts)
        }
        Sink::Handler(_) => None,
    });
    let of_gate = topology.gate.as_ref().and_then(|gate| redis_note("the gate's Redis", gate.url.reveal()));
    of_sink.into_iter().chain(of_gate).collect()
}

/// A note for each server of a proxy that is not authenticated.
pub fn proxy_notes(config: &proxy::Config) -> Vec<String> {
    let of_store = match &config.store {
        StoreConfig::Embedded { .. } => None,
        StoreConfig::Postgres { url, .. } => database_note("the store's database", url.reveal()),
        StoreConfig::Redis { url } => redis_note("the store's Redis", url.reveal()),
    };
    let upstream = &config.upstream;
    let scheme = if upstream.tls.is_some() { "https" } else { "http" };
    let of_upstream = service_note("the service", scheme, std::slice::from_ref(&upstream.host));
    of_upstream.into_iter().chain(of_store).collect()
}

/// The notes about servers that are not authenticated: brokers, to which consumers, producers and other clients may
/// connect in different ways, and the schema registry.
pub fn kafka_notes(config: &Config) -> Vec<String> {
    if config.cluster != ClusterKind::Kafka {
        return registry_note(config).into_iter().collect();
    }
    let kafka = &config.kafka;
    let clients = [kafka.for_consumer(), kafka.for_producer(), kafka.for_admin()];
    let notes: BTreeSet<String> = clients.iter().filter_map(client_note).collect();
    notes.into_iter().chain(registry_note(config)).collect()
}

/// The note about a schema registry that is not authenticated.
fn registry_note(config: &Config) -> Option<String> {
    let urls = config.schema_registry.urls.iter().filter_map(|url| url.strip_prefix("http://"));
    let hosts: Vec<String> = urls.map(|rest| rest.split('/').next().unwrap_or_default().to_owned()).collect();
    service_note("the schema registry", "http", &hosts)
}

/// The note for clients with these properties, whose defaults are librdkafka's.
fn client_note(properties: &BTreeMap<String, String>) -> Option<String> {
    // Of several names of a property the last one counts, and librdkafka removes leading white space.
    let given = |names: &[&str]| {
        let (_, text) = properties.iter().rfind(|(name, _)| names.contains(&name.as_str()))?;
        Some(text.trim_ascii_start().to_ascii_lowercase()).filter(|text| !text.is_empty())
    };
    let brokers = given(&["bootstrap.servers", "metadata.broker.list"])?;
    if brokers.split(',').map(str::trim).filter(|broker| !broker.is_empty()).all(is_local_broker) {
        return None;
    }
    let is_off = |text: String| matches!(text.as_str(), "false" | "f" | "0");
    let protocol = given(&["security.protocol"]);
    match protocol.as_deref().unwrap_or("plaintext") {
        "plaintext" => Some(format!(
            "Kafka is not authenticated, and nothing is encrypted (security.protocol plaintext): {TRAFFIC}; ssl or \
             sasl_ssl prevents it"
        )),
        "sasl_plaintext" => {
            // In a login by SCRAM, the broker proves that it knows the password, and the password itself is not sent.
            let (beyond, secret) = match given(&["sasl.mechanism", "sasl.mechanisms"]).as_deref() {
                Some("scram-sha-256" | "scram-sha-512") => ("beyond the login, ", ""),
                Some("plain") => ("", ", the password included"),
                Some("oauthbearer") => ("", ", the token included"),
                _ => ("", ""),
            };
            Some(format!(
                "{beyond}Kafka is not authenticated, and nothing is encrypted (security.protocol sasl_plaintext): \
                 {TRAFFIC}{secret}; sasl_ssl prevents it"
            ))
        }
        _ if given(&["enable.ssl.certificate.verification"]).is_some_and(is_off) => Some(format!(
            "Kafka is not authenticated (enable.ssl.certificate.verification false checks no certificate): {TRAFFIC}; \
             true, with ssl.ca.location for an authority of your own, prevents it"
        )),
        _ if given(&["ssl.endpoint.identification.algorithm"]).is_some_and(|text| text == "none") => Some(format!(
            "Kafka is not authenticated (ssl.endpoint.identification.algorithm none accepts any certificate of the \
             authorities): {TRAFFIC}; https prevents it"
        )),
        _ => None,
    }
}

/// Whether a broker in `bootstrap.servers` is on this machine: `host`, `host:port` or `PROTOCOL://host:port`.
fn is_local_broker(broker: &str) -> bool {
    let address = broker.split_once("://").map_or(broker, |(_, address)| address);
    let address = address.split('/').next().unwrap_or_default();
    // An address without a host means this machine.
    address.is_empty() || address.starts_with(':') && !address.starts_with("::") || is_local(address)
}

/// The note about a database.
fn database_note(what: &str, url: &str) -> Option<String> {
    let why = postgres::missing_authentication(url).ok().flatten()?;
    Some(format!(
        "{what} is not authenticated ({why}): {TRAFFIC}; sslmode=verify-full, with sslrootcert for an authority of your \
         own, prevents it"
    ))
}

/// The note about a server of Redis.
fn redis_note(what: &str, url: &str) -> Option<String> {
    let server = url.strip_prefix("redis://")?.split(['/', '?']).next()?;
    let host = server.rsplit_once('@').map_or(server, |(_, host)| host);
    let encrypted = "nothing is encrypted (redis)";
    (!is_local(host)).then(|| format!("{what} is not authenticated, and {encrypted}: {TRAFFIC}; rediss prevents it"))
}

/// The note about a service that is called.
fn service_note(what: &str, scheme: &str, hosts: &[String]) -> Option<String> {
    let is_remote = hosts.iter().any(|host| !is_local(host));
    (scheme == "http" && is_remote).then(|| {
        format!(
            "{what} is not authenticated, and nothing is encrypted (http): an attacker on the network can read and \
             change requests, their secrets and answers; https prevents it"
        )
    })
}

/// Whether this is a host of this machine, with a port or without.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::yaml::Process;
    use crate::yaml_testing::Fake;

    #[test]
    fn hosts_of_this_machine_are_known() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.3.2.1:8080", "::1", "[::1]", "[::1]:443"] {
            assert!(is_local(host), "{host}");
        }
        for host in ["db", "localhost.example.com", "10.0.0.1:80", "[fe80::1]:80", "fe80::1", "127.0.0.1.nip.io", ""] {
            assert!(!is_local(host), "{host}");
        }
    }

    #[test]
    fn remote_peers_that_are_not_authenticated_are_named() {
        let topology = |destination: &str| {
            let text = format!(
                "name: t\ninput: {{topics: [in], value_format: json}}\nidentity: value.id\npartitioned_by_identity: true\n\
                 {destination}\n"
            );
            let environment = Fake::default().with_file("t.yaml", &text);
            let loaded = crate::topology::load(Path::new("t.yaml"), &environment);
            loaded.unwrap_or_else(|diagnostics| panic!("{text}\n{}", diagnostics.render(false))).topology
        };
        let sql = "statements: [{sql: select 1}]";
        let postgres = |url: &str| format!("sink: {{postgres: {{url: '{url}', {sql}}}}}");
        let http = |url: &str| format!("sink: {{http: {{url: '{url}', on_in_doubt: dead_letter}}}}");
        let gate = |url: &str| format!("output: {{topic: out}}\ngate: {{redis: {{url: '{url}'}}}}");
        let cases = [
            (postgres("postgres://u@db/shop"), "the database is not authenticated (sslmode=prefer"),
            (postgres("postgres://u@db/shop?sslmode=require"), "sslmode=require"),
            (postgres("postgres://u@db/shop?sslmode=verify-full"), ""),
            (postgres("postgres://u@127.0.0.1/shop"), ""),
            (http("http://api.example.com/charges"), "the provider is not authenticated"),
            (http("https://api.example.com/charges"), ""),
            (http("http://localhost:8080/charges"), ""),
            (gate("redis://cache:6379"), "the gate's Redis is not authenticated"),
            (gate("rediss://cache:6379"), ""),
            (gate("redis://localhost:6379"), ""),
        ];
        for (destination, words) in cases {
            let notes = notes(&topology(&destination));
            assert_eq!(notes.is_empty(), words.is_empty(), "{destination}: {notes:?}");
            assert!(notes.iter().all(|note| note.contains(words)), "{destination}: {notes:?}");
        }
    }

    #[test]
    fn kafka_on_other_machines_is_named_unless_it_is_authenticated() {
        let said = |properties: &[&str]| {
            let sets: Vec<String> = properties.iter().map(|set| format!("kafka.{set}")).collect();
            let loaded = crate::config::load(None, &sets, &Fake::default().with_variable("PASSWORD", "hunter2"));
            kafka_notes(&loaded.unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false))))
        };
        const REMOTE: &str = "bootstrap.servers=localhost:9092,kafka:9092";
        let plain = "Kafka is not authenticated, and nothing is encrypted (security.protocol plaintext): an attacker on \
                     the network can read and change the traffic; ssl or sasl_ssl prevents it";
        for local in ["localhost", "127.0.0.1:9092,[::1]:9092", "PLAINTEXT://localhost:9092/", ":9092", "::1"] {
            assert_eq!(said(&[&format!("bootstrap.servers={local}")]), [""; 0], "{local}");
        }
        for remote in ["kafka", "localhost,10.0.0.1:9092", "PLAINTEXT://kafka:9092", "[fe80::1]:9092"] {
            assert_eq!(said(&[&format!("bootstrap.servers={remote}")]), [plain], "{remote}");
        }
        let login = |mechanism: &str| {
            let mechanism = format!("sasl.mechanism={mechanism}");
            let given =
                [REMOTE, "security.protocol=SASL_PLAINTEXT", "sasl.username=u", "sasl.password=${env:PASSWORD}"];
            said(&[&given[..], &[mechanism.as_str()]].concat()).concat()
        };
        assert!(
            login("PLAIN").starts_with("Kafka is not") && login("PLAIN").contains("the password included; sasl_ssl")
        );
        assert!(
            login("SCRAM-SHA-512").starts_with("beyond the login, Kafka")
                && !login("SCRAM-SHA-512").contains("included")
        );
        for (switch, words) in [
            ("enable.ssl.certificate.verification=true", ""),
            ("enable.ssl.certificate.verification=False", "checks no certificate"),
            ("consumer.enable.ssl.certificate.verification=false", "checks no certificate"),
            ("ssl.endpoint.identification.algorithm=https", ""),
            ("ssl.endpoint.identification.algorithm=none", "any certificate of the authorities"),
        ] {
            let notes = said(&[REMOTE, "security.protocol=ssl", switch]);
            assert_eq!(notes.len(), usize::from(!words.is_empty()), "{switch}: {notes:?}");
            assert!(notes.iter().all(|note| note.contains(words)), "{switch}: {notes:?}");
            assert_eq!(said(&["bootstrap.servers=localhost", "security.protocol=ssl", switch]), [""; 0], "{switch}");
        }
        let one_side = said(&[REMOTE, "security.protocol=ssl", "producer.security.protocol=plaintext"]);
        assert_eq!(one_side, [plain], "only the producers' note");
        let unchecked = [REMOTE, "security.protocol=ssl", "enable.ssl.certificate.verification=false"];
        let both = said(&[&unchecked[..], &["producer.security.protocol=plaintext"]].concat());
        assert!(both.len() == 2 && both[0].contains("checks no certificate") && both[1] == plain, "{both:?}");
    }

    #[test]
    fn store_and_service_of_a_proxy_are_named_unless_they_are_authenticated() {
        let service = "the service is not authenticated, and nothing is encrypted (http)";
        let database = "the store's database is not authenticated (sslmode=prefer";
        let redis = "the store's Redis is not authenticated, and nothing is encrypted (redis)";
        for (upstream, store, words) in [
            ("http://127.0.0.1:3000", "embedded: {dir: d}", &[][..]),
            ("http://[::1]:3000", "redis: {url: 'redis://localhost'}", &[]),
            ("https://shop.example", "redis: {url: 'rediss://cache'}", &[]),
            ("https://shop.example", "postgres: {url: 'postgres://u@db/shop?sslmode=verify-full'}", &[]),
            ("http://10.0.0.1:3000", "embedded: {dir: d}", &[service]),
            ("http://shop:3000", "postgres: {url: 'postgres://u@db/shop'}", &[service, database]),
            ("http://localhost:3000", "redis: {url: 'redis://cache:6379/1'}", &[redis]),
        ] {
            let text = format!("listen: 127.0.0.1:0\nupstream: {upstream}\nstore: {{{store}}}\n");
            let notes = proxy_notes(&proxy::load_text("proxy.yaml", &text, &Process).unwrap());
            assert_eq!(notes.len(), words.len(), "{text}: {notes:?}");
            assert!(notes.iter().zip(words).all(|(note, words)| note.starts_with(words)), "{text}: {notes:?}");
        }
    }
}
