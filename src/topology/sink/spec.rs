//! `sink`: where it is, and what records cause there.

use crate::dedup::{Action, Kind, Path, Places, Retention, Source};
use crate::topology::keys;
use crate::topology::sink::http::spec::HttpSpec;
use crate::topology::sink::terms::spec::TermsSpec;
use crate::topology::sink::{Dedup, REJECTED};
use crate::topology::spec::reader::{PathSpec, SpecReader, choices};
use crate::yaml::{Field, Fields, Place, Placed, Text, Value};

/// Stands for an address that is not known, where nothing is connected to.
const UNKNOWN_URL: &str = "postgresql://unknown";

/// A sink as written.
#[derive(Debug)]
pub struct SinkSpec {
    /// Where `sink` is.
    pub place: Place,
    /// `None` if it is none, or could not be read.
    pub postgres: Option<PostgresSpec>,
    /// `None` if it is none, or could not be read.
    pub http: Option<HttpSpec>,
    /// `None` if it is none, or could not be read.
    pub handler: Option<TermsSpec>,
}

impl SinkSpec {
    /// The terms of its calls, if it makes any.
    pub fn terms(&self) -> Option<&TermsSpec> {
        self.http.as_ref().map(|http| &http.terms).or(self.handler.as_ref())
    }
}

/// `sink.postgres` as written.
#[derive(Debug)]
pub struct PostgresSpec {
    pub place: Place,
    pub url: Option<Placed<Text>>,
    pub schema: Option<Placed<Text>>,
    /// Where `statements` is, right or wrong.
    pub statements_place: Option<Place>,
    pub statements: Vec<StatementSpec>,
    /// Where `on` is, right or wrong.
    pub on_place: Option<Place>,
    pub on: Vec<OnSpec>,
    /// Where `table` is, right or wrong.
    pub table_place: Option<Place>,
    pub table: Option<TableSpec>,
    /// Where `outbox` is, right or wrong.
    pub outbox_place: Option<Place>,
    pub outbox: Option<OutboxSpec>,
    pub dedup: Option<Placed<Dedup>>,
    pub inbox: Option<InboxSpec>,
    pub result: Option<Placed<Text>>,
    /// Where `result` is, right or wrong.
    pub result_place: Option<Place>,
    pub on_rejected: Option<Placed<Action>>,
}

/// The statements of one kind.
#[derive(Debug)]
pub struct OnSpec {
    pub kind: Kind,
    pub place: Place,
    pub statements: Vec<StatementSpec>,
}

/// A statement as written.
#[derive(Debug)]
pub struct StatementSpec {
    pub sql: Placed<Text>,
    pub with: Vec<Placed<Places>>,
    /// Whether [`StatementSpec::with`] is complete.
    pub with_complete: bool,
    pub returns: bool,
    pub expect_rows: Option<Placed<u64>>,
}

/// A table as written.
#[derive(Debug)]
pub struct TableSpec {
    pub place: Place,
    pub name: Option<Placed<Text>>,
    pub key: Vec<Placed<Text>>,
    /// `None` for all.
    pub columns: Option<Vec<Placed<Text>>>,
    /// Where the row is, if that is written.
    pub of: Option<Places>,
    /// Whether every text in a column of numbers is a number.
    pub has_text_decimals: bool,
}

/// An outbox as written.
#[derive(Debug)]
pub struct OutboxSpec {
    pub table: Option<Placed<Text>>,
    /// The columns `aggregatetype`, `aggregateid`, `type`, `payload`; `None` if one could not be read.
    pub columns: Option<[Places; 4]>,
}

/// An inbox as written.
#[derive(Debug)]
pub struct InboxSpec {
    pub place: Place,
    pub name: Option<Placed<Text>>,
    pub retention: Option<Placed<Retention>>,
}

impl SpecReader<'_, '_> {
    /// A sink; nothing is missing from it that was not reported.
    pub fn sink(&mut self, field: &Field<'_>) -> SinkSpec {
        let place = field.key_place;
        let Some(fields) = self.reader.fields(field, &keys::SINK) else {
            return SinkSpec { place, postgres: None, http: None, handler: None };
        };
        if is_empty(field) {
            let message = "`sink` names no kind of sink".to_owned();
            let help = format!("write e.g. `sink: {{{}}}`", keys::SINK.keys[0].example);
            self.reader.mistake(place, message, "it belongs in here", help);
        }
        let mut kinds: Vec<_> = keys::SINK.keys.iter().filter_map(|key| fields.get(key.name)).collect();
        kinds.sort_by_key(|field| field.key_place.start);
        if let [_, second, ..] = kinds[..] {
            let message = "a sink is `postgres`, `http` or `handler`, not several of them".to_owned();
            let help = "remove one of them; two topologies can read the same input";
            self.reader.mistake(second.key_place, message, "there is one already", help);
        }
        let postgres = fields.get("postgres").and_then(|postgres| {
            let fields = self.reader.fields(postgres, &keys::POSTGRES)?;
            Some(self.postgres(&fields, postgres.key_place))
        });
        let http = fields.get("http").and_then(|http| {
            let fields = self.reader.fields(http, &keys::HTTP)?;
            Some(self.http(&fields, http.key_place))
        });
        let handler = fields.get("handler").and_then(|handler| {
            let fields = self.reader.fields(handler, &keys::HANDLER)?;
            Some(self.handler(&fields, handler.key_place))
        });
        SinkSpec { place, postgres, http, handler }
    }

    fn postgres(&mut self, fields: &Fields<'_>, place: Place) -> PostgresSpec {
        let at = |key: &str| fields.get(key).map(|field| field.key_place).or(fields.misspelt(key));
        PostgresSpec {
            place,
            url: fields.require("url", self.reader).and_then(|field| self.reader.address(field, UNKNOWN_URL)),
            schema: fields.get("schema").and_then(|field| self.reader.text(field)),
            statements_place: at("statements"),
            statements: fields.get("statements").map(|field| self.statements(field)).unwrap_or_default(),
            on_place: at("on"),
            on: fields.get("on").map(|field| self.on(field)).unwrap_or_default(),
            table_place: at("table"),
            table: fields.get("table").and_then(|field| self.sink_table(field)),
            outbox_place: at("outbox"),
            outbox: fields.get("outbox").and_then(|field| self.outbox(field)),
            dedup: fields.get("dedup").and_then(|field| self.reader.choice(field, &choices(Dedup::ALL, Dedup::as_str))),
            inbox: fields.get("inbox").and_then(|field| self.inbox(field)),
            result: fields.get("result").and_then(|field| self.topic(field, &keys::RESULT)),
            result_place: at("result"),
            on_rejected: fields
                .get("on_rejected")
                .and_then(|field| self.reader.choice(field, &choices(REJECTED, Action::as_str))),
        }
    }

    /// The statements that could be read.
    fn statements(&mut self, field: &Field<'_>) -> Vec<StatementSpec> {
        let items = self.reader.list(field).unwrap_or_default();
        items.iter().filter_map(|item| self.statement(&item.described("a statement"))).collect()
    }

    fn statement(&mut self, field: &Field<'_>) -> Option<StatementSpec> {
        let fields = self.reader.fields(field, &keys::STATEMENT)?;
        let sql = fields.require("sql", self.reader).and_then(|field| self.reader.text(field));
        let items = fields.get("with").map(|field| self.reader.list(field));
        let items = items.map_or(Some(Vec::new()), |items| items);
        let with: Vec<_> = items.iter().flatten().filter_map(|item| self.parameter(item)).collect();
        let returns = fields.get("returns").and_then(|field| self.reader.boolean(field));
        let with_complete = items.is_some_and(|items| items.len() == with.len()) && fields.misspelt("with").is_none();
        let returns = returns.is_some_and(|returns| returns.value);
        let rows = |text: &str| text.parse::<u64>().ok().filter(|rows| *rows <= keys::EXPECT_ROWS_MAX);
        let expect_rows = fields.get("expect_rows").and_then(|field| self.reader.parsed(field, rows));
        Some(StatementSpec { sql: sql?, with, with_complete, returns, expect_rows })
    }

    /// A path, `{first_of: [...]}` or `{const: x}`.
    fn parameter(&mut self, field: &Field<'_>) -> Option<Placed<Places>> {
        let places = self.table_part(field)?;
        Some(Placed { value: places, place: field.place() })
    }

    fn on(&mut self, field: &Field<'_>) -> Vec<OnSpec> {
        let Some(fields) = self.reader.fields(field, &keys::ON) else { return Vec::new() };
        if is_empty(field) {
            let message = format!("`{}` names no kind of change", field.name);
            let help = "write e.g. `change: [{sql: 'insert into seen values ($1)', with: [value.id]}]`";
            self.reader.mistake(field.place(), message, "nothing would ever be carried out", help);
        }
        let kinds = keys::ON.keys.iter().filter_map(|key| Some((Kind::parse(key.name)?, fields.get(key.name)?)));
        let on = |(kind, field): (Kind, &Field<'_>)| OnSpec {
            kind,
            place: field.key_place,
            statements: self.statements(field),
        };
        kinds.map(on).collect()
    }

    fn sink_table(&mut self, field: &Field<'_>) -> Option<TableSpec> {
        let fields = self.reader.fields(field, &keys::TABLE)?;
        let name = fields.require("name", self.reader).and_then(|field| self.reader.text(field));
        let key = fields.require("key", self.reader).and_then(|field| self.columns(field))?;
        let columns = fields.get("columns").map(|field| match &field.node.value {
            Value::List(_) => self.columns(field).map(Some),
            _ => self.reader.choice(field, &[(keys::ALL_COLUMNS, ())]).map(|_| None),
        });
        let of = match fields.get("of") {
            Some(field) => self.places(field, true).map(Some),
            None => {
                self.paths.push(PathSpec { path: Placed { value: whole_value(), place: field.place() }, json: true });
                Some(None)
            }
        };
        let decimals = fields.get("decimals").map(|field| self.reader.choice(field, &[(keys::TEXT_DECIMALS, true)]));
        let has_text_decimals = decimals.map_or(Some(false), |read| read.map(|placed| placed.value))?;
        Some(TableSpec {
            place: field.key_place,
            name,
            key,
            columns: columns.map_or(Some(None), |read| read)?,
            of: of?,
            has_text_decimals,
        })
    }

    fn columns(&mut self, field: &Field<'_>) -> Option<Vec<Placed<Text>>> {
        let items = self.reader.list(field)?;
        let columns: Vec<_> = items.iter().filter_map(|item| self.reader.text(item)).collect();
        (columns.len() == items.len()).then_some(columns)
    }

    fn outbox(&mut self, field: &Field<'_>) -> Option<OutboxSpec> {
        let fields = self.reader.fields(field, &keys::OUTBOX)?;
        let table = fields.get("table").and_then(|field| self.reader.text(field));
        let required = ["aggregate_type", "aggregate_id", "type"].map(|key| {
            let field = fields.require(key, self.reader);
            field.and_then(|field| self.parameter(field)).map(|placed| placed.value)
        });
        let payload = fields.get("payload").map(|field| self.parameter(field).map(|placed| placed.value));
        let payload = payload.unwrap_or_else(|| Some(vec![whole_value()]));
        let [aggregate_type, aggregate_id, kind] = required;
        let columns = aggregate_type.zip(aggregate_id).zip(kind.zip(payload));
        Some(OutboxSpec { table, columns: columns.map(|((one, two), (three, four))| [one, two, three, four]) })
    }

    fn inbox(&mut self, field: &Field<'_>) -> Option<InboxSpec> {
        let fields = self.reader.fields(field, &keys::INBOX)?;
        Some(InboxSpec {
            place: field.key_place,
            name: fields.get("name").and_then(|field| self.reader.text(field)),
            retention: fields.get("retention").and_then(|field| self.retention(field)),
        })
    }
}

/// Whether this is a mapping without any key.
fn is_empty(field: &Field<'_>) -> bool {
    matches!(&field.node.value, Value::Mapping(entries) if entries.is_empty())
}

/// The path to the whole value.
pub fn whole_value() -> Path {
    Path { source: Source::Value, steps: Vec::new() }
}
