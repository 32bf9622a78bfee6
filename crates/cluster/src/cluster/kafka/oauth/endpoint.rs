//! Asks a token endpoint: one POST by HTTP/1.1 on a connection of its own, directly or through a proxy.
//!
//! **Failure**: what keeps an answer from coming is passing, but for a certificate that is not accepted. An answer
//! longer than [`BODY_BYTES_MAX`] is none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rustls::ClientConfig;

use super::super::tls::{self, TlsProperties};
use super::super::wire::login::NoToken;
use super::answer::{self, Issued, basic, clean, lasting, passing};
use super::credentials::Credentials;
use crate::cluster::{Error, ErrorKind};
use crate::tls::Renewed;
use crate::web::{Failure, Web};

/// How long an answer may take, the connection included (librdkafka's).
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// The longest answer.
const BODY_BYTES_MAX: usize = 256 << 10;
/// What of a scope is not sent as it is: librdkafka encodes nothing, so that a scope that is written for it may be
/// encoded already.
const SCOPE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'&').add(b'<').add(b'>');

/// A token endpoint. No `Debug`: it knows a secret.
pub struct Endpoint {
    credentials: Credentials,
    web: Web,
}

impl Endpoint {
    /// Reads the authorities' certificates; connects to nothing.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn new(credentials: Credentials) -> Result<Self, Error> {
        let speaks_tls = credentials.url.scheme_str() == Some("https");
        let tls = speaks_tls.then(|| tls_of(&credentials)).transpose()?;
        Ok(Self { credentials, web: Web::new(tls) })
    }

    /// Whom it asks as.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Asks for a token.
    ///
    /// # Errors
    /// There is none, and why.
    pub async fn ask(&self) -> Result<Issued, NoToken> {
        let asked = tokio::time::timeout(ANSWER_MAX, self.post()).await;
        let (status, body) = asked
            .map_err(|_| passing(format!("the token endpoint does not answer within {} s", ANSWER_MAX.as_secs())))??;
        answer::read(&self.credentials, status, &body)
    }

    async fn post(&self) -> Result<(u16, Bytes), NoToken> {
        let answer = self.web.exchange(&self.credentials.url, self.request()?, BODY_BYTES_MAX).await;
        answer.map(|answer| (answer.status, answer.body)).map_err(|failure| self.failed(failure))
    }

    fn failed(&self, failure: Failure) -> NoToken {
        let said = |why: &str| clean(&self.credentials, why);
        match failure {
            Failure::Unreached(why) => passing(format!("the token endpoint cannot be reached: {}", said(&why))),
            Failure::Untrusted(why) => {
                let name = self.credentials.names.authorities;
                lasting(format!("no TLS with the token endpoint: {}; name its authority by {name}", said(&why)))
            }
            Failure::NoTls(why) => passing(format!("no TLS with the token endpoint: {}", said(&why))),
            Failure::Unanswered(why) => passing(format!("the token endpoint does not answer: {}", said(&why))),
            Failure::TooLong(_) => {
                passing(format!("the token endpoint's answer is longer than {BODY_BYTES_MAX} bytes"))
            }
            Failure::Unusable(why) => lasting(format!("the token endpoint cannot be asked: {}", said(&why))),
        }
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, NoToken> {
        let Credentials { url, scope, .. } = &self.credentials;
        let mut body = "grant_type=client_credentials".to_owned();
        if let Some(scope) = scope {
            body.extend(["&scope=".into(), utf8_percent_encode(scope, SCOPE).to_string()]);
        }
        let mut user = HeaderValue::try_from(format!("Basic {}", basic(&self.credentials)))
            .map_err(|_| lasting("the client's id and its secret are too long".to_owned()))?;
        user.set_sensitive(true);
        let request = Request::post(url.path_and_query().map_or("/", |path| path.as_str()))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(AUTHORIZATION, user)
            .body(Full::new(Bytes::from(body)));
        request.map_err(|_| lasting("the token endpoint's URL is no address".to_owned()))
    }
}

/// TLS with these authorities, or the system's.
fn tls_of(credentials: &Credentials) -> Result<Arc<Renewed<ClientConfig>>, Error> {
    let Credentials { ca_location, ca_pem, names, .. } = credentials.clone();
    tls::config(TlsProperties::of_authorities(ca_location, ca_pem)).map_err(|unsupported| {
        let property = names.authority(&unsupported.property);
        Error::new(ErrorKind::Refused, format!("{property} cannot be used: {}", unsupported.why))
    })
}
