//! Runs one contender alone, once, to profile it or to read its log.

use crate::command::AloneArgs;
use crate::failure::{Context as _, Outcome};
use crate::generate::Generator;
use crate::load;
use crate::runner::open_small;
use crate::spec::Work;
use crate::throughput::{Turn, turn};

/// Runs it and prints its figures, and where its log is.
pub fn run(args: &AloneArgs) -> Outcome<()> {
    let work = <Work as clap::ValueEnum>::from_str(&args.part, false).context("--part")?;
    args.contender.prepare()?;
    let bench = open_small()?;
    let mut generator = Generator::new(work);
    let topic = format!("in-{work}");
    let input = load::input(&bench.broker, &bench.progress, &topic, args.records, |record| generator.next(record))?;
    bench.progress.say(format!("logs are in {}", bench.folder.display()));
    let sample = turn(&bench, Turn::of_round(args.contender, work, &input, 1))?;
    println!("{}", serde_json::to_string_pretty(&sample)?);
    Ok(())
}
