//! Reading an answer: the status, what the headers say, and as much of the body as is wanted.

use bytes::Bytes;
use h2::RecvStream;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{HeaderMap, RETRY_AFTER};
use hyper::http::response::Parts;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::connect::said_by_two;
use super::settings::{HASHED_MAX, Shared};
use crate::effect::call::{RetryAfter, Status, is_replay_marker, names_key};
use crate::effect::provider::Body;
use crate::words::said;

/// How much of a body is searched for signs that it is about the key.
const NAMED_MAX: usize = 16 << 10;
/// How much of an unwanted body is read, so that the connection can be used again.
const DRAINED_MAX: usize = 64 << 10;

/// A body as it arrives.
pub(super) enum Stream {
    One(Incoming),
    Two(RecvStream),
}

impl Stream {
    async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match self {
            Self::One(body) => loop {
                match body.frame().await? {
                    // Trailers are ignored.
                    Ok(frame) => match frame.into_data() {
                        Ok(data) => return Some(Ok(data)),
                        Err(_) => continue,
                    },
                    Err(error) => return Some(Err(said(&error))),
                }
            },
            Self::Two(body) => match body.data().await? {
                Ok(data) => {
                    let released = body.flow_control().release_capacity(data.len());
                    Some(released.map(|()| data).map_err(|error| said_by_two(&error)))
                }
                Err(error) => Some(Err(said_by_two(&error))),
            },
        }
    }
}

/// An answer, read.
pub(super) struct Read {
    pub status: Status,
    pub body: Body,
    /// What was wrong with the body, if the body is wanted.
    pub message: Option<String>,
    /// Whether the body was read to its end.
    pub is_whole: bool,
}

/// Reads an answer until `deadline`.
pub(super) async fn read(shared: &Shared, head: &Parts, mut stream: Stream, deadline: Instant) -> Read {
    let code = head.status.as_u16();
    let is_about_key = shared.key_header.as_ref().filter(|_| matches!(code, 400 | 422));
    let mut reading = Reading::new(shared.body_bytes_max, is_about_key.is_some());
    let ended = tokio::time::timeout_at(deadline, reading.take(&mut stream)).await;
    let trouble = ended.unwrap_or_else(|_| Err(format!("not at its end within {:?}", shared.timeout))).err();
    let names_key = is_about_key.is_some_and(|header| names_key(reading.beginning(), header.as_str()));
    let status = Status { names_key, ..read_head(code, &head.headers, (shared.clock)()) };
    let is_whole = trouble.is_none();
    let message = trouble.filter(|_| shared.body_bytes_max.is_some());
    let message = message.map(|why| format!("the body of the answer {code} was cut off: {why}"));
    Read { status, body: if is_whole { reading.body() } else { Body::None }, message, is_whole }
}

fn read_head(code: u16, headers: &HeaderMap, now_ms: i64) -> Status {
    let text = |name| headers.get(name).and_then(|value: &hyper::header::HeaderValue| value.to_str().ok());
    let retry_after = text(RETRY_AFTER).and_then(|value| RetryAfter::parse(value, now_ms));
    let says_so = headers.iter().any(|(name, value)| value.to_str().is_ok_and(|v| is_replay_marker(name.as_str(), v)));
    Status { retry_after, is_replayed: says_so, ..Status::of(code) }
}

/// What was read of a body so far.
struct Reading {
    body_bytes_max: Option<usize>,
    /// How many bytes of the beginning are kept.
    kept_max: usize,
    kept: Vec<u8>,
    /// Set once there are more than `body_bytes_max` bytes.
    hasher: Option<Sha256>,
    bytes: usize,
    most: usize,
}

impl Reading {
    fn new(body_bytes_max: Option<usize>, is_about_key: bool) -> Self {
        let named_max = if is_about_key { NAMED_MAX } else { 0 };
        let kept_max = body_bytes_max.unwrap_or(0).max(named_max);
        let most = body_bytes_max.map_or(DRAINED_MAX, |max| max.max(HASHED_MAX));
        Self { body_bytes_max, kept_max, kept: Vec::new(), hasher: None, bytes: 0, most }
    }

    /// Reads a body to its end.
    async fn take(&mut self, stream: &mut Stream) -> Result<(), String> {
        while let Some(chunk) = stream.next().await {
            self.add(&chunk?);
            if self.bytes > self.most {
                return Err(format!("it is longer than {} bytes", self.most));
            }
        }
        Ok(())
    }

    fn add(&mut self, chunk: &[u8]) {
        let bytes = self.bytes.saturating_add(chunk.len());
        if self.hasher.is_none() && self.body_bytes_max.is_some_and(|max| bytes > max) {
            // Everything so far is in `kept`: it was not more than `body_bytes_max`.
            self.hasher = Some(Sha256::new_with_prefix(&self.kept));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(chunk);
        }
        let room = self.kept_max.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(&chunk[..chunk.len().min(room)]);
        self.bytes = bytes;
    }

    fn beginning(&self) -> &[u8] {
        &self.kept[..self.kept.len().min(NAMED_MAX)]
    }

    fn body(self) -> Body {
        match self.hasher {
            _ if self.bytes == 0 || self.body_bytes_max.is_none() => Body::None,
            None => Body::Whole(self.kept),
            Some(hasher) => Body::Digest { sha256: hasher.finalize().into(), bytes: self.bytes as u64 },
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a body is kept up to exactly the wanted length, and a digest covers all of it, however it was split into
    //! chunks.

    use super::*;

    fn read(body_bytes_max: Option<usize>, is_about_key: bool, chunks: &[&[u8]]) -> Reading {
        let mut reading = Reading::new(body_bytes_max, is_about_key);
        chunks.iter().for_each(|chunk| reading.add(chunk));
        reading
    }

    fn digest(bytes: &[u8]) -> Body {
        Body::Digest { sha256: Sha256::digest(bytes).into(), bytes: bytes.len() as u64 }
    }

    #[test]
    fn body_is_kept_or_hashed_whole() {
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
            for is_about_key in [false, true] {
                assert_eq!(
                    read(body_bytes_max, is_about_key, chunks).body(),
                    expected,
                    "{body_bytes_max:?} {chunks:?}"
                );
            }
        }
    }

    #[test]
    fn beginning_is_read_only_if_the_answer_may_name_the_key() {
        let long = vec![b'a'; NAMED_MAX + 1];
        assert_eq!(read(None, true, &[&long, b"b"]).beginning(), &long[1..]);
        assert_eq!(read(Some(3), true, &[b"ab", b"cde"]).beginning(), b"abcde");
        assert_eq!(read(None, false, &[b"ab"]).beginning(), b"");
    }
}
