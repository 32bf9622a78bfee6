//! Running topologies, from a program of one's own or from the command line.
//!
//! - [`Worker`] is what programs use: topologies, the handlers of some of them, and a run
//! - [`load`] reads topologies and configuration, [`carry_out`] runs them; the command `ratchet run` is made of these too
//! - [`signals`] has SIGINT and SIGTERM end a run, [`exit`] ends the process
//!
//! **Failure**: mistakes in files are reported all at once, before anything runs; [`Error`] says what else went wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::cluster::{Queues, kafka};
use crate::config::{self, ClusterKind, Config, LogFormat};
use crate::dedup::Retention;
use crate::effect::handler::{Function, Record, Reply, StepError, Steps};
use crate::effect::postgres::steps::Database;
use crate::engine::{self, Handlers};
use crate::observe::http::{self, Server};
use crate::observe::{Health, Metrics, logs};
use crate::topology::{self, Loaded, Mistake, Process, Report, Topology};
use crate::yaml::units::show_duration_ms;
use crate::yaml::{Diagnostics, Explained};

pub mod exit;
pub mod signals;

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
    config: Option<PathBuf>,
    sets: Vec<String>,
    topologies: Vec<PathBuf>,
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

/// Why a run could not begin, or has failed. Also as `main` prints it, it is for people.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Mistakes in topologies or the configuration, each with its place.
    #[error("{}", .0.render(false))]
    Mistakes(#[from] Diagnostics),
    /// A topology that is given a function, and does not end in a handler.
    #[error("the topology {0} is given a function, and does not end in a handler: write `sink: {{handler: {{}}}}`")]
    NoHandler(String),
    /// A function for a path that is no topology's file.
    #[error("{} is no topology's file: name the file that the function is for", .0.display())]
    NoTopology(PathBuf),
    /// Two functions for one topology.
    #[error("{} is given two functions", .0.display())]
    TwoFunctions(PathBuf),
    /// Kafka's properties do not go together.
    #[error("{0}; correct it under `kafka:` in the configuration")]
    Properties(String),
    /// Logs could not be begun.
    #[error("{0}: set `log.level`")]
    Logs(#[from] logs::Error),
    /// A drill (`RATCHET_CRASH_AT`, `RATCHET_CRASH_ON`) that cannot be read.
    #[error("{0}; unset it unless this is a drill")]
    Drill(String),
    /// Signals could not be watched.
    #[error("signals cannot be watched: {0}")]
    Signals(io::Error),
    /// Metrics and health cannot be served.
    #[error("{0}")]
    Http(#[from] http::Error),
    /// The run has failed.
    #[error("{0}")]
    Run(#[from] engine::Error),
}

impl Error {
    /// Whether a later start may succeed without any change. A program should then exit with 1, and otherwise with 2, as
    /// `ratchet run` does: a supervisor that knows these codes does not restart it in vain.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Mistakes(_)
            | Self::NoHandler(_)
            | Self::NoTopology(_)
            | Self::TwoFunctions(_)
            | Self::Properties(_)
            | Self::Logs(_)
            | Self::Drill(_) => false,
            Self::Signals(_) | Self::Http(_) => true,
            Self::Run(error) => error.may_pass(),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Worker {
    /// A worker without topologies, with the default configuration.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same with this file of settings. Variables `RATCHET_...` count before it.
    pub fn config(self, path: impl Into<PathBuf>) -> Self {
        Self { config: Some(path.into()), ..self }
    }

    /// The same with a setting, by its path in the configuration: `lanes=2`. It counts before the file and variables.
    pub fn set(mut self, setting: impl Into<String>) -> Self {
        self.sets.push(setting.into());
        self
    }

    /// The same with a topology that needs no function, or a folder of such.
    pub fn topology(mut self, path: impl Into<PathBuf>) -> Self {
        self.topologies.push(path.into());
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
        if !self.topologies.contains(&path) {
            self.topologies.push(path.clone());
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
        let Self { config, sets, topologies, functions, database, until_drained, logs, signals, stop } = self;
        let (loaded, config) = load(&topologies, config.as_deref(), &sets)?;
        let mut handlers = Handlers { functions: BTreeMap::new(), database };
        for (path, function) in functions {
            let Some(Loaded { topology, .. }) = loaded.iter().find(|loaded| loaded.path == path) else {
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
            start_logs(&config, io::stderr)?;
        }
        if signals {
            signals::watch(Arc::clone(&stop.0)).map_err(Error::Signals)?;
        }
        loaded.iter().flat_map(|loaded| &loaded.warnings).chain(&config.warnings).for_each(log_warning);
        let topologies: Vec<Topology> = loaded.into_iter().map(|Loaded { topology, .. }| topology).collect();
        topologies.iter().for_each(|topology| warn_of_kept_rows(topology, handlers.database.as_ref()));
        let (metrics, health) = (Metrics::new(), Health::new());
        let stop = Arc::clone(&stop.0);
        carry_out(engine::Options { config, topologies, handlers, until_drained, stop, metrics, health })
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

/// Reads topologies and the worker's configuration. All mistakes in both are reported at once.
///
/// # Errors
/// [`Error::Mistakes`], and [`Error::Properties`] where librdkafka does not accept the properties together.
pub fn load(paths: &[PathBuf], config: Option<&Path>, sets: &[String]) -> Result<(Vec<Loaded>, Config), Error> {
    let takes = |property: &str, value: &str| {
        kafka::takes(property, value).map_err(|error| {
            kafka::explained(property).unwrap_or_else(|| Explained {
                message: error.message,
                label: "not taken by librdkafka".to_owned(),
                help: "correct it, or remove it".to_owned(),
            })
        })
    };
    let config = config::load_with(config, sets, &Process, &takes);
    match (topology::load_run(paths, &Process), config) {
        (Ok(topologies), Ok(config)) => {
            check_properties(&config)?;
            Ok((topologies, config))
        }
        (Err(mistakes), Ok(_)) | (Ok(_), Err(mistakes)) => Err(mistakes.into()),
        (Err(first), Err(second)) => {
            let mut report = Report::default();
            report.append(first.into_mistakes());
            report.append(second.into_mistakes());
            Err(report.finish(None::<()>).expect_err("both had mistakes").into())
        }
    }
}

/// Whether librdkafka accepts the properties together; each alone was accepted before.
fn check_properties(config: &Config) -> Result<(), Error> {
    if config.cluster != ClusterKind::Kafka {
        return Ok(());
    }
    match engine::kafka(config, Queues::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Properties(error.message)),
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

/// Runs what was loaded, and serves metrics and health meanwhile if the configuration has an address for them.
///
/// # Errors
/// As [`engine::run`]; and an address that cannot be listened on.
pub fn carry_out(options: engine::Options) -> Result<(), Error> {
    let variable = |name| std::env::var(name).ok();
    engine::crash::arm(variable("RATCHET_CRASH_AT").as_deref(), variable("RATCHET_CRASH_ON").as_deref())
        .map_err(Error::Drill)?;
    engine::panics::install_hook(options.metrics.clone());
    let server = serve(&options)?;
    let ended = engine::run(options);
    if let Some(server) = server {
        server.stop();
    }
    Ok(ended?)
}

fn serve(options: &engine::Options) -> Result<Option<Server>, Error> {
    let Some(address) = options.config.http else { return Ok(None) };
    let server = http::serve(address, options.metrics.clone(), options.health.clone())?;
    tracing::info!(address = %server.address(), "serving /metrics, /livez and /readyz");
    Ok(Some(server))
}

/// Logs a warning about a topology or the configuration, in one line.
pub fn log_warning(warning: &Mistake) {
    let place = warning.position().map(|(file, line, column)| format!("{file}:{line}:{column}")).unwrap_or_default();
    tracing::warn!(place, help = warning.help_text().unwrap_or_default(), "{}", warning.message());
}
