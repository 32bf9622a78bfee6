//! How connections begin: versions and logins.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kafka_protocol::messages::{
    ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use sha2::{Digest as _, Sha256};

use super::super::*;
use super::world::*;
use crate::cluster::kafka::wire::login::scram::{Hmac, stretch};
use crate::cluster::kafka::wire::login::{NoToken, Token, Tokens};

#[test]
fn versions_are_requested_first() {
    let mut world = World::new(settings());
    assert!(!world.is_ready(-1, Purpose::Control), "it is not connected yet");
    world.settle();
    let versions = world.brokers.ensure_ready(-1, Purpose::Control, world.now).unwrap().clone();
    assert_eq!(versions.range_of(ECHO), Some(1..=9));
    assert_eq!(versions.range_of(0), None);
    assert_eq!(
        (versions.pick(ECHO, 0..=5), versions.pick(ECHO, 3..=20), versions.pick(ECHO, 10..=20)),
        (Some(5), Some(9), None)
    );
    assert_eq!((versions.feature("transaction.version"), versions.feature("other")), (Some(2), None));
    let seen: Vec<_> = world.seen.iter().map(|seen| (seen.api_key, seen.version, seen.correlation)).collect();
    assert_eq!(seen, [(ApiKey::ApiVersions as i16, 3, 0)]);
    assert_eq!(world.seen[0].client_id.as_deref(), Some("ratchet"));
}

#[test]
fn versions_request_is_repeated_in_a_version_that_the_broker_knows() {
    for (highest, lists_versions, second_version) in [(2, true, 2), (0, true, 0), (2, false, 0)] {
        let mut world = World::new(settings());
        (world.cluster.api_versions_max, world.cluster.lists_versions) = (highest, lists_versions);
        world.until(|world| world.is_ready(-1, Purpose::Control));
        assert_eq!(world.seen.iter().map(|seen| seen.version).collect::<Vec<_>>(), [3, second_version]);
        let versions = world.brokers.ensure_ready(-1, Purpose::Control, world.now).unwrap();
        assert_eq!((versions.range_of(ECHO), versions.feature("transaction.version")), (Some(1..=9), None));
    }
}

#[test]
fn broker_that_refuses_every_version_is_reported_as_trouble() {
    let mut world = World::new(settings());
    world.cluster.api_versions_max = -1;
    world.is_ready(-1, Purpose::Control);
    world.settle();
    let trouble = world.brokers.trouble().unwrap();
    assert_eq!((trouble.kind, &trouble.address), (TroubleKind::Protocol, &at(9001)));
    assert_eq!(trouble.message, "it refuses to list its versions: error 35");
}

/// A broker's side of SASL.
#[derive(Default)]
struct Sasl {
    password: &'static str,
    lifetime_ms: i64,
    /// The first messages of the client and of the broker in SCRAM.
    first: Option<(String, String)>,
}

impl Sasl {
    fn serve(mut self, mechanisms: &'static [&'static str]) -> Serve {
        Box::new(move |_, seen| match seen.api_key {
            key if key == ApiKey::SaslHandshake as i16 => {
                let request = SaslHandshakeRequest::decode(&mut seen.body.clone(), seen.version).unwrap();
                let offered = mechanisms.iter().map(|name| StrBytes::from_static_str(name)).collect();
                let error = if mechanisms.contains(&&*request.mechanism) { 0 } else { 33 };
                let response = SaslHandshakeResponse::default().with_error_code(error).with_mechanisms(offered);
                Some(encode(&response, seen.version))
            }
            key if key == ApiKey::SaslAuthenticate as i16 => {
                let request = SaslAuthenticateRequest::decode(&mut seen.body.clone(), seen.version).unwrap();
                let token = String::from_utf8(request.auth_bytes.to_vec()).unwrap();
                let (reply, is_done) = match token.chars().next() {
                    Some('\0') => self.plain(&token),
                    _ if mechanisms.contains(&"OAUTHBEARER") => self.bearer(&token),
                    _ => self.scram(&token),
                };
                let response = SaslAuthenticateResponse::default();
                let response = match reply {
                    Some(reply) => response
                        .with_auth_bytes(reply.into_bytes().into())
                        .with_session_lifetime_ms(if is_done { self.lifetime_ms } else { 0 }),
                    None => response.with_error_code(58).with_error_message(Some("invalid credentials".into())),
                };
                Some(encode(&response, seen.version))
            }
            _ => None,
        })
    }

    fn plain(&self, token: &str) -> (Option<String>, bool) {
        ((token == format!("\0me\0{}", self.password)).then(String::new), true)
    }

    fn bearer(&self, token: &str) -> (Option<String>, bool) {
        let expected = format!("n,,\x01auth=Bearer {}\x01\x01", self.password);
        match token {
            "\x01" => (None, true),
            token if token == expected => (Some(String::new()), true),
            _ => (Some(r#"{"status":"invalid_token"}"#.to_owned()), false),
        }
    }

    fn scram(&mut self, token: &str) -> (Option<String>, bool) {
        let salt = b"salt";
        let Some((client, challenge)) = self.first.take() else {
            let client = token.strip_prefix("n,,").unwrap().to_owned();
            let nonce = client.rsplit_once("r=").unwrap().1;
            let challenge = format!("r={nonce}+,s={},i=4096", STANDARD.encode(salt));
            self.first = Some((client, challenge.clone()));
            return (Some(challenge), false);
        };
        let (bare, proof) = token.rsplit_once(",p=").unwrap();
        let signed = format!("{client},{challenge},{bare}");
        let salted = Hmac::<Sha256>::new(&stretch::<Sha256>(self.password.as_bytes(), salt, 4096));
        let client_key = salted.sign(&[b"Client Key"]);
        let signature = Hmac::<Sha256>::new(&Sha256::digest(client_key)).sign(&[signed.as_bytes()]);
        let expected: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
        let server_signature = Hmac::<Sha256>::new(&salted.sign(&[b"Server Key"])).sign(&[signed.as_bytes()]);
        ((STANDARD.encode(expected) == proof).then(|| format!("v={}", STANDARD.encode(server_signature))), true)
    }
}

fn encode(response: &impl Encodable, version: i16) -> Vec<u8> {
    let mut body = Vec::new();
    response.encode(&mut body, version).unwrap();
    body
}

fn plain() -> Settings {
    Settings { login: Login::Plain { user: "me".into(), password: "secret".into() }, ..settings() }
}

fn scram() -> Settings {
    Settings { login: Login::Scram { sha512: false, user: "me".into(), password: "secret".into() }, ..settings() }
}

#[test]
fn logins_come_before_requests() {
    for (settings, tokens) in [(plain(), 1), (scram(), 2)] {
        let mut world = World::new(settings);
        world.serve = Sasl { password: "secret", ..Sasl::default() }.serve(&["PLAIN", "SCRAM-SHA-256"]);
        world.watch("orders");
        world.until(|world| world.leader(0).is_some());
        let seen: Vec<_> = world.seen.iter().map(|seen| seen.api_key).collect();
        let mut expected = vec![18, 17];
        expected.extend(vec![36; tokens]);
        expected.push(3);
        assert_eq!(seen, expected);
        assert_eq!(world.brokers.trouble(), None);
    }
}

#[test]
fn wrong_password_is_reported_until_the_login_succeeds() {
    for settings in [plain(), scram()] {
        let mut world = World::new(settings);
        world.serve = Sasl { password: "other", ..Sasl::default() }.serve(&["PLAIN", "SCRAM-SHA-256"]);
        world.watch("orders");
        world.pass(Duration::from_secs(10));
        let trouble = world.brokers.trouble().unwrap();
        assert_eq!(
            (trouble.kind, trouble.message.as_str()),
            (TroubleKind::Login, "it refuses the login: invalid credentials")
        );
        let attempts = world.connects.len();
        assert!((11..25).contains(&attempts), "the backoff grows to a second: {attempts}");
        world.serve = Sasl { password: "secret", ..Sasl::default() }.serve(&["PLAIN", "SCRAM-SHA-256"]);
        world.until(|world| world.leader(0).is_some());
        assert_eq!(world.brokers.trouble(), None);
    }
}

#[test]
fn login_mechanism_that_is_not_offered_is_reported_as_trouble() {
    let mut world = World::new(scram());
    world.serve = Sasl::default().serve(&["PLAIN", "GSSAPI"]);
    world.is_ready(-1, Purpose::Control);
    world.settle();
    let trouble = world.brokers.trouble().unwrap();
    assert_eq!(trouble.kind, TroubleKind::Login);
    assert_eq!(trouble.message, "it does not support the login SCRAM-SHA-256, only PLAIN, GSSAPI");
}

#[test]
fn login_is_renewed_before_it_expires_and_no_request_interrupts_it() {
    let mut world = World::new(scram());
    world.serve = Sasl { password: "secret", lifetime_ms: 60_000, ..Sasl::default() }.serve(&["SCRAM-SHA-256"]);
    world.until(|world| world.is_ready(-1, Purpose::Produce));
    let start = world.now;
    // One request has no response yet, so the login cannot be renewed.
    let mut held = None;
    world.brokers.send(-1, Purpose::Produce, echo(b"held"), Duration::from_secs(600), world.now);
    for link in world.links() {
        world.write(link, usize::MAX);
        let wire = world.wires.get_mut(&link).unwrap();
        if !wire.to_broker.is_empty() {
            held = Some((link, std::mem::take(&mut wire.to_broker)));
        }
    }
    let took = world.until(|world| !world.is_ready(-1, Purpose::Produce));
    assert!((51_000..57_000).contains(&took.as_millis()), "{took:?}");
    assert_eq!((world.count(17), world.wires.len()), (1, 1));
    world.send(-1, Purpose::Produce, b"too late");
    world.settle();
    assert_eq!(world.take_failures(), [(RequestId(1), false, "the broker is not connected".to_owned())]);
    let (link, bytes) = held.unwrap();
    world.wires.get_mut(&link).unwrap().to_broker.extend(bytes);
    world.settle();
    assert_eq!(world.take_responses(), [(RequestId(0), b"held".to_vec())]);
    assert!(world.is_ready(-1, Purpose::Produce), "the client has logged in again on the same connection");
    assert_eq!((world.count(17), world.count(18), world.connects.len()), (2, 1, 1));
    // The login is renewed again although no request is sent.
    let took = world.until(|world| world.count(17) == 3);
    assert!((51_000..57_000).contains(&took.as_millis()), "{took:?}");
    assert!(world.now > start + Duration::from_secs(100));
    world.send(-1, Purpose::Produce, b"more");
    world.settle();
    assert_eq!(world.take_responses(), [(RequestId(2), b"more".to_vec())]);
}

#[test]
fn failed_renewal_of_a_login_breaks_the_connection() {
    let mut world = World::new(scram());
    world.serve = Sasl { password: "secret", lifetime_ms: 10_000, ..Sasl::default() }.serve(&["SCRAM-SHA-256"]);
    world.until(|world| world.is_ready(-1, Purpose::Produce));
    world.serve = Sasl { password: "other", ..Sasl::default() }.serve(&["SCRAM-SHA-256"]);
    world.pass(Duration::from_secs(10));
    assert!(!world.is_ready(-1, Purpose::Produce));
    assert_eq!(world.brokers.trouble().unwrap().kind, TroubleKind::Login);
}

#[test]
fn login_with_a_tiny_lifetime_is_renewed_once_a_second() {
    let mut world = World::new(scram());
    world.serve = Sasl { password: "secret", lifetime_ms: 1, ..Sasl::default() }.serve(&["SCRAM-SHA-256"]);
    world.until(|world| world.is_ready(-1, Purpose::Produce));
    world.pass(Duration::from_secs(10));
    assert!((9..=12).contains(&world.count(17)), "{}", world.count(17));
}

const BEARER: &[&str] = &["OAUTHBEARER"];

/// A client that logs in with tokens, and the cell into which the tokens are put.
fn oauth() -> (World, Arc<Tokens>) {
    let tokens = Arc::<Tokens>::default();
    (World::new(Settings { login: Login::OAuth(Arc::clone(&tokens)), ..settings() }), tokens)
}

fn put(tokens: &Tokens, value: &str, end: Instant) {
    tokens.put(Arc::new(Token::new(value.to_owned(), Vec::new()).unwrap()), end);
}

#[test]
fn login_waits_for_a_token() {
    let (mut world, tokens) = oauth();
    world.serve = Sasl { password: "one", ..Sasl::default() }.serve(BEARER);
    world.watch("orders");
    tokens.fail(NoToken { is_lasting: false, why: "the endpoint is down".to_owned() });
    world.pass(ms(2000));
    assert_eq!((world.count(17), world.brokers.trouble(), world.brokers.failure()), (0, None, None));
    put(&tokens, "one", world.now + Duration::from_secs(60));
    let took = world.until(|world| world.leader(0).is_some());
    assert!(took <= ms(20), "{took:?}");
    assert_eq!(world.brokers.trouble(), None);
}

#[test]
fn login_without_a_token_fails_and_gives_the_reason() {
    let (mut world, tokens) = oauth();
    world.is_ready(-1, Purpose::Control);
    tokens.fail(NoToken { is_lasting: false, why: "the endpoint is down".to_owned() });
    let took = world.until(|world| world.brokers.failure().is_some());
    assert!((5000..5100).contains(&took.as_millis()), "after the timeout of a request: {took:?}");
    let why = "kafka:9001: it requires a login, and there is no token: the endpoint is down";
    assert_eq!((world.brokers.failure(), world.brokers.trouble()), (Some(why), None));
    // A problem that a person has to fix is reported at once.
    tokens.fail(NoToken { is_lasting: true, why: "the secret is wrong".to_owned() });
    let took = world.until(|world| {
        world.is_ready(-1, Purpose::Control);
        world.brokers.trouble().is_some()
    });
    assert!(took < ms(1500), "{took:?}");
    let trouble = world.brokers.trouble().unwrap();
    assert_eq!(trouble.kind, TroubleKind::Login);
    assert_eq!(trouble.message, "it requires a login, and there is no token: the secret is wrong");
    assert_eq!(world.count(17), 0);
    // The trouble is cleared once it is fixed.
    world.serve = Sasl { password: "one", ..Sasl::default() }.serve(BEARER);
    put(&tokens, "one", world.now + Duration::from_secs(60));
    world.until(|world| world.is_ready(-1, Purpose::Control));
    assert_eq!(world.brokers.trouble(), None);
}

#[test]
fn refused_token_is_reported_until_another_one_is_available() {
    let (mut world, tokens) = oauth();
    world.serve = Sasl { password: "two", ..Sasl::default() }.serve(BEARER);
    put(&tokens, "one", world.now + Duration::from_secs(600));
    world.watch("orders");
    world.pass(ms(3000));
    let trouble = world.brokers.trouble().unwrap();
    assert_eq!(trouble.kind, TroubleKind::Login);
    assert!(trouble.message.starts_with("it refuses the token: invalid_token"), "{}", trouble.message);
    put(&tokens, "two", world.now + Duration::from_secs(600));
    world.until(|world| world.leader(0).is_some());
    assert_eq!(world.brokers.trouble(), None);
}

#[test]
fn login_is_renewed_with_the_current_token() {
    let (mut world, tokens) = oauth();
    world.serve = Sasl { password: "one", lifetime_ms: 10_000, ..Sasl::default() }.serve(BEARER);
    put(&tokens, "one", world.now + Duration::from_secs(10));
    world.until(|world| world.is_ready(-1, Purpose::Produce));
    world.serve = Sasl { password: "two", lifetime_ms: 10_000, ..Sasl::default() }.serve(BEARER);
    world.pass(ms(8000));
    put(&tokens, "two", world.now + Duration::from_secs(10));
    world.pass(ms(2000));
    assert!(world.is_ready(-1, Purpose::Produce));
    assert_eq!((world.count(17), world.connects.len(), world.brokers.trouble()), (2, 1, None));
    // The third token is late: the connection waits for it, then continues.
    world.serve = Sasl { password: "three", lifetime_ms: 10_000, ..Sasl::default() }.serve(BEARER);
    tokens.put(Arc::new(Token::new("two".to_owned(), Vec::new()).unwrap()), world.now);
    world.pass(ms(11_000));
    assert!(!world.is_ready(-1, Purpose::Produce));
    assert_eq!(world.brokers.failure(), None, "the connection waits for a token");
    put(&tokens, "three", world.now + Duration::from_secs(10));
    world.pass(ms(20));
    assert!(world.is_ready(-1, Purpose::Produce));
    assert_eq!((world.count(17), world.connects.len()), (3, 1));
}
