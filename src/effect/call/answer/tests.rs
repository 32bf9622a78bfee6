//! Goal: each row of the table of answers, with and without a key, and what a topology can change about it.

use super::*;

const fn status(code: u16) -> Answer {
    Answer::Status(Status::of(code))
}

const fn naming_key(code: u16) -> Answer {
    Answer::Status(Status { names_key: true, ..Status::of(code) })
}

const fn replayed(code: u16) -> Answer {
    Answer::Status(Status { is_replayed: true, ..Status::of(code) })
}

fn read(answers: &Answers, answer: Answer, has_key: bool) -> (Class, bool) {
    let Reading { class, may_have_acted } = answers.read(&answer, has_key);
    (class, may_have_acted)
}

#[test]
fn answers_have_the_classes_of_the_table() {
    use Class::*;
    let cases = [
        (Answer::NotSent, Again, Again, false),
        (Answer::TooLate, Again, Again, false),
        (Answer::Lost, Again, InDoubt, true),
        (Answer::Refused, Rejected, Rejected, false),
        (Answer::HalfDone, InDoubt, InDoubt, true),
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
    for (answer, with_key, without, may_have_acted) in cases {
        let answers = Answers::default();
        assert_eq!(read(&answers, answer, true), (with_key, may_have_acted), "{answer:?} with a key");
        assert_eq!(read(&answers, answer, false), (without, may_have_acted), "{answer:?} without a key");
    }
}

#[test]
fn without_a_key_no_request_that_may_have_acted_is_sent_again() {
    let all = (0..=u16::MAX).flat_map(|code| [status(code), naming_key(code), replayed(code)]);
    for answer in all.chain([Answer::NotSent, Answer::Lost, Answer::TooLate, Answer::Refused, Answer::HalfDone]) {
        let Reading { class, may_have_acted } = Answers::default().read(&answer, false);
        let goes_again = matches!(class, Class::Again | Class::InProgress | Class::Hold);
        assert!(!goes_again || !may_have_acted, "{answer:?}");
    }
}

#[test]
fn topology_overrides_classes() {
    use Class::*;
    let answers = Answers::new(vec![
        (Codes::One(404), Named::Done),
        (Codes::Hundred(4), Named::Again),
        (Codes::One(503), Named::Hold),
        (Codes::One(409), Named::Rejected),
        (Codes::One(202), Named::InDoubt),
        (Codes::One(418), Named::Conflict),
    ])
    .unwrap();
    let cases = [
        ("a code", status(404), Done, false),
        ("a hundred", status(410), Again, false),
        ("a hundred, even if the answer names the key", naming_key(422), Again, false),
        ("a code before its hundred", status(409), Rejected, true),
        ("may have acted all the same", status(503), Hold, true),
        ("in doubt", status(202), InDoubt, true),
        ("conflict", status(418), Conflict, false),
        ("what is not named", status(200), Done, true),
        ("no answer has no code", Answer::NotSent, Again, false),
    ];
    for (case, answer, class, may_have_acted) in cases {
        assert_eq!(read(&answers, answer, true), (class, may_have_acted), "{case}");
    }
    assert_eq!(read(&answers, status(503), false), (Hold, true), "without a key");
}

#[test]
fn naming_codes_twice_is_an_error() {
    let twice = vec![(Codes::One(404), Named::Done), (Codes::Hundred(4), Named::Hold), (Codes::One(404), Named::Done)];
    let error = Answers::new(twice).unwrap_err();
    assert_eq!(error, Error::Twice(Codes::One(404)));
    assert_eq!(error.to_string(), "the answers 404 are listed twice: remove one of the entries");
}

#[test]
fn codes_are_read() {
    let cases = [
        ("404", Some(Codes::One(404))),
        ("100", Some(Codes::One(100))),
        ("599", Some(Codes::One(599))),
        ("5xx", Some(Codes::Hundred(5))),
        ("1xx", Some(Codes::Hundred(1))),
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
        assert_eq!(Codes::parse(text), expected, "{text}");
        assert!(expected.is_none_or(|codes| codes.to_string() == text), "{text}");
    }
}

#[test]
fn names_are_those_of_the_classes() {
    let words: Vec<&str> = Named::ALL.iter().map(|named| named.as_str()).collect();
    assert_eq!(words, ["done", "again", "hold", "conflict", "rejected", "in_doubt"]);
    assert_eq!(Class::InProgress.to_string(), "in_progress");
}

#[test]
fn answer_that_names_the_key_is_recognised() {
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
