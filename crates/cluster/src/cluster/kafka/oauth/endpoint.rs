//! Asks a token endpoint: one POST by HTTP/1.1 on a connection of its own, directly or through a proxy.
//!
//! Proxies are those of the usual variables (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`, or in lower case), as
//! hyper-util reads them. Redirects are not followed.
//!
//! **Failure**: what keeps an answer from coming is passing, but for a certificate that is not accepted. An answer
//! longer than [`BODY_BYTES_MAX`] is none.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use super::super::tls::{self, TlsProperties};
use super::super::wire::login::NoToken;
use super::answer::{self, Issued, basic, clean, lasting, passing};
use super::credentials::Credentials;
use crate::cluster::{Error, ErrorKind};
use crate::tls::Renewed;
use crate::words::error_text;

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
    /// How TLS is spoken, if it is.
    tls: Option<Arc<Renewed<ClientConfig>>>,
    proxies: Matcher,
}

/// A byte stream, whatever is beneath.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

impl Endpoint {
    /// Reads the authorities' certificates; connects to nothing.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn new(credentials: Credentials) -> Result<Self, Error> {
        let speaks_tls = credentials.url.scheme_str() == Some("https");
        let tls = speaks_tls.then(|| tls_of(&credentials)).transpose()?;
        Ok(Self { credentials, tls, proxies: Matcher::from_env() })
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
        let stream = self.connect().await?;
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(|error| self.unanswered(&error))?;
        let answered = async {
            let response = sender.send_request(self.request()?).await.map_err(|error| self.unanswered(&error))?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            Ok((status, body.map_err(|error| self.unanswered(&*error))?.to_bytes()))
        };
        // Not by a task of its own, which would keep the connection beyond the time that an answer may take.
        tokio::pin!(connection, answered);
        tokio::select! {
            biased;
            answered = &mut answered => answered,
            _ = &mut connection => answered.await,
        }
    }

    fn unanswered(&self, error: &(dyn std::error::Error + 'static)) -> NoToken {
        passing(format!("the token endpoint does not answer: {}", clean(&self.credentials, &error_text(error))))
    }

    fn unreached(&self, error: &(dyn std::error::Error + 'static)) -> NoToken {
        passing(format!("the token endpoint cannot be reached: {}", clean(&self.credentials, &error_text(error))))
    }

    fn tls_failed(&self, error: &std::io::Error) -> NoToken {
        let why = format!("no TLS with the token endpoint: {}", clean(&self.credentials, &error_text(error)));
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(rustls::Error::InvalidCertificate(_)) => {
                lasting(format!("{why}; name its authority by https.ca.location or https.ca.pem"))
            }
            _ => passing(why),
        }
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, NoToken> {
        let Credentials { url, scope, .. } = &self.credentials;
        let mut body = "grant_type=client_credentials".to_owned();
        if let Some(scope) = scope {
            body.extend(["&scope=".into(), utf8_percent_encode(scope, SCOPE).to_string()]);
        }
        let mut user = HeaderValue::try_from(format!("Basic {}", basic(&self.credentials)))
            .map_err(|_| lasting("sasl.oauthbearer.client.id and its secret are too long".to_owned()))?;
        user.set_sensitive(true);
        let request = Request::post(url.path_and_query().map_or("/", |path| path.as_str()))
            .header(HOST, url.authority().map_or("", |at| at.as_str()))
            .header(ACCEPT, "application/json")
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(AUTHORIZATION, user)
            .body(Full::new(Bytes::from(body)));
        request.map_err(|_| lasting("sasl.oauthbearer.token.endpoint.url is no address".to_owned()))
    }

    async fn connect(&self) -> Result<Box<dyn Wire>, NoToken> {
        let url = &self.credentials.url;
        let stream = match self.proxies.intercept(url) {
            None => connector().call(at_port(url)).await.map_err(|error| self.unreached(&error))?,
            Some(proxy) if proxy.uri().scheme_str() == Some("http") => {
                let tunnel = Tunnel::new(proxy.uri().clone(), connector());
                let mut tunnel = match proxy.basic_auth() {
                    Some(user) => tunnel.with_auth(user.clone()),
                    None => tunnel,
                };
                tunnel.call(at_port(url)).await.map_err(|error| self.unreached(&error))?
            }
            Some(_) => return Err(lasting("the token endpoint's proxy is not one of http://".to_owned())),
        };
        let stream = stream.into_inner();
        let Some(tls) = &self.tls else { return Ok(Box::new(stream)) };
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host);
        let name = name.map_err(|_| lasting("the token endpoint's host cannot be in a certificate".to_owned()))?;
        let tls = tls.current().map_err(lasting)?;
        let begun = TlsConnector::from(tls).connect(name, stream).await;
        Ok(Box::new(begun.map_err(|error| self.tls_failed(&error))?))
    }
}

/// Connects to a host, to one of its addresses after the other.
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

/// With the port said, which a tunnel is asked for by.
fn at_port(url: &Uri) -> Uri {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let authority = format!("{}:{port}", url.host().unwrap_or_default());
    let built = Uri::builder().scheme(url.scheme_str().unwrap_or("http")).authority(authority).path_and_query("/");
    built.build().unwrap_or_else(|_| url.clone())
}

/// TLS with these authorities, or the system's.
fn tls_of(credentials: &Credentials) -> Result<Arc<Renewed<ClientConfig>>, Error> {
    let Credentials { ca_location, ca_pem, .. } = credentials.clone();
    tls::config(TlsProperties::of_authorities(ca_location, ca_pem)).map_err(|unsupported| {
        let property = unsupported.property.replacen("ssl.", "https.", 1);
        Error::new(ErrorKind::Refused, format!("the kafka property {property} cannot be used: {}", unsupported.why))
    })
}
