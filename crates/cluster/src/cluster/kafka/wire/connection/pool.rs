//! Buffers that are used again.
//!
//! A response's buffer keeps its length when it comes back, so that it need not be filled with zeros again. What is
//! kept is bounded in number and in bytes; what does not fit is freed.

/// Buffers kept for responses, and as many for requests.
const KEPT_MAX: usize = 8;
/// How many bytes of them are kept for responses at most: two of the largest regular ones, while a third is filled.
const RESPONSE_BYTES_MAX: usize = 12 << 20;
/// A new buffer is longer than its response by less than this part of it.
const ROUND_PART: usize = 8;
const BYTES_MIN: usize = 256;
/// The largest buffer that is kept for requests, in bytes.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// A small response does not occupy a large buffer: one of at most this many times its length, or of so many bytes.
const WASTE_MAX: usize = 8;
const SMALL_BYTES: usize = 16 << 10;

/// The buffers of one client.
#[derive(Debug)]
pub struct Pool {
    /// Full of bytes that mean nothing.
    responses: Vec<Vec<u8>>,
    /// Empty.
    requests: Vec<Vec<u8>>,
    bytes_max: usize,
}

impl Pool {
    /// Keeps buffers for responses of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { responses: Vec::new(), requests: Vec::new(), bytes_max: bytes_max.min(RESPONSE_BYTES_MAX) }
    }

    /// A buffer of at least `bytes` bytes, which mean nothing.
    pub fn take(&mut self, bytes: usize) -> Vec<u8> {
        let most = bytes.saturating_mul(WASTE_MAX).max(SMALL_BYTES);
        let fits = |buffer: &Vec<u8>| (bytes..=most).contains(&buffer.len());
        let kept = self.responses.iter().enumerate().filter(|(_, buffer)| fits(buffer));
        match kept.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at) {
            Some(at) => self.responses.swap_remove(at),
            // A little more than is needed, so that a response that is a little longer finds room in it.
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
            // The oldest: what comes and goes stays.
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
    fn a_buffer_comes_back_as_it_is() {
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
    fn what_is_kept_is_bounded() {
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
        assert!(pool.blank().is_empty(), "what a request was is gone");
    }
}
