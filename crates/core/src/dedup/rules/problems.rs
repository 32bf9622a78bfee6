//! How rules contradict themselves.

use super::{Contents, ContentsPart, IdentityPart, Kinds, Names, Rules, VersionPart};
use crate::dedup::path::{Path, Scalar, Source};
use crate::dedup::vocabulary::{Format, MissingPart, TimeUnit, VersionKind};

/// A contradiction in rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An identity without parts: every record would be the same thing.
    #[error("the identity has no parts; name at least one path")]
    NoIdentity,
    /// A path inside something other than JSON.
    #[error(
        "`{path}` reads inside the {what}, which is bytes; write `{what}_format: json`, or use `{what}` as a whole"
    )]
    InsideBytes {
        /// The path.
        path: String,
        /// `key` or `value`.
        what: &'static str,
    },
    /// A path with steps into a header, a constant or the record's place.
    #[error("`{path}` cannot be read inside of; only keys and values can")]
    InsideScalar {
        /// The path.
        path: String,
    },
    /// An identity of constants only: every record would be the same thing.
    #[error("the identity holds constants only, so all records would be the same thing; name a path")]
    ConstantIdentity,
    /// A whole key or value as a document although its format is bytes.
    #[error("`{form}: {path}` needs JSON, and the {path} is bytes; write `{path}_format: json`")]
    BytesAsDocument {
        /// `content`, `fingerprint` or `rows`.
        form: &'static str,
        /// `key` or `value`.
        path: String,
    },
    /// A header, a constant or the record's place as a document.
    #[error("`{form}: {path}` needs JSON, which only keys and values hold")]
    NotDocument {
        /// `content`, `fingerprint` or `rows`.
        form: &'static str,
        /// The path.
        path: String,
    },
    /// A place to leave out of a fingerprint that is not in its document.
    #[error("`except: {path}` is not inside of `{of}`, of which the fingerprint is made")]
    ExceptOutside {
        /// What is left out.
        path: String,
        /// What the fingerprint is of.
        of: String,
    },
    /// An empty list, which says nothing.
    #[error("`{what}` is an empty list; name at least one {of}")]
    Empty {
        /// The list's name.
        what: &'static str,
        /// What it should contain.
        of: &'static str,
    },
    /// A bucket without length.
    #[error("a bucket lasts at least 1 ms")]
    NoBucket,
    /// Two parts that produce rows.
    #[error("the identity has several `rows`; a record's rows come from one place")]
    SeveralRows,
    /// A required part of a version that also says where it sorts when missing.
    #[error("`{path}` is `required`, so `missing: highest` has no effect; leave one of them out")]
    RequiredHighest {
        /// The part's first path.
        path: String,
    },
    /// A part that is to be replaced, when missing, by something that is not named.
    #[error("`missing: at_least` needs `at_least`, which says what stands in for `{path}`")]
    NothingAtLeast {
        /// The part's first path.
        path: String,
    },
    /// A setting that only integers can have.
    #[error("`{key}` belongs to `as: integer`, and `{path}` is read `as: {kind}`")]
    WithoutInteger {
        /// The setting.
        key: &'static str,
        /// The part's first path.
        path: String,
        /// How it is read.
        kind: VersionKind,
    },
    /// A unit on something other than a timestamp.
    #[error("`unit` belongs to `as: timestamp`, and `{path}` is read `as: {kind}`")]
    UnitWithoutTimestamp {
        /// The part's first path.
        path: String,
        /// How it is read.
        kind: VersionKind,
    },
    /// A scope for versions, but no version.
    #[error("`epoch` says which versions are comparable, and there is no `version`")]
    EpochWithoutVersion,
    /// One word for two kinds.
    #[error("`kinds` says of {word} that it is a {first} and a {second}")]
    TwoKinds {
        /// The word.
        word: String,
        /// One kind.
        first: &'static str,
        /// The other kind.
        second: &'static str,
    },
}

impl Rules {
    /// All contradictions in the rules. [`crate::dedup::Reader`] reads by such rules without panicking, but not as
    /// anyone would expect.
    pub fn problems(&self) -> Vec<Error> {
        let mut problems = Vec::new();
        if self.identity.parts.is_empty() {
            problems.push(Error::NoIdentity);
        } else if self.identity.parts.iter().all(IdentityPart::is_constant) {
            problems.push(Error::ConstantIdentity);
        }
        self.paths().into_iter().for_each(|path| problems.extend(self.path_problem(path)));
        self.identity.parts.iter().for_each(|part| part.problems(self, &mut problems));
        if rows(&self.identity.parts) > 1 {
            problems.push(Error::SeveralRows);
        }
        if let Some(version) = &self.version {
            problems.extend(empty("version", "path", &version.parts));
            version.parts.iter().for_each(|part| version_problems(part, &mut problems));
        }
        if let Some(epoch) = &self.epoch {
            problems.extend(empty("epoch", "path", &epoch.parts));
            epoch.parts.iter().for_each(|part| problems.extend(empty("of", "path", &part.of)));
            if self.version.is_none() {
                problems.push(Error::EpochWithoutVersion);
            }
        }
        if let Some(kinds) = &self.kinds {
            kinds_problems(kinds, &mut problems);
        }
        if let Some(contents) = &self.contents {
            contents.problems(self, &mut problems);
        }
        problems
    }

    fn path_problem(&self, path: &Path) -> Option<Error> {
        if !path.is_inside() {
            return None;
        }
        let (what, format) = match path.source {
            Source::Key => ("key", self.key_format),
            Source::Value => ("value", self.value_format),
            _ => return Some(Error::InsideScalar { path: path.to_string() }),
        };
        (format == Format::Bytes).then(|| Error::InsideBytes { path: path.to_string(), what })
    }

    /// Why there is no document at `path`. Paths inside bytes are not reported here: `path_problem` does that
    /// for every path.
    fn document_problem(&self, form: &'static str, path: &Path) -> Option<Error> {
        let format = match path.source {
            Source::Key => self.key_format,
            Source::Value => self.value_format,
            _ => return Some(Error::NotDocument { form, path: path.to_string() }),
        };
        let is_bytes = format == Format::Bytes && !path.is_inside();
        is_bytes.then(|| Error::BytesAsDocument { form, path: path.to_string() })
    }
}

fn empty<T>(what: &'static str, of: &'static str, list: &[T]) -> Option<Error> {
    list.is_empty().then_some(Error::Empty { what, of })
}

fn version_problems(part: &VersionPart, problems: &mut Vec<Error>) {
    problems.extend(empty("of", "path", &part.of));
    problems.extend(part.at_least.as_ref().and_then(|places| empty("at_least", "path", places)));
    let path = part.of.first().map(Path::to_string).unwrap_or_default();
    for (key, is_given) in [("at_least", part.at_least.is_some()), ("min", part.min.is_some())] {
        if is_given && part.kind != VersionKind::Integer {
            problems.push(Error::WithoutInteger { key, path: path.clone(), kind: part.kind });
        }
    }
    if part.missing == MissingPart::AtLeast && part.at_least.is_none() {
        problems.push(Error::NothingAtLeast { path: path.clone() });
    }
    if part.required && part.missing == MissingPart::Highest {
        problems.push(Error::RequiredHighest { path: path.clone() });
    }
    if part.kind != VersionKind::Timestamp && part.unit != TimeUnit::Milliseconds {
        problems.push(Error::UnitWithoutTimestamp { path, kind: part.kind });
    }
}

fn kinds_problems(kinds: &Kinds, problems: &mut Vec<Error>) {
    let Kinds { of, delete, read, truncate, message, none, table, .. } = kinds;
    problems.extend(empty("of", "path", of));
    table.iter().for_each(|places| problems.extend(empty("table", "path", places)));
    let lists = [("delete", delete), ("read", read), ("truncate", truncate), ("message", message), ("none", none)];
    for (i, (second, words)) in lists.iter().enumerate() {
        for (first, earlier) in &lists[..i] {
            let twice = words.iter().filter(|word: &&Scalar| earlier.contains(word));
            problems.extend(twice.map(|word| Error::TwoKinds { word: word.to_string(), first, second }));
        }
    }
}

impl IdentityPart {
    /// Appends the ways in which it contradicts itself or the rules.
    fn problems(&self, rules: &Rules, problems: &mut Vec<Error>) {
        match self {
            Self::Scalar(_) => {}
            Self::Content(path) => problems.extend(rules.document_problem("content", path)),
            Self::Fingerprint { of, except } => {
                problems.extend(rules.document_problem("fingerprint", of));
                let outside = except.iter().filter(|path| path.within(of).is_none());
                problems
                    .extend(outside.map(|path| Error::ExceptOutside { path: path.to_string(), of: of.to_string() }));
            }
            Self::Bucket { ms } => problems.extend((*ms < 1).then_some(Error::NoBucket)),
            Self::FirstOf(alternatives) => {
                problems.extend(empty("first_of", "alternative", alternatives));
                alternatives.iter().for_each(|parts| problems.extend(empty("first_of", "path", parts)));
                alternatives.iter().flatten().for_each(|part| part.problems(rules, problems));
            }
            Self::Rows { of, named } => {
                problems.extend(empty("rows", "path", of));
                of.iter().for_each(|path| problems.extend(rules.document_problem("rows", path)));
                match named {
                    Names::Given(names) => problems.extend(empty("named", "field", names)),
                    Names::At(path) => problems.extend(rules.document_problem("named", path)),
                }
            }
        }
    }
}

/// The largest number of parts producing rows that an identity with these parts can have.
fn rows(parts: &[IdentityPart]) -> usize {
    let count = |part: &IdentityPart| match part {
        IdentityPart::Rows { .. } => 1,
        IdentityPart::FirstOf(alternatives) => alternatives.iter().map(|parts| rows(parts)).max().unwrap_or(0),
        IdentityPart::Scalar(_)
        | IdentityPart::Content(_)
        | IdentityPart::Fingerprint { .. }
        | IdentityPart::Bucket { .. } => 0,
    };
    parts.iter().map(count).sum()
}

impl Contents {
    /// Appends its contradictions, within itself and with the rules.
    fn problems(&self, rules: &Rules, problems: &mut Vec<Error>) {
        problems.extend(empty("contents", "path", &self.parts));
        self.parts.iter().for_each(|part| part.problems(rules, problems));
    }
}

impl ContentsPart {
    fn problems(&self, rules: &Rules, problems: &mut Vec<Error>) {
        match self {
            Self::Written(_) => {}
            Self::Fingerprint { of, except } => {
                let part = IdentityPart::Fingerprint { of: of.clone(), except: except.clone() };
                part.problems(rules, problems);
            }
            Self::Rows(of) => {
                let named = Names::Given(vec![String::new()]);
                IdentityPart::Rows { of: of.clone(), named }.problems(rules, problems);
            }
            Self::Flattened(path) => problems.extend(rules.document_problem("flattened", path)),
            Self::FirstOf(parts) => {
                problems.extend(empty("first_of", "path", parts));
                parts.iter().for_each(|part| part.problems(rules, problems));
            }
        }
    }
}
