//! The users' statements: checks and prepares them.

use tokio_postgres::{Client, Statement as Sql};

use super::class::{ErrorClass, Trouble};
use super::settings::Statement;
use super::upsert;
use super::upsert::bulk::{BulkPlan, Change};
use super::verb::check_verb;
use crate::words::counted;

/// A prepared statement.
pub(super) struct Prepared {
    /// Its name in messages: [`Statement::label`].
    pub name: String,
    pub sql: Sql,
    /// How many parameters its calls have.
    pub parameter_count: usize,
    /// Whether it has one more parameter, with the names of the row's fields that are texts.
    pub takes_texts: bool,
    /// Whether the rows that it returns are part of the answer. They have one column, of JSON.
    pub returns: bool,
    /// The number of rows that it has to change, or to return, if that is set.
    pub expect_rows: Option<u64>,
    /// How to execute several calls at once, if that is possible.
    pub bulk_plan: Option<BulkPlan>,
}

impl Prepared {
    /// The reason to refuse a record for which the statement has changed, or returned, this number of rows; `None` if
    /// it is the expected number.
    pub fn refusal(&self, rows: u64) -> Option<String> {
        let expected = self.expect_rows.filter(|expected| *expected != rows)?;
        Some(format!("{}: {}, and expect_rows is {expected}", self.name, counted(rows, "row")))
    }
}

/// Checks a statement as far as possible without a database.
pub(super) fn check(statement: &Statement) -> Result<(), String> {
    match statement {
        Statement::Sql { text, .. } => check_verb(text),
        Statement::Upsert { table, key, columns } => {
            upsert::name_parts(table)?;
            if key.is_empty() {
                return Err(format!("the key of table {table} is empty"));
            }
            let missing = columns.as_ref().and_then(|columns| key.iter().find(|column| !columns.contains(column)));
            missing.map_or(Ok(()), |column| Err(format!("column {column} of the key is not among the columns")))
        }
        Statement::DeleteRow { table, key } if key.is_empty() => Err(format!("the key of table {table} is empty")),
        Statement::DeleteRow { table, .. } | Statement::Truncate { table } => upsert::name_parts(table).map(drop),
    }
}

/// The SQL of a statement that returns rows, each as a JSON object.
fn returning_json(text: &str) -> String {
    let text = text.trim_end().trim_end_matches(';');
    // The line breaks end a comment on the statement's last line.
    format!("with ratchet_rows as (\n{text}\n) select row_to_json(ratchet_rows)::text from ratchet_rows")
}

/// Prepares a statement; see [`super::Settings::has_text_decimals`].
///
/// # Errors
/// PostgreSQL's error with its position, or a wrong number of parameters.
pub(super) async fn prepare(
    client: &Client,
    number: usize,
    statement: &Statement,
    has_text_decimals: bool,
) -> Result<Prepared, Trouble> {
    let (mut returns, mut bulk_plan) = (false, None);
    let find = |table| upsert::Table::find(client, table, has_text_decimals);
    let sql = match statement {
        Statement::Sql { text, returns: true, .. } => {
            returns = true;
            returning_json(text)
        }
        Statement::Sql { text, .. } => text.clone(),
        Statement::Upsert { table, key, columns } => {
            let (table, columns) = (find(table).await?, columns.as_deref());
            bulk_plan = BulkPlan::find(client, &table, Change::Upsert, key, columns).await?;
            table.upsert(key, columns).map_err(Trouble::permanent)?
        }
        Statement::DeleteRow { table, key } => {
            let table = find(table).await?;
            bulk_plan = BulkPlan::find(client, &table, Change::Delete, key, None).await?;
            table.delete(key).map_err(Trouble::permanent)?
        }
        Statement::Truncate { table } => find(table).await?.truncate(),
    };
    let prepared = client.prepare(&sql).await.map_err(|error| prepare_error(error, statement, &sql))?;
    let (has, given, takes_texts) = (prepared.params().len(), statement.parameters(), statement.takes_texts());
    if has != given + usize::from(takes_texts) {
        return Err(Trouble::permanent(format!("it has {}, but is given {given}", counted(has, "parameter"))));
    }
    let expect_rows = statement.expect_rows();
    let name = statement.label(number);
    Ok(Prepared { name, sql: prepared, parameter_count: given, takes_texts, returns, expect_rows, bulk_plan })
}

/// What to do about a statement that cannot be prepared, where PostgreSQL's message does not say it.
pub(super) fn help_for(trouble: &Trouble) -> Option<&'static str> {
    match trouble.code.as_ref()?.code() {
        // A parameter's type cannot be determined, or is ambiguous.
        "42P18" | "42P08" => Some("write the parameter's type where it stands, e.g. '$1::text' or '$1::bigint'"),
        code if code.starts_with("22") => {
            Some("a constant in the statement or its 'with' is not of the type that is needed there: correct it")
        }
        _ => None,
    }
}

/// Adds what to do about an error to its message.
pub(super) fn with_help(trouble: Trouble) -> Trouble {
    let message = help_for(&trouble).map(|help| format!("{}; {help}", trouble.message));
    Trouble { message: message.unwrap_or_else(|| trouble.message.clone()), ..trouble }
}

/// The error of a statement that cannot be prepared, with its position and PostgreSQL's hint.
fn prepare_error(error: tokio_postgres::Error, statement: &Statement, sql: &str) -> Trouble {
    use tokio_postgres::error::ErrorPosition;
    let hint = error.as_db_error().and_then(|error| error.hint()).map(str::to_owned);
    let position = error.as_db_error().and_then(|error| match error.position() {
        Some(ErrorPosition::Original(position)) => Some(*position as usize),
        _ => None,
    });
    let mut trouble = Trouble::from(error);
    if trouble.class == ErrorClass::Data {
        // For example, a constant that cannot be read: no record is the cause.
        trouble.class = ErrorClass::Permanent;
    }
    if let (Some(position), Statement::Sql { text, .. }) = (position, statement) {
        // The position counts characters of the sent SQL, from 1.
        let start = sql.find(text.trim_end().trim_end_matches(';')).unwrap_or_default();
        let position = position.saturating_sub(sql[..start].chars().count() + 1);
        let excerpt: String = text.chars().skip(position).take(30).collect();
        if !excerpt.is_empty() {
            trouble.message = format!("{}, at '{excerpt}'", trouble.message);
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
    fn returned_rows_are_selected_as_json() {
        let sql = returning_json("insert into t values (1) returning id -- the id\n ; ");
        assert!(sql.contains("-- the id\n \n) select row_to_json"), "{sql}");
    }
}
