//! A service behind the layer or the proxy on real sockets, and a client before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use ratchet::http::{Idempotency, Store};
use tokio::net::TcpListener;

use super::service::{Runs, service};
use super::set::Set;
use crate::program::{Keeps, Proxy, Room};
use crate::until::DEADLINE;

/// What stands before the service.
#[derive(Clone)]
pub enum Place {
    /// The layer with this store, in the test's own process.
    Layer(Arc<dyn Store>),
    /// The built program, which remembers here.
    Proxy(Keeps),
}

/// The whole, from the client to the service.
pub struct Front {
    pub url: String,
    pub runs: Runs,
    kind: Kind,
    client: Client<HttpConnector, Full<Bytes>>,
}

enum Kind {
    Layer(Box<Idempotency>),
    // In this order: the process ends before its folder is removed.
    Proxy { _process: Proxy, _room: Room },
}

/// An answer, read to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answered {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// Status and body, of an answer that was given before or not.
    pub fn whole(&self) -> (u16, &str) {
        (self.status.as_u16(), self.text())
    }

    pub fn is_replayed(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    /// The last part of a problem's type.
    pub fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(problem["title"].is_string() && problem["detail"].is_string());
        problem["type"].as_str().expect("a type").rsplit(':').next().expect("its end").to_owned()
    }
}

/// A request that is being put together.
#[derive(Clone)]
pub struct Ask {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Ask {
    /// A POST under a key, whose runs are counted under the same word.
    pub fn under(key: &str) -> Ask {
        Ask::plain(key).with("idempotency-key", key)
    }

    /// A POST without a key.
    pub fn plain(word: &str) -> Ask {
        let headers = vec![("x-word".to_owned(), word.to_owned())];
        Ask { method: Method::POST, path: "/charges".to_owned(), headers, body: Bytes::from_static(b"{}") }
    }

    pub fn with(mut self, name: &str, value: impl ToString) -> Ask {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    pub fn by(mut self, method: Method) -> Ask {
        self.method = method;
        self
    }

    pub fn to(mut self, path: &str) -> Ask {
        self.path = path.to_owned();
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Ask {
        self.body = body.into();
        self
    }

    pub fn json(self, body: &str) -> Ask {
        self.body(body.to_owned()).with("content-type", "application/json")
    }
}

impl Front {
    /// With everything as it is if nothing is said.
    pub async fn on(place: Place) -> Front {
        Front::set(place, &[]).await
    }

    /// Set like this.
    pub async fn set(place: Place, sets: &[Set]) -> Front {
        match place {
            Place::Layer(store) => {
                Front::layer(store, |layer| sets.iter().fold(layer, |layer, set| set.on(layer))).await
            }
            Place::Proxy(keeps) => {
                let (runs, room) = (Runs::default(), Room::new());
                let upstream = serve(service(&runs)).await;
                // As in the layer, nobody is told apart by an address: all cases have the same one.
                let lines: String = sets.iter().map(Set::line).chain(["shares: none\n".to_owned()]).collect();
                let process = room.start_on(&keeps, &upstream, &lines);
                let url = format!("http://{}", process.address);
                Front::before(url, runs, Kind::Proxy { _process: process, _room: room })
            }
        }
    }

    /// The layer, set by a function.
    pub async fn layer(store: Arc<dyn Store>, set: impl FnOnce(Idempotency) -> Idempotency) -> Front {
        let (idempotency, runs) = (set(Idempotency::shared(store)), Runs::default());
        let url = serve(service(&runs).layer(idempotency.clone())).await;
        Front::before(url, runs, Kind::Layer(Box::new(idempotency)))
    }

    fn before(url: String, runs: Runs, kind: Kind) -> Front {
        Front { url, runs, kind, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// The layer, where that is what stands before the service.
    pub fn idempotency(&self) -> Option<&Idempotency> {
        match &self.kind {
            Kind::Layer(idempotency) => Some(idempotency.as_ref()),
            Kind::Proxy { .. } => None,
        }
    }

    /// Sends a request and reads its answer.
    pub async fn send(&self, ask: Ask) -> Answered {
        let (parts, body) = self.begin(ask).await.into_parts();
        let body = tokio::time::timeout(Duration::from_secs(60), body.collect()).await.expect("an end");
        Answered { status: parts.status, headers: parts.headers, body: body.expect("a whole body").to_bytes() }
    }

    /// Sends a request again and again until it is answered like this.
    pub async fn until(&self, ask: Ask, is_it: impl Fn(&Answered) -> bool) -> Answered {
        let until = tokio::time::Instant::now() + DEADLINE;
        loop {
            let answer = self.send(ask.clone()).await;
            if is_it(&answer) {
                return answer;
            }
            assert!(tokio::time::Instant::now() < until, "{answer:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a request and gives its answer as it begins.
    pub async fn begin(&self, ask: Ask) -> http::Response<hyper::body::Incoming> {
        let mut request = Request::builder().method(ask.method).uri(format!("{}{}", self.url, ask.path));
        for (name, value) in &ask.headers {
            request = request.header(name, value.as_bytes());
        }
        let request = request.body(Full::new(ask.body)).expect("a request");
        let answer = tokio::time::timeout(Duration::from_secs(60), self.client.request(request)).await;
        answer.expect("an answer in time").expect("an answer")
    }
}

/// Serves on a free port; its address.
async fn serve(router: axum::Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            let service = TowerToHyperService::new(router.clone());
            tokio::spawn(async move {
                let builder = auto::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    url
}
