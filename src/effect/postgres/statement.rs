//! The users' statements: what may be one, and preparing them.

use tokio_postgres::{Client, Statement as Sql};

use super::class::{Class, Trouble};
use super::settings::Statement;
use super::upsert;
use super::upsert::many::{Change, Many};
use super::verb::check_verb;
use crate::words::counted;

/// A statement that is ready to be carried out.
pub(super) struct Prepared {
    /// What messages call it: [`Statement::named`].
    pub name: String,
    pub sql: Sql,
    /// How many parameters its calls have.
    pub parameters: usize,
    /// Whether it has one more, which says which fields of the row are texts.
    pub takes_texts: bool,
    /// Whether the rows that it returns are part of the answer; they come as one column of JSON.
    pub returns: bool,
    /// How many rows it has to change, or to return.
    pub expect_rows: Option<u64>,
    /// What carries out several calls at once, if they may be.
    pub many: Option<Many>,
}

impl Prepared {
    /// The refusal of a record for which the statement has changed, or returned, this number of rows; `None` if the number is
    /// right.
    pub fn refuses(&self, rows: u64) -> Option<String> {
        let expected = self.expect_rows.filter(|expected| *expected != rows)?;
        Some(format!("{}: {}, and expect_rows is {expected}", self.name, counted(rows, "row")))
    }
}

/// Checks what can be checked without a database.
pub(super) fn check(statement: &Statement) -> Result<(), String> {
    match statement {
        Statement::Sql { text, .. } => check_verb(text),
        Statement::Upsert { table, key, columns } => {
            upsert::parts(table)?;
            if key.is_empty() {
                return Err(format!("the key of table {table} is empty"));
            }
            let missing = columns.as_ref().and_then(|columns| key.iter().find(|column| !columns.contains(column)));
            missing.map_or(Ok(()), |column| Err(format!("column {column} of the key is not among the columns")))
        }
        Statement::DeleteRow { table, key } if key.is_empty() => Err(format!("the key of table {table} is empty")),
        Statement::DeleteRow { table, .. } | Statement::Truncate { table } => upsert::parts(table).map(drop),
    }
}

/// The SQL of a statement that returns rows, each as a JSON object.
fn returning(text: &str) -> String {
    let text = text.trim_end().trim_end_matches(';');
    // Its last line may end in a comment.
    format!("with ratchet_rows as (\n{text}\n) select row_to_json(ratchet_rows)::text from ratchet_rows")
}

/// Prepares a statement; see [`super::Settings::has_text_decimals`].
///
/// # Errors
/// What PostgreSQL says of it, with the place, or a number of parameters that is not its own.
pub(super) async fn prepare(
    client: &Client,
    number: usize,
    statement: &Statement,
    has_text_decimals: bool,
) -> Result<Prepared, Trouble> {
    let (mut returns, mut many) = (false, None);
    let find = |table| upsert::Table::find(client, table, has_text_decimals);
    let sql = match statement {
        Statement::Sql { text, returns: true, .. } => {
            returns = true;
            returning(text)
        }
        Statement::Sql { text, .. } => text.clone(),
        Statement::Upsert { table, key, columns } => {
            let (table, columns) = (find(table).await?, columns.as_deref());
            many = Many::find(client, &table, Change::Upsert, key, columns).await?;
            table.upsert(key, columns).map_err(Trouble::lasting)?
        }
        Statement::DeleteRow { table, key } => {
            let table = find(table).await?;
            many = Many::find(client, &table, Change::Delete, key, None).await?;
            table.delete(key).map_err(Trouble::lasting)?
        }
        Statement::Truncate { table } => find(table).await?.truncate(),
    };
    let prepared = client.prepare(&sql).await.map_err(|error| refused(error, statement, &sql))?;
    let (has, given, takes_texts) = (prepared.params().len(), statement.parameters(), statement.takes_texts());
    if has != given + usize::from(takes_texts) {
        return Err(Trouble::lasting(format!("it has {}, but is given {given}", counted(has, "parameter"))));
    }
    let expect_rows = statement.expect_rows();
    let name = statement.named(number);
    Ok(Prepared { name, sql: prepared, parameters: given, takes_texts, returns, expect_rows, many })
}

/// What to do about a statement that cannot be prepared, where PostgreSQL's words do not say it.
pub(super) fn help(trouble: &Trouble) -> Option<&'static str> {
    match trouble.code.as_ref()?.code() {
        // A type that cannot be determined, or two for one parameter.
        "42P18" | "42P08" => Some("write the parameter's type where it stands, e.g. '$1::text' or '$1::bigint'"),
        code if code.starts_with("22") => {
            Some("a constant in the statement or its 'with' is not of the type that is needed there: correct it")
        }
        _ => None,
    }
}

/// The trouble with what to do about it.
pub(super) fn helped(trouble: Trouble) -> Trouble {
    let message = help(&trouble).map(|help| format!("{}; {help}", trouble.message));
    Trouble { message: message.unwrap_or_else(|| trouble.message.clone()), ..trouble }
}

/// What is wrong with a statement that cannot be prepared.
fn refused(error: tokio_postgres::Error, statement: &Statement, sql: &str) -> Trouble {
    use tokio_postgres::error::ErrorPosition;
    let hint = error.as_db_error().and_then(|error| error.hint()).map(str::to_owned);
    let position = error.as_db_error().and_then(|error| match error.position() {
        Some(ErrorPosition::Original(position)) => Some(*position as usize),
        _ => None,
    });
    let mut trouble = Trouble::from(error);
    if trouble.class == Class::Data {
        // A constant in it that cannot be read, say: no record is to blame.
        trouble.class = Class::Lasting;
    }
    if let (Some(position), Statement::Sql { text, .. }) = (position, statement) {
        // Characters are counted from 1, in what was sent.
        let before = sql.find(text.trim_end().trim_end_matches(';')).unwrap_or_default();
        let at = position.saturating_sub(sql[..before].chars().count() + 1);
        let near: String = text.chars().skip(at).take(30).collect();
        if !near.is_empty() {
            trouble.message = format!("{}, at '{near}'", trouble.message);
        }
    }
    if let Some(hint) = hint {
        trouble.message = format!("{}; {}", trouble.message, hint.trim_end_matches('.'));
    }
    trouble
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str) -> Statement {
        Statement::Sql { text: text.to_owned(), parameters: 0, returns: false, expect_rows: None }
    }

    #[test]
    fn statements_that_control_the_transaction_are_refused() {
        for text in
            ["commit", "  ROLLBACK", "-- x\nbegin", "/* a /* b */ select */ end", "savepoint a", "set x = 1", "", "--"]
        {
            assert!(check(&sql(text)).is_err(), "{text}");
        }
        for text in
            ["insert into t values ($1)", "/* x */ (Select 1)", "with a as (select 1) select 1", "-- x\n delete from t"]
        {
            assert_eq!(check(&sql(text)), Ok(()), "{text}");
        }
    }

    #[test]
    fn rows_that_come_back_are_asked_for_as_json() {
        let sql = returning("insert into t values (1) returning id -- the id\n ; ");
        assert!(sql.contains("-- the id\n \n) select row_to_json"), "{sql}");
    }
}
