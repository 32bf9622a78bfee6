//! Incoming frames: a length of four bytes, then that many bytes.
//!
//! Short frames arrive in a buffer that all frames of a connection share, several at once. Longer ones are read
//! straight into the buffer in which they are returned; only the part that arrived together with the length is copied.
//!
//! **Failure**: a length that is negative, too short for a correlation id, or longer than allowed.

use super::pool::Pool;

/// The size of the shared buffer. Of a longer frame, at most this many bytes are copied.
const SHARED_BYTES: usize = 16 << 10;
/// The bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
/// A response has at least a correlation id.
const FRAME_BYTES_MIN: usize = 4;

/// A frame without its length.
#[derive(Debug)]
pub struct Frame {
    /// Starts with the frame; may be longer.
    pub buffer: Vec<u8>,
    /// How many bytes of it are the frame.
    pub bytes: usize,
}

impl Frame {
    /// The frame's bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.get(..self.bytes).unwrap_or_default()
    }
}

/// The incoming side of a connection.
#[derive(Debug)]
pub struct Inbox {
    shared: Vec<u8>,
    /// Where the unprocessed part of `shared` starts and ends.
    start: usize,
    end: usize,
    /// A frame of which only a part arrived with its length, and how many bytes of it have arrived.
    partial: Option<(Frame, usize)>,
    frame_bytes_max: usize,
}

impl Inbox {
    /// Accepts frames of at most `frame_bytes_max` bytes.
    pub fn new(frame_bytes_max: usize) -> Self {
        Self { shared: Vec::new(), start: 0, end: 0, partial: None, frame_bytes_max }
    }

    /// The buffer to read into; never empty after [`Inbox::next`] returned `None`.
    pub fn input(&mut self) -> &mut [u8] {
        if let Some((frame, arrived)) = &mut self.partial {
            return frame.buffer.get_mut(*arrived..frame.bytes).unwrap_or_default();
        }
        if self.shared.is_empty() {
            self.shared = vec![0; SHARED_BYTES];
        }
        self.shared.get_mut(self.end..).unwrap_or_default()
    }

    /// Notes that `bytes` were read into [`Inbox::input`].
    pub fn filled(&mut self, bytes: usize) {
        match &mut self.partial {
            Some((frame, arrived)) => *arrived = (*arrived + bytes).min(frame.bytes),
            None => self.end = (self.end + bytes).min(self.shared.len()),
        }
    }

    /// The next complete frame.
    ///
    /// # Errors
    /// Why the input is invalid.
    pub fn next(&mut self, pool: &mut Pool) -> Result<Option<Frame>, String> {
        if let Some((frame, arrived)) = self.partial.take() {
            if arrived == frame.bytes {
                return Ok(Some(frame));
            }
            self.partial = Some((frame, arrived));
            return Ok(None);
        }
        let unprocessed = self.shared.get(self.start..self.end).unwrap_or_default();
        let Some((length, rest)) = unprocessed.split_first_chunk::<LENGTH_BYTES>() else {
            // The length has not arrived completely: the part that has arrived moves to the front of the buffer.
            self.shared.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            return Ok(None);
        };
        let bytes = self.frame_bytes(*length)?;
        let mut frame = Frame { buffer: pool.take_response_buffer(bytes), bytes };
        let arrived = rest.len().min(bytes);
        if let (Some(to), Some(from)) = (frame.buffer.get_mut(..arrived), rest.get(..arrived)) {
            to.copy_from_slice(from);
        }
        self.start += LENGTH_BYTES + arrived;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if arrived == bytes {
            return Ok(Some(frame));
        }
        self.partial = Some((frame, arrived));
        Ok(None)
    }

    /// A frame's length, checked against the bounds.
    fn frame_bytes(&self, length: [u8; LENGTH_BYTES]) -> Result<usize, String> {
        let number = i32::from_be_bytes(length);
        match usize::try_from(number) {
            Ok(bytes) if (FRAME_BYTES_MIN..=self.frame_bytes_max).contains(&bytes) => Ok(bytes),
            // A TLS alert or handshake of a server that was addressed in plain text.
            _ if matches!(length, [0x15 | 0x16, 3, ..]) => Err("it speaks TLS, and this client does not".to_owned()),
            _ if length == *b"HTTP" => Err("it speaks HTTP, not Kafka's protocol".to_owned()),
            Ok(bytes) if bytes > self.frame_bytes_max => {
                Err(format!("it sent a response of {bytes} bytes; at most {} are allowed", self.frame_bytes_max))
            }
            _ => Err(format!("it sent a response of the invalid length {number}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        let frame = |body: &Vec<u8>| [&(body.len() as i32).to_be_bytes()[..], body].concat();
        bodies.iter().flat_map(frame).collect()
    }

    /// Reads all of `bytes` in pieces of the lengths that `piece` gives.
    fn read(bytes: &[u8], mut piece: impl FnMut() -> usize) -> Result<Vec<Vec<u8>>, String> {
        let (mut inbox, mut pool, mut rest, mut frames) = (Inbox::new(1 << 20), Pool::new(1 << 20), bytes, vec![]);
        while !rest.is_empty() {
            let input = inbox.input();
            assert!(!input.is_empty());
            let count = piece().clamp(1, rest.len()).min(input.len());
            input[..count].copy_from_slice(&rest[..count]);
            inbox.filled(count);
            rest = &rest[count..];
            while let Some(frame) = inbox.next(&mut pool)? {
                frames.push(frame.as_slice().to_vec());
                pool.put_response_buffer(frame.buffer);
            }
        }
        Ok(frames)
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_the_pieces_in_which_they_arrive(
            lengths in prop::collection::vec(prop_oneof![4_usize..40, 4_usize..60_000], 1..12),
            pieces in prop::collection::vec(prop_oneof![1_usize..9, 1_usize..50_000], 1..20),
        ) {
            let body = |(n, length): (usize, &usize)| (0..*length).map(|i| (i * 7 + n) as u8).collect();
            let bodies: Vec<Vec<u8>> = lengths.iter().enumerate().map(body).collect();
            let mut piece_lengths = pieces.iter().cycle();
            prop_assert_eq!(read(&framed(&bodies), || *piece_lengths.next().unwrap()).unwrap(), bodies);
        }

        #[test]
        fn arbitrary_bytes_cause_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..50) {
            let _ = read(&bytes, || piece);
        }
    }

    #[test]
    fn two_frames_are_read_wherever_they_are_cut() {
        let bodies = vec![vec![1, 2, 3, 4, 5], vec![9; 7]];
        let bytes = framed(&bodies);
        for first in 1..bytes.len() {
            let mut pieces = [first, bytes.len()].into_iter();
            assert_eq!(read(&bytes, || pieces.next().unwrap_or(1)).unwrap(), bodies, "cut at {first}");
        }
    }

    #[test]
    fn invalid_lengths_of_responses_are_refused() {
        let refused = |head: [u8; 4]| read(&head, || 4).unwrap_err();
        assert_eq!(refused((-1_i32).to_be_bytes()), "it sent a response of the invalid length -1");
        assert_eq!(refused(3_i32.to_be_bytes()), "it sent a response of the invalid length 3");
        let long = refused((1_i32 << 20 | 1).to_be_bytes());
        assert_eq!(long, "it sent a response of 1048577 bytes; at most 1048576 are allowed");
        assert_eq!(refused([0x15, 3, 3, 0]), "it speaks TLS, and this client does not");
        assert_eq!(refused(*b"HTTP"), "it speaks HTTP, not Kafka's protocol");
    }

    #[test]
    fn long_response_is_read_into_its_own_buffer() {
        let (mut inbox, mut pool) = (Inbox::new(1 << 24), Pool::new(1 << 24));
        inbox.input()[..4].copy_from_slice(&(1_i32 << 23).to_be_bytes());
        inbox.filled(4);
        assert!(inbox.next(&mut pool).unwrap().is_none());
        let input = inbox.input();
        assert_eq!(input.len(), 1 << 23, "exactly the missing bytes, so that no byte of the next frame is read");
        input.fill(3);
        let address = input.as_ptr();
        inbox.filled(1 << 23);
        let frame = inbox.next(&mut pool).unwrap().unwrap();
        assert_eq!((frame.buffer.as_ptr(), frame.bytes), (address, 1 << 23));
    }
}
