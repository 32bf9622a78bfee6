//! librdkafka's log lines, as tracing events with the target `librdkafka`.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};

use rdkafka::bindings as rd;
use tracing::Level;

use super::super::descriptions::{describe, name};
use super::super::errors::{Code, STALE_MEMBERSHIPS};

/// Whether any client of this process has ever had an answer. Until then ratchet itself reports at each attempt why there is
/// no answer, so librdkafka's own lines about that are only noise.
static REACHED: AtomicBool = AtomicBool::new(false);

/// Notes that a broker has answered.
pub(super) fn reached() {
    REACHED.store(true, Ordering::Relaxed);
}

/// librdkafka's log callback; called on its threads. Levels are those of syslog.
///
/// # Safety
/// `facility` and `line` are strings that end in NUL and live for the call.
pub(super) unsafe extern "C" fn forward(
    _client: *const rd::rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    line: *const c_char,
) {
    // SAFETY: by the caller's promise.
    let (facility, line) =
        unsafe { (CStr::from_ptr(facility).to_string_lossy(), CStr::from_ptr(line).to_string_lossy()) };
    match level_of(level, &facility, &line, REACHED.load(Ordering::Relaxed)) {
        Level::WARN => tracing::warn!(target: "librdkafka", "{facility}: {line}"),
        Level::INFO => tracing::info!(target: "librdkafka", "{facility}: {line}"),
        _ => tracing::debug!(target: "librdkafka", "{facility}: {line}"),
    }
}

/// The level at which a line is logged; `reached`: whether any broker has ever answered.
fn level_of(level: c_int, facility: &str, line: &str, reached: bool) -> Level {
    match level {
        0..=4 if facility == "FAIL" && !reached => Level::DEBUG,
        // A connection that has ended while its login was being renewed: it says what was pending, not why it ended.
        0..=4 if facility == "FAIL" && is_echo(line) => Level::DEBUG,
        // librdkafka retries, and a producer that is not open in time is reported with this as the reason.
        0..=4
            if facility == "GETPID"
                && line.contains(&describe(Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS)) =>
        {
            Level::DEBUG
        }
        // The group has moved on under an open transaction, as in any rebalance: its lane aborts it, logs that, and its
        // tasks restore.
        0..=4 if facility == "TXNERR" && is_stale_membership(line) => Level::DEBUG,
        // A broker that cannot be reached also causes an error event, once, for those concerned.
        0..=4 => Level::WARN,
        5 | 6 => Level::INFO,
        _ => Level::DEBUG,
    }
}

/// Whether a failed login is the echo of a connection that was down before: librdkafka has logged its end by then, and gives
/// up what was under way.
fn is_echo(line: &str) -> bool {
    let broken_off = format!("mechanism handshake failed: {}", describe(Code::RD_KAFKA_RESP_ERR__TRANSPORT));
    line.contains(&broken_off) && line.contains(" in state DOWN")
}

/// Whether a transaction failed because the group no longer accepts commits from its membership.
fn is_stale_membership(line: &str) -> bool {
    let is_because_of = |code: &Code| line.contains(&format!("({}", name(*code)));
    line.contains("Current transaction failed") && STALE_MEMBERSHIPS.iter().any(is_because_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// librdkafka 2.12's line about a transaction that it can no longer commit.
    fn failed(code: &str) -> String {
        let words = "Failed to commit offsets in transaction: Broker: Specified group generation id is not valid";
        format!("[thrd:main]: Current transaction failed in state BeginCommit: {words} ({code})")
    }

    #[test]
    fn transaction_failed_by_a_rebalance_is_logged_as_debug() {
        for code in ["ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS"] {
            assert_eq!(level_of(3, "TXNERR", &failed(code), true), Level::DEBUG, "{code}");
        }
        assert_eq!(level_of(3, "TXNERR", &failed("ILLEGAL_GENERATION, requires epoch bump"), true), Level::DEBUG);
        assert_eq!(level_of(3, "TXNERR", &failed("_TIMED_OUT"), true), Level::WARN);
        let fatal = "[thrd:main]: Fatal transaction error: Producer fenced by newer instance (ILLEGAL_GENERATION)";
        assert_eq!(level_of(1, "TXNERR", fatal, true), Level::WARN);
        assert_eq!(level_of(3, "FAIL", &failed("ILLEGAL_GENERATION"), true), Level::WARN);
    }

    #[test]
    fn login_given_up_with_its_connection_is_logged_as_debug() {
        let line = |why: &str, state: &str| {
            format!(
                "[thrd:a:1/1]: a:1/1: SASL OAUTHBEARER mechanism handshake failed: {why}: broker's supported mechanisms: (n/a) (after 0ms in state {state})"
            )
        };
        let broken = "Local: Broker transport failure";
        assert_eq!(level_of(3, "FAIL", &line(broken, "DOWN"), true), Level::DEBUG);
        assert_eq!(level_of(3, "FAIL", &line(broken, "AUTH_HANDSHAKE"), true), Level::WARN);
        let refused = "Broker: Unsupported SASL mechanism";
        assert_eq!(level_of(3, "FAIL", &line(refused, "DOWN"), true), Level::WARN);
    }

    /// librdkafka 2.12's line about a producer that it could not open at once.
    fn not_opened(reason: &str) -> String {
        format!("[thrd:main]: Failed to acquire transactional PID from broker TxnCoordinator/1: {reason}: retrying")
    }

    #[test]
    fn loading_coordinator_is_logged_as_debug() {
        let loading = not_opened("Broker: Coordinator load in progress");
        assert_eq!(level_of(4, "GETPID", &loading, true), Level::DEBUG);
        assert_eq!(level_of(4, "GETPID", &not_opened("Broker: Not coordinator"), true), Level::WARN);
        assert_eq!(level_of(4, "FAIL", &loading, true), Level::WARN);
        assert_eq!([3, 4, 5, 6, 7].map(|level| level_of(level, "FAIL", "x", true)), {
            [Level::WARN, Level::WARN, Level::INFO, Level::INFO, Level::DEBUG]
        });
    }

    #[test]
    fn broken_connections_are_logged_as_debug_until_a_broker_has_answered() {
        let refused = "[thrd:127.0.0.1:1/bootstrap]: 127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed";
        assert_eq!([false, true].map(|reached| level_of(3, "FAIL", refused, reached)), [Level::DEBUG, Level::WARN]);
        assert_eq!(level_of(3, "CONFWARN", refused, false), Level::WARN, "that is about something else");
    }
}
