//! The versions and features that a broker lists when a connection begins (ApiVersions, KIP-35, KIP-511, KIP-584).

use std::ops::RangeInclusive;

use super::super::code::UNSUPPORTED_VERSION;
use super::fields::{Fields, put, put_no_tags};

/// ApiVersions' API key.
pub const API_VERSIONS: i16 = 18;
/// The version that is tried first.
pub const ASKED_FIRST: i16 = 3;
/// The client's name for itself; letters, digits, dots and dashes (KIP-511).
const SOFTWARE: &str = "ratchet";
const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a broker offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// By API key, ascending.
    ranges: Vec<(i16, RangeInclusive<i16>)>,
    /// The features that are finalized in the cluster, and their levels.
    features: Vec<(String, i16)>,
}

impl Versions {
    /// An offer for tests.
    #[cfg(test)]
    pub fn offering(ranges: &[(i16, RangeInclusive<i16>)], features: &[(&str, i16)]) -> Self {
        let mut ranges = ranges.to_vec();
        ranges.sort_by_key(|(key, _)| *key);
        Self { ranges, features: features.iter().map(|(name, level)| ((*name).to_owned(), *level)).collect() }
    }

    /// The versions that the broker offers of a request; `None` if it does not know the request.
    pub fn of(&self, api_key: i16) -> Option<RangeInclusive<i16>> {
        let at = self.ranges.binary_search_by_key(&api_key, |(key, _)| *key).ok()?;
        self.ranges.get(at).map(|(_, range)| range.clone())
    }

    /// The highest version that both sides speak; `None` if there is none.
    pub fn pick(&self, api_key: i16, ours: RangeInclusive<i16>) -> Option<i16> {
        let theirs = self.of(api_key)?;
        let highest = *ours.end().min(theirs.end());
        (highest >= *ours.start().max(theirs.start())).then_some(highest)
    }

    /// The level of a feature that is finalized in the cluster, such as `transaction.version` (KIP-584); `None` if it
    /// is not finalized, or the broker does not tell.
    pub fn feature(&self, name: &str) -> Option<i16> {
        self.features.iter().find(|(known, _)| known == name).map(|(_, level)| *level)
    }
}

/// A response to ApiVersions.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    /// What the broker offers, and its throttle time in milliseconds.
    Offers(Versions, i32),
    /// Ask again in this version, which the broker knows.
    AskAgain(i16),
    /// Another error, by Kafka's number.
    Refused(i16),
}

/// The body of the request.
pub fn question(version: i16) -> Vec<u8> {
    let mut out = Vec::new();
    if version >= ASKED_FIRST {
        put(&mut out, SOFTWARE, true);
        put(&mut out, SOFTWARE_VERSION, true);
        put_no_tags(&mut out, true);
    }
    out
}

/// Reads the response to a request of this version; `None` if it is malformed.
pub fn reply(body: &[u8], version: i16) -> Option<Reply> {
    let error = Fields::new(body, false).reader.i16()?;
    // A broker that does not know the version answers in version 0, whatever was asked (KIP-511).
    let (is_flexible, written) = match error {
        UNSUPPORTED_VERSION => (false, 0),
        _ => (version >= ASKED_FIRST, version),
    };
    let mut fields = Fields::new(body, is_flexible);
    fields.reader.i16()?;
    let (versions, throttle_ms) = match error {
        0 => offers(&mut fields, written)?,
        UNSUPPORTED_VERSION if version > 0 => {
            // Old brokers list nothing.
            let (known, _) = offers(&mut fields, written).unwrap_or_default();
            return Some(Reply::AskAgain(known.pick(API_VERSIONS, 0..=version - 1).unwrap_or(0)));
        }
        _ => return Some(Reply::Refused(error)),
    };
    Some(Reply::Offers(versions, throttle_ms))
}

fn offers(fields: &mut Fields<'_>, version: i16) -> Option<(Versions, i32)> {
    let (mut versions, mut throttle_ms) = (Versions::default(), 0);
    for _ in 0..fields.count(6)? {
        let [key, least, most] = [fields.reader.i16()?, fields.reader.i16()?, fields.reader.i16()?];
        fields.skip_tags()?;
        versions.ranges.push((key, least..=most));
    }
    versions.ranges.sort_by_key(|(key, _)| *key);
    if version >= 1 {
        throttle_ms = fields.reader.i32()?;
    }
    let features = &mut versions.features;
    fields.tags(|tag, value| match tag {
        FINALIZED_FEATURES => finalized(Fields::of(value, true), features),
        _ => Some(()),
    })?;
    Some((versions, throttle_ms))
}

/// The tag of the finalized features.
const FINALIZED_FEATURES: u64 = 2;

fn finalized(mut fields: Fields<'_>, into: &mut Vec<(String, i16)>) -> Option<()> {
    for _ in 0..fields.count(6)? {
        let name = fields.text()?.to_owned();
        let [most, _least] = [fields.reader.i16()?, fields.reader.i16()?];
        fields.skip_tags()?;
        into.push((name, most));
    }
    Some(())
}
