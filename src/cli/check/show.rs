//! Shows findings to people.

use miette::{MietteDiagnostic, Severity as Drawn};

use crate::cli::failure::render;
use crate::cli::stderr::{is_colored, say};
use crate::engine::preflight::finding::{Finding, Severity};

/// Shows a finding to a person.
pub fn show(finding: &Finding) {
    let severity = match finding.severity {
        Severity::Refused => Drawn::Error,
        Severity::Warning => Drawn::Warning,
        Severity::Note => Drawn::Advice,
    };
    let diagnostic = MietteDiagnostic::new(&finding.message).with_severity(severity);
    let diagnostic = if finding.help.is_empty() { diagnostic } else { diagnostic.with_help(finding.help.as_str()) };
    say(format_args!("{}\n", render(&diagnostic, is_colored()).trim_end()));
}
