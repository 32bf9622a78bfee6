//! A lane's session: one connection, opened on first use, and the runtime that drives it during each call.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::class::Trouble;
use super::connection::{BEGIN, Connection};
use super::inbox::TIDY_ROWS_MAX;
use super::pipeline::Value;
use super::settings::Shared;
use super::{claim, transaction};
use crate::effect::{ClaimedRow, CommitError, Error, RedoBuilder, RowKey, RowMark, Session, Step};

/// A lane's session.
pub(super) struct Lane {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    connection: Option<Connection>,
}

impl Lane {
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, runtime: None, connection: None }
    }

    /// Runs `work` on the connection, which is opened if necessary, and closed if it cannot be used again.
    fn with_connection<T>(&mut self, work: impl AsyncFnOnce(&Connection, &Shared) -> T) -> Result<T, Error> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => runtime().map_err(Trouble::into_error)?,
        };
        let runtime = self.runtime.insert(runtime);
        let connection = self.connection.take().filter(Connection::is_usable);
        let (shared, slot) = (&self.shared, &mut self.connection);
        runtime.block_on(async move {
            let connection = match connection {
                Some(connection) => connection,
                None => Connection::open(shared).await.map_err(Trouble::into_error)?,
            };
            let result = work(&connection, shared).await;
            if connection.is_usable() {
                *slot = Some(connection);
            } else {
                connection.close().await;
            }
            Ok(result)
        })
    }

    /// Like [`Lane::with_connection`], and rolls back if `work` fails.
    fn with_rollback<T>(&mut self, work: impl AsyncFnOnce(&Connection) -> Result<T, Trouble>) -> Result<T, Error> {
        self.with_connection(async |connection, _| {
            let result = work(connection).await;
            if result.is_err() {
                connection.roll_back().await;
            }
            result.map_err(Trouble::into_error)
        })?
    }

    fn read_marks_once(&mut self, keys: &[RowKey]) -> Result<Vec<Option<RowMark>>, Error> {
        self.with_rollback(async |connection| {
            // Statements are prepared again at the interval of these calls, so that added columns and widened types are
            // noticed.
            connection.forget_statements();
            claim::read_marks(connection, keys).await
        })
    }
}

pub(super) fn runtime() -> Result<Runtime, Trouble> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Trouble::transient(format!("no runtime for a connection: {error}")))
}

/// Removes some identities that are older than the inbox's retention. Returns whether there may be more.
async fn tidy(connection: &Connection) -> Result<bool, Trouble> {
    let Some(inbox) = &connection.inbox else { return Ok(false) };
    let Some(retention_ms) = inbox.retention_ms else { return Ok(false) };
    let response = connection.request(|pipeline| pipeline.simple((), BEGIN)).await?;
    connection.check_process(&response)?;
    let values = [Value::Text(&inbox.name), Value::Owned(retention_ms.to_string())];
    let removed = connection.request(|pipeline| pipeline.execute((), &inbox.tidy, values)).await?;
    connection.request(|pipeline| pipeline.simple((), "commit")).await?;
    Ok(removed.row_count == TIDY_ROWS_MAX)
}

impl Session for Lane {
    fn claim(&mut self, key: &RowKey, may_insert: bool) -> Result<Option<ClaimedRow>, Error> {
        self.with_rollback(async |connection| claim::claim(connection, key, may_insert).await)
    }

    fn look(&mut self, keys: &[RowKey]) -> Result<Vec<Option<RowMark>>, Error> {
        let was_open = self.connection.is_some();
        let marks = self.read_marks_once(keys);
        // The loss of an idle connection is noticed only by its next use.
        if marks.is_err() && was_open && self.connection.is_none() {
            return self.read_marks_once(keys);
        }
        marks
    }

    fn commit(&mut self, steps: &[Step<'_>], redos: &mut dyn RedoBuilder) -> Result<(), CommitError> {
        let result = self
            .with_connection(async |connection, shared| transaction::commit(connection, shared, steps, redos).await);
        result.map_err(CommitError::Held)?
    }

    fn tidy(&mut self) -> Result<bool, Error> {
        if self.shared.settings.inbox.is_none() {
            return Ok(false);
        }
        self.with_rollback(async |connection| tidy(connection).await)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let (Some(runtime), Some(connection)) = (&self.runtime, self.connection.take()) {
            runtime.block_on(connection.close());
        }
    }
}
