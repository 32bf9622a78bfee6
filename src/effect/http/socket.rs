//! A socket that does not send on what nobody waits for any more.
//!
//! When a socket is closed, the system goes on sending what it has taken, for minutes where the other side does not
//! read. A request whose attempt has ended must not arrive then, so its connection is reset: what was not sent is
//! thrown away.

use std::cell::Cell;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Whether a connection has a request that may not be sent on by the system.
#[derive(Clone, Default)]
pub(super) struct Unfinished(Rc<Cell<bool>>);

impl Unfinished {
    /// Says whether it has one.
    pub fn set(&self, is_unfinished: bool) {
        self.0.set(is_unfinished);
    }
}

/// A socket.
pub(super) struct Socket {
    stream: TcpStream,
    unfinished: Unfinished,
}

impl Socket {
    pub fn new(stream: TcpStream, unfinished: &Unfinished) -> Self {
        Self { stream, unfinished: unfinished.clone() }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.unfinished.0.get() {
            // One that is closed already has nothing left to send.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        self.stream().poll_read(context, to)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<Result<usize>> {
        self.stream().poll_write(context, from)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.stream().poll_write_vectored(context, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
