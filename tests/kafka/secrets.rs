//! Goal: a job on a real Kafka that logs everything, librdkafka's own log included, shows no secret in any log format
//! or on any page, whether it runs or cannot log in.

use std::fs;

use crate::kafka;
use crate::load::things;
use crate::operator::Operator;
use crate::planted::{assert_hidden, planted};
use crate::real_kafka::access::{password, secured};
use crate::until::DEADLINE;

const VERBOSE: &str = "log: {format: FORMAT, level: trace}";

#[test]
fn running_job_shows_no_secret() {
    for format in ["json", "text"] {
        let mut job = secured(&format!("secret-{format}"), "planted");
        // The broker's password and the planted words are all secrets; the key's password is not even used.
        let file = job.path("key-password");
        fs::write(&file, planted("file")).expect("the job's folder is writable");
        job.properties.insert("ssl.key.password".to_owned(), format!("${{file:{}}}", file.display()));
        // The wire refuses it.
        if !kafka::is_on_the_wire() {
            job.properties.insert("ssl.keystore.password".to_owned(), format!("${{file:{}}}", file.display()));
        }
        job.properties.insert("debug".to_owned(), "all".to_owned());
        job.worker.push(VERBOSE.replace("FORMAT", format));
        job.send(things(0, 0..20, 1).chain(things(0, 0..20, 1)));
        let mut operator = Operator::start_with(&job, "a", &password(&planted("broker")));
        job.await_drained(DEADLINE);
        if format == "json" {
            for path in ["/metrics", "/livez", "/readyz", "/readyz?verbose", "/config"] {
                let (_, page) = operator.get(path);
                assert_hidden(path, &page);
            }
        }
        operator.stop();
        let said = operator.printed();
        assert!(said.contains("SASL") && said.contains("librdkafka"), "the log was not verbose: {}", operator.tail());
        assert_hidden("the log", &said);
    }
}

#[test]
fn job_that_cannot_log_in_shows_no_secret() {
    for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"] {
        let mut job = secured(&format!("secret-wrong-{}", mechanism.to_lowercase()), "ratchet");
        job.properties.insert("sasl.mechanism".to_owned(), mechanism.to_owned());
        job.properties.insert("debug".to_owned(), "all".to_owned());
        job.worker.push(VERBOSE.replace("FORMAT", "json"));
        let operator = Operator::start_with(&job, "a", &password(&planted("wrong")));
        operator.await_error(&["sasl"]);
        assert_hidden(mechanism, &operator.printed());
    }
}
