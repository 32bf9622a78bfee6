//! Goal: tokens that a token endpoint issues log in all clients, those of the wire and those of librdkafka, in time again
//! and again; what goes wrong is said, and no secret is shown. The broker itself checks the tokens.

use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::checked::check_online;
use crate::checker::{Fate, check};
use crate::cluster::Kafka;
use crate::issuer::{CLIENT, Issuer, Keys, SCOPE, Terms, broker_properties};
use crate::job::Job;
use crate::kafka::Broker;
use crate::load::things;
use crate::operator::{Operator, Options};
use crate::planted::{assert_hidden, planted};
use crate::until::DEADLINE;

const AUDIENCE: &str = "kafka-of-the-tests";
/// How long a login counts at most, and for how long a token does, in seconds: also shortly before the next one, for
/// longer than the second within which brokers refuse to renew a login.
const LOGIN_MS: u32 = 3_000;
const TOKEN_S: u64 = 10;
/// All that there is to be logged.
const VERBOSE: &str = "log: {format: json, level: trace}";

/// A broker that takes tokens only.
fn broker() -> &'static Broker {
    static SHARED: OnceLock<Broker> = OnceLock::new();
    SHARED.get_or_init(|| {
        let keys = &Keys::shared().file;
        let properties = broker_properties(keys, AUDIENCE, LOGIN_MS);
        let properties: Vec<_> = properties.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Broker::start_trusting(&properties, keys)
    })
}

fn terms() -> Terms {
    Terms { secret: planted("oauth"), audience: AUDIENCE, seconds: TOKEN_S }
}

/// A job whose operators log in with tokens of `issuer`.
fn job(theme: &str, issuer: &Issuer) -> Job {
    let broker = broker();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), theme);
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[]);
    for (name, value) in [
        ("bootstrap.servers", broker.sasl_bootstrap()),
        ("security.protocol", "SASL_SSL".to_owned()),
        ("ssl.ca.location", broker.ca_pem().to_str().expect("the target folder's name is text").to_owned()),
        ("sasl.mechanism", "OAUTHBEARER".to_owned()),
        ("sasl.oauthbearer.method", "oidc".to_owned()),
        ("sasl.oauthbearer.client.id", CLIENT.to_owned()),
        ("sasl.oauthbearer.client.secret", "${env:KAFKA_PASSWORD}".to_owned()),
        ("sasl.oauthbearer.scope", SCOPE.to_owned()),
        ("sasl.oauthbearer.extensions", "traceId=7".to_owned()),
        ("sasl.oauthbearer.token.endpoint.url", issuer.url()),
        ("https.ca.location", issuer.ca_pem().to_str().expect("the folder's name is text").to_owned()),
        ("debug", "all".to_owned()),
    ] {
        job.properties.insert(name.to_owned(), value);
    }
    job.worker.push(VERBOSE.to_owned());
    job
}

fn secret(text: &str) -> Options<'static> {
    Options { env: vec![("KAFKA_PASSWORD", text.to_owned())], ..Options::default() }
}

/// Neither a planted secret nor a token is in what was printed.
fn assert_nothing_shown(operator: &Operator, issuer: &Issuer) {
    let printed = operator.printed();
    assert_hidden("the log", &printed);
    for token in issuer.issued() {
        let signature = token.rsplit('.').next().expect("a token has parts");
        assert!(!printed.contains(signature), "the log shows a token: {}", operator.tail());
    }
}

/// Works for several times as long as a token and a login count.
fn works_for_long(theme: &str, options: &Options<'_>) {
    let issuer = Issuer::open(terms());
    let job = job(theme, &issuer);
    job.send(things(0, 0..100, 1).chain(things(0, 0..100, 1)));
    let since = Instant::now();
    let mut operator = Operator::start_with(&job, "a", options);
    job.await_drained(DEADLINE);
    operator.await_ready(DEADLINE);
    let at_start = operator.log().len();
    for version in 2..14 {
        sleep(Duration::from_secs(2));
        job.send(things(0, 0..10, version).chain(things(1, 0..10, version)));
        job.await_drained(DEADLINE);
    }
    // The next one after eight seconds, for the process, and not for each of its clients.
    let (asked, most) = (issuer.issued().len(), 2 + since.elapsed().as_secs() as usize / 8);
    assert!((3..=most).contains(&asked), "{asked} tokens, {most} at most");
    operator.stop();
    assert_nothing_shown(&operator, &issuer);
    let lost: Vec<String> = operator.log().iter().map(ToString::to_string).collect();
    let lost: Vec<&String> = lost.iter().filter(|line| line.contains("it closed the connection")).collect();
    assert!(lost.is_empty(), "a login that is not renewed in time costs the connection: {lost:?}");
    let troubles = operator.log();
    let is_trouble = |line: &&Value| ["WARN", "ERROR"].iter().any(|level| line["level"] == *level);
    // But for what ratchet says of the topology, and librdkafka of a broker that has only just been started.
    let is_early = |(at, line): &(usize, &Value)| {
        let says = |word: &str| line["message"].as_str().is_some_and(|message| message.starts_with(word));
        *at < at_start && (!line["place"].is_null() || says("GETPID") || says("REQTMOUT"))
    };
    let late = troubles.iter().enumerate().filter(|found| !is_early(found));
    let troubles: Vec<_> = late.map(|(_, line)| line).filter(is_trouble).collect();
    assert!(troubles.is_empty(), "{troubles:?}");
    let found = check(&job, &[operator.state_dir()]);
    assert!(found.count(Fate::Duplicate) >= 100, "{found:?}");
}

#[test]
fn logins_are_renewed_with_new_tokens_in_time() {
    works_for_long("oauth", &secret(&planted("oauth")));
}

#[test]
fn librdkafka_alone_gets_tokens_too() {
    let options = Options { data_path: Some(("librdkafka", false)), ..secret(&planted("oauth")) };
    works_for_long("oauth-librdkafka", &options);
}

#[test]
fn wrong_secret_is_reported_but_not_shown() {
    let issuer = Issuer::open(terms());
    let job = job("oauth-wrong", &issuer);
    let operator = Operator::start_with(&job, "a", &secret(&planted("wrong")));
    let line = operator.await_error(&["cannot be used", "no token", "401: invalid_client"]).to_string();
    assert!(line.contains("correct sasl.oauthbearer.client.id"), "{line}");
    assert_nothing_shown(&operator, &issuer);
    assert!(job.output().is_empty() && issuer.issued().is_empty());
    check_online(&job).says(2, &["there is no token", "401: invalid_client"]).says_nothing_of("limited-secret");
}

#[test]
fn token_that_the_broker_refuses_is_reported() {
    let issuer = Issuer::open(Terms { audience: "somebody else", ..terms() });
    let job = job("oauth-refused", &issuer);
    let operator = Operator::start_with(&job, "a", &secret(&planted("oauth")));
    operator.await_error(&["cannot be used", "invalid_token"]);
    assert_nothing_shown(&operator, &issuer);
    assert!(job.output().is_empty() && !issuer.issued().is_empty());
}

#[test]
fn endpoint_that_is_down_at_first_is_waited_for() {
    let issuer = Issuer::closed(terms());
    let job = job("oauth-down", &issuer);
    job.send(things(0, 0..20, 1));
    let mut operator = Operator::start_with(&job, "a", &secret(&planted("oauth")));
    let line = operator.await_line(&["trying again", "no token", "cannot be reached"], DEADLINE).to_string();
    assert!(line.contains("does not answer"), "{line}");
    operator.assert_running();
    issuer.listen();
    job.await_drained(DEADLINE);
    operator.stop();
    assert_nothing_shown(&operator, &issuer);
    assert_eq!(job.output().len(), 20);
}

/// A token endpoint's certificate is checked, too.
#[test]
fn endpoint_with_an_untrusted_certificate_gets_no_secret() {
    let issuer = Issuer::open(terms());
    let mut job = job("oauth-untrusted", &issuer);
    let other = job.properties["ssl.ca.location"].clone();
    job.properties.insert("https.ca.location".to_owned(), other);
    let operator = Operator::start_with(&job, "a", &secret(&planted("oauth")));
    operator.await_error(&["cannot be used", "no TLS with the token endpoint", "https.ca.location"]);
    assert_nothing_shown(&operator, &issuer);
    assert!(issuer.issued().is_empty());
}
