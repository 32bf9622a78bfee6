//! Making a connection: name lookup, TCP, a proxy, TLS, and the HTTP handshake. Nothing of a request is sent here.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::header::HeaderValue;
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::AbortHandle;

use super::message::Origin;
use super::settings::Shared;
use super::socket::{Socket, Unfinished};
use super::tls;
use crate::words::error_text;

/// The longest head of a response, in bytes.
const HEAD_MAX: usize = 64 << 10;
/// The longest head of a proxy's response to CONNECT, in bytes.
const PROXY_HEAD_MAX: usize = 8 << 10;
/// The HTTP/2 windows: how many bytes of bodies may be in transit for one response, and for all responses of a
/// connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// A byte stream: TCP or TLS.
trait ByteStream: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> ByteStream for T {}
type BoxedStream = Box<dyn ByteStream>;

/// An HTTP/1.1 connection, for one request at a time. Dropping it closes its socket.
pub(super) struct Http1 {
    pub sender: http1::SendRequest<Full<Bytes>>,
    /// Whether the connection has a request whose unsent bytes must be discarded when the socket is closed.
    pub unfinished: Unfinished,
    task: AbortHandle,
}

impl Drop for Http1 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An HTTP/2 connection. Dropping it closes its socket.
pub(super) struct Http2 {
    sender: SendRequest<Bytes>,
    /// As in [`Http1`].
    pub unfinished: Unfinished,
    is_closed: Rc<Cell<bool>>,
    task: AbortHandle,
}

impl Http2 {
    /// A sender of requests on this connection.
    pub fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    /// How many requests the other side allows at once.
    pub fn streams_max(&self) -> usize {
        self.sender.current_max_send_streams()
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A new connection.
pub(super) enum Connection {
    Http1(Http1),
    Http2(Http2),
}

impl Connection {
    fn is_usable(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.sender.is_ready(),
            Self::Http2(http2) => !http2.is_closed() && http2.streams_max() > 0,
        }
    }
}

/// The message of an HTTP/2 error, without any text from the other side.
pub(super) fn h2_error_message(error: &h2::Error) -> String {
    match (error.get_io(), error.reason()) {
        (Some(error), _) => error_text(error),
        (None, Some(reason)) if error.is_go_away() => format!("the connection was closed: {reason}"),
        (None, Some(reason)) => format!("the stream was reset: {reason}"),
        (None, None) => "the connection was closed".to_owned(),
    }
}

/// Connects to an origin, within the time that connecting may take.
///
/// # Errors
/// Why there is no connection.
pub(super) async fn connect(shared: &Shared, origin: &Origin) -> Result<Connection, String> {
    let wait = shared.connect_wait();
    let connected = tokio::time::timeout(wait, connect_without_timeout(shared, origin)).await;
    let connection = connected.unwrap_or_else(|_| Err(format!("no connection to {origin} within {wait:?}")))?;
    if connection.is_usable() {
        Ok(connection)
    } else {
        Err(format!("{origin} accepts no requests on a new connection"))
    }
}

async fn connect_without_timeout(shared: &Shared, origin: &Origin) -> Result<Connection, String> {
    let unfinished = Unfinished::default();
    let open_socket = async |host: &str, port| -> Result<BoxedStream, String> {
        let socket: BoxedStream = Box::new(Socket::new(dial(host, port, shared.connect_wait()).await?, &unfinished));
        Ok(socket)
    };
    // `None` if the origin is reached without a proxy.
    let proxy = origin.uri().and_then(|uri| shared.proxies.intercept(&uri));
    let stream = match &proxy {
        None => open_socket(&origin.host, origin.port).await?,
        Some(proxy) => {
            connect_to_proxy(shared, proxy, open_socket).await.map_err(|error| format!("through a proxy: {error}"))?
        }
    };
    if !origin.is_tls {
        // Without TLS, a proxy forwards each request: no tunnel is needed.
        return connect_http1(stream, unfinished).await;
    }
    let stream = match &proxy {
        None => stream,
        Some(proxy) => open_tunnel(stream, origin, proxy.basic_auth()).await?,
    };
    let (stream, is_http2) = tls::handshake(shared, stream, &origin.host, true).await?;
    let stream = Box::new(stream);
    if is_http2 { connect_http2(stream, unfinished, origin).await } else { connect_http1(stream, unfinished).await }
}

/// Connects to a host, trying its addresses one after the other. Each address gets a part of `wait`, at least a
/// quarter. The caller bounds the whole, which includes the lookup of the name.
///
/// # Errors
/// Why there is no connection.
pub async fn dial(host: &str, port: u16, wait: Duration) -> Result<TcpStream, String> {
    let addresses =
        lookup_host((host, port)).await.map_err(|error| format!("no address of {host}: {}", error_text(&error)))?;
    let addresses: Vec<SocketAddr> = addresses.collect();
    // An address that does not respond leaves time for the others.
    let wait_each = wait / u32::try_from(addresses.len().clamp(1, 4)).unwrap_or(1);
    let mut failure = format!("no address of {host}");
    for address in addresses {
        let connected = tokio::time::timeout(wait_each, TcpStream::connect(address)).await;
        match connected {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|error| format!("no connection to {host}: {}", error_text(&error)))?;
                return Ok(stream);
            }
            Ok(Err(error)) => failure = format!("no connection to {host}:{port}: {}", error_text(&error)),
            Err(_) => failure = format!("no connection to {host}:{port} within {wait_each:?}"),
        }
    }
    Err(failure)
}

async fn connect_to_proxy(
    shared: &Shared,
    proxy: &Intercept,
    open_socket: impl AsyncFn(&str, u16) -> Result<BoxedStream, String>,
) -> Result<BoxedStream, String> {
    let uri = proxy.uri();
    let (host, port) = (uri.host().unwrap_or_default().trim_matches(['[', ']']), uri.port_u16());
    match uri.scheme_str() {
        Some("http") => open_socket(host, port.unwrap_or(80)).await,
        Some("https") => {
            let stream = open_socket(host, port.unwrap_or(443)).await?;
            Ok(Box::new(tls::handshake(shared, stream, host, false).await?.0))
        }
        _ => Err("only http:// and https:// are supported".to_owned()),
    }
}

/// Has a proxy open a tunnel to the origin. All bytes after its response belong to the tunnel.
async fn open_tunnel(
    mut stream: BoxedStream,
    origin: &Origin,
    credentials: Option<&HeaderValue>,
) -> Result<BoxedStream, String> {
    let mut request = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n").into_bytes();
    if let Some(credentials) = credentials {
        request.extend([b"Proxy-Authorization: ", credentials.as_bytes(), b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    let lost = |error: std::io::Error| format!("the proxy to {origin} does not answer: {}", error_text(&error));
    stream.write_all(&request).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // Byte by byte: the bytes after the head belong to the tunnel.
        let byte = stream.read_u8().await.map_err(lost)?;
        head.push(byte);
        if head.len() > PROXY_HEAD_MAX {
            return Err(format!("the proxy to {origin} answers no HTTP"));
        }
    }
    let code = head.split(|byte| *byte == b' ').nth(1).and_then(|code| std::str::from_utf8(code).ok());
    match code.and_then(|code| code.trim_end().parse::<u16>().ok()) {
        Some(200..=299) if head.starts_with(b"HTTP/1.") => Ok(stream),
        Some(407) => Err(format!("the proxy to {origin} requires authentication: it answered 407")),
        Some(code) => Err(format!("the proxy did not connect to {origin}: it answered {code}")),
        None => Err(format!("the proxy to {origin} answers no HTTP")),
    }
}

async fn connect_http1(stream: BoxedStream, unfinished: Unfinished) -> Result<Connection, String> {
    let handshake = http1::Builder::new().max_buf_size(HEAD_MAX).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| error_text(&error))?;
    // The connection's error is dropped: the sender of its request reports it.
    let task = tokio::task::spawn_local(async move { drop(connection.await) }).abort_handle();
    sender.ready().await.map_err(|error| error_text(&error))?;
    Ok(Connection::Http1(Http1 { sender, unfinished, task }))
}

async fn connect_http2(stream: BoxedStream, unfinished: Unfinished, origin: &Origin) -> Result<Connection, String> {
    let failed = |error: h2::Error| format!("no HTTP/2 with {origin}: {}", h2_error_message(&error));
    let handshake = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(HEAD_MAX).unwrap_or(u32::MAX))
        .handshake(stream)
        .await;
    let (sender, mut connection) = handshake.map_err(failed)?;
    let ping = connection.ping_pong();
    let is_closed = Rc::new(Cell::new(false));
    let closed = Rc::clone(&is_closed);
    let task = tokio::task::spawn_local(async move {
        drop(connection.await);
        closed.set(true);
    });
    let http2 = Http2 { sender, unfinished, is_closed, task: task.abort_handle() };
    // Waits for the response to a ping: before it, the other side announces how many requests it allows at once.
    if let Some(mut ping) = ping {
        ping.ping(h2::Ping::opaque()).await.map_err(failed)?;
    }
    Ok(Connection::Http2(http2))
}
