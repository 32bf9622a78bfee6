//! When the client that queries the offsets of all groups is replaced.
//!
//! A new client first has to connect, log in and look up coordinators. So a client is kept while it may still be doing
//! this ([`UNANSWERED_MAX`]). It has to be replaced in two cases:
//!
//! - It may be asking a former coordinator. librdkafka's admin calls cache each group's coordinator, and look it up
//!   again only when the connection to it breaks. A former coordinator may respond NOT_COORDINATOR for ever, or be
//!   frozen.
//! - No caller waits for a query's response any more. The query stays in the client, and librdkafka may end the process
//!   when it times out, after an hour ([`super::native`]). So the client is dropped with the last caller that waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::errors::Code;

/// How long a client may be without a response from a group's right coordinator.
const UNANSWERED_MAX: Duration = Duration::from_secs(10);
/// The minimum age of a client that is replaced because of NOT_COORDINATOR: other brokers may not know the new
/// coordinator yet.
const AGE_MIN: Duration = Duration::from_millis(500);

/// The client in use, and the state of each group's queries on it.
pub(super) struct Renewal<C> {
    current: Option<(Arc<C>, Instant)>,
    groups: HashMap<String, GroupState>,
}

/// The state of a group's queries.
#[derive(Clone, Copy, Debug, Default)]
struct GroupState {
    /// Whether a broker has responded to a query on this client: the client is connected, and the broker may be a
    /// former coordinator.
    has_response: bool,
    /// Since when a response from the right coordinator has been missing; `None` if no query is open.
    unanswered_since: Option<Instant>,
    /// The number of callers, which repeat their query until it has a response.
    callers: usize,
}

/// Whether an error is a response from the right coordinator.
fn is_from_coordinator(code: Code) -> bool {
    matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS
            | Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND
    )
}

/// Whether an error is a broker's response to a query: librdkafka's own codes are negative, and a login precedes all
/// queries.
fn is_broker_response(code: Code) -> bool {
    let is_broker_code =
        code as i32 > Code::RD_KAFKA_RESP_ERR__END as i32 && code != Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED;
    is_broker_code || code == Code::RD_KAFKA_RESP_ERR__PARTIAL
}

/// Whether a client of this age has to be replaced after a query has failed with this code.
fn is_replaced(code: Code, has_response: bool, unanswered: Duration, age: Duration) -> bool {
    match code {
        code if is_from_coordinator(code) => false,
        Code::RD_KAFKA_RESP_ERR_NOT_COORDINATOR => age >= AGE_MIN,
        // Such as COORDINATOR_NOT_AVAILABLE of a broker that starts or stops.
        code if is_broker_response(code) => unanswered >= UNANSWERED_MAX,
        _ => has_response || unanswered >= UNANSWERED_MAX,
    }
}

impl<C> Default for Renewal<C> {
    fn default() -> Self {
        Self { current: None, groups: HashMap::new() }
    }
}

impl<C> Renewal<C> {
    /// The client for a query of `group`; `None` if a new one has to [begin](Self::begin).
    pub fn client(&mut self, group: &str, now: Instant) -> Option<Arc<C>> {
        let client = self.current.as_ref().map(|(client, _)| Arc::clone(client))?;
        self.group(group).unanswered_since.get_or_insert(now);
        Some(client)
    }

    /// Uses a new client from now on, first for a query of `group`.
    pub fn begin(&mut self, client: &Arc<C>, group: &str, now: Instant) {
        self.current = Some((Arc::clone(client), now));
        self.group(group).unanswered_since = Some(now);
    }

    /// Notes a response from the right coordinator.
    pub fn note_response(&mut self, client: &Arc<C>, group: &str) {
        if self.age(client, Instant::now()).is_some() {
            let group = self.group(group);
            (group.has_response, group.unanswered_since) = (true, None);
        }
    }

    /// Notes a failed query. Returns the client if it is replaced.
    #[must_use]
    pub fn note_failure(&mut self, client: &Arc<C>, group: &str, code: Code, now: Instant) -> Option<Arc<C>> {
        let age = self.age(client, now)?;
        if is_from_coordinator(code) {
            self.note_response(client, group);
            return None;
        }
        let group = self.group(group);
        let unanswered = group.unanswered_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if is_replaced(code, group.has_response, unanswered, age) {
            return self.take();
        }
        group.has_response |= is_broker_response(code);
        None
    }

    /// Adds a caller that queries the group.
    pub fn add_caller(&mut self, group: &str) {
        self.group(group).callers += 1;
    }

    /// Removes a caller. Returns the client if a query is open and no caller waits for its response any more.
    #[must_use]
    pub fn remove_caller(&mut self, group: &str) -> Option<Arc<C>> {
        let group = self.group(group);
        group.callers = group.callers.saturating_sub(1);
        if group.callers == 0 && group.unanswered_since.is_some() { self.take() } else { None }
    }

    fn group(&mut self, group: &str) -> &mut GroupState {
        self.groups.entry(group.to_owned()).or_default()
    }

    /// How long a client has been in use; `None` if it is not.
    fn age(&self, client: &Arc<C>, now: Instant) -> Option<Duration> {
        let (_, since) = self.current.as_ref().filter(|(current, _)| Arc::ptr_eq(current, client))?;
        Some(now.saturating_duration_since(*since))
    }

    /// Takes the client out of use, and forgets the state of its queries.
    fn take(&mut self) -> Option<Arc<C>> {
        for group in self.groups.values_mut() {
            *group = GroupState { callers: group.callers, ..GroupState::default() };
        }
        self.current.take().map(|(client, _)| client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATE: Code = Code::RD_KAFKA_RESP_ERR__TIMED_OUT;
    const MOVED: Code = Code::RD_KAFKA_RESP_ERR_NOT_COORDINATOR;
    const NONE: Code = Code::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// [`is_replaced`] for a client that has been waiting for a response since it was new.
    fn is_replaced_after(code: Code, has_response: bool, unanswered: Duration) -> bool {
        is_replaced(code, has_response, unanswered, unanswered)
    }

    #[test]
    fn connecting_client_is_kept() {
        let login = Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED;
        for code in [LATE, Code::RD_KAFKA_RESP_ERR__TRANSPORT, login] {
            assert!(!is_replaced_after(code, false, UNANSWERED_MAX - ms(1)));
            assert!(is_replaced_after(code, false, UNANSWERED_MAX));
        }
    }

    #[test]
    fn client_that_may_ask_a_former_coordinator_is_replaced() {
        assert!(is_replaced_after(LATE, true, ms(250)), "the coordinator may be frozen");
        for has_response in [false, true] {
            assert!(is_replaced_after(MOVED, has_response, AGE_MIN));
            assert!(!is_replaced_after(MOVED, has_response, AGE_MIN - ms(1)), "a new client would ask the same broker");
        }
    }

    #[test]
    fn temporary_error_of_a_broker_does_not_replace_a_client() {
        for code in [NONE, Code::RD_KAFKA_RESP_ERR__PARTIAL, Code::RD_KAFKA_RESP_ERR_UNKNOWN] {
            for has_response in [false, true] {
                assert!(!is_replaced_after(code, has_response, UNANSWERED_MAX - ms(1)), "{code:?}");
                assert!(is_replaced_after(code, has_response, UNANSWERED_MAX), "{code:?}");
            }
        }
        for code in [
            Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
            Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        ] {
            assert!(!is_replaced_after(code, true, Duration::from_secs(3600)), "{code:?}");
        }
    }

    /// A client that has been in use since `start`, with a query of the group `a`.
    fn begun(start: Instant) -> (Renewal<u8>, Arc<u8>) {
        let (mut renewal, client) = (Renewal::default(), Arc::new(0));
        assert_eq!(renewal.client("a", start), None);
        renewal.begin(&client, "a", start);
        (renewal, client)
    }

    /// A login that takes a second, and queries that wait for less.
    #[test]
    fn slow_login_is_completed_by_the_first_client() {
        let start = Instant::now();
        let (mut renewal, client) = begun(start);
        for after in [250, 800] {
            assert_eq!(renewal.note_failure(&client, "a", LATE, start + ms(after)), None);
            assert_eq!(renewal.client("a", start + ms(after)), Some(Arc::clone(&client)));
        }
        renewal.note_response(&client, "a");
        assert_eq!(renewal.client("a", start + ms(60_000)), Some(Arc::clone(&client)));
        assert_eq!(
            renewal.note_failure(&client, "a", LATE, start + ms(60_250)),
            Some(Arc::clone(&client)),
            "it is frozen"
        );
        assert_eq!(renewal.client("a", start + ms(60_250)), None);
        assert_eq!(renewal.note_failure(&client, "a", MOVED, start + ms(60_500)), None, "it is no longer in use");
    }

    /// The coordinator of another group may be a broker that the client has yet to connect to.
    #[test]
    fn response_to_one_group_says_nothing_about_another() {
        let start = Instant::now();
        let (mut renewal, client) = begun(start);
        renewal.note_response(&client, "a");
        assert_eq!(renewal.client("b", start), Some(Arc::clone(&client)));
        assert_eq!(renewal.note_failure(&client, "b", LATE, start + ms(250)), None);
        assert_eq!(renewal.note_failure(&client, "b", NONE, start + ms(300)), None);
        assert_eq!(
            renewal.note_failure(&client, "b", LATE, start + ms(900)),
            Some(client),
            "a broker has responded for b"
        );
    }

    #[test]
    fn client_is_replaced_when_its_last_waiting_caller_leaves() {
        let start = Instant::now();
        let (mut renewal, client) = begun(start);
        (0..2).for_each(|_| renewal.add_caller("a"));
        assert_eq!(renewal.remove_caller("a"), None, "another caller still waits");
        assert_eq!(renewal.remove_caller("a"), Some(client));
        let (mut renewal, client) = begun(start);
        renewal.add_caller("a");
        renewal.note_response(&client, "a");
        assert_eq!(renewal.remove_caller("a"), None);
        assert_eq!(renewal.client("a", start), Some(client));
    }
}
