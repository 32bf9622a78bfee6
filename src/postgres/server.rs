//! Connects to a database's server, and checks its version and the session's settings.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{Client, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::class::{POOLER_MESSAGE, Trouble};
use super::tls;
use super::url::{self, Target};
use crate::tls::Renewed;

/// The oldest release that ratchet is tested with.
const VERSION_MIN: u32 = 150_000;
/// How long TLS and the login may take, after the time for connecting to each host. Also the timeout of the first
/// query.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(10);
/// `lock_timeout`: how long a statement waits for a lock that another transaction holds.
const LOCK_TIMEOUT: &str = "5s";
/// `idle_in_transaction_session_timeout`: after this time, the server ends a session that is idle in a transaction. A
/// frozen owner can delay its successor for that long.
const IDLE_TRANSACTION_TIMEOUT: &str = "10s";

/// How long closing a connection waits for its task to notify the server.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// A client, the task that drives its connection, and the reason why the connection has ended, once it has.
pub(super) type Connected = (Client, JoinHandle<()>, Arc<OnceLock<Trouble>>);

/// A database's address, with its TLS configuration.
#[derive(Debug)]
pub(super) struct Server {
    target: Target,
    tls: Renewed<MakeRustlsConnect>,
}

impl Server {
    /// Parses a database's address; see [`Target::read`].
    pub fn parse(url: &str) -> Result<Self, url::Error> {
        let target = Target::read(url)?;
        Ok(Self { tls: tls::connector(&target), target })
    }

    /// The database, its addresses and the user, for messages; never the password.
    pub fn description(&self) -> String {
        self.target.description()
    }
}

/// Connects, and requests the session's settings.
pub(super) async fn connect(server: &Server, topology: &str) -> Result<Connected, Trouble> {
    let Server { target, tls } = server;
    let connector = tls.current().map_err(Trouble::permanent)?;
    let mut config = target.config.clone();
    config.application_name(format!("ratchet {topology}"));
    let options = config.get_options().unwrap_or_default().to_owned();
    // As startup parameters, so that a pooler refuses them instead of applying them to shared sessions.
    config.options(format!(
        "{options} -c lock_timeout={LOCK_TIMEOUT} -c idle_in_transaction_session_timeout={IDLE_TRANSACTION_TIMEOUT} \
         -c statement_timeout=0 -c standard_conforming_strings=on -c default_transaction_isolation=read\\ committed"
    ));
    let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
    let host_timeout = config.get_connect_timeout().copied().unwrap_or_default();
    let timeout = host_timeout * u32::try_from(hosts).unwrap_or(u32::MAX) + LOGIN_TIMEOUT;
    let connecting = tokio::time::timeout(timeout, config.connect(MakeRustlsConnect::clone(&connector))).await;
    let connected = match connecting {
        Ok(connected) => connected.map_err(connect_error),
        Err(_) => Err(Trouble::lost(format!("no connection within {} s", timeout.as_secs()))),
    };
    let (client, connection) =
        connected.map_err(|trouble| trouble.with_context(&format!("cannot connect to {}", target.description())))?;
    let end_reason = Arc::new(OnceLock::new());
    let task = tokio::spawn({
        let end_reason = Arc::clone(&end_reason);
        async move {
            if let Err(error) = connection.await {
                end_reason.set(Trouble::from(error)).ok();
            }
        }
    });
    Ok((client, task, end_reason))
}

fn connect_error(error: tokio_postgres::Error) -> Trouble {
    let is_pooler = error.as_db_error().is_some_and(|error| error.message().contains("startup parameter"));
    let trouble = Trouble::from(error);
    if is_pooler { Trouble::permanent(format!("{POOLER_MESSAGE} (it says: {})", trouble.message)) } else { trouble }
}

/// A session's process on the server, and its role.
pub(super) struct SessionInfo {
    /// The process id of the server's backend, as text.
    pub process_id: String,
    /// The session's role.
    pub role: String,
}

/// Checks the server's version, and two of the settings that [`connect`] requests: a pooler that drops settings drops
/// these too.
pub(super) async fn check_server(client: &Client) -> Result<SessionInfo, Trouble> {
    const QUERY: &str = "select pg_backend_pid(), current_setting('server_version_num'), current_setting('lock_timeout'), \
                         current_setting('idle_in_transaction_session_timeout'), current_user";
    let result = tokio::time::timeout(LOGIN_TIMEOUT, client.simple_query(QUERY)).await;
    let messages = result.map_err(|_| Trouble::lost("the server does not answer"))?.map_err(Trouble::from)?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let text = |column| row.and_then(|row| row.get(column)).unwrap_or_default();
    let version: u32 = text(1)
        .parse()
        .map_err(|_| Trouble::permanent(format!("the server reports no readable version: {:?}", text(1))))?;
    if version < VERSION_MIN {
        let (version, minimum) = (version / 10_000, VERSION_MIN / 10_000);
        return Err(Trouble::permanent(format!(
            "the server is PostgreSQL {version}; ratchet needs {minimum} or later"
        )));
    }
    if text(2) != LOCK_TIMEOUT || text(3) != IDLE_TRANSACTION_TIMEOUT {
        return Err(Trouble::permanent(POOLER_MESSAGE));
    }
    Ok(SessionInfo { process_id: text(0).to_owned(), role: text(4).to_owned() })
}
