//! Kafka's requests as they are on a connection: four bytes of length, then a header that starts with the kind of
//! request. The rest is not parsed here.

/// Kinds of request, as Kafka numbers them.
pub const PRODUCE: i16 = 0;
pub const TXN_OFFSET_COMMIT: i16 = 28;
pub const END_TXN: i16 = 26;

const LENGTH_BYTES: usize = 4;

/// Received bytes, until they make up a request.
#[derive(Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Where the next request starts.
    at: usize,
}

impl Frames {
    pub fn push(&mut self, bytes: &[u8]) {
        if self.at > 0 && self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete request, including its length.
    pub fn pop(&mut self) -> Option<Vec<u8>> {
        let rest = &self.bytes[self.at..];
        let length = rest.first_chunk::<LENGTH_BYTES>().map(|bytes| u32::from_be_bytes(*bytes) as usize)?;
        let request = rest.get(..LENGTH_BYTES + length)?.to_vec();
        self.at += request.len();
        if self.at > self.bytes.len() / 2 {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        Some(request)
    }
}

/// The kind of a request that starts with its length.
pub fn api_key(request: &[u8]) -> Option<i16> {
    request.get(LENGTH_BYTES..)?.first_chunk::<2>().map(|bytes| i16::from_be_bytes(*bytes))
}
