//! A session's connection, with its checks and its prepared statements.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::class::{ErrorClass, POOLER_MESSAGE, Trouble};
use super::inbox::InboxSql;
use super::pipeline::{Pipeline, Response, within_timeout};
use super::positions::RowSql;
use super::server::{CLOSE_TIMEOUT, SessionInfo, check_server, connect};
use super::settings::{Settings, Shared};
use super::sink_tables::{self, Grants};
use super::statement::{self, Prepared};

/// Begins a transaction; the first returned value is the process id of the server's backend.
pub(super) const BEGIN: &str = "begin isolation level read committed; select pg_backend_pid()";

/// A connection, used by one session.
pub(super) struct Connection {
    pub client: Client,
    /// The process id of the server's backend, as text.
    process_id: String,
    pub rows: RowSql,
    pub inbox: Option<InboxSql>,
    /// The users' statements, once they are prepared.
    statements: RefCell<Option<Arc<[Prepared]>>>,
    task: JoinHandle<()>,
    /// Why the connection has ended.
    end_reason: Arc<OnceLock<Trouble>>,
    is_broken: Cell<bool>,
}

impl Connection {
    /// Connects, creates ratchet's own tables if they are missing and may be created, and prepares ratchet's own
    /// statements.
    pub async fn open(shared: &Shared) -> Result<Self, Trouble> {
        let (client, task, end_reason) = connect(&shared.server, &shared.settings.topology).await?;
        let prepared = within_timeout(async {
            let SessionInfo { process_id, role } = check_server(&client).await?;
            let settings = &shared.settings;
            let grants = Grants::for_settings(settings, &role);
            sink_tables::ensure(&client, settings, &grants).await?;
            let rows = RowSql::prepare(&client, &settings.schema).await.map_err(|trouble| grants.add_help(trouble))?;
            let inbox = match &settings.inbox {
                Some(inbox) => InboxSql::prepare(&client, settings, inbox).await.map(Some),
                None => Ok(None),
            };
            Ok((process_id, rows, inbox.map_err(|trouble| grants.add_help(trouble))?))
        });
        let (process_id, rows, inbox) = match prepared.await {
            Ok(prepared) => prepared,
            Err(trouble) => {
                close_client(client, task).await;
                return Err(trouble);
            }
        };
        let (statements, is_broken) = (RefCell::new(None), Cell::new(false));
        Ok(Self { client, process_id, rows, inbox, statements, task, end_reason, is_broken })
    }

    /// The users' statements, prepared on first use.
    pub async fn statements(&self, settings: &Settings) -> Result<Arc<[Prepared]>, Trouble> {
        if let Some(prepared) = self.statements.borrow().as_ref() {
            return Ok(Arc::clone(prepared));
        }
        let mut prepared_statements = Vec::with_capacity(settings.statements.len());
        for (number, statement) in settings.statements.iter().enumerate() {
            let work = statement::prepare(&self.client, number, statement, settings.has_text_decimals);
            let prepared = within_timeout(work).await;
            prepared_statements.push(
                prepared.map_err(|trouble| statement::with_help(trouble).with_context(&statement.label(number)))?,
            );
        }
        let prepared_statements: Arc<[Prepared]> = prepared_statements.into();
        Ok(Arc::clone(self.statements.borrow_mut().insert(prepared_statements)))
    }

    /// Drops the users' prepared statements, so that the next use prepares them again: tables may have been altered.
    pub fn forget_statements(&self) {
        self.statements.take();
    }

    /// Prepares the users' statements again.
    pub async fn reprepare_statements(&self, settings: &Settings) -> Result<Arc<[Prepared]>, Trouble> {
        self.forget_statements();
        self.statements(settings).await
    }

    /// A pipeline on this connection.
    pub fn pipeline<T>(&self) -> Pipeline<'_, T> {
        Pipeline::new(&self.client)
    }

    /// Sends one request and waits for its response.
    pub async fn request<'a>(&'a self, request: impl FnOnce(&mut Pipeline<'a, ()>)) -> Result<Response, Trouble> {
        let mut pipeline = self.pipeline();
        request(&mut pipeline);
        match pipeline.next().await {
            Some(((), response)) => response.map_err(|trouble| self.with_end_reason(trouble)),
            None => Ok(Response::default()),
        }
    }

    /// Checks that a transaction's first response has the process id of the connection's backend: a pooler may have
    /// switched.
    pub fn check_process(&self, response: &Response) -> Result<(), Trouble> {
        if response.first_value.as_ref() == Some(&self.process_id) {
            Ok(())
        } else {
            Err(self.mark_broken(Trouble::permanent(POOLER_MESSAGE)))
        }
    }

    /// Rolls back any open transaction. If that fails, the connection is not used again, and the server rolls back when
    /// it is closed.
    pub async fn roll_back(&self) {
        if self.is_usable() && self.request(|pipeline| pipeline.simple((), "rollback")).await.is_err() {
            self.is_broken.set(true);
        }
    }

    /// Whether the connection can be used again.
    pub fn is_usable(&self) -> bool {
        !self.is_broken.get() && !self.client.is_closed()
    }

    /// Marks the connection as unusable. Returns the error that made it so.
    pub fn mark_broken(&self, trouble: Trouble) -> Trouble {
        self.is_broken.set(true);
        trouble
    }

    /// Marks the connection as unusable if the error makes it so, and adds the reason why a lost connection has ended.
    pub fn with_end_reason(&self, trouble: Trouble) -> Trouble {
        match trouble.class {
            ErrorClass::Lost => {
                self.is_broken.set(true);
                let reason = self.end_reason.get().filter(|reason| reason.message != trouble.message);
                let message = reason.map(|reason| format!("{}: {}", trouble.message, reason.message));
                Trouble { message: message.unwrap_or(trouble.message), ..trouble }
            }
            ErrorClass::Reconnect => self.mark_broken(trouble),
            _ if trouble.is_fatal => self.mark_broken(trouble),
            _ => trouble,
        }
    }

    /// Closes the connection, telling the server if it is reachable.
    pub async fn close(self) {
        let Self { client, task, rows, inbox, statements, .. } = self;
        drop((rows, inbox, statements));
        close_client(client, task).await;
    }
}

/// Closes a client's connection, telling the server if it is reachable.
async fn close_client(client: Client, mut task: JoinHandle<()>) {
    drop(client);
    if tokio::time::timeout(CLOSE_TIMEOUT, &mut task).await.is_err() {
        // Closes the socket.
        task.abort();
    }
}
