//! What brokers may do that is odd, drawn from a seed. By default they do none of it.

use std::collections::BTreeMap;
use std::ops::Range;

use kafka_protocol::messages::ApiKey;
use ratchet_testkit::random::Random;

use super::sessions::Sessions;

/// REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND: the codes of a leader whose followers do not follow.
const LAGS: [i16; 2] = [7, 20];

/// How brokers behave. "Once in so many" is 0 for never.
pub struct Manners {
    pub random: Random,
    /// The requests that brokers do not offer, as if they did not know them.
    pub hidden: Vec<ApiKey>,
    /// How often something refuses for now.
    pub moody_once_in: usize,
    /// How often a response shows a high watermark and a last stable offset from before the read.
    pub former_once_in: usize,
    /// How often what is fetched is damaged on its way.
    pub damages_once_in: usize,
    /// Whether a first batch that is larger than the limits is cut off, as before KIP-74.
    pub cuts_first: bool,
    /// Another replica that leaders point to instead of returning records, -1 for none (KIP-392).
    pub prefers: i32,
    /// Offsets at which nothing is found, whatever is there, as with a damaged index of offsets.
    pub blind: Range<i64>,
    /// Whether a write that is not part of its transaction is told to abort (KIP-1050: Kafka 3.8 and later); otherwise that
    /// depends on the version of transactions.
    pub says_abortable: Option<bool>,
    /// Whether aborts are not carried out.
    pub skips_aborts: bool,
    /// The fetch sessions of each broker, and how many there may be.
    pub sessions: BTreeMap<i32, Sessions>,
    pub sessions_max: usize,
    /// What was fetched so far.
    pub fetches: Fetches,
    /// How often each code was answered to a Produce.
    pub codes: BTreeMap<i16, usize>,
}

/// How often was fetched: without a session, or opening one, or in one; alone; and how many partitions were named.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fetches {
    pub full: usize,
    pub alone: usize,
    pub incremental: usize,
    pub named: usize,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            random: Random::new(0),
            hidden: Vec::new(),
            moody_once_in: 0,
            former_once_in: 0,
            damages_once_in: 0,
            cuts_first: false,
            prefers: -1,
            blind: 0..0,
            says_abortable: None,
            skips_aborts: false,
            sessions: BTreeMap::new(),
            sessions_max: 0,
            fetches: Fetches::default(),
            codes: BTreeMap::new(),
        }
    }
}

impl Manners {
    fn happens(&mut self, once_in: usize) -> bool {
        once_in > 0 && self.random.once_in(once_in)
    }

    /// What is offered of all this.
    pub fn offered(&self, all: &'static [(ApiKey, i16, i16)]) -> impl Iterator<Item = &'static (ApiKey, i16, i16)> {
        all.iter().filter(|(api, ..)| !self.hidden.contains(api))
    }

    /// Whether a broker refuses now, for no reason that has to do with the request.
    pub fn is_moody(&mut self) -> bool {
        self.happens(self.moody_once_in)
    }

    /// The code of a leader whose followers do not follow now.
    pub fn lags(&mut self) -> Option<i16> {
        self.is_moody().then(|| *self.random.pick(&LAGS))
    }

    /// Whether a response shows what was before the read.
    pub fn shows_former(&mut self) -> bool {
        self.happens(self.former_once_in)
    }

    /// Whether what is fetched now is damaged.
    pub fn damages(&mut self) -> bool {
        self.happens(self.damages_once_in)
    }

    /// Counts an answer to a Produce.
    pub fn reached(&mut self, code: i16) {
        *self.codes.entry(code).or_default() += 1;
    }

    /// A broker's fetch sessions.
    pub fn sessions(&mut self, node: i32) -> &mut Sessions {
        let sessions = self.sessions.entry(node).or_default();
        sessions.max = self.sessions_max;
        sessions
    }
}
