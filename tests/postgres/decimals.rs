//! Texts for columns of numbers: a number in base64 is never taken for another number, whether rows go together or alone.

use ratchet::effect::{Effects, Session};
use ratchet::postgres::{Settings, Statement, ddl, inspect};

use crate::database::Database;
use crate::postgres::task::{Task, effects, rejected, session, settings_of};

const CREATE: &str = "create domain money2 as numeric(12, 2); create table t (id int primary key, price numeric(12, 2), \
                      amount money2, count bigint, rate float8, prices numeric[], name text)";

fn upsert() -> Statement {
    Statement::Upsert { table: "t".to_owned(), key: vec!["id".to_owned()], columns: None }
}

/// A table that is kept by upserts.
struct Copy {
    database: Database,
    settings: Settings,
    session: Box<dyn Session>,
    task: Task,
}

impl Copy {
    fn new(has_text_decimals: bool) -> Copy {
        let database = Database::with(CREATE);
        let settings = Settings { has_text_decimals, ..settings_of(&database.url, vec![upsert()]) };
        let mut session = session(&settings);
        let task = Task::claim(&mut *session, 0);
        Copy { database, settings, session, task }
    }

    /// Commits these rows in one transaction; returns what was said of those that are refused.
    fn write(&mut self, rows: &[&str]) -> Vec<(usize, String)> {
        let parameters: Vec<[&str; 1]> = rows.iter().map(|row| [*row]).collect();
        let calls: Vec<[(u32, &[&str]); 1]> = parameters.iter().map(|row| [(0, &row[..])]).collect();
        let records: Vec<&[(u32, &[&str])]> = calls.iter().map(|calls| &calls[..]).collect();
        match self.task.commit(&mut *self.session, &effects(&records)) {
            Ok(_) => Vec::new(),
            Err(failed) => rejected(failed),
        }
    }
}

/// As `decimal.handling.mode=precise` writes -26588.24 in a column with two places: its digits are not the number.
#[test]
fn text_that_may_be_base64_is_refused_for_a_number() {
    let mut copy = Copy::new(false);
    for field in [
        r#""price": "1234""#,
        r#""amount": "1234""#,
        r#""count": "12345678""#,
        r#""rate": "1e10""#,
        r#""prices": ["1.5", "1234"]"#,
        r#""price": "AQ==""#,
    ] {
        let row = format!(r#"{{"id": 1, {field}}}"#);
        let said = copy.write(&[&row]);
        let [(0, message)] = &said[..] else { panic!("{row}: {said:?}") };
        for words in ["decimal.handling.mode=string", "'decimals: text'", field.split('"').nth(1).unwrap_or("?")] {
            assert!(message.contains(words), "{message}");
        }
    }
    assert_eq!(copy.database.rows("select * from t"), Vec::<String>::new());
    // Among others, only those that may be something else are refused.
    let rows = [r#"{"id": 1, "price": "12.50"}"#, r#"{"id": 2, "price": "1234"}"#, r#"{"id": 3, "price": 1234}"#];
    assert_eq!(copy.write(&rows).iter().map(|(record, _)| *record).collect::<Vec<_>>(), [1]);
}

#[test]
fn text_that_base64_cannot_be_is_a_number() {
    let mut copy = Copy::new(false);
    let row = r#"{"id": 1, "price": "12.50", "amount": "-123", "count": "123", "rate": "Infinity", "prices": ["1.5", "NaN"],
        "name": "1234"}"#;
    assert_eq!(copy.write(&[row, &row.replace("1,", "2,")]), []);
    let expected = "12.50|-123.00|123|Infinity|{1.5,NaN}|1234";
    assert_eq!(copy.database.rows("select * from t order by id"), [format!("1|{expected}"), format!("2|{expected}")]);
    // Numbers are numbers.
    assert_eq!(copy.write(&[r#"{"id": 3, "price": 1234, "count": 12345678, "rate": 1e10, "prices": [1234]}"#]), []);
    assert_eq!(copy.database.rows("select price, count, prices from t where id = 3"), ["1234.00|12345678|{1234}"]);
}

/// A record's schema can say of a field that it is a text. Then it is the number that it shows, alone and among others.
#[test]
fn text_that_is_known_to_be_no_base64_is_a_number() {
    let row = |id: usize| {
        let fields =
            r#""price": "1234", "amount": "12345678", "count": "1234", "rate": "1e10", "prices": ["1.5", "1234"]"#;
        format!(r#"{{"id": {id}, {fields}}}"#)
    };
    let all = r#"["price", "amount", "count", "rate", "prices", "name"]"#;
    let but_price = r#"["amount", "count", "rate", "prices"]"#;
    let mut copy = Copy::new(false);
    let mut write = |rows: &[(usize, Option<&str>)]| {
        let mut effects = Effects::default();
        for (offset, (id, texts)) in (0..).zip(rows) {
            effects.begin(offset, b"id", None);
            effects.call(0);
            effects.parameter(Some(&row(*id)));
            texts.iter().for_each(|names| effects.texts(names));
        }
        let refused = match copy.task.commit(&mut *copy.session, &effects) {
            Ok(_) => Vec::new(),
            Err(failed) => rejected(failed).into_iter().map(|(record, _)| record).collect(),
        };
        (refused, copy.database.rows("select id, price, amount, count, rate, prices from t order by id"))
    };
    let stored = |id: usize| format!("{id}|1234.00|12345678.00|1234|10000000000|{{1.5,1234}}");
    assert_eq!(write(&[(1, Some(but_price))]), (vec![0], vec![]), "one of them may be base64");
    assert_eq!(write(&[(1, Some(all))]), (vec![], vec![stored(1)]));
    let mixed = [(2, Some(all)), (3, None), (4, Some(all))];
    assert_eq!(write(&mixed), (vec![1], vec![stored(1)]));
    assert_eq!(write(&[mixed[0], mixed[2], (5, Some(all))]).1, [1, 2, 4, 5].map(stored));
}

#[test]
fn said_that_texts_are_numbers_they_are() {
    let mut copy = Copy::new(true);
    let row =
        r#"{"id": "1234", "price": "1234", "amount": "12345678", "count": "1234", "rate": "1e10", "prices": ["1234"]}"#;
    assert_eq!(copy.write(&[row]), []);
    assert_eq!(copy.database.rows("select id, price, amount, count from t"), ["1234|1234.00|12345678.00|1234"]);
}

#[test]
fn columns_of_decimals_are_named_before_the_first_record() {
    let copy = Copy::new(false);
    copy.database.run(&ddl("ratchet"));
    let found = inspect(&copy.settings);
    let [note] = &found[..] else { panic!("{found:?}") };
    assert!(!note.is_error && note.statement == Some(0), "{note:?}");
    assert!(note.message.contains("for price, prices is refused where it may be base64"), "{note:?}");
    let help = note.help.as_deref().unwrap_or_default();
    assert!(help.contains("decimals: text") && help.contains("decimal.handling.mode=string"), "{help}");
    let listed =
        Statement::Upsert { table: "t".to_owned(), key: vec!["id".to_owned()], columns: Some(vec!["id".to_owned()]) };
    assert_eq!(inspect(&Settings { statements: vec![listed], ..copy.settings.clone() }), []);
    assert_eq!(inspect(&Settings { has_text_decimals: true, ..copy.settings.clone() }), []);
}
