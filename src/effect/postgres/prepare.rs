//! Ratchet's own tables: recognised, created where they may be.

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::class::Trouble;
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
    /// Those for these settings' sessions, which have this role.
    pub fn of(settings: &'a Settings, role: &'a str) -> Self {
        Self { schema: &settings.schema, role, has_inbox: settings.inbox.is_some() }
    }

    /// The SQL that creates the tables and grants the rights; may be run again.
    pub fn ddl(&self) -> String {
        format!("{}{}", ddl(self.schema), self.sql())
    }

    /// The SQL that grants the rights.
    pub fn sql(&self) -> String {
        let (schema, role) = (quoted(self.schema), quoted(self.role));
        let of_inbox = format!("grant select, insert, update, delete on {schema}.inbox to {role};\n");
        format!(
            "grant usage on schema {schema} to {role};
grant select on {schema}.format to {role};
grant select, insert, update on {schema}.position to {role};
{}",
            if self.has_inbox { &of_inbox } else { "" }
        )
    }

    /// The trouble with what to do about it, where a right to own tables is missing.
    pub fn explain(&self, trouble: Trouble) -> Trouble {
        if trouble.code != Some(SqlState::INSUFFICIENT_PRIVILEGE) {
            return trouble;
        }
        let message = format!(
            "{}; let somebody who may grant the rights to ratchet's own tables run this:\n{}",
            trouble.message,
            self.sql()
        );
        Trouble { message, ..trouble }
    }
}

/// The SQL that creates ratchet's own tables in a schema; may be run again. It grants nothing.
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
pub(super) async fn state(client: &Client, grants: &Grants<'_>) -> Result<State, Trouble> {
    let schema = grants.schema;
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
    let format = format.map_err(|error| grants.explain(Trouble::from(error)))?;
    match format.first().map(|row| row.try_get(0)).transpose()? {
        Some(FORMAT) => Ok(State::Ready),
        Some(other) => Ok(State::Foreign(other)),
        None => Ok(State::Missing(vec!["format"])),
    }
}

/// Creates the tables where they are missing and may be created.
pub(super) async fn ensure(client: &Client, settings: &Settings, grants: &Grants<'_>) -> Result<(), Trouble> {
    let schema = &settings.schema;
    let found = state(client, grants).await?;
    match &found {
        State::Ready => return Ok(()),
        State::Foreign(_) => return Err(unusable(&found, grants)),
        State::Missing(_) if settings.create => {}
        State::Missing(_) => {
            return Err(unusable(&found, grants).of("they may not be created (`tables.create: false`)"));
        }
    }
    if let Err(trouble) = create(client, schema).await {
        client.batch_execute("rollback").await?;
        // Somebody else may have created them meanwhile.
        if state(client, grants).await.is_ok_and(|state| state == State::Ready) {
            return Ok(());
        }
        return match trouble.class {
            super::class::Class::Lasting => Err(unusable(&found, grants).of(&trouble.message)),
            _ => Err(trouble.of("cannot create ratchet's own tables")),
        };
    }
    match state(client, grants).await? {
        State::Ready => Ok(()),
        other => Err(unusable(&other, grants)),
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
fn unusable(state: &State, grants: &Grants<'_>) -> Trouble {
    let schema = grants.schema;
    let message = match state {
        State::Ready => format!("ratchet's own tables in schema {schema} cannot be used"),
        State::Missing(tables) => format!(
            "ratchet's own tables are missing ({}) in schema {schema}; let somebody who may create them run this:\n{}",
            tables.join(", "),
            grants.ddl()
        ),
        State::Foreign(number) => format!(
            "ratchet's own tables in schema {schema} have format {number}, this release reads {FORMAT}: run the release \
             that has created them"
        ),
    };
    Trouble::lasting(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ddl_quotes_the_schema() {
        let ddl = ddl("my \"own\"");
        assert!(ddl.starts_with("create schema if not exists \"my \"\"own\"\"\";\n"), "{ddl}");
        let grants = Grants { schema: "my \"own\"", role: "the \"role\"", has_inbox: true };
        let sql = grants.sql();
        assert!(sql.lines().all(|line| line.contains("\"my \"\"own\"\"\"")), "{sql}");
        assert!(sql.lines().all(|line| line.ends_with(" to \"the \"\"role\"\"\";")), "{sql}");
        assert!(!Grants { has_inbox: false, ..grants }.sql().contains("inbox"));
        assert!(TABLES.iter().all(|table| ddl.contains(&format!("\"my \"\"own\"\"\".{table} "))), "{ddl}");
    }
}
