//! Schemas from a schema registry: one with Confluent's API, or Apicurio.
//!
//! - [`Registry`]: what is known, and a thread that asks for what is not (`thread`)
//! - `shelf`: the schemas that are known, those that are absent, and those that are waited for
//! - `client`: one question to the registry's addresses, one after the other; `answer`: what an answer means
//! - `api`: which paths an address has: Confluent's, or Apicurio's own
//! - `fetch`: a schema with all that it refers to
//! - [`Waiting`]: sources that wait, for commands that have nothing else to do
//!
//! Invariants: a look-up never waits. A schema that is known stays known, and is never replaced by another text: ids name
//! schemas for ever, and what a record means must not depend on when it is read. Questions, their answers and what they
//! refer to are bounded in number, in size and in time.
//!
//! **Failure**: a registry that does not answer, or answers what no registry does, is asked again for as long as it takes,
//! with exponential back-off; the schemas that are waited for are pending meanwhile, and [`Registry::trouble`] says why. A
//! schema that the registry does not have is asked for a few times within seconds, since its other instances may be a
//! little behind the one that the producer has registered it with, and then absent for a minute. No message holds a
//! password or a token, not even where the registry sends it back.
//!
//! AWS Glue's registry is not asked, and none is asked for fingerprints: such schemas are read from files.

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

/// Where schemas come from by these settings: the folder first, then the registry.
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
    /// The registry of these settings. Nothing is asked yet.
    ///
    /// # Errors
    /// The settings cannot be used, or there is no thread.
    pub fn open(settings: &SchemaRegistry, metrics: &Metrics) -> Result<Self, String> {
        Self::open_at(settings, metrics, Timing::default())
    }

    /// The same, with other times.
    ///
    /// # Errors
    /// As [`Registry::open`].
    pub fn open_at(settings: &SchemaRegistry, metrics: &Metrics, timing: Timing) -> Result<Self, String> {
        let metrics = metrics.schemas();
        let client = Client::new(settings, metrics.clone())?;
        let shelf = Arc::new(Shelf::new(metrics));
        let (jobs, wanted) = unbounded_channel();
        thread::start(client, Arc::clone(&shelf), (wanted, timing))
            .map_err(|error| format!("there is no thread to ask the schema registry: {error}"))?;
        Ok(Self { shelf, jobs })
    }

    /// The latest version of a subject, for `check --online`: waits for this long at most.
    ///
    /// # Errors
    /// Why there is no answer.
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
            Found::Asked => LookUp::Pending,
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
