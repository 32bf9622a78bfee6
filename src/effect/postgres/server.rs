//! The server of a database: connects to it, and checks by its greeting that the session has the settings that were
//! asked for.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::class::{POOLER, Trouble};
use super::tls;
use super::url::{self, Target};
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
