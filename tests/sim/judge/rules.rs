//! What a topology means, as the judge is told it: beside the YAML, and not out of it.

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
    /// For how long an identity is remembered; `None` is for ever.
    pub retention_ms: Option<i64>,
}

/// What [`crate::input::TOPOLOGY`] means.
pub const SHOP: Rules = Rules {
    name: "shop",
    input: crate::input::INPUT,
    output: crate::input::OUTPUT,
    changelog: crate::input::CHANGELOG,
    dead_letter: "shop.dead_letter",
    group: crate::input::GROUP,
    identity: "id",
    version: Some("version"),
    retention_ms: None,
};

impl Rules {
    /// How far beyond the wall clock a timestamp may be.
    pub fn future_max_ms(&self) -> i64 {
        const HOUR_MS: i64 = 3_600_000;
        self.retention_ms.map_or(HOUR_MS, |retention| HOUR_MS.min(retention / 10))
    }
}
