//! What a topology means, stated for the judge separately from the YAML.

use crate::input::{InputKind, Shape};

/// A topology's rules: identity and version are fields of a JSON value.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub name: &'static str,
    pub input: &'static str,
    pub output: &'static str,
    pub changelog: &'static str,
    pub dead_letter: &'static str,
    pub group: &'static str,
    /// The identity's field.
    pub identity: &'static str,
    /// The version's field, if there is one.
    pub version: Option<&'static str>,
    /// The field of the scope within which versions are comparable, if there is one.
    pub epoch: Option<&'static str>,
    /// How long an identity is remembered; `None` is for ever.
    pub retention_ms: Option<i64>,
    /// The action on a record with a known identity and version, but other contents.
    pub conflict: OnConflict,
    /// Whether null values are forwarded rather than set aside.
    pub forwards_null: bool,
    /// Whether the records are changes: the key holds the identity, `op` the kind of change, `table` the table that a
    /// truncate empties, and a null value follows its delete.
    pub has_changes: bool,
    /// Whether survivors go to a database.
    pub has_sink: bool,
    /// Whether survivors make a provider act.
    pub calls: bool,
    /// Whether a gate drops what other partitions have passed on.
    pub gated: bool,
    /// Whether nothing is passed on unasked.
    pub gate_keeps: bool,
    /// The topic that explains drops, if there is one.
    pub audit: Option<&'static str>,
    /// A record with a larger value is rejected by the output, and set aside.
    pub output_bytes_max: usize,
}

/// The action on a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Forward,
    Drop,
    DeadLetter,
}

/// The rules for a kind of input.
pub fn rules(kind: InputKind) -> &'static Rules {
    match kind {
        InputKind::Versions => &SHOP,
        InputKind::Messages => &MESSAGES,
        InputKind::Epochs => &EPOCHS,
        InputKind::Changes => &CHANGES,
        InputKind::Sunk => &SUNK,
        InputKind::SunkMessages => &SUNK_MESSAGES,
        InputKind::Shared | InputKind::Returned => &EXPLAINED,
        InputKind::Gated => &GATED,
        InputKind::GatedPass => &GATED_PASS,
        InputKind::Called(calls) => match calls.shape {
            Shape::Versions => &CALLED,
            Shape::Epochs => &CALLED_EPOCHS,
            Shape::Changes => &CALLED_CHANGES,
            Shape::Messages => &CALLED_MESSAGES,
        },
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
    conflict: OnConflict::Drop,
    forwards_null: false,
    has_changes: false,
    has_sink: false,
    calls: false,
    gated: false,
    gate_keeps: false,
    audit: None,
    output_bytes_max: crate::input::OUTPUT_BYTES_MAX,
};
/// Messages, remembered for a second.
const MESSAGES: Rules = Rules { version: None, retention_ms: Some(1_000), ..SHOP };
/// Things with versions that restart in each epoch; null values are forwarded.
const EPOCHS: Rules = Rules { epoch: Some("epoch"), conflict: OnConflict::Forward, forwards_null: true, ..SHOP };
/// Changes to a table's rows; drops are explained.
const CHANGES: Rules = Rules { has_changes: true, conflict: OnConflict::Forward, audit: Some("shop.audit"), ..SHOP };
/// Into a database.
const SUNK: Rules = Rules { has_sink: true, conflict: OnConflict::DeadLetter, ..SHOP };
const SUNK_MESSAGES: Rules = Rules { has_sink: true, conflict: OnConflict::DeadLetter, ..MESSAGES };
/// For a provider.
const CALLED: Rules = Rules { calls: true, output_bytes_max: usize::MAX, ..SHOP };
const CALLED_EPOCHS: Rules = Rules { epoch: Some("epoch"), ..CALLED };
const CALLED_CHANGES: Rules = Rules { has_changes: true, ..CALLED };
const CALLED_MESSAGES: Rules = Rules { version: None, retention_ms: Some(1_000), ..CALLED };
/// Behind a gate.
const GATED: Rules = Rules { gated: true, gate_keeps: true, ..SHOP };
const GATED_PASS: Rules = Rules { gate_keeps: false, ..GATED };
/// Into a database, with drops explained.
const EXPLAINED: Rules = Rules { audit: Some("shop.audit"), ..SUNK };

/// How far ahead of the wall clock a timestamp may be, with this retention.
pub fn future_max_ms(retention_ms: Option<i64>) -> i64 {
    const HOUR_MS: i64 = 3_600_000;
    retention_ms.map_or(HOUR_MS, |retention| HOUR_MS.min(retention / 10))
}
