//! Ratchet's own tables: recognised, created where they may be.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::class::Trouble;
use super::{Settings, constant, quoted};

/// The format of the tables that this release writes and reads.
const FORMAT: i32 = 1;
const TABLES: [&str; 3] = ["format", "position", "inbox"];

/// The SQL that creates ratchet's own tables in a schema; may be run again.
pub fn ddl(schema: &str) -> String {
    format!("create schema if not exists {};\n{}", quoted(schema), tables(schema))
}

fn tables(schema: &str) -> String {
    let schema = quoted(schema);
    // Rows are updated all the time: with room in their pages they stay where they are.
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

/// What there is of ratchet's own tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// All of them, in this release's format.
    Ready,
    /// Those that are missing.
    Missing(Vec<&'static str>),
    /// In another release's format.
    Foreign(i32),
}

/// Looks at the tables.
pub(super) async fn state(client: &Client, schema: &str) -> Result<State, Trouble> {
    // In the catalog, which everybody may read.
    let there = client
        .query(
            "select c.relname::text from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
             where n.nspname = $1::text and c.relkind in ('r', 'p')",
            &[&schema],
        )
        .await?;
    let there: Vec<String> = there.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let missing: Vec<_> = TABLES.into_iter().filter(|table| !there.iter().any(|name| name == table)).collect();
    if !missing.is_empty() {
        return Ok(State::Missing(missing));
    }
    let format = client.query(&format!("select number from {}.format", quoted(schema)), &[]).await;
    let format = format.map_err(|error| explained(Trouble::from(error), schema))?;
    match format.first().map(|row| row.try_get(0)).transpose()? {
        Some(FORMAT) => Ok(State::Ready),
        Some(other) => Ok(State::Foreign(other)),
        None => Ok(State::Missing(vec!["format"])),
    }
}

/// Creates the tables where they are missing and may be created.
pub(super) async fn ensure(client: &Client, settings: &Settings) -> Result<(), Trouble> {
    let schema = &settings.schema;
    let found = state(client, schema).await?;
    match &found {
        State::Ready => return Ok(()),
        State::Foreign(_) => return Err(unusable(&found, schema)),
        State::Missing(_) if settings.create => {}
        State::Missing(_) => {
            return Err(unusable(&found, schema).of("they may not be created (`tables.create: false`)"));
        }
    }
    if let Err(trouble) = create(client, schema).await {
        client.batch_execute("rollback").await?;
        // Somebody else may have created them meanwhile.
        if state(client, schema).await.is_ok_and(|state| state == State::Ready) {
            return Ok(());
        }
        return match trouble.class {
            super::class::Class::Lasting => Err(unusable(&found, schema).of(&trouble.message)),
            _ => Err(trouble.of("cannot create ratchet's own tables")),
        };
    }
    match state(client, schema).await? {
        State::Ready => Ok(()),
        other => Err(unusable(&other, schema)),
    }
}

async fn create(client: &Client, schema: &str) -> Result<(), Trouble> {
    let lock = constant(&format!("ratchet schema {schema}"));
    // One instance after the other: `if not exists` alone fails where two create at the same moment.
    client
        .batch_execute(&format!(
            "begin isolation level read committed; set local client_min_messages = warning; \
             select pg_advisory_xact_lock(hashtextextended({lock}, 0))"
        ))
        .await?;
    // `create schema if not exists` wants the right to create one even where it exists.
    let exists = client.query("select from pg_catalog.pg_namespace where nspname = $1::text", &[&schema]).await?;
    if exists.is_empty() {
        client.batch_execute(&format!("create schema {}", quoted(schema))).await?;
    }
    client.batch_execute(&tables(schema)).await?;
    Ok(client.batch_execute("commit").await?)
}

/// What a person has to do about the tables.
fn unusable(state: &State, schema: &str) -> Trouble {
    let message = match state {
        State::Ready => format!("ratchet's own tables in schema {schema} cannot be used"),
        State::Missing(tables) => format!(
            "ratchet's own tables are missing ({}) in schema {schema}; let somebody who may create them run this, and \
             grant usage of the schema and select, insert, update, delete on its tables:\n{}",
            tables.join(", "),
            ddl(schema)
        ),
        State::Foreign(number) => format!(
            "ratchet's own tables in schema {schema} have format {number}, this release reads {FORMAT}: run the release \
             that has created them"
        ),
    };
    Trouble::lasting(message)
}

/// The trouble with what to do about it, where a right to own tables is missing.
pub(super) fn explained(trouble: Trouble, schema: &str) -> Trouble {
    if trouble.code != Some(SqlState::INSUFFICIENT_PRIVILEGE) {
        return trouble;
    }
    let schema = quoted(schema);
    let message = format!(
        "{}; grant them: grant usage on schema {schema} to …; grant select, insert, update, delete on all tables in \
         schema {schema} to …",
        trouble.message
    );
    Trouble { message, ..trouble }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddl_quotes_the_schema() {
        let ddl = ddl("my \"own\"");
        assert!(ddl.starts_with("create schema if not exists \"my \"\"own\"\"\";\n"), "{ddl}");
        assert!(TABLES.iter().all(|table| ddl.contains(&format!("\"my \"\"own\"\"\".{table} "))), "{ddl}");
    }
}
