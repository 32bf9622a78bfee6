//! Clients' connections: a bounded number of them, each closed when it is silent for too long.
//!
//! **Invariant.** At most [`Bounds::connections_max`] connections are open, apart from those that are being closed and
//! one that waits for a place. Each has a place, and [`places`] chooses the connection that gives up its place for
//! a new one. There are time limits for the head of a request, for a connection without a request, and for a client
//! that reads nothing (with HTTP/2: nothing of a response).
//!
//! **Failure**: an error on a connection ends that connection and affects no other.
//!
//! [`places`]: super::places

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Version;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use super::activity::Activity;
use super::app::{App, ConnectionContext};
use super::head::ClientInfo;
use super::places::{Place, Places};
use super::responses::{LateTimer, PIECE_BYTES, Pace, Streams};
use super::settings::Bounds;
use crate::http::proxying::LogLimit;
use crate::tls::{ALPN_HTTP_2, Renewed};

/// How long the proxy waits after it could not accept a connection, for example because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long a silent connection may take to close.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// How long a connection that makes room for another may take to close: until then, it uses a descriptor beyond the
/// bound.
const GIVE_WAY_WAIT: Duration = Duration::from_millis(20);
/// How often an HTTP/2 client is pinged, and how long the reply may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_WAIT: Duration = Duration::from_secs(20);
/// How many requests a client may have at work on one HTTP/2 connection. Clients assume 100 until they receive the
/// settings, and their streams beyond a lower number would be refused; the total of a client's requests has its own
/// bound.
const STREAMS_MAX: u32 = 100;
/// The bytes of request bodies that may be in flight over HTTP/2: for one request, and for all requests of a
/// connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The most bytes of a response that HTTP/2 buffers before they are sent.
const UNSENT_BYTES: usize = 2 * PIECE_BYTES;

/// Serves the clients that connect to a listener.
pub struct ClientListener {
    /// The listener.
    pub listener: TcpListener,
    /// Answers requests.
    pub app: Arc<App>,
    /// TLS with clients; `None` without TLS.
    pub tls: Option<Arc<Renewed<ServerConfig>>>,
    /// The bounds on clients.
    pub bounds: Bounds,
    /// The places for connections.
    pub places: Arc<Places>,
}

impl ClientListener {
    /// Accepts connections until `stop`, then waits until each has finished its requests.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let Self { listener, app, tls, bounds, places } = self;
        let mut tasks = JoinSet::new();
        let (failures, began) = (LogLimit::default(), Instant::now());
        loop {
            while tasks.try_join_next().is_some() {}
            let accepted = tokio::select! {
                () = wait_for_stop(&mut stop) => break,
                accepted = accept(&listener, &places, &app) => accepted,
            };
            let (stream, place, address) = match accepted {
                Ok(Some(accepted)) => accepted,
                Ok(None) => continue,
                Err(error) => {
                    if let Some(count) = failures.count(began.elapsed()) {
                        tracing::warn!(%error, count, "connections could not be accepted");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let place = Arc::new(place);
            let client = ClientInfo { address, is_tls: tls.is_some() };
            let connection = ClientConnection { app: Arc::clone(&app), place, client, bounds, stop: stop.clone() };
            match &tls {
                None => drop(tasks.spawn(connection.serve(stream, false))),
                Some(tls) => drop(tasks.spawn(connection.serve_tls(stream, Arc::clone(tls)))),
            }
        }
        drop(listener);
        while tasks.join_next().await.is_some() {}
    }
}

/// Accepts a connection and takes a place for it; `None` if it gets no place, and is closed.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Places>,
    app: &App,
) -> io::Result<Option<(TcpStream, Place, IpAddr)>> {
    let (stream, address) = listener.accept().await?;
    stream.set_nodelay(true)?;
    let place = places.take(address.ip(), app.connected()).await;
    Ok(place.map(|place| (stream, place, address.ip())))
}

/// A client's connection.
struct ClientConnection {
    app: Arc<App>,
    place: Arc<Place>,
    client: ClientInfo,
    bounds: Bounds,
    stop: watch::Receiver<bool>,
}

impl ClientConnection {
    async fn serve_tls(self, stream: TcpStream, tls: Arc<Renewed<ServerConfig>>) {
        // Does not fail: the certificate was read when the proxy started.
        let Ok(tls) = tls.current() else { return };
        let tls = TlsAcceptor::from(tls);
        let activity = Arc::clone(&self.place.activity);
        let accepted = tokio::select! {
            accepted = tokio::time::timeout(self.bounds.head_wait, tls.accept(stream)) => accepted,
            () = activity.wait_until_silent(self.bounds.head_wait, self.bounds.idle_wait) => return,
        };
        match accepted {
            Ok(Ok(stream)) => {
                let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP_2);
                self.serve(stream, is_http2).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake with a client failed"),
            Err(_) => tracing::debug!("a client's TLS handshake timed out"),
        }
    }

    async fn serve<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: T, is_http2: bool) {
        let Self { app, place, client, bounds, mut stop } = self;
        let activity = Arc::clone(&place.activity);
        if is_http2 {
            activity.set_http2();
        }
        let watched =
            WatchedStream { stream, activity: Arc::clone(&activity), write_wait: bounds.idle_wait, blocked: None };
        let stream = TokioIo::new(watched);
        let service_activity = Arc::clone(&activity);
        // Over HTTP/1.1 the connection has one response at a time, over HTTP/2 each stream has its own.
        let pace = Pace::new(bounds.idle_wait, bounds.body_rate_min);
        let connection_pace = Arc::clone(&pace);
        let service = service_fn(move |request| {
            let busy = service_activity.begin(request.version() == Version::HTTP_2);
            let (app, place) = (Arc::clone(&app), Arc::clone(&place));
            let connection_pace = Arc::clone(&connection_pace);
            async move {
                let pace = Pace::of_stream().unwrap_or(connection_pace);
                Ok::<_, std::convert::Infallible>(
                    app.answer(request, ConnectionContext { client, place, busy, pace }).await,
                )
            }
        });
        let builder = builder(bounds);
        let connection = builder.serve_connection_with_upgrades(stream, service);
        tokio::pin!(connection);
        let mut is_stopping = false;
        let mut late_timer = LateTimer::default();
        let result = loop {
            tokio::select! {
                // Biased, because polling the connection updates the pace.
                biased;
                result = connection.as_mut() => break Ok(result),
                () = std::future::poll_fn(|context| late_timer.poll(&pace, context)) => {
                    tracing::debug!("a response is cut off: its client does not read it");
                    break Ok(Ok(()));
                }
                // Also while the proxy stops: a partial head must not delay the stop.
                () = activity.wait_until_silent(bounds.head_wait, bounds.idle_wait) => {
                    connection.as_mut().graceful_shutdown();
                    let wait = if activity.is_closing() { GIVE_WAY_WAIT } else { CLOSE_WAIT };
                    break tokio::time::timeout(wait, connection.as_mut()).await;
                }
                () = wait_for_stop(&mut stop), if !is_stopping => {
                    connection.as_mut().graceful_shutdown();
                    is_stopping = true;
                }
            }
        };
        activity.end_http();
        log_end(result.unwrap_or(Ok(())));
    }
}

/// Returns when the proxy stops.
async fn wait_for_stop(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped: the proxy stops then, too.
    let _ = stop.wait_for(|is_stopping| *is_stopping).await;
}

fn builder(bounds: Bounds) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(Streams { silence_max: bounds.idle_wait, rate_min: bounds.body_rate_min });
    // `Activity` has the time limit for heads.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(bounds.head_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(bounds.head_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .max_send_buf_size(UNSENT_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_WAIT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

fn log_end(result: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// A stream that records when the client sends something, and fails when the client reads nothing for `write_wait`.
struct WatchedStream<T> {
    stream: T,
    activity: Arc<Activity>,
    write_wait: Duration,
    /// Ready at the end of `write_wait`; `None` unless something waits to be written.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<T> WatchedStream<T> {
    /// The result of a write, or an error if it has been pending for `write_wait`.
    fn within_write_wait<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let wait = self.write_wait;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        std::task::ready!(blocked.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read what is sent to it")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedStream<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = to.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, to);
        if to.filled().len() > before {
            this.activity.note_received();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WatchedStream<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, from);
        this.within_write_wait(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, from);
        this.within_write_wait(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.within_write_wait(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
