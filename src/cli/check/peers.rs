//! A topology's servers besides Kafka that are on other machines and not authenticated. Notes never show a secret address.

use std::net::IpAddr;

use crate::postgres;
use crate::topology::Topology;
use crate::topology::sink::Sink;
use crate::topology::sink::http::address::Address;

/// A note for each server that is not authenticated.
pub fn notes(topology: &Topology) -> Vec<String> {
    let of_sink = topology.sink().and_then(|sink| match sink {
        Sink::Postgres(sink) => postgres::missing_authentication(sink.url.reveal()).ok().flatten().map(|why| {
            format!(
                "the database is not authenticated ({why}): an attacker on the network can read and change the traffic; \
                 sslmode=verify-full, with sslrootcert for an authority of your own, prevents it"
            )
        }),
        Sink::Http(http) => {
            let address = Address::read(&http.url).ok()?;
            let hosts = address.host().map_or_else(|| http.hosts.clone(), |host| vec![host]);
            let is_remote = hosts.iter().any(|host| !is_local(host));
            (address.scheme() == "http" && is_remote).then(|| {
                "the provider is not authenticated, and nothing is encrypted (http): an attacker on the network can read and \
                 change requests, their secrets and answers; https prevents it"
                    .to_owned()
            })
        }
        Sink::Handler(_) => None,
    });
    let of_gate = topology.gate.as_ref().and_then(|gate| {
        let rest = gate.url.reveal().strip_prefix("redis://")?;
        let server = rest.split(['/', '?']).next()?;
        let host = server.rsplit_once('@').map_or(server, |(_, host)| host);
        (!is_local(host)).then(|| {
            "the gate's Redis is not authenticated, and nothing is encrypted (redis): an attacker on the network can read \
             and change the traffic; rediss prevents it"
                .to_owned()
        })
    });
    of_sink.into_iter().chain(of_gate).collect()
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
        let topology = |ending: &str| {
            let text = format!(
                "name: t\ninput: {{topics: [in], value_format: json}}\nidentity: value.id\npartitioned_by_identity: true\n\
                 {ending}\n"
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
        for (ending, words) in cases {
            let notes = notes(&topology(&ending));
            assert_eq!(notes.is_empty(), words.is_empty(), "{ending}: {notes:?}");
            assert!(notes.iter().all(|note| note.contains(words)), "{ending}: {notes:?}");
        }
    }
}
