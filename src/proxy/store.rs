//! Where a proxy remembers requests: how that is written, and opened. Everything that a kind of store needs here stands
//! in this file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::by_hand;
use super::settings::size;
use crate::effect::postgres;
use crate::http::request::by_hand::Settle;
use crate::http::request::{Answer, Error, Found, Held, Kept, Reply, Wanted};
use crate::http::{Requests, Store};
use crate::observe::StoreMetrics;
use crate::redis;
use crate::yaml::keys::{Key, Mapping, Omitted, Type};
use crate::yaml::read::listed;
use crate::yaml::{Field, Placed, Reader, Text, secrets};

/// The kinds, as they are called.
pub const KINDS: &[&str] = &["embedded", "postgres", "redis"];
const SCHEMA: &str = "ratchet";
/// Less is taken by the log alone.
const STORE_BYTES: (u64, u64) = (128 << 20, 16 << 40);
/// How often the size of the embedded store is measured.
const MEASURE: Duration = Duration::from_secs(1);

/// `store`.
pub static STORE: Mapping = Mapping {
    one_of: KINDS,
    ..Mapping::of(&[
        Key::optional(
            "embedded",
            Type::mapping(&EMBEDDED),
            "embedded: {dir: /var/lib/ratchet/requests}",
            "in a folder, `dir`, of this process alone, created if it does not exist; `store_bytes_max` [bounds its \
             size](#how-large-the-embedded-store-gets)",
        ),
        Key::optional(
            "postgres",
            Type::mapping(&POSTGRES),
            "postgres: {url: '${env:DATABASE_URL}'}",
            "in a table of PostgreSQL, which several proxies may share: `url`, and `schema` (`ratchet`)",
        ),
        Key::optional(
            "redis",
            Type::mapping(&REDIS),
            "redis: {url: '${env:REDIS_URL}'}",
            "in Redis, which several proxies may share: `url`",
        ),
    ])
};

static EMBEDDED: Mapping = Mapping::of(&[
    Key::required("dir", Type::Text("a folder's path, without `~`"), "dir: /var/lib/ratchet/requests", "the folder"),
    Key::optional(
        "store_bytes_max",
        Type::Size("a size from 128MiB to 16TiB"),
        "store_bytes_max: 10GiB",
        "the bound on the size of its files. Beyond that, requests under new keys are refused with 503",
    ),
]);

static POSTGRES: Mapping = Mapping::of(&[
    Key::required("url", Type::Text("an address"), "url: ${env:DATABASE_URL}", "the database's address"),
    Key::optional("schema", Type::Text("a schema's name"), "schema: ratchet", "the schema of the table `request`")
        .or(Omitted::Is(SCHEMA)),
]);

static REDIS: Mapping =
    Mapping::of(&[Key::required("url", Type::Text("an address"), "url: ${env:REDIS_URL}", "the server's address")]);

/// All of these, for the tests of the tables.
#[cfg(test)]
pub static ALL: &[&Mapping] = &[&STORE, &EMBEDDED, &POSTGRES, &REDIS];

/// A kind of store, and what it needs to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// A folder of one process's.
    Embedded {
        /// The folder.
        dir: PathBuf,
        /// The bound on the size of its files, if there is one.
        bytes_max: Option<usize>,
    },
    /// A table of PostgreSQL.
    Postgres {
        /// The database's address.
        url: Text,
        /// The table's schema.
        schema: String,
    },
    /// Redis.
    Redis {
        /// The server's address.
        url: Text,
    },
}

impl StoreConfig {
    /// What it is and where, in words, without what is secret.
    pub fn describe(&self) -> String {
        match self {
            Self::Embedded { dir, .. } => format!("embedded, in {}", dir.display()),
            Self::Postgres { url, schema } => {
                let table = format!("postgres, in the table {schema}.request");
                // It was read before.
                postgres::shown_url(url.reveal()).map_or(table.clone(), |database| format!("{table} of {database}"))
            }
            Self::Redis { url } => match redis::Address::read(url.reveal()) {
                Ok(address) => format!("redis, at {}", address.shown()),
                Err(_) => "redis".to_owned(),
            },
        }
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Embedded { .. } => "embedded",
            Self::Postgres { .. } => "postgres",
            Self::Redis { .. } => "redis",
        }
    }
}

/// Reads `store`; `None` after mistakes, which are reported.
pub fn read(field: &Field<'_>, reader: &mut Reader<'_>) -> Option<StoreConfig> {
    let fields = reader.fields(field, &STORE)?;
    let mut given = KINDS.iter().filter_map(|kind| Some((*kind, fields.get(kind)?)));
    let Some((kind, below)) = given.next() else {
        if KINDS.iter().all(|kind| fields.misspelt(kind).is_none()) {
            let message = format!("`store` must say which one: {}", listed(KINDS));
            reader.mistake(field.place(), message, "none is named", "write e.g. `store: {embedded: {dir: requests}}`");
        }
        return None;
    };
    if let Some((second, other)) = given.next() {
        let message = format!("a proxy has one store, not `{kind}` and `{second}`");
        reader.mistake(other.key_place, message, "a second one", "remove one of them");
    }
    match kind {
        "embedded" => {
            let fields = reader.fields(below, &EMBEDDED)?;
            let path = |text: &str| (!text.starts_with('~')).then(|| PathBuf::from(text));
            let dir = fields.require("dir", reader).and_then(|field| reader.parsed(field, path));
            let bytes_max = size(&fields, "store_bytes_max", STORE_BYTES, reader);
            Some(StoreConfig::Embedded { dir: dir?.value, bytes_max })
        }
        "postgres" => {
            let fields = reader.fields(below, &POSTGRES)?;
            let schema = fields.get("schema").map(|field| reader.text(field));
            let url = fields.require("url", reader).cloned();
            let check = |url: &str| match secrets::url_problem(url) {
                Some(problem) => Err(problem.to_owned()),
                None => postgres::check_url(url),
            };
            let url = address(&url?, ("a database", "postgresql://user:password@host/database"), check, reader)?;
            let schema = schema.map_or(Some(SCHEMA.to_owned()), |schema| Some(schema?.value.reveal().to_owned()))?;
            Some(StoreConfig::Postgres { url, schema })
        }
        _ => {
            let fields = reader.fields(below, &REDIS)?;
            let url = fields.require("url", reader).cloned();
            let example = ("a server of Redis", "redis://user:password@host:6379/0");
            Some(StoreConfig::Redis { url: address(&url?, example, redis::check_url, reader)? })
        }
    }
}

/// An address of such a thing, which looks like this example. Its password must not stand in the file.
fn address(
    field: &Field<'_>,
    (what, example): (&str, &str),
    check: impl Fn(&str) -> Result<(), String>,
    reader: &mut Reader<'_>,
) -> Option<Text> {
    let url: Placed<Text> = reader.text(field)?;
    let name = &field.name;
    if let Err(problem) = check(url.value.reveal()) {
        let message = format!("`{name}` is not the address of {what}: {problem}");
        let help = format!("write e.g. `url: ${{env:STORE_URL}}`, which holds `{example}`");
        reader.mistake(url.place, message, "such an address is needed", help);
        return None;
    }
    let source = reader.file.text().get(url.place.start..url.place.end()).unwrap_or_default();
    if secrets::has_password(source) || !url.value.is_secret() && secrets::has_password(url.value.reveal()) {
        let message = format!("the password in `{name}` is a secret and must not be written out");
        let help = "write `url: ${env:STORE_URL}` or `url: ${file:PATH}`, or one of these in the password's place";
        reader.mistake(url.place, message, "not shown", help);
        return None;
    }
    Some(url.value)
}

/// A store as it is written in a file, for what is given on the command line: its kind, its folder or its address.
pub fn written(kind: &str, dir: &str, url: Option<&str>) -> String {
    let below = match (kind, url) {
        ("embedded", _) => format!("dir: {}", super::quoted(dir)),
        (_, Some(url)) => format!("url: {}", super::quoted(url)),
        (_, None) => String::new(),
    };
    format!("store: {{{kind}: {{{below}}}}}\n")
}

/// An open store.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its folder, where it has one; the others are servers'.
    pub folder: Option<Folder>,
}

/// The folder of a store that one process has.
#[derive(Clone)]
pub struct Folder {
    /// Where it is.
    pub dir: PathBuf,
    /// What people ask of it through that process.
    pub by_hand: Arc<dyn Settle>,
    requests: Arc<Requests>,
    bytes_max: Option<usize>,
}

impl Folder {
    /// Reports its size, and the bound on it, until this is aborted.
    pub async fn measure(self, metrics: StoreMetrics) {
        if let Some(bytes_max) = self.bytes_max {
            metrics.bytes_max(bytes_max as u64);
        }
        loop {
            let requests = Arc::clone(&self.requests);
            // A disk may be slow to say.
            if let Ok(bytes) = tokio::task::spawn_blocking(move || requests.bytes()).await {
                metrics.bytes(bytes);
            }
            tokio::time::sleep(MEASURE).await;
        }
    }
}

/// Opens the store.
///
/// # Errors
/// Why it cannot be opened.
pub fn open(config: &StoreConfig) -> Result<Opened, Error> {
    Ok(match config {
        StoreConfig::Embedded { dir, bytes_max } => {
            let requests = Requests::open(dir)?;
            let requests = Arc::new(match bytes_max {
                Some(bytes_max) => requests.bytes_max(*bytes_max as u64),
                None => requests,
            });
            let (store, by_hand) = (Arc::clone(&requests) as Arc<dyn Store>, Arc::clone(&requests) as Arc<dyn Settle>);
            let folder = Folder { dir: dir.clone(), by_hand, requests, bytes_max: *bytes_max };
            Opened { store, folder: Some(folder) }
        }
        StoreConfig::Postgres { url, schema } => Opened { store: Arc::new(of_postgres(url, schema)?), folder: None },
        StoreConfig::Redis { url } => Opened { store: Arc::new(of_redis(url)?), folder: None },
    })
}

/// Opens the store for somebody who looks at requests and settles them, beside the proxies that use it. A folder has one
/// process: if that is a running proxy, it is asked.
///
/// # Errors
/// Why it cannot be opened.
pub async fn open_by_hand(config: &StoreConfig) -> Result<Box<dyn Settle>, Error> {
    Ok(match config {
        StoreConfig::Embedded { dir, .. } => match by_hand::Remote::connect(dir).await {
            Some(remote) => Box::new(remote),
            None => Box::new(Requests::open_existing(dir)?),
        },
        StoreConfig::Postgres { url, schema } => Box::new(of_postgres(url, schema)?),
        StoreConfig::Redis { url } => Box::new(of_redis(url)?),
    })
}

fn of_postgres(url: &Text, schema: &str) -> Result<postgres::requests::Requests, Error> {
    postgres::requests::Requests::new(url.reveal(), schema)
}

fn of_redis(url: &Text) -> Result<redis::requests::Requests, Error> {
    let address = redis::Address::read(url.reveal()).map_err(Error::Refused)?;
    Ok(redis::requests::Requests::new(address))
}

/// A store that counts what it is asked.
pub struct Counted {
    store: Arc<dyn Store>,
    metrics: StoreMetrics,
}

impl Counted {
    /// Counts here what this store is asked.
    pub fn new(store: Arc<dyn Store>, metrics: StoreMetrics) -> Self {
        Self { store, metrics }
    }

    fn counted<'a, T: Send + 'a>(&'a self, operation: &'static str, reply: Reply<'a, T>) -> Reply<'a, T> {
        Box::pin(async move {
            let mut asked = Asked { metrics: &self.metrics, operation, began: Instant::now(), is_answered: false };
            let said = reply.await;
            asked.is_answered = said.is_ok();
            said
        })
    }
}

/// A question; one that nobody waited for to its end was not answered.
struct Asked<'a> {
    metrics: &'a StoreMetrics,
    operation: &'static str,
    began: Instant,
    is_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.metrics.asked(self.operation, self.began.elapsed(), self.is_answered);
    }
}

impl Store for Counted {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        self.counted("reserve", self.store.reserve(wanted))
    }

    fn extend(&self, held: Held, lease: Duration) -> Reply<'_, Kept> {
        self.counted("extend", self.store.extend(held, lease))
    }

    fn complete<'a>(&'a self, held: Held, answer: &'a Answer, retention: Duration) -> Reply<'a, Kept> {
        self.counted("complete", self.store.complete(held, answer, retention))
    }

    fn release(&self, held: Held) -> Reply<'_, Kept> {
        self.counted("release", self.store.release(held))
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            let removed = self.counted("tidy", self.store.tidy()).await?;
            self.metrics.removed(removed);
            Ok(removed)
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        self.counted("check", self.store.check())
    }
}
