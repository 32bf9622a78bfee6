//! Running topologies, from a program of one's own or from the command line.
//!
//! - [`Worker`] is what programs use: topologies, the handlers of some of them, and a run
//! - [`load`] reads topologies and configuration, [`carry_out`] runs them ([`LoadedInputs`]), and loads and runs them
//!   again once secrets or certificates were replaced; the command `ratchet run` is made of these too
//! - [`give_schemas`] gives topologies the sources of the schemas that their records name
//! - [`signals`] has SIGINT and SIGTERM end a run, [`exit`] ends the process
//!
//! **Failure**: mistakes in files are reported all at once, before anything runs; [`Error`] says what else went wrong.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::config::{Config, LogFormat};
use crate::dedup::Retention;
use crate::engine::{self, Handlers};
use crate::observe::http::{self, Server};
use crate::observe::{Health, Metrics, logs};
use crate::postgres::steps::Database;
use crate::provider::handler::{Function, Record, Reply, StepError, Steps};
use crate::topology::{Loaded, Mistake, Topology};
use crate::yaml::units::show_duration_ms;

mod error;
pub mod exit;
mod inputs;
mod renewal;
mod schemas;
pub mod signals;

pub use error::Error;
pub use inputs::{Inputs, load, load_config};
pub use renewal::LoadedInputs;
use renewal::{Probe, Watch, WatchTiming};
pub use schemas::give_schemas;

/// Runs topologies until it is stopped.
///
/// Each topology is one YAML file, and independent of the others. Start the program more than once to share the work; it
/// can be killed at any time.
///
/// ```no_run
/// use ratchet::{Record, StepError, Steps, Worker};
///
/// async fn charge(record: &Record, steps: &mut Steps) -> Result<String, StepError> {
///     let order: serde_json::Value = record.json()?;
///     // Called once, or again under the same key: the provider recognises it.
///     steps.call("charge", async |key| Ok(format!("charged {order} under {key}"))).await
/// }
///
/// fn main() -> Result<(), ratchet::Error> {
///     Worker::new().config("ratchet.yaml").handler("charge-orders.yaml", charge).run()
/// }
/// ```
#[derive(Default)]
pub struct Worker {
    inputs: Inputs,
    functions: Vec<(PathBuf, Function)>,
    database: Option<Database>,
    until_drained: bool,
    logs: bool,
    signals: bool,
    stop: Stop,
}

/// Ends a run from outside: open transactions are finished, groups left, stores flushed.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the run to end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Worker {
    /// A worker without topologies, with the default configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with this file of settings. Variables `RATCHET_...` count before it.
    pub fn config(self, path: impl Into<PathBuf>) -> Self {
        Self { inputs: Inputs { config: Some(path.into()), ..self.inputs }, ..self }
    }

    /// The same with a setting, by its path in the configuration: `lanes=2`. It counts before the file and variables.
    pub fn set(mut self, setting: impl Into<String>) -> Self {
        self.inputs.sets.push(setting.into());
        self
    }

    /// The same with a topology that needs no function, or a folder of such.
    pub fn topology(mut self, path: impl Into<PathBuf>) -> Self {
        self.inputs.topologies.push(path.into());
        self
    }

    /// The same with a topology that ends in `sink: {handler: ...}`, and the function that does its records' work.
    ///
    /// The function runs on its lane's thread, many at once and one at a time: what it does must not block it. Blocking
    /// work goes to `tokio::task::spawn_blocking`.
    pub fn handler<F, R>(mut self, path: impl Into<PathBuf>, function: F) -> Self
    where
        F: AsyncFn(&Record, &mut Steps) -> Result<R, StepError> + Send + Sync + 'static,
        R: Into<Reply>,
    {
        let path = path.into();
        if !self.inputs.topologies.contains(&path) {
            self.inputs.topologies.push(path.clone());
        }
        self.functions.push((path, Function::new(function)));
        self
    }

    /// The same with a database for the transactions of steps ([`Steps::transaction`]).
    pub fn postgres(self, database: Database) -> Self {
        Self { database: Some(database), ..self }
    }

    /// The same, ending once everything in the inputs is processed: for jobs with a single instance.
    pub fn until_drained(self) -> Self {
        Self { until_drained: true, ..self }
    }

    /// The same, logging to standard error as the configuration says (`log`). Without it, events go to the program's own
    /// subscriber of `tracing`.
    pub fn logs(self) -> Self {
        Self { logs: true, ..self }
    }

    /// The same, ending at SIGINT or SIGTERM as [`Stop::stop`] does. A second signal, or 25 s, ends the process at once.
    pub fn signals(self) -> Self {
        Self { signals: true, ..self }
    }

    /// What ends the run.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Runs, until it is stopped.
    ///
    /// # Errors
    /// [`Error`]. Where a topology or a partition fails, the others go on, and the error is returned in the end.
    pub fn run(self) -> Result<(), Error> {
        let Self { inputs, functions, database, until_drained, logs, signals, stop } = self;
        let loaded = LoadedInputs::load(&inputs)?;
        let mut handlers = Handlers { functions: BTreeMap::new(), database };
        for (path, function) in functions {
            let Some(Loaded { topology, .. }) = loaded.topologies.iter().find(|loaded| loaded.path == path) else {
                return Err(Error::NoTopology(path));
            };
            if topology.handler().is_none() {
                return Err(Error::NoHandler(topology.name.clone()));
            }
            if handlers.functions.insert(topology.name.clone(), function).is_some() {
                return Err(Error::TwoFunctions(path));
            }
        }
        if logs {
            start_logs(&loaded.config, io::stderr)?;
        }
        if signals {
            signals::watch(Arc::clone(&stop.0)).map_err(Error::Signals)?;
        }
        loaded.warnings().for_each(log_warning);
        let topologies = loaded.topologies.iter().map(|loaded| &loaded.topology);
        topologies.for_each(|topology| warn_of_kept_rows(topology, handlers.database.as_ref()));
        let (metrics, health) = (Metrics::new(), Health::new());
        let stop = Arc::clone(&stop.0);
        carry_out(loaded, &Run { inputs, handlers, until_drained, stop, metrics, health })
    }
}

/// Says so where what is new again for ratchet would find a step's row and do nothing.
fn warn_of_kept_rows(topology: &Topology, database: Option<&Database>) {
    let (Some(_), Some(database)) = (topology.handler(), database) else { return };
    let kept_ms = i64::try_from(database.keeps().as_millis()).unwrap_or(i64::MAX);
    if let Retention::For { ms } = topology.rules.retention
        && ms < kept_ms
    {
        let topology = topology.name.as_str();
        tracing::warn!(
            topology,
            retention = show_duration_ms(ms),
            kept = show_duration_ms(kept_ms),
            "rows of steps are kept for longer than an identity is remembered: what is new again finds its row, and is not done; \
             raise `retention`, or lower `Database::kept`"
        );
    }
}

/// Logs as the configuration says, to this writer.
///
/// # Errors
/// An invalid `log.level`.
pub fn start_logs<W>(config: &Config, writer: W) -> Result<(), logs::Error>
where
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    let format = match config.log.format {
        LogFormat::Text => logs::Format::Text,
        LogFormat::Json => logs::Format::Json,
    };
    logs::init(format, &config.log.level, writer)
}

/// A run without its inputs, which may be loaded more than once.
pub struct Run {
    /// The files to load again once secrets or certificates were replaced.
    pub inputs: Inputs,
    /// As [`engine::Options::handlers`].
    pub handlers: Handlers,
    /// As [`engine::Options::until_drained`].
    pub until_drained: bool,
    /// As [`engine::Options::stop`].
    pub stop: Arc<AtomicBool>,
    /// As [`engine::Options::metrics`].
    pub metrics: Metrics,
    /// As [`engine::Options::health`].
    pub health: Health,
}

/// Runs loaded topologies, and serves metrics and health meanwhile if the configuration has an address for them.
///
/// # Errors
/// As [`engine::run`]; and an address that cannot be listened on.
pub fn carry_out(loaded: LoadedInputs, run: &Run) -> Result<(), Error> {
    let variable = |name| std::env::var(name).ok();
    engine::crash::arm(variable("RATCHET_CRASH_AT").as_deref(), variable("RATCHET_CRASH_ON").as_deref())
        .map_err(Error::Drill)?;
    engine::panics::install_hook(run.metrics.clone());
    let server = serve(&loaded.config, run)?;
    let ended = run_renewed(loaded, run);
    if let Some(server) = server {
        server.stop();
    }
    ended
}

/// Runs loaded topologies; once secrets or certificates were replaced, it loads and runs them again.
fn run_renewed(mut loaded: LoadedInputs, run: &Run) -> Result<(), Error> {
    let (mut outcome, mut is_renewed) = (Ok(()), false);
    loop {
        let topologies = loaded.topologies.iter_mut().map(|loaded| &mut loaded.topology);
        give_schemas(topologies, &loaded.config, &run.metrics)?;
        let how = (WatchTiming::default(), probe as Probe);
        let watch = Watch::begin(&run.inputs, &loaded.files, &run.stop, how).map_err(Error::Watch)?;
        let ended = engine::run(engine::Options {
            config: loaded.config,
            topologies: loaded.topologies.into_iter().map(|Loaded { topology, .. }| topology).collect(),
            handlers: run.handlers.clone(),
            until_drained: run.until_drained,
            stop: Arc::clone(watch.as_ref().map_or(&run.stop, |watch| &watch.stop)),
            metrics: run.metrics.clone(),
            health: run.health.clone(),
        });
        match watch.and_then(Watch::end) {
            Some(next) if !run.stop.load(Ordering::SeqCst) => loaded = next,
            _ if is_renewed => return engine::Error::and(outcome, ended).map_err(Error::Renewed),
            _ => return Ok(ended?),
        }
        if let Err(error) = ended.as_ref()
            && !error.is_logged()
        {
            tracing::error!("{error}");
        }
        loaded.warnings().for_each(log_warning);
        outcome = engine::Error::and(outcome, ended);
        is_renewed = true;
        run.health.clear();
    }
}

/// Whether a client with these settings can use the cluster, and the sources of schemas can be opened. A registry is
/// not asked.
fn probe(loaded: &LoadedInputs) -> Result<(), String> {
    let mut topologies: Vec<Topology> = loaded.topologies.iter().map(|loaded| loaded.topology.clone()).collect();
    give_schemas(&mut topologies, &loaded.config, &Metrics::new()).map_err(|error| error.to_string())?;
    engine::probe(&loaded.config, loaded.topologies.len()).map_err(|error| error.to_string())
}

fn serve(config: &Config, run: &Run) -> Result<Option<Server>, Error> {
    let Some(address) = config.http else { return Ok(None) };
    let server = http::serve(address, run.metrics.clone(), run.health.clone())?;
    tracing::info!(address = %server.address(), "serving /metrics, /livez and /readyz");
    Ok(Some(server))
}

/// Logs a warning about a topology or the configuration, in one line.
pub fn log_warning(warning: &Mistake) {
    let place = warning.position().map(|(file, line, column)| format!("{file}:{line}:{column}")).unwrap_or_default();
    tracing::warn!(place, help = warning.help_text().unwrap_or_default(), "{}", warning.message());
}
