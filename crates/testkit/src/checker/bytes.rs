//! The checker's own reading and writing of the persisted bytes, after the tables in `crates/core/src/format.rs` and
//! the modules it refers to, without using any of their code.

use serde_json::Value;
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The key of the position record.
pub const POSITION_KEY: &[u8] = &[0x00];
/// The key of a store's own position.
pub const STORE_META_KEY: &[u8] = &[0xff, b'm'];

/// Identifies a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token {
    pub lane: u64,
    pub transaction: u64,
    pub changelog_id: [u8; 16],
    pub partition: i32,
}

impl Token {
    /// As in the committed offset's metadata.
    pub fn text(&self) -> String {
        let id: String = self.changelog_id.iter().map(|b| format!("{b:02x}")).collect();
        format!("{:016x}.{:x}.{id}.{}", self.lane, self.transaction, self.partition)
    }
}

/// The last changelog record of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    pub token: Token,
    pub owner: String,
    pub input_id: [u8; 16],
    pub processed: Vec<(i64, i64)>,
    pub stream_time: i64,
    pub horizon: i64,
    pub rules_digest: [u8; 32],
    pub generation: u32,
    pub task_count: u32,
    pub truncates: u64,
    pub scopes: Vec<Scope>,
    pub calls: Calls,
}

/// What a position record says about calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The ranges settled beyond the prefix.
    pub beyond: Vec<(i64, i64)>,
    /// The grants: up to which offset, and since when.
    pub called: Vec<(i64, i64)>,
    /// How far the control topic was obeyed.
    pub control: Option<([u8; 16], i64)>,
}

/// A scope of versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub bytes: Vec<u8>,
    /// For each segment, the versions it lies above, and the offset at which it began.
    pub segments: Vec<(Option<Vec<u8>>, i64)>,
    /// Offsets, and the version reached there.
    pub reached: Vec<(i64, Vec<u8>)>,
}

/// How far a store has got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMeta {
    pub changelog_id: [u8; 16],
    pub partition: i32,
    pub changelog_offset: i64,
    pub token: Option<Token>,
    pub synced_at: i64,
    pub position_offset: Option<i64>,
}

pub fn position(bytes: &[u8]) -> Position {
    let mut from = Cursor::new("a position record", bytes);
    let has_calls = bytes.first() == Some(&2);
    from.format(if has_calls { 2 } else { 1 });
    let read = Position {
        token: from.token(),
        owner: from.text(),
        input_id: from.array(),
        processed: (0..from.unsigned()).map(|_| (from.signed(), from.signed())).collect(),
        stream_time: from.signed(),
        horizon: from.signed(),
        rules_digest: from.array(),
        generation: from.unsigned() as u32,
        task_count: from.unsigned() as u32,
        truncates: from.unsigned(),
        scopes: (0..from.unsigned()).map(|_| from.scope()).collect(),
        calls: if has_calls { from.calls() } else { Calls::default() },
    };
    from.end();
    read
}

pub fn store_meta(bytes: &[u8]) -> StoreMeta {
    let mut from = Cursor::new("a store's meta", bytes);
    from.format(2);
    let read = StoreMeta {
        changelog_id: from.array(),
        partition: from.signed() as i32,
        changelog_offset: from.signed(),
        token: (from.byte() != 0).then(|| from.token()),
        synced_at: from.signed(),
        position_offset: (from.byte() != 0).then(|| from.signed()),
    };
    from.end();
    read
}

/// A position record's bytes, for a test that plays an operator.
pub fn encode_position(position: &Position) -> Vec<u8> {
    let Position { token, owner, processed, .. } = position;
    let mut out = vec![1];
    put_unsigned(token.lane, &mut out);
    put_unsigned(token.transaction, &mut out);
    out.extend(token.changelog_id);
    put_signed(token.partition.into(), &mut out);
    put_unsigned(owner.len() as u64, &mut out);
    out.extend(owner.as_bytes());
    out.extend(position.input_id);
    put_unsigned(processed.len() as u64, &mut out);
    for &(from, to) in processed {
        put_signed(from, &mut out);
        put_signed(to, &mut out);
    }
    put_signed(position.stream_time, &mut out);
    put_signed(position.horizon, &mut out);
    out.extend(position.rules_digest);
    put_unsigned(position.generation.into(), &mut out);
    put_unsigned(position.task_count.into(), &mut out);
    put_unsigned(position.truncates, &mut out);
    put_unsigned(position.scopes.len() as u64, &mut out);
    for scope in &position.scopes {
        put_bytes(&scope.bytes, &mut out);
        put_unsigned(scope.segments.len() as u64, &mut out);
        for (above, began) in &scope.segments {
            out.push(u8::from(above.is_some()));
            above.iter().for_each(|above| put_bytes(above, &mut out));
            put_signed(*began, &mut out);
        }
        put_unsigned(scope.reached.len() as u64, &mut out);
        for (offset, version) in &scope.reached {
            put_signed(*offset, &mut out);
            put_bytes(version, &mut out);
        }
    }
    out
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_unsigned(bytes.len() as u64, out);
    out.extend(bytes);
}

fn put_unsigned(value: u64, out: &mut Vec<u8>) {
    match value {
        0..=250 => out.push(value as u8),
        251..=0xffff => {
            out.push(251);
            out.extend((value as u16).to_le_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(252);
            out.extend((value as u32).to_le_bytes());
        }
        _ => {
            out.push(253);
            out.extend(value.to_le_bytes());
        }
    }
}

fn put_signed(value: i64, out: &mut Vec<u8>) {
    put_unsigned(((value << 1) ^ (value >> 63)) as u64, out);
}

/// Bincode 2's standard configuration: little-endian varints, zigzag for signed numbers.
struct Cursor<'a> {
    what: &'static str,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn new(what: &'static str, rest: &'a [u8]) -> Self {
        Self { what, rest }
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at_checked(count).unwrap_or_else(|| panic!("{} ends early", self.what));
        self.rest = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn format(&mut self, expected: u8) {
        assert_eq!(self.byte(), expected, "the format of {}", self.what);
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        self.take(N).try_into().expect("this many bytes were taken")
    }

    fn unsigned(&mut self) -> u64 {
        match self.byte() {
            251 => u16::from_le_bytes(self.array()).into(),
            252 => u32::from_le_bytes(self.array()).into(),
            253 => u64::from_le_bytes(self.array()),
            254.. => panic!("{} has a number of more than 64 bits", self.what),
            small => small.into(),
        }
    }

    fn signed(&mut self) -> i64 {
        let zigzag = self.unsigned();
        (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64)
    }

    fn text(&mut self) -> String {
        let length = self.unsigned() as usize;
        String::from_utf8(self.take(length).to_vec())
            .unwrap_or_else(|_| panic!("{} has a text that is not UTF-8", self.what))
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = self.unsigned() as usize;
        self.take(length).to_vec()
    }

    fn calls(&mut self) -> Calls {
        Calls {
            beyond: (0..self.unsigned()).map(|_| (self.signed(), self.signed())).collect(),
            called: (0..self.unsigned()).map(|_| (self.signed(), self.signed())).collect(),
            control: (self.byte() != 0).then(|| (self.array(), self.signed())),
        }
    }

    fn scope(&mut self) -> Scope {
        Scope {
            bytes: self.bytes(),
            segments: (0..self.unsigned()).map(|_| ((self.byte() != 0).then(|| self.bytes()), self.signed())).collect(),
            reached: (0..self.unsigned()).map(|_| (self.signed(), self.bytes())).collect(),
        }
    }

    fn token(&mut self) -> Token {
        Token {
            lane: self.unsigned(),
            transaction: self.unsigned(),
            changelog_id: self.array(),
            partition: self.signed() as i32,
        }
    }

    fn end(self) {
        assert!(self.rest.is_empty(), "bytes follow the end of {}", self.what);
    }
}

/// The contents of an entry.
#[derive(Clone, Copy, Default)]
pub struct Remembered<'a> {
    pub record_key: Option<&'a [u8]>,
    pub last_seen: i64,
    pub version: Option<&'a [u8]>,
    pub scope: Option<u16>,
    pub from_read: bool,
    pub owes_tombstone: bool,
    pub contents: &'a [[u8; 8]],
}

/// What a record says, by its kind of change and one value.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "not every suite compares all of them")]
pub enum Said<'a> {
    /// A change with no value in the place.
    Nothing,
    /// A change with these bytes as a whole.
    Bytes(&'a [u8]),
    /// A change with this number in JSON.
    Number(&'a [u8]),
    /// A change with this object or array in JSON.
    Json(&'a [u8]),
    Delete,
    Truncate,
}

/// The digest of contents, by the text of the rule that they were read by.
pub fn digest(rule: &str, of_read: bool, said: Said<'_>) -> [u8; 8] {
    const SEED: u64 = u64::from_be_bytes(*b"ratche\x74\x01");
    let hash = match said {
        Said::Nothing => xxh3_64_with_seed(b"", SEED),
        Said::Bytes(bytes) => xxh3_64_with_seed(bytes, SEED ^ 7),
        Said::Number(text) => xxh3_64_with_seed(text, SEED ^ 3),
        Said::Json(json) => xxh3_64_with_seed(json, SEED ^ 8),
        Said::Delete => SEED ^ 0x200,
        Said::Truncate => SEED ^ 0x300,
    };
    let tag = xxh3_64_with_seed(rule.as_bytes(), 0) % 2048;
    let digest = hash % (1 << 52) + (tag << 52);
    (digest + if of_read { 1 << 63 } else { 0 }).to_be_bytes()
}

impl Remembered<'_> {
    pub fn encode(&self) -> Vec<u8> {
        let flags = [
            (self.version.is_some(), 1),
            (self.owes_tombstone, 2),
            (self.scope.is_some(), 4),
            (self.record_key.is_none(), 8),
            (self.from_read, 16),
            (!self.contents.is_empty(), 64),
        ];
        let mut out = vec![1, flags.iter().filter(|(is, _)| *is).map(|(_, flag)| flag).sum()];
        out.extend(self.record_key.map_or(0, murmur2).to_be_bytes());
        out.extend(self.last_seen.to_be_bytes());
        if !self.contents.is_empty() {
            out.push(self.contents.len() as u8);
            out.extend(self.contents.as_flattened());
        }
        out.extend(self.scope.iter().flat_map(|scope| scope.to_be_bytes()));
        out.extend(self.version.unwrap_or_default());
        out
    }
}

/// Kafka's hash of a key, without its sign: `Utils.toPositive(Utils.murmur2(key))`, transcribed from the Java.
fn murmur2(data: &[u8]) -> u32 {
    let (m, r) = (0x5bd1_e995_u32, 24);
    let mut h = 0x9747_b28c_u32 ^ data.len() as u32;
    let whole = data.len() / 4;
    for i in 0..whole {
        let at = 4 * i;
        let mut k = u32::from(data[at])
            + (u32::from(data[at + 1]) << 8)
            + (u32::from(data[at + 2]) << 16)
            + (u32::from(data[at + 3]) << 24);
        k = k.wrapping_mul(m);
        k ^= k >> r;
        k = k.wrapping_mul(m);
        h = h.wrapping_mul(m);
        h ^= k;
    }
    let tail = &data[4 * whole..];
    if tail.len() == 3 {
        h ^= u32::from(tail[2]) << 16;
    }
    if tail.len() >= 2 {
        h ^= u32::from(tail[1]) << 8;
    }
    if !tail.is_empty() {
        h ^= u32::from(tail[0]);
        h = h.wrapping_mul(m);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(m);
    h ^= h >> 15;
    h & 0x7fff_ffff
}

/// The key of an identity: the parts' tags and bytes, or their SHA-256 if they are long.
pub fn identity_key(parts: &[Value]) -> Vec<u8> {
    let mut identity = Vec::new();
    for part in parts {
        match part {
            Value::Bool(value) => identity.push(if *value { 2 } else { 1 }),
            Value::Number(number) => counted(3, canonical(number).as_bytes(), &mut identity),
            Value::String(text) => counted(4, text.as_bytes(), &mut identity),
            other => panic!("{other} is not a scalar"),
        }
    }
    if identity.len() > 128 {
        return [&[0x11][..], &Sha256::digest(&identity)].concat();
    }
    [&[0x10][..], &identity].concat()
}

/// The key under which the last truncate of the table with this name is remembered.
pub fn table_key(name: &Value) -> Vec<u8> {
    let mut identity = vec![0x10, 0x20];
    counted(4, name.as_str().unwrap_or_default().as_bytes(), &mut identity);
    identity
}

fn counted(tag: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(tag);
    let mut length = bytes.len();
    loop {
        let low = (length % 128) as u8;
        length /= 128;
        out.push(if length > 0 { low | 128 } else { low });
        if length == 0 {
            break;
        }
    }
    out.extend(bytes);
}

/// Significant digits and the power of ten. The tests' identities are integers.
fn canonical(number: &serde_json::Number) -> String {
    let digits =
        number.as_i128().unwrap_or_else(|| panic!("the checker knows integers only, not {number}")).to_string();
    let significant = digits.trim_end_matches('0');
    match digits.len() - significant.len() {
        0 => digits,
        _ if significant.is_empty() => "0".to_owned(),
        zeros => format!("{significant}e{zeros}"),
    }
}

/// An integer encoded so that the bytes sort like the numbers: sign and length, then the magnitude; a negative one is
/// complemented.
pub fn version(value: i128) -> Vec<u8> {
    let magnitude: Vec<u8> = value.unsigned_abs().to_be_bytes().into_iter().skip_while(|&byte| byte == 0).collect();
    let mut out = vec![0x80 + magnitude.len() as u8];
    out.extend(magnitude);
    if value < 0 {
        out.iter_mut().for_each(|byte| *byte = !*byte);
    }
    out
}

#[cfg(test)]
mod tests {
    //! The checker's bytes against the examples that the documentation gives.

    use super::*;

    #[test]
    fn position_records_read_back() {
        let token = Token { lane: u64::MAX, transaction: 300, changelog_id: [7; 16], partition: 3 };
        let written = Position {
            token,
            owner: "ratchet.x.1.0".to_owned(),
            input_id: [9; 16],
            processed: vec![(0, 250), (251, 70_000)],
            stream_time: 1_700_000_000_000,
            horizon: i64::MIN,
            rules_digest: [1; 32],
            generation: 1,
            task_count: 4,
            truncates: 1000,
            calls: Calls::default(),
            scopes: vec![Scope {
                bytes: vec![4, 1, 97],
                segments: vec![(None, 3), (Some(vec![0x81, 9]), 70_000)],
                reached: vec![(60_000, vec![0x81, 9])],
            }],
        };
        assert_eq!(position(&encode_position(&written)), written);
    }

    #[test]
    fn versions_are_as_documented() {
        let documented: [(i128, &[u8]); 6] = [
            (-256, &[0x7d, 0xfe, 0xff]),
            (-1, &[0x7e, 0xfe]),
            (0, &[0x80]),
            (1, &[0x81, 1]),
            (255, &[0x81, 0xff]),
            (1 << 64, &[0x89, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (value, bytes) in documented {
            assert_eq!(version(value), bytes, "{value}");
        }
    }

    #[test]
    fn identities_are_as_documented() {
        let parts = [Value::from("ab"), Value::from(1000), Value::from(false)];
        assert_eq!(identity_key(&parts), b"\x10\x04\x02ab\x03\x031e3\x01");
        assert_eq!(identity_key(&[Value::from("x".repeat(127))])[0], 0x11);
        assert_eq!(identity_key(&[Value::from("x".repeat(126))]).len(), 129);
    }
}
