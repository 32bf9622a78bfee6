//! A client: one connection for each request, unless a test wants it otherwise.

use std::net::SocketAddr;

use bytes::Bytes;
use http::response::Parts;
use http::{Request, Response, Version};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

/// A whole answer.
#[derive(Debug)]
pub struct Got {
    pub head: Parts,
    pub body: Bytes,
}

impl Got {
    pub fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Whether it was given before.
    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The kind of problem that it is.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem["status"], self.status());
        problem["type"].as_str().unwrap().to_owned()
    }
}

/// A request to the proxy, by HTTP/1.1.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header("host", "shop.example");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Full::new(body.into())).unwrap()
}

/// A charge under this key.
pub fn charge(key: &str, body: &str) -> Request<Full<Bytes>> {
    request("POST", "/charges", &[("idempotency-key", key), ("content-type", "application/json")], body.to_owned())
}

/// Why there was no answer: a proxy that is killed resets connections at any moment.
pub type Unanswered = Box<dyn std::error::Error + Send + Sync>;

/// The head of the answer to a request, and its body as it comes.
pub async fn begin<B>(address: SocketAddr, request: Request<B>) -> Result<Response<Incoming>, Unanswered>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection.with_upgrades());
    Ok(sender.send_request(request).await?)
}

/// The answer to a request.
pub async fn send<B>(address: SocketAddr, request: Request<B>) -> Got
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    whole(begin(address, request).await.unwrap()).await
}

/// The whole of an answer.
pub async fn whole(answer: Response<Incoming>) -> Got {
    let (head, body) = answer.into_parts();
    Got { head, body: body.collect().await.unwrap().to_bytes() }
}

/// A connection by HTTP/2.
pub async fn two<B>(address: SocketAddr) -> http2::SendRequest<B>
where
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = TcpStream::connect(address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The same request for a connection by HTTP/2.
pub fn for_two<B>(mut request: Request<B>) -> Request<B> {
    let path = request.uri().path_and_query().unwrap().to_string();
    *request.uri_mut() = format!("http://shop.example{path}").parse().unwrap();
    request.headers_mut().remove("host");
    *request.version_mut() = Version::HTTP_2;
    request
}

/// What `/metrics` or another page of the proxy's says.
pub async fn page(address: SocketAddr, path: &str) -> Got {
    send(address, request("GET", path, &[], "")).await
}

/// The value of a series.
pub async fn metric(address: SocketAddr, series: &str) -> f64 {
    let page = page(address, "/metrics").await;
    let line = page.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

/// How many requests of the top's rule had this outcome.
pub async fn outcomes(address: SocketAddr, outcome: &str) -> f64 {
    metric(address, &format!("ratchet_http_requests_total{{outcome=\"{outcome}\",route=\"default\"}}")).await
}
