//! The checks of `check --online` in the database: nothing is written, and the users' statements are not executed.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::class::{ErrorClass, Trouble};
use super::pipeline::within_timeout;
use super::quoting::{constant, quoted};
use super::server::{self, SessionInfo};
use super::session::runtime;
use super::settings::{Settings, Statement};
use super::sink_tables::{self, Grants, TablesState};
use super::{Postgres, positions, statement, upsert};
use crate::effect::{Error, Row, RowKey};

/// The code of a missing right.
const MISSING_RIGHT: SqlState = SqlState::INSUFFICIENT_PRIVILEGE;
/// The code of a missing unique index for the columns of `on conflict`.
const MISSING_UNIQUE_INDEX: SqlState = SqlState::INVALID_COLUMN_REFERENCE;

/// A finding of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether it prevents commits; otherwise it is a note.
    pub is_error: bool,
    /// The number of the statement that it is about, from 0.
    pub statement: Option<usize>,
    /// The message, in lower case and without a full stop; never contains a secret.
    pub message: String,
    /// The remedy.
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

    fn for_statement(mut self, statement: usize) -> Self {
        self.statement = Some(statement);
        self
    }
}

/// Checks whether the database meets the needs of these settings. Takes some seconds if it cannot be reached.
pub fn inspect(settings: &Settings) -> Vec<Finding> {
    inspect_with(settings, &[])
}

/// Like [`inspect`], and also checks whether constant parameters can be read. `constants` has, for each statement, the
/// text of each constant parameter, and `None` for a parameter that the records fill.
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
        let inspection = async {
            let (client, _task, _) = match server::connect(&shared.server, &shared.settings.topology).await {
                Ok(connected) => connected,
                Err(trouble) => {
                    findings.push(connect_finding(trouble));
                    return Ok(());
                }
            };
            within_timeout(inspect_database(&client, &shared.settings, constants, &mut findings)).await
        };
        if let Err(trouble) = inspection.await {
            findings.push(Finding::error(trouble.message));
        }
        findings
    })
}

/// All of the topology's rows in ratchet's own table `position`; a redo is represented by an empty one. No rows if the
/// table is missing.
///
/// # Errors
/// The database cannot be reached, or the rows cannot be read: [`inspect`] reports that, too.
pub fn rows(settings: &Settings) -> Result<Vec<(RowKey, Row)>, Error> {
    let shared = Postgres::new(settings.clone())?.shared;
    let work = async {
        let (client, _task, _) = server::connect(&shared.server, &shared.settings.topology).await?;
        within_timeout(async {
            let SessionInfo { role, .. } = server::check_server(&client).await?;
            let grants = Grants::for_settings(settings, &role);
            match sink_tables::read_state(&client, &grants).await? {
                TablesState::Ready => positions::topology_rows(&client, &settings.schema, &settings.topology).await,
                TablesState::Missing(_) => Ok(Vec::new()),
                TablesState::OtherFormat(_) => Err(Trouble::permanent("ratchet's own tables are of another release")),
            }
        })
        .await
    };
    runtime().and_then(|runtime| runtime.block_on(work)).map_err(Trouble::into_error)
}

/// The finding for a database that cannot be connected to.
fn connect_finding(trouble: Trouble) -> Finding {
    let help = match trouble.code.as_ref().map(SqlState::code) {
        Some("28P01" | "28000") => {
            "see the user and the password in the url; pg_hba.conf on the server says who may come from where"
        }
        Some("3D000") => "create the database, or name another one in the url",
        Some("42501") => "grant connect on the database to this user, or name another one in the url",
        Some("53300" | "57P03") => "the server takes no more connections now: see max_connections, or wait",
        Some(_) => "see what the server says",
        None if trouble.class == ErrorClass::Lost => {
            "see that PostgreSQL runs there, that it listens on this address (listen_addresses), and that no firewall is in \
             between"
        }
        None => "see the host, sslmode, sslrootcert, sslcert and sslkey in the url",
    };
    Finding::error(trouble.message).help(help)
}

async fn inspect_database(
    client: &Client,
    settings: &Settings,
    constants: &[Vec<Option<String>>],
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let SessionInfo { role, .. } = server::check_server(client).await?;
    let grants = Grants::for_settings(settings, &role);
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
    inspect_own_tables(client, settings, (&grants, &role), findings).await?;
    let mut missing: Vec<&str> = Vec::new();
    for (number, statement) in settings.statements.iter().enumerate() {
        if statement.table().is_some_and(|table| missing.contains(&table)) {
            continue;
        }
        let constants = constants.get(number).map_or(&[][..], Vec::as_slice);
        let result = inspect_statement(client, (number, statement), settings.has_text_decimals, constants).await;
        if let (Ok(()), Statement::Upsert { table, columns, .. }) = (&result, statement) {
            let table = upsert::Table::find(client, table, settings.has_text_decimals).await?;
            let is_written = |name: &&str| columns.as_ref().is_none_or(|all| all.iter().any(|column| column == name));
            let decimals: Vec<&str> = table.decimals().into_iter().filter(is_written).collect();
            findings.extend(decimals_note(&decimals).map(|finding| finding.for_statement(number)));
        }
        if let Err(trouble) = result {
            // A missing table is reported once, not for each of its statements.
            missing.extend(statement.table().filter(|_| trouble.code == Some(SqlState::UNDEFINED_TABLE)));
            let finding = Finding::error(trouble.message.clone()).for_statement(number);
            if trouble.class == ErrorClass::Lost {
                return Err(trouble);
            }
            findings.push(match help_for(&trouble, statement) {
                Some(help) => finding.help(help),
                None => finding,
            });
        }
    }
    Ok(())
}

/// The note about decimal columns in which a text that may be base64 is refused.
fn decimals_note(columns: &[&str]) -> Option<Finding> {
    let message = format!(
        "a text for {} is refused where it may be base64, as Debezium's decimal.handling.mode=precise writes numbers",
        columns.join(", ")
    );
    let help = "set decimal.handling.mode=string at the connector and write 'decimals: text' under 'table', or let the \
                connector's converter write schemas; numbers that come as numbers need neither";
    (!columns.is_empty()).then(|| Finding::note(message).help(help))
}

async fn inspect_own_tables(
    client: &Client,
    settings: &Settings,
    (grants, role): (&Grants<'_>, &str),
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let schema = &settings.schema;
    match sink_tables::read_state(client, grants).await {
        Ok(TablesState::Ready) => inspect_rights(client, settings, role, findings).await,
        Ok(TablesState::OtherFormat(number)) => {
            findings.push(
                Finding::error(format!(
                    "ratchet's own tables in schema {schema} have format {number}, of another release"
                ))
                .help("run the release that has created them, or name another schema"),
            );
            Ok(())
        }
        Ok(TablesState::Missing(tables)) => {
            let sql = "select case when exists (select from pg_catalog.pg_namespace where nspname = $1::text) \
                       then has_schema_privilege($1::text, 'create') \
                       else has_database_privilege(current_database(), 'create') end";
            let may_create: bool = client.query_one(sql, &[schema]).await?.try_get(0)?;
            let missing = format!("ratchet's own tables are missing ({}) in schema {schema}", tables.join(", "));
            let ddl = || format!("let somebody who may create them run this:\n{}", grants.ddl());
            findings.push(match (settings.create, may_create) {
                (true, true) => Finding::note(format!("{missing}: 'ratchet run' creates them")),
                (true, false) => Finding::error(format!("{missing}, and this role may not create them")).help(ddl()),
                (false, _) => {
                    Finding::error(format!("{missing}, and ratchet may not create them (`tables.create: false`)"))
                        .help(ddl())
                }
            });
            Ok(())
        }
        Err(trouble) if trouble.class == ErrorClass::Permanent => {
            findings.push(Finding::error(trouble.message));
            Ok(())
        }
        Err(trouble) => Err(trouble),
    }
}

async fn inspect_rights(
    client: &Client,
    settings: &Settings,
    role: &str,
    findings: &mut Vec<Finding>,
) -> Result<(), Trouble> {
    let inbox_rights: &[&str] = if settings.inbox.is_some() { &["select", "insert", "update", "delete"] } else { &[] };
    for (table, rights) in [("position", &["select", "insert", "update"][..]), ("inbox", inbox_rights)] {
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

/// Prepares a statement, and plans it with nulls, which also checks rights and the key's unique index.
async fn inspect_statement(
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
            (table.upsert(key, columns.as_deref()).map_err(Trouble::permanent)?, 2)
        }
        Statement::DeleteRow { table, key } => {
            let table = find(table).await?;
            (table.delete(key).map_err(Trouble::permanent)?, 2)
        }
        Statement::Truncate { table } => {
            let table = find(table).await?;
            let sql = format!("select has_table_privilege({}, 'truncate')", constant(table.name()));
            if client.query_one(&sql, &[]).await?.try_get(0)? {
                return Ok(());
            }
            return Err(Trouble::permanent(format!("this role may not truncate {}", table.name())));
        }
    };
    match plan(client, &sql, &vec!["null".to_owned(); parameters]).await? {
        Err(trouble) if [Some(MISSING_RIGHT), Some(MISSING_UNIQUE_INDEX)].contains(&trouble.code) => {
            return Err(trouble);
        }
        // Other errors are caused by the nulls, or by statements that cannot be prepared in SQL although they can be
        // executed.
        Err(_) => return Ok(()),
        Ok(()) => {}
    }
    if constants.iter().all(Option::is_none) {
        return Ok(());
    }
    let value = |index| constants.get(index).and_then(Option::as_deref).map_or_else(|| "null".to_owned(), constant);
    match plan(client, &sql, &(0..parameters).map(value).collect::<Vec<_>>()).await? {
        Err(trouble) if trouble.class == ErrorClass::Data => Err(trouble.with_context("a constant of 'with'")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Plans a statement with these values, by SQL. The statement was prepared before, so it is a single one, and does not
/// end the transaction.
async fn plan(client: &Client, sql: &str, values: &[String]) -> Result<Result<(), Trouble>, Trouble> {
    let values = if values.is_empty() { String::new() } else { format!("({})", values.join(", ")) };
    let result = client
        .batch_execute(&format!(
            "begin read only; prepare ratchet_check as {sql}\n; explain execute ratchet_check{values}"
        ))
        .await;
    client.batch_execute("rollback").await?;
    // A prepared statement outlives its transaction.
    client.batch_execute("deallocate ratchet_check").await.ok();
    Ok(result.map_err(Trouble::from))
}

fn help_for(trouble: &Trouble, statement: &Statement) -> Option<String> {
    if trouble.code == Some(MISSING_RIGHT) || trouble.message.starts_with("this role may not") {
        return Some("grant the right to this role, or use another role in the url".to_owned());
    }
    if let Some(help) = statement::help_for(trouble) {
        return Some(help.to_owned());
    }
    match statement {
        Statement::Upsert { table, key, .. } if trouble.code == Some(MISSING_UNIQUE_INDEX) => {
            let columns: Vec<_> = key.iter().map(|column| quoted(column)).collect();
            Some(format!("create a unique index on {table} ({})", columns.join(", ")))
        }
        Statement::Sql { .. } if trouble.message.contains("is given") => {
            Some("'with' lists one value for each of $1, $2, … of the statement".to_owned())
        }
        _ => None,
    }
}
