//! Goal: steps act once, in order, each only after the previous one is committed; a function's outcome is reported
//! truthfully.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Instant;

use super::*;
use crate::effect::call::{AttemptOutcome, Content, Fingerprint, Form, KeyWindow, Status, StepName};
use crate::effect::provider::{Body, OwnedStep, OwnedStepState, Payload, Work};
use crate::format::JournalWriter;

mod blocking;
mod ends;
mod undoing;

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(20);

fn keyed() -> Settings {
    Settings {
        key_window: KeyWindow::new(SECOND * 100, SECOND * 10, SECOND * 5),
        timeout: SECOND * 10,
        in_flight: 8,
        rate: None,
        reply_bytes_max: Some(1024),
        database: None,
        clock: Arc::new(|| 1_000_000),
    }
}

fn keyless() -> Settings {
    Settings { key_window: None, ..keyed() }
}

fn work(value: &str) -> Arc<Work> {
    let content = Content { method: "", target: "", headers: &[], body: Some(value.as_bytes()) };
    Arc::new(Work {
        topology: "t".into(),
        topic: "in".into(),
        partition: 3,
        offset: 7,
        timestamp: Some(5),
        key: Some(b"k".to_vec()),
        value: Some(value.as_bytes().to_vec()),
        decoded: None,
        headers: vec![(b"h".to_vec(), None)],
        identity: value.as_bytes().to_vec(),
        epoch: None,
        version: None,
        fingerprint: Fingerprint::of(Form::of(["handler"]), content),
    })
}

fn done(name: &str, result: &str) -> OwnedStep {
    OwnedStep { name: name.to_owned(), state: OwnedStepState::Done(result.as_bytes().to_vec()) }
}

fn begun(name: &str) -> OwnedStep {
    OwnedStep { name: name.to_owned(), state: OwnedStepState::Begun }
}

fn rejected(name: &str, reason: &str) -> OwnedStep {
    OwnedStep { name: name.to_owned(), state: OwnedStepState::Rejected(reason.to_owned()) }
}

/// A lane's calls, and the test in the role of the engine.
struct Engine {
    calls: Box<dyn Calls>,
    journal: Vec<OwnedStep>,
    attempt: u32,
    may_have_acted: bool,
    first_attempt_at_ms: i64,
}

/// The next event that reaches the engine.
#[derive(Debug, PartialEq, Eq)]
enum EngineEvent {
    Steps(Vec<OwnedStep>),
    MustStopTask(String),
    Over(AttemptOutcome, Body, Option<String>),
}

impl Engine {
    fn of<F, R>(settings: Settings, function: F) -> Self
    where
        F: AsyncFn(&Record, &mut Steps) -> Result<R, StepError> + Send + Sync + 'static,
        R: Into<Reply>,
    {
        let calls = Handler::new(Function::new(function), settings).calls();
        Self { calls, journal: Vec::new(), attempt: 0, may_have_acted: false, first_attempt_at_ms: 1_000_000 }
    }

    fn submit(&mut self) {
        self.attempt += 1;
        let mut journal = JournalWriter::default();
        assert!(self.journal.iter().all(|step| journal.push(step.as_step())));
        self.calls.submit(Request {
            number: 1,
            attempt: self.attempt,
            first_attempt_at_ms: self.first_attempt_at_ms,
            may_have_acted: self.may_have_acted,
            payload: Payload::Handler(work("{\"id\":1}")),
            journal: Arc::new(journal),
        });
    }

    fn next(&mut self) -> EngineEvent {
        let since = Instant::now();
        loop {
            match (self.calls.take_report(), self.calls.take_end()) {
                (Some(HandlerReport::Steps { number: 1, attempt, steps }), None) if attempt == self.attempt => {
                    return EngineEvent::Steps(steps);
                }
                (Some(HandlerReport::MustStopTask { number: 1, attempt, reason }), None) if attempt == self.attempt => {
                    return EngineEvent::MustStopTask(reason);
                }
                (None, Some(end)) if (end.number, end.attempt) == (1, self.attempt) => {
                    return EngineEvent::Over(end.outcome, end.body, end.message);
                }
                (None, None) => {}
                other => panic!("{other:?}"),
            }
            assert!(since.elapsed() < PATIENCE, "no event arrived");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Commits the reported steps, until the attempt has ended.
    fn commit_until_end(&mut self) -> EngineEvent {
        loop {
            match self.next() {
                EngineEvent::Steps(steps) => {
                    self.journal.extend(steps);
                    self.calls.resume_after_commit(1, self.first_attempt_at_ms);
                }
                ended => return ended,
            }
        }
    }

    fn attempt(&mut self) -> EngineEvent {
        self.submit();
        self.commit_until_end()
    }
}

fn ok(body: &str) -> EngineEvent {
    EngineEvent::Over(AttemptOutcome::Status(Status::of(200)), Body::Whole(body.as_bytes().to_vec()), None)
}

#[test]
fn each_step_begins_after_the_previous_one_is_committed() {
    static BEGAN: AtomicUsize = AtomicUsize::new(0);
    let mut engine = Engine::of(keyed(), async |record: &Record, steps: &mut Steps| {
        assert_eq!((record.topic(), record.partition(), record.offset(), record.timestamp()), ("in", 3, 7, Some(5)));
        let one: u32 = steps.call("one", async |_| Ok(1)).await?;
        let two: u32 = steps
            .call("two", async |_| {
                BEGAN.store(2, Ordering::SeqCst);
                Ok(one + 1)
            })
            .await?;
        steps.call("three", async |_| Ok(two + 1)).await.map(|three: u32| three.to_string())
    });
    engine.submit();
    assert_eq!(engine.next(), EngineEvent::Steps(vec![done("one", "1")]));
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(BEGAN.load(Ordering::SeqCst), 0, "nothing is committed yet");
    engine.calls.resume_after_commit(1, 1_000_000);
    assert_eq!(engine.next(), EngineEvent::Steps(vec![done("two", "2")]));
    assert_eq!(BEGAN.load(Ordering::SeqCst), 2);
    engine.calls.resume_after_commit(1, 1_000_000);
    // The last step's result is not committed separately: the settlement follows.
    assert_eq!(engine.next(), ok("3"));
    assert_eq!(engine.calls.in_flight(), 0);
}

#[test]
fn recorded_steps_do_not_act_again() {
    static ACTS: AtomicUsize = AtomicUsize::new(0);
    let function = async |_: &Record, steps: &mut Steps| {
        let one: String = steps
            .call("one", async |_| {
                ACTS.fetch_add(1, Ordering::SeqCst);
                Ok("first".to_owned())
            })
            .await?;
        let two: String = steps.call("two", async |key: Key| Ok(key.to_string())).await?;
        Ok(format!("{one} {two}"))
    };
    let mut engine = Engine::of(keyed(), function);
    let first = engine.attempt();
    engine.journal = vec![done("one", "\"recorded\"")];
    let EngineEvent::Over(_, Body::Whole(again), _) = engine.attempt() else { panic!("{first:?}") };
    let again = String::from_utf8(again).unwrap();
    // The key is the same in each attempt, and no other step has it.
    let key = work("{\"id\":1}").step_key(StepName::Action("two"));
    assert_eq!((first, again), (ok(&format!("first {key}")), format!("recorded {key}")));
    assert_ne!(key, work("{\"id\":1}").step_key(StepName::Action("one")));
    assert_eq!(ACTS.load(Ordering::SeqCst), 1);
}

#[test]
fn without_keys_a_mark_is_committed_before_each_call() {
    let mut engine = Engine::of(keyless(), async |_: &Record, steps: &mut Steps| {
        steps.call("one", async |_| Ok(1)).await?;
        steps.call("two", async |_| Ok(2)).await.map(|_: u32| ())
    });
    engine.submit();
    assert_eq!(engine.next(), EngineEvent::Steps(vec![begun("one")]));
    engine.calls.resume_after_commit(1, 0);
    assert_eq!(engine.next(), EngineEvent::Steps(vec![done("one", "1"), begun("two")]));
    engine.calls.resume_after_commit(1, 0);
    assert_eq!(engine.next(), EngineEvent::Over(AttemptOutcome::Status(Status::of(200)), Body::None, None));
    // A mark that is already recorded is not committed again.
    engine.journal = vec![begun("one")];
    engine.submit();
    assert_eq!(engine.next(), EngineEvent::Steps(vec![done("one", "1"), begun("two")]));
}

/// The outcome of an attempt whose only step fails with this error.
fn attempt_with_error(may_have_acted: bool, error: fn() -> StepError) -> (EngineEvent, Vec<OwnedStep>) {
    let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
        steps.call("pay", async move |_| Err::<(), _>(error())).await
    });
    engine.may_have_acted = may_have_acted;
    (engine.attempt(), engine.journal)
}

#[test]
fn outcome_of_an_error_shows_whether_the_step_may_have_acted() {
    let ended = |outcome, message: &str| EngineEvent::Over(outcome, Body::None, Some(message.to_owned()));
    let unknown = attempt_with_error(false, || StepError::unknown("no answer"));
    assert_eq!(unknown, (ended(AttemptOutcome::Lost, "no answer"), vec![]));
    let again = attempt_with_error(false, || StepError::again("busy"));
    assert_eq!(again, (ended(AttemptOutcome::NotSent, "busy"), vec![]));
    let later = attempt_with_error(false, || StepError::again("busy").after(Duration::from_millis(1_500)));
    let retry_after = Some(crate::effect::call::RetryAfter::Seconds(2));
    assert_eq!(later.0, ended(AttemptOutcome::Status(Status { retry_after, ..Status::of(429) }), "busy"));
    let refused = attempt_with_error(false, || StepError::rejected("declined"));
    assert_eq!(
        refused,
        (ended(AttemptOutcome::Refused, "declined"), vec![rejected("pay", "declined"), rejected("", "declined")])
    );
    // The refusal says nothing about the earlier attempt.
    let (doubted, journal) = attempt_with_error(true, || StepError::rejected("declined"));
    let in_doubt = AttemptOutcome::Status(Status { is_replayed: true, ..Status::of(500) });
    let message = "the step `pay` was refused, but an earlier attempt may have done it: declined";
    assert_eq!((doubted, journal), (ended(in_doubt, message), vec![]));
}

#[test]
fn finished_steps_are_committed_when_a_later_one_fails() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        steps.call("one", async |_| Ok(1)).await.map(|_: u32| ())?;
        Err::<(), _>(StepError::again("not now"))
    });
    assert_eq!(engine.attempt(), EngineEvent::Over(AttemptOutcome::NotSent, Body::None, Some("not now".to_owned())));
    assert_eq!(engine.journal, [done("one", "1")]);
}

#[test]
fn no_step_begins_after_one_that_failed() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        let _ = steps.call("one", async |_| Err::<(), _>(StepError::unknown("lost"))).await;
        steps.call("two", async |_| -> Result<(), StepError> { panic!("it must not begin") }).await?;
        Ok(())
    });
    assert_eq!(engine.attempt(), EngineEvent::Over(AttemptOutcome::Lost, Body::None, Some("lost".to_owned())));
}

#[test]
fn full_journal_stops_the_task_before_the_next_step() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        for number in 0..20 {
            steps.call(&format!("{number}"), async |_| Ok("x".repeat(60_000))).await?;
        }
        Ok(())
    });
    let EngineEvent::MustStopTask(reason) = engine.attempt() else {
        panic!("the task does not stop although the journal is full")
    };
    assert!(reason.contains("768 KiB") && engine.journal.len() == 11, "{reason} {}", engine.journal.len());
}

#[test]
fn refused_step_may_be_followed_by_an_alternative() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        match steps.call("card", async |_| Err::<(), _>(StepError::rejected("declined"))).await {
            Err(error) if error.is_rejected() => steps.call("invoice", async |_| Ok("by mail".to_owned())).await,
            other => other.map(|()| String::new()),
        }
    });
    assert_eq!(engine.attempt(), ok("by mail"));
    assert_eq!(engine.journal, [rejected("card", "declined")]);
    // The recorded refusal is returned without another call.
    assert_eq!(engine.attempt(), ok("by mail"));
}

#[test]
fn steps_that_differ_from_the_journal_stop_the_task() {
    let two = async |_: &Record, steps: &mut Steps| {
        steps.call("one", async |_| Ok(1)).await?;
        steps.call("two", async |_| Ok(2)).await.map(|_: u32| ())
    };
    let cases = [
        (vec![done("zero", "0")], "remembered are `zero`; now there are `one`"),
        (vec![done("one", "1"), done("three", "3")], "remembered are `one`, `three`; now there are `one`, `two`"),
        (
            vec![done("one", "1"), done("two", "2"), done("three", "3")],
            "`one`, `two`, `three`; now there are `one`, `two`",
        ),
        (vec![done("one", "\"s3cret\"")], "cannot read the remembered result of the step `one` (line 1, column 8)"),
        (vec![done("one", "1"), rejected("", "no")], "remembered are `one`, (rejected); now there are `one`, `two`"),
    ];
    for (journal, message) in cases {
        let mut engine = Engine::of(keyed(), two);
        engine.journal = journal.clone();
        let EngineEvent::MustStopTask(reason) = engine.attempt() else { panic!("{journal:?} does not stop") };
        assert!(reason.contains(message) && !reason.contains("s3cret"), "{reason}");
        assert_eq!(engine.calls.in_flight(), 0);
    }
}

#[test]
fn mistake_of_the_program_stops_the_task() {
    let stops = |function: fn(usize) -> Vec<String>, message: &str| {
        let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
            for name in function(0) {
                steps.call(&name, async |_| Ok("x".repeat(if name == "long" { 70_000 } else { 1 }))).await?;
            }
            Ok(())
        });
        let EngineEvent::MustStopTask(reason) = engine.attempt() else { panic!("{message}") };
        assert!(reason.contains(message), "{reason}");
    };
    stops(|_| vec!["a".to_owned(), "a".to_owned()], "there are two steps named `a`");
    stops(|_| vec![String::new()], "1 to 255 bytes");
    stops(|_| vec!["long".to_owned()], "has 70002 bytes as JSON");
    let mut engine =
        Engine::of(keyed(), async |_: &Record, steps: &mut Steps| steps.transaction("db", async |_| Ok(())).await);
    let EngineEvent::MustStopTask(reason) = engine.attempt() else {
        panic!("the task does not stop although it has no database")
    };
    assert!(reason.contains("`Worker::postgres`"), "{reason}");
}
