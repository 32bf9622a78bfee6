//! A service to put behind the proxy: by HTTP/1.1 and HTTP/2, with or without TLS, as the test says.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

pub type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;
type Heads = Arc<Mutex<Vec<Parts>>>;

/// A body that breaks off.
#[derive(Debug, thiserror::Error)]
#[error("broken off")]
pub struct Broken;

/// A running service.
pub struct Service {
    pub address: SocketAddr,
    runs: Arc<AtomicUsize>,
    heads: Heads,
    connections: Arc<AtomicUsize>,
    accepting: tokio::task::AbortHandle,
}

impl Service {
    /// One that answers by this function.
    pub async fn start<F, R>(answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        Self::start_with(None, answer).await
    }

    /// The same by TLS.
    pub async fn start_with<F, R>(tls: Option<TlsAcceptor>, answer: F) -> Self
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (runs, connections, heads) = (Arc::default(), Arc::<AtomicUsize>::default(), Heads::default());
        let (counted, seen, opened) = (Arc::clone(&runs), Arc::clone(&heads), Arc::clone(&connections));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                opened.fetch_add(1, Ordering::SeqCst);
                let (answer, counted, seen, tls) =
                    (answer.clone(), Arc::clone(&counted), Arc::clone(&seen), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, answer, counted, seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, answer, counted, seen).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, runs, heads, connections, accepting: accepting.abort_handle() }
    }

    /// One that answers 201 with the number of the run.
    pub async fn counting() -> Self {
        let count = Arc::new(AtomicUsize::new(0));
        Self::start(move |request| {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                drop(request.into_body().collect().await);
                answer(201, format!("{{\"run\":{number}}}"))
            }
        })
        .await
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How often it was run.
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// How many connections were made to it.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// The head of the last request.
    pub fn last(&self) -> Parts {
        self.heads.lock().unwrap().last().expect("it was run").clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve<T, F, R>(stream: T, answer: F, counted: Arc<AtomicUsize>, seen: Heads)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(move |request: Request<Incoming>| {
        counted.fetch_add(1, Ordering::SeqCst);
        let (mut parts, body) = request.into_parts();
        let extensions = std::mem::take(&mut parts.extensions);
        seen.lock().unwrap().push(parts.clone());
        parts.extensions = extensions;
        let answered = answer(Request::from_parts(parts, body));
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    drop(builder.serve_connection_with_upgrades(TokioIo::new(stream), service).await);
}

/// A whole answer.
pub fn answer(status: u16, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).header("content-type", "application/json").body(body).unwrap()
}
