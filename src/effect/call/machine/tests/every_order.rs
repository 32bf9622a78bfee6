//! Goal: in every order of outcomes, crashes, aborts and waits, against a provider that does the worst that its
//! responses allow, an effect happens no more often than promised, and outcomes are true.

use super::*;

/// The state of the provider.
#[derive(Clone, Copy, Default)]
struct World {
    /// How often the provider has acted.
    acts: u32,
    /// When it first saw the key, in milliseconds since the epoch; it forgets the key after the window.
    known_since_ms: Option<i64>,
}

/// How many attempts, crashes and aborts may still happen.
#[derive(Clone, Copy)]
struct Budget {
    attempts: u32,
    crashes: u32,
    aborts: u32,
}

/// A search through all courses of one call.
struct Search {
    policy: Policy,
    outcomes: Vec<Outcome>,
    end_count: u64,
}

/// Outcomes of attempts, and whether the provider may have acted, independently of the product's table.
const OUTCOMES: &[(AttemptOutcome, bool)] = &[
    (AttemptOutcome::NotSent, false),
    (AttemptOutcome::Lost, true),
    (AttemptOutcome::TooLate, false),
    (status(200), true),
    (status(303), true),
    (status(401), false),
    (status(402), false),
    (status(409), true),
    (status(429), false),
    (status(500), true),
    (AttemptOutcome::Status(Status { is_replayed: true, ..Status::of(500) }), true),
];

impl Search {
    fn explore(&mut self, call: Call, now: Now, world: World, budget: Budget) {
        match call.stage() {
            Stage::Waits(_) => {
                let call = self.step(call, Event::Written { since_ms: now.wall_ms }, now);
                self.explore(call, now, world, budget);
            }
            Stage::Writing(_) => {
                let committed = self.step(call, Event::Committed, now);
                self.explore(committed, now, world, budget);
                if budget.aborts > 0 {
                    let aborted = self.step(call, Event::Aborted, now);
                    self.explore(aborted, now, world, Budget { aborts: budget.aborts - 1, ..budget });
                }
            }
            Stage::Ready => self.dispatch(call, now, world, budget),
            Stage::Sent => self.end_attempt(call, now, world, budget),
            Stage::Decided(outcome) => self.judge(call, outcome, world),
        }
    }

    fn step(&self, call: Call, event: Event, now: Now) -> Call {
        next(&self.policy, call, event, now, &mut |max| max).0
    }

    fn dispatch(&mut self, call: Call, now: Now, world: World, budget: Budget) {
        if budget.attempts == 0 {
            return self.end_count += 1;
        }
        if budget.crashes > 0 {
            self.crash(call, now, world, budget);
        }
        for seconds in [0, 60, 200] {
            let now = Now { wall_ms: now.wall_ms + seconds * 1_000, monotonic: now.monotonic.max(call.not_before) };
            let budget = Budget { attempts: budget.attempts - 1, ..budget };
            self.explore(self.step(call, Event::Dispatch, now), now, world, budget);
        }
    }

    fn end_attempt(&mut self, call: Call, now: Now, world: World, budget: Budget) {
        let after = Now { wall_ms: now.wall_ms + 10_000, monotonic: now.monotonic + SECOND * 10 };
        if budget.crashes > 0 {
            for world in [world, self.act(world, after)] {
                self.crash(call, after, world, budget);
            }
        }
        let withdrawn = self.step(call, Event::Withdrawn { attempt: call.attempt }, now);
        self.explore(withdrawn, now, world, budget);
        for (outcome, may_act) in OUTCOMES {
            let acted = if *may_act { self.act(world, after) } else { world };
            for is_down in [false, true] {
                let event = Event::AttemptEnded { attempt: call.attempt, outcome: *outcome, is_down };
                self.explore(self.step(call, event, after), after, acted, budget);
            }
        }
    }

    /// The owner crashes, while the provider may have its request. The next owner finds the committed state.
    fn crash(&mut self, call: Call, now: Now, world: World, budget: Budget) {
        let first_attempt_at_ms = call.first_attempt_at_ms().expect("it was permitted");
        let budget = Budget { crashes: budget.crashes - 1, ..budget };
        let is_granted = self.policy.reserve == Reserve::Auto && !call.is_reserved;
        let (resumed, _) = if is_granted {
            begin(&self.policy, Some(CoveringGrant { since_ms: first_attempt_at_ms, is_from_former_owner: true }), now)
        } else {
            resume(&self.policy, FoundCall { first_attempt_at_ms, attempts: 0, may_have_acted: true }, now)
        };
        self.explore(resumed, now, world, budget);
    }

    /// The provider acts, unless it knows the key. It receives a request within the request's timeout.
    fn act(&self, world: World, now: Now) -> World {
        let is_known = |since: i64| self.policy.key.is_some() && now.wall_ms < since + HONOURED_MS;
        match world.known_since_ms.filter(|since| is_known(*since)) {
            Some(_) => world,
            None => World { acts: world.acts + 1, known_since_ms: Some(now.wall_ms) },
        }
    }

    fn judge(&mut self, call: Call, outcome: Outcome, world: World) {
        self.end_count += 1;
        if !self.outcomes.contains(&outcome) {
            self.outcomes.push(outcome);
        }
        let is_promised_once = self.policy.on_in_doubt != OnInDoubt::Retry;
        assert!(!is_promised_once || world.acts <= 1, "acted {} times: {call:?}", world.acts);
        match outcome {
            Outcome::Done => assert!(world.acts > 0, "done, but the provider has not acted: {call:?}"),
            Outcome::Rejected => assert_eq!(world.acts, 0, "rejected, but the provider has acted: {call:?}"),
            Outcome::Conflict | Outcome::InDoubt | Outcome::Unavailable => {}
        }
        let is_forgotten = call.remembered_outcome(outcome) == RememberedOutcome::AsBefore;
        assert!(!is_forgotten || world.acts == 0, "forgotten, but the provider has acted: {call:?}");
    }
}

#[test]
fn no_order_of_events_breaks_a_promise() {
    use Outcome::{Done, InDoubt, Rejected, Unavailable};
    let policies = [
        ("key, always reserved", keyed()),
        ("key, auto", auto()),
        ("key, made again", retrying(auto())),
        ("no key", keyless()),
        ("no key, made again", retrying(keyless())),
    ];
    for (name, policy) in policies {
        let policy = Policy { retry: Retry { attempts: 2, ..policy.retry }, ..policy };
        let is_retried = policy.on_in_doubt == OnInDoubt::Retry;
        let (call, _) = begin(&policy, None, BEGUN);
        let mut search = Search { policy, outcomes: Vec::new(), end_count: 0 };
        search.explore(call, BEGUN, World::default(), Budget { attempts: 3, crashes: 1, aborts: 1 });
        assert!(search.end_count > 10_000, "{name}: {} ends", search.end_count);
        for outcome in [Done, Rejected, Unavailable] {
            assert!(search.outcomes.contains(&outcome), "{name}: never {outcome:?}");
        }
        assert_eq!(search.outcomes.contains(&InDoubt), !is_retried, "{name}: {:?}", search.outcomes);
    }
}
