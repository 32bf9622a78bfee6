//! Creates a table of ratchet's own, of steps or of requests, if it is missing.

use tokio_postgres::Client;

use super::class::Trouble;
use super::quoting::{constant, quoted};

/// Creates the table `name` if it is missing. `ddl` creates it in the schema, and can be run repeatedly; `rights`
/// grants the rights that the role `ROLE` needs if another role creates the table.
pub(super) async fn ensure(
    client: &Client,
    schema: &str,
    name: &str,
    (ddl, rights): (&str, &str),
) -> Result<(), Trouble> {
    let table = format!("{}.{name}", quoted(schema));
    let is_there = async || -> Result<bool, Trouble> {
        let found = client.query_one("select to_regclass($1)::text is not null", &[&table]).await?;
        Ok(found.try_get(0)?)
    };
    if is_there().await? {
        return Ok(());
    }
    if let Err(trouble) = create(client, schema, ddl).await {
        // Another process may have created it in the meantime.
        if !is_there().await? {
            if trouble.may_pass() {
                return Err(trouble);
            }
            let schema = quoted(schema);
            let message = format!(
                "the table {table} is missing; let somebody who may create it run this, with this role's name:\n\
                 create schema if not exists {schema};\n{ddl};\n{rights}"
            );
            return Err(Trouble::permanent(message).with_context(&trouble.message));
        }
    }
    Ok(())
}

/// Runs this DDL in one transaction, which is rolled back if it fails.
pub(super) async fn replace(client: &Client, schema: &str, ddl: &str) -> Result<(), Trouble> {
    let replaced = async {
        begin(client, schema).await?;
        client.batch_execute(&format!("{ddl}; commit")).await
    };
    all_or_nothing(client, replaced.await).await
}

/// Creates the schema if it is missing, and runs this DDL, in one transaction, which is rolled back if it fails.
async fn create(client: &Client, schema: &str, ddl: &str) -> Result<(), Trouble> {
    let created = async {
        begin(client, schema).await?;
        // `create schema if not exists` requires the right to create a schema even if it exists.
        let exists = client.query("select from pg_catalog.pg_namespace where nspname = $1::text", &[&schema]).await?;
        if exists.is_empty() {
            client.batch_execute(&format!("create schema {}", quoted(schema))).await?;
        }
        client.batch_execute(&format!("{ddl}; commit")).await
    };
    all_or_nothing(client, created.await).await
}

/// Begins a transaction, one process at a time: `if not exists` alone fails if two create a table at the same moment.
/// After an error, the session may be in a failed transaction.
async fn begin(client: &Client, schema: &str) -> Result<(), tokio_postgres::Error> {
    let lock = constant(&format!("ratchet schema {schema}"));
    let lock = format!("select pg_advisory_xact_lock(hashtextextended({lock}, 0))");
    client.batch_execute(&format!("begin; set local client_min_messages = warning; {lock}")).await
}

/// Rolls back a failed transaction: the session's next statement would fail otherwise, without the reason.
async fn all_or_nothing(client: &Client, done: Result<(), tokio_postgres::Error>) -> Result<(), Trouble> {
    let Err(error) = done else { return Ok(()) };
    client.batch_execute("rollback").await?;
    Err(error.into())
}
