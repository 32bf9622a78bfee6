//! Transactions of handlers' steps: each is carried out once, because it leaves the step's key behind.
//!
//! `step` is a table of ratchet's own, beside what the transactions change: a row for each step, under its key. A
//! transaction first inserts its row. Where that is there already, the step was done, and what it came to is in it; where
//! another transaction is inserting the same one, the database has this one wait for its end. So a step whose COMMIT was
//! not answered, one that a crashed owner has done, and one that a frozen owner is about to do are all the same: done once.
//! One that was refused leaves its row, too, and nothing else: a frozen owner must not do later what was undone meanwhile.
//!
//! Rows are needed for as long as their steps may be tried again. They are removed after [`Database::kept`], in small
//! slices.
//!
//! A connection is used by one step after the other. What a step has left in its session is removed before the next one has
//! it, and at once, so that its locks are in nobody's way.
//!
//! **Failure.** Whatever fails before COMMIT has no effect. A connection that was lost, whose transaction was given up, or
//! whose session could not be cleaned is not used again.

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
use super::pipeline::answered;
use super::quoting::quoted;
use super::server::{Server, connect, greet};
use crate::effect::{Error, ErrorKind};

/// How many connections a lane has at most.
const CONNECTIONS: usize = 8;
/// How long a step's row is kept.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// How often a lane looks for rows that are no longer needed.
const TIDY: Duration = Duration::from_secs(600);
/// How many of them are removed at once.
const SLICE: i64 = 1_000;

/// Removes what a transaction may have left in its session: all that `discard all` does, but for what is prepared by the
/// protocol, since tokio-postgres keeps statements of its own there. What was prepared by SQL is listed.
const CLEAN: &str = "close all; reset session authorization; reset role; reset all; unlisten *; \
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
        let server = Server::read(url)
            .map_err(|error| Error { kind: ErrorKind::Lasting, message: format!("the database's address: {error}") })?;
        let (server, schema) = (Arc::new(server), "ratchet".to_owned());
        Ok(Self { server, schema, connections: CONNECTIONS, kept: KEPT })
    }

    /// The same, with the table `step` in this schema.
    pub fn schema(self, schema: impl Into<String>) -> Self {
        Self { schema: schema.into(), ..self }
    }

    /// The same, with at most so many connections of a lane; 8 if nothing is said.
    pub fn connections(self, connections: usize) -> Self {
        Self { connections: connections.max(1), ..self }
    }

    /// The same database, with steps' rows kept for `kept`. That has to be longer than a step may be tried again, and
    /// at most the topology's retention: an identity that returns after its retention has the same keys as before, and
    /// would find its old rows. The default is seven days, as is that of the retention without versions.
    pub fn kept(self, kept: Duration) -> Self {
        Self { kept, ..self }
    }

    /// How long steps' rows are kept.
    pub fn keeps(&self) -> Duration {
        self.kept
    }
}

/// A transaction that is open: what tokio-postgres calls one, but it can be neither committed nor rolled back from here.
pub struct Transaction<'a>(tokio_postgres::Transaction<'a>);

impl<'a> Deref for Transaction<'a> {
    type Target = tokio_postgres::Transaction<'a>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

/// A step's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// It is done, with this result.
    Done(Vec<u8>),
    /// It has changed nothing, and never will: why.
    Rejected(String),
}

/// A lane's connections.
pub(in crate::effect) struct Pool {
    database: Database,
    table: String,
    idle: RefCell<Vec<Client>>,
    permits: Semaphore,
    /// Whether the table is there.
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

    /// Carries a step out, unless it was: gives what it came to. The step is told by topology, name and key.
    ///
    /// # Errors
    /// The outer one where the database cannot do it now, the inner one where `act` fails. Nothing has happened, or it is
    /// found by its key.
    pub async fn transact<E, A>(&self, step: (&str, &str, &str), act: A) -> Result<Result<Came, E>, Error>
    where
        A: AsyncFnOnce(&Transaction<'_>) -> Result<Came, E>,
    {
        let Ok(_permit) = self.permits.acquire().await else { return Err(Trouble::lost("it has ended").into_error()) };
        let carried_out = async {
            let mut client = self.client(step.0).await?;
            let came = self.carry_out(&mut client, step, act).await?;
            match answered(clean(&client)).await {
                Ok(()) => {
                    self.tidy(&client).await;
                    self.idle.borrow_mut().push(client);
                }
                // The session ends with the connection.
                Err(trouble) => tracing::debug!(reason = %trouble.message, "a session could not be cleaned"),
            }
            Ok(came)
        };
        carried_out.await.map_err(Trouble::into_error)
    }

    async fn client(&self, topology: &str) -> Result<Client, Trouble> {
        while let Some(client) = self.idle.borrow_mut().pop() {
            if !client.is_closed() {
                return Ok(client);
            }
        }
        // Its task ends with the client.
        let (client, _task, _) = connect(&self.database.server, topology).await?;
        answered(async {
            greet(&client).await?;
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

    async fn carry_out<E, A>(
        &self,
        client: &mut Client,
        (topology, step, key): (&str, &str, &str),
        act: A,
    ) -> Result<Result<Came, E>, Trouble>
    where
        A: AsyncFnOnce(&Transaction<'_>) -> Result<Came, E>,
    {
        let table = &self.table;
        let transaction = Transaction(client.transaction().await?);
        let insert = format!(
            "insert into {table} (key, topology, step, done_at) values ($1, $2, $3, now()) on conflict (key) do nothing"
        );
        if transaction.execute(&insert, &[&key, &topology, &step]).await? == 0 {
            let select = format!("select result, rejected from {table} where key = $1");
            let found = transaction.query_one(&select, &[&key]).await?;
            let came = match found.try_get::<_, Option<String>>(1)? {
                Some(reason) => Came::Rejected(reason),
                None => match found.try_get(0)? {
                    Some(result) => Came::Done(result),
                    None => {
                        return Err(Trouble::lasting("the step's row says nothing: a statement of it has committed"));
                    }
                },
            };
            transaction.0.rollback().await?;
            return Ok(Ok(came));
        }
        transaction.batch_execute("savepoint ratchet_step").await?;
        let came = match act(&transaction).await {
            Ok(came) => came,
            Err(error) => {
                transaction.0.rollback().await?;
                return Ok(Err(error));
            }
        };
        let (result, rejected) = match &came {
            Came::Done(result) => (Some(result), None),
            Came::Rejected(reason) => {
                transaction.batch_execute("rollback to savepoint ratchet_step").await?;
                // A text of PostgreSQL has no zero bytes.
                (None, Some(reason.replace('\0', "")))
            }
        };
        // Fails where `act` has passed over an error of the database: then nothing is committed.
        let update = format!("update {table} set result = $2, rejected = $3 where key = $1");
        if transaction.execute(&update, &[&key, &result, &rejected]).await? != 1 {
            return Err(Trouble::lasting("the step's own row is gone: nothing may change the table `step`"));
        }
        transaction.0.commit().await?;
        Ok(Ok(came))
    }

    /// Removes rows that are no longer needed, if it is time. What fails is tried again later: nobody waits for it.
    async fn tidy(&self, client: &Client) {
        let now = Instant::now();
        if self.tidied_at.get().is_some_and(|at| now.duration_since(at) < TIDY) {
            return;
        }
        self.tidied_at.set(Some(now));
        let table = &self.table;
        let kept = self.database.kept.as_secs_f64();
        let delete = format!(
            "delete from {table} where key in (select key from {table} where done_at < now() - make_interval(secs => $1) \
             order by done_at limit {SLICE} for update skip locked)"
        );
        if let Err(error) = client.execute(&delete, &[&kept]).await {
            tracing::warn!(reason = %Trouble::from(error).message, "steps' rows that are no longer needed stay");
        }
    }
}

/// Leaves a session as it was when it began.
async fn clean(client: &Client) -> Result<(), Trouble> {
    let said = client.simple_query(CLEAN).await?;
    let prepared = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.try_get("prepared").ok().flatten().map(quoted),
        _ => None,
    };
    for name in said.iter().filter_map(prepared) {
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
