//! A socket that stops sending a request once nobody waits for its response any more.
//!
//! When a socket is closed, the operating system keeps sending the buffered bytes, for minutes if the other side does
//! not read. A request whose attempt has ended must not arrive later, so its connection is reset: unsent bytes are
//! discarded.

use std::cell::Cell;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Whether a connection has a request that the operating system must not keep sending after the connection is closed.
#[derive(Clone, Default)]
pub(super) struct Unfinished(Rc<Cell<bool>>);

impl Unfinished {
    /// Sets whether the connection has such a request.
    pub fn set(&self, is_unfinished: bool) {
        self.0.set(is_unfinished);
    }
}

/// A socket that is reset when it is dropped with an unfinished request.
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
            // If this fails, the socket is already closed and has nothing left to send.
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
