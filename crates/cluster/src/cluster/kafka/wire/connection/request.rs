//! A request on its way out, and a response behind its header.

use std::fmt;
use std::sync::Arc;

/// A run of a request's bytes. `Debug` shows their number only: they may hold a password.
pub enum Segment {
    /// Bytes of this request alone. Once they are written the buffer is used again, see
    /// [`buffer`](super::super::brokers::Brokers::buffer).
    Owned(Vec<u8>),
    /// Bytes that their sender keeps as well, for a retry; given back (dropped here) once they are written.
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

/// What a request consists of, in order: what was written for it and record batches in turns, so that batches are
/// sent from where they were built.
#[derive(Debug, Default)]
pub struct Segments(Vec<Segment>);

impl Segments {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a run of bytes at the end.
    pub fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    /// All bytes together.
    pub fn bytes(&self) -> usize {
        self.iter().map(<[u8]>::len).sum()
    }

    /// The runs in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Segment::as_slice)
    }

    /// The buffers that nobody else holds.
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

/// A request without its header, which the connection writes. Every request has a response: a Produce without
/// acknowledgement cannot be sent.
#[derive(Debug)]
pub struct Request {
    /// Which request it is.
    pub api_key: i16,
    /// In which version it is written, and answered.
    pub version: i16,
    /// What follows the header.
    pub body: Segments,
}

/// A response behind its header, in a buffer of its own. `Debug` shows the number of its bytes.
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

    /// The response behind its header.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.get(self.begin..self.end).unwrap_or_default()
    }

    /// The buffer, for [`recycle`](super::super::brokers::Brokers::recycle). It may be longer than the response, and
    /// holds its header too.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }
}
