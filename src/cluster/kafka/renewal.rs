//! When the client that asks for the offsets of all groups is replaced by a new one.
//!
//! A new one begins from nothing, for every group: it connects, logs in, and looks for coordinators. So it has time for
//! that, more each time ([`CONNECTING_MAX`]). But a client that sticks to a former coordinator must be replaced:
//! librdkafka's admin calls remember each group's, and look for another only once its connection is down. One that
//! answers that it is not the coordinator any more is asked for ever, and so may be one that is frozen.
//!
//! **Failure**: a query that got no answer stays with its client, and must not stay for an hour ([`super::native`]):
//! a client that owes an answer for [`OWING_MAX`] is replaced, and so is one that owes it to nobody ([`Asked::leave`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::errors::Code;
use super::settle::RESPONSE_MAX;

/// How long a client may connect at most before it is replaced. It starts with [`RESPONSE_MAX`], and doubles with each
/// client in a row that had no answer for the group.
const CONNECTING_MAX: Duration = Duration::from_secs(20);
/// How old a client is at least when it is replaced because a broker is not the coordinator: the others may not know
/// the new one yet.
const AGE_MIN: Duration = Duration::from_millis(500);
/// How long a client may owe the answer to a query of any group.
const OWING_MAX: Duration = Duration::from_secs(600);

/// The client in use, and what groups have heard of it.
pub(super) struct Asked<C> {
    current: Option<(Arc<C>, Instant)>,
    groups: HashMap<String, Heard>,
}

/// What a group has heard of the client.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// Whether a coordinator has ever answered: the client is connected, and the coordinator may be a former one.
    has_answered: bool,
    /// Since when it owes the coordinator's answer.
    owes: Option<Instant>,
    /// How many clients in a row were replaced before they had an answer.
    silent: u32,
    /// How many callers ask, again and again, until they have an answer.
    askers: usize,
}

/// What counts when a query has failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    code: Code,
    /// Whether a coordinator has ever answered the group.
    has_answered: bool,
    /// How long the client has owed the coordinator's answer.
    owing: Duration,
    /// The client's age.
    age: Duration,
    /// How many clients before it were replaced for their silence.
    silent: u32,
}

/// Whether a query has failed with the right coordinator's answer.
fn is_of_coordinator(code: Code) -> bool {
    matches!(
        code,
        Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS
            | Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
            | Code::RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND
    )
}

/// Whether a query has failed with some broker's answer: librdkafka's own codes are below. A login that fails comes
/// before all queries.
fn is_answer(code: Code) -> bool {
    let is_brokers =
        code as i32 > Code::RD_KAFKA_RESP_ERR__END as i32 && code != Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED;
    is_brokers || code == Code::RD_KAFKA_RESP_ERR__PARTIAL
}

/// The rule: whether a client is replaced after a query that has failed.
fn is_replaced(failed: Failed) -> bool {
    match failed.code {
        code if is_of_coordinator(code) => false,
        Code::RD_KAFKA_RESP_ERR_NOT_COORDINATOR => failed.age >= AGE_MIN,
        // A coordinator that starts or stops says that there is none: it passes, or its connection goes down.
        code if is_answer(code) => failed.owing >= RESPONSE_MAX,
        _ if failed.has_answered => true,
        _ => failed.owing >= (RESPONSE_MAX * (1 << failed.silent.min(8))).min(CONNECTING_MAX),
    }
}

impl<C> Default for Asked<C> {
    fn default() -> Self {
        Self { current: None, groups: HashMap::new() }
    }
}

impl<C> Asked<C> {
    /// The client for a query of `group`, if there is one to be used; what has to go instead is returned too.
    pub fn client(&mut self, group: &str, now: Instant) -> (Option<Arc<C>>, Option<Arc<C>>) {
        let owes = |heard: &Heard| heard.owes.is_some_and(|since| now.saturating_duration_since(since) >= OWING_MAX);
        let former = if self.groups.values().any(owes) { self.take() } else { None };
        let current = self.current.as_ref().map(|(client, _)| Arc::clone(client));
        if current.is_some() {
            self.heard(group).owes.get_or_insert(now);
        }
        (current, former)
    }

    /// Uses a new client from now on.
    pub fn begin(&mut self, client: &Arc<C>, group: &str, now: Instant) {
        self.take();
        self.current = Some((Arc::clone(client), now));
        self.heard(group).owes = Some(now);
    }

    /// A query has been answered.
    pub fn answered(&mut self, client: &Arc<C>, group: &str) {
        if self.is_current(client) {
            let heard = self.heard(group);
            *heard = Heard { has_answered: true, owes: None, silent: 0, askers: heard.askers };
        }
    }

    /// A query has failed; returns the client if it is replaced by the next one.
    #[must_use]
    pub fn failed(&mut self, client: &Arc<C>, group: &str, code: Code, now: Instant) -> Option<Arc<C>> {
        let (_, since) = self.current.as_ref().filter(|(current, _)| Arc::ptr_eq(current, client))?;
        let age = now.saturating_duration_since(*since);
        if is_of_coordinator(code) {
            self.answered(client, group);
            return None;
        }
        let heard = self.heard(group);
        let owing = heard.owes.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let replaced = is_replaced(Failed { code, has_answered: heard.has_answered, owing, age, silent: heard.silent });
        if !replaced {
            heard.has_answered |= is_answer(code);
            return None;
        }
        heard.silent += u32::from(!heard.has_answered);
        self.take()
    }

    /// A caller begins to ask for the group.
    pub fn enter(&mut self, group: &str) {
        self.heard(group).askers += 1;
    }

    /// A caller that has asked for the group goes; returns the client if it owes it an answer and nobody else.
    #[must_use]
    pub fn leave(&mut self, group: &str) -> Option<Arc<C>> {
        let heard = self.heard(group);
        heard.askers = heard.askers.saturating_sub(1);
        if heard.askers == 0 && heard.owes.is_some() { self.take() } else { None }
    }

    fn is_current(&self, client: &Arc<C>) -> bool {
        self.current.as_ref().is_some_and(|(current, _)| Arc::ptr_eq(current, client))
    }

    fn heard(&mut self, group: &str) -> &mut Heard {
        self.groups.entry(group.to_owned()).or_default()
    }

    /// Takes the client out of use; no group has heard anything of the next one.
    fn take(&mut self) -> Option<Arc<C>> {
        for heard in self.groups.values_mut() {
            *heard = Heard { has_answered: false, owes: None, ..*heard };
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

    /// A query that has failed after this time, on a client of the same age.
    fn failed(code: Code, has_answered: bool, owing: Duration, silent: u32) -> Failed {
        Failed { code, has_answered, owing, age: owing, silent }
    }

    #[test]
    fn client_that_still_connects_is_kept() {
        for (silent, limit_s) in [(0, 5), (1, 10), (2, 20), (3, 20), (100, 20)] {
            let limit = Duration::from_secs(limit_s);
            let login = Code::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED;
            for code in [LATE, Code::RD_KAFKA_RESP_ERR__TRANSPORT, login] {
                assert!(!is_replaced(failed(code, false, ms(250), silent)));
                assert!(!is_replaced(failed(code, false, limit - ms(1), silent)), "after {silent} others");
                assert!(is_replaced(failed(code, false, limit, silent)), "after {silent} others");
            }
        }
    }

    #[test]
    fn client_that_may_ask_a_former_coordinator_is_replaced() {
        assert!(is_replaced(failed(LATE, true, ms(250), 0)), "it may be frozen");
        assert!(is_replaced(failed(MOVED, true, AGE_MIN, 0)));
        assert!(is_replaced(failed(MOVED, false, AGE_MIN, 0)));
        assert!(!is_replaced(failed(MOVED, false, AGE_MIN - ms(1), 0)), "brokers have yet to hear of it");
    }

    #[test]
    fn answer_is_no_reason_to_replace_a_client_unless_it_lasts() {
        for code in [NONE, Code::RD_KAFKA_RESP_ERR__PARTIAL, Code::RD_KAFKA_RESP_ERR_UNKNOWN] {
            for has_answered in [false, true] {
                assert!(!is_replaced(failed(code, has_answered, RESPONSE_MAX - ms(1), 0)), "{code:?}");
                assert!(is_replaced(failed(code, has_answered, RESPONSE_MAX, 0)), "{code:?}");
            }
        }
        for code in [
            Code::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS,
            Code::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED,
            Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
        ] {
            assert!(!is_replaced(failed(code, true, Duration::from_secs(3600), 0)), "{code:?}");
        }
    }

    /// A client in use since `start`, which has asked for `a`.
    fn asked(start: Instant) -> (Asked<u8>, Arc<u8>) {
        let (mut asked, client) = (Asked::default(), Arc::new(0));
        assert_eq!(asked.client("a", start), (None, None));
        asked.begin(&client, "a", start);
        (asked, client)
    }

    /// As by a login that takes 600 ms, with waits that double.
    #[test]
    fn slow_login_ends_on_the_first_client() {
        let start = Instant::now();
        let (mut asked, client) = asked(start);
        for after in [250, 800] {
            assert_eq!(asked.failed(&client, "a", LATE, start + ms(after)), None);
            assert_eq!(asked.client("a", start + ms(after)), (Some(Arc::clone(&client)), None));
        }
        asked.answered(&client, "a");
        assert_eq!(asked.client("a", start + ms(9_000)).0, Some(Arc::clone(&client)));
        assert_eq!(asked.failed(&client, "a", LATE, start + ms(9_250)), Some(client), "its coordinator is frozen");
        assert_eq!(asked.client("a", start + ms(9_250)), (None, None));
    }

    #[test]
    fn login_that_takes_longer_has_longer_the_next_time() {
        let start = Instant::now();
        let (mut asked, first) = asked(start);
        assert_eq!(asked.failed(&first, "a", LATE, start + RESPONSE_MAX), Some(Arc::clone(&first)));
        let (second, start) = (Arc::new(1), start + RESPONSE_MAX);
        asked.begin(&second, "a", start);
        assert_eq!(asked.failed(&first, "a", MOVED, start + ms(100)), None, "it is not in use any more");
        assert_eq!(asked.failed(&second, "a", LATE, start + ms(9_999)), None);
        asked.answered(&second, "a");
        assert_eq!(asked.client("a", start + ms(9_999)).0, Some(second));
    }

    /// Another group's coordinator may be on a broker that the client has yet to connect to.
    #[test]
    fn answer_to_one_group_says_nothing_of_another() {
        let start = Instant::now();
        let (mut asked, client) = asked(start);
        asked.answered(&client, "a");
        assert_eq!(asked.client("b", start).0, Some(Arc::clone(&client)));
        assert_eq!(asked.failed(&client, "b", LATE, start + ms(250)), None);
        assert_eq!(asked.failed(&client, "b", NONE, start + ms(300)), None);
        assert_eq!(asked.failed(&client, "b", LATE, start + ms(900)), Some(client), "a coordinator has answered");
    }

    #[test]
    fn client_goes_with_a_query_that_nobody_waits_for() {
        let start = Instant::now();
        let (mut asked, client) = asked(start);
        (0..2).for_each(|_| asked.enter("a"));
        assert_eq!(asked.leave("a"), None, "another waits yet");
        assert_eq!(asked.leave("a"), Some(client));
        let (mut asked, client) = self::asked(start);
        asked.enter("a");
        asked.answered(&client, "a");
        assert_eq!(asked.leave("a"), None);
        assert_eq!(asked.client("b", start).0, Some(Arc::clone(&client)));
        assert_eq!(asked.client("a", start + OWING_MAX - ms(1)), (Some(Arc::clone(&client)), None));
        assert_eq!(asked.client("a", start + OWING_MAX), (None, Some(client)), "b's query is there yet");
    }
}
