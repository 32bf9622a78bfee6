//! Outgoing requests: written from the buffers they were built in, and matched with their responses.
//!
//! A broker answers the requests of a connection in their order. So the unanswered requests are a queue: first those
//! that were written, then perhaps one that is partly written, then the rest.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

use kafka_protocol::messages::ApiKey;

use super::pool::Pool;
use super::request::{Request, Segments};
use crate::cluster::kafka::wire::brokers::RequestId;

/// Slices given to one write: systems take at most 1024 (IOV_MAX).
const SLICES_MAX: usize = 256;

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The connection itself: versions and login.
    Greeting,
    /// The client, with this id.
    Sent(RequestId),
}

/// A request without a response so far.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Who sent it.
    pub owner: Owner,
    /// The correlation id that its response begins with.
    pub correlation: i32,
    /// The API of the request.
    pub api: ApiKey,
    /// The version of the request and its response.
    pub version: i16,
    /// Whether its response's header has tagged fields.
    pub is_tagged: bool,
    /// By when the response must be there.
    pub deadline: Instant,
}

#[derive(Debug)]
struct Outgoing {
    /// The frame's length and the request's header.
    head: Vec<u8>,
    body: Segments,
    /// The length of both.
    bytes: usize,
}

/// The outgoing side of a connection.
#[derive(Debug, Default)]
pub struct Outbox {
    pending: VecDeque<Pending>,
    /// The last of `pending`, which are unwritten or partly written.
    unwritten: VecDeque<Outgoing>,
    /// How many bytes of the first of them are written.
    written: usize,
    /// The next request's correlation id.
    pub(super) correlation: i32,
}

impl Outbox {
    /// Takes a request, to be written after all others.
    ///
    /// # Errors
    /// Why it cannot be sent at all.
    pub fn push(
        &mut self,
        request: Request,
        owner: Owner,
        deadline: Instant,
        client_id: &str,
        pool: &mut Pool,
    ) -> Result<(), String> {
        let Request { api_key, version, body } = request;
        let api = ApiKey::try_from(api_key).map_err(|()| format!("unknown API key {api_key}"))?;
        let is_flexible = api.request_header_version(version) >= 2;
        let client_id = client_id.get(..i16::MAX as usize).unwrap_or(client_id);
        let rest = 10 + client_id.len() + usize::from(is_flexible) + body.bytes();
        let length = i32::try_from(rest).map_err(|_| format!("a request of {rest} bytes is too long"))?;
        let mut head = pool.blank();
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(&api_key.to_be_bytes());
        head.extend_from_slice(&version.to_be_bytes());
        head.extend_from_slice(&self.correlation.to_be_bytes());
        head.extend_from_slice(&(client_id.len() as i16).to_be_bytes());
        head.extend_from_slice(client_id.as_bytes());
        if is_flexible {
            head.push(0);
        }
        let is_tagged = api.response_header_version(version) >= 1;
        self.pending.push_back(Pending { owner, correlation: self.correlation, api, version, is_tagged, deadline });
        self.unwritten.push_back(Outgoing { head, body, bytes: rest + 4 });
        self.correlation = self.correlation.wrapping_add(1) & i32::MAX;
        Ok(())
    }

    /// Appends the pending output to `slices`.
    pub fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let mut skip = self.written;
        let runs = self.unwritten.iter().flat_map(|next| std::iter::once(&next.head[..]).chain(next.body.iter()));
        for run in runs {
            let Some(rest) = run.get(skip..).filter(|rest| !rest.is_empty()) else {
                skip = skip.saturating_sub(run.len());
                continue;
            };
            skip = 0;
            slices.push(IoSlice::new(rest));
            if slices.len() >= SLICES_MAX {
                return;
            }
        }
    }

    /// Whether there is pending output.
    pub fn has_output(&self) -> bool {
        !self.unwritten.is_empty()
    }

    /// `bytes` of the output were written.
    pub fn written(&mut self, bytes: usize, pool: &mut Pool) {
        self.written += bytes;
        while let Some(first) = self.unwritten.front()
            && self.written >= first.bytes
        {
            self.written -= first.bytes;
            if let Some(Outgoing { head, body, .. }) = self.unwritten.pop_front() {
                std::iter::once(head).chain(body.into_owned()).for_each(|buffer| pool.put_blank(buffer));
            }
        }
        if self.unwritten.is_empty() {
            self.written = 0;
        }
    }

    /// Takes out the request that a response with this correlation id is for: the oldest that was written.
    ///
    /// # Errors
    /// The response is for no request, or for another one.
    pub fn answered(&mut self, correlation: i32) -> Result<Pending, String> {
        let waits = self.pending.len() > self.unwritten.len();
        match self.pending.front().filter(|_| waits).copied() {
            Some(first) if first.correlation == correlation => {
                self.pending.pop_front();
                Ok(first)
            }
            Some(first) => {
                let expected = first.correlation;
                Err(format!("it answered request {correlation} instead of {expected}"))
            }
            None => Err(format!("it answered request {correlation}, but no request is pending")),
        }
    }

    /// How many requests have no response.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// The earliest of their deadlines.
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).min()
    }

    /// All unanswered requests in order, and whether any byte of each was written.
    pub fn into_lost(self) -> impl Iterator<Item = (Owner, bool)> {
        let whole = self.pending.len() - self.unwritten.len();
        let (partly, is_partly) = (whole, self.written > 0);
        let was_sent = move |at: usize| at < whole || (at == partly && is_partly);
        self.pending.into_iter().enumerate().map(move |(at, pending)| (pending.owner, was_sent(at)))
    }
}
