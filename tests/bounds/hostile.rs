//! Hostile records, from a seed: captures of change events, cut, doubled, spliced and broken.

use std::path::{Path, PathBuf};

use ratchet::record::HeaderBuf;

use crate::random::Random;

/// Longer lines of captures make a round slow and find nothing more.
const SEED_BYTES_MAX: usize = 4096;
/// How many captures a run chooses from.
const SEEDS_MAX: usize = 600;

/// Breaks parsers of JSON, numbers and text.
const TOKENS: &[&[u8]] = &[
    b"null",
    b"\"\"",
    b"{}",
    b"[]",
    b"-0",
    b"1e308",
    b"1e-999999999999999999",
    b"99999999999999999999999999999999999999999",
    b"0.1e+1",
    b"\"\\ud800\"",
    b"\"\\u0000\"",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\0",
    b"[[[[[[[[[[[[[[[[",
    b"]]]]]]]]]]]]]]]]",
    b"{\"payload\":",
    b"{\"schema\":{},\"payload\":{}}",
    b"{\"string\":\"x\"}",
    b"\"op\":\"d\"",
    b"\"op\":\"r\"",
    b"\"op\":\"t\"",
    b"\"op\":\"m\"",
    b"\"id\":1,\"id\":2",
    b"\"2020-05-13T15:40:06.123456789Z\"",
    b"\"mysql-bin.000003:154\"",
    b"\"00000027:00000758:0005\"",
    b",",
    b":",
    b"\"",
    b"\\",
    b" \t\r\n",
];

/// Fields that the test's topologies read.
const FIELDS: &[&str] = &["id", "a", "b", "v", "ts", "op", "epoch", "data", "pkNames", "table"];

/// A record to write.
#[derive(Clone, Debug, Default)]
pub struct Hostile {
    pub partition: i32,
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: HeaderBuf,
}

/// Generates records.
pub struct Maker {
    random: Random,
    seeds: Vec<Vec<u8>>,
    now_ms: i64,
    made: Vec<Hostile>,
}

impl Maker {
    /// From the repository's captures; timestamps are around `now_ms`.
    pub fn new(random: Random, now_ms: i64) -> Maker {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut maker = Maker { random, seeds: Vec::new(), now_ms, made: Vec::new() };
        let mut lines = Vec::new();
        for folder in ["tests/corpus/files", "tests/data", "topologies/samples"] {
            collect_lines(&root.join(folder), &mut lines);
        }
        assert!(lines.len() > 1000, "only {} captures are there to start from", lines.len());
        for _ in 0..SEEDS_MAX {
            let which = maker.below(lines.len());
            maker.seeds.push(lines[which].clone());
        }
        maker
    }

    /// This many records, some of them copies of others.
    pub fn records(&mut self, count: usize, partitions: i32) -> Vec<Hostile> {
        self.made.clear();
        for _ in 0..count {
            let record = if !self.made.is_empty() && self.random.once_in(3) {
                let which = self.below(self.made.len());
                self.altered(which)
            } else {
                self.fresh(partitions)
            };
            self.made.push(record);
        }
        std::mem::take(&mut self.made)
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end.max(1) as u64) as usize
    }

    /// An earlier record again, unchanged or with one change.
    fn altered(&mut self, which: usize) -> Hostile {
        let mut record = self.made[which].clone();
        match self.below(6) {
            0 => record.value = None,
            1 => record.timestamp = self.timestamp(),
            2 => record.headers = self.headers(),
            3 => record.value = record.value.map(|value| self.mutated(value)),
            _ => {}
        }
        record
    }

    fn fresh(&mut self, partitions: i32) -> Hostile {
        let value = match self.below(10) {
            0 => None,
            1 => Some(Vec::new()),
            2..=4 => Some(self.simple()),
            _ => {
                let which = self.below(self.seeds.len());
                Some(self.seeds[which].clone())
            }
        };
        let value = match value {
            Some(value) if !self.random.once_in(3) => Some(self.mutated(value)),
            value => value,
        };
        let key = match self.below(6) {
            0 => None,
            1 => Some(self.noise(40)),
            2 => Some(format!("{{\"id\":{}}}", self.below(5)).into_bytes()),
            3 => {
                let simple = self.simple();
                Some(self.mutated(simple))
            }
            _ => Some(vec![b'k', b'0' + self.below(5) as u8]),
        };
        let partition = self.random.below(partitions as u64) as i32;
        Hostile { partition, timestamp: self.timestamp(), key, value, headers: self.headers() }
    }

    /// A value that most topologies can read.
    fn simple(&mut self) -> Vec<u8> {
        let mut text = String::from("{");
        for field in FIELDS {
            if self.random.once_in(4) {
                continue;
            }
            let number = self.below(6);
            let value = match *field {
                "op" => ["\"c\"", "\"u\"", "\"d\"", "\"r\"", "\"t\"", "\"m\""][number].to_owned(),
                "data" => format!("[{{\"id\":{number}}},{{\"id\":{}}}]", number + 1),
                "pkNames" => "[\"id\"]".to_owned(),
                "ts" => format!("\"2020-05-13T15:40:0{number}Z\""),
                _ => number.to_string(),
            };
            if text.len() > 1 {
                text.push(',');
            }
            text.push_str(&format!("\"{field}\":{value}"));
        }
        text.push('}');
        text.into_bytes()
    }

    /// The same bytes, broken in some way.
    pub fn mutated(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            let end = (at + self.below(40)).min(bytes.len());
            match self.below(7) {
                0 => bytes.truncate(at),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let again = bytes[at..end].to_vec();
                    bytes.splice(at..at, again);
                }
                3 if at < bytes.len() => bytes[at] = self.random.next() as u8,
                4 => {
                    let which = self.below(self.seeds.len());
                    let from = self.below(self.seeds[which].len());
                    let piece: Vec<u8> = self.seeds[which][from..].iter().take(60).copied().collect();
                    bytes.splice(at..end, piece);
                }
                5 => {
                    // Deep enough to exceed every limit.
                    let depth = self.below(700);
                    bytes.splice(at..end, std::iter::repeat_n(b'[', depth));
                }
                _ => {
                    let token = TOKENS[self.below(TOKENS.len())];
                    bytes.splice(at..end, token.iter().copied());
                }
            }
        }
        bytes
    }

    fn noise(&mut self, most: usize) -> Vec<u8> {
        let length = self.below(most);
        (0..length).map(|_| self.random.next() as u8).collect()
    }

    fn headers(&mut self) -> HeaderBuf {
        let mut headers = HeaderBuf::default();
        for _ in 0..self.below(4) {
            let name = match self.below(5) {
                0 => self.noise(12),
                which => ["id", "v", "epoch", ""][which - 1].as_bytes().to_vec(),
            };
            let value = match self.below(4) {
                0 => None,
                1 => Some(self.noise(30)),
                _ => Some(self.below(6).to_string().into_bytes()),
            };
            headers.push(&name, value.as_deref());
        }
        headers
    }

    /// Any time, except close to the limit of what is in the future.
    fn timestamp(&mut self) -> Option<i64> {
        const DAY_MS: i64 = 86_400_000;
        let day = self.random.below(40) as i64;
        Some(match self.below(12) {
            0 => return None,
            1 => 0,
            2 => i64::MAX,
            3 => i64::MIN + 1,
            4 => self.now_ms + DAY_MS * 400,
            5 => -1_000,
            6 => self.now_ms - DAY_MS * day,
            _ => self.now_ms - self.random.below(5_000) as i64,
        })
    }
}

fn collect_lines(folder: &Path, lines: &mut Vec<Vec<u8>>) {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a folder of the repository").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect_lines(&path, lines);
        } else {
            let bytes = std::fs::read(&path).expect("a file of the repository");
            let fits = |line: &&[u8]| line.len() > 2 && line.len() <= SEED_BYTES_MAX;
            lines.extend(bytes.split(|byte| *byte == b'\n').filter(fits).map(<[u8]>::to_vec));
        }
    }
}
