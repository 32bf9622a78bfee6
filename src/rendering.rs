//! What a record causes in a sink: in a database, the statements that it calls, and their parameters as text; at a
//! provider, the [`request`] that it makes, or the [`work`] that it gives a handler. Of parameters:
//!
//! - a text in JSON is written without quotes and escapes; numbers, objects and arrays exactly as they stand there;
//!   what is missing or null is null
//! - a whole key, value or header is its bytes, which have to be UTF-8
//! - a row is the JSON object as it stands in the record
//! - if the record carries its Connect schema, values of logical types (decimals, dates, times) are decoded from the numbers
//!   and the base64 that Connect writes, and beside a row stands which of its fields are texts, and so no such base64
//!
//! PostgreSQL then reads each text as the type that the statement needs. Nothing is rendered but what is in the record:
//! no clock, no random number. So a record that is rendered again gives the same.
//!
//! **An inbox's identity** is the store key (see [`crate::dedup::identity`]); where the record is in a scope, a byte
//! `22`, which no part begins with, and the scope's bytes follow: versions of another scope do not compare.
//!
//! **Failure.** A record that cannot be rendered gives words without anything of its content, and leaves no effect; the
//! topology's `on_rejected` says what becomes of it.

use sha2::{Digest, Sha256};

use crate::dedup::{self, Fields, Kind, Path, Places, Wanted};
use crate::effect::Effects;
use crate::record::Record;
use crate::topology::Topology;
use crate::topology::sink::{Command, Parameter, Postgres, Sink};
use crate::words::counted;

pub mod request;
mod settings;
#[cfg(test)]
mod tests;
pub mod work;

pub use settings::{constants, gate, handler, provider, settings, sink};

/// What separates an identity from its scope.
const SCOPE: u8 = 0x22;
/// What begins the digest of an outbox's id, so that no other digest is the same.
const OUTBOX: &[u8] = b"ratchet outbox id 1";

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Renders one record after the other, reusing its buffers.
#[derive(Debug)]
pub struct Renderer {
    topology: String,
    /// Whether records have versions, so that one without is told apart by its place.
    is_versioned: bool,
    fields: Fields,
    /// What each kind calls, in the order of [`Kind::ALL`].
    by_kind: Vec<Vec<Call>>,
    identity: Vec<u8>,
}

/// A statement to call.
#[derive(Debug)]
struct Call {
    statement: u32,
    with: Vec<Plan>,
}

/// A parameter, its paths resolved to numbers of fields.
#[derive(Clone, Debug)]
enum Plan {
    /// The first that is there.
    First(Vec<usize>),
    /// The first of these objects all of whose key is there.
    Row(Vec<RowPlan>),
    Digest,
}

#[derive(Clone, Debug)]
struct RowPlan {
    object: usize,
    key: Vec<usize>,
}

/// The only row of a record: a sink takes none with several, and none that cannot be read.
fn only_row(rows: &[dedup::Row]) -> Result<&dedup::Row, String> {
    match rows {
        [row] => Ok(row),
        [] => Err("the record cannot be read, so nothing says what it causes".to_owned()),
        rows => Err(format!("the record has {}, and a sink takes records of one row", counted(rows.len(), "row"))),
    }
}

impl Renderer {
    /// A renderer of what this topology's records cause; `None` if it does not end in a database.
    pub fn new(topology: &Topology) -> Option<Self> {
        let Sink::Postgres(Postgres { statements, .. }) = topology.sink()? else { return None };
        let mut wanted = Wanted::default();
        let plans: Vec<Vec<Plan>> = statements
            .iter()
            .map(|statement| statement.with.iter().map(|parameter| plan(parameter, &mut wanted)).collect())
            .collect();
        let called_by = |kind: &Kind| {
            let of_kind = (0_u32..).zip(statements).zip(&plans).filter(|((_, called), _)| called.kinds.contains(kind));
            of_kind.map(|((statement, _), with)| Call { statement, with: with.clone() }).collect()
        };
        Some(Self {
            topology: topology.name.clone(),
            is_versioned: topology.rules.version.is_some(),
            by_kind: Kind::ALL.iter().map(called_by).collect(),
            fields: Fields::new(&topology.rules, &topology.schemas, &wanted),
            identity: Vec::new(),
        })
    }

    /// Whether it reads keys, and whether it reads values.
    pub fn reads(&self) -> (bool, bool) {
        self.fields.reads()
    }

    /// Appends what `record` causes to `effects`: exactly one effect, without calls if its kind has no statements. `rows`
    /// is what was read of it, its ranges in `arena`.
    ///
    /// # Errors
    /// Why the record cannot have an effect, in words without anything of its content; `effects` is as it was.
    pub fn render(
        &mut self,
        record: &Record<'_>,
        rows: &[dedup::Row],
        arena: &[u8],
        effects: &mut Effects,
    ) -> Result<(), String> {
        let row = only_row(rows)?;
        let Self { topology, is_versioned, fields, by_kind, identity } = self;
        let calls = &by_kind[row.kind as usize];
        let version = row.version.clone().map(|version| &arena[version]);
        identity.clear();
        identity.extend_from_slice(&arena[row.key.clone()]);
        if let Some(scope) = row.scope.clone() {
            identity.push(SCOPE);
            identity.extend_from_slice(&arena[scope]);
        }
        if !calls.is_empty() {
            fields.scan(record).map_err(|rejection| rejection.message)?;
        }
        effects.begin(record.offset, identity, version);
        for call in calls {
            effects.call(call.statement);
            for (number, plan) in (1_usize..).zip(&call.with) {
                let (mut problem, mut texts) = (Ok(()), None);
                effects.parameter_with(|bytes| {
                    let from = bytes.len();
                    let written = match plan {
                        Plan::First(first) => write_first(fields, first, record, bytes),
                        Plan::Row(rows) => write_row(fields, rows, record, bytes).map(|object| {
                            texts = fields.texts(object);
                            true
                        }),
                        Plan::Digest => {
                            let place = (*is_versioned && version.is_none()).then_some(record);
                            write_digest(topology, identity, version, place, bytes);
                            Ok(true)
                        }
                    };
                    let checked = written.and_then(|is_there| check(&bytes[from..]).map(|()| is_there));
                    checked.unwrap_or_else(|words| {
                        problem = Err(words);
                        false
                    })
                });
                if let Err(words) = problem {
                    effects.take_back();
                    return Err(format!("{}: {words}", named(fields, plan, number)));
                }
                texts.into_iter().for_each(|names| effects.texts(names));
            }
        }
        Ok(())
    }
}

fn plan(parameter: &Parameter, wanted: &mut Wanted) -> Plan {
    match parameter {
        Parameter::At(places) => Plan::First(places.iter().map(|path| wanted.scalar(path.clone())).collect()),
        Parameter::Row { of, key } => {
            let mut row = |object: &Path| RowPlan {
                object: wanted.document(object.clone()),
                key: key.iter().map(|name| wanted.scalar(inside(object, name))).collect(),
            };
            Plan::Row(of.iter().map(&mut row).collect())
        }
        Parameter::Digest => Plan::Digest,
    }
}

/// The path of an object's field.
fn inside(object: &Path, name: &str) -> Path {
    Path { source: object.source.clone(), steps: [&object.steps[..], &[name.to_owned()]].concat() }
}

fn write_first(fields: &Fields, first: &[usize], record: &Record<'_>, out: &mut Vec<u8>) -> Result<bool, String> {
    let found = first.iter().find(|number| !fields.get(**number, record).is_missing());
    found.map_or(Ok(false), |number| fields.write(*number, record, out).map_err(str::to_owned))
}

/// Appends the first of these objects that has all of its key; returns its number.
fn write_row(fields: &Fields, rows: &[RowPlan], record: &Record<'_>, out: &mut Vec<u8>) -> Result<usize, String> {
    for row in rows {
        let is_whole = row.key.iter().all(|number| !fields.get(*number, record).is_missing());
        if is_whole && fields.write_object(row.object, record, out).map_err(str::to_owned)? {
            return Ok(row.object);
        }
    }
    Err("there is no object with all of the row's key".to_owned())
}

/// Writes a UUID of version 8 (RFC 9562): a digest, with the bits for version and variant in it.
fn write_digest(
    topology: &str,
    identity: &[u8],
    version: Option<&[u8]>,
    place: Option<&Record<'_>>,
    out: &mut Vec<u8>,
) {
    let mut hasher = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    add(OUTBOX);
    add(topology.as_bytes());
    add(identity);
    version.iter().for_each(|version| add(version));
    if let Some(record) = place {
        add(record.topic.as_bytes());
        add(&record.partition.to_le_bytes());
        add(&record.offset.to_le_bytes());
    }
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hasher.finalize()[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    for (index, byte) in uuid.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            out.push(b'-');
        }
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Whether PostgreSQL can take these bytes as text.
fn check(bytes: &[u8]) -> Result<(), String> {
    if simdutf8::basic::from_utf8(bytes).is_err() {
        return Err("it is not UTF-8, which a parameter has to be".to_owned());
    }
    if bytes.contains(&0) {
        return Err("there is a NUL character in it, which PostgreSQL does not take".to_owned());
    }
    Ok(())
}

/// A parameter, as messages name it.
fn named(fields: &Fields, plan: &Plan, number: usize) -> String {
    let paths = |numbers: &mut dyn Iterator<Item = usize>| {
        numbers.map(|number| fields.path(number).to_string()).collect::<Vec<_>>().join(" or ")
    };
    match plan {
        Plan::First(first) => format!("parameter ${number} (`{}`)", paths(&mut first.iter().copied())),
        Plan::Row(rows) => format!("the row (`{}`)", paths(&mut rows.iter().map(|row| row.object))),
        Plan::Digest => format!("parameter ${number}"),
    }
}

/// What a statement does, for people: its SQL, or what stands for it.
pub fn described(command: &Command) -> String {
    let list = |names: &[String]| names.join(", ");
    match command {
        Command::Sql { text, .. } => text.to_string(),
        Command::Upsert { table, key, columns } => {
            let columns = columns.as_ref().map_or_else(|| "all columns".to_owned(), |columns| list(columns));
            format!("upsert into {table} by {}: {columns}", list(key))
        }
        Command::DeleteRow { table, key } => format!("delete from {table} by {}", list(key)),
        Command::Truncate { table } => format!("truncate {table}"),
    }
}

/// Places, for people.
pub fn show_places(places: &Places) -> String {
    places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}
