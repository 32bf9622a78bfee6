//! Goal: the work for a rejected record is undone in reverse order, under separate keys, and only if the rejection is
//! certain.

use super::*;

#[test]
fn second_compensation_of_a_name_stops_the_task_at_once() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        steps.call("charge", async |_| Ok(())).await?;
        steps.compensate("refund", async |_| Ok(()));
        steps.compensate("refund", async |_| Ok(()));
        steps.call("ship", async |_| -> Result<(), StepError> { panic!("it must not begin") }).await
    });
    let EngineEvent::MustStopTask(reason) = engine.attempt() else {
        panic!("the task does not stop although two compensations have the same name")
    };
    assert!(reason.contains("there are two compensations named `refund`"), "{reason}");
}

/// With the same key, the other system would take the compensation for a repetition of the step.
#[test]
fn compensation_has_a_different_key_from_a_step_of_its_name() {
    static KEYS: Mutex<Vec<(&str, Key)>> = Mutex::new(Vec::new());
    let collect = |what, key| {
        KEYS.lock().unwrap().push((what, key));
        Ok(())
    };
    let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
        steps.call("charge", async |key| collect("charge", key)).await?;
        steps.compensate("charge", async move |key| collect("undo charge", key));
        steps.compensate("mail", async move |key| collect("undo mail", key));
        // Begun after the compensation of the same name was registered.
        steps.call("mail", async |key| collect("mail", key)).await?;
        Err::<(), _>(StepError::rejected("sold out"))
    });
    let ended = EngineEvent::Over(AttemptOutcome::Refused, Body::None, Some("sold out".to_owned()));
    assert_eq!(engine.attempt(), ended);
    let keys = std::mem::take(&mut *KEYS.lock().unwrap());
    let work = work("{\"id\":1}");
    let expected = [
        ("charge", work.step_key(StepName::Action("charge"))),
        ("mail", work.step_key(StepName::Action("mail"))),
        ("undo mail", work.step_key(StepName::Compensation("mail"))),
        ("undo charge", work.step_key(StepName::Compensation("charge"))),
    ];
    assert_eq!(keys, expected);
    assert!(expected.iter().all(|(what, key)| expected.iter().all(|(other, of)| what == other || key != of)));
    let names: Vec<_> = engine.journal.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["charge", "mail", "", "mail", "charge"]);
    // A second run gets the recorded outcomes, and no step acts.
    assert_eq!(engine.attempt(), ended);
    assert!(KEYS.lock().unwrap().is_empty());
}

#[test]
fn rejected_work_is_undone_in_reverse() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        for name in ["reserve", "charge"] {
            steps.call(name, async |_| Ok(())).await?;
            steps.compensate(&format!("undo {name}"), async |_| Ok(()));
        }
        steps.call("ship", async |_| Err::<(), _>(StepError::rejected("no such place"))).await
    });
    let ended = EngineEvent::Over(AttemptOutcome::Refused, Body::None, Some("no such place".to_owned()));
    assert_eq!(engine.attempt(), ended);
    let journal = [
        done("reserve", "null"),
        done("charge", "null"),
        rejected("ship", "no such place"),
        rejected("", "no such place"),
        done("undo charge", "null"),
        done("undo reserve", "null"),
    ];
    assert_eq!(engine.journal, journal);
    // From each entry of the journal on, the run has the same end, even if an earlier attempt may have begun the next
    // step.
    engine.may_have_acted = true;
    for length in (0..=journal.len()).filter(|length| *length != 2) {
        engine.journal = journal[..length].to_vec();
        let end = engine.attempt();
        assert_eq!((length, &end), (length, &ended));
        assert_eq!(engine.journal, journal, "{length}");
    }
}

/// An earlier attempt may have begun a step, and it is unknown whether that step was refused.
#[test]
fn rejection_by_the_function_is_uncertain_after_an_attempt_that_may_have_acted() {
    let refuses = async |_: &Record, _: &mut Steps| Err::<(), _>(StepError::rejected("no"));
    for (may_have_acted, expected) in
        [(false, AttemptOutcome::Refused), (true, AttemptOutcome::Status(Status::of(422)))]
    {
        let mut engine = Engine::of(keyed(), refuses);
        engine.may_have_acted = may_have_acted;
        assert_eq!(engine.attempt(), EngineEvent::Over(expected, Body::None, Some("no".to_owned())));
    }
}

#[test]
fn work_whose_compensation_is_refused_is_half_done() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        steps.call("charge", async |_| Ok(())).await?;
        steps.compensate("refund", async |_| Err(StepError::rejected("too late")));
        Err::<(), _>(StepError::rejected("sold out"))
    });
    let EngineEvent::Over(AttemptOutcome::HalfDone, _, Some(message)) = engine.attempt() else {
        panic!("it is not half done")
    };
    assert!(message.contains("`refund`") && message.contains("sold out"), "{message}");
    // Even if an earlier attempt may have undone the work, a refused compensation leaves it half done.
    engine.journal.truncate(2);
    engine.may_have_acted = true;
    let EngineEvent::Over(AttemptOutcome::HalfDone, _, Some(message)) = engine.attempt() else {
        panic!("it is not half done")
    };
    assert!(message.contains("`refund`") && message.contains("an earlier attempt may have done it"), "{message}");
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        steps.call("charge", async |_| Ok(())).await?;
        steps.compensate("refund", async |_| Err(StepError::unknown("no answer")));
        Err::<(), _>(StepError::rejected("sold out"))
    });
    assert_eq!(engine.attempt(), EngineEvent::Over(AttemptOutcome::Lost, Body::None, Some("no answer".to_owned())));
}
