//! What the properties say, what a token endpoint's answers mean, and a source that asks a real server.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::super::wire::login::NoToken;
use super::answer::read;
use super::*;
use crate::cluster::{Error, ErrorKind};

const SECRET: &str = "hunter2/+ä";

fn of(set: &[(&str, &str)]) -> Result<Option<Credentials>, Error> {
    let base = [
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.client.id", "me"),
        ("sasl.oauthbearer.client.secret", SECRET),
        ("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:1/token?x=y"),
    ];
    let all = base.iter().chain(set).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Credentials::of(&all.collect::<BTreeMap<_, _>>())
}

fn by(set: &[(&str, &str)]) -> Credentials {
    of(set).unwrap().unwrap()
}

fn refused(set: &[(&str, &str)]) -> String {
    let error = of(set).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Refused);
    error.message
}

#[test]
fn properties_are_read_as_librdkafka_reads_them() {
    let Credentials { client_id, client_secret, scope, extensions, url, ca_location, ca_pem, .. } = by(&[]);
    assert_eq!((client_id.as_str(), client_secret.as_str(), scope), ("me", SECRET, None));
    assert_eq!((url.host(), ca_location, ca_pem), (Some("127.0.0.1"), None, None));
    assert!(extensions.is_empty());
    let (id, secret) =
        ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret");
    // By the other name alone, and beside the usual one, which comes later.
    let alias = by(&[("sasl.oauthbearer.client.id", "we"), (id, "you"), (secret, "s")]);
    assert_eq!((alias.client_id.as_str(), alias.client_secret.as_str()), ("we", SECRET));
    let own = [("sasl.oauthbearer.method", " OIDC"), ("sasl.oauthbearer.scope", " a b"), ("https.ca.location", "/ca")];
    let own = by(&own);
    assert_eq!((own.scope.as_deref(), own.ca_location.as_deref()), (Some("a b"), Some("/ca")));
    let extensions = by(&[("sasl.oauthbearer.extensions", r" a=b, ,c=d\,e=f ,g=\\h\ti,")]).extensions;
    let expected = [("a", "b"), ("c", "d,e=f"), ("g", "\\h\ti")];
    assert_eq!(extensions, expected.map(|(key, value)| (key.to_owned(), value.to_owned())));
}

#[test]
fn without_this_login_nothing_is_asked_for() {
    for set in [("sasl.mechanism", "SCRAM-SHA-256"), ("security.protocol", "SSL"), ("security.protocol", "")] {
        assert!(of(&[set]).unwrap().is_none(), "{set:?}");
    }
    // Tokens that librdkafka makes itself.
    let all = [("security.protocol", "sasl_plaintext"), ("sasl.mechanisms", "oauthbearer")];
    let all: BTreeMap<_, _> = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert!(Credentials::of(&all).unwrap().is_none());
}

#[test]
fn what_is_wrong_is_named_without_its_value() {
    for (name, value, why) in [
        ("sasl.oauthbearer.method", "hunter2", "neither default nor oidc"),
        ("sasl.oauthbearer.client.id", "", "is missing"),
        ("sasl.oauthbearer.client.secret", "", "is missing"),
        ("sasl.oauthbearer.token.endpoint.url", "", "is missing"),
        ("sasl.oauthbearer.token.endpoint.url", "hunter2", "no address"),
        ("sasl.oauthbearer.token.endpoint.url", "ftp://hunter2/", "no address"),
        ("sasl.oauthbearer.token.endpoint.url", "https://me:hunter2@host/", "without a user"),
        ("sasl.oauthbearer.grant.type", "urn:ietf:params:oauth:grant-type:jwt-bearer", "client_credentials"),
        ("sasl.oauthbearer.metadata.authentication.type", "azure_imds", "has to be none"),
        ("sasl.oauthbearer.assertion.private.key.pem", "hunter2", "is for assertions"),
        ("sasl.oauthbearer.extensions", "hunter2", "key=value"),
        ("sasl.oauthbearer.extensions", "auth=hunter2", "must not be called auth"),
        ("enable.sasl.oauthbearer.unsecure.jwt", "true", "cannot be set together"),
    ] {
        let message = refused(&[(name, value)]);
        assert!(message.contains(&format!("property {name} ")) && message.contains(why), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
    let both = refused(&[("https.ca.location", "a"), ("https.ca.pem", "b")]);
    assert!(both.contains("https.ca.pem cannot be set together"), "{both}");
    let method = refused(&[("sasl.oauthbearer.method", "")]);
    assert_eq!(
        method,
        "the kafka property sasl.oauthbearer.client.id counts only with sasl.oauthbearer.method: oidc; set that, too"
    );
    let nowhere = by(&[("sasl.oauthbearer.token.endpoint.url", "https://host/"), ("https.ca.location", "/nowhere")]);
    let error = Source::new(nowhere).err().unwrap().message;
    assert_eq!(error, "the kafka property https.ca.location cannot be used: it cannot be read");
}

/// A JWT with these claims.
fn jwt(claims: &str) -> String {
    ["{}", claims, "signature"].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".")
}

fn issued(token: &str) -> String {
    format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":60}}"#)
}

#[test]
fn credentials_in_clear_text_are_known() {
    let url = |url| by(&[("sasl.oauthbearer.token.endpoint.url", url)]).are_sent_in_clear();
    assert!(url("http://login.example.com/") && url("http://10.0.0.1:80/"));
    assert!(!url("https://login.example.com/") && !url("http://localhost:1/"));
    assert!(!url("http://127.0.0.1:1/") && !url("http://[::1]:1/"));
}

#[test]
fn a_token_ends_when_its_claims_say() {
    let token = jwt(r#"{"exp":1700000000,"sub":"me ÿ?"}"#);
    let found = read(&by(&[]), 200, issued(&token).as_bytes()).unwrap();
    assert_eq!((found.token, found.principal.as_str(), found.end_ms), (token, "me ÿ?", 1_700_000_000_000));
    let end = |claims: &str| read(&by(&[]), 201, issued(&jwt(claims)).as_bytes()).map(|issued| issued.end_ms);
    assert_eq!(end(r#"{"exp":1700000000.9}"#), Ok(1_700_000_000_000));
    assert_eq!(end(r#"{"exp":1e300}"#), Ok(i64::MAX));
    for claims in ["{}", r#"{"exp":0}"#, r#"{"exp":-1}"#, r#"{"exp":"soon"}"#] {
        assert!(end(claims).unwrap_err().why.ends_with("does not say when it ends (exp)"), "{claims}");
    }
}

#[test]
fn answers_without_a_token_say_what_to_do() {
    let missing = |status, body: &str| read(&by(&[]), status, body.as_bytes()).err().unwrap();
    for (body, why) in [
        ("<html>", "it is no JSON"),
        ("{}", "it holds no access_token"),
        (r#"{"access_token":7}"#, "it holds no access_token"),
        (r#"{"access_token":"opaque"}"#, "the access_token is no JWT, which it has to be"),
        (r#"{"access_token":"a.b.c"}"#, "the access_token is no JWT, which it has to be"),
        (r#"{"access_token":"a.b.c.d"}"#, "the access_token is no JWT, which it has to be"),
    ] {
        let NoToken { is_lasting, why: said } = missing(200, body);
        assert_eq!((is_lasting, said), (true, format!("the token endpoint's answer is of no use: {why}")));
    }
    for status in [408, 425, 429, 500, 503, 599] {
        let found = missing(status, "busy");
        assert_eq!((found.is_lasting, found.why), (false, format!("the token endpoint answers {status}: busy")));
    }
    let found = missing(401, r#"{"error":"invalid_client","error_description":"no such client"}"#);
    let expected = "the token endpoint answers 401: invalid_client: no such client; correct \
                    sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret, sasl.oauthbearer.scope or \
                    sasl.oauthbearer.token.endpoint.url";
    assert_eq!((found.is_lasting, found.why.as_str()), (true, expected));
    assert!(missing(302, "").why.starts_with("the token endpoint answers 302; correct"));
    assert!(
        missing(400, r#"{"error":"invalid_scope"}"#).why.starts_with("the token endpoint answers 400: invalid_scope;")
    );
}

#[test]
fn a_secret_that_is_sent_back_is_hidden() {
    let basic = STANDARD.encode(format!("me:{SECRET}"));
    let forms = [SECRET, &basic, &STANDARD.encode(SECRET)].join(" ");
    for body in [forms.clone(), format!(r#"{{"error":"no","error_description":"{forms}"}}"#)] {
        let why = read(&by(&[]), 401, body.as_bytes()).err().unwrap().why;
        assert!(!why.contains("hunter2") && !why.contains(&basic), "{why}");
        assert_eq!(why.matches("[hidden]").count(), 3, "{why}");
    }
    // Spelled in another way, or where nobody looks for it.
    for form in [r"hunter2\/+\u00e4", "hunter2%2F%2B%C3%A4", "hunter2%2f%2b%c3%a4", "hunter2&#47;+&auml;"] {
        for body in [form.to_owned(), format!(r#"{{"message":"{form}"}}"#), format!(r#"{{"error":"{form}"}}"#)] {
            let why = read(&by(&[]), 401, body.as_bytes()).err().unwrap().why;
            assert!(!why.contains("hunter2"), "{why}");
        }
    }
    let described = r#"{"error":"invalid_client","error_description":"hunter2%2F"}"#;
    let why = read(&by(&[]), 401, described.as_bytes()).err().unwrap().why;
    assert!(why.starts_with("the token endpoint answers 401: invalid_client; correct"), "{why}");
    assert!(read(&by(&[]), 401, "x\n".repeat(10_000).as_bytes()).err().unwrap().why.len() < 600);
    assert_eq!(format!("{:?}", by(&[])), "Credentials");
}

proptest! {
    #[test]
    fn foreign_answers_never_panic_and_never_show_the_secret(
        status in 0_u16..1000,
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        text in r#"[a-z0-9{}:",. ]{0,60}"#,
    ) {
        for body in [bytes, text.clone().into_bytes(), issued(&jwt(&text)).into_bytes(), [text.as_bytes(), SECRET.as_bytes()].concat()] {
            if let Err(missing) = read(&by(&[]), status, &body) {
                prop_assert!(!missing.why.contains(SECRET));
            }
        }
    }
}

/// A server that takes each request's text, and answers with the next of what is put in: a status and a body.
struct Server {
    url: String,
    asked: Receiver<String>,
    answers: Sender<(u16, String)>,
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/token?x=y", listener.local_addr().unwrap());
        let ((ask, asked), (answers, answered)) = (channel(), channel::<(u16, String)>());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok((status, body)) = answered.recv() else { return };
                let _ = ask.send(serve(stream.unwrap(), status, &body));
            }
        });
        Self { url, asked, answers }
    }

    fn asked(&self) -> String {
        self.asked.recv_timeout(Duration::from_secs(30)).unwrap()
    }
}

fn serve(mut stream: TcpStream, status: u16, body: &str) -> String {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    let is_whole = |text: &str| {
        let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        text.split_once("\r\n\r\n").is_some_and(|(_, body)| Some(body.len()) == length)
    };
    while !is_whole(&text) {
        let count = stream.read(&mut bytes).unwrap();
        text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    text
}

/// A client that notes what it hears.
#[derive(Default)]
struct Client(Mutex<Vec<(String, String)>>);

impl Hears for Client {
    fn hear(&self, held: &Held) {
        assert!(held.end_ms.checked_mul(1000).is_some(), "librdkafka counts in microseconds");
        self.0.lock().unwrap().push((held.token.value().to_owned(), held.principal.clone()));
    }
}

fn lasting_for(seconds: u64, sub: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    jwt(&format!(r#"{{"exp":{},"sub":"{sub}"}}"#, now + seconds))
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_source_asks_as_librdkafka_does_and_tells_all_clients() {
    let server = Server::new();
    let set = [("sasl.oauthbearer.token.endpoint.url", server.url.as_str()), ("sasl.oauthbearer.scope", "a b&c%20d")];
    let source = Source::new(by(&set)).unwrap();
    let early = Arc::new(Client::default());
    source.tell(&early);
    source.start_obtaining_tokens();
    assert!(!source.missing().unwrap().is_lasting);
    // The first token is refreshed after 80 % of its time.
    let (first, second) = (lasting_for(3, "one"), lasting_for(1000, "two"));
    server.answers.send((200, issued(&first))).unwrap();
    let asked = server.asked();
    assert!(asked.starts_with("POST /token?x=y HTTP/1.1\r\n"), "{asked}");
    let basic = STANDARD.encode(format!("me:{SECRET}"));
    for header in [
        format!("authorization: Basic {basic}"),
        "accept: application/json".to_owned(),
        "content-type: application/x-www-form-urlencoded".to_owned(),
    ] {
        assert!(asked.contains(&format!("\r\n{header}\r\n")), "{asked}");
    }
    assert!(asked.ends_with("\r\n\r\ngrant_type=client_credentials&scope=a%20b%26c%20d"), "{asked}");
    await_that("there is a token", || source.missing().is_none());
    assert_eq!(source.tokens().get(Instant::now()).unwrap().value(), first);
    let late = Arc::new(Client::default());
    source.tell(&late);
    server.answers.send((200, issued(&second))).unwrap();
    server.asked();
    await_that("the second token is told", || late.0.lock().unwrap().len() == 2);
    let expected = [(first, "one".to_owned()), (second, "two".to_owned())];
    for client in [&early, &late] {
        await_that("each client hears of it", || client.0.lock().unwrap().len() == 2);
        assert_eq!(*client.0.lock().unwrap(), expected);
    }
    assert_eq!(source.tokens().get(Instant::now()).unwrap().value(), expected[1].0);
}

#[test]
fn a_source_tries_again_and_says_meanwhile_why_there_is_no_token() {
    let server = Server::new();
    let source = Source::new(by(&[("sasl.oauthbearer.token.endpoint.url", &server.url)])).unwrap();
    source.start_obtaining_tokens();
    server.answers.send((401, r#"{"error":"invalid_client"}"#.to_owned())).unwrap();
    await_that("it is refused", || source.missing().is_some_and(|missing| missing.why.contains("401: invalid_client")));
    assert!(source.missing().unwrap().is_lasting);
    // A token that has ended when it comes is none.
    server.answers.send((200, issued(&jwt(r#"{"exp":1700000000}"#)))).unwrap();
    await_that("it has ended", || source.missing().is_some_and(|missing| missing.why.contains("compare the clocks")));
    let client = Arc::new(Client::default());
    source.tell(&client);
    server.answers.send((200, issued(&jwt(r#"{"exp":1e300}"#)))).unwrap();
    await_that("there is a token", || source.missing().is_none());
    await_that("the client hears of it", || client.0.lock().unwrap().len() == 1);
}

#[test]
fn an_endpoint_that_is_not_there_is_no_mistake() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}/");
    let source = Source::new(by(&[("sasl.oauthbearer.token.endpoint.url", &url)])).unwrap();
    source.start_obtaining_tokens();
    await_that("it is not there", || source.missing().is_some_and(|missing| missing.why.contains("cannot be reached")));
    let NoToken { is_lasting, why } = source.missing().unwrap();
    assert!(!is_lasting && why.contains("refused"), "{why}");
}
