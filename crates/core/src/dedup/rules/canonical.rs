//! The rules as text, from which their digest and the tag of their contents are computed. This text must not change: a
//! topology whose digest has changed cannot continue with its state, and one whose tag has changed no longer compares
//! contents with those of its entries.

use std::fmt::{self, Display, Formatter};

use super::{Contents, ContentsPart, EpochPart, IdentityPart, Kinds, Names, Rules, Version, VersionPart};
use crate::dedup::path::{Path, Scalar, Source};
use crate::dedup::vocabulary::{MissingPart, VersionKind};

impl Rules {
    /// Everything that decides a verdict, line by line.
    pub fn canonical_text(&self) -> String {
        let mut text = String::from("ratchet rules 1\n");
        let mut line = |name: &str, value: &dyn Display| text.push_str(&format!("{name}: {value}\n"));
        line("key_format", &self.without_schemas(self.key_format));
        line("value_format", &self.without_schemas(self.value_format));
        self.identity.parts.iter().for_each(|part| line("identity", part));
        match &self.version {
            Some(version) => version.parts.iter().for_each(|part| line("version", part)),
            None => line("version", &"none"),
        }
        self.epoch.iter().flat_map(|epoch| &epoch.parts).for_each(|part| line("epoch", part));
        if let Some(Kinds { of, delete, read, reads: _, truncate, message, none: _, table }) = &self.kinds {
            line("kinds", &Listed(of));
            for (kind, words) in [("delete", delete), ("read", read), ("truncate", truncate), ("message", message)] {
                line(kind, &Listed(words));
            }
            table.iter().for_each(|places| line("table", &Listed(places)));
        }
        text
    }
}

/// `[a, b]`.
struct Listed<'a, T>(&'a [T]);

impl<T: Display> Display for Listed<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, item) in self.0.iter().enumerate() {
            write!(f, "{}{item}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl Display for Version {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Listed(&self.parts))
    }
}

impl Display for VersionPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { of, at_least, kind, min: _, unit, none, lenient, required, missing } = self;
        write!(f, "{kind} {}", Listed(of))?;
        if let Some(at_least) = at_least {
            write!(f, " at least {}", Listed(at_least))?;
        }
        if *kind == VersionKind::Timestamp {
            write!(f, " {unit}")?;
        }
        if !none.is_empty() {
            write!(f, " none {}", Listed(none))?;
        }
        if *lenient {
            f.write_str(" lenient")?;
        }
        if *required {
            f.write_str(" required")?;
        }
        // What stands in for a missing part reads like the part itself: what is remembered without it stays readable.
        if *missing == MissingPart::Highest {
            f.write_str(" missing highest")?;
        }
        Ok(())
    }
}

impl Display for EpochPart {
    /// Leaves out a constant's value: changing it means a new epoch, not other rules.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let place = |path: &Path| match path.source {
            Source::Const(_) => "const".to_owned(),
            _ => path.to_string(),
        };
        let places: Vec<_> = self.of.iter().map(place).collect();
        write!(f, "{}", Listed(&places))?;
        if self.none.is_empty() { Ok(()) } else { write!(f, " none {}", Listed(&self.none)) }
    }
}

impl Display for IdentityPart {
    /// As in the rules' digest: this must not change.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(path) => write!(f, "{path}"),
            Self::Content(path) => write!(f, "{{content: {path}}}"),
            Self::Fingerprint { of, except } => write!(f, "{{fingerprint: {of}, except: {}}}", Listed(except)),
            Self::Bucket { ms } => write!(f, "{{bucket: {ms}ms}}"),
            Self::FirstOf(alternatives) => {
                let alternatives: Vec<_> = alternatives.iter().map(|parts| Listed(parts)).collect();
                write!(f, "{{first_of: {}}}", Listed(&alternatives))
            }
            Self::Rows { of, named } => write!(f, "{{rows: {}, named: {named}}}", Listed(of)),
        }
    }
}

impl Display for Names {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Names::Given(names) => {
                let names: Vec<_> = names.iter().map(|name| Scalar::Text(name.clone())).collect();
                write!(f, "{}", Listed(&names))
            }
            Names::At(path) => write!(f, "{path}"),
        }
    }
}

impl Display for Contents {
    /// As hashed by [`Contents::tag`]: this must not change.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Listed(&self.parts))
    }
}

impl Display for ContentsPart {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written(path) => write!(f, "{path}"),
            Self::Fingerprint { of, except } => write!(f, "{{fingerprint: {of}, except: {}}}", Listed(except)),
            Self::Rows(of) => write!(f, "{{rows: {}}}", Listed(of)),
            Self::Flattened(path) => write!(f, "{{flattened: {path}}}"),
            Self::FirstOf(parts) => write!(f, "{{first_of: {}}}", Listed(parts)),
        }
    }
}
