//! Reusable buffers, for responses and for requests.
//!
//! A response's buffer keeps its length when it is put back, so that it need not be filled with zeros again. The pooled
//! buffers are bounded in number and in bytes; further ones are freed.

/// The most buffers pooled for responses, and for requests.
const BUFFERS_MAX: usize = 8;
/// The most bytes pooled for responses: two of the largest regular buffers, while a third is being filled.
const RESPONSE_BYTES_MAX: usize = 12 << 20;
/// A new response buffer is as long as its response, rounded up to a multiple of a step: the next power of two divided
/// by this number, but at least [`BYTES_MIN`]. So there are few different lengths, and a buffer exceeds its response by
/// less than a quarter or by less than [`BYTES_MIN`].
const LENGTH_STEPS: usize = 8;
/// The shortest new response buffer, and the smallest step between lengths.
const BYTES_MIN: usize = 256;
/// The largest buffer that is pooled for requests, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// A response gets a buffer of at most this many times its length, or of [`SMALL_BYTES`]: a small one does not occupy a
/// large buffer.
const WASTE_MAX: usize = 8;
const SMALL_BYTES: usize = 16 << 10;

/// The buffers of one client.
#[derive(Debug)]
pub struct Pool {
    /// Response buffers, with meaningless contents.
    responses: Vec<Vec<u8>>,
    /// Request buffers, empty.
    requests: Vec<Vec<u8>>,
    bytes_max: usize,
}

impl Pool {
    /// An empty pool that keeps at most `bytes_max` bytes of response buffers.
    pub fn new(bytes_max: usize) -> Self {
        Self { responses: Vec::new(), requests: Vec::new(), bytes_max: bytes_max.min(RESPONSE_BYTES_MAX) }
    }

    /// Takes a response buffer of at least `bytes` bytes, with meaningless contents.
    pub fn take_response_buffer(&mut self, bytes: usize) -> Vec<u8> {
        let longest = bytes.saturating_mul(WASTE_MAX).max(SMALL_BYTES);
        let fits = |buffer: &Vec<u8>| (bytes..=longest).contains(&buffer.len());
        let fitting = self.responses.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        match fitting.min_by_key(|(_, buffer)| buffer.len()).map(|(index, _)| index) {
            Some(index) => self.responses.swap_remove(index),
            // A little longer than is needed, so that slightly longer responses fit too.
            None => {
                let step =
                    bytes.checked_next_power_of_two().map_or(BYTES_MIN, |power| power / LENGTH_STEPS).max(BYTES_MIN);
                vec![0; bytes.checked_next_multiple_of(step).unwrap_or(bytes).max(BYTES_MIN)]
            }
        }
    }

    /// Takes a response's buffer back.
    pub fn put_response_buffer(&mut self, buffer: Vec<u8>) {
        if buffer.is_empty() || buffer.len() > self.bytes_max {
            return;
        }
        self.responses.push(buffer);
        let mut bytes: usize = self.responses.iter().map(Vec::len).sum();
        while self.responses.len() > BUFFERS_MAX || bytes > self.bytes_max {
            // The oldest is freed; buffers in regular use stay.
            bytes -= self.responses.remove(0).len();
        }
    }

    /// Takes an empty buffer for a request.
    pub fn take_request_buffer(&mut self) -> Vec<u8> {
        self.requests.pop().unwrap_or_default()
    }

    /// Takes a request's buffer back.
    pub fn put_request_buffer(&mut self, mut buffer: Vec<u8>) {
        if self.requests.len() < BUFFERS_MAX && (1..=REQUEST_BYTES_MAX).contains(&buffer.capacity()) {
            buffer.clear();
            self.requests.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_reused_with_its_contents() {
        let mut pool = Pool::new(1 << 20);
        let mut buffer = pool.take_response_buffer(100_000);
        assert_eq!(buffer.len(), 114_688, "less than a quarter more");
        buffer[99_999] = 7;
        pool.put_response_buffer(buffer);
        let reused = pool.take_response_buffer(110_000);
        assert_eq!((reused.len(), reused[99_999]), (114_688, 7));
        assert_eq!(pool.take_response_buffer(110_000)[99_999], 0, "the pool held only one buffer");
    }

    #[test]
    fn small_response_does_not_get_a_large_buffer() {
        let mut pool = Pool::new(1 << 20);
        pool.put_response_buffer(vec![1; 1 << 19]);
        assert_eq!(pool.take_response_buffer(10).len(), 256);
        assert_eq!(pool.take_response_buffer(300_000).len(), 1 << 19);
    }

    #[test]
    fn pooled_buffers_are_bounded() {
        let mut pool = Pool::new(1000);
        for _ in 0..100 {
            pool.put_response_buffer(vec![0; 300]);
            pool.put_request_buffer(Vec::with_capacity(10));
        }
        pool.put_response_buffer(vec![0; 1001]);
        let mut large = Pool::new(100 << 20);
        for _ in 0..3 {
            large.put_response_buffer(vec![0; 5 << 20]);
        }
        assert_eq!(large.responses.len(), 2);
        assert_eq!(pool.responses.iter().map(Vec::len).sum::<usize>(), 900);
        assert_eq!(pool.requests.len(), BUFFERS_MAX);
        pool.put_request_buffer(Vec::with_capacity(REQUEST_BYTES_MAX + 1));
        pool.requests.clear();
        pool.put_request_buffer(vec![1, 2, 3]);
        assert!(pool.take_request_buffer().is_empty(), "the buffer was cleared");
    }
}
