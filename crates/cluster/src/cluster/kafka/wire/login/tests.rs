//! Logins against the standards' examples, against Kafka's own encoding of the requests, and against brokers that lie.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;
use sha2::{Sha256, Sha512};

use super::scram::{Hmac, stretch};
use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn scram(sha512: bool, user: &str, password: &str) -> Login {
    Login::Scram { sha512, user: user.to_owned(), password: password.to_owned() }
}

/// A nonce whose encoding is this text of 32 characters.
fn nonce(text: &str) -> [u8; NONCE_BYTES] {
    STANDARD.decode(text).unwrap().try_into().unwrap()
}

#[test]
fn hmac_matches_rfc_4231() {
    // Test case 2, and test case 6 with a key that is longer than a block.
    let signed = Hmac::<Sha256>::new(b"Jefe").sign(&[b"what do ya want ", b"for nothing?"]);
    assert_eq!(hex(&signed), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
    let signed = Hmac::<Sha256>::new(&[0xaa; 131]).sign(&[text]);
    assert_eq!(hex(&signed), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    let signed = Hmac::<Sha512>::new(&[0xaa; 131]).sign(&[text]);
    assert!(hex(&signed).starts_with("80b24263c7c1a3ebb71493c1dd7be8b49b46d1f41b4aeec1121b013783f8f352"));
}

#[test]
fn a_password_is_stretched_as_rfc_7914_and_openssl_do() {
    // RFC 7914, section 11, the first 32 bytes.
    let stretched = stretch::<Sha256>(b"passwd", b"salt", 1);
    assert_eq!(hex(&stretched), "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc");
    let stretched = stretch::<Sha256>(b"Password", b"NaCl", 80_000);
    assert_eq!(hex(&stretched), "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56");
    // hashlib.pbkdf2_hmac("sha512", b"password", b"salt", 4096)
    let stretched = stretch::<Sha512>(b"password", b"salt", 4096);
    let expected = "d197b1b33db0143e018b12f3d1d1479e6cdebdcc97c5c0f87f6902e072f457b5\
                    143f30602641b3d55cd335988cb36b84376060ecd532e039b742a239434af2d5";
    assert_eq!(hex(&stretched), expected);
}

#[test]
fn login_follows_the_example_of_rfc_7677() {
    let own = "rOprNGfwEbeRWgbNEkqO";
    let login = scram(false, "user", "pencil");
    let step = scram::Step::Challenge { sha512: false, first_bare: format!("n=user,r={own}"), nonce: own.to_owned() };
    let mut dialogue = Dialogue(Step::Scram(step));
    let challenge = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    let last = dialogue.next(&login, challenge.as_bytes()).unwrap().unwrap();
    let expected =
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    assert_eq!(String::from_utf8(last).unwrap(), expected);
    assert_eq!(dialogue.next(&login, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=").unwrap(), None);
    dialogue.next(&login, b"v=").unwrap_err();
}

/// A broker's side of SCRAM, written independently of the client's.
fn serve(sha512: bool, password: &str, first: &[u8], last: impl FnOnce(&str) -> Vec<u8>) -> Result<String, String> {
    let first = std::str::from_utf8(first).unwrap().strip_prefix("n,,").unwrap().to_owned();
    let nonce = first.split(',').nth(1).unwrap().strip_prefix("r=").unwrap();
    let challenge = format!("r={nonce}more,s={},i=4096", STANDARD.encode("salt of 16 bytes"));
    let last = String::from_utf8(last(&challenge)).unwrap();
    let (bare, proof) = last.rsplit_once(",p=").unwrap();
    let signed = format!("{first},{challenge},{bare}");
    let (proof, salt) = (STANDARD.decode(proof).unwrap(), b"salt of 16 bytes");
    let (client_key, client_signature, server_signature) = match sha512 {
        true => {
            let salted = stretch::<Sha512>(password.as_bytes(), salt, 4096);
            let key = Hmac::<Sha512>::new(&salted).sign(&[b"Client Key"]).to_vec();
            let stored = <Sha512 as sha2::Digest>::digest(&key);
            let server = Hmac::<Sha512>::new(&salted).sign(&[b"Server Key"]);
            let sign = |key: &[u8]| Hmac::<Sha512>::new(key).sign(&[signed.as_bytes()]).to_vec();
            (key, sign(&stored), sign(&server))
        }
        false => {
            let salted = stretch::<Sha256>(password.as_bytes(), salt, 4096);
            let key = Hmac::<Sha256>::new(&salted).sign(&[b"Client Key"]).to_vec();
            let stored = <Sha256 as sha2::Digest>::digest(&key);
            let server = Hmac::<Sha256>::new(&salted).sign(&[b"Server Key"]);
            let sign = |key: &[u8]| Hmac::<Sha256>::new(key).sign(&[signed.as_bytes()]).to_vec();
            (key, sign(&stored), sign(&server))
        }
    };
    let proven: Vec<u8> = proof.iter().zip(client_signature).map(|(a, b)| a ^ b).collect();
    if proven != client_key {
        Err("e=invalid-proof".into())
    } else {
        Ok(format!("v={}", STANDARD.encode(server_signature)))
    }
}

/// Logs in with a broker that knows `theirs`.
fn login_with(login: &Login, theirs: &str) -> Result<(), LoginError> {
    let (mut dialogue, first) = Dialogue::begin(login, [7; NONCE_BYTES]).unwrap();
    let sha512 = matches!(login, Login::Scram { sha512: true, .. });
    let served = serve(sha512, theirs, &first, |text| dialogue.next(login, text.as_bytes()).unwrap().unwrap());
    let last = served.unwrap_or_else(|refused| refused);
    assert_eq!(dialogue.next(login, last.as_bytes())?, None);
    Ok(())
}

#[test]
fn scram_login_succeeds_only_with_the_same_password() {
    for sha512 in [false, true] {
        let login = scram(sha512, "a=b,c", "pässword");
        login_with(&login, "pässword").unwrap();
        let refused = login_with(&login, "password").unwrap_err();
        assert_eq!(refused.0, "it refuses the login: invalid-proof");
    }
}

#[test]
fn separators_in_a_user_name_are_escaped() {
    let (_, message) = Dialogue::begin(&scram(false, "a=b,c", "x"), nonce("rOprNGfwEbeRWgbNEkqOrOprNGfwEbeR")).unwrap();
    assert_eq!(message, b"n,,n=a=3Db=2Cc,r=rOprNGfwEbeRWgbNEkqOrOprNGfwEbeR");
}

#[test]
fn invalid_challenges_are_refused() {
    let login = scram(false, "user", "pencil");
    let refused = |challenge: &str| {
        let (mut dialogue, _) = Dialogue::begin(&login, nonce("rOprNGfwEbeRWgbNEkqOrOprNGfwEbeR")).unwrap();
        dialogue.next(&login, challenge.as_bytes()).unwrap_err().0
    };
    let own = "rOprNGfwEbeRWgbNEkqOrOprNGfwEbeR";
    assert_eq!(refused("r=other,s=c2FsdA==,i=4096"), "its login message belongs to another login: its nonce is wrong");
    assert!(refused(&format!("r={own},s=c2FsdA==,i=4096")).contains("nonce"), "the broker has to add to it");
    assert!(refused(&format!("r={own}+,s=c2FsdA==,i=4095")).contains("4095 iterations"));
    assert!(refused(&format!("r={own}+,s=c2FsdA==,i=131073")).contains("131073 iterations"));
    assert!(refused(&format!("r={own}+,s=c2FsdA==,i=99999999999")).contains("no number"));
    assert!(refused(&format!("r={own}+,s=,i=4096")).contains("no salt"));
    assert!(refused(&format!("r={own}+,s=?,i=4096")).contains("no salt"));
    assert!(refused(&format!("m=x,r={own}+,s=c2FsdA==,i=4096")).contains("no nonce"), "an unknown mandatory extension");
    assert!(refused("").contains("no nonce"));
    assert_eq!(refused("e=unknown-user"), "it refuses the login: unknown-user");
    assert!(refused(&"x".repeat(10_000)).contains("not text"));
}

#[test]
fn a_broker_that_does_not_know_the_password_is_refused() {
    let login = scram(false, "user", "pencil");
    let (mut dialogue, first) = Dialogue::begin(&login, [7; NONCE_BYTES]).unwrap();
    serve(false, "pencil", &first, |text| dialogue.next(&login, text.as_bytes()).unwrap().unwrap()).unwrap();
    let wrong = format!("v={}", STANDARD.encode([1; 32]));
    let refused = dialogue.next(&login, wrong.as_bytes()).unwrap_err();
    assert_eq!(refused.0, "it did not prove that it knows the password: its signature is wrong");
}

#[test]
fn plain_login_sends_user_and_password() {
    let login = Login::Plain { user: "me".into(), password: "secret".into() };
    let (mut dialogue, message) = Dialogue::begin(&login, [0; NONCE_BYTES]).unwrap();
    assert_eq!(message, b"\0me\0secret");
    assert_eq!(dialogue.next(&login, b"").unwrap(), None);
    let split = Login::Plain { user: "me".into(), password: "sec\0ret".into() };
    assert!(Dialogue::begin(&split, [0; NONCE_BYTES]).is_err());
}

fn token(value: &str, extensions: &[(&str, &str)]) -> Result<Token, &'static str> {
    let extensions = extensions.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Token::new(value.to_owned(), extensions)
}

fn bearer(value: &str, extensions: &[(&str, &str)]) -> Login {
    Login::Bearer(Arc::new(token(value, extensions).unwrap()))
}

#[test]
fn token_is_sent_as_rfc_7628_says() {
    let login = bearer("a.b.c", &[("logicalCluster", "lkc-1"), ("note", "a, b=c")]);
    let (mut dialogue, message) = Dialogue::begin(&login, [0; NONCE_BYTES]).unwrap();
    assert_eq!(message, b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc-1\x01note=a, b=c\x01\x01");
    assert_eq!(dialogue.next(&login, b"").unwrap(), None);
    dialogue.next(&login, b"").unwrap_err();
    let (_, message) = Dialogue::begin(&bearer("a.b.c", &[]), [0; NONCE_BYTES]).unwrap();
    assert_eq!(message, b"n,,\x01auth=Bearer a.b.c\x01\x01");
}

#[test]
fn challenge_explains_why_a_token_is_refused() {
    let why = |challenge: &str| {
        let login = bearer("a.b.c", &[]);
        let (mut dialogue, _) = Dialogue::begin(&login, [0; NONCE_BYTES]).unwrap();
        assert_eq!(dialogue.next(&login, challenge.as_bytes()).unwrap(), Some(vec![1]), "{challenge}");
        let mut body = BytesMut::new();
        let response = SaslAuthenticateResponse::default().with_error_code(58);
        response.with_error_message(Some(StrBytes::from_static_str("no"))).encode(&mut body, 2).unwrap();
        let LoginError(why) = dialogue.refused(&login, read_authenticate_response(&login, &body, 2).unwrap_err());
        why
    };
    let hint = "its issuer and audience must be those that the broker trusts, and it must not have expired by the \
                broker's clock";
    assert_eq!(why(r#"{"status":"invalid_token"}"#), format!("it refuses the token: invalid_token; {hint}"));
    let scope = why(r#"{"status":"insufficient_scope","scope":"kafka"}"#);
    assert_eq!(scope, format!("it refuses the token: insufficient_scope; it requires the scope kafka; {hint}"));
    assert!(why("not\nJSON a.b.c").starts_with("it refuses the token: not JSON [hidden]; its issuer"));
    assert!(why(&"x".repeat(100_000)).len() <= 300);
    // A broker that does not end the exchange with an error.
    let login = bearer("a.b.c", &[]);
    let (mut dialogue, _) = Dialogue::begin(&login, [0; NONCE_BYTES]).unwrap();
    dialogue.next(&login, b"{}").unwrap().unwrap();
    assert!(dialogue.next(&login, b"").unwrap_err().0.starts_with("it refuses the token: {}"));
}

#[test]
fn tokens_and_extensions_that_break_the_format_are_refused() {
    for value in ["", "a b", "a\x01b", "a\nb", "ä"] {
        assert!(token(value, &[]).unwrap_err().contains("visible ASCII characters"), "{value:?}");
    }
    for key in ["", "a1", "a=b", "a b", "ä"] {
        assert!(token("a", &[(key, "x")]).unwrap_err().contains("letters"), "{key:?}");
    }
    assert!(token("a", &[("auth", "x")]).unwrap_err().contains("auth"));
    for value in ["a\x01auth=Bearer b", "\0", "ä"] {
        assert!(token("a", &[("key", value)]).unwrap_err().contains("value of an extension"), "{value:?}");
    }
    token("a", &[("key", ""), ("Key", "\ta b\r\n~")]).unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a clock that is moved by hand has to begin somewhere")]
fn token_is_valid_until_it_ends_and_then_the_failure_is_returned() {
    let (tokens, now) = (Arc::new(Tokens::default()), Instant::now());
    let later = |s| now + std::time::Duration::from_secs(s);
    let login = Login::OAuth(Arc::clone(&tokens));
    assert_eq!(login.mechanism(), Some("OAUTHBEARER"));
    let missing = login.with_current_token(now).unwrap_err();
    assert_eq!((missing.is_lasting, missing.why.as_str()), (false, "the token endpoint has not answered yet"));
    let put = |value: &str, end| tokens.put(Arc::new(token(value, &[]).unwrap()), end);
    put("one", later(10));
    let down = NoToken { is_lasting: true, why: "it is down".to_owned() };
    tokens.fail(down.clone());
    assert_eq!(login.with_current_token(later(9)).unwrap().secret(), "one");
    assert_eq!(login.with_current_token(later(10)).unwrap_err(), down);
    put("two", later(20));
    assert_eq!(login.with_current_token(later(10)).unwrap().secret(), "two");
    assert!(
        !login.with_current_token(later(20)).unwrap_err().is_lasting,
        "failures before the last token are forgotten"
    );
    // `Login::OAuth` itself holds no token to begin with.
    Dialogue::begin(&login, [0; NONCE_BYTES]).unwrap_err();
}

#[test]
fn passwords_and_tokens_are_never_shown() {
    let logins = [
        Login::Plain { user: "me".into(), password: "hunter2".into() },
        scram(true, "me", "hunter2"),
        bearer("hunter2", &[("key", "hunter2")]),
    ];
    for login in logins {
        assert!(!format!("{login:?}").contains("hunter2"));
        assert_eq!(login.clean("no hunter2\nhere"), "no [hidden] here");
        let mut body = BytesMut::new();
        let said = StrBytes::from_static_str("wrong password hunter2");
        let response = SaslAuthenticateResponse::default().with_error_code(58).with_error_message(Some(said));
        response.encode(&mut body, 2).unwrap();
        let refused = read_authenticate_response(&login, &body, 2).unwrap_err();
        assert_eq!(refused.0, "it refuses the login: wrong password [hidden]");
        let (dialogue, _) = Dialogue::begin(&login, [0; NONCE_BYTES]).unwrap();
        assert_eq!(format!("{dialogue:?}"), "Dialogue");
    }
    assert_eq!(Login::None.clean(&"x".repeat(1000)).len(), 300);
}

#[test]
fn kafka_protocol_reads_the_requests() {
    let mut body = Bytes::from(handshake("SCRAM-SHA-512"));
    assert_eq!(SaslHandshakeRequest::decode(&mut body, 1).unwrap().mechanism.as_str(), "SCRAM-SHA-512");
    for version in AUTHENTICATE_VERSIONS {
        let mut body = Bytes::from(authenticate_request(b"token", version));
        assert_eq!(SaslAuthenticateRequest::decode(&mut body, version).unwrap().auth_bytes, Bytes::from("token"));
        assert!(body.is_empty());
    }
}

#[test]
fn responses_that_kafka_protocol_writes_are_read() {
    let login = scram(false, "user", "pencil");
    for version in AUTHENTICATE_VERSIONS {
        let lifetime_ms = if version >= 1 { 3_600_000 } else { 0 };
        let response = SaslAuthenticateResponse::default().with_auth_bytes(Bytes::from("token"));
        let mut body = BytesMut::new();
        response.with_session_lifetime_ms(lifetime_ms).encode(&mut body, version).unwrap();
        assert_eq!(read_authenticate_response(&login, &body, version).unwrap(), (&b"token"[..], lifetime_ms as u64));
        for cut in 0..body.len() - usize::from(version >= 2) {
            assert!(read_authenticate_response(&login, &body[..cut], version).is_err(), "cut at {cut}");
        }
    }
    let mut body = BytesMut::new();
    let offered = ["PLAIN", "GSSAPI"].map(StrBytes::from_static_str).to_vec();
    SaslHandshakeResponse::default().with_error_code(33).with_mechanisms(offered).encode(&mut body, 1).unwrap();
    let refused = read_handshake_response(&login, &body).unwrap_err();
    assert_eq!(refused.0, "it does not support the login SCRAM-SHA-256, only PLAIN, GSSAPI");
}

proptest! {
    /// Splits the message as a broker does: the token and each extension are where they belong.
    #[test]
    fn token_and_extensions_are_read_back_from_the_message(
        value in "[!-~]{1,60}",
        extensions in prop::collection::vec(("[a-zA-Z]{5,9}", "[ -~\t\r\n]{0,20}"), 0..5),
    ) {
        let token = Token::new(value.clone(), extensions.clone()).unwrap();
        let (_, message) = Dialogue::begin(&Login::Bearer(Arc::new(token)), [0; NONCE_BYTES]).unwrap();
        let message = String::from_utf8(message).unwrap();
        let parts: Vec<&str> = message.strip_suffix("\x01\x01").unwrap().split('\x01').collect();
        let expected = ["n,,".to_owned(), format!("auth=Bearer {value}")].into_iter();
        let expected = expected.chain(extensions.iter().map(|(key, value)| format!("{key}={value}")));
        prop_assert_eq!(parts, expected.collect::<Vec<_>>());
    }

    #[test]
    fn foreign_bytes_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        text in "[rsiv=,a-zA-Z0-9+/]{0,80}",
    ) {
        let plain = Login::Plain { user: "a".into(), password: "b".into() };
        for login in [scram(false, "user", "pencil"), plain, bearer("a.b.c", &[])] {
            for message in
                [&bytes[..], text.as_bytes(), format!("r=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH{text}").as_bytes()]
            {
                let (mut dialogue, _) = Dialogue::begin(&login, [7; NONCE_BYTES]).unwrap();
                let _ = dialogue.next(&login, message);
                let _ = dialogue.next(&login, message);
            }
            let _ = read_handshake_response(&login, &bytes);
            for version in AUTHENTICATE_VERSIONS {
                let _ = read_authenticate_response(&login, &bytes, version);
            }
        }
    }
}
