//! Checks what identity, version, epoch and kinds mean together.

use crate::dedup::{Format, IdentityPart, MissingPart, Source, VersionKind, VersionPart};
use crate::yaml::Place;

use super::compiler::Compiler;
use crate::topology::spec::KindsSpec;

impl Compiler<'_> {
    /// Whether versions have a scope.
    pub fn has_scope(&self) -> bool {
        let version = self.spec.version.as_ref();
        let binlog = |version: &crate::topology::spec::VersionSpec| {
            !version.complete || version.parts.iter().any(|part| part.part.kind == VersionKind::Binlog)
        };
        self.spec.epoch_place.is_some() || version.is_some_and(binlog)
    }

    pub fn check_rules(&mut self) {
        self.check_formats();
        self.check_identity();
        self.check_version();
        self.check_epoch();
        if let Some(kinds) = &self.spec.kinds {
            self.check_kinds(kinds);
        }
    }

    /// Paths into something other than JSON, or to a document that is not JSON.
    fn check_formats(&mut self) {
        if !self.spec.input.formats_known {
            return;
        }
        let (key_format, value_format) = (&self.spec.input.key_format, &self.spec.input.value_format);
        let mut preset_reported = Vec::new();
        for spec in &self.spec.paths {
            let (path, place) = (&spec.path.value, spec.path.place);
            let (what, written, default) = match path.source {
                Source::Key => ("key", key_format, Format::Bytes),
                Source::Value => ("value", value_format, Format::Json),
                _ if spec.json => {
                    let message = format!("`{path}` holds no JSON; only the key and the value may");
                    self.mistake(place, message, "needs JSON", "write e.g. `key` or `value.order`");
                    continue;
                }
                _ => continue,
            };
            let format = written.as_ref().map_or(default, |format| format.value);
            if !(path.is_inside() || spec.json) || format != Format::Bytes {
                continue;
            }
            if let Some(written) = written.as_ref().filter(|_| Some(place) == self.spec.preset_place) {
                if !preset_reported.contains(&what) {
                    preset_reported.push(what);
                    let message = format!("the preset reads inside the {what}, whose format is {format}");
                    let help = match path.source {
                        // what the hint about malformed keys says to write
                        Source::Key => format!(
                            "remove `{what}_format`: the preset knows the one that it needs; or, if keys are not JSON, \
                             write `identity: key` as well"
                        ),
                        _ => format!("remove `{what}_format`: the preset knows the one that it needs"),
                    };
                    self.mistake(written.place, message, "needs JSON", help);
                }
            } else {
                let message = format!("this path reads inside the {what}, whose format is {format}");
                let help = format!("write `{what}_format: json` under `input`, or `{what}` for all of its bytes");
                self.mistake(place, message, "needs JSON", help);
            }
        }
    }

    fn check_identity(&mut self) {
        let parts = &self.spec.identity.parts;
        for (index, part) in parts.iter().enumerate() {
            if parts[..index].iter().any(|other| other.value == part.value) {
                let message = "this part stands in `identity` twice".to_owned();
                self.mistake(part.place, message, "again", "remove one of them");
            }
            if let IdentityPart::FirstOf(alternatives) = &part.value {
                self.check_alternatives(alternatives, part.place);
            }
        }
        if let Some(second) = parts.iter().filter(|part| matches!(part.value, IdentityPart::Rows { .. })).nth(1) {
            let message = "`identity` has several `rows`: those of a record come from one place".to_owned();
            let help = "write one, e.g. `{rows: {first_of: [value.after, value.before]}, named: [id]}`";
            self.mistake(second.place, message, "another one", help);
        }
        if self.spec.identity.complete && parts.iter().all(|part| part.value.is_same_within_a_partition()) {
            let message = "`identity` is the same for all records of a partition".to_owned();
            let help = "name what says which thing a record is about, e.g. `identity: value.order_id`";
            self.mistake(self.spec.identity_place, message, "all but the first would be duplicates", help);
        }
    }

    /// Alternatives that are never reached, or that say nothing.
    fn check_alternatives(&mut self, alternatives: &[Vec<IdentityPart>], place: Place) {
        let never_missing = |part: &IdentityPart| match part {
            IdentityPart::Scalar(path) => {
                matches!(path.source, Source::Const(_) | Source::Topic | Source::Partition | Source::Offset)
            }
            _ => false,
        };
        let last = alternatives.len().saturating_sub(1);
        if let Some(index) = alternatives.iter().position(|parts| parts.iter().all(never_missing))
            && index < last
        {
            let message = format!("no alternative after number {} of this `first_of` is ever looked at", index + 1);
            let help = "put what is never missing last";
            self.mistake(place, message, "that one is never missing", help);
        }
        let same =
            |parts: &Vec<IdentityPart>| !parts.is_empty() && parts.iter().all(IdentityPart::is_same_within_a_partition);
        if alternatives.iter().any(same) && !alternatives.iter().all(same) {
            let message = "an alternative of this `first_of` is the same for all records of a partition".to_owned();
            let help = "records that have nothing else would be one thing: remove it, and see `on_missing`";
            self.mistake(place, message, "all but the first would be duplicates", help);
        }
    }

    fn check_version(&mut self) {
        let Some(version) = &self.spec.version else { return };
        for (index, spec) in version.parts.iter().enumerate() {
            let part = &spec.part;
            for path in &part.of {
                let problem = match path.source {
                    Source::Topic => "a topic's name does not grow",
                    Source::Partition => "the partition is the same for all records of a task",
                    _ => continue,
                };
                let help = "name what says which record is newer, e.g. `{of: value.version, as: integer}`";
                self.mistake(spec.place, "this cannot be a version".to_owned(), problem, help);
            }
            let same =
                |other: &VersionPart| (&other.of, &other.at_least, other.kind) == (&part.of, &part.at_least, part.kind);
            if version.parts[..index].iter().any(|other| same(&other.part)) {
                let message = "this part stands in `version` twice".to_owned();
                self.mistake(spec.place, message, "again", "remove one of them");
            }
            let of_integers = [("at_least", spec.at_least), ("min", spec.min.as_ref().map(|min| min.place))];
            let of_integers = of_integers.into_iter().filter(|_| part.kind != VersionKind::Integer);
            for (key, place) in of_integers.filter_map(|(key, place)| Some((key, place?))) {
                let message = format!("`{key}` does not apply to `as: {}`", part.kind);
                self.mistake(place, message, "never looked at", "remove it, or write `as: integer`");
            }
            if let Some(unit) = spec.unit.as_ref().filter(|_| part.kind != VersionKind::Timestamp) {
                let message = format!("`unit` does not apply to `as: {}`", part.kind);
                self.mistake(unit.place, message, "never looked at", "remove it, or write `as: timestamp`");
            }
            let Some(missing) = &spec.missing else { continue };
            if missing.value == MissingPart::AtLeast {
                if spec.at_least.is_none() {
                    let message = "`missing: at_least` needs `at_least`".to_owned();
                    let help = "say what stands in for the part, e.g. `at_least: value.source.sequence`";
                    self.mistake(missing.place, message, "nothing stands in for it", help);
                }
                continue;
            }
            if spec.required.as_ref().is_some_and(|required| required.value) {
                let message = "`missing` does not apply to a part that is required".to_owned();
                self.mistake(missing.place, message, "never looked at", "remove `missing` or `required`");
            } else if version.complete && version.parts.len() == 1 {
                let message = "`missing` does not apply to the only part: without it there is no version".to_owned();
                let help = "remove it, and see `on_missing_version`";
                self.mistake(missing.place, message, "never looked at", help);
            }
        }
    }

    fn check_epoch(&mut self) {
        if let Some(place) = self.spec.epoch_place.filter(|_| self.spec.version_place.is_none()) {
            let message = "`epoch` has no effect without a `version`".to_owned();
            let help =
                "add `version: {of: value.version, as: integer}`, or put what tells things apart into `identity`";
            self.mistake(place, message, "it scopes versions", help);
        }
        let Some(parts) = &self.spec.epoch else { return };
        for (index, part) in parts.iter().enumerate() {
            if parts[..index].iter().any(|other| other.value == part.value) {
                let message = "this part stands in `epoch` twice".to_owned();
                self.mistake(part.place, message, "again", "remove one of them");
            }
        }
    }

    fn check_kinds(&mut self, kinds: &KindsSpec) {
        if kinds.names_no_kind() && self.preset.is_some() {
            let message = "`kinds` with `of` replaces the preset's, and names no kind".to_owned();
            let help = "remove `of`: the other keys then change the preset's `kinds`; or write the words of all kinds";
            self.mistake(kinds.place, message, "every record is a plain change", help);
            return;
        }
        if kinds.names_no_kind() {
            let message = "`kinds` names no kind".to_owned();
            let help = "say what a delete looks like, e.g. `kinds: {of: value.op, delete: [d]}`";
            self.mistake(kinds.place, message, "every record is a plain change", help);
        }
        if self.spec.version_place.is_none() {
            for key in ["read", "truncate", "message"] {
                if let Some(place) = kinds.key(key) {
                    let message = format!("`kinds.{key}` has no effect without a `version`");
                    let help = format!("add `version: {{of: value.version, as: integer}}`, or remove `{key}`");
                    self.mistake(place, message, "such records are told apart by their version", help);
                }
            }
        }
        if let (Some(reads), None) = (kinds.key("reads"), kinds.key("read")) {
            let message = "`kinds.reads` has no effect without `kinds.read`".to_owned();
            let help = "remove it, or say what a snapshot's read looks like, e.g. `read: [r]`";
            self.mistake(reads, message, "never looked at", help);
        }
        match (kinds.key("truncate").or(kinds.key("message")), kinds.key("table")) {
            (None, Some(table)) => {
                let message = "`kinds.table` has no effect without `truncate` or `message`".to_owned();
                self.mistake(table, message, "never looked at", "remove it, or say what a truncate looks like");
            }
            (Some(_), None) if let Some(truncate) = kinds.key("truncate") => {
                let message = "`kinds.truncate` needs `kinds.table`".to_owned();
                let help = "say which table is emptied, e.g. `table: [value.source.schema, value.source.table]`";
                self.mistake(truncate, message, "it has no row", help);
            }
            _ => {}
        }
        self.check_kinds_in_keys(kinds);
        for (index, (kind, words)) in kinds.words.iter().enumerate() {
            for word in words {
                let first = kinds.words[..index]
                    .iter()
                    .find(|(_, others)| others.iter().any(|other| other.value == word.value));
                if let Some((first, _)) = first {
                    let message = format!("{} stands in `kinds.{first}` and in `kinds.{kind}`", word.value);
                    self.mistake(word.place, message, "again", "one word means one kind: remove one of them");
                }
            }
        }
    }

    /// A record about no row is recognised before its key is read: anything may stand there.
    fn check_kinds_in_keys(&mut self, kinds: &KindsSpec) {
        let (Some(place), Some(read)) = (kinds.key("none"), &kinds.kinds) else { return };
        if let Some(path) = read.of.iter().find(|path| path.source == Source::Key && path.is_inside()) {
            let message = format!("`kinds.none` cannot be told from `{path}`");
            let help =
                "name a field of the value or a header in `of`: the key of a record about no row may hold anything";
            self.mistake(place, message, "keys are not read for it", help);
        }
    }
}
