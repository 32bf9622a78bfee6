//! A lane's session: one connection, made when it is needed, and the runtime that drives it within each call.

use std::sync::Arc;

use tokio::runtime::{Builder, Runtime};

use super::class::Trouble;
use super::connection::{BEGIN, Connection};
use super::inbox::TIDY_ROWS_MAX;
use super::pipeline::Value;
use super::settings::Shared;
use super::{claim, transaction};
use crate::effect::{Claimed, Complete, Error, Failed, Mark, RowKey, Session, Step};

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

    /// Does something on a connection, which is dropped if it cannot be used again.
    fn with<T>(&mut self, work: impl AsyncFnOnce(&Connection, &Shared) -> T) -> Result<T, Error> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => runtime().map_err(Trouble::into_error)?,
        };
        let runtime = self.runtime.insert(runtime);
        let connection = self.connection.take().filter(Connection::is_usable);
        let (shared, place) = (&self.shared, &mut self.connection);
        runtime.block_on(async move {
            let connection = match connection {
                Some(connection) => connection,
                None => Connection::open(shared).await.map_err(Trouble::into_error)?,
            };
            let done = work(&connection, shared).await;
            if connection.is_usable() {
                *place = Some(connection);
            } else {
                connection.close().await;
            }
            Ok(done)
        })
    }

    /// The same for what is a transaction of its own, or none.
    fn ask<T>(&mut self, work: impl AsyncFnOnce(&Connection) -> Result<T, Trouble>) -> Result<T, Error> {
        self.with(async |connection, _| {
            let done = work(connection).await;
            if done.is_err() {
                connection.roll_back().await;
            }
            done.map_err(Trouble::into_error)
        })?
    }

    fn look_once(&mut self, keys: &[RowKey]) -> Result<Vec<Option<Mark>>, Error> {
        self.ask(async |connection| {
            // At the same interval: columns that were added, or types that were widened, are noticed by it.
            connection.forget_statements();
            claim::look(connection, keys).await
        })
    }
}

pub(super) fn runtime() -> Result<Runtime, Trouble> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Trouble::passing(format!("no runtime for a connection: {error}")))
}

/// Removes a slice of what is older than the inbox's retention. Says whether more may be left.
async fn tidy(connection: &Connection) -> Result<bool, Trouble> {
    let Some(inbox) = &connection.inbox else { return Ok(false) };
    let Some(retention_ms) = inbox.retention_ms else { return Ok(false) };
    let begun = connection.one(|pipeline| pipeline.simple((), BEGIN)).await?;
    connection.check_process(&begun)?;
    let values = [Value::Text(&inbox.name), Value::Written(retention_ms.to_string())];
    let removed = connection.one(|pipeline| pipeline.execute((), &inbox.tidy, values)).await?;
    connection.one(|pipeline| pipeline.simple((), "commit")).await?;
    Ok(removed.count == TIDY_ROWS_MAX)
}

impl Session for Lane {
    fn claim(&mut self, key: &RowKey, may_insert: bool) -> Result<Option<Claimed>, Error> {
        self.ask(async |connection| claim::claim(connection, key, may_insert).await)
    }

    fn look(&mut self, keys: &[RowKey]) -> Result<Vec<Option<Mark>>, Error> {
        let was_open = self.connection.is_some();
        let looked = self.look_once(keys);
        // That a connection was lost while nothing happened shows only now.
        if looked.is_err() && was_open && self.connection.is_none() {
            return self.look_once(keys);
        }
        looked
    }

    fn commit(&mut self, steps: &[Step<'_>], redos: &mut dyn Complete) -> Result<(), Failed> {
        let done = self.with(async |connection, shared| transaction::commit(connection, shared, steps, redos).await);
        done.map_err(Failed::Held)?
    }

    fn tidy(&mut self) -> Result<bool, Error> {
        if self.shared.settings.inbox.is_none() {
            return Ok(false);
        }
        self.ask(async |connection| tidy(connection).await)
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if let (Some(runtime), Some(connection)) = (&self.runtime, self.connection.take()) {
            runtime.block_on(connection.close());
        }
    }
}
