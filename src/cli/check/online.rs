//! `ratchet check --online`: checks the topologies' topics on the cluster. It writes and creates nothing.

use miette::{MietteDiagnostic, Severity as Shown};

use crate::cli::Failure;
use crate::cli::failure::render;
use crate::cli::stderr::{is_colored, say};
use crate::cluster::ErrorKind;
use crate::config::Config;
use crate::engine::preflight::finding::{Finding, Severity};
use crate::engine::preflight::online;
use crate::engine::preflight::unreached::Unasked;
use crate::topology::{Loaded, Topology};

/// Queries the cluster, and reports all findings.
pub fn run(loaded: &[Loaded], config: &Config) -> Result<(), Failure> {
    let topologies: Vec<&Topology> = loaded.iter().map(|loaded| &loaded.topology).collect();
    let found = online::ask(config, &topologies).map_err(|Unasked { kind, finding }| match kind {
        // Rights, a password, a property: `run` would be refused too.
        ErrorKind::Refused => Failure::input(finding.message, finding.help),
        _ => Failure::run_with_help(finding.message, finding.help),
    })?;
    let mut refused = 0;
    for (Loaded { path, .. }, findings) in loaded.iter().zip(found) {
        let count = findings.iter().filter(|finding| finding.is_refused()).count();
        let verdict = if count == 0 { "fine" } else { "refused" };
        say(format_args!("{}: on the cluster: {verdict}\n", path.display()));
        findings.iter().for_each(show);
        refused += count;
    }
    match refused {
        0 => Ok(()),
        1 => Err(Failure::input("run would refuse this", "see the error above")),
        count => Err(Failure::input(format!("run would refuse this, for {count} reasons"), "see the errors above")),
    }
}

/// Shows a finding to a person.
fn show(finding: &Finding) {
    let severity = match finding.severity {
        Severity::Refused => Shown::Error,
        Severity::Warning => Shown::Warning,
        Severity::Note => Shown::Advice,
    };
    let diagnostic = MietteDiagnostic::new(&finding.message).with_severity(severity).with_help(finding.help.as_str());
    say(format_args!("{}\n", render(&diagnostic, is_colored()).trim_end()));
}
