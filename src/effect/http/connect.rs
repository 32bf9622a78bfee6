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
use super::secured;
use super::settings::Shared;
use super::socket::{Socket, Unfinished};
use crate::words::said;

/// The longest head of an answer.
const HEAD_MAX: usize = 64 << 10;
/// The longest head of a proxy's answer to CONNECT.
const PROXY_HEAD_MAX: usize = 8 << 10;
/// The HTTP/2 windows: how many bytes of bodies may be in transit for one answer, and for all answers of a connection.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// A byte stream, whatever carries it.
trait Wire: AsyncRead + AsyncWrite + Unpin {}
impl<T: AsyncRead + AsyncWrite + Unpin> Wire for T {}
type Io = Box<dyn Wire>;

/// An HTTP/1.1 connection, for one request at a time. Dropping it closes its socket.
pub(super) struct One {
    pub sender: http1::SendRequest<Full<Bytes>>,
    pub unfinished: Unfinished,
    task: AbortHandle,
}

impl Drop for One {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An HTTP/2 connection. Dropping it closes its socket.
pub(super) struct Two {
    sender: SendRequest<Bytes>,
    pub unfinished: Unfinished,
    is_closed: Rc<Cell<bool>>,
    task: AbortHandle,
}

impl Two {
    /// A way to send requests.
    pub fn sender(&self) -> SendRequest<Bytes> {
        self.sender.clone()
    }

    /// How many requests the other side allows at once.
    pub fn allowed(&self) -> usize {
        self.sender.current_max_send_streams()
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that was made.
pub(super) enum Made {
    One(One),
    Two(Two),
}

impl Made {
    fn can_be_used(&self) -> bool {
        match self {
            Self::One(one) => one.sender.is_ready(),
            Self::Two(two) => !two.is_closed() && two.allowed() > 0,
        }
    }
}

/// The message of an HTTP/2 error, without what it may quote from the other side.
pub(super) fn said_by_two(error: &h2::Error) -> String {
    match (error.get_io(), error.reason()) {
        (Some(error), _) => said(error),
        (None, Some(reason)) if error.is_go_away() => format!("the connection was closed: {reason}"),
        (None, Some(reason)) => format!("the stream was reset: {reason}"),
        (None, None) => "the connection was closed".to_owned(),
    }
}

/// Connects to an origin, within the time that connecting may take.
///
/// # Errors
/// Why there is no connection.
pub(super) async fn connect(shared: &Shared, origin: &Origin) -> Result<Made, String> {
    let wait = shared.connect_wait();
    let connected = tokio::time::timeout(wait, connect_now(shared, origin)).await;
    let made = connected.unwrap_or_else(|_| Err(format!("no connection to {origin} within {wait:?}")))?;
    if made.can_be_used() { Ok(made) } else { Err(format!("{origin} accepts no requests on a new connection")) }
}

async fn connect_now(shared: &Shared, origin: &Origin) -> Result<Made, String> {
    let unfinished = Unfinished::default();
    let dial = async |host: &str, port| -> Result<Io, String> {
        let socket: Io = Box::new(Socket::new(dial(host, port, shared.connect_wait()).await?, &unfinished));
        Ok(socket)
    };
    let route = origin.uri().and_then(|uri| shared.proxies.intercept(&uri));
    let stream = match &route {
        None => dial(&origin.host, origin.port).await?,
        Some(proxy) => to_proxy(shared, proxy, dial).await.map_err(|error| format!("through a proxy: {error}"))?,
    };
    if !origin.is_tls {
        return one(stream, unfinished).await;
    }
    let stream = match &route {
        None => stream,
        Some(proxy) => tunnel(stream, origin, proxy.basic_auth()).await?,
    };
    let (stream, is_two) = secured::handshake(shared, stream, &origin.host, true).await?;
    let stream = Box::new(stream);
    if is_two { two(stream, unfinished, origin).await } else { one(stream, unfinished).await }
}

/// Connects to a host within `wait`, trying its addresses one after the other.
///
/// # Errors
/// Why there is no connection.
pub async fn dial(host: &str, port: u16, wait: Duration) -> Result<TcpStream, String> {
    let found = lookup_host((host, port)).await.map_err(|error| format!("no address of {host}: {}", said(&error)))?;
    let found: Vec<SocketAddr> = found.collect();
    // An address that does not answer leaves time for the others.
    let share = wait / u32::try_from(found.len().clamp(1, 4)).unwrap_or(1);
    let mut trouble = format!("no address of {host}");
    for address in found {
        let connected = tokio::time::timeout(share, TcpStream::connect(address)).await;
        match connected {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|error| format!("no connection to {host}: {}", said(&error)))?;
                return Ok(stream);
            }
            Ok(Err(error)) => trouble = format!("no connection to {host}:{port}: {}", said(&error)),
            Err(_) => trouble = format!("no connection to {host}:{port} within {share:?}"),
        }
    }
    Err(trouble)
}

async fn to_proxy(
    shared: &Shared,
    proxy: &Intercept,
    dial: impl AsyncFn(&str, u16) -> Result<Io, String>,
) -> Result<Io, String> {
    let uri = proxy.uri();
    let (host, port) = (uri.host().unwrap_or_default().trim_matches(['[', ']']), uri.port_u16());
    match uri.scheme_str() {
        Some("http") => dial(host, port.unwrap_or(80)).await,
        Some("https") => {
            let stream = dial(host, port.unwrap_or(443)).await?;
            Ok(Box::new(secured::handshake(shared, stream, host, false).await?.0))
        }
        _ => Err("only http:// and https:// are supported".to_owned()),
    }
}

/// Has a proxy tunnel all that follows to the origin.
async fn tunnel(mut stream: Io, origin: &Origin, user: Option<&HeaderValue>) -> Result<Io, String> {
    let mut asked = format!("CONNECT {origin} HTTP/1.1\r\nHost: {origin}\r\n").into_bytes();
    if let Some(user) = user {
        asked.extend([b"Proxy-Authorization: ", user.as_bytes(), b"\r\n"].concat());
    }
    asked.extend(b"\r\n");
    let lost = |error: std::io::Error| format!("the proxy to {origin} does not answer: {}", said(&error));
    stream.write_all(&asked).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // Byte by byte: what follows the head belongs to the tunnel.
        let byte = stream.read_u8().await.map_err(lost)?;
        head.push(byte);
        if head.len() > PROXY_HEAD_MAX {
            return Err(format!("the proxy to {origin} answers no HTTP"));
        }
    }
    let first = head.split(|byte| *byte == b' ').nth(1).and_then(|code| std::str::from_utf8(code).ok());
    match first.and_then(|code| code.trim_end().parse::<u16>().ok()) {
        Some(200..=299) if head.starts_with(b"HTTP/1.") => Ok(stream),
        Some(407) => Err(format!("the proxy to {origin} requires authentication: it answered 407")),
        Some(code) => Err(format!("the proxy did not connect to {origin}: it answered {code}")),
        None => Err(format!("the proxy to {origin} answers no HTTP")),
    }
}

async fn one(stream: Io, unfinished: Unfinished) -> Result<Made, String> {
    let begun = http1::Builder::new().max_buf_size(HEAD_MAX).handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|error| said(&error))?;
    // The request on a connection is told how the connection ended.
    let task = tokio::task::spawn_local(async move { drop(connection.await) }).abort_handle();
    sender.ready().await.map_err(|error| said(&error))?;
    Ok(Made::One(One { sender, unfinished, task }))
}

async fn two(stream: Io, unfinished: Unfinished, origin: &Origin) -> Result<Made, String> {
    let failed = |error: h2::Error| format!("no HTTP/2 with {origin}: {}", said_by_two(&error));
    let begun = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(HEAD_MAX).unwrap_or(u32::MAX))
        .handshake(stream)
        .await;
    let (sender, mut connection) = begun.map_err(failed)?;
    let ping = connection.ping_pong();
    let is_closed = Rc::new(Cell::new(false));
    let closed = Rc::clone(&is_closed);
    let task = tokio::task::spawn_local(async move {
        drop(connection.await);
        closed.set(true);
    });
    let two = Two { sender, unfinished, is_closed, task: task.abort_handle() };
    // The other side says how many requests it allows at once before it answers a ping.
    if let Some(mut ping) = ping {
        ping.ping(h2::Ping::opaque()).await.map_err(failed)?;
    }
    Ok(Made::Two(two))
}
