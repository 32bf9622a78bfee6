//! A client of schema registries: of Confluent's API, and of Apicurio's own.
//!
//! - [`Registry`]: looks schemas up, and has a thread fetch unknown ones (`thread`)
//! - `shelf`: the schemas that are known, absent, or being fetched
//! - `client`: asks the registry's addresses in turn; `answer`: what an answer means
//! - `api`: the URLs of an address, by the API that is there
//! - `fetch`: a schema with all schemas that it refers to
//! - [`Waiting`]: sources that wait for schemas, for commands that have nothing else to do
//!
//! Invariants: a look-up never waits. A known schema stays known, and is never replaced by another text: an id names
//! one schema for ever, and the meaning of a record must not depend on when it is read. Requests, answers and
//! references are bounded in number, size and time.
//!
//! **Failure**: if the registry does not answer, or something else answers in its place, it is asked again for as long
//! as that lasts, with exponential back-off; schemas are pending meanwhile, and [`Registry::trouble`] says why. If the
//! registry does not have a schema, it is asked a few times within seconds, since an instance of the registry may be
//! behind the one at which the producer registered the schema; then the schema counts as absent for a minute. No
//! message holds a password or a token, even if the registry sends it back.
//!
//! AWS Glue's registry is not supported, and registries do not know fingerprints: such schemas are read from files.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::config::{Config, SchemaRegistry};
use crate::observe::Metrics;
use crate::schemas::{Files, Id, IdBytes, LookUp, Schemas, Sources};

mod answer;
mod api;
mod client;
mod fetch;
mod shelf;
mod thread;
mod timing;
mod waiting;

pub use fetch::Latest;
pub use timing::Timing;
pub use waiting::Waiting;

use client::Client;
use shelf::{Found, Shelf};
use thread::Job;

/// A schema registry. Dropping it ends its thread.
#[derive(Debug)]
pub struct Registry {
    shelf: Arc<Shelf>,
    jobs: UnboundedSender<Job>,
}

/// The sources of schemas that these settings name: the folder first, then the registry.
///
/// # Errors
/// The folder's files, or the registry's settings, cannot be used.
pub fn sources(config: &Config, metrics: &Metrics) -> Result<Sources, String> {
    let mut list: Vec<Arc<dyn Schemas>> = Vec::new();
    if let Some(dir) = &config.schemas_dir {
        list.push(Arc::new(Files::open(dir).map_err(|error| format!("schemas.dir: {error}"))?));
    }
    if !config.schema_registry.urls.is_empty() {
        list.push(Arc::new(Registry::open(&config.schema_registry, metrics)?));
    }
    let id_bytes = if config.schema_registry.are_ids_long { IdBytes::Eight } else { IdBytes::Four };
    Ok(Sources { list, id_bytes })
}

impl Registry {
    /// The registry of these settings. No schema is requested yet.
    ///
    /// # Errors
    /// The settings cannot be used, or the thread cannot be started.
    pub fn open(settings: &SchemaRegistry, metrics: &Metrics) -> Result<Self, String> {
        Self::open_at(settings, metrics, Timing::default())
    }

    /// The same, with other timing.
    ///
    /// # Errors
    /// As [`Registry::open`].
    pub fn open_at(settings: &SchemaRegistry, metrics: &Metrics, timing: Timing) -> Result<Self, String> {
        let metrics = metrics.schemas();
        let client = Client::new(settings, metrics.clone())?;
        let shelf = Arc::new(Shelf::new(metrics));
        let (jobs, wanted) = unbounded_channel();
        thread::start(client, Arc::clone(&shelf), (wanted, timing))
            .map_err(|error| format!("the thread that asks the schema registry cannot be started: {error}"))?;
        Ok(Self { shelf, jobs })
    }

    /// The latest version of a subject, for `check --online`; `None` if the registry does not have the subject. Waits
    /// for this time at most.
    ///
    /// # Errors
    /// Why the registry did not answer in time, or why its schema cannot be used.
    pub fn latest(&self, subject: &str, wait: Duration) -> Result<Option<Latest>, String> {
        let (reply, replied) = sync_channel(1);
        let sent = self.jobs.send(Job::Latest { subject: subject.to_owned(), reply });
        sent.map_err(|_| thread::ENDED.to_owned())?;
        replied.recv_timeout(wait).map_err(|_| {
            let why = self.shelf.trouble().unwrap_or_else(|| format!("no answer within {wait:?}"));
            format!("the latest schema of {subject} was not fetched: {why}")
        })?
    }
}

impl Schemas for Registry {
    fn look_up(&self, id: &Id) -> LookUp {
        match self.shelf.find(id) {
            Found::Known(written) => LookUp::Known(written),
            Found::Absent(why) => LookUp::Absent(why),
            Found::Fetching => LookUp::Pending,
            Found::Unknown => {
                if let Some(why) = api::never_asked(*id) {
                    return LookUp::Absent(why);
                }
                if self.shelf.begin(id) && self.jobs.send(Job::Schema(*id)).is_err() {
                    self.shelf.failed(thread::ENDED.to_owned());
                }
                LookUp::Pending
            }
        }
    }

    fn wait_for(&self, id: &Id, wait: Duration) -> LookUp {
        self.shelf.wait(wait, || match self.look_up(id) {
            LookUp::Pending => None,
            found => Some(found),
        })
    }

    fn trouble(&self) -> Option<String> {
        self.shelf.trouble()
    }
}

#[cfg(test)]
mod tests;
