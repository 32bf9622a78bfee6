//! Bare commands: what the servers do at most for somebody who only wants a key kept once.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::redis::aio::MultiplexedConnection;
use tokio_postgres::{Client, NoTls, Statement};

use super::append::Append;
use super::{RETENTION, digest};
use crate::failure::{Context as _, Outcome, fail};

/// The bare table.
pub const CREATE: &str = "create table bare (id bytea primary key, value bytea not null)";
const INSERT: &str = "insert into bare (id, value) values ($1, $2) on conflict (id) do nothing";
/// As many as the store has.
pub const CONNECTIONS: usize = 4;
/// A token and a fingerprint.
const VALUE: [u8; 48] = [b'x'; 48];

/// Who is asked.
pub enum Bare {
    File(Append),
    Postgres(Vec<(Client, Statement)>, AtomicUsize),
    Redis(MultiplexedConnection),
}

impl Bare {
    pub fn file(folder: &Path) -> Outcome<Bare> {
        Append::open(folder).map(Bare::File)
    }

    pub async fn postgres(url: &str) -> Outcome<Bare> {
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            let insert = client.prepare(INSERT).await?;
            clients.push((client, insert));
        }
        Ok(Bare::Postgres(clients, AtomicUsize::new(0)))
    }

    pub async fn redis(url: &str) -> Outcome<Bare> {
        let client = ::redis::Client::open(url).context("Redis")?;
        Ok(Bare::Redis(client.get_multiplexed_async_connection().await.context("Redis")?))
    }

    /// Keeps a key that is new.
    pub async fn once(&self, number: u64) -> Outcome<()> {
        let is_new = match self {
            Bare::File(file) => file.append(number).await.map(|()| true)?,
            Bare::Postgres(clients, next) => {
                let (client, insert) = &clients[next.fetch_add(1, Ordering::Relaxed) % CONNECTIONS];
                client.execute(insert, &[&&digest(number)[..], &&VALUE[..]]).await? == 1
            }
            Bare::Redis(connection) => {
                let mut key = String::with_capacity(80);
                key.push_str("ratchet:request:");
                digest(number).iter().for_each(|byte| key.push_str(&format!("{byte:02x}")));
                let mut set = ::redis::cmd("SET");
                set.arg(key).arg(&VALUE[..]).arg("NX").arg("PX").arg(RETENTION.as_millis() as u64);
                let said: Option<String> = set.query_async(&mut connection.clone()).await.context("SET")?;
                said.is_some()
            }
        };
        if !is_new {
            fail!("a new key was there already");
        }
        Ok(())
    }
}
