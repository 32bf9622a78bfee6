//! Which parts of a proposal a replay has shown to be needed.

/// The corrections to a proposal's first form that replaying it has shown to be needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needed {
    /// The identity is read from a change event's row, for captures without keys.
    pub rows_identify: bool,
    /// Keys are taken as bytes, since they are not JSON.
    pub raw_keys: bool,
    /// Flattened events have no position, so their time orders them.
    pub by_time: bool,
    /// Null values pass, since they are deletes themselves.
    pub nulls_pass: bool,
    /// Nothing expires, since timestamps say nothing.
    pub forever: bool,
}
