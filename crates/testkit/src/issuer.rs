//! A small token endpoint: a real server of HTTPS that issues tokens to one client, signed by RSA, as brokers check them.
//!
//! Signatures are openssl's. A server lives as long as the tests.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rustls::{ServerConnection, StreamOwned};

use crate::kafka::{Port, run_folder};
use crate::provider::Authority;

/// The client that gets tokens.
pub const CLIENT: &str = "ratchet-client";
/// Whom its tokens are for: a superuser of the tests' brokers.
const USER: &str = "ratchet";
/// Who says so.
const ISSUER: &str = "tests";
/// The scope that it has to ask for.
pub const SCOPE: &str = "kafka.read kafka.write";

/// The key that tokens are signed with, and the file from which brokers know it.
pub struct Keys {
    key: PathBuf,
    /// A JSON Web Key Set.
    pub file: PathBuf,
}

impl Keys {
    /// Those of this process.
    pub fn shared() -> &'static Keys {
        static SHARED: OnceLock<Keys> = OnceLock::new();
        SHARED.get_or_init(Keys::new)
    }

    fn new() -> Keys {
        let folder = run_folder().join("issuer");
        fs::create_dir_all(&folder).expect("the run's folder is writable");
        let (key, file) = (folder.join("key.pem"), folder.join("keys.json"));
        let path = key.to_str().expect("the target folder's name is text");
        openssl(&["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", path], b"");
        let modulus = String::from_utf8(openssl(&["rsa", "-in", path, "-noout", "-modulus"], b"")).expect("text");
        let digits = modulus.trim().strip_prefix("Modulus=").expect("openssl prints it so");
        let bytes = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
        let modulus = URL_SAFE_NO_PAD.encode(bytes.collect::<Result<Vec<_>, _>>().expect("digits"));
        let head = r#"{"keys":[{"kty":"RSA","kid":"own","use":"sig","alg":"RS256","e":"AQAB","n":""#;
        fs::write(&file, format!("{head}{modulus}\"}}]}}")).expect("the run's folder is writable");
        Keys { key, file }
    }

    /// A token for this audience that ends after so many seconds.
    fn token(&self, audience: &str, seconds: u64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_secs();
        let claims = format!(
            r#"{{"sub":"{USER}","aud":"{audience}","iss":"{ISSUER}","scope":"{SCOPE}","iat":{now},"exp":{}}}"#,
            now + seconds
        );
        let signed = [r#"{"alg":"RS256","kid":"own"}"#, &claims].map(|part| URL_SAFE_NO_PAD.encode(part)).join(".");
        let key = self.key.to_str().expect("the target folder's name is text");
        let signature = openssl(&["dgst", "-sha256", "-sign", key, "-binary"], signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn openssl(arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new("openssl");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tests need openssl: on Debian and Ubuntu the package openssl");
    child.stdin.take().expect("it is piped").write_all(input).expect("openssl reads it");
    let done = child.wait_with_output().expect("it was started");
    assert!(done.status.success(), "openssl: {}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

/// What a server issues.
#[derive(Clone)]
pub struct Terms {
    /// What the client has to say.
    pub secret: String,
    /// For whom tokens are.
    pub audience: &'static str,
    /// After how many seconds they end.
    pub seconds: u64,
}

/// A token endpoint, open or not yet.
pub struct Issuer {
    terms: Terms,
    port: Port,
    issued: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    /// One that nothing listens at yet.
    pub fn closed(terms: Terms) -> Issuer {
        Issuer { terms, port: Port::free(), issued: Arc::default() }
    }

    /// One that answers.
    pub fn open(terms: Terms) -> Issuer {
        let issuer = Issuer::closed(terms);
        issuer.listen();
        issuer
    }

    /// Answers from now on.
    pub fn listen(&self) {
        let listener = TcpListener::bind(self.port.address()).expect("the port is kept for it");
        let (terms, issued) = (self.terms.clone(), Arc::clone(&self.issued));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client may go away as it likes.
                let _ = answer(stream, &terms, &issued);
            }
        });
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("https://localhost:{}/token", self.port)
    }

    /// The authority of its certificate.
    pub fn ca_pem(&self) -> PathBuf {
        Authority::shared().file()
    }

    /// The tokens that it has issued.
    pub fn issued(&self) -> Vec<String> {
        self.issued.lock().expect("nobody panics with it").clone()
    }
}

/// Answers one request. One that is refused gets what it has said back: no client may show that.
fn answer(stream: TcpStream, terms: &Terms, issued: &Mutex<Vec<String>>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let server = ServerConnection::new(Authority::shared().server(&[])).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(server, stream);
    let request = read(&mut stream)?;
    let user = STANDARD.encode(format!("{CLIENT}:{}", terms.secret));
    let is_known = request.contains(&format!("authorization: Basic {user}\r\n"));
    let asks = format!("\r\n\r\ngrant_type=client_credentials&scope={}", SCOPE.replace(' ', "%20"));
    let (status, body) = if is_known && request.ends_with(&asks) {
        let token = Keys::shared().token(terms.audience, terms.seconds);
        issued.lock().expect("nobody panics with it").push(token.clone());
        ("200 OK", format!(r#"{{"access_token":"{token}","token_type":"Bearer","expires_in":{}}}"#, terms.seconds))
    } else {
        let back = request.replace("\r\n", " ").replace('"', "'");
        let named = request.lines().find_map(|line| line.strip_prefix("authorization: Basic "));
        let named = named.and_then(|user| STANDARD.decode(user).ok()).unwrap_or_default();
        let named = String::from_utf8_lossy(&named).into_owned();
        let said = format!("who is {named}? {back}");
        ("401 Unauthorized", format!(r#"{{"error":"invalid_client","error_description":"{said}"}}"#))
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len())?;
    stream.write_all(body.as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// A request with its body.
fn read(stream: &mut impl Read) -> std::io::Result<String> {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Ok(text);
            }
        }
        match stream.read(&mut bytes)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
        }
    }
}

/// A broker's properties by which it takes tokens for this audience on SASL_SSL, and nothing else. A login counts for so
/// many milliseconds at most (KIP-368).
pub fn broker_properties(keys: &Path, audience: &str, login_ms: u32) -> Vec<(String, String)> {
    const ROOM: &str = "org.apache.kafka.common.security.oauthbearer";
    let listener = |name: &str| format!("listener.name.sasl_ssl.{name}");
    vec![
        (listener("sasl.enabled.mechanisms"), "OAUTHBEARER".to_owned()),
        (listener("oauthbearer.sasl.jaas.config"), format!("{ROOM}.OAuthBearerLoginModule required;")),
        (
            listener("oauthbearer.sasl.server.callback.handler.class"),
            format!("{ROOM}.OAuthBearerValidatorCallbackHandler"),
        ),
        (listener("oauthbearer.connections.max.reauth.ms"), login_ms.to_string()),
        ("sasl.oauthbearer.jwks.endpoint.url".to_owned(), format!("file://{}", keys.display())),
        ("sasl.oauthbearer.expected.audience".to_owned(), audience.to_owned()),
        // Kafka 4.4.0 does not start without it.
        ("sasl.oauthbearer.expected.issuer".to_owned(), ISSUER.to_owned()),
        // Kafka 4.1.0 checks neither signature nor audience unless it is told to; earlier versions do not know this.
        ("sasl.oauthbearer.jwt.validator.class".to_owned(), format!("{ROOM}.BrokerJwtValidator")),
    ]
}
