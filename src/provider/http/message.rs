//! The request to be sent: address, headers and body, in the forms of HTTP/1.1 and HTTP/2.
//!
//! It is built from a [`RenderedRequest`], which the user's configuration (the topology) renders from an input record,
//! and which may have an idempotency key.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION, USER_AGENT};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Request, Uri};
use percent_encoding::percent_decode_str;

use super::settings::{Shared, is_reserved_header};
use crate::effect::provider::RenderedRequest;

/// Without a version: each attempt has the same bytes, whichever release makes it.
const DEFAULT_USER_AGENT: HeaderValue = HeaderValue::from_static("ratchet");
const DEFAULT_ACCEPT: HeaderValue = HeaderValue::from_static("*/*");

/// The server at the other end of a connection.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Origin {
    pub is_tls: bool,
    /// Without the brackets of IPv6.
    pub host: Arc<str>,
    pub port: u16,
}

impl Origin {
    /// As a URI, with IPv6 addresses in brackets.
    pub fn uri(&self) -> Option<Uri> {
        let scheme = if self.is_tls { Scheme::HTTPS } else { Scheme::HTTP };
        Uri::builder().scheme(scheme).authority(self.to_string()).path_and_query("/").build().ok()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// A request that does not depend on the version of HTTP yet.
pub(super) struct Message {
    pub origin: Origin,
    method: Method,
    /// Without a user and password, and without the default port.
    authority: Authority,
    path: PathAndQuery,
    headers: HeaderMap,
    body: Option<Bytes>,
    /// Whether a proxy forwards the request without TLS: then the request line has the whole address.
    is_forwarded: bool,
}

impl Message {
    /// The message of a rendered request.
    ///
    /// # Errors
    /// The reason why the request cannot be sent. Never quotes an address or a value.
    pub fn of(shared: &Shared, rendered: &Arc<RenderedRequest>) -> Result<Self, String> {
        let (origin, authority, path, credentials) = read_address(&rendered.url)?;
        let mut headers = read_headers(shared, rendered)?;
        if let Some(credentials) = credentials {
            headers.entry(AUTHORIZATION).or_insert(credentials);
        }
        headers.entry(USER_AGENT).or_insert(DEFAULT_USER_AGENT);
        headers.entry(ACCEPT).or_insert(DEFAULT_ACCEPT);
        let proxy = if origin.is_tls { None } else { origin.uri().and_then(|uri| shared.proxies.intercept(&uri)) };
        if let Some(credentials) = proxy.as_ref().and_then(|proxy| proxy.basic_auth()) {
            headers.insert(PROXY_AUTHORIZATION, credentials.clone());
        }
        let body = rendered.body.is_some().then(|| Bytes::from_owner(SharedBody(Arc::clone(rendered))));
        if body.as_ref().is_some_and(Bytes::is_empty) {
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let method = shared.method.clone();
        Ok(Self { origin, method, authority, path, headers, body, is_forwarded: proxy.is_some() })
    }

    /// The message in the form of HTTP/1.1.
    pub fn into_http1(mut self) -> Result<Request<Full<Bytes>>, String> {
        let host = HeaderValue::from_str(self.authority.as_str()).map_err(|_| UNREADABLE)?;
        self.headers.insert(HOST, host);
        let uri = if self.is_forwarded { self.absolute_uri(Scheme::HTTP)? } else { Uri::from(self.path) };
        let mut request = Request::new(Full::new(self.body.unwrap_or_default()));
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (self.method, uri, self.headers);
        Ok(request)
    }

    /// The message in the form of HTTP/2, with the body separate.
    pub fn into_http2(self) -> Result<(Request<()>, Option<Bytes>), String> {
        let uri = self.absolute_uri(Scheme::HTTPS)?;
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (self.method, uri, self.headers);
        let body = self.body.filter(|body| !body.is_empty());
        if let Some(body) = &body {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        Ok((request, body))
    }

    fn absolute_uri(&self, scheme: Scheme) -> Result<Uri, String> {
        let uri = Uri::builder().scheme(scheme).authority(self.authority.clone()).path_and_query(self.path.clone());
        uri.build().map_err(|_| UNREADABLE.to_owned())
    }
}

/// The body of a request, shared without a copy.
struct SharedBody(Arc<RenderedRequest>);

impl AsRef<[u8]> for SharedBody {
    fn as_ref(&self) -> &[u8] {
        self.0.body.as_deref().unwrap_or_default()
    }
}

const UNREADABLE: &str = "the address of the request cannot be read";

/// The parts of an address: its origin, its authority without user, password and default port, its path with the query,
/// and the user and password as the value of `Authorization`.
type Address = (Origin, Authority, PathAndQuery, Option<HeaderValue>);

fn read_address(url: &str) -> Result<Address, String> {
    let parts = url.parse::<Uri>().map_err(|_| UNREADABLE)?.into_parts();
    let is_tls = match parts.scheme.as_ref().map(Scheme::as_str) {
        Some("https") => true,
        Some("http") => false,
        _ => return Err("the address of the request must begin with http:// or https://".to_owned()),
    };
    let authority = parts.authority.ok_or(UNREADABLE)?;
    let (credentials, host_and_port) = match authority.as_str().rsplit_once('@') {
        Some((user_info, host_and_port)) => (Some(basic_credentials(user_info)?), host_and_port),
        None => (None, authority.as_str()),
    };
    let host_and_port: Authority = host_and_port.parse().map_err(|_| UNREADABLE)?;
    let host = host_and_port.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    if host.is_empty() {
        return Err(UNREADABLE.to_owned());
    }
    let default_port = if is_tls { 443 } else { 80 };
    let port = host_and_port.port_u16();
    // The parser treats an invalid port as no port.
    if port.is_none() && !host_and_port.as_str().ends_with(host_and_port.host()) {
        return Err(UNREADABLE.to_owned());
    }
    let authority = if port == Some(default_port) {
        host_and_port.host().parse().map_err(|_| UNREADABLE)?
    } else {
        host_and_port.clone()
    };
    let origin = Origin { is_tls, host: host.into(), port: port.unwrap_or(default_port) };
    let path = parts.path_and_query.unwrap_or_else(|| PathAndQuery::from_static("/"));
    Ok((origin, authority, path, credentials))
}

/// The user and password of an address, as a header's value.
fn basic_credentials(user_info: &str) -> Result<HeaderValue, String> {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let [user, password] = [user, password].map(|part| percent_decode_str(part).collect::<Vec<u8>>());
    let encoded = BASE64_STANDARD.encode([&user[..], b":", &password].concat());
    let mut value = HeaderValue::from_str(&format!("Basic {encoded}")).map_err(|_| UNREADABLE)?;
    value.set_sensitive(true);
    Ok(value)
}

fn read_headers(shared: &Shared, rendered: &RenderedRequest) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::with_capacity(rendered.headers.len() + 6);
    // A key is 64 hexadecimal digits, which are always a valid value: this error cannot happen.
    let key = match (&rendered.key, &shared.key_header) {
        (Some(key), Some(header)) => Some((header, HeaderValue::from_str(key.as_str()).map_err(|_| UNREADABLE)?)),
        (Some(_), None) => return Err("the request has a key, but no header is configured to send it in".to_owned()),
        (None, _) => None,
    };
    for (name, value) in &rendered.headers {
        let header =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a valid header name"))?;
        if is_reserved_header(header.as_str()) {
            return Err(format!("the header {header} cannot be set: it is reserved for HTTP itself"));
        }
        let value = HeaderValue::from_bytes(value).map_err(|_| {
            format!("the value of the header {header} contains a line break or another control character")
        })?;
        // The key replaces the value that the topology itself sets for the key's header.
        if key.as_ref().is_none_or(|(key_header, _)| **key_header != header) {
            headers.append(header, value);
        }
    }
    if let Some((header, key)) = key {
        headers.insert(header.clone(), key);
    }
    Ok(headers)
}
