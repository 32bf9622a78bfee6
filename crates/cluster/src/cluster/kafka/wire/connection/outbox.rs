//! Outgoing requests: written from the buffers they were built in, and matched with their responses.
//!
//! A broker responds to the requests of a connection in their order. So the pending requests are a queue: first those
//! that were written, then perhaps one that is partly written, then the unwritten ones.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Instant;

use kafka_protocol::messages::ApiKey;

use super::pool::Pool;
use super::request::{Request, Segments};
use crate::cluster::kafka::wire::brokers::RequestId;

/// The most slices for one write: systems accept at most 1024 (IOV_MAX).
const SLICES_MAX: usize = 256;

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The connection itself: versions and login.
    Connection,
    /// The client, with this id.
    Client(RequestId),
}

/// A request that has no response yet.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// Who sent it.
    pub owner: Owner,
    /// The correlation id with which its response begins.
    pub correlation_id: i32,
    /// The API of the request.
    pub api: ApiKey,
    /// The version of the request and its response.
    pub version: i16,
    /// Whether its response's header has tagged fields.
    pub is_tagged: bool,
    /// The time by which the response has to arrive.
    pub deadline: Instant,
}

#[derive(Debug)]
struct OutgoingRequest {
    /// The frame's length and the request's header.
    head: Vec<u8>,
    body: Segments,
    /// The length of head and body.
    total_bytes: usize,
}

/// The outgoing side of a connection.
#[derive(Debug, Default)]
pub struct Outbox {
    pending: VecDeque<Pending>,
    /// The requests at the end of `pending` that are not written, or only in part.
    unwritten: VecDeque<OutgoingRequest>,
    /// How many bytes of the first of `unwritten` are written.
    written_bytes: usize,
    /// The next request's correlation id.
    pub(super) next_correlation_id: i32,
}

impl Outbox {
    /// Enqueues a request, to be written after all earlier ones.
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
        let client_id = &client_id[..client_id.floor_char_boundary(i16::MAX as usize)];
        // The API key, the version, the correlation id and the length of the client's id take 10 bytes.
        let rest = 10 + client_id.len() + usize::from(is_flexible) + body.bytes();
        let length = i32::try_from(rest).map_err(|_| format!("a request of {rest} bytes is too long"))?;
        let mut head = pool.take_request_buffer();
        head.extend_from_slice(&length.to_be_bytes());
        head.extend_from_slice(&api_key.to_be_bytes());
        head.extend_from_slice(&version.to_be_bytes());
        head.extend_from_slice(&self.next_correlation_id.to_be_bytes());
        head.extend_from_slice(&(client_id.len() as i16).to_be_bytes());
        head.extend_from_slice(client_id.as_bytes());
        if is_flexible {
            head.push(0);
        }
        let is_tagged = api.response_header_version(version) >= 1;
        self.pending.push_back(Pending {
            owner,
            correlation_id: self.next_correlation_id,
            api,
            version,
            is_tagged,
            deadline,
        });
        self.unwritten.push_back(OutgoingRequest { head, body, total_bytes: rest + 4 });
        self.next_correlation_id = self.next_correlation_id.wrapping_add(1) & i32::MAX;
        Ok(())
    }

    /// Appends the pending output to `slices`.
    pub fn output<'a>(&'a self, slices: &mut Vec<IoSlice<'a>>) {
        let mut skip = self.written_bytes;
        let segments =
            self.unwritten.iter().flat_map(|request| std::iter::once(&request.head[..]).chain(request.body.iter()));
        for segment in segments {
            let Some(rest) = segment.get(skip..).filter(|rest| !rest.is_empty()) else {
                skip = skip.saturating_sub(segment.len());
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

    /// Notes that `bytes` of the output were written.
    pub fn written(&mut self, bytes: usize, pool: &mut Pool) {
        self.written_bytes += bytes;
        while let Some(first) = self.unwritten.front()
            && self.written_bytes >= first.total_bytes
        {
            self.written_bytes -= first.total_bytes;
            if let Some(OutgoingRequest { head, body, .. }) = self.unwritten.pop_front() {
                std::iter::once(head).chain(body.into_owned()).for_each(|buffer| pool.put_request_buffer(buffer));
            }
        }
        if self.unwritten.is_empty() {
            self.written_bytes = 0;
        }
    }

    /// Removes the request to which a response with this correlation id belongs: the oldest written request.
    ///
    /// # Errors
    /// The response belongs to no pending request, or not to the oldest.
    pub fn take_pending(&mut self, correlation_id: i32) -> Result<Pending, String> {
        let is_first_written = self.pending.len() > self.unwritten.len();
        match self.pending.front().filter(|_| is_first_written).copied() {
            Some(first) if first.correlation_id == correlation_id => {
                self.pending.pop_front();
                Ok(first)
            }
            Some(first) => {
                let expected = first.correlation_id;
                Err(format!("it answered request {correlation_id} instead of {expected}"))
            }
            None => Err(format!("it answered request {correlation_id}, but no request is pending")),
        }
    }

    /// How many requests have no response.
    pub fn len(&self) -> usize {
        self.pending.len()
    }

    /// The earliest deadline of the pending requests.
    pub fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|pending| pending.deadline).min()
    }

    /// All pending requests in order, and whether any byte of each was written.
    pub fn into_pending(self) -> impl Iterator<Item = (Owner, bool)> {
        let written = self.pending.len() - self.unwritten.len();
        let is_next_begun = self.written_bytes > 0;
        let was_sent = move |index: usize| index < written || (index == written && is_next_begun);
        self.pending.into_iter().enumerate().map(move |(index, pending)| (pending.owner, was_sent(index)))
    }
}
