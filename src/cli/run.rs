//! `ratchet run`: runs the job until it is stopped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::{Failure, inputs};
use crate::config::{Config, LogFormat};
use crate::engine::Handlers;
use crate::observe::{Health, Metrics};
use crate::worker::{self, LoadedInputs, Run, signals};

mod bars;

use bars::Bars;

const EXAMPLES: &str = "\
Examples:
  ratchet run topologies/payments.yaml --config config/ratchet.yaml

  # all topologies of a folder; settings from environment and command line
  RATCHET_STATE_DIR=/var/lib/ratchet \\
    ratchet run topologies --set kafka.bootstrap.servers=kafka:9092 \\
    --set lanes=2 --set http=0.0.0.0:9464

  # process what is there, then exit
  ratchet run topologies/payments.yaml --config config/ratchet.yaml \\
    --until-drained

Settings: defaults, then --config, then RATCHET_*, then --set; the later wins.
SIGINT or SIGTERM: finish the open transactions and leave the group, within
25 s. A second signal, at least 1 s later, exits at once.
Exit codes: 0 stopped as asked, 1 the run failed, 2 a restart does not help.";

/// Options of `ratchet run`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    inputs: inputs::Inputs,

    /// Exit once everything in the inputs is processed; only for jobs with a single instance, since
    /// it waits until this one has all partitions
    #[arg(long)]
    until_drained: bool,
}

/// Runs the topologies.
pub fn run(args: &Args) -> Result<(), Failure> {
    let inputs = args.inputs.of_worker();
    let loaded = LoadedInputs::load(&inputs).map_err(inputs::failed)?;
    let config = &loaded.config;
    let bars = (config.log.format == LogFormat::Text).then(Bars::on_terminal).flatten();
    start_logs(config, bars.as_ref())?;
    loaded.warnings().for_each(worker::log_warning);
    let names: Vec<_> = loaded.topologies.iter().map(|loaded| loaded.topology.name.as_str()).collect();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), topologies = names.join(","), lanes = config.lanes, "starting");

    // from here on a signal is only a request, so nothing is left half done
    let stop = Arc::new(AtomicBool::new(false));
    signals::watch(Arc::clone(&stop)).map_err(|error| Failure::logged(&error, true))?;
    let (metrics, health) = (Metrics::new(), Health::new());
    let bars = bars.map(|bars| bars.show(metrics.clone()));
    let (handlers, until_drained) = (Handlers::default(), args.until_drained);
    let ended = worker::carry_out(loaded, &Run { inputs, handlers, until_drained, stop, metrics, health });
    if let Some(bars) = bars {
        bars.end();
    }
    // The log's last line says whether the run ended well.
    match ended {
        Ok(()) => {
            tracing::info!("stopped");
            Ok(())
        }
        Err(worker::Error::Drill(words)) => Err(Failure::input(words, "unset it unless this is a drill")),
        Err(ref error @ (worker::Error::Run(ref cause) | worker::Error::Renewed(ref cause))) if cause.is_logged() => {
            tracing::error!("stopped: not every topology ran to its end, and the errors above say why");
            Err(Failure::Logged { may_pass: error.may_pass() })
        }
        Err(error) => Err(Failure::logged(&error, error.may_pass())),
    }
}

/// Sets up logging to standard error, above the bars if there are any.
fn start_logs(config: &Config, bars: Option<&Bars>) -> Result<(), Failure> {
    let started = match bars {
        Some(bars) => worker::start_logs(config, bars.writer()),
        None => worker::start_logs(config, io::stderr),
    };
    started.map_err(|error| Failure::input(error.to_string(), "set `log.level`"))
}
