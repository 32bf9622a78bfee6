//! Transactions of handlers' steps: each is executed once, because it commits a row under the step's key.
//!
//! `step` is a table of ratchet's own in the database that the transactions change, with a row for each step under its
//! key. A transaction first inserts its step's row. If the row already exists, the step was executed, and the row has
//! its outcome. If another transaction is inserting the same row, the database makes this transaction wait for the end
//! of the other. So a step is executed once, even if the response to its COMMIT was lost, if a crashed owner has
//! executed it, or if a frozen owner is about to. A rejected step leaves its row, too, and no other change: a frozen
//! owner must not execute it later, after the previous steps have been undone.
//!
//! Rows are needed for as long as their steps may be attempted again. They are removed after [`Database::kept`], in
//! small portions.
//!
//! A connection is used by one step after the other. The session's state that a step leaves behind is reset as soon as
//! the step has ended, so that its advisory locks block no other session.
//!
//! **Failure.** A failure before COMMIT has no effect. A connection that was lost, whose transaction was abandoned, or
//! whose session could not be reset is not used again.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
pub use tokio_postgres;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::class::Trouble;
use super::own_table;
use super::pipeline::within_timeout;
use super::quoting::quoted;
use super::server::{Server, check_server, connect};
use crate::effect::{Error, ErrorKind};

/// The default of the maximum number of a lane's connections.
const CONNECTIONS: usize = 8;
/// The default of the time for which a step's row is kept.
const RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// How often a lane removes rows that are no longer needed.
const TIDY_INTERVAL: Duration = Duration::from_secs(600);
/// The maximum number of rows that are removed at once.
const TIDY_ROWS_MAX: i64 = 1_000;

/// Resets the state that a transaction may have left in its session, as `discard all` does, except for statements
/// prepared by the protocol, since tokio-postgres has such statements of its own. Returns the names of those prepared
/// by SQL.
const RESET_SESSION: &str = "close all; reset session authorization; reset role; reset all; unlisten *; \
                             select pg_catalog.pg_advisory_unlock_all(); discard temp; discard sequences; \
                             select name as prepared from pg_catalog.pg_prepared_statements where from_sql";

/// A database for the transactions of handlers' steps.
#[derive(Clone, Debug)]
pub struct Database {
    server: Arc<Server>,
    schema: String,
    connections: usize,
    kept: Duration,
}

impl Database {
    /// The database at this address: `postgresql://user:password@host/database` or `host=... user=...`. Connects to
    /// nothing. The table `step` is in the schema `ratchet`.
    ///
    /// # Errors
    /// What is wrong with the address; never quotes it.
    pub fn new(url: &str) -> Result<Self, Error> {
        let server = Server::parse(url).map_err(|error| Error {
            kind: ErrorKind::Permanent,
            message: format!("the database's address: {error}"),
        })?;
        let (server, schema) = (Arc::new(server), "ratchet".to_owned());
        Ok(Self { server, schema, connections: CONNECTIONS, kept: RETENTION })
    }

    /// Sets the schema of the table `step`.
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// Sets the maximum number of a lane's connections. The default is 8.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// Sets the time for which steps' rows are kept. It has to be longer than the time during which a step may be
    /// attempted again, and at most the topology's retention: an identity that returns after its retention has the same
    /// keys as before, and would find its old rows. The default is seven days, like that of the retention without
    /// versions.
    pub fn kept(self, kept: Duration) -> Self {
        Self { kept, ..self }
    }

    /// How long steps' rows are kept.
    pub fn keeps(&self) -> Duration {
        self.kept
    }
}

/// An open transaction of tokio-postgres, which its user can neither commit nor roll back.
pub struct Transaction<'a>(tokio_postgres::Transaction<'a>);

impl<'a> Deref for Transaction<'a> {
    type Target = tokio_postgres::Transaction<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A step's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutcome {
    /// The step was executed, with this result.
    Done(Vec<u8>),
    /// The step has changed nothing, and never will, for this reason.
    Rejected(String),
}

/// A lane's connections.
pub(crate) struct Pool {
    database: Database,
    table: String,
    idle: RefCell<Vec<Client>>,
    permits: Semaphore,
    /// Whether the table is known to exist.
    is_ready: Cell<bool>,
    tidied_at: Cell<Option<Instant>>,
}

impl Pool {
    pub fn new(database: Database) -> Self {
        let table = format!("{}.step", quoted(&database.schema));
        let permits = Semaphore::new(database.connections.min(Semaphore::MAX_PERMITS));
        let (idle, is_ready, tidied_at) = (RefCell::default(), Cell::new(false), Cell::new(None));
        Self { database, table, idle, permits, is_ready, tidied_at }
    }

    /// Executes a step, given by its topology, name and key, unless it was executed before. Returns its outcome.
    ///
    /// # Errors
    /// The outer error if the database fails, the inner one if `act` fails. Either nothing was committed, or the next
    /// attempt finds the step's row.
    pub async fn transact<E, A>(&self, step: (&str, &str, &str), act: A) -> Result<Result<StepOutcome, E>, Error>
    where
        A: AsyncFnOnce(&Transaction<'_>) -> Result<StepOutcome, E>,
    {
        let Ok(_permit) = self.permits.acquire().await else {
            return Err(Trouble::lost("the pool of connections has ended").into_error());
        };
        let outcome = async {
            let mut client = self.client(step.0).await?;
            let outcome = self.execute(&mut client, step, act).await?;
            match within_timeout(reset_session(&client)).await {
                Ok(()) => {
                    self.tidy(&client).await;
                    self.idle.borrow_mut().push(client);
                }
                // The session ends with the connection.
                Err(trouble) => tracing::debug!(reason = %trouble.message, "a session could not be reset"),
            }
            Ok(outcome)
        };
        outcome.await.map_err(Trouble::into_error)
    }

    /// An idle connection, or a new one.
    async fn client(&self, topology: &str) -> Result<Client, Trouble> {
        while let Some(client) = self.idle.borrow_mut().pop() {
            if !client.is_closed() {
                return Ok(client);
            }
        }
        // The connection's task ends with the client.
        let (client, _task, _) = connect(&self.database.server, topology).await?;
        within_timeout(async {
            check_server(&client).await?;
            if !self.is_ready.get() {
                let schema = quoted(&self.database.schema);
                let rights = format!(
                    "grant usage on schema {schema} to ROLE;\n\
                     grant select, insert, update, delete on {schema}.step to ROLE;"
                );
                own_table::ensure(&client, &self.database.schema, "step", (&ddl(&schema), &rights)).await?;
                self.is_ready.set(true);
            }
            Ok(())
        })
        .await?;
        Ok(client)
    }

    /// Executes a step in a transaction on this connection, unless its row exists.
    async fn execute<E, A>(
        &self,
        client: &mut Client,
        (topology, step, key): (&str, &str, &str),
        act: A,
    ) -> Result<Result<StepOutcome, E>, Trouble>
    where
        A: AsyncFnOnce(&Transaction<'_>) -> Result<StepOutcome, E>,
    {
        let table = &self.table;
        let transaction = Transaction(client.transaction().await?);
        let insert = format!(
            "insert into {table} (key, topology, step, done_at) values ($1, $2, $3, now()) on conflict (key) do nothing"
        );
        if transaction.execute(&insert, &[&key, &topology, &step]).await? == 0 {
            let select = format!("select result, rejected from {table} where key = $1");
            let row = transaction.query_one(&select, &[&key]).await?;
            let outcome = match row.try_get::<_, Option<String>>(1)? {
                Some(reason) => StepOutcome::Rejected(reason),
                None => match row.try_get(0)? {
                    Some(result) => StepOutcome::Done(result),
                    None => {
                        let message =
                            "the step's row has no outcome: a statement of the step has committed the transaction";
                        return Err(Trouble::permanent(message));
                    }
                },
            };
            transaction.0.rollback().await?;
            return Ok(Ok(outcome));
        }
        transaction.batch_execute("savepoint ratchet_step").await?;
        let outcome = match act(&transaction).await {
            Ok(outcome) => outcome,
            Err(error) => {
                transaction.0.rollback().await?;
                return Ok(Err(error));
            }
        };
        let (result, rejected) = match &outcome {
            StepOutcome::Done(result) => (Some(result), None),
            StepOutcome::Rejected(reason) => {
                transaction.batch_execute("rollback to savepoint ratchet_step").await?;
                // A text of PostgreSQL has no zero bytes.
                (None, Some(reason.replace('\0', "")))
            }
        };
        // Fails if `act` has ignored an error of the database: then nothing is committed.
        let update = format!("update {table} set result = $2, rejected = $3 where key = $1");
        if transaction.execute(&update, &[&key, &result, &rejected]).await? != 1 {
            return Err(Trouble::permanent("the step's own row is missing: a step must not change the table `step`"));
        }
        transaction.0.commit().await?;
        Ok(Ok(outcome))
    }

    /// Removes rows that are no longer needed, if the interval has passed. A failure is logged, and the next interval
    /// tries again.
    async fn tidy(&self, client: &Client) {
        let now = Instant::now();
        if self.tidied_at.get().is_some_and(|at| now.duration_since(at) < TIDY_INTERVAL) {
            return;
        }
        self.tidied_at.set(Some(now));
        let table = &self.table;
        let kept_s = self.database.kept.as_secs_f64();
        let delete = format!(
            "delete from {table} where key in (select key from {table} where done_at < now() - make_interval(secs => $1) \
             order by done_at limit {TIDY_ROWS_MAX} for update skip locked)"
        );
        if let Err(error) = client.execute(&delete, &[&kept_s]).await {
            let reason = Trouble::from(error).message;
            tracing::warn!(%reason, "steps' rows that are no longer needed could not be removed");
        }
    }
}

/// Resets a session to its initial state.
async fn reset_session(client: &Client) -> Result<(), Trouble> {
    let messages = client.simple_query(RESET_SESSION).await?;
    let prepared = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.try_get("prepared").ok().flatten().map(quoted),
        _ => None,
    };
    for name in messages.iter().filter_map(prepared) {
        client.batch_execute(&format!("deallocate {name}")).await?;
    }
    Ok(())
}

/// The SQL that creates the table in a schema, whose name is quoted.
fn ddl(schema: &str) -> String {
    format!(
        "create table if not exists {schema}.step (
    key text collate \"C\" not null primary key,
    topology text collate \"C\" not null,
    step text collate \"C\" not null,
    result bytea,
    rejected text,
    done_at timestamptz not null
);
create index if not exists step_done on {schema}.step (done_at)"
    )
}
