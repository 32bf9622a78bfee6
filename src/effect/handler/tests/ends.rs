//! Goal: an attempt ends alone, wherever it is, and its lane hears what is certain then.

use super::*;

/// What was begun may have acted, whatever the function makes of it.
#[test]
fn step_whose_future_is_dropped_ends_the_attempt() {
    for says in ["done", "refused", "goes on"] {
        let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
            let never = steps.call("one", async |_| std::future::pending::<Result<(), StepError>>().await);
            assert!(tokio::time::timeout(Duration::from_millis(20), never).await.is_err());
            match says {
                "done" => Ok(()),
                "refused" => Err(StepError::rejected("no")),
                _ => steps.call("two", async |_| -> Result<(), StepError> { panic!("it must not begin") }).await,
            }
        });
        let Next::Over(answer, _, Some(words)) = engine.attempt() else { panic!("it is over") };
        assert_eq!(
            (answer, words.contains("`one` was begun, and its future was dropped")),
            (Answer::Lost, true),
            "{words}"
        );
    }
}

#[test]
fn panic_and_time_out_end_the_attempt_alone() {
    for (acts, expected) in [(true, Answer::Lost), (false, Answer::NotSent)] {
        let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
            steps.call("one", async |_| if acts { panic!("broken") } else { Ok(()) }).await?;
            steps.call("two", async |_| Ok(())).await?;
            if true { panic!("broken") } else { Ok(()) }
        });
        if !acts {
            engine.journal = vec![done("one", "null"), done("two", "null")];
        }
        let Next::Over(answer, _, Some(words)) = engine.attempt() else { panic!("it is over") };
        assert_eq!((answer, words.as_str()), (expected, "the handler has panicked: broken"));
        let slow = Settings { timeout: Duration::from_millis(50), ..keyed() };
        let mut engine = Engine::of(slow, async move |_: &Record, steps: &mut Steps| {
            if acts {
                steps.call("one", async |_| std::future::pending::<Result<(), StepError>>().await).await
            } else {
                std::future::pending().await
            }
        });
        let Next::Over(answer, _, Some(words)) = engine.attempt() else { panic!("it is over") };
        assert_eq!((answer, words.as_str()), (expected, "a step has not ended within 50ms"));
    }
}

/// However long it takes: the time-out is the function's, and not Kafka's.
#[test]
fn waiting_for_a_commit_is_no_time_out() {
    let slow = Settings { timeout: Duration::from_millis(50), ..keyed() };
    let mut engine = Engine::of(slow, async |_: &Record, steps: &mut Steps| {
        steps.call("one", async |_| Ok(())).await?;
        steps.call("two", async |_| Ok(())).await
    });
    engine.submit();
    assert!(matches!(engine.next(), Next::Steps(_)));
    std::thread::sleep(Duration::from_millis(200));
    engine.calls.journaled(1, 1_000_000);
    assert_eq!(engine.next(), Next::Over(Answer::Status(Status::of(200)), Body::None, None));
}

#[test]
fn window_of_the_key_is_looked_at_as_each_step_begins() {
    let now = Arc::new(AtomicI64::new(1_000_000));
    let clock = Arc::clone(&now);
    let settings = Settings { clock: Arc::new(move || clock.load(Ordering::SeqCst)), ..keyed() };
    let mut engine = Engine::of(settings, async |_: &Record, steps: &mut Steps| {
        steps.call("one", async |_| Ok(())).await?;
        steps.call("two", async |_| Ok(())).await
    });
    engine.submit();
    assert!(matches!(engine.next(), Next::Steps(_)));
    now.fetch_add(90_000, Ordering::SeqCst);
    // By the time of its first attempt it is too late, by that of the commit it is not.
    engine.calls.journaled(1, 1_000_000);
    assert!(matches!(engine.next(), Next::Over(Answer::TooLate, ..)));
    engine.journal = vec![done("one", "null")];
    engine.first_at_ms = 1_090_000;
    assert_eq!(engine.attempt(), Next::Over(Answer::Status(Status::of(200)), Body::None, None));
}

#[test]
fn run_that_is_abandoned_ends_where_it_is() {
    struct Gone(Arc<AtomicUsize>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    static BEGAN: AtomicUsize = AtomicUsize::new(0);
    let gone = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&gone);
    let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
        let _gone = Gone(Arc::clone(&counted));
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
    assert!(matches!(engine.next(), Next::Over(Answer::Lost, ..)));
    assert_eq!(gone.load(Ordering::SeqCst), 1);
}

#[test]
fn larger_reply_is_kept_as_its_digest() {
    let mut engine = Engine::of(keyed(), async |_: &Record, _: &mut Steps| Ok("x".repeat(1025)));
    let Next::Over(_, Body::Digest { bytes: 1025, .. }, None) = engine.attempt() else { panic!("a digest") };
    let unwanted = Settings { result_max: None, ..keyed() };
    let mut engine = Engine::of(unwanted, async |_: &Record, _: &mut Steps| Ok("x".to_owned()));
    assert_eq!(engine.attempt(), Next::Over(Answer::Status(Status::of(200)), Body::None, None));
}

#[test]
fn value_that_cannot_be_read_is_refused_without_being_quoted() {
    #[derive(Debug, serde::Deserialize)]
    struct Order {
        #[serde(rename = "amount")]
        _amount: u64,
    }
    let mut engine = Engine::of(keyed(), async |record: &Record, _: &mut Steps| record.json::<Order>().map(|_| ()));
    let Next::Over(answer, _, Some(words)) = engine.attempt() else { panic!("it is over") };
    assert_eq!(answer, Answer::Refused);
    assert_eq!(words, "the value is not as the handler reads it (line 1, column 8)");
}

#[test]
fn at_most_so_many_run_at_once_and_all_of_them_end() {
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
        let (asks, journal) = (Asks::Handler(work("{}")), Arc::default());
        calls.submit(Request { number, attempt: 1, first_at_ms: 1_000_000, may_have_acted: false, asks, journal });
    }
    let (mut heard, since) = (VecDeque::new(), Instant::now());
    while heard.len() < 40 {
        heard.extend(calls.take());
        assert!(since.elapsed() < PATIENCE, "{} were heard", heard.len());
    }
    assert_eq!(MOST.load(Ordering::SeqCst), 8);
}
