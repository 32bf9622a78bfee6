//! Connects to the service: name resolution, TCP, TLS and HTTP's handshake. No part of a request is sent here.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::upstream::{Origin, Protocol};
use crate::http::Body;
use crate::provider::http::dial;
use crate::tls::ALPN_HTTP_2;
use crate::words::error_text;

/// The longest head of a response, and how much of a response over HTTP/1.1 is buffered.
const HEAD_MAX: usize = 64 << 10;
/// How often a used HTTP/2 connection is pinged, and how long the reply may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_WAIT: Duration = Duration::from_secs(20);
/// The most concurrent requests on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// The flow-control window of one response over HTTP/2: how many of its bytes may be in transit.
const STREAM_WINDOW: u32 = 256 << 10;
/// The flow-control window of all responses on a connection: the sum of their windows, so that unread responses do not
/// hold up others.
const CONNECTION_WINDOW: u32 = STREAMS_MAX * STREAM_WINDOW;

/// A new connection.
pub enum NewConnection {
    /// Over HTTP/1.1.
    Http1(http1::SendRequest<Body>),
    /// Over HTTP/2, with the number of concurrent requests that it allows.
    Http2(http2::SendRequest<Body>, Arc<AtomicUsize>),
}

/// Connects within the origin's `connect_wait`.
///
/// # Errors
/// Why there is no connection.
pub async fn connect(origin: &Origin, needs_http1: bool) -> Result<NewConnection, String> {
    let wait = origin.connect_wait;
    let connected = tokio::time::timeout(wait, connect_now(origin, needs_http1)).await;
    connected.unwrap_or_else(|_| Err(format!("no connection to {}:{} within {wait:?}", origin.host, origin.port)))
}

/// Connects, and does the handshakes; the caller bounds the time.
async fn connect_now(origin: &Origin, needs_http1: bool) -> Result<NewConnection, String> {
    let stream = dial(&origin.host, origin.port, origin.connect_wait).await?;
    match &origin.tls {
        None if origin.protocol == Protocol::Http2 && !needs_http1 => handshake_http2(stream).await,
        None => handshake_http1(stream).await,
        Some(tls) => {
            let [any_version, only_http1] = tls.as_ref();
            let config = if needs_http1 { only_http1 } else { any_version }.current()?;
            let (stream, is_http2) = tls_handshake(config, stream, &origin.host).await?;
            if is_http2 { handshake_http2(stream).await } else { handshake_http1(stream).await }
        }
    }
}

/// Does the TLS handshake. Returns whether HTTP/2 was negotiated.
async fn tls_handshake(
    config: Arc<ClientConfig>,
    stream: TcpStream,
    host: &str,
) -> Result<(tokio_rustls::client::TlsStream<TcpStream>, bool), String> {
    let name =
        ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} is not a valid name for a certificate"))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| format!("TLS handshake with {host} failed: {}", error_text(&error)))?;
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(ALPN_HTTP_2);
    Ok((stream, is_http2))
}

async fn handshake_http1<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
) -> Result<NewConnection, String> {
    let handshake = http1::Builder::new().max_buf_size(HEAD_MAX).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error_text(&error))?;
    // The result is ignored: the request on the connection gets the same error.
    tokio::spawn(async move { drop(connection.with_upgrades().await) });
    sender.ready().await.map_err(|error| error_text(&error))?;
    Ok(NewConnection::Http1(sender))
}

async fn handshake_http2<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: T,
) -> Result<NewConnection, String> {
    let handshake = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(HEAD_MAX).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_WAIT)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, mut connection) = handshake.map_err(|error| format!("no HTTP/2: {}", error_text(&error)))?;
    let streams_max = Arc::new(AtomicUsize::new(connection.current_max_send_streams()));
    let updated_streams_max = Arc::clone(&streams_max);
    tokio::spawn(std::future::poll_fn(move |context| {
        let ended = Pin::new(&mut connection).poll(context);
        updated_streams_max
            .store(connection.current_max_send_streams().clamp(1, STREAMS_MAX as usize), Ordering::Relaxed);
        ended.map(drop)
    }));
    sender.ready().await.map_err(|error| format!("no HTTP/2: {}", error_text(&error)))?;
    Ok(NewConnection::Http2(sender, streams_max))
}
