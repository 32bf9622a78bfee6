//! Goal: outcomes have the classes of the table, with and without a key, and a topology can override them.

use super::*;

const fn status(code: u16) -> AttemptOutcome {
    AttemptOutcome::Status(Status::of(code))
}

const fn naming_key(code: u16) -> AttemptOutcome {
    AttemptOutcome::Status(Status { names_key: true, ..Status::of(code) })
}

const fn replayed(code: u16) -> AttemptOutcome {
    AttemptOutcome::Status(Status { is_replayed: true, ..Status::of(code) })
}

fn classify(overrides: &Answers, outcome: AttemptOutcome, has_key: bool) -> (Class, bool) {
    let Classification { class, may_have_acted } = overrides.read(&outcome, has_key);
    (class, may_have_acted)
}

#[test]
fn outcomes_have_the_classes_of_the_table() {
    use Class::*;
    let cases = [
        (AttemptOutcome::NotSent, Again, Again, false),
        (AttemptOutcome::TooLate, Again, Again, false),
        (AttemptOutcome::Lost, Again, InDoubt, true),
        (AttemptOutcome::Refused, Rejected, Rejected, false),
        (AttemptOutcome::HalfDone, InDoubt, InDoubt, true),
        (status(200), Done, Done, true),
        (status(201), Done, Done, true),
        (status(204), Done, Done, true),
        (status(299), Done, Done, true),
        (replayed(201), Done, Done, true),
        (status(300), Hold, InDoubt, true),
        (status(301), Hold, Hold, false),
        (status(302), Hold, InDoubt, true),
        (status(303), Hold, InDoubt, true),
        (status(304), Hold, InDoubt, true),
        (status(307), Hold, Hold, false),
        (status(308), Hold, Hold, false),
        (status(400), Rejected, Rejected, false),
        (naming_key(400), Conflict, Rejected, false),
        (status(401), Hold, Hold, false),
        (status(402), Rejected, Rejected, false),
        (status(403), Hold, Hold, false),
        (status(404), Rejected, Rejected, false),
        (status(405), Rejected, Rejected, false),
        (status(407), Hold, Hold, false),
        (status(408), Again, InDoubt, true),
        (status(409), InProgress, InDoubt, true),
        (naming_key(409), InProgress, InDoubt, true),
        (status(410), Rejected, Rejected, false),
        (status(413), Rejected, Rejected, false),
        (status(421), Again, Again, false),
        (status(422), Rejected, Rejected, false),
        (naming_key(422), Conflict, Rejected, false),
        (naming_key(404), Rejected, Rejected, false),
        (status(425), Again, InDoubt, true),
        (status(429), Again, Again, false),
        (status(451), Rejected, Rejected, false),
        (status(500), Again, InDoubt, true),
        (status(501), Again, InDoubt, true),
        (status(502), Again, InDoubt, true),
        (status(503), Again, InDoubt, true),
        (status(504), Again, InDoubt, true),
        (replayed(500), InDoubt, InDoubt, true),
        (replayed(402), Rejected, Rejected, false),
        (status(100), Again, InDoubt, true),
        (status(199), Again, InDoubt, true),
        (status(600), Again, InDoubt, true),
        (status(0), Again, InDoubt, true),
    ];
    for (outcome, class_with_key, class_without_key, may_have_acted) in cases {
        let overrides = Answers::default();
        assert_eq!(classify(&overrides, outcome, true), (class_with_key, may_have_acted), "{outcome:?} with a key");
        assert_eq!(
            classify(&overrides, outcome, false),
            (class_without_key, may_have_acted),
            "{outcome:?} without a key"
        );
    }
}

#[test]
fn without_a_key_no_request_that_may_have_acted_is_sent_again() {
    let all = (0..=u16::MAX).flat_map(|code| [status(code), naming_key(code), replayed(code)]);
    for outcome in all.chain([
        AttemptOutcome::NotSent,
        AttemptOutcome::Lost,
        AttemptOutcome::TooLate,
        AttemptOutcome::Refused,
        AttemptOutcome::HalfDone,
    ]) {
        let Classification { class, may_have_acted } = Answers::default().read(&outcome, false);
        let is_sent_again = matches!(class, Class::Again | Class::InProgress | Class::Hold);
        assert!(!is_sent_again || !may_have_acted, "{outcome:?}");
    }
}

#[test]
fn topology_overrides_classes() {
    use Class::*;
    let overrides = Answers::new(vec![
        (StatusCodes::One(404), OverrideClass::Done),
        (StatusCodes::Hundred(4), OverrideClass::Again),
        (StatusCodes::One(503), OverrideClass::Hold),
        (StatusCodes::One(409), OverrideClass::Rejected),
        (StatusCodes::One(202), OverrideClass::InDoubt),
        (StatusCodes::One(418), OverrideClass::Conflict),
    ])
    .unwrap();
    let cases = [
        ("a code", status(404), Done, false),
        ("a hundred", status(410), Again, false),
        ("a hundred, even if the response names the key", naming_key(422), Again, false),
        ("a code before its hundred", status(409), Rejected, true),
        ("an override leaves the doubt whether it acted", status(503), Hold, true),
        ("in doubt", status(202), InDoubt, true),
        ("conflict", status(418), Conflict, false),
        ("a code without an override", status(200), Done, true),
        ("an attempt without a response", AttemptOutcome::NotSent, Again, false),
    ];
    for (case, outcome, class, may_have_acted) in cases {
        assert_eq!(classify(&overrides, outcome, true), (class, may_have_acted), "{case}");
    }
    assert_eq!(classify(&overrides, status(503), false), (Hold, true), "without a key");
}

#[test]
fn two_overrides_for_the_same_codes_are_an_error() {
    let duplicates = vec![
        (StatusCodes::One(404), OverrideClass::Done),
        (StatusCodes::Hundred(4), OverrideClass::Hold),
        (StatusCodes::One(404), OverrideClass::Done),
    ];
    let error = Answers::new(duplicates).unwrap_err();
    assert_eq!(error, Error::Twice(StatusCodes::One(404)));
    assert_eq!(error.to_string(), "the answers 404 are listed twice: remove one of the entries");
}

#[test]
fn codes_are_parsed() {
    let cases = [
        ("404", Some(StatusCodes::One(404))),
        ("100", Some(StatusCodes::One(100))),
        ("599", Some(StatusCodes::One(599))),
        ("5xx", Some(StatusCodes::Hundred(5))),
        ("1xx", Some(StatusCodes::Hundred(1))),
        ("600", None),
        ("099", None),
        ("40", None),
        ("4040", None),
        ("+40", None),
        ("0xx", None),
        ("6xx", None),
        ("xx", None),
        ("44xx", None),
        ("4XX", None),
        ("", None),
        ("timeout", None),
    ];
    for (text, expected) in cases {
        assert_eq!(StatusCodes::parse(text), expected, "{text}");
        assert!(expected.is_none_or(|codes| codes.to_string() == text), "{text}");
    }
}

#[test]
fn overrides_are_named_like_their_classes() {
    let names: Vec<&str> = OverrideClass::ALL.iter().map(|named| named.as_str()).collect();
    assert_eq!(names, ["done", "again", "hold", "conflict", "rejected", "in_doubt"]);
    assert_eq!(Class::InProgress.to_string(), "in_progress");
}

#[test]
fn body_that_names_the_key_is_recognised() {
    let header = "X-Request-Key";
    let cases = [
        (&br#"{"error": {"type": "idempotency_error"}}"#[..], true),
        (br#"{"title": "Idempotency-Key is already used"}"#, true),
        (b"IDEMPOTENCY", true),
        (b"x-request-key was used with another body", true),
        (b"the amount is negative", false),
        (b"idempotenc", false),
        (b"", false),
    ];
    for (body, expected) in cases {
        assert_eq!(names_key(body, header), expected, "{}", String::from_utf8_lossy(body));
    }
    assert!(!names_key(b"anything", ""), "a header without a name");
}

#[test]
fn replay_is_recognised() {
    let cases = [
        ("idempotent-replayed", "true", true),
        ("Idempotent-Replayed", " True ", true),
        ("idempotency-replayed", "true", true),
        ("idempotent-replayed", "false", false),
        ("idempotency-key", "true", false),
    ];
    for (name, value, expected) in cases {
        assert_eq!(is_replay_marker(name, value), expected, "{name}: {value}");
    }
}
