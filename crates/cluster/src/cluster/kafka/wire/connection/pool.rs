//! Reusable buffers.
//!
//! A response's buffer keeps its length when it comes back, so that it need not be filled with zeros again. The kept
//! buffers are bounded in number and in bytes; others are freed.

/// The most buffers kept for responses, and for requests.
const KEPT_MAX: usize = 8;
/// The most bytes kept for responses: two of the largest regular buffers, while a third is filled.
const RESPONSE_BYTES_MAX: usize = 12 << 20;
/// A new buffer is longer than its response by less than one part in this many.
const ROUND_PART: usize = 8;
const BYTES_MIN: usize = 256;
/// The largest buffer that is kept for requests, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// A response gets a buffer of at most this many times its length, or of [`SMALL_BYTES`]: a small one does not occupy a
/// large buffer.
const WASTE_MAX: usize = 8;
const SMALL_BYTES: usize = 16 << 10;

/// The buffers of one client.
#[derive(Debug)]
pub struct Pool {
    /// With meaningless contents.
    responses: Vec<Vec<u8>>,
    /// Empty.
    requests: Vec<Vec<u8>>,
    bytes_max: usize,
}

impl Pool {
    /// Keeps buffers for responses, of at most `bytes_max` bytes in total.
    pub fn new(bytes_max: usize) -> Self {
        Self { responses: Vec::new(), requests: Vec::new(), bytes_max: bytes_max.min(RESPONSE_BYTES_MAX) }
    }

    /// A buffer of at least `bytes` bytes, with meaningless contents.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let most = bytes.saturating_mul(WASTE_MAX).max(SMALL_BYTES);
        let fits = |buffer: &Vec<u8>| (bytes..=most).contains(&buffer.len());
        let kept = self.responses.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        match kept.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at) {
            Some(at) => self.responses.swap_remove(at),
            // A little more than is needed, so that slightly longer responses fit too.
            None => {
                let step =
                    bytes.checked_next_power_of_two().map_or(BYTES_MIN, |power| power / ROUND_PART).max(BYTES_MIN);
                vec![0; bytes.checked_next_multiple_of(step).unwrap_or(bytes).max(BYTES_MIN)]
            }
        }
    }

    /// Takes a response's buffer back.
    pub fn put(&mut self, buffer: Vec<u8>) {
        if buffer.is_empty() || buffer.len() > self.bytes_max {
            return;
        }
        self.responses.push(buffer);
        let mut bytes: usize = self.responses.iter().map(Vec::len).sum();
        while self.responses.len() > KEPT_MAX || bytes > self.bytes_max {
            // The oldest goes; buffers in regular use stay.
            bytes -= self.responses.remove(0).len();
        }
    }

    /// An empty buffer for a request.
    pub fn blank(&mut self) -> Vec<u8> {
        self.requests.pop().unwrap_or_default()
    }

    /// Takes a request's buffer back.
    pub fn put_blank(&mut self, mut buffer: Vec<u8>) {
        if self.requests.len() < KEPT_MAX && (1..=REQUEST_BYTES_MAX).contains(&buffer.capacity()) {
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
        let mut buffer = pool.take(100_000);
        assert_eq!(buffer.len(), 114_688, "less than an eighth more");
        buffer[99_999] = 7;
        pool.put(buffer);
        let again = pool.take(110_000);
        assert_eq!((again.len(), again[99_999]), (114_688, 7));
        assert_eq!(pool.take(110_000)[99_999], 0, "there was only one");
    }

    #[test]
    fn small_responses_leave_large_buffers_alone() {
        let mut pool = Pool::new(1 << 20);
        pool.put(vec![1; 1 << 19]);
        assert_eq!(pool.take(10).len(), 256);
        assert_eq!(pool.take(300_000).len(), 1 << 19);
    }

    #[test]
    fn kept_buffers_are_bounded() {
        let mut pool = Pool::new(1000);
        for _ in 0..100 {
            pool.put(vec![0; 300]);
            pool.put_blank(Vec::with_capacity(10));
        }
        pool.put(vec![0; 1001]);
        let mut large = Pool::new(100 << 20);
        for _ in 0..3 {
            large.put(vec![0; 5 << 20]);
        }
        assert_eq!(large.responses.len(), 2);
        assert_eq!(pool.responses.iter().map(Vec::len).sum::<usize>(), 900);
        assert_eq!(pool.requests.len(), KEPT_MAX);
        pool.put_blank(Vec::with_capacity(REQUEST_BYTES_MAX + 1));
        pool.requests.clear();
        pool.put_blank(vec![1, 2, 3]);
        assert!(pool.blank().is_empty(), "the former request is gone");
    }
}
