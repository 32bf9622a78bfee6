//! Clients' connections: a bounded number of them, each closed when it is silent for too long.
//!
//! **Invariant.** No more than [`Bounds::connections_max`] are open: whoever comes then waits in the system's queue until
//! one is closed. A client has so long to begin a request, and so long without one; and so long in which it takes nothing
//! of what there is for it.
//!
//! **Failure**: an error on a connection ends that connection and affects no other.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Version;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;

use super::app::App;
use super::head::From;
use super::settings::Bounds;
use crate::observe::OneConnection;
use crate::tls::TWO;

/// How long the proxy waits after it could not accept a connection, as when no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long a connection that was silent has to close.
const CLOSE_WAIT: Duration = Duration::from_secs(1);
/// How often a client is asked by HTTP/2 whether it is still there, and how long that may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_WAIT: Duration = Duration::from_secs(20);
/// How many requests a client may have at work on one connection by HTTP/2.
const STREAMS_MAX: u32 = 100;
/// How much of a body may be on its way over HTTP/2, for one request and for all of a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// A connection's place among those that may be open; it is given up when the last one that holds it is dropped.
pub struct Place {
    _permit: OwnedSemaphorePermit,
    _counted: OneConnection,
}

/// What listens, and serves whoever connects.
pub struct Listening {
    /// Where.
    pub listener: TcpListener,
    /// Who answers.
    pub app: Arc<App>,
    /// TLS with clients.
    pub tls: Option<TlsAcceptor>,
    /// What clients may take.
    pub bounds: Bounds,
}

impl Listening {
    /// Takes connections until `stop`, then waits until each has finished what it is at.
    pub async fn serve(self, mut stop: watch::Receiver<bool>) {
        let Self { listener, app, tls, bounds } = self;
        let places = Arc::new(Semaphore::new(bounds.connections_max));
        let mut tasks = JoinSet::new();
        loop {
            while tasks.try_join_next().is_some() {}
            let accepted = tokio::select! {
                () = stopped(&mut stop) => break,
                accepted = accept(&listener, &places) => accepted,
            };
            let (stream, permit, from) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let place = Arc::new(Place { _permit: permit, _counted: app.connected() });
            let from = From { address: from, is_tls: tls.is_some() };
            let one = One { app: Arc::clone(&app), place, from, bounds, stop: stop.clone() };
            match &tls {
                None => drop(tasks.spawn(one.serve(stream, false))),
                Some(tls) => drop(tasks.spawn(one.serve_tls(stream, tls.clone()))),
            }
        }
        drop(listener);
        while tasks.join_next().await.is_some() {}
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, OwnedSemaphorePermit, std::net::IpAddr)> {
    let permit = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, from) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, permit, from.ip()))
}

/// One connection.
struct One {
    app: Arc<App>,
    place: Arc<Place>,
    from: From,
    bounds: Bounds,
    stop: watch::Receiver<bool>,
}

impl One {
    async fn serve_tls(self, stream: TcpStream, tls: TlsAcceptor) {
        match tokio::time::timeout(self.bounds.head_wait, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let is_two = stream.get_ref().1.alpn_protocol() == Some(TWO);
                self.serve(stream, is_two).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a client speaks no TLS that is known here"),
            Err(_) => tracing::debug!("a client takes too long to begin TLS"),
        }
    }

    async fn serve<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: T, is_two: bool) {
        let Self { app, place, from, bounds, mut stop } = self;
        let activity = Arc::new(Activity::new(is_two));
        let heard = Heard { stream, activity: Arc::clone(&activity), write_wait: bounds.idle_wait, blocked: None };
        let stream = TokioIo::new(heard);
        let answering = Arc::clone(&activity);
        let service = service_fn(move |request| {
            let busy = answering.begin(request.version() == Version::HTTP_2);
            let (app, place) = (Arc::clone(&app), Arc::clone(&place));
            async move { Ok::<_, std::convert::Infallible>(app.answer(request, from, place, busy).await) }
        });
        let builder = builder(bounds);
        let connection = builder.serve_connection_with_upgrades(stream, service);
        tokio::pin!(connection);
        let mut stops = false;
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break Ok(ended),
                // Also during a stop: half a head must not hold that up.
                () = activity.silent(bounds.head_wait, bounds.idle_wait) => {
                    connection.as_mut().graceful_shutdown();
                    break tokio::time::timeout(CLOSE_WAIT, connection.as_mut()).await;
                }
                () = stopped(&mut stop), if !stops => {
                    connection.as_mut().graceful_shutdown();
                    stops = true;
                }
            }
        };
        log(ended.unwrap_or(Ok(())));
    }
}

/// Is ready when everything stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which stops everything, too.
    let _ = stop.wait_for(|stops| *stops).await;
}

fn builder(bounds: Bounds) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(bounds.head_bytes_max);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(bounds.head_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_WAIT)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    builder
}

fn log(ended: Result<(), Box<dyn std::error::Error + Send + Sync>>) {
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection has ended");
    }
}

/// What happens on a connection.
pub struct Activity {
    state: Mutex<State>,
    changed: Notify,
}

struct State {
    at_work: usize,
    /// Since when a request's head comes.
    head_since: Option<Instant>,
    idle_since: Instant,
    is_two: bool,
}

impl Activity {
    /// From the beginning its first request is waited for.
    fn new(is_two: bool) -> Self {
        let now = Instant::now();
        let state = State { at_work: 0, head_since: Some(now), idle_since: now, is_two };
        Self { state: Mutex::new(state), changed: Notify::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is at work, until what is returned is dropped.
    fn begin(self: &Arc<Self>, is_two: bool) -> Busy {
        let mut state = self.state();
        state.at_work += 1;
        state.is_two = is_two;
        state.head_since = None;
        drop(state);
        Busy(Arc::clone(self))
    }

    /// The client has sent something.
    fn heard(&self) {
        let mut state = self.state();
        if state.at_work == 0 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
            self.changed.notify_one();
        }
    }

    /// Until when something has to happen; `None` while a request is at work.
    fn until(&self, head: Duration, idle: Duration) -> Option<Instant> {
        let state = self.state();
        // By HTTP/2 there is more to be heard than heads.
        let head_since = state.head_since.filter(|_| !state.is_two);
        (state.at_work == 0).then(|| head_since.map_or(state.idle_since + idle, |since| since + head))
    }

    /// Is ready when the client was silent for too long.
    async fn silent(&self, head: Duration, idle: Duration) {
        loop {
            match self.until(head, idle) {
                None => self.changed.notified().await,
                Some(until) if until <= Instant::now() => return,
                Some(until) => drop(tokio::time::timeout_at(until, self.changed.notified()).await),
            }
        }
    }
}

/// A request at work on a connection.
pub struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.at_work -= 1;
        state.idle_since = Instant::now();
        drop(state);
        self.0.changed.notify_one();
    }
}

/// A stream that says when something was heard, and fails when nothing of what is to be written was taken for so long.
struct Heard<T> {
    stream: T,
    activity: Arc<Activity>,
    write_wait: Duration,
    /// The end of that time, while something waits to be written.
    blocked: Option<Pin<Box<Sleep>>>,
}

impl<T> Heard<T> {
    fn in_time<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.blocked = None;
            return written;
        }
        let wait = self.write_wait;
        let blocked = self.blocked.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        std::task::ready!(blocked.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Heard<T> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = to.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, to);
        if to.filled().len() > before {
            this.activity.heard();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Heard<T> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, from);
        this.in_time(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, from);
        this.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        this.in_time(context, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}
