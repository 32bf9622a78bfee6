//! A table of ratchet's own beside those of sinks, created where it is missing and may be.

use tokio_postgres::Client;

use super::class::Trouble;
use super::quoting::{constant, quoted};

/// Creates the table `name` where it is missing. `ddl` does that in the schema, and may be run again; `rights` are what
/// the role `ROLE` needs then, if somebody else runs it.
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
        // Somebody else may have created it meanwhile.
        if !is_there().await? {
            if trouble.may_pass() {
                return Err(trouble);
            }
            let schema = quoted(schema);
            let message = format!(
                "the table {table} is missing; let somebody who may create it run this, with this role's name:\n\
                 create schema if not exists {schema};\n{ddl};\n{rights}"
            );
            return Err(Trouble::lasting(message).of(&trouble.message));
        }
    }
    Ok(())
}

/// Runs what creates or replaces something in the schema, if that is allowed; otherwise nothing has changed.
pub(super) async fn replace(client: &Client, schema: &str, ddl: &str) -> Result<(), Trouble> {
    let replaced = async {
        begin(client, schema).await?;
        client.batch_execute(&format!("{ddl}; commit")).await
    };
    all_or_nothing(client, replaced.await).await
}

/// Creates the schema where it is missing, and runs what creates something in it; otherwise nothing has changed.
async fn create(client: &Client, schema: &str, ddl: &str) -> Result<(), Trouble> {
    let created = async {
        begin(client, schema).await?;
        // `create schema if not exists` wants the right to create one even where it exists.
        let exists = client.query("select from pg_catalog.pg_namespace where nspname = $1::text", &[&schema]).await?;
        if exists.is_empty() {
            client.batch_execute(&format!("create schema {}", quoted(schema))).await?;
        }
        client.batch_execute(&format!("{ddl}; commit")).await
    };
    all_or_nothing(client, created.await).await
}

/// Begins a transaction, one process after the other: `if not exists` alone fails where two create at the same moment.
/// After an error, the session may be in a transaction that has failed.
async fn begin(client: &Client, schema: &str) -> Result<(), tokio_postgres::Error> {
    let lock = constant(&format!("ratchet schema {schema}"));
    let lock = format!("select pg_advisory_xact_lock(hashtextextended({lock}, 0))");
    client.batch_execute(&format!("begin; set local client_min_messages = warning; {lock}")).await
}

/// Rolls back what has failed: the session's next statement would fail too, and not say why.
async fn all_or_nothing(client: &Client, done: Result<(), tokio_postgres::Error>) -> Result<(), Trouble> {
    let Err(error) = done else { return Ok(()) };
    client.batch_execute("rollback").await?;
    Err(error.into())
}
