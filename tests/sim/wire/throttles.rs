//! Throttle times (KIP-219): a response may say for how long its connection is to be left alone: the client begins no
//! request on it meanwhile. A request that it had begun before may still be written.

use std::collections::VecDeque;

use kafka_protocol::messages::ApiKey;

/// Writes a throttle time into a response, where it has a place for one. Whether it has.
pub fn say(api: ApiKey, version: i16, answer: &mut [u8], throttle_ms: i32) -> bool {
    let at = match api {
        // Behind what it lists, which the client reads when nothing is sent yet.
        ApiKey::ApiVersions => return false,
        // At the end, before tagged fields, of which there are none.
        ApiKey::Produce => answer.len() - 4 - usize::from(version >= 9),
        // Behind the correlation and tagged fields, of which there are none.
        _ => 4 + usize::from(api.response_header_version(version) >= 1),
    };
    answer[at..at + 4].copy_from_slice(&throttle_ms.to_be_bytes());
    true
}

/// What a connection's client has heard of throttles.
#[derive(Debug, Default)]
pub struct Quiet {
    /// Where responses end that say one, in bytes since the connection's begin; and for how long, in microseconds.
    said: VecDeque<(usize, u64)>,
    sent: usize,
    heard: usize,
    until: u64,
    /// How much of what had been begun is not written yet.
    begun: usize,
}

impl Quiet {
    /// The broker sends a response of so many bytes.
    pub fn sent(&mut self, bytes: usize, throttle: Option<u64>) {
        self.sent += bytes;
        self.said.extend(throttle.map(|throttle| (self.sent, throttle)));
    }

    /// The client hears so many bytes; so many has it begun to send and not written. Whether it hears of a throttle.
    pub fn heard(&mut self, bytes: usize, begun: usize, now: u64) -> bool {
        self.heard += bytes;
        let mut any = false;
        while let Some((_, throttle)) = self.said.pop_front_if(|(end, _)| *end <= self.heard) {
            (self.until, self.begun, any) = (self.until.max(now + throttle), begun, true);
        }
        any
    }

    /// The client writes so many bytes. Whether it may.
    pub fn written(&mut self, bytes: usize, now: u64) -> bool {
        if now >= self.until {
            return true;
        }
        let may = bytes <= self.begun;
        self.begun = self.begun.saturating_sub(bytes);
        may
    }
}
