//! The versions and features that a broker lists when a connection begins (ApiVersions, KIP-35, KIP-511, KIP-584).

use std::ops::RangeInclusive;

use super::super::code::UNSUPPORTED_VERSION;
use super::fields::{Fields, put, put_no_tags};

/// ApiVersions' API key.
pub const API_VERSIONS: i16 = 18;
/// The version of the first request, and the first version whose requests and responses have the flexible encoding.
pub const FIRST_VERSION: i16 = 3;
/// The name by which the client identifies its software; letters, digits, dots and dashes (KIP-511).
const SOFTWARE: &str = "ratchet";
const SOFTWARE_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The versions of requests and the features that a broker offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// By API key, ascending.
    ranges: Vec<(i16, RangeInclusive<i16>)>,
    /// The features that are finalized in the cluster, and their levels.
    features: Vec<(String, i16)>,
}

impl Versions {
    /// Builds an offer for tests.
    #[cfg(test)]
    pub fn offering(ranges: &[(i16, RangeInclusive<i16>)], features: &[(&str, i16)]) -> Self {
        let mut ranges = ranges.to_vec();
        ranges.sort_by_key(|(key, _)| *key);
        Self { ranges, features: features.iter().map(|(name, level)| ((*name).to_owned(), *level)).collect() }
    }

    /// The versions of a request that the broker offers; `None` if it does not know the request.
    pub fn range_of(&self, api_key: i16) -> Option<RangeInclusive<i16>> {
        let index = self.ranges.binary_search_by_key(&api_key, |(key, _)| *key).ok()?;
        self.ranges.get(index).map(|(_, range)| range.clone())
    }

    /// The highest version that both sides support; `None` if they have no version in common.
    pub fn pick(&self, api_key: i16, ours: RangeInclusive<i16>) -> Option<i16> {
        let theirs = self.range_of(api_key)?;
        let highest = *ours.end().min(theirs.end());
        (highest >= *ours.start().max(theirs.start())).then_some(highest)
    }

    /// The level of a feature that is finalized in the cluster, such as `transaction.version` (KIP-584); `None` if it
    /// is not finalized, or the broker does not report features.
    pub fn feature(&self, name: &str) -> Option<i16> {
        self.features.iter().find(|(known, _)| known == name).map(|(_, level)| *level)
    }
}

/// A response to ApiVersions.
#[derive(Debug, PartialEq, Eq)]
pub enum VersionsResponse {
    /// The broker's offer, and its throttle time in milliseconds.
    Offered(Versions, i32),
    /// The request has to be repeated in this version, which the broker knows.
    RetryWith(i16),
    /// The broker returned another error, by Kafka's number.
    Refused(i16),
}

/// The body of a request.
pub fn request_body(version: i16) -> Vec<u8> {
    let mut out = Vec::new();
    if version >= FIRST_VERSION {
        put(&mut out, SOFTWARE, true);
        put(&mut out, SOFTWARE_VERSION, true);
        put_no_tags(&mut out, true);
    }
    out
}

/// Reads the response to a request of this version; `None` if it is malformed.
pub fn read_response(body: &[u8], version: i16) -> Option<VersionsResponse> {
    let error = Fields::new(body, false).reader.i16()?;
    // A broker that does not know the request's version responds in version 0 (KIP-511).
    let (is_flexible, response_version) = match error {
        UNSUPPORTED_VERSION => (false, 0),
        _ => (version >= FIRST_VERSION, version),
    };
    let mut fields = Fields::new(body, is_flexible);
    // Skips the error, which was read above.
    fields.reader.i16()?;
    let (versions, throttle_ms) = match error {
        0 => read_offer(&mut fields, response_version)?,
        UNSUPPORTED_VERSION if version > 0 => {
            // Old brokers list no versions with this error.
            let (known, _) = read_offer(&mut fields, response_version).unwrap_or_default();
            return Some(VersionsResponse::RetryWith(known.pick(API_VERSIONS, 0..=version - 1).unwrap_or(0)));
        }
        _ => return Some(VersionsResponse::Refused(error)),
    };
    Some(VersionsResponse::Offered(versions, throttle_ms))
}

fn read_offer(fields: &mut Fields<'_>, version: i16) -> Option<(Versions, i32)> {
    let (mut versions, mut throttle_ms) = (Versions::default(), 0);
    for _ in 0..fields.count(6)? {
        let [key, lowest, highest] = [fields.reader.i16()?, fields.reader.i16()?, fields.reader.i16()?];
        fields.skip_tags()?;
        versions.ranges.push((key, lowest..=highest));
    }
    versions.ranges.sort_by_key(|(key, _)| *key);
    if version >= 1 {
        throttle_ms = fields.reader.i32()?;
    }
    let features = &mut versions.features;
    fields.tags(|tag, value| match tag {
        FINALIZED_FEATURES => read_finalized_features(Fields::of(value, true), features),
        _ => Some(()),
    })?;
    Some((versions, throttle_ms))
}

/// The tag of the finalized features.
const FINALIZED_FEATURES: u64 = 2;

fn read_finalized_features(mut fields: Fields<'_>, features: &mut Vec<(String, i16)>) -> Option<()> {
    for _ in 0..fields.count(6)? {
        let name = fields.text()?.to_owned();
        let [highest, _lowest] = [fields.reader.i16()?, fields.reader.i16()?];
        fields.skip_tags()?;
        features.push((name, highest));
    }
    Some(())
}
