//! Upserts and deletes of many rows by one statement, with the same effect as one by one.
//!
//! Such a statement inserts, and updates where there is a row already: that needs no plan that depends on the table's
//! size. It has the same effect as the rows one by one, whatever their order, because it is used only
//!
//! - for rows of different keys. An upsert is refused if keys are equal after all (`1` and `01`); deleting twice is
//!   deleting once.
//! - for a table without anything that sees statements, or rows one after the other: triggers, foreign keys, rules, row
//!   security, heirs, unique indexes beside the key's, which compares as the columns do, check constraints with functions
//!   of somebody's own. The statement itself looks again whether that is still so, and fails if it is not.
//! - for rows that have the same columns, where the others can be left out of an insert: they may be null or have a
//!   default that nobody notices being worked out.
//! - for rows that need no words of ours: each has its key, no placeholder, no number for a time, and in columns of numbers
//!   no text that may be base64, unless it is known to be none.
//!
//! Most types read a text that is cast to them as they read JSON's texts. Where all columns have such types, the rows'
//! JSON is taken apart here, which costs a fraction of what it costs there.
//!
//! **Failure.** What fails for many rows says nothing of one: it is carried out again row by row.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use ahash::RandomState;
use tokio_postgres::{Client, Statement as Sql};

use super::super::class::Trouble;
use super::super::pipeline::{Value, answered};
use super::super::quoting::quoted;
use super::{Column, Kind, Table, equal, list, record, value};

mod fields;
mod shape;

/// The greatest number of columns.
const COLUMNS_MAX: usize = u128::BITS as usize;
/// How many sets of columns have a statement of their own. Rows of others go one by one.
const VARIANTS_MAX: usize = 16;
/// Deletes that are fewer go one by one: for many, the table may be read as a whole.
const DELETES_MIN: usize = 4;
/// A row's number, beside the columns of the table: a name that no table has.
const NUMBER: &str = "\"ratchet: the number\"";
/// Calls in defaults that nobody notices. All else with a parenthesis in it may be a call of anything.
const HARMLESS: [&str; 4] = ["now()", "clock_timestamp()", "gen_random_uuid()", "timezone('utc'::text, now())"];

/// What is done with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Change {
    Upsert,
    Delete,
}

/// What carries out many rows at once.
pub(in super::super) struct Many {
    table: Table,
    change: Change,
    /// The numbers of the key's columns.
    key: Vec<usize>,
    /// The columns that are looked at, as bits by their numbers.
    columns: u128,
    /// What is true of the table as long as it may be used, in SQL.
    guard: String,
    /// The sets of columns that rows have had, in the order in which they came first.
    variants: [OnceLock<Variant>; VARIANTS_MAX],
    /// Whether rows go one by one all the same.
    is_apart: AtomicBool,
    hasher: RandomState,
}

/// A set of columns.
struct Variant {
    columns: u128,
    /// What carries out rows that have these; `None` if they go one by one.
    way: Option<Way>,
}

/// How rows that have the same columns are carried out together.
pub(in super::super) struct Way {
    pub sql: Sql,
    /// The columns whose texts are the parameters, by their names: a list for each. None of them where the only
    /// parameter is a list of the rows.
    texts: Vec<String>,
}

impl Way {
    /// The parameters for these rows.
    pub fn values<'a>(&self, rows: impl ExactSizeIterator<Item = &'a str>) -> Vec<Value<'a>> {
        if self.texts.is_empty() {
            return vec![Value::Texts(rows.map(|row| Some(row.into())).collect())];
        }
        fields::columns(&self.texts, rows).into_iter().map(Value::Texts).collect()
    }
}

/// What a row can be carried out with.
pub(in super::super) struct Fit<'a> {
    pub way: &'a Way,
    /// Different for different keys; rarely the same for different ones, too.
    pub key: u64,
}

impl Many {
    /// What carries out many rows of this table at once; `None` if that could make a difference.
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
            is_apart: AtomicBool::new(false),
            hasher: RandomState::with_seeds(1, 2, 3, 4),
        }))
    }

    /// What this row, these fields of which are known to be texts, can be carried out with beside others; `None` if it goes
    /// alone. May have to prepare that.
    pub async fn fit(&self, client: &Client, row: &str, texts: Option<&str>) -> Option<Fit<'_>> {
        if self.is_apart.load(Ordering::Relaxed) {
            return None;
        }
        let shape = shape::read(self, row, texts)?;
        let way = self.way(client, shape.columns).await?;
        Some(Fit { way, key: shape.key })
    }

    /// How many rows it takes to go together.
    pub fn rows_min(&self) -> usize {
        match self.change {
            Change::Upsert => 1,
            Change::Delete => DELETES_MIN,
        }
    }

    /// Rows go one by one from now on: together they have failed, and one by one they have not.
    pub fn keep_apart(&self) {
        self.is_apart.store(true, Ordering::Relaxed);
    }

    async fn way(&self, client: &Client, columns: u128) -> Option<&Way> {
        for place in &self.variants {
            if place.get().is_none() {
                let way = match self.sql(columns) {
                    // What cannot be prepared here is tried, and said, row by row.
                    Some((sql, texts)) => {
                        let prepared = answered(async { Ok(client.prepare(&sql).await?) }).await;
                        prepared.ok().map(|sql| Way { sql, texts })
                    }
                    None => None,
                };
                place.set(Variant { columns, way }).ok();
            }
            let variant = place.get().filter(|variant| variant.columns == columns);
            if let Some(variant) = variant {
                return variant.way.as_ref();
            }
        }
        None
    }

    /// The rows as the statement's own: `x`, with their numbers. Says which columns come as texts.
    fn rows(&self, given: &[&Column]) -> (String, Vec<String>) {
        let guard = &self.guard;
        let texts: Option<Vec<_>> = given.iter().map(|column| column.as_text(self.change)).collect();
        let Some(texts) = texts else {
            let (names, types) = (list(given, |column| format!("r.{}", quoted(&column.name))), record(given));
            let x = format!(
                "with x as (select {names}, p.n as {NUMBER} from unnest($1::text[]) with ordinality as p (t, n), \
                 json_to_record(p.t::json) as r ({types}) where 1 / {guard} = 1)"
            );
            return (x, Vec::new());
        };
        let texts = texts.join(", ");
        let lists = (1..=given.len()).map(|number| format!("${number}::text[]")).collect::<Vec<_>>().join(", ");
        let names = list(given, |column| quoted(&column.name));
        let x = format!(
            "with x as (select {texts}, p.{NUMBER} from unnest({lists}) with ordinality as p ({names}, {NUMBER}) \
             where 1 / {guard} = 1)"
        );
        (x, given.iter().map(|column| column.name.clone()).collect())
    }

    /// The statement for rows that have these columns, and which of them come as texts.
    fn sql(&self, columns: u128) -> Option<(String, Vec<String>)> {
        let all = || self.table.columns.iter().enumerate();
        let given: Vec<_> = all().filter(|(number, _)| columns & 1 << number != 0).map(|(_, column)| column).collect();
        let key: Vec<_> = self.key.iter().map(|&number| &self.table.columns[number]).collect();
        let ((x, texts), table) = (self.rows(&given), &self.table.name);
        if self.change == Change::Delete {
            return Some((format!("{x} delete from {table} as t using x where {}", equal(&key)), texts));
        }
        if all().any(|(number, column)| columns & 1 << number == 0 && !column.can_be_left_out()) {
            return None;
        }
        let is_key = |column: &Column| key.iter().any(|part| part.name == column.name);
        let settable: Vec<_> =
            given.iter().copied().filter(|column| !is_key(column) && !column.is_identity_always).collect();
        let conflict = list(&key, |column| quoted(&column.name));
        let then = match settable.as_slice() {
            [] => "nothing".to_owned(),
            some => format!("update set {}", list(some, |column| format!("{0} = excluded.{0}", quoted(&column.name)))),
        };
        let names = list(&given, |column| quoted(&column.name));
        let values = list(&given, |column| format!("{} as {}", value(column), quoted(&column.name)));
        // An insert converts what the table has other types for by now, as nobody has asked it to: the union does not.
        let sql = format!(
            "{x}, v as (select {values}, x.{NUMBER} from x union all select {names}, null from {table} where false) \
             insert into {table} as t ({names}) overriding system value select {names} from v order by v.{NUMBER} \
             on conflict ({conflict}) do {then}"
        );
        Some((sql, texts))
    }
}

impl Column {
    /// Its text `p` as it stands in `x`; `None` if only the server's reading of JSON makes its value, as that of an array.
    fn as_text(&self, change: Change) -> Option<String> {
        let (name, text_type) = (quoted(&self.name), self.text_type.as_ref()?);
        match self.kind {
            // An insert applies the modifiers as reading does; a comparison would not.
            Kind::Plain | Kind::Time | Kind::Number | Kind::Float
                if change == Change::Upsert || *text_type == self.sql_type =>
            {
                Some(format!("p.{name}::{text_type} as {name}"))
            }
            Kind::Bytes | Kind::Json => Some(format!("p.{name}")),
            _ => None,
        }
    }

    /// Whether an insert can leave it out, also where there is a row already that has it.
    fn can_be_left_out(&self) -> bool {
        match &self.default {
            None => !self.is_not_null,
            Some(default) => !default.contains('(') || HARMLESS.contains(&default.as_str()),
        }
    }
}

fn bits(numbers: &[usize]) -> u128 {
    numbers.iter().fold(0, |bits, number| bits | 1 << number)
}

/// What is 1 as long as nothing sees the difference between many rows and one after the other, and 0 otherwise, in SQL;
/// `None` if it is 0 now.
async fn guard(client: &Client, table: &Table, key: &[usize]) -> Result<Option<String>, Trouble> {
    // Functions that come with the server are not among the dependencies.
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
