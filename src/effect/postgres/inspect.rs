//! What `check --online` asks the database: nothing is written, no statement is carried out.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::class::{Class, Trouble};
use super::pipeline::answered;
use super::prepare::{self, Grants, State};
use super::quoting::{constant, quoted};
use super::server::{self, Greeting};
use super::session::runtime;
use super::settings::{Settings, Statement};
use super::{Postgres, positions, statement, upsert};
use crate::effect::{Error, Row, RowKey};

/// A right is missing.
const RIGHT: SqlState = SqlState::INSUFFICIENT_PRIVILEGE;
/// A unique index is missing that `on conflict` names.
const UNIQUE: SqlState = SqlState::INVALID_COLUMN_REFERENCE;

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether nothing can be committed because of it; otherwise it is worth knowing.
    pub is_error: bool,
    /// The statement that it is about, by its number from 0.
    pub statement: Option<usize>,
    /// What was found, in lower case and without a full stop; never holds a secret.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl Finding {
    fn error(message: impl Into<String>) -> Self {
        Self { is_error: true, statement: None, message: message.into(), help: None }
    }

    fn note(message: impl Into<String>) -> Self {
        Self { is_error: false, ..Self::error(message) }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    fn of(mut self, statement: usize) -> Self {
        self.statement = Some(statement);
        self
    }
}

/// Looks whether the database is as these settings need it. Takes some seconds where it cannot be reached.
pub fn inspect(settings: &Settings) -> Vec<Finding> {
    inspect_with(settings, &[])
}

/// The same, and looks whether constants among the parameters can be read. `constants` has the texts of those for each
/// statement, `None` for what each record says.
pub fn inspect_with(settings: &Settings, constants: &[Vec<Option<String>>]) -> Vec<Finding> {
    let shared = match Postgres::new(settings.clone()) {
        Ok(postgres) => postgres.shared,
        Err(error) => return vec![Finding::error(error.message)],
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(trouble) => return vec![Finding::error(trouble.message)],
    };
    runtime.block_on(async {
        let mut findings = Vec::new();
        let looked = async {
            let (client, _task, _) = match server::connect(&shared.server, &shared.settings.topology).await {
                Ok(connected) => connected,
                Err(trouble) => {
                    findings.push(unreached(trouble));
                    return Ok(());
                }
            };
            answered(look_over(&client, &shared.settings, constants, &mut findings)).await
        };
        if let Err(trouble) = looked.await {
            findings.push(Finding::error(trouble.message));
        }
        findings
    })
}

/// All rows of the topology in ratchet's own table, with whether there is a redo in place of what it holds; none where
/// that table is not there.
///
/// # Errors
/// The database cannot be reached, or does not let the rows be read: [`inspect`] says so too.
pub fn rows(settings: &Settings) -> Result<Vec<(RowKey, Row)>, Error> {
    let shared = Postgres::new(settings.clone())?.shared;
    let work = async {
        let (client, _task, _) = server::connect(&shared.server, &shared.settings.topology).await?;
        answered(async {
            let Greeting { role, .. } = server::greet(&client).await?;
            let grants = Grants::of(settings, &role);
            match prepare::state(&client, &grants).await? {
                State::Ready => positions::all(&client, &settings.schema, &settings.topology).await,
                State::Missing(_) => Ok(Vec::new()),
                State::Foreign(_) => Err(Trouble::lasting("ratchet's own tables are of another release")),
            }
        })
        .await
    };
    runtime().and_then(|runtime| runtime.block_on(work)).map_err(Trouble::into_error)
}

/// What is said of a database that cannot be connected to.
fn unreached(trouble: Trouble) -> Finding {
    let help = match trouble.code.as_ref().map(SqlState::code) {
        Some("28P01" | "28000") => {
            "see the user and the password in the url; pg_hba.conf on the server says who may come from where"
        }
        Some("3D000") => "create the database, or name another one in the url",
        Some("42501") => "grant connect on the database to this user, or name another one in the url",
        Some("53300" | "57P03") => "the server takes no more connections now: see max_connections, or wait",
        Some(_) => "see what the server says",
        None if trouble.class == Class::Lost => {
            "see that PostgreSQL runs there, that it listens on this address (listen_addresses), and that no firewall is in \
             between"
        }
        None => "see the host, sslmode, sslrootcert, sslcert and sslkey in the url",
    };
    Finding::error(trouble.message).help(help)
}

async fn look_over(
    client: &Client,
    settings: &Settings,
    constants: &[Vec<Option<String>>],
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let Greeting { role, .. } = server::greet(client).await?;
    let grants = Grants::of(settings, &role);
    let row = client.query_one("select current_setting('synchronous_commit'), pg_is_in_recovery()", &[]).await?;
    if row.try_get::<_, &str>(0)? == "off" {
        findings.push(
            Finding::note("synchronous_commit is off: a crash of the server loses commits that it has answered")
                .help("the task notices that and stops; 'alter role … set synchronous_commit = on' prevents it"),
        );
    }
    if row.try_get(1)? {
        findings.push(
            Finding::error("the server is a replica and accepts no writes")
                .help("name the primary in the url, or several hosts and target_session_attrs=read-write"),
        );
        return Ok(());
    }
    own_tables(client, settings, (&grants, &role), findings).await?;
    let mut missing: Vec<&str> = Vec::new();
    for (number, statement) in settings.statements.iter().enumerate() {
        if statement.table().is_some_and(|table| missing.contains(&table)) {
            continue;
        }
        let constants = constants.get(number).map_or(&[][..], Vec::as_slice);
        let looked = one_statement(client, (number, statement), settings.has_text_decimals, constants).await;
        if let (Ok(()), Statement::Upsert { table, columns, .. }) = (&looked, statement) {
            let table = upsert::Table::find(client, table, settings.has_text_decimals).await?;
            let is_written = |name: &&str| columns.as_ref().is_none_or(|all| all.iter().any(|column| column == name));
            let decimals: Vec<&str> = table.decimals().into_iter().filter(is_written).collect();
            findings.extend(decimals_are_doubted(&decimals).map(|finding| finding.of(number)));
        }
        if let Err(trouble) = looked {
            // Said once, and not for each of the statements that keep it.
            missing.extend(statement.table().filter(|_| trouble.code == Some(SqlState::UNDEFINED_TABLE)));
            let finding = Finding::error(trouble.message.clone()).of(number);
            if trouble.class == Class::Lost {
                return Err(trouble);
            }
            findings.push(match help(&trouble, statement) {
                Some(help) => finding.help(help),
                None => finding,
            });
        }
    }
    Ok(())
}

/// The note about columns of decimals in which not every text is a number.
fn decimals_are_doubted(columns: &[&str]) -> Option<Finding> {
    let message = format!(
        "a text for {} is refused where it may be base64, as Debezium's decimal.handling.mode=precise writes numbers",
        columns.join(", ")
    );
    let help = "set decimal.handling.mode=string at the connector and write 'decimals: text' under 'table', or let the \
                connector's converter write schemas; numbers that come as numbers need neither";
    (!columns.is_empty()).then(|| Finding::note(message).help(help))
}

async fn own_tables(
    client: &Client,
    settings: &Settings,
    (grants, role): (&Grants<'_>, &str),
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let schema = &settings.schema;
    match prepare::state(client, grants).await {
        Ok(State::Ready) => rights(client, settings, role, findings).await,
        Ok(State::Foreign(number)) => {
            findings.push(
                Finding::error(format!(
                    "ratchet's own tables in schema {schema} have format {number}, of another release"
                ))
                .help("run the release that has created them, or name another schema"),
            );
            Ok(())
        }
        Ok(State::Missing(tables)) => {
            let sql = "select case when exists (select from pg_catalog.pg_namespace where nspname = $1::text) \
                       then has_schema_privilege($1::text, 'create') \
                       else has_database_privilege(current_database(), 'create') end";
            let may: bool = client.query_one(sql, &[schema]).await?.try_get(0)?;
            let missing = format!("ratchet's own tables are missing ({}) in schema {schema}", tables.join(", "));
            let ddl = || format!("let somebody who may create them run this:\n{}", grants.ddl());
            findings.push(match (settings.create, may) {
                (true, true) => Finding::note(format!("{missing}: 'ratchet run' creates them")),
                (true, false) => Finding::error(format!("{missing}, and this role may not create them")).help(ddl()),
                (false, _) => Finding::error(format!("{missing}, and ratchet is not to create them")).help(ddl()),
            });
            Ok(())
        }
        Err(trouble) if trouble.class == Class::Lasting => {
            findings.push(Finding::error(trouble.message));
            Ok(())
        }
        Err(trouble) => Err(trouble),
    }
}

async fn rights(client: &Client, settings: &Settings, role: &str, findings: &mut Vec<Finding>) -> Result<(), Trouble> {
    let of_inbox: &[&str] = if settings.inbox.is_some() { &["select", "insert", "update", "delete"] } else { &[] };
    for (table, rights) in [("position", &["select", "insert", "update"][..]), ("inbox", of_inbox)] {
        let name = format!("{}.{table}", quoted(&settings.schema));
        for right in rights {
            if client.query_one("select has_table_privilege($1::text, $2::text)", &[&name, right]).await?.try_get(0)? {
                continue;
            }
            findings.push(
                Finding::error(format!("this role may not {right} on ratchet's own table {name}"))
                    .help(format!("grant {right} on {name} to {};", quoted(role))),
            );
        }
    }
    Ok(())
}

/// Prepares a statement, and has it planned with nulls, which also looks at rights and at the key's unique index.
async fn one_statement(
    client: &Client,
    (number, statement): (usize, &Statement),
    has_text_decimals: bool,
    constants: &[Option<String>],
) -> Result<(), Trouble> {
    statement::prepare(client, number, statement, has_text_decimals).await?;
    let find = |table| upsert::Table::find(client, table, has_text_decimals);
    let (sql, parameters) = match statement {
        Statement::Sql { text, parameters, .. } => (text.clone(), *parameters),
        Statement::Upsert { table, key, columns } => {
            let table = find(table).await?;
            (table.upsert(key, columns.as_deref()).map_err(Trouble::lasting)?, 2)
        }
        Statement::DeleteRow { table, key } => {
            let table = find(table).await?;
            (table.delete(key).map_err(Trouble::lasting)?, 2)
        }
        Statement::Truncate { table } => {
            let table = find(table).await?;
            let sql = format!("select has_table_privilege({}, 'truncate')", constant(table.name()));
            if client.query_one(&sql, &[]).await?.try_get(0)? {
                return Ok(());
            }
            return Err(Trouble::lasting(format!("this role may not truncate {}", table.name())));
        }
    };
    match planned(client, &sql, &vec!["null".to_owned(); parameters]).await? {
        Err(trouble) if matches!(&trouble.code, Some(code) if *code == RIGHT || *code == UNIQUE) => {
            return Err(trouble);
        }
        // Others are about the nulls, or about what can be carried out, but not be prepared in SQL.
        Err(_) => return Ok(()),
        Ok(()) => {}
    }
    if constants.iter().all(Option::is_none) {
        return Ok(());
    }
    let value = |at| constants.get(at).and_then(Option::as_deref).map_or_else(|| "null".to_owned(), constant);
    match planned(client, &sql, &(0..parameters).map(value).collect::<Vec<_>>()).await? {
        Err(trouble) if trouble.class == Class::Data => Err(trouble.of("a constant of 'with'")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Has a statement planned with these values, in SQL. It was prepared before, so it is one, and none that ends the
/// transaction.
async fn planned(client: &Client, sql: &str, values: &[String]) -> Result<Result<(), Trouble>, Trouble> {
    let values = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
    let planned = client
        .batch_execute(&format!(
            "begin read only; prepare ratchet_check as {sql}\n; explain execute ratchet_check{values}"
        ))
        .await;
    client.batch_execute("rollback").await?;
    // It outlives the transaction, if there is one.
    client.batch_execute("deallocate ratchet_check").await.ok();
    Ok(planned.map_err(Trouble::from))
}

fn help(trouble: &Trouble, statement: &Statement) -> Option<String> {
    if trouble.code == Some(RIGHT) || trouble.message.starts_with("this role may not") {
        return Some("grant the right to this role, or use another role in the url".to_owned());
    }
    if let Some(help) = statement::help(trouble) {
        return Some(help.to_owned());
    }
    match statement {
        Statement::Upsert { table, key, .. } if trouble.code == Some(UNIQUE) => {
            let columns: Vec<_> = key.iter().map(|column| quoted(column)).collect();
            Some(format!("create a unique index on {table} ({})", columns.join(", ")))
        }
        Statement::Sql { .. } if trouble.message.contains("is given") => {
            Some("'with' lists one value for each of $1, $2, … of the statement".to_owned())
        }
        _ => None,
    }
}
