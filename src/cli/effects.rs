//! `ratchet effects`: lists calls that are not known to have succeeded.

use serde::Serialize;

use super::listing::{Listing, or_none, time};
use super::{Failure, inputs};
use crate::cluster::ErrorKind;
use crate::dedup::identity::typed::Typed;
use crate::engine::control::list::{Effect, Error, list};
use crate::topology::{Loaded, Topology};

const EXAMPLES: &str = "\
Examples:
  # what waits for somebody to decide?
  ratchet effects charge-orders topologies --in-doubt \\
    --config config/ratchet.yaml

  # all calls that are not known to have succeeded, for scripts
  ratchet effects charge-orders topologies --json \\
    --config config/ratchet.yaml

It reads the changelogs, whether instances run or not, and changes nothing.
`ratchet settle` takes an identity as it is shown here.
Exit codes: 0 listed, 1 it failed, 2 the input is wrong.";

/// The columns' heads.
const HEADS: [&str; 7] = ["PARTITION", "IDENTITY", "STATE", "ATTEMPTS", "SINCE", "OFFSET", "REASON"];

/// Options of `ratchet effects`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The topology whose calls are listed
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    inputs: inputs::Inputs,

    #[command(flatten)]
    listing: Listing,
}

/// A line for scripts.
#[derive(Serialize)]
struct Line<'a> {
    topic: &'a str,
    partition: i32,
    identity: String,
    state: &'a str,
    in_doubt: bool,
    attempts: Option<u32>,
    since: Option<i64>,
    offset: Option<i64>,
    reason: Option<&'a str>,
}

/// Lists them.
pub fn run(args: &Args) -> Result<(), Failure> {
    let (loaded, config) = inputs::load(&args.inputs)?;
    let topology = named(&loaded, &args.name)?;
    let mut effects = Vec::new();
    let wanted = |effect: &Effect| effect.is_in_doubt || !args.listing.in_doubt;
    list(&config, topology, |effect| effects.extend(Some(effect).filter(wanted))).map_err(failure)?;
    let typed = Typed::of(&topology.rules.identity);
    let table = (HEADS, |effect: &Effect| cells(effect, &typed));
    args.listing.print(&effects, "nothing but what is done", |effect| line(effect, &typed), table)
}

/// The topology with this name.
pub(super) fn named<'a>(loaded: &'a [Loaded], name: &str) -> Result<&'a Topology, Failure> {
    let found = loaded.iter().find(|loaded| loaded.topology.name == name);
    found.map(|loaded| &loaded.topology).ok_or_else(|| {
        let names: Vec<_> = loaded.iter().map(|loaded| loaded.topology.name.as_str()).collect();
        Failure::input(format!("there is no topology {name:?} among these"), format!("there are: {}", names.join(", ")))
    })
}

fn failure(error: Error) -> Failure {
    match error {
        Error::Cluster(error) if error.kind == ErrorKind::Refused => {
            Failure::input(error.message, "see Rights in docs/operations.md")
        }
        Error::Cluster(error) => Failure::run_with_help(error.message, "run the command again"),
        error @ Error::Unfinished { .. } => Failure::run_with_help(error.to_string(), "run the command again"),
        error @ Error::Entry { .. } => {
            Failure::input(error.to_string(), "use the release that the instances run, or a later one")
        }
    }
}

fn line(effect: &Effect, typed: &Typed) -> String {
    let line = Line {
        topic: &effect.task.topic,
        partition: effect.task.partition,
        identity: typed.show(&effect.key),
        state: effect.state,
        in_doubt: effect.is_in_doubt,
        attempts: effect.attempts,
        since: effect.since_ms,
        offset: effect.offset,
        reason: effect.reason.as_deref(),
    };
    serde_json::to_string(&line).expect("it has no keys but texts")
}

fn cells(effect: &Effect, typed: &Typed) -> [String; 7] {
    [
        effect.task.to_string(),
        typed.show(&effect.key),
        effect.state.to_owned(),
        or_none(effect.attempts.map(|attempts| attempts.to_string())),
        or_none(effect.since_ms.and_then(time)),
        or_none(effect.offset.map(|offset| offset.to_string())),
        // It may quote a provider.
        or_none(effect.reason.as_ref().map(|reason| reason.replace(char::is_control, " "))),
    ]
}

#[cfg(test)]
mod tests {
    //! Goal: what is listed can be read by people and by scripts, and typed again.

    use super::*;
    use crate::cli::listing::table;
    use crate::dedup::{Identity, Path};
    use crate::record::TopicPartition;

    fn doubted() -> (Effect, Typed) {
        let typed = Typed::of(&Identity::of_paths([Path::parse("value.id").unwrap()]));
        let effect = Effect {
            task: TopicPartition::new("orders", 3),
            key: typed.read("o-7").unwrap(),
            state: "in_doubt",
            attempts: None,
            since_ms: Some(1_700_000_000_000),
            offset: Some(77),
            reason: Some("it is not known\nwhether it took effect".to_owned()),
            is_in_doubt: true,
        };
        (effect, typed)
    }

    #[test]
    fn effects_stand_in_columns() {
        let (effect, typed) = doubted();
        let reserved = Effect {
            state: "under_way",
            attempts: Some(12),
            since_ms: None,
            reason: None,
            task: TopicPartition::new("o", 0),
            ..effect.clone()
        };
        let text = table(HEADS, [&effect, &reserved].into_iter().map(|effect| cells(effect, &typed)));
        let expected = "\
PARTITION  IDENTITY  STATE      ATTEMPTS  SINCE                 OFFSET  REASON
orders:3   [\"o-7\"]   in_doubt   -         2023-11-14T22:13:20Z  77      it is not known whether it took effect
o:0        [\"o-7\"]   under_way  12        -                     77      -
";
        assert_eq!(text, expected);
    }

    #[test]
    fn scripts_get_the_same() {
        let (effect, typed) = doubted();
        let read: serde_json::Value = serde_json::from_str(&line(&effect, &typed)).unwrap();
        assert_eq!(read["identity"], "[\"o-7\"]");
        assert_eq!((&read["in_doubt"], &read["since"]), (&true.into(), &1_700_000_000_000_i64.into()));
    }
}
