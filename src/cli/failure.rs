//! Why a command failed: the message for people and the exit code for scripts.

use std::error::Error;
use std::fmt;
use std::io;

use miette::{GraphicalReportHandler, GraphicalTheme, MietteDiagnostic, ThemeCharacters, ThemeStyles};

use super::stderr::{is_colored, say};
use crate::capture;
use crate::topology::Diagnostics;

/// Exit code: the command succeeded.
pub const FINE: u8 = 0;
/// Exit code: the run failed.
pub const RUN_FAILED: u8 = 1;
/// Exit code: the user's input is wrong.
const INPUT_WRONG: u8 = 2;

/// The column at which messages wrap.
const WIDTH: usize = 110;

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// Mistakes in the user's files, each with its place.
    Mistakes(Diagnostics),
    /// Wrong input on the command line or in a capture.
    Input(Message),
    /// Something failed while the command ran.
    Run(Message),
    /// Something failed that was logged already: a run's standard error is its log, one event a line.
    Logged {
        /// Whether a later start may succeed without any change.
        may_pass: bool,
    },
    /// The reader of standard output is gone (`| head`). Nothing is wrong, so nothing is reported.
    ReaderGone,
}

/// What happened and what to do about it.
#[derive(Debug)]
pub struct Message {
    text: String,
    help: Option<String>,
}

impl Failure {
    /// The user's input is wrong: what, in lower case and without a full stop, and what to do instead.
    pub fn input(text: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Input(Message { text: text.into(), help: Some(help.into()) })
    }

    /// The run failed, with all causes of `error`.
    pub fn run(error: &dyn Error) -> Self {
        Self::Run(Message { text: with_causes(error), help: None })
    }

    /// The run failed: what happened, and what to do about it.
    pub fn run_with_help(text: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Run(Message { text: text.into(), help: Some(help.into()) })
    }

    /// The run failed with `error`, which is logged; `may_pass`: a later start may succeed without any change.
    pub fn logged(error: &dyn Error, may_pass: bool) -> Self {
        tracing::error!("{}", with_causes(error));
        Self::Logged { may_pass }
    }

    /// Standard output could not be written to.
    pub fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::ReaderGone,
            _ => Self::Run(Message { text: format!("cannot write to standard output: {error}"), help: None }),
        }
    }

    /// Reports it on standard error, and returns the exit code.
    pub fn report(&self) -> u8 {
        let text = self.render(is_colored());
        if !text.is_empty() {
            say(format_args!("{}\n", text.trim_end()));
        }
        self.code()
    }

    fn code(&self) -> u8 {
        match self {
            Self::Mistakes(_) | Self::Input(_) | Self::Logged { may_pass: false } => INPUT_WRONG,
            Self::Run(_) | Self::Logged { may_pass: true } => RUN_FAILED,
            Self::ReaderGone => FINE,
        }
    }

    fn render(&self, colored: bool) -> String {
        match self {
            Self::Mistakes(mistakes) => mistakes.render(colored),
            Self::Input(message) | Self::Run(message) => message.render(colored),
            Self::Logged { .. } | Self::ReaderGone => String::new(),
        }
    }
}

impl From<Diagnostics> for Failure {
    fn from(mistakes: Diagnostics) -> Self {
        Self::Mistakes(mistakes)
    }
}

impl From<capture::Error> for Failure {
    fn from(error: capture::Error) -> Self {
        Self::input(error.text, error.help)
    }
}

impl Message {
    /// What happened.
    #[cfg(test)]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn render(&self, colored: bool) -> String {
        let mut diagnostic = MietteDiagnostic::new(&self.text);
        diagnostic.help.clone_from(&self.help);
        render(&diagnostic, colored)
    }
}

/// Renders a message for people.
pub(super) fn render(diagnostic: &MietteDiagnostic, colored: bool) -> String {
    let styles = if colored { ThemeStyles::ansi() } else { ThemeStyles::none() };
    let theme = GraphicalTheme { characters: ThemeCharacters::unicode(), styles };
    let mut out = String::new();
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false);
    match handler.render_report(&mut out, diagnostic) {
        Ok(()) => out,
        Err(fmt::Error) => format!("{}\n", diagnostic.message),
    }
}

/// An error and its causes, without those whose text it already contains.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot start")]
    struct Outer(#[source] io::Error);

    #[test]
    fn causes_are_reported_once() {
        let failure = Failure::run(&Outer(io::Error::other("no thread")));
        assert!(failure.render(false).contains("cannot start: no thread"), "{}", failure.render(false));
        #[derive(Debug, thiserror::Error)]
        #[error("cannot start: {0}")]
        struct Said(#[source] io::Error);
        let text = with_causes(&Said(io::Error::other("no thread")));
        assert_eq!(text, "cannot start: no thread");
    }

    #[test]
    fn broken_pipe_is_not_reported() {
        let failure = Failure::output(&io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(failure, Failure::ReaderGone));
        assert_eq!(failure.render(true), "");
        assert!(matches!(Failure::output(&io::Error::other("full")), Failure::Run(_)));
    }

    #[test]
    fn input_failure_shows_its_help() {
        let text = Failure::input("no such file", "give another").render(false);
        assert!(text.contains("no such file") && text.contains("help: give another"), "{text}");
    }
}
