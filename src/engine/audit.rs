//! The audit record: the dropped record, the reason, and the entry that it was compared with, as JSON for people and
//! programs.
//!
//! ```json
//! {"topology":"payments","topic":"payments","partition":0,"offset":7,"timestamp":1700000000000,
//!  "verdict":"stale","reason":"version_older","identity":[7,"charge"],"version":1,"epoch":null,
//!  "contents":"1b3f0c2a9d4e5f60",
//!  "against":{"version":2,"epoch":null,"last_seen":1700000000000,"contents":["1b304d1e77aa0c93"]}}
//! ```
//!
//! `identity`, `version` and `epoch` are null if they were not read (the record was refused, or processed before) or
//! are missing. `against` is the entry, of the record's identity or of its table, that the record was compared with;
//! null if there was no such entry. `contents` is the digest of the record's contents (null if they are not compared)
//! and, in `against`, the list of the digests of the contents that the entry knows, oldest first. A description longer
//! than [`DESCRIBED_BYTES_MAX`] is truncated: it is then a string that ends in `…`.

use crate::dedup::{Decision, Rules, explain};
use crate::format::{Digest, EntryRef, NO_TIME};
use crate::record::Record;

/// Maximum length of the description of an identity, a version or an epoch.
pub const DESCRIBED_BYTES_MAX: usize = 8 << 10;
/// The end of a truncated description.
const TRUNCATED_END: &str = "…";

/// A dropped record.
pub struct Dropped<'a> {
    /// The topology's name.
    pub topology: &'a str,
    /// Its rules, for describing versions.
    pub rules: &'a Rules,
    /// The record.
    pub record: &'a Record<'a>,
    /// The decision.
    pub decision: Decision,
    /// Its identity, as JSON; a list of identities if it has several rows.
    pub identity: Option<String>,
    /// Its version's bytes.
    pub version: Option<&'a [u8]>,
    /// Its epoch, as JSON.
    pub epoch: Option<String>,
    /// The digest of its contents.
    pub contents: Option<Digest>,
    /// The entry that it was compared with.
    pub against: Option<EntryRef<'a>>,
    /// That entry's epoch, as JSON.
    pub against_epoch: Option<String>,
}

impl Dropped<'_> {
    /// Writes the audit record's value to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let record = self.record;
        let mut fields = Fields { out, is_first: true };
        fields.text("topology", self.topology);
        fields.text("topic", record.topic);
        fields.raw("partition", &record.partition.to_string());
        fields.raw("offset", &record.offset.to_string());
        fields.raw("timestamp", &or_null(record.timestamp.map(|timestamp| timestamp.to_string())));
        fields.text("verdict", self.decision.verdict.as_str());
        fields.text("reason", self.decision.reason.as_str());
        // An identity is always a list.
        let identity = self.identity.clone().map(|identity| match truncated(identity) {
            (whole, false) => whole,
            (truncated_text, true) => format!("[{truncated_text}]"),
        });
        fields.raw("identity", &or_null(identity));
        fields.raw("version", &or_null(self.version.map(|bytes| truncated(explain::version(bytes, self.rules)).0)));
        fields.raw("epoch", &or_null(self.epoch.clone().map(|epoch| truncated(epoch).0)));
        fields.raw("contents", &or_null(self.contents.map(|digest| quoted(&digest.hex()))));
        match &self.against {
            None => fields.raw("against", "null"),
            Some(entry) => {
                let mut against = Vec::new();
                let mut inner = Fields { out: &mut against, is_first: true };
                inner.raw(
                    "version",
                    &or_null(entry.version.map(|bytes| truncated(explain::version(bytes, self.rules)).0)),
                );
                inner.raw("epoch", &or_null(self.against_epoch.clone().map(|epoch| truncated(epoch).0)));
                let last_seen = Some(entry.last_seen).filter(|&time| time != NO_TIME).map(|time| time.to_string());
                inner.raw("last_seen", &or_null(last_seen));
                let contents: Vec<_> = entry.contents.digests().map(|digest| quoted(&digest.hex())).collect();
                inner.raw("contents", &format!("[{}]", contents.join(",")));
                inner.end();
                fields.raw_bytes("against", &against);
            }
        }
        fields.end();
    }
}

fn or_null(value: Option<String>) -> String {
    value.unwrap_or_else(|| "null".to_owned())
}

/// A JSON description within the bound, and whether it was truncated: it is then a string with the description's
/// beginning.
fn truncated(description: String) -> (String, bool) {
    if description.len() <= DESCRIBED_BYTES_MAX {
        return (description, false);
    }
    let end = (0..=DESCRIBED_BYTES_MAX).rev().find(|&end| description.is_char_boundary(end)).unwrap_or(0);
    (quoted(&format!("{}{TRUNCATED_END}", &description[..end])), true)
}

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Writes a JSON object, field by field.
struct Fields<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl Fields<'_> {
    fn raw_bytes(&mut self, name: &str, json: &[u8]) {
        self.out.extend_from_slice(if self.is_first { b"{\"" } else { b",\"" });
        self.is_first = false;
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out.extend_from_slice(json);
    }

    fn raw(&mut self, name: &str, json: &str) {
        self.raw_bytes(name, json.as_bytes());
    }

    fn text(&mut self, name: &str, text: &str) {
        self.raw(name, &quoted(text));
    }

    fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests;
