//! The SQL of statements that name a table: upsert, delete by key, truncate.
//!
//! Their first parameter is a JSON object. `json_to_record` hands each field's text to its column's own type, so that the
//! server reads it as it reads any text; what Debezium says is an unchanged large value is taken out before. A number for
//! a date, a time or an interval is refused: it would be read as something, and connectors mean days, milliseconds or
//! microseconds by it. A text that may be base64 is refused in a column of numbers, unless the topology says that its texts
//! are numbers: Connect writes decimals in base64, and `1234` is valid base64. The second parameter is a JSON array of the
//! fields that are known not to be base64, or null ([`Call::texts`](crate::effect::Call::texts)). A missing field leaves
//! its column unchanged. An unchanged large value without a row that has it is refused: nothing says what it is.
//!
//! An upsert updates first, and inserts if there was no row: an insert alone would have to satisfy NOT NULL for columns
//! whose fields are missing, although the row that it is in conflict with has them.

use std::fmt::Write as _;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::class::{OWN, Trouble};
use super::quoting::{constant, quoted};

pub(super) mod many;

/// What Debezium sends in place of a large value that was not changed.
const UNAVAILABLE: &str = "__debezium_unavailable_value";
/// The same where the column is `bytea`.
const UNAVAILABLE_BASE64: &str = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==";
/// The same where the column is an array of integers: its bytes. This and the next are from the connector's class
/// `UnchangedToastedPlaceholder`.
const UNAVAILABLE_NUMBERS: &str =
    "[95,95,100,101,98,101,122,105,117,109,95,117,110,97,118,97,105,108,97,98,108,101,95,118,97,108,117,101]";
/// How a text begins these, whether its writer puts blanks behind commas or not.
const NUMBERS_BEGIN: [&str; 2] = ["95,95,100,101", "95, 95, 100, 101"];
/// The same where the column is of type hstore, which comes as JSON in a text.
const UNAVAILABLE_HSTORE: &str = r#"{"__debezium_unavailable_value":"__debezium_unavailable_value"}"#;
/// The same where the column is an array of uuids: the uuid of version 3 that is made of it.
const UNAVAILABLE_UUID: &str = "b68a35a7-17ad-35b3-af2a-ae46edb4545a";
/// What base64 looks like, as a regular expression: [`base64`](crate::encodings::base64).
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$";
/// A text that looks like base64, but is an infinite floating-point number in JSON.
const INFINITY: &str = "Infinity";
/// The parsed parameter, beside the columns of the table: a name that no table has.
const OBJECT: &str = "\"ratchet: the object\"";

/// A table, as the catalog describes it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Quoted, with its schema.
    name: String,
    columns: Vec<Column>,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    /// The type with its modifiers, as SQL writes it.
    sql_type: String,
    kind: Kind,
    /// The default's SQL, if it has one.
    default: Option<String>,
    /// Whether it is `generated always as identity`: it can be inserted, but not updated.
    is_identity_always: bool,
    /// Whether it, or its type, takes no null.
    is_not_null: bool,
    /// The type without its modifiers, if a text that is cast to it is read as JSON's texts are.
    text_type: Option<String>,
}

/// How a field becomes a column's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// As its type reads text, or JSON arrays and objects.
    Plain,
    /// As base64 or `\x…`.
    Bytes,
    /// As a JSON array of these.
    ByteList,
    /// As JSON: a string holds the JSON's text.
    Json,
    /// A date, a time or an interval: as its type reads text, and never a number.
    Time,
    /// An array of these.
    TimeList,
    /// A number, read from text by its type, unless the text may be base64.
    Number,
    /// The same for a floating-point number.
    Float,
    /// An array of these.
    NumberList,
}

/// The parts of a table's name: separated by dots, with double quotes around a part that has one.
pub(super) fn parts(name: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("'{name}' is no table's name: write table or schema.table");
    let (mut parts, mut rest) = (Vec::new(), name);
    loop {
        let part = if let Some(inner) = rest.strip_prefix('"') {
            let (mut part, mut characters) = (String::new(), inner.char_indices().peekable());
            loop {
                match characters.next().ok_or_else(wrong)? {
                    (_, '"') if characters.next_if(|(_, next)| *next == '"').is_some() => part.push('"'),
                    (at, '"') => {
                        rest = &inner[at + 1..];
                        break part;
                    }
                    (_, other) => part.push(other),
                }
            }
        } else {
            let (part, _) = rest.split_at(rest.find('.').unwrap_or(rest.len()));
            rest = &rest[part.len()..];
            part.to_owned()
        };
        if part.is_empty() {
            return Err(wrong());
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() && parts.len() <= 2 => return Ok(parts),
            None => return Err(wrong()),
        }
    }
}

impl Table {
    /// Asks the catalog. Each text in a column of numbers is one if `has_text_decimals`.
    pub async fn find(client: &Client, name: &str, has_text_decimals: bool) -> Result<Self, Trouble> {
        let quoted_name: Vec<_> = parts(name).map_err(Trouble::lasting)?.iter().map(|part| quoted(part)).collect();
        let sql = "select a.attname::text, format_type(a.atttypid, a.atttypmod), a.attidentity = 'a', \
                   case when a.attidentity = '' then pg_get_expr(d.adbin, d.adrelid) \
                   else format('nextval(%L::regclass)', pg_get_serial_sequence($1::text, a.attname::text)) end, \
                   (with recursive base as (select a.atttypid as id union all \
                    select t.typbasetype from base join pg_catalog.pg_type t on t.oid = base.id where t.typbasetype <> 0) \
                    select case when 17 in (select id from base) then 'bytes' \
                    when 1001 in (select id from base) then 'bytelist' \
                    when exists (select from base where id in (114, 3802)) then 'json' \
                    when exists (select from base where id in (1082, 1083, 1114, 1184, 1186, 1266)) then 'time' \
                    when exists (select from base where id in (1182, 1183, 1115, 1185, 1187, 1270)) then 'timelist' \
                    when exists (select from base where id in (20, 21, 23, 26, 790, 1700)) then 'number' \
                    when exists (select from base where id in (700, 701)) then 'float' \
                    when exists (select from base where id in (1005, 1007, 1016, 1028, 791, 1231, 1021, 1022)) \
                    then 'numberlist' \
                    else 'plain' end), \
                   a.attnotnull or (select t.typnotnull from pg_catalog.pg_type t where t.oid = a.atttypid), \
                   n.nspname::text, c.relname::text, \
                   (select format_type(t.oid, -1) from pg_catalog.pg_type t where t.oid = a.atttypid \
                    and t.typtype in ('b', 'e') and t.typcategory <> 'A' \
                    and (a.atttypmod = -1 or t.oid in (1042, 1043, 1083, 1114, 1184, 1266, 1700)) \
                    and not exists (select from pg_catalog.pg_cast k where k.castsource = 25 \
                    and k.casttarget = t.oid and k.castmethod <> 'b')) \
                   from pg_catalog.pg_class c \
                   join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
                   join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped \
                   left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum \
                   where c.oid = to_regclass($1::text) and a.attgenerated = '' order by a.attnum";
        let rows = client.query(sql, &[&quoted_name.join(".")]).await?;
        let Some(first) = rows.first() else {
            let message =
                format!("there is no table {name}, or none that this role sees; names are taken as they are written");
            return Err(Trouble { code: Some(SqlState::UNDEFINED_TABLE), ..Trouble::lasting(message) });
        };
        let name = format!("{}.{}", quoted(first.try_get(6)?), quoted(first.try_get(7)?));
        let column = |row: &tokio_postgres::Row| {
            Ok(Column {
                name: row.try_get(0)?,
                sql_type: row.try_get(1)?,
                is_identity_always: row.try_get(2)?,
                default: row.try_get(3)?,
                is_not_null: row.try_get(5)?,
                text_type: row.try_get(8)?,
                kind: match row.try_get(4)? {
                    "bytes" => Kind::Bytes,
                    "bytelist" => Kind::ByteList,
                    "json" => Kind::Json,
                    "time" => Kind::Time,
                    "timelist" => Kind::TimeList,
                    "number" if !has_text_decimals => Kind::Number,
                    "float" if !has_text_decimals => Kind::Float,
                    "numberlist" if !has_text_decimals => Kind::NumberList,
                    _ => Kind::Plain,
                },
            })
        };
        let columns = rows.iter().map(column).collect::<Result<_, tokio_postgres::Error>>()?;
        Ok(Self { name, columns })
    }

    /// The table's quoted name, with its schema.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns of decimal numbers in which a text that may be base64 is refused.
    pub fn decimals(&self) -> Vec<&str> {
        let is_decimal = |column: &&Column| {
            matches!(column.kind, Kind::Number | Kind::NumberList) && column.sql_type.starts_with("numeric")
        };
        self.columns.iter().filter(is_decimal).map(|column| column.name.as_str()).collect()
    }

    /// Truncates the table.
    pub fn truncate(&self) -> String {
        format!("truncate table {}", self.name)
    }

    /// Deletes the row whose key the parameter has.
    pub fn delete(&self, key: &[String]) -> Result<String, String> {
        let key = self.named(key)?;
        let condition = equal(&key);
        Ok(format!("{} delete from {} as t using x where {condition}", given(&key, &key), self.name))
    }

    /// Inserts the parameter as a row, or updates the row with its key.
    pub fn upsert(&self, key: &[String], columns: Option<&[String]>) -> Result<String, String> {
        let key = self.named(key)?;
        let columns = match columns {
            Some(names) => self.named(names)?,
            None => self.columns.iter().collect(),
        };
        let is_key = |column: &Column| key.iter().any(|part| part.name == column.name);
        let settable: Vec<_> =
            columns.iter().copied().filter(|column| !is_key(column) && !column.is_identity_always).collect();
        let names = list(&columns, |column| quoted(&column.name));
        // A key that is missing would be given another one by its default.
        let values = list(&columns, |column| if is_key(column) { value(column) } else { value_or_default(column) });
        let conflict = list(&key, |column| quoted(&column.name));
        let x = given(&columns, &key);
        let insert = format!("insert into {} as t ({names}) overriding system value select {values} from x", self.name);
        if settable.is_empty() {
            return Ok(format!("{x} {insert} on conflict ({conflict}) do nothing"));
        }
        let set = list(&settable, |column| format!("{} = {}", quoted(&column.name), value_or_kept(column)));
        let (table, condition) = (&self.name, equal(&key));
        let again = list(&settable, |column| quoted(&column.name));
        let kept = list(&settable, value_or_kept);
        let is_whole = is_whole(&columns);
        Ok(format!(
            "{x}, u as (update {table} as t set {set} from x where {condition} returning 1) \
             {insert} where case when exists (select from u) then false else {is_whole} end \
             on conflict ({conflict}) do update set ({again}) = (select {kept} from x)"
        ))
    }

    /// These columns, without those that the database generates.
    fn named(&self, names: &[String]) -> Result<Vec<&Column>, String> {
        let column = |name: &String| self.columns.iter().find(|column| column.name == *name);
        let known: Vec<_> = names.iter().filter_map(column).collect();
        match names.iter().find(|name| column(name).is_none()) {
            None => Ok(known),
            Some(missing) => Err(format!("table {} has no column {missing} that can be written", self.name)),
        }
    }
}

fn list(columns: &[&Column], each: impl Fn(&Column) -> String) -> String {
    columns.iter().map(|column: &&Column| each(column)).collect::<Vec<_>>().join(", ")
}

fn equal(key: &[&Column]) -> String {
    let each = |column: &&Column| format!("t.{} = {}", quoted(&column.name), value(column));
    key.iter().map(each).collect::<Vec<_>>().join(" and ")
}

/// The columns with the types as which their fields are read.
fn record(columns: &[&Column]) -> String {
    let text = |column: &Column| match column.kind {
        Kind::Bytes | Kind::ByteList | Kind::Json => "text".to_owned(),
        _ => column.sql_type.clone(),
    };
    list(columns, |column| format!("{} {}", quoted(&column.name), text(column)))
}

/// The parameter, as a row `x` of the columns' types, beside the object itself.
fn given(columns: &[&Column], key: &[&Column]) -> String {
    let record = record(columns);
    let names = list(columns, |column| format!("r.{}", quoted(&column.name)));
    // Without a key nothing would be found, silently. The cast fails, and says what it could not read.
    let missing = key.iter().fold(String::new(), |mut sql, column| {
        let field = constant(&column.name);
        let says = constant(&format!("{OWN}the row has no key field {}: ", column.name));
        write!(sql, " when (o.j ->> {field}) is null then ({says} || o.j::text)::int").ok();
        sql
    });
    let doubtful = columns.iter().fold(String::new(), |mut sql, column| {
        let field = constant(&column.name);
        if let Some(condition) = is_doubtful(column) {
            let says = constant(&format!("{OWN}column {} {}: ", column.name, doubt(column.kind)));
            write!(sql, " when {condition} then ({says} || (o.j ->> {field}))::int").ok();
        }
        sql
    });
    let (is_marked, is_unchanged) = (is_marked(), is_unchanged(columns));
    format!(
        "with p as (select $1::text as t, $2::text::jsonb as texts), \
         o as materialized (select case when not {is_marked} then p.t::json \
         else (select coalesce(json_object_agg(e.key, e.value), '{{}}') from json_each(p.t::json) as e \
         where not {is_unchanged}) end as j, p.texts from p), \
         x as materialized (select {names}, o.j as {OBJECT} from o, json_to_record(o.j) as r ({record}) \
         where case{missing}{doubtful} else 0 end = 0)"
    )
}

/// SQL that says whether a column's field may mean something else than the column would read; `None` if it never does.
fn is_doubtful(column: &Column) -> Option<String> {
    let field = format!("o.j -> {}", constant(&column.name));
    let text = format!("o.j ->> {}", constant(&column.name));
    let is_open = format!("(o.texts ? {}) is not true", constant(&column.name));
    let is_base64 = format!("json_typeof({field}) = 'string' and ({text}) ~ '{BASE64}' and {is_open}");
    let within = |what: &str| format!("jsonb_path_exists(({field})::jsonb, '$.** ? ({what})')");
    match column.kind {
        Kind::Time => Some(format!("json_typeof({field}) = 'number'")),
        Kind::TimeList => Some(within("@.type() == \"number\"")),
        Kind::Number => Some(is_base64),
        Kind::Float => Some(format!("{is_base64} and ({text}) <> '{INFINITY}'")),
        Kind::NumberList => {
            let holds_base64 = within(&format!("@.type() == \"string\" && @ like_regex \"{BASE64}\""));
            Some(format!("{holds_base64} and {is_open}"))
        }
        Kind::Plain | Kind::Bytes | Kind::ByteList | Kind::Json => None,
    }
}

/// The complaint about such a field.
fn doubt(kind: Kind) -> &'static str {
    match kind {
        Kind::Time | Kind::TimeList => "takes text such as 2026-01-31, not a number",
        _ => {
            "takes a number, and this text may be one in base64, as decimal.handling.mode=precise writes it; set \
             decimal.handling.mode=string at the connector, and write 'decimals: text' under 'table' once texts are numbers"
        }
    }
}

/// Whether a placeholder may be in the parameter: most have none, and their text is used as it is.
fn is_marked() -> String {
    let [compact, spaced] = NUMBERS_BEGIN;
    let marks = [UNAVAILABLE, UNAVAILABLE_BASE64, UNAVAILABLE_UUID, compact, spaced];
    format!("({})", marks.map(|mark| format!("strpos($1::text, {}) > 0", constant(mark))).join(" or "))
}

/// Whether the field `e` is a placeholder for an unchanged value.
fn is_unchanged(columns: &[&Column]) -> String {
    let holds_bytes = |column: &&Column| matches!(column.kind, Kind::Bytes | Kind::ByteList);
    let bytes: Vec<_> = columns.iter().copied().filter(holds_bytes).collect();
    // An array's placeholder is an array that holds it, unless it is of integers; hstore's may be an object with it.
    let (text, numbers, uuid) = (constant(UNAVAILABLE), constant(UNAVAILABLE_NUMBERS), constant(UNAVAILABLE_UUID));
    let field = format!(
        "case json_typeof(e.value) when 'array' then case when json_array_length(e.value) = 1 then e.value ->> 0 \
         else translate(e.value::text, E' \\n\\r\\t', '') end \
         when 'object' then e.value ->> {text} else e.value #>> '{{}}' end"
    );
    let hstore = constant(UNAVAILABLE_HSTORE);
    let plain = format!("(({field}) in ({text}, {numbers}, {uuid}, {hstore})) is true");
    if bytes.is_empty() {
        return format!("({plain})");
    }
    let is_bytes = list(&bytes, |column| constant(&column.name));
    format!("({plain} or e.key in ({is_bytes}) and ({field}) is not distinct from {})", constant(UNAVAILABLE_BASE64))
}

/// Whether a row can be inserted: no column lacks a value that was not changed. Otherwise a cast fails, and says which
/// one.
fn is_whole(columns: &[&Column]) -> String {
    let (is_marked, is_unchanged) = (is_marked(), is_unchanged(columns));
    let names = list(columns, |column| constant(&column.name));
    let says = constant(&format!(
        "{OWN}no row has what did not come because it was unchanged (REPLICA IDENTITY FULL sends it): "
    ));
    format!(
        "case when {is_marked} then coalesce((select ({says} || string_agg(e.key, ', '))::int \
         from json_each($1::text::json) as e where e.key in ({names}) and {is_unchanged}), 0) = 0 else true end"
    )
}

/// A field as its column's value; null if it is missing.
fn value(column: &Column) -> String {
    let field = format!("x.{}", quoted(&column.name));
    match column.kind {
        Kind::Bytes => bytes_of(&field),
        Kind::ByteList => format!(
            "case when {field} is not null then array(select {} from json_array_elements_text({field}::json) \
             with ordinality as e (v, n) order by e.n) end",
            bytes_of("e.v")
        ),
        Kind::Json => format!("{field}::{}", column.sql_type),
        _ => field,
    }
}

/// A text as bytes.
fn bytes_of(text: &str) -> String {
    format!("case when left({text}, 2) = E'\\\\x' then {text}::bytea else decode({text}, 'base64') end")
}

/// Whether a field is missing, where it is known to be null.
fn is_missing(column: &Column) -> String {
    format!("(x.{OBJECT} -> {}) is null", constant(&column.name))
}

fn value_or_default(column: &Column) -> String {
    match &column.default {
        None => value(column),
        Some(default) => format!("coalesce({}, case when {} then {default} end)", value(column), is_missing(column)),
    }
}

fn value_or_kept(column: &Column) -> String {
    format!("coalesce({}, case when {} then t.{} end)", value(column), is_missing(column), quoted(&column.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_one_or_two_parts() {
        assert_eq!(parts("accounts"), Ok(vec!["accounts".to_owned()]));
        assert_eq!(parts("bank.Accounts"), Ok(vec!["bank".to_owned(), "Accounts".to_owned()]));
        assert_eq!(parts(r#""a.b"."c ""d""""#), Ok(vec!["a.b".to_owned(), "c \"d\"".to_owned()]));
        for name in ["", ".", "a.", ".a", "a.b.c", "\"a", "\"a\"b", "\"\""] {
            assert!(parts(name).is_err(), "{name}");
        }
    }
}
