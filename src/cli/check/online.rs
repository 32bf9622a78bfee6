//! `ratchet check --online`: checks the topologies' topics on the cluster, and their sinks in their databases. It writes
//! and creates nothing.

use miette::{MietteDiagnostic, Severity as Shown};

use crate::cli::Failure;
use crate::cli::failure::render;
use crate::cli::stderr::{is_colored, say};
use crate::cluster::ErrorKind;
use crate::config::Config;
use crate::effect::{Row, RowKey, postgres};
use crate::engine::preflight::facts::Facts;
use crate::engine::preflight::finding::{Finding, Severity};
use crate::engine::preflight::online::{self, Heard};
use crate::engine::preflight::rows;
use crate::engine::preflight::unreached::Unasked;
use crate::rendering;
use crate::topology::sink::Command;
use crate::topology::{Loaded, Topology};

/// Queries databases and the cluster, and reports all findings.
pub fn run(loaded: &[Loaded], config: &Config) -> Result<(), Failure> {
    let held: usize = loaded.iter().map(|loaded| ask_database(loaded, config)).sum();
    let before: Vec<_> = loaded.iter().map(|loaded| rows_of(&loaded.topology, config)).collect();
    let mut refused = 0;
    let topologies: Vec<&Topology> = loaded.iter().map(|loaded| &loaded.topology).collect();
    let found = online::ask(config, &topologies).map_err(|Unasked { kind, finding }| match kind {
        // Rights, a password, a property: `run` would be refused too.
        ErrorKind::Refused => Failure::input(finding.message, finding.help),
        _ => Failure::run_with_help(finding.message, finding.help),
    })?;
    for ((Loaded { topology, path, .. }, heard), before) in loaded.iter().zip(found).zip(before) {
        let Heard { mut findings, inputs } = heard;
        findings.extend(compare_rows(topology, config, &inputs, before));
        let count = findings.iter().filter(|finding| finding.is_refused()).count();
        let verdict = if count == 0 { "fine" } else { "refused" };
        say(format_args!("{}: on the cluster: {verdict}\n", path.display()));
        findings.iter().for_each(show);
        refused += count;
    }
    let because = |count: usize| if count == 1 { String::new() } else { format!(", for {count} reasons") };
    match (refused, held) {
        (0, 0) => Ok(()),
        (0, held) => Err(Failure::input(
            format!("run would wait for the database and process nothing{}", because(held)),
            "see the errors in the database above; it goes on by itself once they are mended",
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
        show(&Finding { severity, message, help: help.unwrap_or_default(), is_missing: false });
    }
    count
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

/// Shows a finding to a person.
fn show(finding: &Finding) {
    let severity = match finding.severity {
        Severity::Refused => Shown::Error,
        Severity::Warning => Shown::Warning,
        Severity::Note => Shown::Advice,
    };
    let diagnostic = MietteDiagnostic::new(&finding.message).with_severity(severity);
    let diagnostic = if finding.help.is_empty() { diagnostic } else { diagnostic.with_help(finding.help.as_str()) };
    say(format_args!("{}\n", render(&diagnostic, is_colored()).trim_end()));
}
