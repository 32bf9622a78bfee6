//! Reads a response: its status, the headers that matter, and as much of the body as is wanted.
//!
//! A response 400 or 422 whose body names the key ([`names_key`]: the key's header, or the word "idempotency") is about
//! the idempotency key, not about the request.

use bytes::Bytes;
use h2::RecvStream;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::http::response::Parts;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::connect::h2_error_message;
use super::settings::{HASHED_MAX, Shared};
use crate::effect::call::{RetryAfter, Status, is_replay_marker, names_key};
use crate::effect::provider::Body;
use crate::words::error_text;

/// How many bytes of a body are searched for the key's name.
const SEARCHED_MAX: usize = 16 << 10;
/// How many bytes of an unwanted body are read, so that the connection can be used again.
const DRAINED_MAX: usize = 64 << 10;

/// A body as it arrives.
pub(super) enum Stream {
    Http1(Incoming),
    Http2(RecvStream),
}

impl Stream {
    async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self {
            Self::Http1(body) => loop {
                match body.frame().await? {
                    // Trailers are ignored.
                    Ok(frame) => match frame.into_data() {
                        Ok(data) => return Some(Ok(data)),
                        Err(_) => continue,
                    },
                    Err(error) => return Some(Err(error_text(&error))),
                }
            },
            Self::Http2(body) => match body.data().await? {
                Ok(data) => {
                    let released = body.flow_control().release_capacity(data.len());
                    Some(released.map(|()| data).map_err(|error| h2_error_message(&error)))
                }
                Err(error) => Some(Err(h2_error_message(&error))),
            },
        }
    }
}

/// A response that was read.
pub(super) struct ReadResponse {
    pub status: Status,
    pub body: Body,
    /// What was wrong with the body, if the body is wanted.
    pub message: Option<String>,
    /// Whether the body was read to its end.
    pub is_whole: bool,
}

/// Reads a response until `deadline`.
pub(super) async fn read(shared: &Shared, head: &Parts, mut stream: Stream, deadline: Instant) -> ReadResponse {
    let code = head.status.as_u16();
    let may_name_key = shared.key_header.as_ref().filter(|_| matches!(code, 400 | 422));
    let mut reader = BodyReader::new(shared.body_bytes_max, may_name_key.is_some());
    let outcome = tokio::time::timeout_at(deadline, reader.read(&mut stream)).await;
    let failure = outcome.unwrap_or_else(|_| Err(format!("not at its end within {:?}", shared.timeout))).err();
    let names_key = may_name_key.is_some_and(|header| names_key(reader.searched(), header.as_str()));
    let status = Status { names_key, ..read_head(code, &head.headers, (shared.clock)()) };
    let is_whole = failure.is_none();
    let message = failure.filter(|_| shared.body_bytes_max.is_some());
    let message = message.map(|why| format!("the body of the answer {code} was cut off: {why}"));
    ReadResponse { status, body: if is_whole { reader.into_body() } else { Body::None }, message, is_whole }
}

fn read_head(code: u16, headers: &HeaderMap, now_ms: i64) -> Status {
    let text = |name| headers.get(name).and_then(|value: &hyper::header::HeaderValue| value.to_str().ok());
    let retry_after = text(RETRY_AFTER).and_then(|value| RetryAfter::parse(value, now_ms));
    let is_replayed =
        headers.iter().any(|(name, value)| value.to_str().is_ok_and(|v| is_replay_marker(name.as_str(), v)));
    Status { retry_after, is_replayed, ..Status::of(code) }
}

/// A body that is being read.
struct BodyReader {
    body_bytes_max: Option<usize>,
    /// The most bytes of `beginning`.
    beginning_bytes_max: usize,
    /// The first bytes of the body.
    beginning: Vec<u8>,
    /// The hasher of all bytes, once there are more than `body_bytes_max`.
    hasher: Option<Sha256>,
    /// How many bytes were read.
    bytes: usize,
    /// A body with more bytes is not read to its end.
    bytes_max: usize,
}

impl BodyReader {
    fn new(body_bytes_max: Option<usize>, may_name_key: bool) -> Self {
        let searched_max = if may_name_key { SEARCHED_MAX } else { 0 };
        let beginning_bytes_max = body_bytes_max.unwrap_or(0).max(searched_max);
        let bytes_max = body_bytes_max.map_or(DRAINED_MAX, |max| max.max(HASHED_MAX));
        Self { body_bytes_max, beginning_bytes_max, beginning: Vec::new(), hasher: None, bytes: 0, bytes_max }
    }

    /// Reads a body to its end.
    async fn read(&mut self, stream: &mut Stream) -> Result<(), String> {
        while let Some(chunk) = stream.next().await {
            self.add(&chunk?);
            if self.bytes > self.bytes_max {
                return Err(format!("it is longer than {} bytes", self.bytes_max));
            }
        }
        Ok(())
    }

    fn add(&mut self, chunk: &[u8]) {
        let bytes = self.bytes.saturating_add(chunk.len());
        if self.hasher.is_none() && self.body_bytes_max.is_some_and(|max| bytes > max) {
            // Everything so far is in `beginning`: it was not more than `body_bytes_max`.
            self.hasher = Some(Sha256::new_with_prefix(&self.beginning));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(chunk);
        }
        let room = self.beginning_bytes_max.saturating_sub(self.beginning.len());
        self.beginning.extend_from_slice(&chunk[..chunk.len().min(room)]);
        self.bytes = bytes;
    }

    /// The part of the body that is searched for the key's name.
    fn searched(&self) -> &[u8] {
        &self.beginning[..self.beginning.len().min(SEARCHED_MAX)]
    }

    fn into_body(self) -> Body {
        match self.hasher {
            _ if self.bytes == 0 || self.body_bytes_max.is_none() => Body::None,
            None => Body::Whole(self.beginning),
            Some(hasher) => Body::Digest { sha256: hasher.finalize().into(), bytes: self.bytes as u64 },
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a body is kept if it has at most the wanted length, and otherwise hashed whole, whatever its chunks are.

    use super::*;

    fn reader_of(body_bytes_max: Option<usize>, may_name_key: bool, chunks: &[&[u8]]) -> BodyReader {
        let mut reader = BodyReader::new(body_bytes_max, may_name_key);
        chunks.iter().for_each(|chunk| reader.add(chunk));
        reader
    }

    fn digest(bytes: &[u8]) -> Body {
        Body::Digest { sha256: Sha256::digest(bytes).into(), bytes: bytes.len() as u64 }
    }

    #[test]
    fn short_body_is_kept_and_long_body_is_hashed() {
        let whole = |bytes: &[u8]| Body::Whole(bytes.to_vec());
        type Case<'a> = (Option<usize>, &'a [&'a [u8]], Body);
        let cases: [Case<'_>; 9] = [
            (Some(4), &[], Body::None),
            (Some(4), &[b""], Body::None),
            (Some(4), &[b"ab", b"cd"], whole(b"abcd")),
            (Some(4), &[b"ab", b"cde"], digest(b"abcde")),
            (Some(4), &[b"abcde"], digest(b"abcde")),
            (Some(4), &[b"abcd", b"", b"e", b"fgh"], digest(b"abcdefgh")),
            (Some(0), &[b"a"], digest(b"a")),
            (Some(0), &[b""], Body::None),
            (None, &[b"abc"], Body::None),
        ];
        for (body_bytes_max, chunks, expected) in cases {
            for may_name_key in [false, true] {
                assert_eq!(
                    reader_of(body_bytes_max, may_name_key, chunks).into_body(),
                    expected,
                    "{body_bytes_max:?} {chunks:?}"
                );
            }
        }
    }

    #[test]
    fn beginning_is_kept_only_if_the_response_may_name_the_key() {
        let long = vec![b'a'; SEARCHED_MAX + 1];
        assert_eq!(reader_of(None, true, &[&long, b"b"]).searched(), &long[1..]);
        assert_eq!(reader_of(Some(3), true, &[b"ab", b"cde"]).searched(), b"abcde");
        assert_eq!(reader_of(None, false, &[b"ab"]).searched(), b"");
    }
}
