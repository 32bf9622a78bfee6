//! Goal: a hostile answer costs neither memory nor a partition, a wrong secret no records, and a record gets nothing into
//! a request that the topology did not mean.

use std::time::Duration;

use crate::calls::payments::{End, KEYED, Payments, charge, charges};
use crate::cluster::{Fresh, Stored};
use crate::load::now_ms;
use crate::operator::Operator;
use crate::provider::{Move, Plan};
use crate::until::{DEADLINE, within};

const MIB: u64 = 1 << 20;

#[test]
fn answer_of_100_mb_and_one_that_never_ends_are_done_without_a_body() {
    let payments = Payments::new("large", 1, &[KEYED]).answering_duplicates();
    payments.job.send(charges(0, 0..50));
    let mut operator = Operator::start(&payments.job, "a");
    payments.found(DEADLINE);
    let before = operator.memory_peak_bytes();
    for id in 0..8 {
        payments.provider.script(&format!("/charges/large-{id}"), [Move::act().body(Plan::Long(100 << 20))]);
        payments.provider.script(&format!("/charges/endless-{id}"), [Move::act().body(Plan::Endless)]);
        payments.job.send([charge(0, &format!("large-{id}")), charge(0, &format!("endless-{id}"))]);
    }
    payments.job.send([charge(0, "last")]);
    let found = payments.found(DEADLINE);
    let after = operator.memory_peak_bytes();
    println!("{} MiB before, {} MiB after", before / MIB, after / MIB);
    assert!(after < before + 64 * MIB, "{} MiB before, {} MiB after", before / MIB, after / MIB);
    for id in ["large-0", "endless-0", "large-7", "endless-7"] {
        let [End::Result { status: Some(201), verdict, body, .. }] = found.first(id) else {
            panic!("{id}: {:?}", found.first(id))
        };
        assert_eq!((verdict.as_str(), body.as_str(), found.acts[id]), ("done", "", 1), "{id}");
    }
    assert_eq!(found.results(), 67);
    operator.stop();
}

#[test]
fn result_beyond_its_bound_is_a_digest() {
    let payments = Payments::new("digest", 1, &[KEYED]);
    payments.provider.always(Move::act().body(Plan::Long(1 << 20)));
    payments.job.send([charge(0, "a")]);
    let mut operator = Operator::start(&payments.job, "a");
    payments.found(DEADLINE);
    let result = payments.job.output().remove(0);
    let digest = result.header("__ratchet.result.digest").expect("a digest");
    // Of a MiB of `a`, by sha256sum.
    assert_eq!(digest, "sha256:9bc1b2a288b26af7257a36277ae3816a7d4f16e89c1e7e77d0a5c48bad62b360");
    assert_eq!(result.header("__ratchet.result.bytes").as_deref(), Some("1048576"));
    operator.stop();
}

#[test]
fn result_that_repeats_a_secret_is_a_digest() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, token) = (folder.path().join("token"), "sk_live_51H7e1f0a9");
    std::fs::write(&path, format!("{token}\n")).expect("a file");
    let secret = format!("headers: {{authorization: 'Bearer ${{file:{}}}'}}", path.display());
    let payments = Payments::new("repeats", 1, &[KEYED, &secret]).answering_duplicates();
    let echo = format!("{{\"you_sent\":\"{token}\"}}").into_bytes();
    payments.provider.script("/charges/order-0-1", [Move::act().body(Plan::Bytes(echo))]);
    payments.job.send(charges(0, 0..3).chain(charges(0, 0..3)));
    let mut operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert_eq!((found.results(), payments.provider.requests()), (6, 3), "{found:?}");
    assert!(payments.provider.seen().iter().all(|seen| seen.header("authorization") == [format!("Bearer {token}")]));
    let is_held_back = |result: &&Stored| result.header("__ratchet.result.digest").is_some() && result.value.is_none();
    assert_eq!(payments.job.output().iter().filter(is_held_back).count(), 2, "its own and its duplicate's");
    let topics = [payments.job.output.clone(), payments.job.changelog()];
    for record in topics.iter().flat_map(|topic| payments.job.kafka.read(topic).into_values().flatten()) {
        let bytes = [record.value.unwrap_or_default(), record.key.unwrap_or_default()].concat();
        assert!(!bytes.windows(token.len()).any(|part| part == token.as_bytes()), "the secret is in a topic");
    }
    operator.stop();
    assert!(!operator.printed().contains(token), "the secret is in the log");
}

#[test]
fn wrong_secret_empties_no_topic() {
    let secret = "headers: {authorization: 'Bearer not-the-one-7e1f'}";
    let payments = Payments::new("secret", 1, &[KEYED, secret]);
    payments.provider.always(Move::answer(401));
    payments.job.send(charges(0, 0..200));
    let mut operator = Operator::start(&payments.job, "a");
    operator.await_line(&["no call gets through", "401"], DEADLINE);
    // Those that were on their way when the first one was answered are no tries of one that is known to be down.
    for (metric, value) in [("ratchet_sink_held", 1.0), ("ratchet_effects_in_flight", 0.0)] {
        within(DEADLINE, metric, || (operator.metric(metric, &[]) == value).then_some(()));
    }
    let before = payments.provider.requests();
    println!("{before} were made before the lane knew");
    std::thread::sleep(Duration::from_secs(4));
    let tries = payments.provider.requests() - before;
    // One call at a time, each half second.
    assert!((3..=12).contains(&tries), "{tries} tries in 4 s");
    assert!(payments.letters().is_empty() && payments.results() == 0);
    payments.provider.always(Move::receipt());
    payments.found(DEADLINE).assert_each_acted_once(false);
    operator.stop();
    assert!(!operator.printed().contains("7e1f"), "the secret is in the log");
}

#[test]
fn record_gets_no_header_and_no_path_into_a_request() {
    let header = "headers: {x-note: '{value.note}'}";
    let path = "/charges/{value.id}?note={value.note}";
    let payments = Payments::with("injection", 1, &[KEYED, header], path);
    let noted = |id: &str, note: &str| {
        let value = serde_json::json!({"id": id, "note": note});
        Fresh::new(0, id, value.to_string()).at(now_ms())
    };
    payments.job.send([
        noted("crlf", "a\r\nx-evil: 1"),
        noted("newline", "a\nx-evil: 1"),
        noted("../admin", "plain"),
        noted("a?b=c#d", "plain"),
        noted("q", "x&amount=1"),
        noted("..", "plain"),
        noted("good", "plain"),
    ]);
    let mut operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    for id in ["crlf", "newline"] {
        assert!(matches!(found.first(id), [End::Letter { reason, .. }] if reason == "rejected"), "{id}: {found:?}");
    }
    let seen = payments.provider.seen();
    assert!(seen.iter().all(|seen| seen.header("x-evil").is_empty()));
    let mut targets: Vec<&str> = seen.iter().map(|seen| seen.target.as_str()).collect();
    targets.sort_unstable();
    println!("{targets:?}, {:?}", found.first(".."));
    assert!(targets.contains(&"/charges/..%2Fadmin?note=plain"), "{targets:?}");
    assert!(targets.contains(&"/charges/a%3Fb%3Dc%23d?note=plain"), "{targets:?}");
    assert!(targets.contains(&"/charges/q?note=x%26amount%3D1"), "{targets:?}");
    assert!(targets.iter().all(|target| target.starts_with("/charges/") && !target.contains("/..?")), "{targets:?}");
    assert_eq!(found.ends.len(), 7);
    operator.stop();
}

#[test]
fn record_names_only_hosts_that_are_allowed() {
    let mut payments = Payments::new("hosts", 1, &[KEYED]);
    let port = payments.provider.port;
    let lines = payments.job.topology[0].clone();
    let lines: Vec<String> = lines
        .lines()
        .map(|line| match line.trim().starts_with("url:") {
            true => format!("    url: 'http://{{value.host}}/charges/{{value.id}}'\n    hosts: ['localhost:{port}']"),
            false => line.to_owned(),
        })
        .collect();
    payments.job.topology[0] = lines.join("\n");
    let to = |id: &str, host: &str| {
        let value = serde_json::json!({"id": id, "host": host});
        Fresh::new(0, id, value.to_string()).at(now_ms())
    };
    payments.job.send([
        to("allowed", &format!("localhost:{port}")),
        to("other", &format!("127.0.0.1:{port}")),
        to("user", &format!("me@localhost:{port}")),
        to("path", &format!("localhost:{port}/admin?")),
    ]);
    let mut operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert_eq!((found.results(), found.letters("rejected")), (1, 3), "{found:?}");
    assert_eq!(
        payments.provider.seen().iter().map(|seen| seen.target.as_str()).collect::<Vec<_>>(),
        ["/charges/allowed"]
    );
    operator.stop();
}

#[test]
fn one_bad_record_does_not_hold_up_the_others() {
    let payments = Payments::new("bad", 1, &[KEYED, "in_flight: 4"]);
    let failing = std::iter::repeat_with(|| Move::answer(500)).take(50);
    payments.provider.script("/charges/order-0-0", failing);
    payments.provider.always(Move::receipt().late(Duration::from_millis(10)));
    payments.job.send(charges(0, 0..3000));
    let mut operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    let [End::Letter { reason, attempts: Some(8), .. }] = found.first("order-0-0") else {
        panic!("{:?}", found.first("order-0-0"))
    };
    assert_eq!((reason.as_str(), found.results()), ("unavailable", 2999));
    within(DEADLINE, "nothing else", || (payments.provider.now() == 0).then_some(()));
    operator.stop();
}
