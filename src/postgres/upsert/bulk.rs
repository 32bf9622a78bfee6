//! Upserts and deletes of many rows by one statement, with the same effect as one statement for each row.
//!
//! A bulk upsert inserts, and updates on conflict, so its plan does not depend on the table's size. A bulk statement
//! has the same effect as the rows one by one, in any order, because it is used only
//!
//! - for rows with different keys. If keys turn out to be equal for PostgreSQL (`1` and `01`), an upsert is refused,
//!   and a second delete has no effect.
//! - for a table without anything that may behave differently for one statement than for many: triggers, foreign keys,
//!   rules, row security, inheriting tables, unique indexes other than the key's, and check constraints with
//!   user-defined functions. The key's index has the columns' collations. The statement itself checks again that all
//!   this holds, and fails otherwise.
//! - for rows that have the same columns, if the other columns can be left out of an insert: they may be null, or have
//!   a default whose evaluation has no side effects.
//! - for rows that no check of `upsert` refuses: each has its key, no placeholder, no number for a time, and, in
//!   columns of numbers, no text that may be base64, unless it is known not to be.
//!
//! Most types convert a text by a cast as `json_to_record` converts a JSON string. If all columns have such types, the
//! rows' JSON is split into columns here, which costs a fraction of what it costs the server.
//!
//! **Failure.** The failure of a bulk statement does not identify a row: the rows are executed again one by one.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ahash::RandomState;
use tokio_postgres::{Client, Statement as Sql};

use super::super::class::Trouble;
use super::super::pipeline::{Value, within_timeout};
use super::super::quoting::quoted;
use super::{Column, Kind, Table, comma_separated, key_condition, record_definition, value_sql};

mod fields;
mod shape;

/// The maximum number of a table's columns, which are represented as bits.
const COLUMNS_MAX: usize = u128::BITS as usize;
/// The maximum number of sets of columns with a prepared statement. Rows with other sets are executed one by one.
const VARIANTS_MAX: usize = 16;
/// Fewer deletes than this are executed one by one, because the plan of a bulk delete may scan the whole table.
const DELETES_MIN: usize = 4;
/// The name of the column with a row's number, beside the table's columns: a name that no table's column has.
const NUMBER: &str = "\"ratchet: the number\"";
/// Defaults that call a function without side effects. Any other default with a parenthesis may call any function.
const HARMLESS_CALLS: [&str; 4] = ["now()", "clock_timestamp()", "gen_random_uuid()", "timezone('utc'::text, now())"];

/// The change that a statement makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Change {
    Upsert,
    Delete,
}

/// How to execute many rows at once for one of the users' statements.
pub(in super::super) struct BulkPlan {
    table: Table,
    change: Change,
    /// The numbers of the key's columns.
    key: Vec<usize>,
    /// The columns that the statement uses, as bits by their numbers.
    columns: u128,
    /// The SQL expression that is 1 as long as bulk statements may be used: see [`guard`].
    guard: String,
    /// The sets of columns that rows have had, in the order of their first occurrence.
    variants: [OnceLock<Variant>; VARIANTS_MAX],
    /// Whether rows are executed one by one anyway.
    is_disabled: AtomicBool,
    hasher: RandomState,
}

/// A set of columns, as bits by their numbers, and its statement.
struct Variant {
    columns: u128,
    /// The statement for rows with these columns; `None` if such rows are executed one by one.
    statement: Option<BulkStatement>,
}

/// A prepared statement for many rows that have the same columns.
pub(in super::super) struct BulkStatement {
    pub sql: Sql,
    /// The names of the columns whose texts are the parameters, a list for each column. Empty if the only parameter is
    /// the list of the rows as JSON.
    texts: Vec<String>,
}

impl BulkStatement {
    /// The parameters for these rows.
    pub fn values<'a>(&self, rows: impl ExactSizeIterator<Item = &'a str>) -> Vec<Value<'a>> {
        if self.texts.is_empty() {
            return vec![Value::NullableTexts(rows.map(|row| Some(row.into())).collect())];
        }
        fields::column_texts(&self.texts, rows).into_iter().map(Value::NullableTexts).collect()
    }
}

/// A row that can be executed together with others, by the same statement.
pub(in super::super) struct BulkCandidate<'a> {
    pub statement: &'a BulkStatement,
    /// A hash of the key.
    pub key_hash: u64,
}

impl BulkPlan {
    /// The plan for this table; `None` if a bulk statement could have a different effect.
    pub async fn find(
        client: &Client,
        table: &Table,
        change: Change,
        key: &[String],
        columns: Option<&[String]>,
    ) -> Result<Option<Self>, Trouble> {
        let number = |name: &String| table.columns.iter().position(|column| column.name == *name);
        let numbers = |names: &[String]| names.iter().map(number).collect::<Option<Vec<_>>>();
        let Some(key) = numbers(key) else { return Ok(None) };
        let written = match (change, columns) {
            (Change::Delete, _) => Some(key.clone()),
            (Change::Upsert, None) => Some((0..table.columns.len()).collect()),
            (Change::Upsert, Some(columns)) => numbers(columns),
        };
        let Some(written) = written.filter(|_| table.columns.len() <= COLUMNS_MAX) else { return Ok(None) };
        let Some(guard) = guard(client, table, &key).await? else { return Ok(None) };
        Ok(Some(Self {
            table: table.clone(),
            change,
            columns: bits(&written),
            key,
            guard,
            variants: Default::default(),
            is_disabled: AtomicBool::new(false),
            hasher: RandomState::with_seeds(1, 2, 3, 4),
        }))
    }

    /// The row with the statement for its columns; `None` if it has to be executed alone. `texts` are the fields that
    /// are known to be texts. May prepare the statement.
    pub async fn candidate(&self, client: &Client, row: &str, texts: Option<&str>) -> Option<BulkCandidate<'_>> {
        if self.is_disabled.load(Ordering::Relaxed) {
            return None;
        }
        let shape = shape::read(self, row, texts)?;
        let statement = self.statement_for(client, shape.columns).await?;
        Some(BulkCandidate { statement, key_hash: shape.key_hash })
    }

    /// The minimum number of rows of a bulk statement.
    pub fn rows_min(&self) -> usize {
        match self.change {
            Change::Upsert => 1,
            Change::Delete => DELETES_MIN,
        }
    }

    /// Has rows executed one by one from now on: a bulk statement has failed, and the same rows one by one have not.
    pub fn disable(&self) {
        self.is_disabled.store(true, Ordering::Relaxed);
    }

    /// The statement for rows with these columns, prepared on first use; `None` if such rows are executed one by one.
    async fn statement_for(&self, client: &Client, columns: u128) -> Option<&BulkStatement> {
        for slot in &self.variants {
            if slot.get().is_none() {
                let statement = match self.bulk_sql(columns) {
                    // An error of preparing is ignored here: the rows one by one will report it.
                    Some((sql, texts)) => {
                        let prepared = within_timeout(async { Ok(client.prepare(&sql).await?) }).await;
                        prepared.ok().map(|sql| BulkStatement { sql, texts })
                    }
                    None => None,
                };
                slot.set(Variant { columns, statement }).ok();
            }
            let variant = slot.get().filter(|variant| variant.columns == columns);
            if let Some(variant) = variant {
                return variant.statement.as_ref();
            }
        }
        None
    }

    /// The `with` clause that converts the parameters to rows `x` with their numbers, and the names of the columns
    /// whose texts are the parameters.
    fn rows_cte(&self, given: &[&Column]) -> (String, Vec<String>) {
        let guard = &self.guard;
        let texts: Option<Vec<_>> = given.iter().map(|column| column.as_text(self.change)).collect();
        let Some(texts) = texts else {
            let (names, types) =
                (comma_separated(given, |column| format!("r.{}", quoted(&column.name))), record_definition(given));
            let x = format!(
                "with x as (select {names}, p.n as {NUMBER} from unnest($1::text[]) with ordinality as p (t, n), \
                 json_to_record(p.t::json) as r ({types}) where 1 / {guard} = 1)"
            );
            return (x, Vec::new());
        };
        let texts = texts.join(", ");
        let lists = (1..=given.len()).map(|number| format!("${number}::text[]")).collect::<Vec<_>>().join(", ");
        let names = comma_separated(given, |column| quoted(&column.name));
        let x = format!(
            "with x as (select {texts}, p.{NUMBER} from unnest({lists}) with ordinality as p ({names}, {NUMBER}) \
             where 1 / {guard} = 1)"
        );
        (x, given.iter().map(|column| column.name.clone()).collect())
    }

    /// The SQL for rows that have these columns, and the names of the columns whose texts are the parameters. `None` if
    /// a column cannot be left out.
    fn bulk_sql(&self, columns: u128) -> Option<(String, Vec<String>)> {
        let all = || self.table.columns.iter().enumerate();
        let given: Vec<_> = all().filter(|(number, _)| columns & 1 << number != 0).map(|(_, column)| column).collect();
        let key: Vec<_> = self.key.iter().map(|&number| &self.table.columns[number]).collect();
        let ((x, texts), table) = (self.rows_cte(&given), &self.table.name);
        if self.change == Change::Delete {
            return Some((format!("{x} delete from {table} as t using x where {}", key_condition(&key)), texts));
        }
        if all().any(|(number, column)| columns & 1 << number == 0 && !column.can_be_left_out()) {
            return None;
        }
        let is_key = |column: &Column| key.iter().any(|part| part.name == column.name);
        let settable: Vec<_> =
            given.iter().copied().filter(|column| !is_key(column) && !column.is_identity_always).collect();
        let conflict = comma_separated(&key, |column| quoted(&column.name));
        let conflict_action = match settable.as_slice() {
            [] => "nothing".to_owned(),
            columns => format!(
                "update set {}",
                comma_separated(columns, |column| format!("{0} = excluded.{0}", quoted(&column.name)))
            ),
        };
        let names = comma_separated(&given, |column| quoted(&column.name));
        let values = comma_separated(&given, |column| format!("{} as {}", value_sql(column), quoted(&column.name)));
        // The union fails if the table's types have been altered, whereas an insert would convert the values silently.
        let sql = format!(
            "{x}, v as (select {values}, x.{NUMBER} from x union all select {names}, null from {table} where false) \
             insert into {table} as t ({names}) overriding system value select {names} from v order by v.{NUMBER} \
             on conflict ({conflict}) do {conflict_action}"
        );
        Some((sql, texts))
    }
}

impl Column {
    /// The SQL that converts the column's text in `p` for `x`; `None` if only `json_to_record` can, as for an array.
    fn as_text(&self, change: Change) -> Option<String> {
        let (name, text_type) = (quoted(&self.name), self.text_type.as_ref()?);
        match self.kind {
            // An insert applies the type's modifiers, as `json_to_record` does; a comparison would not.
            Kind::Plain | Kind::Time | Kind::Number | Kind::Float
                if change == Change::Upsert || *text_type == self.sql_type =>
            {
                Some(format!("p.{name}::{text_type} as {name}"))
            }
            Kind::Bytes | Kind::Json => Some(format!("p.{name}")),
            _ => None,
        }
    }

    /// Whether an insert can leave the column out, even if the row exists, and the column has a value in it.
    fn can_be_left_out(&self) -> bool {
        match &self.default {
            None => !self.is_not_null,
            Some(default) => !default.contains('(') || HARMLESS_CALLS.contains(&default.as_str()),
        }
    }
}

/// A set of columns' numbers, as bits.
fn bits(numbers: &[usize]) -> u128 {
    numbers.iter().fold(0, |bits, number| bits | 1 << number)
}

/// The SQL expression that is 1 as long as a bulk statement has the same effect on this table as its rows one by one,
/// and 0 otherwise; `None` if it is 0 now.
async fn guard(client: &Client, table: &Table, key: &[usize]) -> Result<Option<String>, Trouble> {
    // Built-in functions are not among the dependencies, so each dependency on a function is user-defined.
    let sql = "select c.oid::text, c.relchecks::text, \
               not exists (select from pg_catalog.pg_constraint k join pg_catalog.pg_depend d \
                on d.classid = 'pg_catalog.pg_constraint'::regclass and d.objid = k.oid \
                and d.refclassid in ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass) \
                where k.contype = 'c' and (k.conrelid = c.oid or k.contypid in \
                (select a.atttypid from pg_catalog.pg_attribute a where a.attrelid = c.oid and not a.attisdropped))) \
               and exists (select from pg_catalog.pg_index i where i.indrelid = c.oid and i.indisunique \
                and i.indpred is null and i.indexprs is null \
                and not exists (select from pg_catalog.pg_opclass o \
                where o.oid = any(i.indclass::oid[]) and not o.opcdefault) \
                and $2::text[] = array(select a.attname::text from unnest((i.indkey::int2[])[0:i.indnkeyatts - 1], \
                (i.indcollation::oid[])[0:i.indnkeyatts - 1]) as k (number, sort) \
                join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.number \
                and a.attcollation = k.sort order by a.attname::text collate \"C\")) \
               from pg_catalog.pg_class c where c.oid = to_regclass($1::text)";
    let mut names: Vec<_> = key.iter().map(|&number| table.columns[number].name.as_str()).collect();
    names.sort_unstable();
    let Some(row) = client.query_opt(sql, &[&table.name, &names]).await? else { return Ok(None) };
    let (oid, checks): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
    let guard = format!(
        "coalesce((select (c.relkind = 'r' and not c.relhastriggers and not c.relhasrules and not c.relrowsecurity \
         and not c.relhassubclass and c.relchecks = {checks} and 1 = (select count(*) \
         from pg_catalog.pg_index i where i.indrelid = c.oid and (i.indisunique or i.indisexclusion)))::int \
         from pg_catalog.pg_class c where c.oid = {oid}), 0)"
    );
    let holds: i32 = client.query_one(&format!("select {guard}"), &[]).await?.try_get(0)?;
    Ok((row.try_get(2)? && holds == 1).then_some(guard))
}

#[cfg(test)]
mod tests;
