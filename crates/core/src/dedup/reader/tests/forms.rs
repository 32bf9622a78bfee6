//! Goal: every form of identity, version, scope and kind is read as documented, and no bytes make any of them panic.
//! The tests share these helpers.

use serde_json::Value;

use super::*;
use crate::dedup::tests::paths;
use crate::dedup::{
    Action, Epoch, EpochPart, IdentityPart, Kinds, Limits, MissingPart, Names, OnNull, TimeUnit, VersionKind,
    VersionPart, describe_scope,
};

mod any;
mod identities;
mod kinds;
mod limits;
mod versions;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn json(parts: Vec<IdentityPart>) -> Rules {
    Rules { key_format: Format::Json, ..Rules::new(Identity { parts }, None) }
}

fn keyed<'a>(key: &'a str, value: &'a str) -> Record<'a> {
    Record { key: Some(key.as_bytes()), ..record(0, value.as_bytes()) }
}

trait NullKey {
    fn with_null_key(self) -> Self;
}

impl NullKey for Record<'_> {
    fn with_null_key(self) -> Self {
        Record { key: None, ..self }
    }
}

/// What was read from a record: identities, version, scope, kind, table.
#[derive(Debug, PartialEq)]
struct Contents {
    rows: Vec<String>,
    version: Option<String>,
    scope: Option<String>,
    kind: Kind,
    table: Option<String>,
}

fn try_read(rules: &Rules, record: &Record<'_>) -> Result<Contents, Rejection> {
    let mut reader = Reader::new(Arc::new(rules.clone()));
    let mut arena = b"before".to_vec();
    let reading = reader.read(record, &mut arena);
    if let Reading::Rejected(rejection) = reading {
        assert_eq!(arena, b"before");
        return Err(rejection);
    }
    let first = reading.rows()[0].clone();
    Ok(Contents {
        rows: reading.rows().iter().map(|row| describe_identity(&arena[row.key.clone()])).collect(),
        version: first.version.map(|range| reader.describe_version(&arena[range])),
        scope: first.scope.map(|range| describe_scope(&arena[range])),
        kind: first.kind,
        table: first.table.map(|range| describe_identity(&arena[range])),
    })
}

fn row(rules: &Rules, record: &Record<'_>) -> String {
    try_read(rules, record).unwrap().rows.remove(0)
}

fn because(rules: &Rules, record: &Record<'_>) -> Reason {
    try_read(rules, record).unwrap_err().reason
}

fn debezium() -> Rules {
    let text = |word: &str| Scalar::Text(word.to_owned());
    let mut rules = Rules::new(
        Identity { parts: vec![IdentityPart::Content(path("key"))] },
        Some(Version {
            parts: vec![VersionPart {
                none: vec![Scalar::Number(Number::parse("0").unwrap())],
                ..VersionPart::new(path("value.source.lsn"), VersionKind::Integer)
            }],
        }),
    );
    (rules.key_format, rules.value_format) = (Format::ConnectJson, Format::ConnectJson);
    rules.epoch =
        Some(Epoch { parts: vec![EpochPart { of: paths(&["value.source.name"]), none: vec![text("unknown")] }] });
    rules.kinds = Some(Kinds {
        of: paths(&["value.__op", "value.op"]),
        delete: vec![text("d"), Scalar::Bool(true)],
        read: vec![text("r"), Scalar::Number(Number::parse("1").unwrap())],
        reads: crate::dedup::Reads::Lose,
        truncate: vec![text("t")],
        message: vec![text("m")],
        none: Vec::new(),
        table: vec![paths(&["value.source.db"]), paths(&["value.source.table"])],
    });
    rules.actions.null_value = OnNull::FollowDelete;
    rules
}
