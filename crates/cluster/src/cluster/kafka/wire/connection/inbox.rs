//! Incoming frames: a length of four bytes, then that many bytes.
//!
//! Short frames arrive in a room that all frames of a connection share, several at once. Longer ones are read straight
//! into the buffer in which they are returned; only the part that arrived with the length is copied.
//!
//! **Failure**: a length that is negative, too short for a correlation id, or longer than allowed.

use super::pool::Pool;

/// The size of the shared room. Of a longer frame, at most this many bytes are copied.
const ROOM_BYTES: usize = 16 << 10;
/// The bytes of a frame's length.
const LENGTH_BYTES: usize = 4;
/// A response has a correlation id at least.
const FRAME_BYTES_MIN: usize = 4;

/// A frame without its length.
#[derive(Debug)]
pub struct Frame {
    /// Begins with the frame; may be longer.
    pub buffer: Vec<u8>,
    /// How many bytes of it are the frame.
    pub bytes: usize,
}

impl Frame {
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.buffer.get(..self.bytes).unwrap_or_default()
    }
}

/// The incoming side of a connection.
#[derive(Debug)]
pub struct Inbox {
    room: Vec<u8>,
    /// The unread part of the room.
    from: usize,
    to: usize,
    /// A frame of which only a part arrived with its length, and how many bytes of it are there.
    long: Option<(Frame, usize)>,
    frame_bytes_max: usize,
}

impl Inbox {
    /// Takes frames of at most `frame_bytes_max` bytes.
    pub fn new(frame_bytes_max: usize) -> Self {
        Self { room: Vec::new(), from: 0, to: 0, long: None, frame_bytes_max }
    }

    /// The buffer to read into; never empty after [`Inbox::next`] returned `None`.
    pub fn input(&mut self) -> &mut [u8] {
        if let Some((frame, there)) = &mut self.long {
            return frame.buffer.get_mut(*there..frame.bytes).unwrap_or_default();
        }
        if self.room.is_empty() {
            self.room = vec![0; ROOM_BYTES];
        }
        self.room.get_mut(self.to..).unwrap_or_default()
    }

    /// `bytes` were read into [`Inbox::input`].
    pub fn filled(&mut self, bytes: usize) {
        match &mut self.long {
            Some((frame, there)) => *there = (*there + bytes).min(frame.bytes),
            None => self.to = (self.to + bytes).min(self.room.len()),
        }
    }

    /// The next complete frame.
    ///
    /// # Errors
    /// Why there will be none.
    pub fn next(&mut self, pool: &mut Pool) -> Result<Option<Frame>, String> {
        if let Some((frame, there)) = self.long.take() {
            if there == frame.bytes {
                return Ok(Some(frame));
            }
            self.long = Some((frame, there));
            return Ok(None);
        }
        let waiting = self.room.get(self.from..self.to).unwrap_or_default();
        let Some((length, rest)) = waiting.split_first_chunk::<LENGTH_BYTES>() else {
            self.room.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            return Ok(None);
        };
        let bytes = self.check(*length)?;
        let mut frame = Frame { buffer: pool.take(bytes), bytes };
        let here = rest.len().min(bytes);
        if let (Some(to), Some(from)) = (frame.buffer.get_mut(..here), rest.get(..here)) {
            to.copy_from_slice(from);
        }
        self.from += LENGTH_BYTES + here;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
        if here == bytes {
            return Ok(Some(frame));
        }
        self.long = Some((frame, here));
        Ok(None)
    }

    fn check(&self, length: [u8; LENGTH_BYTES]) -> Result<usize, String> {
        let number = i32::from_be_bytes(length);
        match usize::try_from(number) {
            Ok(bytes) if (FRAME_BYTES_MIN..=self.frame_bytes_max).contains(&bytes) => Ok(bytes),
            // A TLS alert or handshake of a server that was addressed in plain text; the beginning of "HTTP".
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
            let room = inbox.input();
            assert!(!room.is_empty());
            let count = piece().clamp(1, rest.len()).min(room.len());
            room[..count].copy_from_slice(&rest[..count]);
            inbox.filled(count);
            rest = &rest[count..];
            while let Some(frame) = inbox.next(&mut pool)? {
                frames.push(frame.as_slice().to_vec());
                pool.put(frame.buffer);
            }
        }
        Ok(frames)
    }

    proptest! {
        #[test]
        fn frames_do_not_depend_on_the_pieces_they_come_in(
            lengths in prop::collection::vec(prop_oneof![4_usize..40, 4_usize..60_000], 1..12),
            pieces in prop::collection::vec(prop_oneof![1_usize..9, 1_usize..50_000], 1..20),
        ) {
            let body = |(n, length): (usize, &usize)| (0..*length).map(|i| (i * 7 + n) as u8).collect();
            let bodies: Vec<Vec<u8>> = lengths.iter().enumerate().map(body).collect();
            let mut turn = pieces.iter().cycle();
            prop_assert_eq!(read(&framed(&bodies), || *turn.next().unwrap()).unwrap(), bodies);
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1_usize..50) {
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
    fn a_long_response_is_read_into_its_own_buffer() {
        let (mut inbox, mut pool) = (Inbox::new(1 << 24), Pool::new(1 << 24));
        inbox.input()[..4].copy_from_slice(&(1_i32 << 23).to_be_bytes());
        inbox.filled(4);
        assert!(inbox.next(&mut pool).unwrap().is_none());
        let room = inbox.input();
        assert_eq!(room.len(), 1 << 23, "exactly what is missing, so that nothing of the next frame comes with it");
        room.fill(3);
        let at = room.as_ptr();
        inbox.filled(1 << 23);
        let frame = inbox.next(&mut pool).unwrap().unwrap();
        assert_eq!((frame.buffer.as_ptr(), frame.bytes), (at, 1 << 23));
    }
}
