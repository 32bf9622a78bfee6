//! Goal: `run` and `check --online` report the same about a cluster that cannot be reached: the address, what happened
//! and what to do. `run` keeps trying, and no secret is shown.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use crate::checked::check_online;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::{Broker, shared_broker};
use crate::operator::{Operator, Options};
use crate::until::DEADLINE;

/// Properties apart from the address; the password must never be shown.
const PLAIN: &[(&str, &str)] = &[];
const TLS: &[(&str, &str)] = &[("security.protocol", "SSL")];
const TLS_AND_PASSWORD: &[(&str, &str)] = &[
    ("security.protocol", "SASL_SSL"),
    ("sasl.mechanism", "PLAIN"),
    ("sasl.username", "ratchet"),
    ("sasl.password", "${env:KAFKA_PASSWORD}"),
];
/// The password that `check_online` sets too.
const SECRET: &str = "limited-secret";

/// A listener that serves each connection like this, for as long as the tests run.
fn listener(serve: fn(TcpStream)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it listens").to_string();
    thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || serve(stream)))));
    address
}

fn respond_like_a_website(mut stream: TcpStream) {
    // Nobody minds if the client has gone meanwhile.
    let _ = stream.read(&mut [0; 256]);
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
}

fn say_nothing(mut stream: TcpStream) {
    while stream.read(&mut [0; 256]).is_ok_and(|count| count > 0) {}
}

/// Both commands name `address` and report all these words, and the run continues.
fn both_report(theme: &str, address: &str, properties: &[(&str, &str)], words: &[&str]) {
    let mut job = Job::on(Kafka::shared(), theme);
    job.properties.insert("bootstrap.servers".to_owned(), address.to_owned());
    for (name, value) in properties {
        job.properties.insert((*name).to_owned(), (*value).to_owned());
    }
    let place = format!("the cluster at \"{address}\" does not answer");
    let mut all = vec![place.as_str(), "correct `bootstrap.servers` or `security.protocol` under `kafka:`"];
    all.extend(words);
    let options = Options { env: vec![("KAFKA_PASSWORD", SECRET.to_owned())], ..Options::default() };
    let mut operator = Operator::start_with(&job, "a", &options);
    let checked = check_online(&job);
    checked.says(1, &all).says_nothing_of(SECRET);
    let quoted: Vec<String> = all.iter().map(|words| words.replace('"', "\\\"")).collect();
    let mut line = vec!["\"WARN\"", "trying again"];
    line.extend(quoted.iter().map(String::as_str));
    operator.await_line(&line, DEADLINE);
    operator.assert_running();
    assert!(!operator.printed().contains(SECRET), "the log shows the password");
}

#[test]
fn unreachable_cluster_is_reported_with_cause_and_remedy() {
    const WITHOUT_TLS: &str = "does it speak without TLS there (`security.protocol` is PLAINTEXT)?";
    const WITH_TLS: &str = "does it speak TLS there (`security.protocol` is SSL)?";
    let broker: &Broker = shared_broker();
    let (plain, secured) = (broker.bootstrap(), broker.sasl_bootstrap());
    let (website, silent) = (listener(respond_like_a_website), listener(say_nothing));
    let (nobody, nowhere) = ("127.0.0.1:1", "broker..invalid:9092");
    let refused = format!("{nobody}/bootstrap: Connect to ipv4#{nobody} failed: Connection refused");
    let unresolved = format!("Failed to resolve '{nowhere}'");
    let quiet = "no connection came about, or it was closed or left without an answer";
    thread::scope(|scope| {
        for (theme, address, properties, words) in [
            ("unreached-nobody", nobody, PLAIN, [refused.as_str(), WITHOUT_TLS]),
            ("unreached-secret", nobody, TLS_AND_PASSWORD, ["Connection refused", "is SASL_SSL)?"]),
            ("unreached-nowhere", nowhere, PLAIN, [unresolved.as_str(), "can its name be resolved"]),
            ("unreached-website", &website, PLAIN, ["it answers in HTTP", "is a Kafka broker there"]),
            ("unreached-silent", &silent, PLAIN, [quiet, "is a Kafka broker there"]),
            ("unreached-plain", &plain, TLS, ["connecting to a PLAINTEXT broker listener?", WITH_TLS]),
            ("unreached-tls", &secured, PLAIN, [quiet, WITHOUT_TLS]),
        ] {
            scope.spawn(move || both_report(theme, address, properties, &words));
        }
    });
}

/// Both refuse for good if TLS fails for any reason but the connection.
#[test]
fn cluster_that_can_never_work_is_refused_by_both() {
    let website = listener(respond_like_a_website);
    let mut job = Job::on(Kafka::shared(), "unreached-refused");
    job.properties.insert("bootstrap.servers".to_owned(), website.clone());
    job.properties.insert("security.protocol".to_owned(), "SSL".to_owned());
    let place = format!("the cluster at \"{website}\" cannot be used");
    let words = [place.as_str(), "SSL handshake failed", "correct it under `kafka:` in the configuration"];
    let mut operator = Operator::start(&job, "a");
    check_online(&job).says(2, &words);
    let quoted = words.map(|words| words.replace('"', "\\\""));
    operator.await_error(&quoted.each_ref().map(String::as_str));
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(2));
}
