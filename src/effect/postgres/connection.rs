//! A connection: made, looked over, and with everything prepared that is carried out on it.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, OnceLock};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::class::{Class, POOLER, Trouble};
use super::inbox::InboxSql;
use super::pipeline::{Answered, Pipeline, answered};
use super::positions::RowSql;
use super::prepare::{self, Grants};
use super::server::{FAREWELL_WAIT, Greeting, connect, greet};
use super::settings::{Settings, Shared};
use super::statement::{self, Prepared};

/// Begins a transaction; the first answer is the server's process.
pub(super) const BEGIN: &str = "begin isolation level read committed; select pg_backend_pid()";

/// A connection, used by one session.
pub(super) struct Connection {
    pub client: Client,
    /// The server's process, as text.
    process: String,
    pub rows: RowSql,
    pub inbox: Option<InboxSql>,
    /// The statements that calls carry out, once they are prepared.
    statements: RefCell<Option<Arc<[Prepared]>>>,
    task: JoinHandle<()>,
    /// Why the connection has ended.
    ended: Arc<OnceLock<Trouble>>,
    is_broken: Cell<bool>,
}

impl Connection {
    /// Connects, creates own tables where they are missing and may be, and prepares own statements.
    pub async fn open(shared: &Shared) -> Result<Self, Trouble> {
        let (client, task, ended) = connect(&shared.server, &shared.settings.topology).await?;
        let prepared = answered(async {
            let Greeting { process, role } = greet(&client).await?;
            let settings = &shared.settings;
            let grants = Grants::of(settings, &role);
            prepare::ensure(&client, settings, &grants).await?;
            let rows = RowSql::prepare(&client, &settings.schema).await.map_err(|trouble| grants.explain(trouble))?;
            let inbox = match &settings.inbox {
                Some(inbox) => InboxSql::prepare(&client, settings, inbox).await.map(Some),
                None => Ok(None),
            };
            Ok((process, rows, inbox.map_err(|trouble| grants.explain(trouble))?))
        });
        let (process, rows, inbox) = match prepared.await {
            Ok(prepared) => prepared,
            Err(trouble) => {
                part(client, task).await;
                return Err(trouble);
            }
        };
        let (statements, is_broken) = (RefCell::new(None), Cell::new(false));
        Ok(Self { client, process, rows, inbox, statements, task, ended, is_broken })
    }

    /// The statements that calls carry out, prepared when they are asked for first.
    pub async fn statements(&self, settings: &Settings) -> Result<Arc<[Prepared]>, Trouble> {
        if let Some(prepared) = self.statements.borrow().as_ref() {
            return Ok(Arc::clone(prepared));
        }
        let mut all = Vec::with_capacity(settings.statements.len());
        for (number, statement) in settings.statements.iter().enumerate() {
            let work = statement::prepare(&self.client, number, statement, settings.has_text_decimals);
            let prepared = answered(work).await;
            all.push(prepared.map_err(|trouble| statement::helped(trouble).of(&statement.named(number)))?);
        }
        let all: Arc<[Prepared]> = all.into();
        Ok(Arc::clone(self.statements.borrow_mut().insert(all)))
    }

    /// Has the statements prepared anew when they are asked for next: tables may have other columns and types by now.
    pub fn forget_statements(&self) {
        self.statements.take();
    }

    /// The statements, prepared anew.
    pub async fn statements_anew(&self, settings: &Settings) -> Result<Arc<[Prepared]>, Trouble> {
        self.forget_statements();
        self.statements(settings).await
    }

    /// A pipeline on this connection.
    pub fn pipeline<T>(&self) -> Pipeline<'_, T> {
        Pipeline::new(&self.client)
    }

    /// Sends one request and waits for it.
    pub async fn one<'a>(&'a self, request: impl FnOnce(&mut Pipeline<'a, ()>)) -> Result<Answered, Trouble> {
        let mut pipeline = self.pipeline();
        request(&mut pipeline);
        match pipeline.next().await {
            Some(((), answered)) => answered.map_err(|trouble| self.explained(trouble)),
            None => Ok(Answered::default()),
        }
    }

    /// Checks that a transaction's first answer came from the process that it began with.
    pub fn check_process(&self, answered: &Answered) -> Result<(), Trouble> {
        if answered.first.as_ref() == Some(&self.process) { Ok(()) } else { Err(self.broken(Trouble::lasting(POOLER))) }
    }

    /// Rolls back whatever is open. A connection that cannot is not used again; one that is not is rolled back by its
    /// end.
    pub async fn roll_back(&self) {
        if self.is_usable() && self.one(|pipeline| pipeline.simple((), "rollback")).await.is_err() {
            self.is_broken.set(true);
        }
    }

    /// Whether it can be used again.
    pub fn is_usable(&self) -> bool {
        !self.is_broken.get() && !self.client.is_closed()
    }

    /// Says of a trouble that this connection cannot be used any more.
    pub fn broken(&self, trouble: Trouble) -> Trouble {
        self.is_broken.set(true);
        trouble
    }

    /// The trouble with the reason, where all that was seen of it is that the connection is gone.
    pub fn explained(&self, trouble: Trouble) -> Trouble {
        match trouble.class {
            Class::Lost => {
                self.is_broken.set(true);
                let reason = self.ended.get().filter(|ended| ended.message != trouble.message);
                let reason = reason.map(|ended| format!("{}: {}", trouble.message, ended.message));
                Trouble { message: reason.unwrap_or(trouble.message), ..trouble }
            }
            Class::Anew => self.broken(trouble),
            _ if trouble.is_fatal => self.broken(trouble),
            _ => trouble,
        }
    }

    /// Ends it, telling the server if it still listens.
    pub async fn close(self) {
        let Self { client, task, rows, inbox, statements, .. } = self;
        drop((rows, inbox, statements));
        part(client, task).await;
    }
}

/// Ends a connection, telling the server if it still listens.
async fn part(client: Client, mut task: JoinHandle<()>) {
    drop(client);
    if tokio::time::timeout(FAREWELL_WAIT, &mut task).await.is_err() {
        // The socket goes with it.
        task.abort();
    }
}
