//! Goal: the work of a rejected record is undone in reverse order, under keys of its own, and only if the rejection is
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
    let Next::Stops(reason) = engine.attempt() else { panic!("there are two of that name, and it does not stop") };
    assert!(reason.contains("there are two compensations named `refund`"), "{reason}");
}

/// With the same key, the other system would take one for a repetition of the other.
#[test]
fn compensation_has_a_different_key_from_a_step_of_its_name() {
    static KEYS: Mutex<Vec<(&str, Key)>> = Mutex::new(Vec::new());
    let keep = |what, key| {
        KEYS.lock().unwrap().push((what, key));
        Ok(())
    };
    let mut engine = Engine::of(keyed(), async move |_: &Record, steps: &mut Steps| {
        steps.call("charge", async |key| keep("charge", key)).await?;
        steps.compensate("charge", async move |key| keep("undo charge", key));
        steps.compensate("mail", async move |key| keep("undo mail", key));
        // Begun after the compensation of the same name was registered.
        steps.call("mail", async |key| keep("mail", key)).await?;
        Err::<(), _>(StepError::rejected("sold out"))
    });
    let over = Next::Over(Answer::Refused, Body::None, Some("sold out".to_owned()));
    assert_eq!(engine.attempt(), over);
    let keys = std::mem::take(&mut *KEYS.lock().unwrap());
    let work = work("{\"id\":1}");
    let expected = [
        ("charge", work.key_of(StepOf::Does("charge"))),
        ("mail", work.key_of(StepOf::Does("mail"))),
        ("undo mail", work.key_of(StepOf::Undoes("mail"))),
        ("undo charge", work.key_of(StepOf::Undoes("charge"))),
    ];
    assert_eq!(keys, expected);
    assert!(expected.iter().all(|(what, key)| expected.iter().all(|(other, of)| what == other || key != of)));
    let names: Vec<_> = engine.journal.iter().map(|step| step.name.as_str()).collect();
    assert_eq!(names, ["charge", "mail", "", "mail", "charge"]);
    // Run again, it gets what was recorded, and nothing acts.
    assert_eq!(engine.attempt(), over);
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
    let over = Next::Over(Answer::Refused, Body::None, Some("no such place".to_owned()));
    assert_eq!(engine.attempt(), over);
    let journal = [
        done("reserve", "null"),
        done("charge", "null"),
        rejected("ship", "no such place"),
        rejected("", "no such place"),
        done("undo charge", "null"),
        done("undo reserve", "null"),
    ];
    assert_eq!(engine.journal, journal);
    // From each point on it reaches the same end, even if an earlier attempt may have begun the next step.
    engine.may_have_acted = true;
    for kept in (0..=journal.len()).filter(|kept| *kept != 2) {
        engine.journal = journal[..kept].to_vec();
        let ended = engine.attempt();
        assert_eq!((kept, &ended), (kept, &over));
        assert_eq!(engine.journal, journal, "{kept}");
    }
}

/// Nothing says that the step which an earlier attempt may have begun was refused.
#[test]
fn functions_own_rejection_after_an_attempt_is_not_certain() {
    let refuses = async |_: &Record, _: &mut Steps| Err::<(), _>(StepError::rejected("no"));
    for (may_have_acted, expected) in [(false, Answer::Refused), (true, Answer::Status(Status::of(422)))] {
        let mut engine = Engine::of(keyed(), refuses);
        engine.may_have_acted = may_have_acted;
        assert_eq!(engine.attempt(), Next::Over(expected, Body::None, Some("no".to_owned())));
    }
}

#[test]
fn work_that_cannot_be_undone_is_in_doubt() {
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        steps.call("charge", async |_| Ok(())).await?;
        steps.compensate("refund", async |_| Err(StepError::rejected("too late")));
        Err::<(), _>(StepError::rejected("sold out"))
    });
    let Next::Over(Answer::HalfDone, _, Some(words)) = engine.attempt() else { panic!("it is not half done") };
    assert!(words.contains("`refund`") && words.contains("sold out"), "{words}");
    // Even if an earlier attempt may have undone it, a refusal leaves the work half done.
    engine.journal.truncate(2);
    engine.may_have_acted = true;
    let Next::Over(Answer::HalfDone, _, Some(words)) = engine.attempt() else { panic!("it is not half done") };
    assert!(words.contains("`refund`") && words.contains("an earlier attempt may have done it"), "{words}");
    let mut engine = Engine::of(keyed(), async |_: &Record, steps: &mut Steps| {
        steps.call("charge", async |_| Ok(())).await?;
        steps.compensate("refund", async |_| Err(StepError::unknown("no answer")));
        Err::<(), _>(StepError::rejected("sold out"))
    });
    assert_eq!(engine.attempt(), Next::Over(Answer::Lost, Body::None, Some("no answer".to_owned())));
}
