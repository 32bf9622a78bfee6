//! `ratchet settle`: decides by hand what has become of a call.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::Duration;

use super::effects::named;
use super::stderr::say;
use super::{Failure, inputs};
use crate::cluster::ErrorKind;
use crate::dedup::identity::typed::Typed;
use crate::engine::control::settle::{Acknowledgements, Error, settle};
use crate::format::{ManualDecision, Outcome};
use crate::record::TopicPartition;
use crate::words::counted;
use crate::yaml::units::{duration_ms, show_duration};

const EXAMPLES: &str = "\
Examples:
  # the provider says that it has happened
  ratchet settle charge-orders '[\"o-7\",\"charge\"]' done topologies \\
    --config config/ratchet.yaml

  # it has not: the next record of this identity makes the call
  ratchet settle charge-orders '[\"o-7\",\"charge\"]' retry topologies \\
    --config config/ratchet.yaml

done: it counts as done. drop: it counts as failed, and is not made again.
retry: it is forgotten, so that the next record of its identity calls (not
of a handler: its steps would be done again).
IDENTITY: as `ratchet effects` shows it; a text alone is an identity of one
part. What is done already stays done, except for retry.
Instances carry it out, each partition once; a call that is under way is
waited for.
Exit codes: 0 carried out, 1 it failed, or nobody has answered in time (the
command stays, and is carried out later), 2 the input is wrong, or nothing is
known of the identity.";

/// Options of `ratchet settle`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The topology that has made the call
    #[arg(value_name = "NAME")]
    name: String,

    /// The identity, as `ratchet effects` shows it
    #[arg(value_name = "IDENTITY")]
    identity: String,

    /// What has become of it: done, retry or drop
    #[arg(value_name = "AS")]
    decision: ManualDecision,

    #[command(flatten)]
    inputs: inputs::Inputs,

    /// How long to wait for the instances
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let ms = duration_ms(text).and_then(|ms| u64::try_from(ms).ok());
    ms.map(Duration::from_millis).ok_or_else(|| "write a time, such as 30s or 2m".to_owned())
}

/// Gives the command, and says what has come of it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (loaded, config) = inputs::load(&args.inputs)?;
    let topology = named(&loaded, &args.name)?;
    let typed = Typed::of(&topology.rules.identity);
    let key = typed.read(&args.identity).map_err(|reason| {
        Failure::input(
            format!("{:?} is no identity: {reason}", args.identity),
            "write it as `ratchet effects` shows it, in quotes",
        )
    })?;
    let acknowledgements = settle(&config, topology, (&key, args.decision), args.timeout).map_err(failure)?;
    let said = conclude(&acknowledgements, &typed.show(&key), args.decision, args.timeout)?;
    if said.is_found && !acknowledgements.unacknowledged.is_empty() {
        say(format_args!("{}\n", silence(&acknowledgements)));
    }
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", said.line).and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Cluster(error) if error.kind == ErrorKind::Refused => {
            Failure::input(error.message, "see Rights in docs/operations.md")
        }
        Error::NoTopic(_) | Error::NoCalls(_) => {
            Failure::input(error.to_string(), "is this the right topology, and the right cluster?")
        }
        Error::Unsure(_) => Failure::run_with_help(
            error.to_string(),
            "give it again: what is settled already stays as it is, but `retry` forgets once more",
        ),
        error @ Error::Cluster(_) => Failure::run_with_help(error.to_string(), "run the command again"),
    }
}

/// What has come of a command.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    line: String,
    is_found: bool,
}

/// What has come of a command, in a line; a failure if nothing has.
fn conclude(
    acknowledgements: &Acknowledgements,
    identity: &str,
    decision: ManualDecision,
    waited: Duration,
) -> Result<Said, Failure> {
    if !acknowledgements.can_acknowledge {
        let line = format!("given: {identity} is settled as {} by the next run on this folder", decision.as_str());
        return Ok(Said { line, is_found: false });
    }
    // What was found, with the partitions where it was.
    let mut found: BTreeMap<String, Vec<&TopicPartition>> = BTreeMap::new();
    let (mut refusing, mut with_steps) = (Vec::new(), Vec::new());
    for (task, said) in &acknowledgements.by_task {
        let said = match said {
            Ok(said) => said,
            Err(_) => {
                refusing.push(task);
                continue;
            }
        };
        let was = said.was.as_deref().unwrap_or("nothing").replace('_', " ");
        let words = match said.outcome {
            Outcome::Unknown => continue,
            Outcome::NotUnderstood | Outcome::Elsewhere => {
                refusing.push(task);
                continue;
            }
            Outcome::StepsWereDone => {
                with_steps.push(task);
                continue;
            }
            Outcome::Settled => {
                format!(
                    "settled: {identity} was {was}, and counts as {} now",
                    if decision == ManualDecision::Done { "done" } else { "failed" }
                )
            }
            Outcome::Forgotten => format!("forgotten: {identity} was {was}, and its next record makes the call"),
            Outcome::Already => format!("nothing to do: {identity} is {was} already"),
        };
        found.entry(words).or_default().push(task);
    }
    if !found.is_empty() {
        let lines: Vec<String> =
            found.into_iter().map(|(words, tasks)| format!("{words} ({})", listed(&tasks))).collect();
        return Ok(Said { line: lines.join("; "), is_found: true });
    }
    Err(nothing_found(acknowledgements, identity, (&refusing, &with_steps), waited))
}

/// Why nothing has come of a command: these tasks did not understand it, and these do not do it to what has steps.
fn nothing_found(
    acknowledgements: &Acknowledgements,
    identity: &str,
    (refusing, with_steps): (&[&TopicPartition], &[&TopicPartition]),
    waited: Duration,
) -> Failure {
    if !with_steps.is_empty() {
        return Failure::input(
            format!(
                "{identity} stays as it is ({}): a handler's steps would be done again under keys that were used",
                listed(with_steps)
            ),
            "settle it as done or drop it, or let a duplicate go on",
        );
    }
    if !refusing.is_empty() {
        return Failure::run_with_help(
            format!("{} did not understand the command", listed(refusing)),
            "use the release that the instances run",
        );
    }
    if !acknowledgements.unacknowledged.is_empty() {
        let waited = show_duration(waited);
        return Failure::run_with_help(
            format!("nothing was found within {waited}, and {}", silence(acknowledgements)),
            "is the topology running, and are all its partitions at work? A call of this identity that is under way is \
             waited for. To give the command again does no harm, unless it is retry",
        );
    }
    Failure::input(
        format!("nothing is known of {identity} in any of {}", counted(acknowledgements.by_task.len(), "partition")),
        "write it as `ratchet effects` shows it",
    )
}

/// Who has not answered.
fn silence(acknowledgements: &Acknowledgements) -> String {
    let silent: Vec<&TopicPartition> = acknowledgements.unacknowledged.iter().collect();
    format!(
        "{} of {} have not answered ({}): the command {} stays, and they carry it out once they are at work",
        silent.len(),
        counted(silent.len() + acknowledgements.by_task.len(), "partition"),
        listed(&silent),
        acknowledgements.id.key()
    )
}

/// Some partitions, and how many more there are.
fn listed(tasks: &[&TopicPartition]) -> String {
    const SHOWN_MAX: usize = 5;
    let shown: Vec<String> = tasks.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    match tasks.len().saturating_sub(SHOWN_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    //! Goal: whatever the tasks say, one line tells what has come of it, and how to go on.

    use super::*;
    use crate::format::{Acknowledgement, CommandId};

    fn acknowledgements(said: &[(i32, Outcome, Option<&str>)], silent: &[i32]) -> Acknowledgements {
        let task = |partition: i32| TopicPartition::new("orders", partition);
        let said = said.iter().map(|&(partition, outcome, was)| {
            (task(partition), Ok(Acknowledgement { outcome, was: was.map(str::to_owned) }))
        });
        let silent = silent.iter().map(|&partition| task(partition)).collect();
        Acknowledgements { id: CommandId(7), by_task: said.collect(), unacknowledged: silent, can_acknowledge: true }
    }

    fn said(acknowledgements: &Acknowledgements, decision: ManualDecision) -> String {
        conclude(acknowledgements, "[\"o-7\"]", decision, Duration::from_secs(30)).unwrap().line
    }

    fn failed(acknowledgements: &Acknowledgements) -> (String, u8) {
        let failure =
            conclude(acknowledgements, "[\"o-7\"]", ManualDecision::Done, Duration::from_secs(30)).unwrap_err();
        match &failure {
            Failure::Run(message) => (message.text().to_owned(), 1),
            Failure::Input(message) => (message.text().to_owned(), 2),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn outcome_is_one_line() {
        let one = acknowledgements(&[(0, Outcome::Unknown, None), (3, Outcome::Settled, Some("in_doubt"))], &[]);
        assert_eq!(
            said(&one, ManualDecision::Done),
            "settled: [\"o-7\"] was in doubt, and counts as done now (orders:3)"
        );
        assert_eq!(
            said(&one, ManualDecision::Drop),
            "settled: [\"o-7\"] was in doubt, and counts as failed now (orders:3)"
        );
        let forgotten =
            acknowledgements(&[(1, Outcome::Forgotten, Some("done")), (2, Outcome::Forgotten, Some("done"))], &[]);
        assert_eq!(
            said(&forgotten, ManualDecision::Retry),
            "forgotten: [\"o-7\"] was done, and its next record makes the call (orders:1, orders:2)"
        );
        // Some are down, but it was found.
        let already = acknowledgements(&[(0, Outcome::Already, Some("done"))], &[1]);
        assert_eq!(said(&already, ManualDecision::Drop), "nothing to do: [\"o-7\"] is done already (orders:0)");
    }

    #[test]
    fn silence_is_told_from_ignorance() {
        let (text, code) = failed(&acknowledgements(&[(0, Outcome::Unknown, None)], &[1, 2]));
        assert_eq!(code, 1);
        let all = ["within 30s", "2 of 3 partitions", "orders:1, orders:2", "stays", "00000007"];
        assert!(all.iter().all(|part| text.contains(part)), "{text}");
        let (text, code) = failed(&acknowledgements(&[(0, Outcome::Unknown, None)], &[]));
        assert_eq!((text.as_str(), code), ("nothing is known of [\"o-7\"] in any of 1 partition", 2));
        let (text, code) = failed(&acknowledgements(&[(0, Outcome::NotUnderstood, None)], &[1]));
        assert_eq!((text.as_str(), code), ("orders:0 did not understand the command", 1));
        let (text, code) =
            failed(&acknowledgements(&[(0, Outcome::Unknown, None), (1, Outcome::StepsWereDone, None)], &[]));
        assert!(text.contains("stays as it is (orders:1): a handler's steps") && code == 2, "{text}");
    }

    #[test]
    fn folder_of_an_embedded_cluster_is_not_waited_for() {
        let given = Acknowledgements { can_acknowledge: false, ..acknowledgements(&[], &[0]) };
        assert!(said(&given, ManualDecision::Retry).contains("settled as retry by the next run"));
    }

    #[test]
    fn many_partitions_are_cut_short() {
        let tasks: Vec<TopicPartition> = (0..8).map(|partition| TopicPartition::new("o", partition)).collect();
        assert_eq!(listed(&tasks.iter().collect::<Vec<_>>()), "o:0, o:1, o:2, o:3, o:4 and 3 more");
    }
}
