//! What a seed of the writer is about, and what it came to.

use std::time::Duration;

use ratchet_testkit::random::Random;

use super::super::client::records::Codec;
use super::super::client::writer::{Transactions, WriteSettings};
use super::super::kafka::Protocol;
use super::{MS, SECOND};

/// What a seed is about.
#[derive(Clone, Debug)]
pub struct Profile {
    pub is_v2: bool,
    /// Whether brokers check that a write belongs to a transaction (Kafka 3.6 and later).
    pub verifies: bool,
    /// Whether they tell to abort what does not (Kafka 3.8 and later).
    pub says_abortable: bool,
    /// Once in how many steps of trouble something happens; 0 for never.
    pub cuts: usize,
    pub moves: usize,
    pub freezes: usize,
    pub deaths: usize,
    pub moody_once_in: usize,
    pub poisons: bool,
    pub message_bytes_max: usize,
    /// How long there is trouble.
    pub trouble: u64,
    pub transaction_timeout: Duration,
    pub epoch_max: i16,
    /// Whether an heir takes the same transactional id.
    pub same_id: bool,
    /// How late what was under way when a link was cut arrives at most.
    pub late_max: u64,
    pub write: WriteSettings,
    /// Whether nothing goes wrong at all, so that no writer is ever lost.
    pub is_calm: bool,
}

impl Profile {
    /// The version of transactions that brokers speak.
    pub fn protocol(&self) -> Protocol {
        if self.is_v2 { Protocol::V2 } else { Protocol::V1 }
    }

    /// A profile drawn from a seed.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed.wrapping_mul(31));
        let is_v2 = random.once_in(2);
        let verifies = !random.once_in(4);
        let says_abortable = is_v2 || random.once_in(2);
        let rare = |random: &mut Random, often: usize| if random.once_in(4) { 0 } else { often + random.below(often) };
        let codec = *random.pick(&[Codec::None, Codec::None, Codec::Lz4, Codec::Gzip]);
        let timeout = *random.pick(&[300, 2_000, 10_000]);
        let batch_bytes = *random.pick(&[150, 400, 2_000, 100_000]);
        let write = WriteSettings {
            transaction_timeout: Duration::from_millis(timeout),
            delivery_timeout: Duration::from_millis(*random.pick(&[400, 3_000, 20_000])),
            request_timeout: Duration::from_millis(*random.pick(&[100, 500, 3_000])),
            linger: Duration::from_millis(random.below(6) as u64),
            batch_bytes,
            request_bytes: *random.pick(&[300, 1_000, 100_000]),
            in_flight_max: 1 + random.below(5),
            codec,
            level: None,
            message_bytes_max: 100_000,
            buffered_bytes_max: *random.pick(&[500, 3_000, 1 << 20]),
            retry_backoff: Duration::from_millis(1),
            retry_backoff_max: Duration::from_millis(50),
            transactions: if is_v2 { Transactions::V2 } else { Transactions::V1 },
        };
        Self {
            is_v2,
            verifies,
            says_abortable,
            cuts: rare(&mut random, 20),
            moves: rare(&mut random, 20),
            freezes: rare(&mut random, 300),
            deaths: rare(&mut random, 400),
            moody_once_in: rare(&mut random, 15),
            poisons: random.once_in(4),
            message_bytes_max: *random.pick(&[220, 600, 1 << 20, 1 << 20]),
            trouble: SECOND * (1 + random.below(4) as u64),
            transaction_timeout: write.transaction_timeout,
            epoch_max: if random.once_in(3) { 4 } else { i16::MAX - 2 },
            // Without verification Kafka itself lets late copies into a later transaction of the same producer.
            same_id: verifies && random.once_in(2),
            late_max: *random.pick(&[30 * MS, 300 * MS, 3 * SECOND]),
            write,
            is_calm: false,
        }
    }

    /// The same without any trouble, and with time enough for everything.
    pub fn draw_calm(seed: u64) -> Self {
        let drawn = Self::draw(seed);
        let patience = Duration::from_secs(20);
        let write = WriteSettings {
            transaction_timeout: patience,
            delivery_timeout: patience,
            request_timeout: patience,
            ..drawn.write
        };
        Self {
            cuts: 0,
            moves: 0,
            freezes: 0,
            deaths: 0,
            moody_once_in: 0,
            poisons: false,
            message_bytes_max: 1 << 20,
            transaction_timeout: patience,
            write,
            is_calm: true,
            ..drawn
        }
    }
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub committed: usize,
    pub aborted: usize,
    pub unknown: usize,
    pub unknown_committed: usize,
    pub writers: usize,
    pub cuts: usize,
    pub late: usize,
    pub timed_out: usize,
    pub zombies: usize,
    pub duplicates_refused: usize,
    pub splits: usize,
    pub gaps: usize,
    pub moved: usize,
    pub throttles: usize,
}
