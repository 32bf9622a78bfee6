//! What a topology means, as the judge is told it: beside the YAML, and not out of it.

use crate::input::Kind;

/// A topology's rules: identity and version are fields of a value in JSON.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub name: &'static str,
    pub input: &'static str,
    pub output: &'static str,
    pub changelog: &'static str,
    pub dead_letter: &'static str,
    pub group: &'static str,
    /// The field of the identity.
    pub identity: &'static str,
    /// The field of the version, if there is one.
    pub version: Option<&'static str>,
    /// The field that says within what versions are comparable, if there is one.
    pub epoch: Option<&'static str>,
    /// For how long an identity is remembered; `None` is for ever.
    pub retention_ms: Option<i64>,
    /// Whether null values are forwarded, and not set aside.
    pub forwards_null: bool,
    /// Whether the records are changes: the key has the identity, `op` says what kind each is, `table` what a truncate
    /// empties, and a null value follows its delete.
    pub has_changes: bool,
    /// The topic that explains what is dropped, if there is one.
    pub audit: Option<&'static str>,
    /// A record whose value is larger than this is refused by the output, and set aside.
    pub output_bytes_max: usize,
}

/// What a kind of input means.
pub fn rules(kind: Kind) -> &'static Rules {
    match kind {
        Kind::Versions => &SHOP,
        Kind::Messages => &MESSAGES,
        Kind::Epochs => &EPOCHS,
        Kind::Changes => &CHANGES,
    }
}

/// Things with versions, remembered for ever.
pub const SHOP: Rules = Rules {
    name: "shop",
    input: crate::input::INPUT,
    output: crate::input::OUTPUT,
    changelog: crate::input::CHANGELOG,
    dead_letter: "shop.dead_letter",
    group: crate::input::GROUP,
    identity: "id",
    version: Some("version"),
    epoch: None,
    retention_ms: None,
    forwards_null: false,
    has_changes: false,
    audit: None,
    output_bytes_max: crate::input::OUTPUT_BYTES_MAX,
};
/// Messages, remembered for a second.
const MESSAGES: Rules = Rules { version: None, retention_ms: Some(1_000), ..SHOP };
/// Things with versions that begin again with each epoch, and null values that are passed on.
const EPOCHS: Rules = Rules { epoch: Some("epoch"), forwards_null: true, ..SHOP };
/// Changes of a table's rows; what is dropped is explained.
const CHANGES: Rules = Rules { has_changes: true, audit: Some("shop.audit"), ..SHOP };

/// How far beyond the wall clock a timestamp may be, with this retention.
pub fn future_max_ms(retention_ms: Option<i64>) -> i64 {
    const HOUR_MS: i64 = 3_600_000;
    retention_ms.map_or(HOUR_MS, |retention| HOUR_MS.min(retention / 10))
}
