//! The command line.

use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand, ValueEnum as _};

use crate::contender::Contender;
use crate::failure::{Outcome, fail};
use crate::spec::Spec;
use crate::{alone, calls, floor, guard, limit, part, plain, postgres, report, runner};

#[derive(Parser)]
#[command(name = "compare", about = "ratchet side by side with others, on a real Kafka", disable_version_flag = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    /// Cargo passes this to every benchmark.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run parts, keep their results, and write docs/benchmarks.md from all results
    Run(RunArgs),
    /// Run one contender alone, once, and show its figures
    Contender(AloneArgs),
    /// Write docs/benchmarks.md from the existing results
    Report,
    /// Fail if ratchet has clearly become slower than usual against floor-changelog (CI runs this)
    Guard,
    /// Be a contender; used by the harness
    #[command(hide = true)]
    Work {
        #[arg(value_enum)]
        contender: Contender,
    },
    /// Be the loader of the part `postgres`; used by the harness
    #[command(hide = true)]
    Load(postgres::LoadArgs),
    /// Be the window of the part `calls`; used by the harness
    #[command(hide = true)]
    Call(calls::CallArgs),
    /// Be the provider of the part `calls`; used by the harness
    #[command(hide = true)]
    Provide(calls::ProvideArgs),
}

/// What to run.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Parts, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_parser = part_name)]
    pub parts: Vec<String>,
    /// Contenders, separated by commas [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    pub contenders: Vec<Contender>,
    /// How often to measure everything
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// Use small sizes, and keep neither results nor page
    #[arg(long)]
    pub quick: bool,
    /// Multiply all sizes, to try out the harness; keeps neither results nor page
    #[arg(long, default_value_t = 1.0)]
    pub scale: f64,
}

/// Which contender to run.
#[derive(Args, Clone, Debug)]
pub struct AloneArgs {
    /// The contender
    #[arg(value_enum)]
    pub contender: Contender,
    /// Its work
    #[arg(long, default_value = "ids", value_parser = ["ids", "numbers", "versions", "envelopes"])]
    pub part: String,
    /// How many records
    #[arg(long, default_value_t = 1_000_000)]
    pub records: u64,
}

fn part_name(name: &str) -> Result<String, String> {
    if part::ALL.iter().any(|part| part.name == name) {
        return Ok(name.to_owned());
    }
    Err(format!("the parts are {}", part::ALL.iter().map(|part| part.name).collect::<Vec<_>>().join(", ")))
}

/// Runs the command.
pub fn run() -> Outcome<()> {
    match CommandLine::parse().command {
        Command::Run(args) => runner::run(&args),
        Command::Contender(args) => alone::run(&args),
        Command::Report => report::write(),
        Command::Guard => guard::run(),
        Command::Work { contender } => work(contender),
        Command::Load(args) => postgres::load(&args, stop_on_signal()),
        Command::Call(args) => calls::call(&args, stop_on_signal()),
        Command::Provide(args) => calls::provide(&args, stop_on_signal()),
    }
}

/// Set by SIGTERM.
static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// What SIGTERM sets from now on.
fn stop_on_signal() -> &'static AtomicBool {
    // SAFETY: the handler only stores into an atomic.
    unsafe { libc::signal(libc::SIGTERM, on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t) };
    &STOP
}

fn work(contender: Contender) -> Outcome<()> {
    let stop = stop_on_signal();
    let spec = Spec::from_environment()?;
    match contender {
        Contender::Plain => plain::run(&spec, stop),
        Contender::Floor => floor::run(&spec, false, stop),
        Contender::FloorChangelog => floor::run(&spec, true, stop),
        Contender::Limit => limit::run(&spec, stop),
        Contender::Ratchet | Contender::RatchetLibrdkafka | Contender::KafkaStreams | Contender::Quix => {
            let others: Vec<&str> = Contender::value_variants().iter().map(|one| one.name()).collect();
            fail!("{contender} is no contender of this program's own; all are {}", others.join(", "))
        }
    }
}
