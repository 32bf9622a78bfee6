//! Requests and responses without their headers.

use std::fmt;
use std::sync::Arc;

/// A part of a request's bytes. `Debug` shows only how many: they may contain a password.
pub enum Segment {
    /// Bytes of this request alone. Once they are written, the buffer is reused: see
    /// [`buffer`](super::super::brokers::Brokers::buffer).
    Owned(Vec<u8>),
    /// Bytes that their sender keeps as well, for a retry; this reference to them is dropped once they are written.
    Shared(Arc<Vec<u8>>),
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.as_slice().len())
    }
}

impl Segment {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// The parts of a request, in order: its own bytes and record batches alternate, so that batches are sent from the
/// buffers they were built in.
#[derive(Debug, Default)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// Starts without segments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a segment at the end.
    pub fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    /// The length of all segments together.
    pub fn bytes(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }

    /// The segments' bytes in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Segment::as_slice)
    }

    /// The buffers of the owned segments.
    pub(super) fn into_owned(self) -> impl Iterator<Item = Vec<u8>> {
        self.0.into_iter().filter_map(|segment| match segment {
            Segment::Owned(bytes) => Some(bytes),
            Segment::Shared(_) => None,
        })
    }
}

impl From<Vec<u8>> for Segments {
    fn from(bytes: Vec<u8>) -> Self {
        Self(vec![Segment::Owned(bytes)])
    }
}

impl From<Vec<Segment>> for Segments {
    fn from(segments: Vec<Segment>) -> Self {
        Self(segments)
    }
}

/// A request without its header, which the connection writes. Every request has a response: a Produce request without
/// acknowledgement cannot be sent.
#[derive(Debug)]
pub struct Request {
    /// The API key.
    pub api_key: i16,
    /// The version of the request and its response.
    pub version: i16,
    /// The bytes after the header.
    pub body: Segments,
}

/// A response without its header, in a buffer of its own. `Debug` shows only the number of its bytes.
#[derive(Default)]
pub struct Body {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.as_slice().len())
    }
}

impl Body {
    /// The response at `begin..end` of a buffer.
    pub(super) fn new(buffer: Vec<u8>, begin: usize, end: usize) -> Self {
        Self { buffer, begin, end }
    }

    /// The response without its header.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.get(self.begin..self.end).unwrap_or_default()
    }

    /// The buffer, for [`recycle`](super::super::brokers::Brokers::recycle). It may be longer than the response, and
    /// contains the header too.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}
