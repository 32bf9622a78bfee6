//! `ratchet infer`: looks at captured records and proposes a topology for them.
//!
//! - [`sample`]: the records, a bounded number of them, as trees
//! - [`shape`]: which system's records they are, and its preset
//! - [`rows`]: what stands in for the identity where the preset finds none
//! - [`names`], [`cell`], [`fields`], [`choose`]: else, which fields identify and version them
//! - [`propose`]: the YAML, with its reasons as comments
//!
//! What is proposed is loaded and replayed over the sample before it is printed: what came of that stands
//! in it. The topology goes to standard output, what is unsure to standard error.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;

use super::Failure;
use super::stderr::say;
use crate::dedup::{Reason, Verdict};
use crate::rehearsal::{Partitions, Told};
use crate::topology::{self, Process, Topology};
use crate::words::{agreeing, counted};

mod cell;
mod choose;
mod fields;
mod names;
mod propose;
mod rows;
mod sample;
mod shape;
#[cfg(test)]
mod tests;

use propose::{Proposal, Wanted, propose};
use sample::{Sample, topic_of};

const EXAMPLES: &str = "\
Examples:
  # records as they are, with keys, headers and partitions
  kcat -b localhost:9092 -t payments -C -e -J > captured.jsonl
  ratchet infer captured.jsonl > topologies/payments.yaml

  # one value a line
  ratchet infer values.jsonl --topic payments > topologies/payments.yaml

  # then see what it would do
  ratchet replay topologies/payments.yaml values.jsonl --summary > out

Exit codes: 0 a topology was proposed, 2 the input is wrong.";

/// So many topics are named beside a count.
const TOPICS_MAX: usize = 8;

/// Options of `ratchet infer`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Captured records, one a line: values, or what `kcat -J` prints, plain or packed by gzip or zstd; `-`, or no
    /// file, is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// The topology's name [default: by the topic]
    #[arg(long)]
    name: Option<String>,

    /// The input topic [default: what the capture says, or the file's name]
    #[arg(long)]
    topic: Option<String>,

    /// The output topic [default: the input topic with `.unique`]
    #[arg(long, value_name = "TOPIC")]
    output: Option<String>,

    /// At most how many records to look at
    #[arg(long, value_name = "NUMBER", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    records: u32,
}

/// Proposes a topology.
pub fn run(args: &Args) -> Result<(), Failure> {
    let topic = args.topic.clone().unwrap_or_else(|| topic_of(&args.files));
    let sample = Sample::read(&args.files, &topic, args.records as usize)?;
    if sample.records.is_empty() {
        return Err(Failure::input("the capture holds no record", "give records, one a line"));
    }
    let wanted = Wanted { name: args.name.clone(), topic: args.topic.clone(), output: args.output.clone() };
    let (mut proposal, tried) = propose_and_try(&sample, &wanted)?;
    let told = tried.to_string();
    // writing to a string never fails
    let _ = writeln!(proposal.text, "# Replaying the records that were looked at with it: {told}.");
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(proposal.text.as_bytes()).and_then(|()| stdout.flush());
    written.map_err(|error| Failure::output(&error))?;
    proposal.unsure.iter().for_each(|unsure| say(format_args!("unsure: {unsure}\n")));
    Ok(())
}

/// Proposes, and tries what is proposed. Where a preset finds no keys to identify rows by, another proposal
/// takes the rows' own fields.
fn propose_and_try(sample: &Sample, wanted: &Wanted) -> Result<(Proposal, Tried), Failure> {
    let mut proposal = propose(sample, wanted, false);
    let mut topology = load(&proposal.text)?;
    let mut tried = Tried::of(sample, &topology);
    if proposal.preset.is_some() && tried.of_reason(Reason::IdentityMissing) * 2 > sample.records.len() {
        proposal = propose(sample, wanted, true);
        topology = load(&proposal.text)?;
        tried = Tried::of(sample, &topology);
    }
    for (reason, what) in [(Reason::IdentityMissing, "identity"), (Reason::VersionMissing, "version")] {
        let count = tried.of_reason(reason);
        if count > 0 {
            let hint = topology.hint(reason).map_or_else(String::new, |hint| format!(": {hint}"));
            let topics = tried.topics_of(reason, sample);
            let of = format!("{count} of {}", counted(sample.records.len(), "record"));
            proposal.unsure.push(format!("{of} {} no {what}{topics}{hint}", agreeing(count, "has", "have")));
        }
    }
    if let Some(words) = tried.all_invalid() {
        proposal.unsure.insert(0, format!("by what is proposed, every record that was looked at is invalid: {words}"));
    }
    Ok((proposal, tried))
}

/// The topology that is proposed, as `check` would load it.
fn load(text: &str) -> Result<Topology, Failure> {
    let file = tempfile::Builder::new().prefix("ratchet-infer-").suffix(".yaml").tempfile();
    let mut file = file.map_err(|error| Failure::run(&error))?;
    file.write_all(text.as_bytes()).map_err(|error| Failure::run(&error))?;
    Ok(topology::load(file.path(), &Process)?.topology)
}

/// What came of replaying the sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tried {
    counts: BTreeMap<(Verdict, Reason), usize>,
    /// The same for each topic.
    topics: BTreeMap<(Reason, String), usize>,
    /// Why the first record that is invalid is so.
    refusal: Option<String>,
}

impl Tried {
    fn of(sample: &Sample, topology: &Topology) -> Self {
        // no clock decides what is proposed
        let wall_ms = sample.records.iter().filter_map(|observed| observed.captured.timestamp).max().unwrap_or(0);
        let mut partitions = Partitions::new(&topology.rules);
        let mut tried = Self::default();
        for observed in &sample.records {
            let record = observed.captured.record();
            let model = partitions.model(record.topic, record.partition);
            let decision = model.judge(&record, wall_ms);
            *tried.counts.entry((decision.verdict, decision.reason)).or_default() += 1;
            *tried.topics.entry((decision.reason, record.topic.to_owned())).or_default() += 1;
            if decision.verdict == Verdict::Invalid && tried.refusal.is_none() {
                let refusal = Told::of(model, topology).refusal;
                let words = refusal.unwrap_or_else(|| topology.meaning(decision.reason).into_owned());
                tried.refusal = Some(format!("{words} ({})", decision.reason));
            }
        }
        tried
    }

    /// Of which topics the records are that got this reason, where there are several to tell apart.
    fn topics_of(&self, reason: Reason, sample: &Sample) -> String {
        if sample.topics().len() < 2 {
            return String::new();
        }
        let mut topics: Vec<_> = self.topics.iter().filter(|((of, _), _)| *of == reason).collect();
        topics.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named: Vec<String> =
            topics.iter().take(TOPICS_MAX).map(|((_, topic), count)| format!("{count} of `{topic}`")).collect();
        let more = topics.len() - named.len();
        let more = if more == 0 { String::new() } else { format!(" and of {}", counted(more, "more topic")) };
        format!(" ({}{more})", named.join(", "))
    }

    /// Why nothing but invalid records came of it, if so: of the first one, with its reason.
    fn all_invalid(&self) -> Option<&str> {
        let is_all = self.counts.keys().all(|(verdict, _)| *verdict == Verdict::Invalid);
        self.refusal.as_deref().filter(|_| is_all)
    }

    fn of_verdict(&self, verdict: Verdict) -> usize {
        self.counts.iter().filter(|((of, _), _)| *of == verdict).map(|(_, count)| count).sum()
    }

    fn of_reason(&self, reason: Reason) -> usize {
        self.counts.iter().filter(|((_, of), _)| *of == reason).map(|(_, count)| count).sum()
    }
}

impl std::fmt::Display for Tried {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, &verdict) in Verdict::ALL.iter().enumerate() {
            write!(f, "{}{} {verdict}", if number == 0 { "" } else { ", " }, self.of_verdict(verdict))?;
        }
        Ok(())
    }
}
