//! `ratchet requests settle`: decides by hand what has become of an HTTP request.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use bytes::Bytes;

use super::{Where, digits};
use crate::cli::Failure;
use crate::cli::listing::{or_none, time};
use crate::format::{self, ManualDecision};
use crate::http::proxying::{done_answer, dropped_answer};
use crate::http::request::operator::{Decision, ListFilter, RequestStatus, Settled};
use crate::http::request::{Answer, Id, Token};

const EXAMPLES: &str = "\
Examples:
  # the service carried it out: record that as its answer
  ratchet requests settle 8f14e45fceea done --status 201 --config proxy.yaml

  # the service did not carry it out, and the next request may run
  ratchet requests settle 8f14e45fceea retry --config proxy.yaml

done: the request gets this answer: --status and --body, or a note.
drop: the request is not carried out; repeated requests get 409.
retry: the request is forgotten, and the next one under its key runs.
REQUEST: as `ratchet requests list` shows it, or all of its digits. A request
that has an answer keeps it, except after retry.
Exit codes: 0 settled, 1 it failed, or the request may be under way,
2 the input is wrong, or the request is unknown.";

/// The media type of a body of which nothing else is said.
const JSON: &str = "application/json";

/// Options of `ratchet requests settle`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The request, as `ratchet requests list` shows it
    #[arg(value_name = "REQUEST")]
    request: String,

    /// What has become of it: done, retry or drop
    #[arg(value_name = "AS")]
    decision: ManualDecision,

    #[command(flatten)]
    of: Where,

    /// With done: the status of its answer [default: 200]
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(200..=499))]
    status: Option<u16>,

    /// With done: a file with the body of its answer; otherwise a note stands there
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,

    /// With --body: its media type
    #[arg(long, value_name = "TYPE", default_value = JSON, requires = "body")]
    content_type: String,
}

/// Settles the request, and prints the outcome.
pub fn run(args: &Args) -> Result<(), Failure> {
    const AS_SHOWN: &str = "write it as `ratchet requests list` shows it";
    let id_prefix = digits(&args.request).ok_or_else(|| {
        Failure::input(format!("{:?} is no request: 8 to 64 hexadecimal digits", args.request), AS_SHOWN)
    })?;
    let decision = decision(args)?;
    let filter = ListFilter { id_prefix: id_prefix.clone(), includes_answered: true, max: 2 };
    let settled = args.of.ask(async |store| {
        let id = match (Id::read(&id_prefix), &store.list(&filter).await?[..]) {
            (Some(id), _) => id,
            (None, [one]) => one.id,
            (None, all) => return Ok(Err(all.len())),
        };
        let settled = store.settle(id, &decision, Token(rand::random())).await?;
        Ok(Ok((id, settled)))
    })?;
    let line = match settled {
        Ok((id, settled)) => conclude(id, settled, args.decision)?,
        Err(0) => return Err(unknown(&id_prefix)),
        Err(_) => {
            let help = "write more of its digits: `ratchet requests list --json` has all of them";
            return Err(Failure::input(format!("several requests begin with {id_prefix}"), help));
        }
    };
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| Failure::output(&error))
}

/// The decision on the request.
fn decision(args: &Args) -> Result<Decision, Failure> {
    if args.decision != ManualDecision::Done && (args.status.is_some() || args.body.is_some()) {
        let text = format!("`--status` and `--body` are of an answer, and {} has none", args.decision.as_str());
        return Err(Failure::input(text, "leave them out, or settle it as done"));
    }
    let answer = match args.decision {
        ManualDecision::Done => done(args)?,
        ManualDecision::Drop => dropped_answer(),
        ManualDecision::Retry => return Ok(Decision::Forget),
    };
    Ok(Decision::Answer(answer))
}

fn done(args: &Args) -> Result<Answer, Failure> {
    /// As much as a proxy may be set to remember.
    const BODY_BYTES_MAX: usize = 1 << 20;
    let status = args.status.unwrap_or(200);
    let Some(path) = &args.body else { return Ok(done_answer(status, None)) };
    let shown = path.display();
    let body =
        fs::read(path).map_err(|error| Failure::input(format!("{shown}: {error}"), "name a file that is there"))?;
    if body.len() > BODY_BYTES_MAX {
        let text = format!("{shown} is too large: a body has at most {BODY_BYTES_MAX} bytes here");
        return Err(Failure::input(text, "leave `--body` out"));
    }
    if http::HeaderValue::from_str(&args.content_type).is_err() {
        let text = format!("{:?} is no media type", args.content_type);
        return Err(Failure::input(text, "write e.g. `--content-type text/plain`"));
    }
    Ok(done_answer(status, Some((Bytes::from(body), args.content_type.clone()))))
}

/// The outcome in a line; a failure if nothing was changed.
fn conclude(id: Id, settled: Settled, decision: ManualDecision) -> Result<String, Failure> {
    let request = id.short();
    match settled {
        Settled::Answered => {
            let counts = if decision == ManualDecision::Drop { "failed" } else { "done" };
            Ok(format!("settled: {request} was in doubt, and counts as {counts} now"))
        }
        Settled::Forgotten(was) => {
            let was = if was == RequestStatus::Answered { "answered" } else { "in doubt" };
            Ok(format!("forgotten: {request} was {was}, and the next one under its key is carried out"))
        }
        Settled::AlreadyAnswered => Ok(format!("nothing to do: {request} is answered already")),
        Settled::UnderWay { lease_until_ms } => {
            let until = or_none(time(lease_until_ms));
            let help = "the service may still be at work on it: run the command again after that";
            Err(Failure::run_with_help(format!("{request} is under way, until {until} at least"), help))
        }
        Settled::Unknown => Err(unknown(&format::hex(&id.0))),
    }
}

fn unknown(request: &str) -> Failure {
    let help =
        "write it as `ratchet requests list` shows it, and check that this is where the proxy remembers requests";
    Failure::input(format!("nothing is known of {request}"), help)
}

#[cfg(test)]
mod tests {
    //! Goal: one line tells the outcome, in the words of `ratchet settle`.

    use super::*;

    fn said(settled: Settled, decision: ManualDecision) -> String {
        conclude(Id([0xab; 32]), settled, decision).unwrap()
    }

    #[test]
    fn outcome_is_one_line() {
        for (settled, decision, words) in [
            (Settled::Answered, ManualDecision::Done, "settled: abababababab was in doubt, and counts as done now"),
            (Settled::Answered, ManualDecision::Drop, "settled: abababababab was in doubt, and counts as failed now"),
            (
                Settled::Forgotten(RequestStatus::InDoubt),
                ManualDecision::Retry,
                "forgotten: abababababab was in doubt, and the next one under its key is carried out",
            ),
            (Settled::AlreadyAnswered, ManualDecision::Done, "nothing to do: abababababab is answered already"),
        ] {
            assert_eq!(said(settled, decision), words);
        }
    }

    #[test]
    fn what_is_under_way_is_told_from_what_is_unknown() {
        let failed = |settled| match conclude(Id([0xab; 32]), settled, ManualDecision::Done) {
            Err(Failure::Run(message)) => (1, message.text().to_owned()),
            Err(Failure::Input(message)) => (2, message.text().to_owned()),
            other => panic!("{other:?}"),
        };
        let until = Settled::UnderWay { lease_until_ms: 1_700_000_000_000 };
        assert_eq!(failed(until), (1, "abababababab is under way, until 2023-11-14T22:13:20Z at least".to_owned()));
        assert_eq!(failed(Settled::Unknown), (2, format!("nothing is known of {}", "ab".repeat(32))));
    }
}
