//! `limits`: limits on a record.

use crate::dedup::Limits;
use crate::topology::keys::{self, JSON_DEPTH_MAX, RECORD_BYTES_MAX};
use crate::yaml::{Field, Fields, units};

use super::reader::SpecReader;

impl SpecReader<'_, '_> {
    /// The limits, with defaults for those left out.
    pub fn limits(&mut self, field: &Field<'_>) -> Limits {
        let mut limits = Limits::default();
        let Some(fields) = self.reader.fields(field, &keys::LIMITS) else { return limits };
        let sizes = [
            ("record_bytes", &mut limits.record_bytes_max),
            ("key_bytes", &mut limits.key_bytes_max),
            ("header_bytes", &mut limits.header_bytes_max),
            ("identity_bytes", &mut limits.identity_bytes_max),
        ];
        for (key, limit) in sizes {
            if let Some(bytes) = self.size(&fields, key) {
                *limit = bytes;
            }
        }
        let depth_of = |text: &str| text.parse().ok().filter(|depth| (1..=JSON_DEPTH_MAX).contains(depth));
        if let Some(depth) = fields.get("json_depth").and_then(|field| self.reader.parsed(field, depth_of)) {
            limits.json_depth_max = depth.value;
        }
        limits
    }

    fn size(&mut self, fields: &Fields<'_>, key: &str) -> Option<usize> {
        let size = |text: &str| {
            let bytes = usize::try_from(units::size_bytes(text)?).ok()?;
            (1..=RECORD_BYTES_MAX).contains(&bytes).then_some(bytes)
        };
        self.reader.parsed(fields.get(key)?, size).map(|bytes| bytes.value)
    }
}
