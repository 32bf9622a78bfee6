//! Where a proxy remembers requests: how that is written, and opened. Everything that a kind of store needs here stands
//! in this file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::http::request::{Answer, Error, Found, Held, Kept, Reply, Wanted};
use crate::http::{Requests, Store};
use crate::observe::StoreMetrics;
use crate::yaml::keys::{Key, Mapping, Type};
use crate::yaml::read::listed;
use crate::yaml::{Field, Reader};

/// The kinds, as they are called.
pub const KINDS: &[&str] = &["embedded"];

/// `store`.
pub static STORE: Mapping = Mapping {
    one_of: KINDS,
    ..Mapping::of(&[Key::optional(
        "embedded",
        Type::mapping(&EMBEDDED),
        "embedded: {dir: /var/lib/ratchet/requests}",
        "in a folder, `dir`, of this process alone: a new or an empty one",
    )])
};

static EMBEDDED: Mapping = Mapping::of(&[Key::required(
    "dir",
    Type::Text("a folder's path, without `~`"),
    "dir: /var/lib/ratchet/requests",
    "the folder",
)]);

/// A kind of store, and what it needs to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreConfig {
    /// A folder of one process's.
    Embedded {
        /// The folder.
        dir: PathBuf,
    },
}

impl StoreConfig {
    /// What it is, in words.
    pub fn describe(&self) -> String {
        match self {
            Self::Embedded { dir } => format!("embedded, in {}", dir.display()),
        }
    }

    /// Its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Embedded { .. } => "embedded",
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
    if let Some((_, second)) = given.next() {
        reader.mistake(second.key_place, "there is one store".to_owned(), "a second one", "remove one of them");
    }
    match kind {
        "embedded" => {
            let fields = reader.fields(below, &EMBEDDED)?;
            let path = |text: &str| (!text.starts_with('~')).then(|| PathBuf::from(text));
            let dir = fields.require("dir", reader).and_then(|field| reader.parsed(field, path))?;
            Some(StoreConfig::Embedded { dir: dir.value })
        }
        _ => None,
    }
}

/// A store as it is written in a file, for what is given on the command line.
pub fn written(kind: &str, dir: &str) -> String {
    match kind {
        "embedded" => format!("store: {{embedded: {{dir: {}}}}}\n", super::quoted(dir)),
        kind => format!("store: {{{kind}: {{}}}}\n"),
    }
}

/// Opens the store.
///
/// # Errors
/// Why it cannot be opened.
pub async fn open(config: &StoreConfig) -> Result<Arc<dyn Store>, Error> {
    match config {
        StoreConfig::Embedded { dir } => Ok(Arc::new(Requests::open(dir)?)),
    }
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
