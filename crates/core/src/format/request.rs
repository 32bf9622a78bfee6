//! What is remembered of an HTTP request: that it is being carried out, and then its answer.
//!
//! # Answer
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, [`ANSWER_FORMAT`] |
//! | 2 | status |
//! | 2 | how many headers |
//! | ... | each header: length (2) and bytes of its name, length (4) and bytes of its value |
//! | 1 | the body: 0 whole, 1 too large and known by its digest, 2 too large and cut off, or still on its way |
//! | rest | 0: the body; 1: its length (8) and its SHA-256 (32); 2: nothing |
//!
//! An answer that an operator has recorded has the header [`BY_HAND`], with an empty value.
//!
//! # Entry of the embedded store
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format, [`REQUEST_FORMAT`] |
//! | 16 | token of the reservation |
//! | 32 | fingerprint of the request |
//! | 8 | until when it is remembered: milliseconds since the epoch |
//! | 1 | state: 0 reserved, 1 answered |
//! | rest | 0: until when the lease is (8), and the run of the process that holds it (16); 1: the answer, masked |
//!
//! Masked: each byte is XORed with the token's byte at the same place, again and again from the first to the 16th. An
//! answer is what others choose, and logs are written over: behind the end of a log stand bytes of an older one, and none
//! of them must look like the log's next record. In format 1 answers were not masked.
//!
//! All numbers are big-endian. The keys of the embedded store:
//!
//! | key | value | cardinality |
//! |---|---|---|
//! | `00` | format, [`REQUEST_FORMAT`] (1), the latest that was written | one |
//! | `10` id of the request (32) | its entry | one per request |
//! | `20` until when (8), id (32) | nothing | one per entry |
//!
//! The batches of its write-ahead log also hold marks, which belong to no key: `crates/core/src/logs.rs` says what for.
//!
//! The time in the last key is that of its entry, rounded up to seconds; in what was written before it was so, it is the
//! same to the millisecond.

use bytes::Bytes;

use super::Error;

/// The format of answers that is written.
pub const ANSWER_FORMAT: u8 = 1;
/// The format of the embedded store and its entries that is written.
pub const REQUEST_FORMAT: u8 = 2;
/// The one before, whose entries have their answers as they are.
pub const UNMASKED_FORMAT: u8 = 1;

/// The header that marks an answer that an operator has recorded. It is not a valid header name: no service can answer
/// with it, and releases that do not know it leave it out of a replay.
pub const BY_HAND: &str = ":by-hand";

const ANSWER: &str = "an answer";
const ENTRY: &str = "a request's entry";
const WHOLE: u8 = 0;
const DIGEST: u8 = 1;
const CUT_OFF: u8 = 2;
const RESERVED: u8 = 0;
const ANSWERED: u8 = 1;

/// What a request was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The headers that are remembered, in order: lower-case names, and values.
    pub headers: Vec<(String, Bytes)>,
    /// The body.
    pub body: AnswerBody,
}

/// The body of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerBody {
    /// All of it.
    Whole(Bytes),
    /// It was too large to be remembered.
    Digest {
        /// Its length in bytes.
        length: u64,
        /// Its SHA-256.
        sha256: [u8; 32],
    },
    /// It was too large to be remembered, and it is not known how it ended.
    CutOff,
}

impl Answer {
    /// The answer's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let body_length = if let AnswerBody::Whole(body) = &self.body { body.len() } else { 40 };
        let heads = self.headers.iter().map(|(name, value)| name.len() + value.len() + 6);
        let mut bytes = Vec::with_capacity(6 + heads.sum::<usize>() + body_length);
        bytes.push(ANSWER_FORMAT);
        bytes.extend_from_slice(&self.status.to_be_bytes());
        bytes.extend_from_slice(&u16::try_from(self.headers.len()).unwrap_or(u16::MAX).to_be_bytes());
        for (name, value) in self.headers.iter().take(usize::from(u16::MAX)) {
            bytes.extend_from_slice(&u16::try_from(name.len()).expect("names are shorter than 64 KiB").to_be_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(&u32::try_from(value.len()).expect("values are short").to_be_bytes());
            bytes.extend_from_slice(value);
        }
        match &self.body {
            AnswerBody::Whole(body) => {
                bytes.push(WHOLE);
                bytes.extend_from_slice(body);
            }
            AnswerBody::Digest { length, sha256 } => {
                bytes.push(DIGEST);
                bytes.extend_from_slice(&length.to_be_bytes());
                bytes.extend_from_slice(sha256);
            }
            AnswerBody::CutOff => bytes.push(CUT_OFF),
        }
        bytes
    }

    /// Reads an answer; its body shares the memory of `bytes`.
    pub fn decode(bytes: &Bytes) -> Result<Self, Error> {
        let damaged = |reason: &str| Error::Damaged { what: ANSWER, reason: reason.to_owned() };
        let mut rest = &bytes[..];
        let format = take::<1>(&mut rest).ok_or_else(|| damaged("it is empty"))?[0];
        if format != ANSWER_FORMAT {
            return Err(Error::Format { what: ANSWER, found: format.into(), expected: ANSWER_FORMAT.into() });
        }
        let early = || damaged("it ends early");
        let status = u16::from_be_bytes(take(&mut rest).ok_or_else(early)?);
        let count = u16::from_be_bytes(take(&mut rest).ok_or_else(early)?);
        let mut headers = Vec::with_capacity(usize::from(count).min(64));
        for _ in 0..count {
            let length = usize::from(u16::from_be_bytes(take(&mut rest).ok_or_else(early)?));
            let name = take_slice(&mut rest, length).ok_or_else(early)?;
            let name = str::from_utf8(name).map_err(|_| damaged("a header's name is not text"))?;
            let length = u32::from_be_bytes(take(&mut rest).ok_or_else(early)?);
            let value = take_slice(&mut rest, length as usize).ok_or_else(early)?;
            headers.push((name.to_owned(), bytes.slice_ref(value)));
        }
        let kind = take::<1>(&mut rest).ok_or_else(early)?[0];
        let body = match kind {
            WHOLE => AnswerBody::Whole(bytes.slice_ref(rest)),
            DIGEST => {
                let length = u64::from_be_bytes(take(&mut rest).ok_or_else(early)?);
                AnswerBody::Digest { length, sha256: take(&mut rest).ok_or_else(early)? }
            }
            CUT_OFF => AnswerBody::CutOff,
            _ => return Err(damaged("its body is of an unknown kind")),
        };
        if kind != WHOLE && !rest.is_empty() {
            return Err(damaged("something follows it"));
        }
        Ok(Self { status, headers, body })
    }
}

/// What a store remembers of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEntry {
    /// Names the reservation.
    pub token: [u8; 16],
    /// Of what was asked for.
    pub fingerprint: [u8; 32],
    /// Until when it is remembered: milliseconds since the epoch.
    pub remembered_until_ms: i64,
    /// Whether it is being carried out, or was answered.
    pub state: RequestState,
}

/// What has become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// It is being carried out.
    Reserved {
        /// Until when nobody else may carry it out: milliseconds since the epoch.
        lease_until_ms: i64,
        /// The run of the process that carries it out; nil where stores are shared.
        run: [u8; 16],
    },
    /// It was carried out.
    Answered(Answer),
}

impl RequestEntry {
    /// The entry's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![REQUEST_FORMAT];
        bytes.extend_from_slice(&self.token);
        bytes.extend_from_slice(&self.fingerprint);
        bytes.extend_from_slice(&self.remembered_until_ms.to_be_bytes());
        match &self.state {
            RequestState::Reserved { lease_until_ms, run } => {
                bytes.push(RESERVED);
                bytes.extend_from_slice(&lease_until_ms.to_be_bytes());
                bytes.extend_from_slice(run);
            }
            RequestState::Answered(answer) => {
                bytes.push(ANSWERED);
                let begin = bytes.len();
                bytes.extend_from_slice(&answer.encode());
                mask(&mut bytes[begin..], &self.token);
            }
        }
        bytes
    }

    /// Reads an entry.
    pub fn decode(bytes: &Bytes) -> Result<Self, Error> {
        let damaged = |reason: &str| Error::Damaged { what: ENTRY, reason: reason.to_owned() };
        let mut rest = &bytes[..];
        let format = take::<1>(&mut rest).ok_or_else(|| damaged("it is empty"))?[0];
        if ![UNMASKED_FORMAT, REQUEST_FORMAT].contains(&format) {
            return Err(Error::Format { what: ENTRY, found: format.into(), expected: REQUEST_FORMAT.into() });
        }
        let early = || damaged("it ends early");
        let token = take(&mut rest).ok_or_else(early)?;
        let fingerprint = take(&mut rest).ok_or_else(early)?;
        let remembered_until_ms = i64::from_be_bytes(take(&mut rest).ok_or_else(early)?);
        let state = match take::<1>(&mut rest).ok_or_else(early)?[0] {
            RESERVED => {
                let lease_until_ms = i64::from_be_bytes(take(&mut rest).ok_or_else(early)?);
                let run = take(&mut rest).ok_or_else(early)?;
                if !rest.is_empty() {
                    return Err(damaged("something follows it"));
                }
                RequestState::Reserved { lease_until_ms, run }
            }
            ANSWERED => {
                let mut answer = rest.to_vec();
                if format != UNMASKED_FORMAT {
                    mask(&mut answer, &token);
                }
                RequestState::Answered(Answer::decode(&answer.into())?)
            }
            _ => return Err(damaged("its state is unknown")),
        };
        Ok(Self { token, fingerprint, remembered_until_ms, state })
    }
}

/// Masks an answer's bytes, or takes the mask off again.
fn mask(answer: &mut [u8], token: &[u8; 16]) {
    for piece in answer.chunks_mut(token.len()) {
        piece.iter_mut().zip(token).for_each(|(byte, mask)| *byte ^= mask);
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (array, others) = rest.split_first_chunk::<N>()?;
    *rest = others;
    Some(*array)
}

fn take_slice<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (slice, others) = rest.split_at_checked(length)?;
    *rest = others;
    Some(slice)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bodies() -> impl Strategy<Value = AnswerBody> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 0..50).prop_map(|body| AnswerBody::Whole(body.into())),
            (any::<u64>(), any::<[u8; 32]>()).prop_map(|(length, sha256)| AnswerBody::Digest { length, sha256 }),
            Just(AnswerBody::CutOff),
        ]
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let value = prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
        let headers = prop::collection::vec(("[a-z-]{1,12}", value), 0..4);
        (100u16..1000, headers, bodies()).prop_map(|(status, headers, body)| Answer { status, headers, body })
    }

    fn entries() -> impl Strategy<Value = RequestEntry> {
        let reserved = (any::<i64>(), any::<[u8; 16]>());
        let state = prop_oneof![
            reserved.prop_map(|(lease_until_ms, run)| RequestState::Reserved { lease_until_ms, run }),
            answers().prop_map(RequestState::Answered),
        ];
        (any::<[u8; 16]>(), any::<[u8; 32]>(), any::<i64>(), state).prop_map(
            |(token, fingerprint, remembered_until_ms, state)| RequestEntry {
                token,
                fingerprint,
                remembered_until_ms,
                state,
            },
        )
    }

    proptest! {
        #[test]
        fn entries_read_back(entry in entries()) {
            prop_assert_eq!(RequestEntry::decode(&entry.encode().into()), Ok(entry));
        }

        #[test]
        fn entries_that_are_cut_off_are_damaged_unless_within_a_body(entry in entries(), cut in 1usize..200) {
            let bytes = entry.encode();
            let kept = bytes.len().saturating_sub(cut);
            if let Ok(read) = RequestEntry::decode(&bytes[..kept].to_vec().into()) {
                let RequestState::Answered(answer) = read.state else { panic!("a reservation is of one length") };
                prop_assert!(matches!(answer.body, AnswerBody::Whole(_)));
            }
        }

        #[test]
        fn foreign_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = RequestEntry::decode(&bytes.clone().into());
            let _ = Answer::decode(&bytes.into());
        }
    }

    #[test]
    fn bytes_are_as_described() {
        let headers = vec![("etag".to_owned(), Bytes::from_static(b"7"))];
        let answer = Answer { status: 201, headers, body: AnswerBody::Whole(Bytes::from_static(b"ok")) };
        assert_eq!(answer.encode(), b"\x01\x00\xc9\x00\x01\x00\x04etag\x00\x00\x00\x017\x00ok");
        let state = RequestState::Reserved { lease_until_ms: 5, run: [4; 16] };
        let entry = RequestEntry { token: [1; 16], fingerprint: [2; 32], remembered_until_ms: 3, state };
        let expected = [&[2][..], &[1; 16], &[2; 32], &[0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 5], &[4; 16]];
        assert_eq!(entry.encode(), expected.concat());
        let token = *b"ABCDEFGHIJKLMNOP";
        let entry = RequestEntry { token, state: RequestState::Answered(answer.clone()), ..entry };
        let head = [&[2][..], &token, &[2; 32], &[0, 0, 0, 0, 0, 0, 0, 3, 1]].concat();
        let masked: Vec<u8> =
            answer.encode().iter().zip(token.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        assert!(masked.len() > token.len());
        assert_eq!(entry.encode(), [head.clone(), masked].concat());
        let unmasked = [&[UNMASKED_FORMAT][..], &head[1..], &answer.encode()].concat();
        assert_eq!(RequestEntry::decode(&unmasked.into()), Ok(entry), "as it was written before");
    }
}
