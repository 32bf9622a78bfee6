//! The sink's own tables: checks whether they exist in this release's format, and creates them if that is allowed.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::class::{ErrorClass, Trouble};
use super::quoting::{constant, quoted};
use super::settings::Settings;

/// The format of the tables that this release writes and reads.
const FORMAT: i32 = 1;
const TABLES: [&str; 3] = ["format", "position", "inbox"];

/// The rights that a role needs on ratchet's own tables.
pub(super) struct Grants<'a> {
    schema: &'a str,
    role: &'a str,
    has_inbox: bool,
}

impl<'a> Grants<'a> {
    /// The rights for sessions with these settings and this role.
    pub fn for_settings(settings: &'a Settings, role: &'a str) -> Self {
        Self { schema: &settings.schema, role, has_inbox: settings.inbox.is_some() }
    }

    /// The SQL that creates the tables and grants the rights; can be run repeatedly.
    pub fn ddl(&self) -> String {
        format!("{}{}", ddl(self.schema), self.grants_sql())
    }

    /// The SQL that grants the rights.
    pub fn grants_sql(&self) -> String {
        let (schema, role) = (quoted(self.schema), quoted(self.role));
        let inbox_grant = format!("grant select, insert, update, delete on {schema}.inbox to {role};\n");
        format!(
            "grant usage on schema {schema} to {role};
grant select on {schema}.format to {role};
grant select, insert, update on {schema}.position to {role};
{}",
            if self.has_inbox { &inbox_grant } else { "" }
        )
    }

    /// Adds the SQL that grants the rights to an error about a missing right.
    pub fn add_help(&self, trouble: Trouble) -> Trouble {
        if trouble.code != Some(SqlState::INSUFFICIENT_PRIVILEGE) {
            return trouble;
        }
        let message = format!(
            "{}; let somebody who may grant the rights to ratchet's own tables run this:\n{}",
            trouble.message,
            self.grants_sql()
        );
        Trouble { message, ..trouble }
    }
}

/// The SQL that creates ratchet's own tables in a schema; can be run repeatedly. It grants nothing.
pub fn ddl(schema: &str) -> String {
    format!("create schema if not exists {};\n{}", quoted(schema), tables(schema))
}

fn tables(schema: &str) -> String {
    let schema = quoted(schema);
    // Rows are updated all the time: free space in their pages allows updates without index changes (HOT).
    format!(
        "create table if not exists {schema}.format (number int not null primary key);
create table if not exists {schema}.position (
    topology text collate \"C\" not null,
    topic text collate \"C\" not null,
    topic_id text collate \"C\" not null,
    partition int not null,
    epoch bigint not null,
    token text collate \"C\",
    former_token text collate \"C\",
    next_offset bigint not null,
    redo bytea,
    changed_at timestamptz not null,
    primary key (topology, topic, topic_id, partition)
) with (fillfactor = 50);
alter table {schema}.position alter column redo set storage external;
create table if not exists {schema}.inbox (
    name text collate \"C\" not null,
    identity bytea not null,
    version bytea,
    seen_at timestamptz not null,
    topology text collate \"C\" not null,
    constraint inbox_pkey primary key (name, identity)
);
create index if not exists inbox_seen on {schema}.inbox (name, seen_at);
insert into {schema}.format (number) select {FORMAT} where not exists (select from {schema}.format);
"
    )
}

/// The state of ratchet's own tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TablesState {
    /// All tables exist, in this release's format.
    Ready,
    /// These tables are missing.
    Missing(Vec<&'static str>),
    /// The tables have this format, of another release.
    OtherFormat(i32),
}

/// Reads the state of the tables.
pub(super) async fn read_state(client: &Client, grants: &Grants<'_>) -> Result<TablesState, Trouble> {
    let schema = grants.schema;
    // From the catalog, which every role may read.
    let tables = client
        .query(
            "select c.relname::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
             where n.nspname = $1::text and c.relkind in ('r', 'p')",
            &[&schema],
        )
        .await?;
    let existing: Vec<String> = tables.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let missing: Vec<_> = TABLES.into_iter().filter(|table| !existing.iter().any(|name| name == table)).collect();
    if !missing.is_empty() {
        return Ok(TablesState::Missing(missing));
    }
    let format = client.query(&format!("select number from {}.format", quoted(schema)), &[]).await;
    let format = format.map_err(|error| grants.add_help(Trouble::from(error)))?;
    match format.first().map(|row| row.try_get(0)).transpose()? {
        Some(FORMAT) => Ok(TablesState::Ready),
        Some(other) => Ok(TablesState::OtherFormat(other)),
        None => Ok(TablesState::Missing(vec!["format"])),
    }
}

/// Creates the tables if they are missing and the settings allow it.
pub(super) async fn ensure(client: &Client, settings: &Settings, grants: &Grants<'_>) -> Result<(), Trouble> {
    let schema = &settings.schema;
    let initial_state = read_state(client, grants).await?;
    match &initial_state {
        TablesState::Ready => return Ok(()),
        TablesState::OtherFormat(_) => return Err(unusable_tables(&initial_state, grants)),
        TablesState::Missing(_) if settings.create => {}
        TablesState::Missing(_) => {
            return Err(unusable_tables(&initial_state, grants)
                .with_context("they may not be created (`tables.create: false`)"));
        }
    }
    if let Err(trouble) = create(client, schema).await {
        client.batch_execute("rollback").await?;
        // Another instance may have created them in the meantime.
        if read_state(client, grants).await.is_ok_and(|state| state == TablesState::Ready) {
            return Ok(());
        }
        return match trouble.class {
            ErrorClass::Permanent => Err(unusable_tables(&initial_state, grants).with_context(&trouble.message)),
            _ => Err(trouble.with_context("cannot create ratchet's own tables")),
        };
    }
    match read_state(client, grants).await? {
        TablesState::Ready => Ok(()),
        other => Err(unusable_tables(&other, grants)),
    }
}

async fn create(client: &Client, schema: &str) -> Result<(), Trouble> {
    let lock = constant(&format!("ratchet schema {schema}"));
    // One instance at a time: `if not exists` alone fails if two create a table at the same moment.
    client
        .batch_execute(&format!(
            "begin isolation level read committed; set local client_min_messages = warning; \
             select pg_advisory_xact_lock(hashtextextended({lock}, 0))"
        ))
        .await?;
    // `create schema if not exists` requires the right to create a schema even if it exists.
    let exists = client.query("select from pg_catalog.pg_namespace where nspname = $1::text", &[&schema]).await?;
    if exists.is_empty() {
        client.batch_execute(&format!("create schema {}", quoted(schema))).await?;
    }
    client.batch_execute(&tables(schema)).await?;
    Ok(client.batch_execute("commit").await?)
}

/// The error for tables that cannot be used, with what to do about it.
fn unusable_tables(state: &TablesState, grants: &Grants<'_>) -> Trouble {
    let schema = grants.schema;
    let message = match state {
        TablesState::Ready => format!("ratchet's own tables in schema {schema} cannot be used"),
        TablesState::Missing(tables) => format!(
            "ratchet's own tables are missing ({}) in schema {schema}; let somebody who may create them run this:\n{}",
            tables.join(", "),
            grants.ddl()
        ),
        TablesState::OtherFormat(number) => format!(
            "ratchet's own tables in schema {schema} have format {number}, this release reads {FORMAT}: run the release \
             that has created them"
        ),
    };
    Trouble::permanent(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddl_quotes_the_schema() {
        let ddl = ddl("my \"own\"");
        assert!(ddl.starts_with("create schema if not exists \"my \"\"own\"\"\";\n"), "{ddl}");
        let grants = Grants { schema: "my \"own\"", role: "the \"role\"", has_inbox: true };
        let sql = grants.grants_sql();
        assert!(sql.lines().all(|line| line.contains("\"my \"\"own\"\"\"")), "{sql}");
        assert!(sql.lines().all(|line| line.ends_with(" to \"the \"\"role\"\"\";")), "{sql}");
        assert!(!Grants { has_inbox: false, ..grants }.grants_sql().contains("inbox"));
        assert!(TABLES.iter().all(|table| ddl.contains(&format!("\"my \"\"own\"\"\".{table} "))), "{ddl}");
    }
}
