//! Values of all types, and random changes: the same together and one by one.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use ratchet::postgres::{Settings, Statement};

use super::{APART, Copy};
use crate::database::Database;
use crate::postgres::task::{Task, effects, rejected, session, settings_of};

const UNAVAILABLE: &str = "__debezium_unavailable_value";
/// Types as columns may have them.
const TYPES: [&str; 35] = [
    "int",
    "bigint",
    "float8",
    "numeric",
    "numeric(4,2)",
    "text",
    "varchar",
    "varchar(3)",
    "char(3)",
    "\"char\"",
    "name",
    "bool",
    "uuid",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamp(0)",
    "timestamptz",
    "interval",
    "interval hour",
    "json",
    "jsonb",
    "bytea",
    "inet",
    "bit",
    "bit(3)",
    "money",
    "point",
    "int4range",
    "regclass",
    "mood",
    "short",
    "text[]",
    "bytea[]",
];
/// Values as records may have them.
const VALUES: [&str; 48] = [
    "1",
    "-0",
    "1.5",
    "99.995",
    "1e2",
    "123456789012345678901234567890.5",
    "70000",
    "\"1\"",
    "\" 1 \"",
    "\"01\"",
    "\"1.005\"",
    "\"NaN\"",
    "\"abc\"",
    "\"abcd\"",
    "\"abc   \"",
    "\"\"",
    "\"\\u00fc\\n\\\"\\\\\\/\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"a\\u0000b\"",
    "true",
    "false",
    "\"t\"",
    "null",
    "\"null\"",
    "\"2026-01-31\"",
    "\"2026-01-31T10:00:00.65Z\"",
    "\"10:00:00.65\"",
    "\"0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab\"",
    "{}",
    "{ \"a\" : [ 1.10 , \"x\" ] }",
    "[]",
    "[1, 2]",
    "[\"a b\", null]",
    "\"{}\"",
    "\"[1, 2]\"",
    "\"{1,2}\"",
    "\"AP8=\"",
    "\"\\\\x00ff\"",
    "\"10.0.0.1/8\"",
    "\"101\"",
    "\"[1,5)\"",
    "\"sad\"",
    "\"pg_class\"",
    "\"1234\"",
    "\"Infinity\"",
    "[\"1234\"]",
    "[[1234, 5], [\"1e10\", \"12.5\"]]",
];

/// Whatever the type and the value: the same row together and one by one, or the same words.
#[test]
fn values_of_all_types_are_read_the_same() {
    compare_values_of_all_types(true);
}

/// The same where not every text is a number for a column of numbers.
#[test]
fn values_of_all_types_are_read_the_same_where_texts_may_be_base64() {
    compare_values_of_all_types(false);
}

#[track_caller]
fn compare_values_of_all_types(has_text_decimals: bool) {
    let mut create = "create type mood as enum ('sad', 'glad'); create domain short as varchar(3);
        create function f() returns trigger language plpgsql as $$ begin return new; end $$;"
        .to_owned();
    for (number, kind) in TYPES.iter().enumerate() {
        for (name, more) in
            [("one_", ""), ("two_", "create trigger g before update on two_# for each row execute function f();")]
        {
            create += &format!("create table {name}{number} (id int primary key, v {kind}, after text); ");
            create += &more.replace('#', &number.to_string());
        }
    }
    let database = Database::with(&create);
    let mut written = 0;
    for (number, kind) in TYPES.iter().enumerate() {
        let upsert = |name: &str| {
            let (table, key) = (format!("{name}{number}"), vec!["id".to_owned()]);
            Statement::Upsert { table, key, columns: None }
        };
        let settings = settings_of(&database.url, ["one_", "two_"].map(upsert).to_vec());
        let mut session = session(&Settings { has_text_decimals, ..settings });
        let mut task = Task::claim(&mut *session, number as i32);
        for (id, value) in VALUES.iter().enumerate() {
            let row = format!(r#"{{"id": {id}, "other": [1, {{"v": 2}}], "v": {value}, "after": "x"}}"#);
            let mut tried = |statement: u32| {
                let done = task.commit(&mut *session, &effects(&[&[(statement, &[&row])]]));
                done.map(drop).map_err(|failed| format!("{failed:?}"))
            };
            let [together, apart] = [tried(0), tried(1)];
            let apart = apart.map_err(|message| message.replace(&format!("two_{number}"), &format!("one_{number}")));
            assert_eq!(together, apart, "{kind} {value}");
            written += usize::from(together.is_ok());
        }
        let rows = |table: &str| database.rows(&format!("select id, v::text, after from {table}{number} order by id"));
        assert_eq!(rows("one_"), rows("two_"), "{kind}");
    }
    println!("{written} of {} were written", TYPES.len() * VALUES.len());
    assert!(written > 300, "{written}");
}

/// A field as the change of a row may have it: missing, null, unchanged, a number, a text, or what no column takes.
fn field(random: &mut SmallRng, name: &str) -> String {
    let values = match name {
        "a" => ["1", "\"1\"", "1.25", "null", "", "\"12345678901234567890\""],
        "b" => ["\"text\"", "7", "true", "null", "", "\"\\u00fc\\n\""],
        "c" => ["{\"k\": [1.10]}", "\"{}\"", "[1, null]", "null", "", "3"],
        "f" => ["\"AP8=\"", "\"\\\\x01\"", "null", "", "\"\"", "null"],
        "d" => ["\"2026-01-31T10:00:00Z\"", "\"2026-02-01T10:00:00+02:00\"", "null", "", "", "null"],
        _ => ["[\"x\", null]", "\"{a,b}\"", "[]", "null", "", "[]"],
    };
    let value = match random.random_range(0..100) {
        0..4 => format!("\"{UNAVAILABLE}\""),
        // Refused by the column that takes no text, or for its precision.
        4 if name == "a" => ["\"x\"", "1e30"].choose(random).expect("there are some").to_string(),
        _ => (*values.choose(random).expect("there are some")).to_owned(),
    };
    if value.is_empty() { String::new() } else { format!(", \"{name}\": {value}") }
}

/// Random changes of few keys end in the same rows, carried out together and one by one, and so do those that the table
/// refuses.
#[test]
fn together_is_the_same_as_one_by_one() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut together, mut bundles) = (0, 0);
    let arrays = "create table t (id int, k text, a numeric(30, 2), b text, c jsonb default '{\"d\": 1}', d timestamptz(0), \
                  e text[], n int default 5, primary key (id, k))";
    let create =
        |round: usize| if round.is_multiple_of(2) { arrays.to_owned() } else { arrays.replace("e text[]", "f bytea") };
    for round in 0..8 {
        let create = create(round);
        let mut copies =
            [Copy::new(&create, &["id", "k"], &[]), Copy::new(&format!("{create}; {APART}"), &["id", "k"], &[])];
        let keys = [2, 8, 40, 200][round / 2 % 4];
        for _ in 0..12 {
            let mut changes = Vec::new();
            for _ in 0..random.random_range(1..80) {
                let id = random.random_range(0..keys);
                let id = if random.random_range(0..40) == 0 { format!("\"0{id}\"") } else { id.to_string() };
                let mut row = format!("{{\"id\": {id}, \"k\": \"{}\"", ["a", "A"][random.random_range(0..2)]);
                let delete = random.random_range(0..5) == 0;
                let is_whole = random.random_range(0..3) > 0;
                for name in ["a", "b", "c", "d", ["e", "f"][round % 2]] {
                    let given = field(&mut random, name);
                    let null = if is_whole { format!(", \"{name}\": null") } else { String::new() };
                    row += if given.is_empty() { &null } else { &given };
                }
                row.push('}');
                changes.push((u32::from(delete), row));
            }
            let mut left = changes.clone();
            let mut said = Vec::new();
            // As the engine does: what is refused is left out.
            for copy in &mut copies {
                left.clone_from(&changes);
                let mut refused = Vec::new();
                loop {
                    let calls: Vec<_> = left.iter().map(|(statement, row)| (*statement, [row.as_str()])).collect();
                    let calls: Vec<[(u32, &[&str]); 1]> =
                        calls.iter().map(|(statement, row)| [(*statement, &row[..])]).collect();
                    let all = effects(&calls.iter().map(|calls| &calls[..]).collect::<Vec<_>>());
                    let Err(failed) = copy.task.commit(&mut *copy.session, &all) else { break };
                    for (number, message) in rejected(failed).into_iter().rev() {
                        refused.push((left.remove(number), message));
                    }
                }
                said.push((refused, copy.database.rows("select * from t order by id, k collate \"C\"")));
            }
            assert_eq!(said[0], said[1], "seed {seed}: {changes:?}");
            together += copies[1].statements();
            bundles += copies[0].statements();
        }
    }
    println!("{bundles} statements in place of {together}");
    assert!(bundles < together, "some went together");
}
