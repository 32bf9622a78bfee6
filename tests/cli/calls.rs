//! Topologies that call a provider, through every command that needs none.

use assert_cmd::Command;

use super::{Ran, Room};
use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, NewTopic};

const CHARGES: &str = "\
name: charges
input: {topics: [orders]}
identity: value.order_id
partitioned_by_identity: true
retention: 30d
on_duplicate: result
sink:
  http:
    url: ${env:URL}/charges/{value.order_id}
    headers: {authorization: 'Bearer ${env:TOKEN}', x-tenant: '{value.tenant}'}
    body: {json: {amount: value.amount, currency: {const: EUR}}}
    idempotency_key: {header: Idempotency-Key, honoured_for: 24h}
    rate: 100/s
    result: {topic: charges.done}
tests:
  - name: a charge is asked for again
    given: [{value: {order_id: 7, tenant: a}}]
    answers: [500, timeout, 201]
    expect: [{verdict: forwarded, calls: 3, key: same}]
";

const PROXIES: &[&str] = &["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

fn room() -> Room {
    let room = Room::new();
    room.write("charges.yaml", CHARGES);
    room
}

fn command(room: &Room, words: &str) -> Command {
    let mut command = room.command(words);
    for proxy in PROXIES {
        command.env_remove(proxy);
    }
    command.env("URL", "https://hunter2.example.com").env("TOKEN", "hunter2");
    command
}

fn ran(command: &mut Command) -> Ran {
    let ran = Ran::from(command.output().unwrap());
    assert!(!ran.stderr.contains("hunter2") && !ran.stdout.contains("hunter2"), "{ran:#?}");
    ran
}

fn run(room: &Room, words: &str) -> Ran {
    ran(&mut command(room, words))
}

#[test]
fn check_says_what_is_promised_and_which_request_is_made() {
    run(&room(), "check charges.yaml").ended(0).said(&[
        "charges.yaml: fine",
        "sink http, POST ${env:URL}/charges/{value.order_id}",
        "headers authorization, x-tenant, content-type",
        "body JSON: {\"amount\": value.amount, \"currency\": {const: \"EUR\"}}",
        "key Idempotency-Key, honoured for 1d; a reservation is committed only where the key alone does not suffice",
        "calls up to 64 at once in a lane, 100/s, 10s each; 8 attempts, after 200ms, times 2, up to 30s, at random below that",
        "results charges.done, up to 64KiB, a larger one as its digest; a duplicate gets the first one's",
        "unavailable hold: while the provider is down, its records wait",
        "rejected dead_letter, what the provider refuses",
        "conflict dead_letter, what asks for something else under a key that was used",
        "promise effectively once for 1d after the first attempt: every attempt carries the key Idempotency-Key, with the \
         same bytes; after that a call that may have happened is in doubt, and goes to the dead letters",
    ]);
}

#[test]
fn each_way_has_its_promise() {
    let key = "    idempotency_key: {header: Idempotency-Key, honoured_for: 24h}\n";
    for (written, promise) in [
        (
            "idempotency_key: {header: K, honoured_for: 24h}\n    on_in_doubt: retry",
            "after that a call that may have happened is made again: at least once",
        ),
        (
            "idempotency_key: {header: K, honoured_for: 24h}\n    on_in_doubt: fail",
            "after that a call that may have happened is in doubt, and stops its partition",
        ),
        (
            "on_in_doubt: dead_letter",
            "promise at most once: a reservation is committed before each call, and a call that may have happened is in \
             doubt, and goes to the dead letters",
        ),
        ("on_in_doubt: fail", "may have happened is in doubt, and stops its partition"),
        ("on_in_doubt: retry", "promise at least once: a call that may have happened is made again"),
    ] {
        let room = room();
        let text = CHARGES.replace(key, &format!("    {written}\n")).replace(", key: same", "");
        // Without a key a time-out is in doubt.
        room.write("charges.yaml", text.split("tests:").next().unwrap());
        run(&room, "check charges.yaml").ended(0).said(&[promise]);
    }
}

#[test]
fn expanded_topology_shows_no_secret() {
    let expanded = run(&room(), "check charges.yaml --expand").ended(0);
    for words in ["Bearer ${env:TOKEN}", "${env:URL}/charges/{value.order_id}"] {
        assert!(expanded.stdout.contains(words), "{}", expanded.stdout);
    }
}

#[test]
fn tests_are_run_and_can_fail() {
    let room = room();
    run(&room, "test charges.yaml").ended(0).said(&["1 test passed"]);
    room.write("charges.yaml", CHARGES.replace("calls: 3", "calls: 2"));
    let failed = run(&room, "test charges.yaml").ended(1);
    for words in ["expected 2 calls, key same", "got      3 calls, key same", "POST ${env:URL}/charges/7"] {
        assert!(failed.stdout.contains(words), "{}", failed.stdout);
    }
}

#[test]
fn replay_explains_what_would_be_sent() {
    let room = room();
    room.write("in.jsonl", "{\"order_id\": \"a/b\", \"tenant\": \"x\"}\n{\"order_id\": \"a/b\", \"tenant\": \"x\"}\n");
    let explained = run(&room, "replay charges.yaml in.jsonl --explain").ended(0).stdout;
    let lines: Vec<&str> = explained.lines().collect();
    let request = r#""request":{"method":"POST","address":"${env:URL}/charges/a%2Fb"}"#;
    assert!(lines[0].contains(request) && !lines[0].contains("effects"), "{explained}");
    assert!(lines[1].contains(r#""verdict":"duplicate""#) && lines[1].contains(r#""request":null"#), "{explained}");
}

/// A configuration with an embedded cluster that has the topics.
fn with_cluster(room: &Room) {
    let folder = room.path().join("topics");
    let state = room.path().join("state");
    let (folder, state) = (folder.display(), state.display());
    room.write("ratchet.yaml", format!("cluster: embedded\nembedded: {{dir: {folder}}}\nstate_dir: {state}\n"));
    let cluster = Embedded::open(&room.path().join("topics"), 1).unwrap();
    for name in ["orders", "charges.done"] {
        cluster.create_topic(&NewTopic { name, partition_count: 1, replication_factor: 1, settings: &[] }).unwrap();
    }
}

#[test]
fn online_resolves_the_providers_name_and_makes_no_request() {
    const CHECK: &str = "check charges.yaml --config ratchet.yaml --online";
    let room = room();
    with_cluster(&room);
    // Nobody listens there.
    let known = ran(command(&room, CHECK).env("URL", "http://localhost:1"));
    known.ended(0).said(&["charges.yaml: at the provider: its name is known", "on the cluster: fine"]);
    let unknown = ran(command(&room, CHECK).env("URL", "http://provider.invalid"));
    unknown.ended(2).never_said("provider.invalid").said(&[
        "charges.yaml: at the provider: its name is not known",
        "the host of `sink.http.url` has no address",
        "run would wait for the provider and process nothing",
    ]);
    let proxied = ran(command(&room, CHECK).env("https_proxy", "http://127.0.0.1:1"));
    proxied.ended(0).said(&["at the provider: not looked up", "https_proxy names a proxy"]);
    // The hosts that records may name.
    let listed = "url: https://{value.host}/charges\n    hosts: [localhost, 'provider.invalid:81']";
    room.write("charges.yaml", CHARGES.replace("url: ${env:URL}/charges/{value.order_id}", listed));
    run(&room, CHECK).ended(2).said(&["provider.invalid:81 has no address"]).never_said("localhost has");
}

const OTHER: &str = "\
name: shop
input: {topics: [orders]}
identity: value.order_id
output: {topic: charges.done}
";

#[test]
fn commands_say_what_they_cannot_do() {
    let room = room();
    with_cluster(&room);
    room.write("shop.yaml", OTHER);
    const WITH: &str = "charges.yaml shop.yaml --config ratchet.yaml";
    run(&room, &format!("effects charges {WITH}")).ended(0).wrote(&[]).said(&["nothing but what is done"]);
    run(&room, &format!("effects charges {WITH} --in-doubt --json")).ended(0).wrote(&[]).said(&["nothing is in doubt"]);
    let nobody = ["there is no topology \"nobody\" among these", "there are: charges, shop"];
    run(&room, &format!("effects nobody {WITH}")).ended(2).said(&nobody);
    run(&room, &format!("settle nobody 7 done {WITH}")).ended(2).said(&nobody);
    run(&room, &format!("settle charges [7 done {WITH}"))
        .ended(2)
        .said(&["\"[7\" is no identity: it is not JSON", "write it as `ratchet effects` shows it"]);
    run(&room, &format!("settle charges [7] undone {WITH}")).ended(2).said(&["write done, retry or drop"]);
    run(&room, &format!("settle charges [7] done {WITH} --timeout soon")).ended(2).said(&["write a time, such as 30s"]);
    run(&room, &format!("settle shop [7] done {WITH}")).ended(2).said(&["topology shop makes no calls"]);
    let early = "topic \"ratchet.charges.control\" does not exist: no instance that supports commands has run for this \
                 topology yet";
    run(&room, &format!("settle charges [7] done {WITH}")).ended(2).said(&[early]);
}

#[test]
fn shipped_topology_passes_its_tests() {
    let room = Room::new();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/charge-orders.yaml");
    room.write("charge-orders.yaml", std::fs::read_to_string(path).unwrap());
    run(&room, "check charge-orders.yaml").ended(0).never_said("⚠");
    run(&room, "test charge-orders.yaml").ended(0).said(&["5 tests passed"]);
}
