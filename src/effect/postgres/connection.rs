//! A connection: made, looked over, and with everything prepared that is carried out on it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::class::{Class, POOLER, Trouble};
use super::inbox::InboxSql;
use super::pipeline::{ANSWER_WAIT, Answered, Pipeline, silent};
use super::positions::RowSql;
use super::prepare::Grants;
use super::statement::{self, Prepared};
use super::url::{self, Target};
use super::{Settings, Shared, prepare, tls};
use crate::tls::Renewed;

/// The first release that it is tested with.
const VERSION_MIN: u32 = 150_000;
/// How long TLS, the password and the first answers may take, beside connecting to each host.
const GREETING_WAIT: Duration = Duration::from_secs(10);
/// How long another's transaction may hold a lock that a commit needs.
const LOCK_WAIT: &str = "5s";
/// How long the server keeps an open transaction of a session that has gone silent: as long as a frozen owner can hold
/// up its heir.
const SILENCE_MAX: &str = "10s";
/// How long the server is given to hear that a session ends.
pub(super) const FAREWELL_WAIT: Duration = Duration::from_millis(200);

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

/// Waits for what several requests in a row bring, as for one.
pub(super) async fn answered<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    tokio::time::timeout(ANSWER_WAIT, work).await.unwrap_or_else(|_| Err(silent()))
}

/// Ends a connection, telling the server if it still listens.
async fn part(client: Client, mut task: JoinHandle<()>) {
    drop(client);
    if tokio::time::timeout(FAREWELL_WAIT, &mut task).await.is_err() {
        // The socket goes with it.
        task.abort();
    }
}

pub(super) type Connected = (Client, JoinHandle<()>, Arc<OnceLock<Trouble>>);

/// Where a database is, and how TLS is spoken with it.
#[derive(Debug)]
pub(super) struct Server {
    target: Target,
    tls: Renewed<MakeRustlsConnect>,
}

impl Server {
    pub fn read(url: &str) -> Result<Self, url::Error> {
        let target = Target::read(url)?;
        Ok(Self { tls: tls::connector(&target), target })
    }

    /// Its address, without what is secret.
    pub fn shown(&self) -> String {
        self.target.shown()
    }
}

pub(super) async fn connect(server: &Server, topology: &str) -> Result<Connected, Trouble> {
    let Server { target, tls } = server;
    let connector = tls.now().map_err(Trouble::lasting)?;
    let mut config = target.config.clone();
    config.application_name(format!("ratchet {topology}"));
    let given = config.get_options().unwrap_or_default().to_owned();
    // At the start, so that a pooler refuses them instead of handing them on to others.
    config.options(format!(
        "{given} -c lock_timeout={LOCK_WAIT} -c idle_in_transaction_session_timeout={SILENCE_MAX} -c statement_timeout=0 \
         -c standard_conforming_strings=on -c default_transaction_isolation=read\\ committed"
    ));
    let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
    let each = config.get_connect_timeout().copied().unwrap_or_default();
    let wait = each * u32::try_from(hosts).unwrap_or(u32::MAX) + GREETING_WAIT;
    let connecting = tokio::time::timeout(wait, config.connect(MakeRustlsConnect::clone(&connector))).await;
    let connected = match connecting {
        Ok(connected) => connected.map_err(refused),
        Err(_) => Err(Trouble::lost(format!("no connection within {} s", wait.as_secs()))),
    };
    let (client, connection) =
        connected.map_err(|trouble| trouble.of(&format!("cannot connect to {}", target.shown())))?;
    let ended = Arc::new(OnceLock::new());
    let task = tokio::spawn({
        let ended = Arc::clone(&ended);
        async move {
            if let Err(error) = connection.await {
                ended.set(Trouble::from(error)).ok();
            }
        }
    });
    Ok((client, task, ended))
}

fn refused(error: tokio_postgres::Error) -> Trouble {
    let is_pooler = error.as_db_error().is_some_and(|error| error.message().contains("startup parameter"));
    let trouble = Trouble::from(error);
    let text = trouble.message.clone();
    if is_pooler { Trouble::lasting(format!("{POOLER} (it says: {text})")) } else { trouble }
}

/// What the server says first.
pub(super) struct Greeting {
    /// The server's process, as text.
    pub process: String,
    /// The role that the session has.
    pub role: String,
}

/// Checks the server's version and that the session is as it was asked for.
pub(super) async fn greet(client: &Client) -> Result<Greeting, Trouble> {
    const QUERY: &str = "select pg_backend_pid(), current_setting('server_version_num'), current_setting('lock_timeout'), \
                         current_setting('idle_in_transaction_session_timeout'), current_user";
    let asked = tokio::time::timeout(GREETING_WAIT, client.simple_query(QUERY)).await;
    let messages = asked.map_err(|_| Trouble::lost("the server does not answer"))?.map_err(Trouble::from)?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let text = |column| row.and_then(|row| row.get(column)).unwrap_or_default();
    let version: u32 = text(1).parse().unwrap_or_default();
    if version < VERSION_MIN {
        let (version, least) = (version / 10_000, VERSION_MIN / 10_000);
        return Err(Trouble::lasting(format!("the server is PostgreSQL {version}, ratchet needs {least} or later")));
    }
    if text(2) != LOCK_WAIT || text(3) != SILENCE_MAX {
        return Err(Trouble::lasting(POOLER));
    }
    Ok(Greeting { process: text(0).to_owned(), role: text(4).to_owned() })
}
