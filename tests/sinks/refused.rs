//! Goal: whatever the database does not take of a record, and whatever cannot even be sent to it, sets that record aside
//! alone, with the database's words.

use crate::checker::Fate;
use crate::cluster::{Fresh, Stored};
use crate::database::Database;
use crate::load::now_ms;
use crate::operator::Operator;
use crate::sinks::shop::{Shop, TABLES};
use crate::until::DEADLINE;

/// A column of many types.
const TYPED: &str = "create table typed (small int, short varchar(3), must text not null, exact numeric(4, 2), whole uuid, \
                     body jsonb, key text)";
const STATEMENT: &str = "      - sql: insert into typed values ($1, $2, $3, $4, $5, $6, $7)
        with: [value.small, value.short, value.must, value.exact, value.whole, value.body, key]
";

/// Fields that differ from those of a good record, and what is said about them.
const BAD: [(&str, &str, &str); 12] = [
    ("small", "\"one\"", "invalid input syntax for type integer"),
    ("small", "2147483648", "out of range for type integer"),
    ("small", "99999999999999999999999999", "out of range for type integer"),
    ("small", "1.5", "invalid input syntax for type integer"),
    ("small", "[1]", "invalid input syntax for type integer"),
    ("short", "\"abcd\"", "value too long for type character varying(3)"),
    ("must", "null", "null value in column \"must\""),
    ("must", "\"a\\u0000b\"", "there is a NUL"),
    ("exact", "100", "numeric field overflow"),
    ("exact", "\"ten\"", "invalid input syntax for type numeric"),
    ("whole", "\"0b5a7b4e\"", "invalid input syntax for type uuid"),
    ("body", "{\"a\": \"\\u0000\"}", "unsupported Unicode escape sequence"),
];

fn record(number: usize, bad: Option<(&str, &str)>) -> Fresh {
    let mut fields = vec![
        ("small", "-2147483648"),
        ("short", "\"äöü\""),
        ("must", "\"\""),
        ("exact", "99.99"),
        ("whole", "\"0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab\""),
        ("body", "{\"a\": [1.10]}"),
    ];
    if let Some((name, value)) = bad {
        fields.retain(|(field, _)| *field != name);
        fields.push((name, value));
    }
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    let is_bad = bad.is_some();
    let value = format!("{{\"id\":\"o-{number}\",\"version\":1,\"bad\":{is_bad},{}}}", fields.join(","));
    Fresh::new(0, "key", value).at(now_ms())
}

/// Whether the record was made to be refused.
fn is_bad(record: &Stored) -> bool {
    let text = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
    text.contains("\"bad\":true")
}

#[test]
fn each_bad_value_is_set_aside_alone_with_the_reason() {
    let database = Database::with(&format!("{TABLES}; {TYPED}"));
    let mut shop = Shop::with("refused", 1, database, STATEMENT);
    shop.job.rules.unsendable = is_bad;
    let mut records = Vec::new();
    for (name, value, _) in BAD {
        records.push(record(records.len(), None));
        records.push(record(records.len(), Some((name, value))));
    }
    // A key that is not text, and an invalid value: the record as a whole cannot be read.
    let mut strange = record(records.len(), Some(("short", "\"abc\"")));
    strange.key = Some(b"\xff\xfe".to_vec());
    records.push(strange);
    let mut broken = record(records.len(), None);
    let text = broken.value.take().expect("it has one");
    broken.value = Some(String::from_utf8(text).expect("it is text").replace("o-", "\u{fffd}-").into_bytes());
    let bytes = broken.value.as_mut().expect("just set");
    let at = bytes.windows(3).position(|three| three == "\u{fffd}".as_bytes()).expect("just written");
    bytes.splice(at..at + 3, [0xff]);
    records.push(broken);
    records.push(record(records.len(), None));
    shop.job.send(records);
    let mut operator = Operator::start(&shop.job, "a");
    let found = shop.check(DEADLINE);
    assert_eq!(found.count(Fate::Forwarded), BAD.len() + 1, "{found:?}");
    assert_eq!(found.count(Fate::DeadLettered("rejected")), BAD.len() + 1, "{found:?}");
    assert_eq!(found.count(Fate::DeadLettered("value_malformed")), 1, "{found:?}");
    let letters: Vec<Stored> = shop.job.kafka.read(&shop.job.dead_letter()).into_values().flatten().collect();
    let message = |letter: &Stored| letter.header("__ratchet.errors.message").expect("each letter has one");
    let expected = BAD.iter().map(|(_, _, words)| *words).chain(["it is not UTF-8"]);
    for (letter, words) in letters.iter().zip(expected) {
        assert!(message(letter).contains(words), "{words}: {}", message(letter));
    }
    // Each is counted once, however often the transaction around it was tried.
    let counted = operator.metric("ratchet_effects_total", &["rejected"]) as usize;
    assert_eq!(counted, found.count(Fate::DeadLettered("rejected")));
    let taken = "select count(*), min(small), max(short) from typed where exact = 99.99 and must = ''";
    assert_eq!(shop.database.value(taken), format!("{}|-2147483648|äöü", BAD.len() + 1));
    operator.stop();
}
