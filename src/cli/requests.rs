//! `ratchet requests`: lists HTTP requests in doubt, and decides by hand what has become of one.

use std::future::Future;
use std::path::PathBuf;

use serde::Serialize;

use super::listing::{Listing, or_none, time};
use super::stderr::say;
use super::{Failure, inputs};
use crate::format;
use crate::http::proxying::INSTANCE_PREFIX;
use crate::http::request::Error;
use crate::http::request::operator::{ListFilter, ListedRequest, RequestStatus, Settle};
use crate::proxy::{self, CommandLineSettings, Config};
use crate::yaml::Process;

mod settle;

const EXAMPLES: &str = "\
Examples:
  # what waits for somebody to decide?
  ratchet requests list --in-doubt --config proxy.yaml

  # the service carried it out: record that as its answer
  ratchet requests settle 8f14e45fceea done --status 201 --config proxy.yaml

Both ask the store of a proxy, whether proxies run or not.
Exit codes: 0 fine, 1 it failed, 2 the input is wrong.";

const LIST_EXAMPLES: &str = "\
Examples:
  # what waits for somebody to decide?
  ratchet requests list --in-doubt --config proxy.yaml

  # everything that is not answered, for scripts
  ratchet requests list --json --store postgres --url '${env:DATABASE_URL}'

It changes nothing. Logs name a request by the digits shown here; the problem
that a refused client gets has all of them (`instance`).
`ratchet requests settle` takes a request as it is shown here.
Exit codes: 0 listed, 1 it failed, 2 the input is wrong.";

/// The columns' heads.
const HEADS: [&str; 4] = ["REQUEST", "STATE", "LEASE UNTIL", "REMEMBERED UNTIL"];
/// How many requests are listed at most.
const LISTED_MAX: usize = 10_000;

/// Options of `ratchet requests`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List requests that are not plainly answered
    List(ListArgs),
    /// Decide by hand what has become of a request
    Settle(settle::Args),
}

/// Where requests are remembered.
#[derive(Debug, clap::Args)]
struct Where {
    /// The proxy's file, in place of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["store", "dir", "url"])]
    config: Option<PathBuf>,

    #[command(flatten)]
    store: inputs::StoreArgs,
}

/// Options of `ratchet requests list`.
#[derive(Debug, clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
struct ListArgs {
    #[command(flatten)]
    of: Where,

    #[command(flatten)]
    listing: Listing,
}

/// A line for scripts.
#[derive(Serialize)]
struct Line<'a> {
    request: String,
    state: &'a str,
    in_doubt: bool,
    lease_until: Option<i64>,
    remembered_until: i64,
}

/// Runs a subcommand.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::List(args) => list(args),
        Command::Settle(args) => settle::run(args),
    }
}

impl Where {
    /// The settings of a proxy that remembers there.
    fn config(&self) -> Result<Config, Failure> {
        if let Some(path) = &self.config {
            return Ok(proxy::load(path, &Process)?);
        }
        // What a proxy has beside its store does not matter here.
        let (listen, upstream, http, caller) = ("127.0.0.1:0", "http://127.0.0.1", "off", Some("none"));
        let settings = CommandLineSettings { listen, upstream, http, caller, store: self.store.given()? };
        Ok(proxy::load_text(proxy::COMMAND_LINE, &proxy::to_yaml(&settings), &Process)?)
    }

    /// Asks the store.
    fn ask<T, F: Future<Output = Result<T, Error>>>(
        &self,
        ask: impl FnOnce(Box<dyn Settle>) -> F,
    ) -> Result<T, Failure> {
        let config = self.config()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::run(&error))?;
        let asked = runtime.block_on(async { ask(proxy::store::open_for_operator(&config.store).await?).await });
        asked.map_err(|error| {
            let text = format!("{}: {error}", config.store.describe());
            match error {
                Error::Unavailable(_) => Failure::run_with_help(text, "run the command again"),
                Error::Full(_) => Failure::run_with_help(text, "make room, and run the command again"),
                Error::Refused(_) => Failure::input(text, "check that this is where the proxy remembers requests"),
            }
        })
    }
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let filter = ListFilter { id_prefix: String::new(), includes_answered: false, max: LISTED_MAX };
    let mut requests = args.of.ask(async |store| store.list(&filter).await)?;
    if requests.len() == LISTED_MAX {
        say(format_args!("these are {LISTED_MAX}; there may be more\n"));
    }
    requests.retain(|request| request.state == RequestStatus::InDoubt || !args.listing.in_doubt);
    args.listing.print(&requests, "nothing but what is answered", line, (HEADS, cells))
}

fn line(request: &ListedRequest) -> String {
    let line = Line {
        request: format::hex(&request.id.0),
        state: request.state.as_str(),
        in_doubt: request.state == RequestStatus::InDoubt,
        lease_until: request.lease_until_ms,
        remembered_until: request.remembered_until_ms,
    };
    serde_json::to_string(&line).expect("it has no keys but texts")
}

fn cells(request: &ListedRequest) -> [String; 4] {
    [
        request.id.short(),
        request.state.as_str().to_owned(),
        // A request in doubt has no holder, even if the last holder's lease would last longer.
        or_none(request.lease_until_ms.filter(|_| request.state != RequestStatus::InDoubt).and_then(time)),
        or_none(time(request.remembered_until_ms)),
    ]
}

/// The digits of a request, as somebody has typed them: those that are listed, more of them, or what a client was told.
fn digits(text: &str) -> Option<String> {
    /// As many as a few thousand requests hardly ever share.
    const MIN: usize = 8;
    const MAX: usize = 64;
    let digits = text.strip_prefix(INSTANCE_PREFIX).unwrap_or(text).to_ascii_lowercase();
    let is_fine = (MIN..=MAX).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_fine.then_some(digits)
}

#[cfg(test)]
mod tests {
    //! Goal: what is listed can be read by people and by scripts, and typed again.

    use super::*;
    use crate::cli::listing::table;
    use crate::http::request::Id;

    fn listed(byte: u8, state: RequestStatus) -> ListedRequest {
        let lease_until_ms = (state != RequestStatus::Answered).then_some(1_700_000_000_000);
        ListedRequest { id: Id([byte; 32]), state, lease_until_ms, remembered_until_ms: 1_700_086_400_000 }
    }

    #[test]
    fn requests_stand_in_columns() {
        let all = [listed(0xab, RequestStatus::InDoubt), listed(1, RequestStatus::UnderWay)];
        let expected = "\
REQUEST       STATE      LEASE UNTIL           REMEMBERED UNTIL
abababababab  in_doubt   -                     2023-11-15T22:13:20Z
010101010101  under_way  2023-11-14T22:13:20Z  2023-11-15T22:13:20Z
";
        assert_eq!(table(HEADS, all.iter().map(cells)), expected);
    }

    #[test]
    fn scripts_get_the_same() {
        let read: serde_json::Value = serde_json::from_str(&line(&listed(0xab, RequestStatus::InDoubt))).unwrap();
        assert_eq!(read["request"], "ab".repeat(32));
        assert_eq!((&read["in_doubt"], &read["lease_until"]), (&true.into(), &1_700_000_000_000_i64.into()));
    }

    #[test]
    fn request_is_typed_as_it_is_shown_or_told() {
        let whole = "ab".repeat(32);
        for text in [&whole[..12], &whole, &format!("{INSTANCE_PREFIX}{whole}"), "ABABABABABAB"] {
            assert!(whole.starts_with(&digits(text).unwrap()), "{text}");
        }
        for text in ["", "ababab", "no digits", &format!("{whole}ab")] {
            assert_eq!(digits(text), None, "{text}");
        }
    }
}
