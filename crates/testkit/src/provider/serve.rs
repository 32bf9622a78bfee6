//! A provider's sockets: HTTP/1.1 by hyper, HTTP/2 by h2, TLS by rustls.

use std::net::TcpListener;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{BoxStream, StreamExt as _, iter, once, unfold};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio_rustls::TlsAcceptor;

use super::books::{Books, Number, Reply, There, reply};
use super::{Answer, Authority, Options, Plan, Seen};

type Failure = std::io::Error;

/// A server on a thread of its own. Its connections end with it.
pub struct Server {
    pub port: u16,
    /// Heard by all connections by HTTP/2: they take no more requests.
    pub leave: Arc<Notify>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on a port of this machine; 0 for a free one.
    pub fn start(port: u16, options: &Options, books: &Arc<Mutex<Books>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let port = listener.local_addr().expect("an address").port();
        let protocols: &[&str] = if options.two { &["h2", "http/1.1"] } else { &["http/1.1"] };
        let tls = options.tls.then(|| TlsAcceptor::from(Authority::shared().server(protocols)));
        let leave = Arc::new(Notify::new());
        let host = Host {
            books: Arc::clone(books),
            tls,
            streams: options.streams,
            connections: 0.into(),
            leave: Arc::clone(&leave),
        };
        let host = Arc::new(host);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    () = accept(host, listener) => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { port, leave, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic");
        }
    }
}

struct Host {
    books: Arc<Mutex<Books>>,
    tls: Option<TlsAcceptor>,
    streams: u32,
    connections: AtomicU64,
    leave: Arc<Notify>,
}

async fn accept(host: Arc<Host>, listener: TcpListener) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let (host, number) = (Arc::clone(&host), host.connections.fetch_add(1, Ordering::Relaxed));
        let reset = Arc::new(AtomicBool::new(false));
        let socket = Socket { stream, reset: Arc::clone(&reset) };
        tokio::spawn(async move {
            let Some(tls) = host.tls.clone() else { return one(host, number, socket, reset).await };
            let Ok(stream) = tls.accept(socket).await else { return };
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                two(host, number, stream, reset).await;
            } else {
                one(host, number, stream, reset).await;
            }
        });
    }
}

impl Host {
    fn head<B>(&self, request: &Request<B>, connection: u64, two: bool) -> Number {
        let header = |(name, value): (&hyper::header::HeaderName, &hyper::header::HeaderValue)| {
            (name.as_str().to_owned(), value.as_bytes().to_vec())
        };
        let mut books = self.books.lock().unwrap_or_else(PoisonError::into_inner);
        let key = request.headers().get(&books.key_header).and_then(|key| key.to_str().ok()).map(str::to_owned);
        let target = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        books.head(Seen {
            method: request.method().to_string(),
            target,
            headers: request.headers().iter().map(header).collect(),
            body: None,
            key,
            connection,
            two,
            at: Instant::now(),
        })
    }

    /// What becomes of a request; it acts whether anybody waits for it or not.
    async fn reply(&self, number: Number, body: Vec<u8>) -> Reply {
        tokio::spawn(reply(Arc::clone(&self.books), number, body)).await.expect("the rules do not panic")
    }
}

async fn one<T>(host: Arc<Host>, connection: u64, stream: T, reset: Arc<AtomicBool>)
where
    T: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let service = hyper::service::service_fn(|request: Request<Incoming>| {
        let (host, reset) = (Arc::clone(&host), Arc::clone(&reset));
        async move {
            let number = host.head(&request, connection, false);
            let there = There(Arc::clone(&host.books));
            let body = request.into_body().collect().await.map_err(Failure::other)?.to_bytes().to_vec();
            let replied = host.reply(number, body).await;
            drop(there);
            match replied {
                Reply::Answer(answer) => {
                    let (head, body) = parts(&answer);
                    Ok::<_, Failure>(head.map(|()| StreamBody::new(body.map(|part| part.map(Frame::data)))))
                }
                Reply::Close => Err(Failure::other("closed")),
                Reply::Reset => {
                    reset.store(true, Ordering::Relaxed);
                    Err(Failure::other("reset"))
                }
            }
        }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn two<T>(host: Arc<Host>, connection: u64, stream: T, reset: Arc<AtomicBool>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let begun = h2::server::Builder::new().max_concurrent_streams(host.streams).handshake::<_, Bytes>(stream).await;
    let Ok(mut requests) = begun else { return };
    let mut leave = std::pin::pin!(host.leave.notified());
    let mut has_left = false;
    loop {
        let accepted = tokio::select! {
            () = &mut leave, if !has_left => {
                has_left = true;
                requests.graceful_shutdown();
                continue;
            }
            accepted = requests.accept() => accepted,
        };
        let Some(Ok((request, mut respond))) = accepted else { return };
        let (host, reset) = (Arc::clone(&host), Arc::clone(&reset));
        tokio::spawn(async move {
            let number = host.head(&request, connection, true);
            let there = There(Arc::clone(&host.books));
            let (mut stream, mut body) = (request.into_body(), Vec::new());
            while let Some(Ok(part)) = stream.data().await {
                body.extend_from_slice(&part);
                let _ = stream.flow_control().release_capacity(part.len());
            }
            let replied = host.reply(number, body).await;
            drop(there);
            match replied {
                Reply::Answer(answer) => {
                    let (head, mut body) = parts(&answer);
                    let Ok(mut sending) = respond.send_response(head, false) else { return };
                    while let Some(part) = body.next().await {
                        let Ok(part) = part else { return sending.send_reset(h2::Reason::INTERNAL_ERROR) };
                        if !send(&mut sending, part).await {
                            return;
                        }
                    }
                    let _ = sending.send_data(Bytes::new(), true);
                }
                Reply::Close => respond.send_reset(h2::Reason::INTERNAL_ERROR),
                Reply::Reset => {
                    reset.store(true, Ordering::Relaxed);
                    respond.send_reset(h2::Reason::CANCEL);
                }
            }
        });
    }
}

async fn send(sending: &mut h2::SendStream<Bytes>, mut part: Bytes) -> bool {
    while !part.is_empty() {
        sending.reserve_capacity(part.len());
        let Some(Ok(room)) = std::future::poll_fn(|context| sending.poll_capacity(context)).await else { return false };
        if sending.send_data(part.split_to(room.min(part.len())), false).is_err() {
            return false;
        }
    }
    true
}

/// The head and the body of an answer.
fn parts(answer: &Answer) -> (Response<()>, BoxStream<'static, Result<Bytes, Failure>>) {
    let mut head = Response::builder().status(answer.status);
    for (name, value) in &answer.headers {
        head = head.header(name, value);
    }
    let body = match answer.body.clone() {
        Plan::Receipt => unreachable!("an act has replaced it"),
        Plan::Bytes(bytes) => {
            head = head.header("content-length", bytes.len());
            iter((!bytes.is_empty()).then(|| Ok(Bytes::from(bytes)))).boxed()
        }
        Plan::Long(length) => unfold(length, async |left| {
            let part = left.min(64 << 10);
            (part > 0).then(|| (Ok(Bytes::from(vec![b'a'; part])), left - part))
        })
        .boxed(),
        Plan::Endless => unfold((), async |()| {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Some((Ok(Bytes::from_static(b"a")), ()))
        })
        .boxed(),
        Plan::Cut(bytes, said) => {
            head = head.header("content-length", said);
            let cut = once(async {
                // What was said before is on its way by then.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Err(Failure::other("cut"))
            });
            iter([Ok(Bytes::from(bytes))]).chain(cut).boxed()
        }
    };
    (head.body(()).expect("a head"), body)
}

/// A socket that can be reset, at its end.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::Relaxed) {
            self.stream.set_zero_linger().expect("a socket");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        if self.reset.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
