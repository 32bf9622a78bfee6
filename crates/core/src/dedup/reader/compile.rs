//! Rules with everything resolved that does not depend on a record: which paths lead into which document, and what is
//! compared with what.

use crate::dedup::by_schema::JsonLimits;
use crate::dedup::document::{Document, Paths};
use crate::dedup::number;
use crate::dedup::path::{Path, Scalar, Source};
use crate::dedup::rules::{Kinds, Rules, VersionPart};
use crate::dedup::steps::PathIndex;
use crate::dedup::version;
use crate::schemas::Sources;

use super::contents::ContentsPlan;
use super::identity::PartPlan;
use crate::dedup::vocabulary::{Format, Kind, MissingPart, TimeUnit, VersionKind};

/// Maximum recursion depth in a document, whatever the limits say.
const DEPTH_MAX: usize = 512;

/// Where a path leads, with everything resolved.
#[derive(Debug)]
pub(super) enum Target {
    Key,
    Value,
    InKey(PathIndex),
    InValue(PathIndex),
    Header(Vec<u8>),
    Topic,
    Partition,
    Offset,
    Timestamp,
    Const(Scalar),
}

/// A target, and the path to name in messages.
#[derive(Debug)]
pub(super) struct Spot {
    pub target: Target,
    pub path: Path,
}

/// A constant to compare values with, by type and value.
#[derive(Debug)]
pub(super) enum Word {
    Bool(bool),
    /// In canonical form.
    Number(Vec<u8>),
    Text(Vec<u8>),
}

/// See [`VersionPart`].
#[derive(Debug)]
pub(super) struct VersionPlan {
    pub of: Vec<Spot>,
    /// Empty if the part is not raised.
    pub at_least: Vec<Spot>,
    pub kind: VersionKind,
    /// The minimum, and its encoding as a version.
    pub min: Option<(i64, Vec<u8>)>,
    pub unit: TimeUnit,
    pub none: Vec<Word>,
    pub lenient: bool,
    pub required: bool,
    pub missing: MissingPart,
}

/// A part of the scope.
#[derive(Debug)]
pub(super) struct EpochPlan {
    pub of: Vec<Spot>,
    pub none: Vec<Word>,
}

/// See [`Kinds`].
#[derive(Debug)]
pub(super) struct KindsPlan {
    pub of: Vec<Spot>,
    pub words: Vec<(Word, Kind)>,
    /// The words for records that are about no row.
    pub none: Vec<Word>,
    pub table: Vec<Vec<Spot>>,
    /// Whether the rules know truncates, so that a row's table may have one.
    pub truncates: bool,
}

/// The rules in the form that a reader needs.
#[derive(Debug)]
pub(super) struct Plan {
    pub identity: Vec<PartPlan>,
    pub version: Vec<VersionPlan>,
    pub epoch: Vec<EpochPlan>,
    pub kinds: Option<KindsPlan>,
    /// `None` if contents are not compared.
    pub contents: Option<ContentsPlan>,
    /// Whether binlogs' base names are part of the scope.
    pub binlog: bool,
}

/// A plan, and the readers of the documents that it needs.
pub(super) struct Compiled {
    pub plan: Plan,
    /// The key's.
    pub key: Option<Document>,
    /// The value's.
    pub value: Option<Document>,
}

/// The plan of these rules.
pub(super) fn compile(rules: &Rules, sources: &Sources) -> Compiled {
    let mut compiler = Compiler::new(rules, sources);
    let identity = compiler.parts(&rules.identity.parts);
    let version: Vec<_> = rules.version.iter().flat_map(|v| &v.parts).map(|part| compiler.version(part)).collect();
    let epoch = rules.epoch.iter().flat_map(|epoch| &epoch.parts);
    let epoch = epoch.map(|part| EpochPlan { of: compiler.spots(&part.of), none: words(&part.none) }).collect();
    let kinds = rules.kinds.as_ref().map(|kinds| compiler.kinds(kinds));
    let contents = rules.contents.as_ref().map(|contents| compiler.contents(contents));
    let binlog = version.iter().any(|part| part.kind == VersionKind::Binlog);
    let (key, value) = compiler.documents();
    Compiled { plan: Plan { identity, version, epoch, kinds, contents, binlog }, key, value }
}

/// Builds a plan; collects the paths into the documents that it needs.
pub(super) struct Compiler<'r> {
    rules: &'r Rules,
    sources: &'r Sources,
    key: Paths<'r>,
    value: Paths<'r>,
    /// Whether whole documents are walked, recursively.
    deep: bool,
}

impl<'r> Compiler<'r> {
    pub(super) fn new(rules: &'r Rules, sources: &'r Sources) -> Self {
        Self { rules, sources, key: Paths::default(), value: Paths::default(), deep: false }
    }

    /// The readers of keys and values, for all places that were asked for.
    pub(super) fn documents(&self) -> (Option<Document>, Option<Document>) {
        (self.document_of(&self.key, true), self.document_of(&self.value, false))
    }

    fn document_of(&self, paths: &Paths<'_>, is_key: bool) -> Option<Document> {
        let format = if is_key { self.rules.key_format } else { self.rules.value_format };
        let depth_max = self.rules.limits.json_depth_max;
        let depth_max = if self.deep { depth_max.min(DEPTH_MAX) } else { depth_max };
        (!paths.is_empty()).then(|| {
            let is_wrapped = self.rules.json_format == Format::ConnectJson;
            Document::new(format, is_key, paths, JsonLimits { depth_max, is_wrapped }, self.sources)
        })
    }

    /// Where a scalar is: a key or value without steps is its raw bytes.
    pub(super) fn spot(&mut self, path: &'r Path) -> Spot {
        let target = if path.is_inside() { self.inside(path, false) } else { None };
        Spot { target: target.unwrap_or_else(|| whole(&path.source)), path: path.clone() }
    }

    /// Where a document is: a key or value without steps is one, unless its format is bytes.
    pub(super) fn document(&mut self, path: &'r Path) -> Spot {
        self.document_at(path, false)
    }

    /// The same for a document that is of use only if it is flattened.
    pub(super) fn flattened(&mut self, path: &'r Path) -> Spot {
        self.document_at(path, true)
    }

    fn document_at(&mut self, path: &'r Path, is_flattened: bool) -> Spot {
        self.deep = true;
        let format = match path.source {
            Source::Key => self.rules.key_format,
            _ => self.rules.value_format,
        };
        let target = if path.is_inside() || format != Format::Bytes { self.inside(path, is_flattened) } else { None };
        Spot { target: target.unwrap_or_else(|| whole(&path.source)), path: path.clone() }
    }

    fn inside(&mut self, path: &'r Path, is_flattened: bool) -> Option<Target> {
        match path.source {
            Source::Key => Some(Target::InKey(self.key.add(&path.steps, is_flattened))),
            Source::Value => Some(Target::InValue(self.value.add(&path.steps, is_flattened))),
            _ => None,
        }
    }

    fn spots(&mut self, paths: &'r [Path]) -> Vec<Spot> {
        paths.iter().map(|path| self.spot(path)).collect()
    }

    fn version(&mut self, part: &'r VersionPart) -> VersionPlan {
        let VersionPart { of, at_least, kind, min, unit, none, lenient, required, missing } = part;
        let of = match kind {
            VersionKind::Sequence => self.arrays(of),
            _ => self.spots(of),
        };
        let at_least = self.arrays(at_least.as_deref().unwrap_or_default());
        let min = min.filter(|_| *kind == VersionKind::Integer).map(|min| {
            let mut bytes = Vec::new();
            version::push_i64(min, &mut bytes);
            (min, bytes)
        });
        let (kind, unit, none, missing) = (*kind, *unit, words(none), *missing);
        VersionPlan { of, at_least, kind, min, unit, none, lenient: *lenient, required: *required, missing }
    }

    /// Where arrays may be: the key or the value itself may be one.
    fn arrays(&mut self, paths: &'r [Path]) -> Vec<Spot> {
        paths.iter().map(|path| self.document(path)).collect()
    }

    fn kinds(&mut self, kinds: &'r Kinds) -> KindsPlan {
        let Kinds { of, delete, read, truncate, message, none, table, .. } = kinds;
        let lists = [(delete, Kind::Delete), (read, Kind::Read), (truncate, Kind::Truncate), (message, Kind::Message)];
        let with_kind = |(list, kind): (&Vec<Scalar>, Kind)| {
            words(list).into_iter().map(move |word| (word, kind)).collect::<Vec<_>>()
        };
        KindsPlan {
            of: self.spots(of),
            words: lists.into_iter().flat_map(with_kind).collect(),
            none: words(none),
            table: table.iter().map(|places| self.spots(places)).collect(),
            truncates: !truncate.is_empty(),
        }
    }
}

fn words(scalars: &[Scalar]) -> Vec<Word> {
    let word = |scalar: &Scalar| match scalar {
        Scalar::Bool(value) => Word::Bool(*value),
        Scalar::Text(text) => Word::Text(text.clone().into_bytes()),
        Scalar::Number(number) => {
            let mut canonical = Vec::new();
            // A constant's exponent is never too long.
            let _ = number::write_canonical(number.as_str().as_bytes(), &mut canonical);
            Word::Number(canonical)
        }
    };
    scalars.iter().map(word).collect()
}

fn whole(source: &Source) -> Target {
    match source {
        Source::Key => Target::Key,
        Source::Value => Target::Value,
        Source::Header(name) => Target::Header(name.as_bytes().to_vec()),
        Source::Topic => Target::Topic,
        Source::Partition => Target::Partition,
        Source::Offset => Target::Offset,
        Source::Timestamp => Target::Timestamp,
        Source::Const(scalar) => Target::Const(scalar.clone()),
    }
}
