//! Goal: in every order of answers, crashes, aborts and waits, against a provider that does the worst that its answers
//! allow, an effect happens no more often than promised, and outcomes are true.

use super::*;

/// What the provider has done.
#[derive(Clone, Copy, Default)]
struct World {
    /// How often it has acted.
    acts: u32,
    /// When it first saw the key, in milliseconds since the epoch; it forgets the key after the window.
    known_since_ms: Option<i64>,
}

/// What may still happen.
#[derive(Clone, Copy)]
struct Left {
    attempts: u32,
    crashes: u32,
    aborts: u32,
}

/// Every way that one call can go.
struct Search {
    policy: Policy,
    outcomes: Vec<Outcome>,
    ends: u64,
}

/// Answers, and whether the provider may have acted, independently of the product's table.
const ANSWERS: &[(Answer, bool)] = &[
    (Answer::NotSent, false),
    (Answer::Lost, true),
    (Answer::TooLate, false),
    (status(200), true),
    (status(303), true),
    (status(401), false),
    (status(402), false),
    (status(409), true),
    (status(429), false),
    (status(500), true),
    (Answer::Status(Status { is_replayed: true, ..Status::of(500) }), true),
];

impl Search {
    fn go(&mut self, call: Call, now: Now, world: World, left: Left) {
        match call.stage() {
            Stage::Waits(_) => {
                let call = self.step(call, Event::Written { since_ms: now.wall_ms }, now);
                self.go(call, now, world, left);
            }
            Stage::Writing(_) => {
                let committed = self.step(call, Event::Committed, now);
                self.go(committed, now, world, left);
                if left.aborts > 0 {
                    let aborted = self.step(call, Event::Aborted, now);
                    self.go(aborted, now, world, Left { aborts: left.aborts - 1, ..left });
                }
            }
            Stage::Ready => self.dispatch(call, now, world, left),
            Stage::Sent => self.answer(call, now, world, left),
            Stage::Decided(outcome) => self.judge(call, outcome, world),
        }
    }

    fn step(&self, call: Call, event: Event, now: Now) -> Call {
        next(&self.policy, call, event, now, &mut |most| most).0
    }

    fn dispatch(&mut self, call: Call, now: Now, world: World, left: Left) {
        if left.attempts == 0 {
            return self.ends += 1;
        }
        if left.crashes > 0 {
            self.crash(call, now, world, left);
        }
        for seconds in [0, 60, 200] {
            let now = Now { wall_ms: now.wall_ms + seconds * 1_000, monotonic: now.monotonic.max(call.not_before) };
            let left = Left { attempts: left.attempts - 1, ..left };
            self.go(self.step(call, Event::Dispatch, now), now, world, left);
        }
    }

    fn answer(&mut self, call: Call, now: Now, world: World, left: Left) {
        let after = Now { wall_ms: now.wall_ms + 10_000, monotonic: now.monotonic + SECOND * 10 };
        if left.crashes > 0 {
            for world in [world, self.act(world, after)] {
                self.crash(call, after, world, left);
            }
        }
        let withdrawn = self.step(call, Event::Withdrawn { attempt: call.attempt }, now);
        self.go(withdrawn, now, world, left);
        for (answer, may_act) in ANSWERS {
            let acted = if *may_act { self.act(world, after) } else { world };
            for is_down in [false, true] {
                let event = Event::Answered { attempt: call.attempt, answer: *answer, is_down };
                self.go(self.step(call, event, after), after, acted, left);
            }
        }
    }

    /// The owner is gone, and the provider has what it sent. The next owner finds what was committed.
    fn crash(&mut self, call: Call, now: Now, world: World, left: Left) {
        let first_at_ms = call.first_at_ms().expect("it was permitted");
        let left = Left { crashes: left.crashes - 1, ..left };
        let is_granted = self.policy.reserve == Reserve::Auto && !call.is_reserved;
        let (heir, _) = if is_granted {
            begin(&self.policy, Some(Grant { since_ms: first_at_ms, is_of_former: true }), now)
        } else {
            resume(&self.policy, Found { first_at_ms, attempts: 0, may_have_acted: true }, now)
        };
        self.go(heir, now, world, left);
    }

    /// The provider acts, unless it knows the key. It sees a request within its timeout.
    fn act(&self, world: World, now: Now) -> World {
        let is_known = |since: i64| self.policy.key.is_some() && now.wall_ms < since + HONOURED_MS;
        match world.known_since_ms.filter(|since| is_known(*since)) {
            Some(_) => world,
            None => World { acts: world.acts + 1, known_since_ms: Some(now.wall_ms) },
        }
    }

    fn judge(&mut self, call: Call, outcome: Outcome, world: World) {
        self.ends += 1;
        if !self.outcomes.contains(&outcome) {
            self.outcomes.push(outcome);
        }
        let is_promised_once = self.policy.on_in_doubt != OnInDoubt::Retry;
        assert!(!is_promised_once || world.acts <= 1, "acted {} times: {call:?}", world.acts);
        match outcome {
            Outcome::Done => assert!(world.acts > 0, "done, and nobody did it: {call:?}"),
            Outcome::Rejected => assert_eq!(world.acts, 0, "rejected, and done: {call:?}"),
            Outcome::Conflict | Outcome::InDoubt | Outcome::Unavailable => {}
        }
        let is_forgotten = call.kept(outcome) == Kept::AsBefore;
        assert!(!is_forgotten || world.acts == 0, "forgotten, and done: {call:?}");
    }
}

#[test]
fn no_order_breaks_a_promise() {
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
        let mut search = Search { policy, outcomes: Vec::new(), ends: 0 };
        search.go(call, BEGUN, World::default(), Left { attempts: 3, crashes: 1, aborts: 1 });
        assert!(search.ends > 10_000, "{name}: {} ends", search.ends);
        for outcome in [Done, Rejected, Unavailable] {
            assert!(search.outcomes.contains(&outcome), "{name}: never {outcome:?}");
        }
        assert_eq!(search.outcomes.contains(&InDoubt), !is_retried, "{name}: {:?}", search.outcomes);
    }
}
