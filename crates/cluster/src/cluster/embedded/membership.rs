//! A member's proof that it belongs to its group: a producer commits offsets with it, and the broker checks it.

/// Proves membership to a [`Producer`](super::Producer), as of one generation of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    pub(super) group: String,
    pub(super) member: u64,
    pub(super) generation: i32,
}
