//! Goal: TLS and SCRAM work, certificates and host names are checked, clients show theirs, and a secret is never shown.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::checker::{Fate, check};
use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::{Broker, Certificate, run_folder, shared_broker};
use crate::load::things;
use crate::operator::{Operator, Options};
use crate::until::DEADLINE;

/// A job on the shared broker whose operators log in over SASL_SSL.
pub fn secured(theme: &str, user: &str) -> Job {
    secured_on(shared_broker(), theme, user)
}

fn secured_on(broker: &Broker, theme: &str, user: &str) -> Job {
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), theme);
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    log_in(&mut job, broker, user);
    job
}

/// Makes the job's operators log in over SASL_SSL, with the password from the variable `KAFKA_PASSWORD`.
pub fn log_in(job: &mut Job, broker: &Broker, user: &str) {
    for (name, value) in broker.login(user, "${env:KAFKA_PASSWORD}") {
        job.properties.insert(name.to_owned(), value);
    }
}

/// Options with the password that [`log_in`] refers to.
pub fn password(text: &str) -> Options<'static> {
    Options { env: vec![("KAFKA_PASSWORD", text.to_owned())], ..Options::default() }
}

#[test]
fn sasl_ssl_with_a_password_from_the_environment_works() {
    let job = secured("secured", "ratchet");
    job.send(things(0, 0..100, 1).chain(things(0, 0..100, 1)));
    let mut operator = Operator::start_with(&job, "a", &password("ratchet-secret"));
    job.await_drained(DEADLINE);
    operator.stop();
    assert!(!operator.printed().contains("ratchet-secret"), "the log shows the password");
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (100, 100));
}

#[test]
fn sasl_ssl_with_a_password_from_a_file_works() {
    let mut job = secured("secret-file", "ratchet");
    let file = job.path("password");
    fs::write(&file, "ratchet-secret\n").expect("the job's folder is writable");
    job.properties.insert("sasl.password".to_owned(), format!("${{file:{}}}", file.display()));
    job.send(things(0, 0..10, 1));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
    assert!(!operator.printed().contains("ratchet-secret"), "the log shows the password");
}

#[test]
fn wrong_password_is_reported_but_not_shown() {
    let job = secured("wrong-password", "ratchet");
    let operator = Operator::start_with(&job, "a", &password("not-the-secret"));
    operator.await_line(&["authentication"], DEADLINE);
    assert!(!operator.printed().contains("not-the-secret"), "the log shows the password");
    assert!(job.output().is_empty());
}

#[test]
fn untrusted_certificate_is_refused() {
    let mut job = secured("untrusted", "ratchet");
    job.properties.remove("ssl.ca.location");
    let operator = Operator::start_with(&job, "a", &password("ratchet-secret"));
    operator.await_line(&["certificate"], DEADLINE);
    assert!(job.output().is_empty());
}

/// The client trusts the certificate, but it was issued for another host.
#[test]
fn certificate_for_another_host_is_refused() {
    const CHECK: &str = "ssl.endpoint.identification.algorithm";
    let folder = run_folder().join("elsewhere");
    let elsewhere = Certificate::for_host("elsewhere.example", &folder);
    let keystore = elsewhere.keystore.to_str().expect("the target folder's name is text");
    let broker = Broker::start_with(&[("ssl.keystore.location", keystore)]);
    let mut job = secured_on(&broker, "elsewhere", "ratchet");
    let trusted = elsewhere.pem.to_str().expect("the target folder's name is text");
    job.properties.insert("ssl.ca.location".to_owned(), trusted.to_owned());
    job.send(things(0, 0..10, 1));
    for (label, check) in [("by-default", None), ("said", Some("https"))] {
        if let Some(check) = check {
            job.properties.insert(CHECK.to_owned(), check.to_owned());
        }
        let operator = Operator::start_with(&job, label, &password("ratchet-secret"));
        operator.await_line(&["certificate"], DEADLINE);
        assert!(job.output().is_empty(), "{label}");
    }
    // With the check off it works: only the name was wrong.
    job.properties.insert(CHECK.to_owned(), "none".to_owned());
    let mut operator = Operator::start_with(&job, "unchecked", &password("ratchet-secret"));
    job.await_drained(DEADLINE);
    operator.stop();
    assert_eq!(job.output().len(), 10);
}

/// The broker takes no connection without a certificate that it trusts. Without one librdkafka fails first, which both
/// data paths begin with; what the wire does then is among its own tests.
#[test]
fn broker_that_asks_for_a_certificate_gets_it() {
    let folder = run_folder().join("clients");
    let (key, own) = client_certificate(&folder, "client");
    let (other_key, other) = client_certificate(&folder, "other");
    let broker = Broker::start_with(&[
        ("listener.name.sasl_ssl.ssl.client.auth", "required"),
        ("listener.name.sasl_ssl.ssl.truststore.type", "PEM"),
        ("listener.name.sasl_ssl.ssl.truststore.location", &own),
    ]);
    let mut job = secured_on(&broker, "clients", "ratchet");
    job.send(things(0, 0..10, 1).chain(things(0, 0..10, 1)));
    for (label, pair) in [("without", None), ("other", Some((&other_key, &other)))] {
        if let Some((key, certificate)) = pair {
            job.properties.insert("ssl.key.location".to_owned(), key.clone());
            job.properties.insert("ssl.certificate.location".to_owned(), certificate.clone());
        }
        let operator = Operator::start_with(&job, label, &password("ratchet-secret"));
        operator.await_line(&["certificate"], DEADLINE);
        assert!(job.output().is_empty(), "{label}");
    }
    job.properties.insert("ssl.key.location".to_owned(), key);
    job.properties.insert("ssl.certificate.location".to_owned(), own);
    let mut operator = Operator::start_with(&job, "trusted", &password("ratchet-secret"));
    job.await_drained(DEADLINE);
    operator.stop();
    assert_eq!(job.output().len(), 10);
}

/// A client's key and its self-signed certificate, by openssl: their files.
fn client_certificate(folder: &Path, name: &str) -> (String, String) {
    fs::create_dir_all(folder).expect("the run's folder is writable");
    let file = |end: &str| folder.join(format!("{name}.{end}")).to_str().expect("a folder of text").to_owned();
    let (key, certificate) = (file("key"), file("pem"));
    let of = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=client"];
    let made = Command::new("openssl").arg("req").args(of).args(["-keyout", &key, "-out", &certificate]).output();
    let made = made.expect("the tests need openssl: on Debian and Ubuntu the package openssl");
    assert!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    (key, certificate)
}
