//! When the client that queries the offsets of all groups is replaced.
//!
//! A new client starts from nothing: it connects, logs in and looks up coordinators. So a client is kept as long as that
//! may still be under way ([`UNANSWERED_MAX`]). It has to be replaced in two cases:
//!
//! - It may be asking a former coordinator. librdkafka's admin calls cache each group's coordinator, and look it up again
//!   only when the connection to it breaks. A former coordinator may answer NOT_COORDINATOR for ever, or be frozen.
//! - Nobody waits for a query's answer any more. The query stays in the client, and librdkafka may end the process when it
//!   times out, after an hour ([`super::native`]). So the client goes with the last caller that waits.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::errors::Code;

/// How long a client may go without the right coordinator's answer to a group.
const UNANSWERED_MAX: Duration = Duration::from_secs(10);
/// How old a client is at least when NOT_COORDINATOR replaces it: other brokers may not know the new coordinator yet.
const AGE_MIN: Duration = Duration::from_millis(500);

/// The client in use, and the state of each group's queries on it.
pub(super) struct Renewal<C> {
    current: Option<(Arc<C>, Instant)>,
    groups: HashMap<String, Group>,
}

/// A group's queries.
#[derive(Clone, Copy, Debug, Default)]
struct Group {
    /// Whether a broker has answered a query on this client: it is connected, and the broker may be a former coordinator.
    has_answered: bool,
    /// Since when the right coordinator has not answered; `None` if no query is open.
    unanswered_since: Option<Instant>,
    /// How many callers repeat their query until it is answered.
    callers: usize,
}

/// Whether an error comes from the right coordinator.
fn is_of_coordinator(code: Code) -> bool {
    matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS
            | Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND
    )
}

/// Whether an error is a broker's answer to a query: librdkafka's own codes are negative, and a login comes before all
/// queries.
fn is_answer(code: Code) -> bool {
    let is_brokers =
        code as i32 > Code::RD_KAFKA_RESP_ERR__END as i32 && code != Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED;
    is_brokers || code == Code::RD_KAFKA_RESP_ERR__PARTIAL
}

/// Whether a client of this age is replaced after a query has failed with this code.
fn is_replaced(code: Code, has_answered: bool, unanswered: Duration, age: Duration) -> bool {
    match code {
        code if is_of_coordinator(code) => false,
        Code::RD_KAFKA_RESP_ERR_NOT_COORDINATOR => age >= AGE_MIN,
        // Such as COORDINATOR_NOT_AVAILABLE of a broker that starts or stops.
        code if is_answer(code) => unanswered >= UNANSWERED_MAX,
        _ => has_answered || unanswered >= UNANSWERED_MAX,
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

    /// The right coordinator has answered.
    pub fn answered(&mut self, client: &Arc<C>, group: &str) {
        if self.age(client, Instant::now()).is_some() {
            let group = self.group(group);
            (group.has_answered, group.unanswered_since) = (true, None);
        }
    }

    /// A query has failed. Returns the client if it is replaced.
    #[must_use]
    pub fn failed(&mut self, client: &Arc<C>, group: &str, code: Code, now: Instant) -> Option<Arc<C>> {
        let age = self.age(client, now)?;
        if is_of_coordinator(code) {
            self.answered(client, group);
            return None;
        }
        let group = self.group(group);
        let unanswered = group.unanswered_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        if is_replaced(code, group.has_answered, unanswered, age) {
            return self.take();
        }
        group.has_answered |= is_answer(code);
        None
    }

    /// A caller begins to query the group.
    pub fn enter(&mut self, group: &str) {
        self.group(group).callers += 1;
    }

    /// A caller no longer queries the group. Returns the client if nobody waits for its answer any more.
    #[must_use]
    pub fn leave(&mut self, group: &str) -> Option<Arc<C>> {
        let group = self.group(group);
        group.callers = group.callers.saturating_sub(1);
        if group.callers == 0 && group.unanswered_since.is_some() { self.take() } else { None }
    }

    fn group(&mut self, group: &str) -> &mut Group {
        self.groups.entry(group.to_owned()).or_default()
    }

    /// How long a client has been in use; `None` if it is not.
    fn age(&self, client: &Arc<C>, now: Instant) -> Option<Duration> {
        let (_, since) = self.current.as_ref().filter(|(current, _)| Arc::ptr_eq(current, client))?;
        Some(now.saturating_duration_since(*since))
    }

    /// Takes the client out of use, with all that is known of it.
    fn take(&mut self) -> Option<Arc<C>> {
        for group in self.groups.values_mut() {
            *group = Group { callers: group.callers, ..Group::default() };
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

    /// The same after this time on a new client.
    fn is_replaced_after(code: Code, has_answered: bool, unanswered: Duration) -> bool {
        is_replaced(code, has_answered, unanswered, unanswered)
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
        for has_answered in [false, true] {
            assert!(is_replaced_after(MOVED, has_answered, AGE_MIN));
            assert!(!is_replaced_after(MOVED, has_answered, AGE_MIN - ms(1)), "a new client would ask the same broker");
        }
    }

    #[test]
    fn passing_error_of_a_broker_does_not_replace_a_client() {
        for code in [NONE, Code::RD_KAFKA_RESP_ERR__PARTIAL, Code::RD_KAFKA_RESP_ERR_UNKNOWN] {
            for has_answered in [false, true] {
                assert!(!is_replaced_after(code, has_answered, UNANSWERED_MAX - ms(1)), "{code:?}");
                assert!(is_replaced_after(code, has_answered, UNANSWERED_MAX), "{code:?}");
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
            assert_eq!(renewal.failed(&client, "a", LATE, start + ms(after)), None);
            assert_eq!(renewal.client("a", start + ms(after)), Some(Arc::clone(&client)));
        }
        renewal.answered(&client, "a");
        assert_eq!(renewal.client("a", start + ms(60_000)), Some(Arc::clone(&client)));
        assert_eq!(renewal.failed(&client, "a", LATE, start + ms(60_250)), Some(Arc::clone(&client)), "it is frozen");
        assert_eq!(renewal.client("a", start + ms(60_250)), None);
        assert_eq!(renewal.failed(&client, "a", MOVED, start + ms(60_500)), None, "it is not in use any more");
    }

    /// The coordinator of another group may be a broker that the client has yet to connect to.
    #[test]
    fn answer_to_one_group_says_nothing_of_another() {
        let start = Instant::now();
        let (mut renewal, client) = begun(start);
        renewal.answered(&client, "a");
        assert_eq!(renewal.client("b", start), Some(Arc::clone(&client)));
        assert_eq!(renewal.failed(&client, "b", LATE, start + ms(250)), None);
        assert_eq!(renewal.failed(&client, "b", NONE, start + ms(300)), None);
        assert_eq!(renewal.failed(&client, "b", LATE, start + ms(900)), Some(client), "a broker has answered for b");
    }

    #[test]
    fn client_goes_with_the_last_caller_that_waits() {
        let start = Instant::now();
        let (mut renewal, client) = begun(start);
        (0..2).for_each(|_| renewal.enter("a"));
        assert_eq!(renewal.leave("a"), None, "another caller still waits");
        assert_eq!(renewal.leave("a"), Some(client));
        let (mut renewal, client) = begun(start);
        renewal.enter("a");
        renewal.answered(&client, "a");
        assert_eq!(renewal.leave("a"), None);
        assert_eq!(renewal.client("a", start), Some(client));
    }
}
