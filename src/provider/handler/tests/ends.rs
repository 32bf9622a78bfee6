//! Goal: the end of an attempt affects no other attempt, and its report is true.

use super::*;

/// The step may have acted, whatever the function returns.
#[test]
fn step_whose_future_is_dropped_ends_the_attempt() {
    for behaviour in ["done", "refused", "goes on"] {
        let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
            let never = steps.call("one", async |_| std::future::pending::<Result<(), StepError>>().await);
            assert!(tokio::time::timeout(Duration::from_millis(20), never).await.is_err());
            match behaviour {
                "done" => Ok(()),
                "refused" => Err(StepError::rejected("no")),
                _ => steps.call("two", async |_| -> Result<(), StepError> { panic!("it must not begin") }).await,
            }
        });
        let EngineEvent::Over(outcome, _, Some(message)) = engine.attempt() else {
            panic!("the attempt has not ended")
        };
        assert_eq!(
            (outcome, message.contains("the future of the step `one` was dropped before it had finished")),
            (AttemptOutcome::Lost, true),
            "{message}"
        );
    }
}

#[test]
fn panic_and_timeout_end_the_attempt() {
    for (acts, expected) in [(true, AttemptOutcome::Lost), (false, AttemptOutcome::NotSent)] {
        let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
            steps.call("one", async |_| if acts { panic!("broken") } else { Ok(()) }).await?;
            steps.call("two", async |_| Ok(())).await?;
            if true { panic!("broken") } else { Ok(()) }
        });
        if !acts {
            engine.journal = vec![done("one", "null"), done("two", "null")];
        }
        let EngineEvent::Over(outcome, _, Some(message)) = engine.attempt() else {
            panic!("the attempt has not ended")
        };
        assert_eq!((outcome, message.as_str()), (expected, "the handler panicked: broken"));
        let slow = Settings { timeout: Duration::from_millis(50), ..keyed() };
        let mut engine = Engine::of(slow, async move |_: &Record, steps: &mut Steps| {
            if acts {
                steps.call("one", async |_| std::future::pending::<Result<(), StepError>>().await).await
            } else {
                std::future::pending().await
            }
        });
        let EngineEvent::Over(outcome, _, Some(message)) = engine.attempt() else {
            panic!("the attempt has not ended")
        };
        assert_eq!(
            (outcome, message.as_str()),
            (expected, "a step, with the work around it, has taken longer than 50ms")
        );
    }
}

/// However long the commit takes: the timeout is for the function, not for Kafka.
#[test]
fn waiting_for_a_commit_does_not_time_out() {
    let slow = Settings { timeout: Duration::from_millis(50), ..keyed() };
    let mut engine = Engine::of(slow, async |_: &Record, steps: &mut Steps| {
        steps.call("one", async |_| Ok(())).await?;
        steps.call("two", async |_| Ok(())).await
    });
    engine.submit();
    assert!(matches!(engine.next(), EngineEvent::Steps(_)));
    std::thread::sleep(Duration::from_millis(200));
    engine.calls.resume_after_commit(1, 1_000_000);
    assert_eq!(engine.next(), EngineEvent::Over(AttemptOutcome::Status(Status::of(200)), Body::None, None));
}

#[test]
fn key_window_is_checked_as_each_step_begins() {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&now);
    let settings = Settings { clock: Arc::new(move || clock.load(Ordering::SeqCst)), ..keyed() };
    let mut engine = Engine::of(settings, async |_: &Record, steps: &mut Steps| {
        steps.call("one", async |_| Ok(())).await?;
        steps.call("two", async |_| Ok(())).await
    });
    engine.submit();
    assert!(matches!(engine.next(), EngineEvent::Steps(_)));
    now.fetch_add(90_000, Ordering::SeqCst);
    // The window has passed since the first attempt, but not since the commit.
    engine.calls.resume_after_commit(1, 1_000_000);
    assert!(matches!(engine.next(), EngineEvent::Over(AttemptOutcome::TooLate, ..)));
    engine.journal = vec![done("one", "null")];
    engine.first_attempt_at_ms = 1_090_000;
    assert_eq!(engine.attempt(), EngineEvent::Over(AttemptOutcome::Status(Status::of(200)), Body::None, None));
}

#[test]
fn abandoned_run_ends_at_its_current_await() {
    struct DropCounter(Arc<AtomicUsize>);
    impl Drop for DropCounter {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    static BEGAN: AtomicUsize = AtomicUsize::new(0);
    let drops = Arc::new(AtomicUsize::new(0));
    let drop_count = Arc::clone(&drops);
    let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
        let _gone = DropCounter(Arc::clone(&drop_count));
        BEGAN.store(1, Ordering::SeqCst);
        steps.call("one", async |_| std::future::pending::<Result<(), StepError>>().await).await
    });
    engine.submit();
    let since = Instant::now();
    while BEGAN.load(Ordering::SeqCst) == 0 {
        assert!(since.elapsed() < PATIENCE);
    }
    assert!(!engine.calls.withdraw(1), "it is under way");
    engine.calls.abandon(1);
    assert!(matches!(engine.next(), EngineEvent::Over(AttemptOutcome::Lost, ..)));
    assert_eq!(drops.load(Ordering::SeqCst), 1);
}

#[test]
fn overlong_reply_is_kept_as_its_digest() {
    let mut engine = Engine::of(keyed(), async |_: &Record, _: &mut Steps| Ok("x".repeat(1025)));
    let EngineEvent::Over(_, Body::Digest { bytes: 1025, .. }, None) = engine.attempt() else {
        panic!("it is not a digest")
    };
    let unwanted = Settings { reply_bytes_max: None, ..keyed() };
    let mut engine = Engine::of(unwanted, async |_: &Record, _: &mut Steps| Ok("x".to_owned()));
    assert_eq!(engine.attempt(), EngineEvent::Over(AttemptOutcome::Status(Status::of(200)), Body::None, None));
}

#[test]
fn unreadable_value_is_rejected_and_not_quoted() {
    #[derive(Debug, serde::Deserialize)]
    struct Order {
        #[serde(rename = "amount")]
        _amount: u64,
    }
    let mut engine = Engine::of(keyed(), async |record: &Record, _: &mut Steps| record.json::<Order>().map(|_| ()));
    let EngineEvent::Over(outcome, _, Some(message)) = engine.attempt() else { panic!("the attempt has not ended") };
    assert_eq!(outcome, AttemptOutcome::Refused);
    assert_eq!(message, "the value does not have the form that the handler expects (line 1, column 8)");
}

#[test]
fn number_of_concurrent_functions_is_bounded_and_each_function_ends() {
    static NOW: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let mut calls = Handler::new(
        Function::new(async |_: &Record, steps: &mut Steps| {
            MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
            NOW.fetch_sub(1, Ordering::SeqCst);
            steps.call("one", async |_| Ok(())).await
        }),
        keyed(),
    )
    .calls();
    for number in 0..40 {
        let (payload, journal) = (Payload::Handler(work("{}")), Arc::default());
        calls.submit(Request {
            number,
            attempt: 1,
            first_attempt_at_ms: 1_000_000,
            may_have_acted: false,
            payload,
            journal,
        });
    }
    let (mut ends, since) = (VecDeque::new(), Instant::now());
    while ends.len() < 40 {
        ends.extend(calls.take_end());
        assert!(since.elapsed() < PATIENCE, "{} outcomes were reported", ends.len());
    }
    assert_eq!(MOST.load(Ordering::SeqCst), 8);
}
