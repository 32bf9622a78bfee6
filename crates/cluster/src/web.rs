//! One HTTP/1.1 request on a connection of its own, directly or through a proxy: for rare requests, to token endpoints
//! and schema registries.
//!
//! Proxies come from the usual variables (`HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY`, `NO_PROXY`, or in lower case), as
//! hyper-util reads them. Redirects are not followed. The caller bounds the time for a response: dropping the exchange
//! closes the connection.
//!
//! **Failure**: [`Failure`], whose texts come from outside and may contain anything.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::tls::Renewed;
use crate::words::error_text;

/// A client of HTTP servers.
pub struct Web {
    /// TLS with the servers whose addresses begin with `https`.
    tls: Option<Arc<Renewed<ClientConfig>>>,
    proxies: Matcher,
}

/// A server's response.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server cannot be reached.
    Unreached(String),
    /// The server's certificate is not accepted.
    Untrusted(String),
    /// TLS with the server fails for another reason.
    NoTls(String),
    /// The connection ended before the response was complete.
    Unanswered(String),
    /// The response is longer than allowed.
    TooLong(String),
    /// The settings do not allow the request.
    Unusable(String),
}

/// A stream of bytes, with or without TLS.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

impl fmt::Debug for Web {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Web")
    }
}

impl Web {
    /// A client with this TLS, or without. Reads the variables of proxies now.
    pub fn new(tls: Option<Arc<Renewed<ClientConfig>>>) -> Self {
        Self { tls, proxies: Matcher::from_env() }
    }

    /// Sends a request to the server of `url`, with the header `Host` set to it, and reads a response whose body has at
    /// most `body_bytes_max` bytes.
    ///
    /// # Errors
    /// There is no response.
    pub async fn exchange(
        &self,
        url: &Uri,
        mut request: Request<Full<Bytes>>,
        body_bytes_max: usize,
    ) -> Result<Answer, Failure> {
        let host = HeaderValue::from_str(url.authority().map_or("", |at| at.as_str()));
        let host = host.map_err(|_| Failure::Unusable("its host is no name".to_owned()))?;
        request.headers_mut().insert(HOST, host);
        let stream = self.connect(url).await?;
        let unanswered = |error: &(dyn std::error::Error + 'static)| Failure::Unanswered(error_text(error));
        let begun = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = begun.map_err(|error| unanswered(&error))?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(|error| unanswered(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, body_bytes_max).collect().await;
            let body = body.map_err(|error| match error.is::<LengthLimitError>() {
                true => Failure::TooLong(error_text(&*error)),
                false => unanswered(&*error),
            })?;
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body: body.to_bytes() })
        };
        // Not in a task of its own, which would keep the connection open after the exchange is dropped.
        tokio::pin!(connection, answered);
        tokio::select! {
            biased;
            answered = &mut answered => answered,
            _ = &mut connection => answered.await,
        }
    }

    async fn connect(&self, url: &Uri) -> Result<Box<dyn Wire>, Failure> {
        let unreached = |error: &(dyn std::error::Error + 'static)| Failure::Unreached(error_text(error));
        let unusable = |why: &str| Failure::Unusable(why.to_owned());
        let stream = match self.proxies.intercept(url) {
            None => connector().call(at_port(url)).await.map_err(|error| unreached(&error))?,
            Some(proxy) if proxy.uri().scheme_str() == Some("http") => {
                let tunnel = Tunnel::new(proxy.uri().clone(), connector());
                let mut tunnel = match proxy.basic_auth() {
                    Some(user) => tunnel.with_auth(user.clone()),
                    None => tunnel,
                };
                tunnel.call(at_port(url)).await.map_err(|error| unreached(&error))?
            }
            Some(_) => return Err(unusable("its proxy is not one of http://")),
        };
        let stream = stream.into_inner();
        if url.scheme_str() != Some("https") {
            return Ok(Box::new(stream));
        }
        let tls = self.tls.as_ref().ok_or_else(|| unusable("it speaks TLS, which is not set up"))?;
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|_| unusable("its host cannot be in a certificate"))?;
        let tls = tls.current().map_err(Failure::Unusable)?;
        let begun = TlsConnector::from(tls).connect(name, stream).await;
        Ok(Box::new(begun.map_err(|error| no_tls(&error))?))
    }
}

fn no_tls(error: &std::io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(_)) => Failure::Untrusted(error_text(error)),
        _ => Failure::NoTls(error_text(error)),
    }
}

/// A connector that tries the addresses of a host one after the other.
fn connector() -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector
}

/// The address with an explicit port, which tunnels need.
fn at_port(url: &Uri) -> Uri {
    let port = url.port_u16().unwrap_or(if url.scheme_str() == Some("https") { 443 } else { 80 });
    let authority = format!("{}:{port}", url.host().unwrap_or_default());
    let built = Uri::builder().scheme(url.scheme_str().unwrap_or("http")).authority(authority).path_and_query("/");
    built.build().unwrap_or_else(|_| url.clone())
}
