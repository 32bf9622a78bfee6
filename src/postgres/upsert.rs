//! The SQL of statements that name a table: upsert, delete by key, truncate.
//!
//! Their first parameter is a JSON object. `json_to_record` passes each field's text to its column's type, so that the
//! server reads it as any text of that type; Debezium's placeholders for unchanged large values are removed first. A
//! number for a date, a time or an interval is refused: PostgreSQL would read it as some time, but not as the days,
//! milliseconds or microseconds that connectors mean. A text that may be base64 is refused in a column of numbers,
//! unless the topology says that its texts are numbers: Connect writes decimals in base64, and `1234` is valid base64.
//! The second parameter is a JSON array of the fields that are known not to be base64, or null
//! ([`Call::texts`](crate::effect::Call::texts)). A missing field leaves its column unchanged. A placeholder is refused
//! if the row does not exist: its value is unknown.
//!
//! An upsert updates first, and inserts if there was no row: an insert alone would have to satisfy NOT NULL for columns
//! whose fields are missing, although the existing row has their values.

use std::fmt::Write as _;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::class::{OWN_PREFIX, Trouble};
use super::quoting::{constant, quoted};

pub(super) mod bulk;

/// Debezium's placeholder for an unchanged large value.
const UNAVAILABLE: &str = "__debezium_unavailable_value";
/// The placeholder for a column of `bytea`.
const UNAVAILABLE_BASE64: &str = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==";
/// The placeholder for an array of integers: the bytes of the text. This one and those for hstore and uuids are from
/// the connector's class `UnchangedToastedPlaceholder`.
const UNAVAILABLE_NUMBERS: &str =
    "[95,95,100,101,98,101,122,105,117,109,95,117,110,97,118,97,105,108,97,98,108,101,95,118,97,108,117,101]";
/// The first numbers of [`UNAVAILABLE_NUMBERS`], without and with blanks behind the commas.
const UNAVAILABLE_NUMBERS_STARTS: [&str; 2] = ["95,95,100,101", "95, 95, 100, 101"];
/// The placeholder for a column of hstore, which is sent as JSON in a text.
const UNAVAILABLE_HSTORE: &str = r#"{"__debezium_unavailable_value":"__debezium_unavailable_value"}"#;
/// The placeholder for an array of uuids: the version 3 uuid of the text.
const UNAVAILABLE_UUID: &str = "b68a35a7-17ad-35b3-af2a-ae46edb4545a";
/// The regular expression of base64, as [`base64`](crate::encodings::base64) reads it.
const BASE64: &str = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)$";
/// A text that is valid base64, but also represents an infinite floating-point number.
const INFINITY: &str = "Infinity";
/// The name of the column with the parsed parameter, beside the table's columns: a name that no table's column has.
const OBJECT: &str = "\"ratchet: the object\"";

/// A table, from the catalog.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Its quoted name, with its schema.
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
    /// Whether it, or its type, is NOT NULL.
    is_not_null: bool,
    /// The type without its modifiers, if casting a text to it gives the same value as `json_to_record`.
    text_type: Option<String>,
}

/// How a field is converted to a column's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// By the type's own conversion from text, or from JSON arrays and objects.
    Plain,
    /// From base64 or `\x…`.
    Bytes,
    /// From a JSON array of base64 or `\x…`.
    ByteList,
    /// As JSON: a string holds the JSON's text.
    Json,
    /// A date, a time or an interval: by the type's own conversion from text; numbers are refused.
    Time,
    /// An array of dates, times or intervals.
    TimeList,
    /// A number: by the type's own conversion from text; a text that may be base64 is refused.
    Number,
    /// A floating-point number, with the same restriction.
    Float,
    /// An array of numbers, with the same restriction.
    NumberList,
}

/// The parts of a table's name, which are separated by dots. A part that contains a dot is in double quotes.
pub(super) fn name_parts(name: &str) -> Result<Vec<String>, String> {
    let error = || format!("'{name}' is not a table's name: write table or schema.table");
    let (mut parts, mut rest) = (Vec::new(), name);
    loop {
        let part = if let Some(inner) = rest.strip_prefix('"') {
            let (mut part, mut characters) = (String::new(), inner.char_indices().peekable());
            loop {
                match characters.next().ok_or_else(error)? {
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
            return Err(error());
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None if rest.is_empty() && parts.len() <= 2 => return Ok(parts),
            None => return Err(error()),
        }
    }
}

impl Table {
    /// Reads a table from the catalog. If `has_text_decimals`, every text in a column of numbers is a number.
    pub async fn find(client: &Client, name: &str, has_text_decimals: bool) -> Result<Self, Trouble> {
        let quoted_name: Vec<_> =
            name_parts(name).map_err(Trouble::permanent)?.iter().map(|part| quoted(part)).collect();
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
            return Err(Trouble { code: Some(SqlState::UNDEFINED_TABLE), ..Trouble::permanent(message) });
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

    /// The SQL that truncates the table.
    pub fn truncate(&self) -> String {
        format!("truncate table {}", self.name)
    }

    /// The SQL that deletes the row with the parameter's key.
    pub fn delete(&self, key: &[String]) -> Result<String, String> {
        let key = self.find_columns(key)?;
        let condition = key_condition(&key);
        Ok(format!("{} delete from {} as t using x where {condition}", parameter_cte(&key, &key), self.name))
    }

    /// The SQL that inserts the parameter as a row, or updates the row with its key.
    pub fn upsert(&self, key: &[String], columns: Option<&[String]>) -> Result<String, String> {
        let key = self.find_columns(key)?;
        let columns = match columns {
            Some(names) => self.find_columns(names)?,
            None => self.columns.iter().collect(),
        };
        let is_key = |column: &Column| key.iter().any(|part| part.name == column.name);
        let settable: Vec<_> =
            columns.iter().copied().filter(|column| !is_key(column) && !column.is_identity_always).collect();
        let names = comma_separated(&columns, |column| quoted(&column.name));
        // A default would give a missing key another value.
        let values =
            comma_separated(
                &columns,
                |column| if is_key(column) { value_sql(column) } else { value_or_default(column) },
            );
        let conflict = comma_separated(&key, |column| quoted(&column.name));
        let x = parameter_cte(&columns, &key);
        let insert = format!("insert into {} as t ({names}) overriding system value select {values} from x", self.name);
        if settable.is_empty() {
            return Ok(format!("{x} {insert} on conflict ({conflict}) do nothing"));
        }
        let set =
            comma_separated(&settable, |column| format!("{} = {}", quoted(&column.name), value_or_existing(column)));
        let (table, condition) = (&self.name, key_condition(&key));
        let columns_to_set = comma_separated(&settable, |column| quoted(&column.name));
        let values_to_set = comma_separated(&settable, value_or_existing);
        let is_insertable = insertable_condition(&columns);
        Ok(format!(
            "{x}, u as (update {table} as t set {set} from x where {condition} returning 1) \
             {insert} where case when exists (select from u) then false else {is_insertable} end \
             on conflict ({conflict}) do update set ({columns_to_set}) = (select {values_to_set} from x)"
        ))
    }

    /// The columns with these names.
    ///
    /// # Errors
    /// A column does not exist, or is generated by the database.
    fn find_columns(&self, names: &[String]) -> Result<Vec<&Column>, String> {
        let column = |name: &String| self.columns.iter().find(|column| column.name == *name);
        let known: Vec<_> = names.iter().filter_map(column).collect();
        match names.iter().find(|name| column(name).is_none()) {
            None => Ok(known),
            Some(missing) => Err(format!("table {} has no column {missing} that can be written", self.name)),
        }
    }
}

fn comma_separated(columns: &[&Column], to_sql: impl Fn(&Column) -> String) -> String {
    columns.iter().map(|column: &&Column| to_sql(column)).collect::<Vec<_>>().join(", ")
}

/// The condition that a row `t` of the table has the key of the row `x`.
fn key_condition(key: &[&Column]) -> String {
    let equality = |column: &&Column| format!("t.{} = {}", quoted(&column.name), value_sql(column));
    key.iter().map(equality).collect::<Vec<_>>().join(" and ")
}

/// The columns' names with the types as which `json_to_record` reads their fields.
fn record_definition(columns: &[&Column]) -> String {
    let text = |column: &Column| match column.kind {
        Kind::Bytes | Kind::ByteList | Kind::Json => "text".to_owned(),
        _ => column.sql_type.clone(),
    };
    comma_separated(columns, |column| format!("{} {}", quoted(&column.name), text(column)))
}

/// The `with` clause that converts the parameters to a row `x` of the columns' types, with the object itself beside it.
fn parameter_cte(columns: &[&Column], key: &[&Column]) -> String {
    let record = record_definition(columns);
    let names = comma_separated(columns, |column| format!("r.{}", quoted(&column.name)));
    // Without a key, no row would be found, and no error would be raised. So a message is cast to a number: that fails.
    let missing = key.iter().fold(String::new(), |mut sql, column| {
        let field = constant(&column.name);
        let message = constant(&format!("{OWN_PREFIX}the row has no key field {}: ", column.name));
        write!(sql, " when (o.j ->> {field}) is null then ({message} || o.j::text)::int").ok();
        sql
    });
    let doubtful = columns.iter().fold(String::new(), |mut sql, column| {
        let field = constant(&column.name);
        if let Some(condition) = doubt_condition(column) {
            let message = constant(&format!("{OWN_PREFIX}column {} {}: ", column.name, doubt_message(column.kind)));
            write!(sql, " when {condition} then ({message} || (o.j ->> {field}))::int").ok();
        }
        sql
    });
    let (has_placeholder, is_placeholder) = (placeholder_search(), placeholder_condition(columns));
    format!(
        "with p as (select $1::text as t, $2::text::jsonb as texts), \
         o as materialized (select case when not {has_placeholder} then p.t::json \
         else (select coalesce(json_object_agg(e.key, e.value), '{{}}') from json_each(p.t::json) as e \
         where not {is_placeholder}) end as j, p.texts from p), \
         x as materialized (select {names}, o.j as {OBJECT} from o, json_to_record(o.j) as r ({record}) \
         where case{missing}{doubtful} else 0 end = 0)"
    )
}

/// The condition that a column's field may mean another value than the column's type would read; `None` if it never
/// does.
fn doubt_condition(column: &Column) -> Option<String> {
    let field = format!("o.j -> {}", constant(&column.name));
    let text = format!("o.j ->> {}", constant(&column.name));
    let is_unknown_text = format!("(o.texts ? {}) is not true", constant(&column.name));
    let is_base64 = format!("json_typeof({field}) = 'string' and ({text}) ~ '{BASE64}' and {is_unknown_text}");
    let contains = |predicate: &str| format!("jsonb_path_exists(({field})::jsonb, '$.** ? ({predicate})')");
    match column.kind {
        Kind::Time => Some(format!("json_typeof({field}) = 'number'")),
        Kind::TimeList => Some(contains("@.type() == \"number\"")),
        Kind::Number => Some(is_base64),
        Kind::Float => Some(format!("{is_base64} and ({text}) <> '{INFINITY}'")),
        Kind::NumberList => {
            let holds_base64 = contains(&format!("@.type() == \"string\" && @ like_regex \"{BASE64}\""));
            Some(format!("{holds_base64} and {is_unknown_text}"))
        }
        Kind::Plain | Kind::Bytes | Kind::ByteList | Kind::Json => None,
    }
}

/// The message about a field for which [`doubt_condition`] holds.
fn doubt_message(kind: Kind) -> &'static str {
    match kind {
        Kind::Time | Kind::TimeList => "takes text such as 2026-01-31, not a number",
        _ => {
            "takes a number, and this text may be a number in base64, as decimal.handling.mode=precise writes it; set \
             decimal.handling.mode=string at the connector, and write 'decimals: text' under 'table' once texts are numbers"
        }
    }
}

/// The condition that the parameter's text may contain a placeholder: most texts contain none, and need no more checks.
fn placeholder_search() -> String {
    let [compact, spaced] = UNAVAILABLE_NUMBERS_STARTS;
    let marks = [UNAVAILABLE, UNAVAILABLE_BASE64, UNAVAILABLE_UUID, compact, spaced];
    format!("({})", marks.map(|mark| format!("strpos($1::text, {}) > 0", constant(mark))).join(" or "))
}

/// The condition that the field `e` is a placeholder for an unchanged value.
fn placeholder_condition(columns: &[&Column]) -> String {
    let holds_bytes = |column: &&Column| matches!(column.kind, Kind::Bytes | Kind::ByteList);
    let bytes: Vec<_> = columns.iter().copied().filter(holds_bytes).collect();
    // An array's placeholder is an array of one placeholder, except for arrays of integers; hstore's may be an object.
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
    let is_bytes = comma_separated(&bytes, |column| constant(&column.name));
    format!("({plain} or e.key in ({is_bytes}) and ({field}) is not distinct from {})", constant(UNAVAILABLE_BASE64))
}

/// The condition that a row can be inserted: no field is a placeholder. Otherwise a cast fails, with a message that
/// names the fields.
fn insertable_condition(columns: &[&Column]) -> String {
    let (has_placeholder, is_placeholder) = (placeholder_search(), placeholder_condition(columns));
    let names = comma_separated(columns, |column| constant(&column.name));
    let message = constant(&format!(
        "{OWN_PREFIX}there is no row with the unchanged value that was not sent (REPLICA IDENTITY FULL sends it): "
    ));
    format!(
        "case when {has_placeholder} then coalesce((select ({message} || string_agg(e.key, ', '))::int \
         from json_each($1::text::json) as e where e.key in ({names}) and {is_placeholder}), 0) = 0 else true end"
    )
}

/// The SQL of a field as its column's value; null if the field is missing.
fn value_sql(column: &Column) -> String {
    let field = format!("x.{}", quoted(&column.name));
    match column.kind {
        Kind::Bytes => bytes_sql(&field),
        Kind::ByteList => format!(
            "case when {field} is not null then array(select {} from json_array_elements_text({field}::json) \
             with ordinality as e (v, n) order by e.n) end",
            bytes_sql("e.v")
        ),
        Kind::Json => format!("{field}::{}", column.sql_type),
        _ => field,
    }
}

/// The SQL of a text, base64 or `\x…`, as bytes.
fn bytes_sql(text: &str) -> String {
    format!("case when left({text}, 2) = E'\\\\x' then {text}::bytea else decode({text}, 'base64') end")
}

/// The condition that a field whose value is null is missing.
fn missing_condition(column: &Column) -> String {
    format!("(x.{OBJECT} -> {}) is null", constant(&column.name))
}

/// The SQL of a field as its column's value; the column's default if the field is missing.
fn value_or_default(column: &Column) -> String {
    match &column.default {
        None => value_sql(column),
        Some(default) => {
            format!("coalesce({}, case when {} then {default} end)", value_sql(column), missing_condition(column))
        }
    }
}

/// The SQL of a field as its column's value; the existing row's value if the field is missing.
fn value_or_existing(column: &Column) -> String {
    format!(
        "coalesce({}, case when {} then t.{} end)",
        value_sql(column),
        missing_condition(column),
        quoted(&column.name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_have_one_or_two_parts() {
        assert_eq!(name_parts("accounts"), Ok(vec!["accounts".to_owned()]));
        assert_eq!(name_parts("bank.Accounts"), Ok(vec!["bank".to_owned(), "Accounts".to_owned()]));
        assert_eq!(name_parts(r#""a.b"."c ""d""""#), Ok(vec!["a.b".to_owned(), "c \"d\"".to_owned()]));
        for name in ["", ".", "a.", ".a", "a.b.c", "\"a", "\"a\"b", "\"\""] {
            assert!(name_parts(name).is_err(), "{name}");
        }
    }
}
