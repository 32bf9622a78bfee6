//! Logs: one line per event to standard error, as text or as JSON.
//!
//! The other rooms write the events, and never put a secret into one. Of what other crates write in detail nobody knows
//! that: a driver of a database writes the parameters of its statements. So their details are logged at no level.

use std::io::{self, IsTerminal};

use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Who may write details: this crate, and Kafka's client, which writes no records.
const DETAILED: &[&str] = &["ratchet", "librdkafka", "rdkafka"];

/// How an event is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people: time, level, target, message and fields; coloured on a terminal.
    #[default]
    Text,
    /// For machines: one JSON object per line, with the fields next to `timestamp`, `level`, `target` and `message`.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter cannot be read.
    #[error(
        "the log filter {filter:?} cannot be read: {reason}; write a level (error, warn, info, debug, trace), or \
         several with where they apply, such as `info,ratchet::engine=debug`"
    )]
    Filter {
        /// The filter that was given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This process has set up logging already.
    #[error("logging was set up already")]
    Again,
}

/// Writes events that pass `filter` (`info`, or `info,ratchet::engine=debug`) to `writer`, for standard error, with one
/// write per event. Once per process.
pub fn init<W>(format: Format, filter: &str, writer: W) -> Result<(), Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let color = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // `try_init` also captures what librdkafka's binding and other crates log with the `log` crate
    subscriber(format, filter, color, writer)?.try_init().map_err(|_| Error::Again)
}

fn subscriber<W>(
    format: Format,
    filter: &str,
    color: bool,
    writer: W,
) -> Result<Box<dyn Subscriber + Send + Sync>, Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let parsed = EnvFilter::builder().parse(filter);
    let parsed = parsed.map_err(|error| Error::Filter { filter: filter.to_owned(), reason: error.to_string() })?;
    let events = tracing_subscriber::fmt().with_env_filter(parsed).with_ansi(color).with_writer(writer);
    // an event that cannot be written would be reported with `eprintln!`, which panics if standard error is
    // closed: a closed log must not end a lane
    let events = events.log_internal_errors(false);
    Ok(match format {
        Format::Text => Box::new(events.finish().with(filter_fn(is_harmless))),
        Format::Json => Box::new(events.json().flatten_event(true).finish().with(filter_fn(is_harmless))),
    })
}

/// Whether an event has no details of another crate's.
fn is_harmless(metadata: &Metadata<'_>) -> bool {
    let is_of =
        |name: &str| metadata.target().strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    *metadata.level() <= Level::INFO || DETAILED.iter().any(|name| is_of(name))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    /// Keeps everything written to it.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, filter: &str) -> String {
        /// tracing caches for the whole process, for each place that logs, whether any subscriber wants its events.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber = subscriber(format, filter, false, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(topology = "payments", records = 7, "transaction committed");
            tracing::debug!("a detail");
            tracing::debug!(target: "ratchets", "another crate's detail");
            tracing::trace!(target: "driver::query", "executing with parameters");
            tracing::info!(target: "driver::connection", "a notice");
        });
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn text_has_one_line_per_event_with_its_fields() {
        let text = logged(Format::Text, "info,driver=off");
        assert_eq!(text.lines().count(), 1);
        assert!(text.contains("INFO"), "{text}");
        assert!(text.contains("transaction committed topology=\"payments\" records=7"), "{text}");
    }

    #[test]
    fn json_has_one_flat_object_per_event() {
        let text = logged(Format::Json, "debug,driver=off");
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "transaction committed");
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[0]["records"], 7);
    }

    #[test]
    fn filter_may_name_a_room() {
        assert_eq!(logged(Format::Text, "error,ratchet::observe=debug").lines().count(), 2);
        assert_eq!(logged(Format::Text, "info,ratchet::observe=off,driver=off"), "");
    }

    /// Found by an audit: a driver logs the parameters of statements, and so answers' bodies and tokens.
    #[test]
    fn details_of_other_crates_are_logged_at_no_level() {
        for filter in ["trace", "driver=trace,ratchets=trace,info", "driver::query=trace,debug"] {
            let text = logged(Format::Text, filter);
            assert!(text.contains("a notice") && text.contains("transaction committed"), "{filter}: {text}");
            assert!(!text.contains("parameters") && !text.contains("another crate's"), "{filter}: {text}");
        }
        assert!(logged(Format::Text, "trace").contains("a detail"));
    }

    #[test]
    fn bad_filter_is_rejected_with_what_to_write() {
        let error = subscriber(Format::Text, "info,ratchet=loud", false, io::stderr).err().unwrap().to_string();
        assert!(error.contains("\"info,ratchet=loud\"") && error.contains("debug"), "{error}");
    }
}
