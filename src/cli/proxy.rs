//! `ratchet proxy`: carries HTTP requests out once, in front of a service in any language.

use std::fmt::Write;
use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::check::peers;
use super::stderr::say;
use super::{Failure, inputs};
use crate::http::OnStoreDown;
use crate::http::proxying::is_failure;
use crate::http::request::OnInDoubt;
use crate::observe::logs;
use crate::proxy::{self, CommandLineSettings, Config, KeyUse, Route, Rule};
use crate::worker;
use crate::yaml::Process;
use crate::yaml::units::show_duration;

/// Signals within this time are one request: `timeout` of coreutils signals the process and then its whole group.
const ONE_REQUEST: Duration = Duration::from_secs(1);

const EXAMPLES: &str = "\
Examples:
  # in front of a service, remembering answers in a folder
  ratchet proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000 \\
    --caller Authorization --store embedded --dir requests

  # several proxies, which share a database
  ratchet proxy --listen 0.0.0.0:8080 --upstream http://127.0.0.1:3000 \\
    --store postgres --url '${env:DATABASE_URL}'

  # with rules for its routes, TLS and more: docs/http-idempotency.md
  ratchet proxy --config proxy.yaml

  # what is wrong with the file, or what it amounts to
  ratchet proxy --config proxy.yaml --check

SIGINT or SIGTERM: takes no more connections, waits for requests at work
(stop_timeout, 25 s). A second signal, at least 1 s later, ends at once.
Exit codes: 0 stopped as asked, 1 the run failed, 2 a restart does not help.";

/// Options of `ratchet proxy`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A file with all settings, in place of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "upstream", "caller", "store", "dir", "url", "http"])]
    config: Option<PathBuf>,

    /// The address that clients connect to; required, or --config
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// The service behind; required, or --config
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,

    /// The header that identifies a caller, or `none` if all clients are one caller. Each caller has keys of its own;
    /// clients that do not send the header count as one caller, and get each other's answers [default: Authorization]
    #[arg(long, value_name = "HEADER")]
    caller: Option<String>,

    #[command(flatten)]
    store: inputs::StoreArgs,

    /// The address of /metrics, /livez and /readyz, or `off`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9464")]
    http: String,

    /// Report what is wrong, or what the settings amount to, and end
    #[arg(long)]
    check: bool,
}

/// Runs a proxy until it is stopped.
pub fn run(args: &Args) -> Result<(), Failure> {
    let config = load(args)?;
    if args.check {
        inputs::show_warnings(&config.warnings);
        let name = args.config.as_ref().map_or(proxy::COMMAND_LINE.to_owned(), |path| path.display().to_string());
        say(format_args!("{name}: fine\n{}", summary(&config)));
        return Ok(());
    }
    let started = logs::init(config.log_format, &config.log_level, io::stderr);
    started.map_err(|error| Failure::input(error.to_string(), "set `log.level`"))?;
    config.warnings.iter().for_each(worker::log_warning);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), upstream = config.upstream.url(), "starting a proxy");
    config
        .routes
        .iter()
        .for_each(|route| tracing::info!(route = route.name(), promise = promise(route), "what is promised"));
    match proxy::run(config, stop) {
        Ok(()) => {
            tracing::info!("stopped");
            Ok(())
        }
        Err(error) => Err(Failure::logged(&error, error.may_pass())),
    }
}

fn load(args: &Args) -> Result<Config, Failure> {
    if let Some(path) = &args.config {
        return Ok(proxy::load(path, &Process)?);
    }
    let store = args.store.given()?;
    let (listen, upstream) = addresses(args)?;
    let settings = CommandLineSettings { listen, upstream, http: &args.http, caller: args.caller.as_deref(), store };
    Ok(proxy::load_text(proxy::COMMAND_LINE, &proxy::to_yaml(&settings), &Process)?)
}

/// Where clients connect to, and the service behind.
fn addresses(args: &Args) -> Result<(&str, &str), Failure> {
    const WHOLE: &str = "--listen 127.0.0.1:8080 --upstream http://127.0.0.1:3000";
    let (message, example) = match (&args.listen, &args.upstream) {
        (Some(listen), Some(upstream)) => return Ok((listen, upstream)),
        (None, Some(_)) => ("the proxy is not told where to listen", "--listen 127.0.0.1:8080".to_owned()),
        (Some(_), None) => {
            ("the proxy is not told which service is behind it", "--upstream http://127.0.0.1:3000".to_owned())
        }
        (None, None) => (
            "the proxy is told neither where to listen nor which service is behind it",
            format!("`ratchet proxy {WHOLE}`"),
        ),
    };
    let how = if example.starts_with('`') { format!("try {example}") } else { format!("add e.g. `{example}`") };
    let help = format!(
        "{how}, or name a file with its settings: `ratchet proxy --config proxy.yaml`; `ratchet proxy --help` has more"
    );
    Err(Failure::input(message, help))
}

/// SIGINT and SIGTERM: the first one stops, the second one cuts that short.
#[expect(clippy::async_yields_async, reason = "what it gives is waited for in turn")]
fn stop() -> io::Result<impl Future<Output = impl Future<Output = ()>>> {
    let mut signals = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        let name = next(&mut signals).await;
        tracing::info!(signal = name, "stopping: waiting for requests at work; send the signal again to end at once");
        async move {
            let mut again = async || loop {
                next(&mut signals).await;
            };
            let Err(_) = tokio::time::timeout(ONE_REQUEST, again()).await;
            let name = next(&mut signals).await;
            tracing::warn!(signal = name, "ending at once");
        }
    })
}

async fn next((interrupt, terminate): &mut (Signal, Signal)) -> &'static str {
    tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    }
}

/// What the settings amount to, line by line.
fn summary(config: &Config) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        // Writing to a string never fails.
        let _ = writeln!(text, "  {name:<12} {value}");
    };
    let tls = if config.tls.is_some() { ", by TLS" } else { "" };
    line("listen", &format!("{}{tls}", config.listen));
    line("upstream", &config.upstream.url());
    line("store", &config.store.describe());
    line("metrics", &config.metrics_listen.map_or_else(|| "off".to_owned(), |address| address.to_string()));
    config.routes.iter().for_each(|route| line(route.name(), &promise(route)));
    peers::proxy_notes(config).iter().for_each(|note| line("note", note));
    text
}

/// What is promised by a route, in one sentence.
fn promise(route: &Route) -> String {
    let methods: Vec<&str> = route.methods.iter().map(http::Method::as_str).collect();
    let methods = if methods.is_empty() { String::new() } else { format!("{}: ", methods.join(", ")) };
    let key = match route.rule.key {
        KeyUse::Off => return format!("{methods}passed on as it is, with a key or without"),
        KeyUse::Required => "a key is required",
        KeyUse::Optional => "with a key",
    };
    let kept = show_duration(route.rule.retention);
    let refusals = route.rule.releasing_statuses.iter().copied().filter(|status| !is_failure(*status));
    let but = match refusals.map(|status| status.as_u16()).collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        all if (400..500).all(|status| status == 408 || all.contains(&status)) => ", unless that was 4xx".to_owned(),
        some => format!(", unless that was {}", listed(&some)),
    };
    let doubt = doubt(&route.rule);
    let down = match route.rule.on_store_down {
        OnStoreDown::Refuse => "",
        OnStoreDown::Pass => "; while the store does not answer neither is promised",
    };
    format!("{methods}{key}, answered again for {kept} without being carried out{but}; {doubt}{down}")
}

/// What becomes of a request that may have been carried out, and when that is so.
fn doubt(rule: &Rule) -> String {
    let (what, within) = match rule.on_in_doubt {
        OnInDoubt::Run => {
            let within = format!("{} (`timeout` and `grace`)", show_duration(rule.timeout + rule.grace));
            ("carried out again where nobody knows (at least once)", within)
        }
        OnInDoubt::Refuse => ("refused where nobody knows (at most once)", show_duration(rule.timeout)),
    };
    let released = rule.releasing_statuses.iter().filter(|status| is_failure(**status));
    let released: Vec<u16> = released.map(StatusCode::as_u16).collect();
    let but = match rule.on_in_doubt {
        OnInDoubt::Refuse if !released.is_empty() => format!(", but for {},", listed(&released)),
        OnInDoubt::Refuse | OnInDoubt::Run => String::new(),
    };
    format!(
        "{what}: if the proxy dies mid-request, or if the service's answer is lost, is 408 or 5xx{but} or has not begun \
         within {within}"
    )
}

fn listed(statuses: &[u16]) -> String {
    statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_says_what_each_route_promises() {
        let text = "listen: 127.0.0.1:0\nupstream: http://a:1\nstore: {embedded: {dir: d}}\nhttp: off\n\
                    routes: [{path: /a, methods: [POST], key: required, on_in_doubt: refuse, retention: 2h}, {path: '/b*', key: off}]\n";
        let config = proxy::load_text("proxy.yaml", text, &Process).unwrap();
        let summary = summary(&config);
        for line in [
            "  /a           POST: a key is required, answered again for 2h without being carried out; refused where nobody",
            "  /b*          passed on as it is",
            "  default      with a key, answered again for 1d",
            "  store        embedded, in d",
        ] {
            assert!(summary.contains(line), "{line}\n{summary}");
        }
    }

    /// Found by an audit: "once" was said of what may be carried out twice if the proxy dies.
    #[test]
    fn promise_says_what_is_in_doubt_and_what_becomes_of_it() {
        let of = |more: &str| {
            let text = format!("listen: 127.0.0.1:0\nupstream: http://a:1\nstore: {{embedded: {{dir: d}}}}\n{more}\n");
            promise(&proxy::load_text("proxy.yaml", &text, &Process).unwrap().routes[0])
        };
        let run = "carried out again where nobody knows (at least once): if the proxy dies mid-request, or if the \
                   service's answer is lost, is 408 or 5xx or has not begun within 2m (`timeout` and `grace`)";
        let refuse = "refused where nobody knows (at most once): if the proxy dies mid-request, or if the service's \
                      answer is lost, is 408 or 5xx";
        for (more, words) in [
            ("", run.to_owned()),
            ("on_in_doubt: refuse", format!("{refuse} or has not begun within 1m")),
            ("on_in_doubt: refuse\nreleased: [503]", format!("{refuse}, but for 503, or has")),
            ("on_in_doubt: refuse\nreleased: [503, 408]", format!("{refuse}, but for 503 and 408, or has")),
            ("on_in_doubt: refuse\nreleased: [4xx, 503]", format!("{refuse}, but for 503, or has")),
            ("on_in_doubt: refuse\nreleased: [4xx, 408]", format!("{refuse}, but for 408, or has")),
            ("released: [4xx]", format!("without being carried out, unless that was 4xx; {run}")),
            ("released: [422, 404]", format!("without being carried out, unless that was 422 and 404; {run}")),
            ("on_store_down: pass", format!("{run}; while the store does not answer neither is promised")),
        ] {
            assert!(of(more).contains(&words), "{more}: {}", of(more));
        }
    }
}
