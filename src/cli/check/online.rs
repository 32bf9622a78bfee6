//! `ratchet check --online`: checks the topologies' topics on the cluster, their sinks in their databases, their gates,
//! the names of the providers that they call, and the latest schemas of their topics. It writes and creates nothing,
//! and sends no request to a provider.

use std::net::ToSocketAddrs;

use super::schemas::{Latest, Shown};
use super::show::show;
use crate::cli::Failure;
use crate::cli::stderr::say;
use crate::cluster::{Abilities, ErrorKind};
use crate::config::Config;
use crate::effect::{Row, RowKey};
use crate::engine::preflight::facts::Facts;
use crate::engine::preflight::finding::{Finding, Severity};
use crate::engine::preflight::online::{self, ClusterReport};
use crate::engine::preflight::rows;
use crate::engine::preflight::unreached::QueryFailure;
use crate::postgres;
use crate::rendering;
use crate::topology::gate::OnUnavailable;
use crate::topology::sink::Command;
use crate::topology::sink::http::address::Address;
use crate::topology::{Loaded, Topology};
use crate::words::counted;
use crate::yaml::{Environment, Process};

/// Queries databases and the cluster, and reports all findings.
pub fn run(loaded: &[Loaded], config: &Config) -> Result<(), Failure> {
    let mut latest = Latest::open(loaded, config)?;
    let in_databases: usize = loaded.iter().map(|loaded| ask_database(loaded, config)).sum();
    let of_providers: usize = loaded.iter().map(|loaded| resolve_provider(loaded, &Process)).sum();
    let at_gates: usize = loaded.iter().map(ask_gate).sum();
    let before: Vec<_> = loaded.iter().map(|loaded| rows_of(&loaded.topology, config)).collect();
    let (mut refused, mut of_schemas) = (0, Shown::default());
    let topologies: Vec<&Topology> = loaded.iter().map(|loaded| &loaded.topology).collect();
    let (abilities, found) =
        online::query(config, &topologies).map_err(|QueryFailure { kind, finding }| match kind {
            // Rights, a password, a property: `run` would be refused too.
            ErrorKind::Refused => Failure::input(finding.message, finding.help),
            _ => Failure::run_with_help(finding.message, finding.help),
        })?;
    abilities.iter().for_each(show_abilities);
    for ((one, heard), before) in loaded.iter().zip(found).zip(before) {
        let Loaded { topology, path, .. } = one;
        let ClusterReport { mut findings, inputs } = heard;
        findings.extend(compare_rows(topology, config, &inputs, before));
        let count = findings.iter().filter(|finding| finding.is_refused()).count();
        let verdict = if count == 0 { "fine" } else { "refused" };
        say(format_args!("{}: on the cluster: {verdict}\n", path.display()));
        findings.iter().for_each(show);
        refused += count;
        if let Some(latest) = &mut latest {
            let topics: Vec<&str> = inputs.iter().map(|facts| facts.input.name.as_str()).collect();
            let Shown { lacking, unanswered } = latest.compare(one, &topics);
            of_schemas.lacking += lacking;
            of_schemas.unanswered += unanswered;
        }
    }
    let held = in_databases + of_providers + at_gates + of_schemas.unanswered;
    let waited_for = [
        (in_databases, "the database"),
        (of_providers, "the provider"),
        (at_gates, "the gate"),
        (of_schemas.unanswered, "the schema registry"),
    ];
    let waited_for: Vec<&str> = waited_for.into_iter().filter(|(count, _)| *count > 0).map(|(_, name)| name).collect();
    let waits_for = waited_for.join(" and ");
    let because = |count: usize| if count == 1 { String::new() } else { format!(", for {count} reasons") };
    match (refused, held) {
        (0, 0) if of_schemas.lacking > 0 => Err(Failure::input(
            format!("the topology does not fit its latest schemas{}", because(of_schemas.lacking)),
            "see the errors above; run would start nevertheless, and read each record by the schema that it names",
        )),
        (0, 0) => Ok(()),
        (0, held) => Err(Failure::input(
            format!("run would wait for {waits_for} and process nothing{}", because(held)),
            format!("see the errors of {waits_for} above; it goes on by itself once they are mended"),
        )),
        (refused, _) => {
            Err(Failure::input(format!("run would refuse this{}", because(refused)), "see the errors above"))
        }
    }
}

/// Queries the database of a topology's sink, if it has one, and shows all findings. Returns how many keep it from being
/// used: `run` waits until they are mended.
fn ask_database(Loaded { topology, path, .. }: &Loaded, config: &Config) -> usize {
    let Some((settings, sink)) = rendering::settings(topology, config.tables_create).zip(topology.sink()) else {
        return 0;
    };
    let findings = postgres::inspect_with(&settings, &rendering::constants(topology));
    let count = findings.iter().filter(|finding| finding.is_error).count();
    let verdict = if count == 0 { "fine" } else { "cannot be used" };
    say(format_args!("{}: in the database: {verdict}\n", path.display()));
    for postgres::Finding { is_error, statement, message, help } in findings {
        let severity = if is_error { Severity::Refused } else { Severity::Note };
        let number = statement;
        let of = number.and_then(|number| sink.statements().get(number));
        let message = match of {
            Some(of) => format!("{}: {message}", named(number.unwrap_or_default(), &of.command)),
            None => message,
        };
        show(&Finding::of(severity, message, help.unwrap_or_default()));
    }
    count
}

/// Reaches for a topology's gate, if it has one, and asks it nothing. Returns whether `run` would wait for it, as 1 or 0.
fn ask_gate(Loaded { topology, path, .. }: &Loaded) -> usize {
    let Some(gate) = &topology.gate else { return 0 };
    let reached = match rendering::gate(topology) {
        Ok(None) => return 0,
        Ok(Some(gate)) => gate.session().reach().map_err(|error| error.message),
        Err(error) => Err(error.message),
    };
    let Err(message) = reached else {
        say(format_args!("{}: at the gate: fine\n", path.display()));
        return 0;
    };
    let is_held = gate.on_unavailable == OnUnavailable::Hold;
    say(format_args!("{}: at the gate: cannot be asked\n", path.display()));
    let (severity, help) = match is_held {
        true => (Severity::Refused, "records wait until it can be asked (on_unavailable: hold)"),
        false => (Severity::Warning, "records go on unasked until it can be (on_unavailable: pass)"),
    };
    show(&Finding::of(severity, message, help));
    usize::from(is_held)
}

/// The rows of a topology's sink; `None` without a sink, or where they cannot be read, which was said.
fn rows_of(topology: &Topology, config: &Config) -> Option<Vec<(RowKey, Row)>> {
    postgres::rows(&rendering::settings(topology, config.tables_create)?).ok()
}

/// What the rows of a topology's sink say beside the cluster. `before` is how they were before the cluster was asked:
/// those that have changed since belong to an instance at work.
fn compare_rows(
    topology: &Topology,
    config: &Config,
    inputs: &[Facts],
    before: Option<Vec<(RowKey, Row)>>,
) -> Vec<Finding> {
    let Some((before, after)) = before.zip(rows_of(topology, config)) else { return Vec::new() };
    let (rows, moving): (Vec<_>, Vec<_>) = after.into_iter().partition(|row| before.contains(row));
    let moving: Vec<RowKey> = moving.into_iter().map(|(key, _)| key).collect();
    rows::findings(inputs, &rows, &moving)
}

/// A statement as logs call it, and what it does; `number` is from 0.
fn named(number: usize, command: &Command) -> String {
    let described = rendering::described(command);
    match command {
        Command::Sql { .. } => format!("statement {}, {described}", number + 1),
        _ => described,
    }
}

/// Resolves the names of a topology's provider, if it calls one, and shows those that lead nowhere. Returns how many they
/// are.
fn resolve_provider(Loaded { topology, path, .. }: &Loaded, environment: &dyn Environment) -> usize {
    let Some(http) = topology.http() else { return 0 };
    let Ok(address) = Address::read(&http.url) else { return 0 };
    let is_secure = address.scheme() == "https";
    let hosts = address.host().map_or_else(|| http.hosts.clone(), |host| vec![host]);
    if let Some(variable) = PROXIES.iter().find(|name| environment.variable(name).is_some_and(|url| !url.is_empty())) {
        let message = format!("{variable} names a proxy, which resolves the provider's name: it is not looked up here");
        let finding = Finding::note(message, "");
        say(format_args!("{}: at the provider: not looked up\n", path.display()));
        show(&finding);
        return 0;
    }
    let is_known = |host: &String| {
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
        let port = if is_secure { 443 } else { 80 };
        let whole = if has_port { host.clone() } else { format!("{host}:{port}") };
        whole.to_socket_addrs().is_ok_and(|mut found| found.next().is_some())
    };
    let unknown: Vec<&String> = hosts.iter().filter(|host| !is_known(host)).collect();
    let verdict = if unknown.is_empty() { "its name is known" } else { "its name is not known" };
    say(format_args!("{}: at the provider: {verdict}\n", path.display()));
    for host in &unknown {
        // The address may be secret, and so may its host be.
        let named = if http.url.is_secret() { "the host of `sink.http.url`" } else { host.as_str() };
        let message = format!("{named} has no address: the name cannot be resolved");
        let help = "compare the name with the provider's; from within a container, ask where its names come from";
        show(&Finding::refused(message, help));
    }
    unknown.len()
}

/// The variables that name a proxy.
const PROXIES: &[&str] = &["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Shows what the brokers can do.
fn show_abilities(abilities: &Abilities) {
    let (line, findings) = describe_abilities(abilities);
    say(format_args!("{line}\n"));
    findings.iter().for_each(show);
}

/// What the brokers can do, in a line, and the notes about it.
fn describe_abilities(Abilities { asked, silent, data_path, can, without, .. }: &Abilities) -> (String, Vec<Finding>) {
    let line = format!("brokers: {} with {}", counted(*asked as u64, "broker"), can.join(", "));
    let mut findings = vec![Finding::note(format!("records are read and written {data_path}"), "")];
    if !silent.is_empty() {
        let help = "run does not wait for them either; what they can do is known only once they are used";
        findings.push(Finding::note(format!("not all brokers have answered: {}", silent.join(", ")), help));
    }
    findings.extend(without.iter().map(|without| Finding::note(without.what.clone(), without.so)));
    (line, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Without;

    #[test]
    fn brokers_that_are_silent_or_lack_something_are_noted_with_what_follows() {
        let abilities = Abilities {
            asked: 2,
            silent: vec!["b:9092".to_owned(), "c:9092".to_owned()],
            data_path: "on the wire".to_owned(),
            can: vec!["transactions", "leader epochs"],
            without: vec![Without { what: "a lacks DescribeGroups".to_owned(), so: "rights are not known" }],
            lacking: Vec::new(),
        };
        let (line, findings) = describe_abilities(&abilities);
        assert_eq!(line, "brokers: 2 brokers with transactions, leader epochs");
        let notes: Vec<_> = findings.iter().map(|note| (note.message.as_str(), note.help.as_str())).collect();
        let silent_help = "run does not wait for them either; what they can do is known only once they are used";
        assert_eq!(
            notes,
            [
                ("records are read and written on the wire", ""),
                ("not all brokers have answered: b:9092, c:9092", silent_help),
                ("a lacks DescribeGroups", "rights are not known"),
            ]
        );
        assert!(findings.iter().all(|note| !note.is_refused()));
    }
}
