//! Committing: rows, fences, redos, answers.

use ratchet::effect::{Answer, CommitError, ErrorKind, RowMark};
use ratchet::postgres::{Settings, Statement};

use crate::database::Database;
use crate::postgres::task::{Calls, Redos, Task, add, each, effects, key, session, settings, sql, token};

const TABLE: &str = "create table t (id bigserial, v int not null)";
const INSERT: &str = "insert into t (v) values ($1)";
const ROW: &str = "select partition, epoch, split_part(token, '.', 2), split_part(former_token, '.', 2), next_offset, \
                   convert_from(redo, 'UTF8') from ratchet.position order by partition";

/// A transaction's effects are carried out in their order, and its row says so.
#[test]
fn effects_row_and_redo_are_committed_together() {
    let database = Database::with(TABLE);
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    assert_eq!(task.mark, RowMark { epoch: 1, token: None });
    assert_eq!(task.commit(&mut *session, &each(&["3", "1", "2"])), Ok(vec![]));
    assert_eq!(database.rows("select v from t order by id"), ["3", "1", "2"]);
    assert_eq!(database.rows(ROW), ["0|1|1|-|3|redo 0: []"]);
    assert_eq!(task.commit(&mut *session, &each(&["4"])), Ok(vec![]));
    assert_eq!(database.rows(ROW), ["0|1|2|1|1|redo 0: []"]);
    assert_eq!(session.look(&[key(1), key(0)]), Ok(vec![None, Some(task.mark.clone())]));
}

/// A transaction of nothing but duplicates writes its row too.
#[test]
fn transaction_without_effects_writes_its_row() {
    let database = Database::with(TABLE);
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    assert_eq!(task.commit(&mut *session, &each(&[])), Ok(vec![]));
    assert_eq!(database.rows(ROW), ["0|1|1|-|0|redo 0: []"]);
}

/// A claim raises the epoch and returns what there was; a former owner commits nothing any more.
#[test]
fn former_owner_is_fenced_by_the_epoch() {
    let database = Database::with(TABLE);
    let settings = settings(&database, &[(INSERT, 1)]);
    let (mut one, mut other) = (session(&settings), session(&settings));
    assert_eq!(one.claim(&key(0), false), Ok(None));
    let mut zombie = Task::claim(&mut *one, 0);
    assert_eq!(zombie.commit(&mut *one, &each(&["1"])), Ok(vec![]));
    let claimed = other.claim(&key(0), false).unwrap().expect("it is there");
    assert_eq!((claimed.former_epoch, claimed.row.mark.epoch, claimed.row.next), (1, 2, 1));
    assert_eq!((claimed.row.mark.token, claimed.row.former), (Some(token(1)), None));
    assert_eq!(claimed.row.redo.as_deref(), Some(&b"redo 0: []"[..]));
    assert_eq!(zombie.commit(&mut *one, &each(&["2"])), Err(CommitError::Fenced(vec![0])));
    assert_eq!(database.rows("select v from t"), ["1"]);
    let mut heir = Task::claim(&mut *other, 0);
    assert_eq!(heir.commit(&mut *other, &each(&["3"])), Ok(vec![]));
}

/// The token alone fences too: a row that another has written under the same epoch.
#[test]
fn step_is_fenced_by_the_token() {
    let database = Database::with(TABLE);
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    assert_eq!(task.commit(&mut *session, &each(&["1"])), Ok(vec![]));
    for before in [None, Some(token(7))] {
        task.mark.token = before;
        assert_eq!(task.commit(&mut *session, &each(&["2"])), Err(CommitError::Fenced(vec![0])), "{before:?}");
    }
    assert_eq!(database.rows("select v from t"), ["1"]);
}

/// Of several steps, those whose rows have moved are named, and nothing of the others is committed.
#[test]
fn fenced_steps_are_named() {
    let database = Database::with(TABLE);
    let settings = settings(&database, &[(INSERT, 1)]);
    let (mut one, mut other) = (session(&settings), session(&settings));
    let tasks: Vec<_> = [2, 0, 1].into_iter().map(|partition| Task::claim(&mut *one, partition)).collect();
    Task::claim(&mut *other, 0);
    let all = each(&["1"]);
    let steps: Vec<_> = tasks.iter().map(|task| task.step(&all)).collect();
    assert_eq!(one.commit(&steps, &mut Redos::default()), Err(CommitError::Fenced(vec![1])));
    assert_eq!(database.value("select count(*) from t"), "0");
    let mut redos = Redos::default();
    assert_eq!(one.commit(&[tasks[0].step(&all), tasks[2].step(&all)], &mut redos), Ok(()));
    assert_eq!(redos.asked, [(0, vec![]), (1, vec![])]);
    let expected = ["0|2|-|-|0|-", "1|1|1|-|1|redo 1: []", "2|1|1|-|1|redo 0: []"];
    assert_eq!(database.rows(ROW), expected);
}

/// Rows that come back are answers, as JSON, and what the redo is made of.
#[test]
fn returned_rows_are_answers() {
    let database = Database::with(TABLE);
    let returning =
        "insert into t (v) select n from generate_series(1, $1::int) as n returning id, v as \"V x\" -- rows";
    let statements = vec![
        Statement::Sql { text: returning.to_owned(), parameters: 1, returns: true, expect_rows: None },
        sql("update t set v = v", 0),
        Statement::Sql {
            text: "select v::numeric / 3 as third from t where id = $1;".to_owned(),
            parameters: 1,
            returns: true,
            expect_rows: None,
        },
    ];
    let settings = Settings { statements, ..settings(&database, &[]) };
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    let effects = effects(&[&[(0, &["2"]), (1, &[]), (2, &["1"])], &[(0, &["0"])], &[]]);
    let done = |rows: &[&str]| Answer::Done(rows.iter().map(ToString::to_string).collect());
    let first = done(&["{\"id\":1,\"V x\":1}", "{\"id\":2,\"V x\":2}", "{\"third\":0.33333333333333333333}"]);
    let answers = vec![first, done(&[]), done(&[])];
    assert_eq!(task.commit(&mut *session, &effects), Ok(answers.clone()));
    assert_eq!(
        database.rows("select convert_from(redo, 'UTF8') from ratchet.position"),
        [format!("redo 0: {answers:?}")]
    );
}

/// More statements than may be under way at once.
#[test]
fn large_transaction_is_committed_whole() {
    let database = Database::with(TABLE);
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    let numbers: Vec<_> = (0..10_000).map(|number: u32| number.to_string()).collect();
    let effects = each(&numbers.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(task.commit(&mut *session, &effects), Ok(vec![]));
    assert_eq!(database.value("select count(*), sum(v), bool_and(id = v + 1) from t"), "10000|49995000|t");
}

/// Text goes through PostgreSQL's own parsers: nothing is rounded, cut or guessed.
#[test]
fn parameters_of_any_type_arrive_exactly() {
    let database = Database::with(
        "create type mood as enum ('sad', 'glad'); create domain positive as numeric check (value > 0);
         create table t (n numeric, u uuid, e mood, d positive, j jsonb, b bytea, ts timestamptz, a text[], r int4range, \
         f float8, l bigint, o bool)",
    );
    let insert = "insert into t values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
    let mut session = session(&settings(&database, &[(insert, 12)]));
    let mut task = Task::claim(&mut *session, 0);
    let values = [
        "123456789012345678901234567890.123456789012345678901234567890",
        "0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab",
        "glad",
        "0.10",
        "{\"a\": 1.10}",
        "\\x00ff",
        "2026-01-02T03:04:05.678901Z",
        "{\"a b\",NULL}",
        "[1,5)",
        "0.1",
        "-9223372036854775808",
        "true",
    ];
    assert_eq!(task.commit(&mut *session, &effects(&[&[(0, &values)], &[(0, &["NULL"; 12])]])), Ok(vec![]));
    let expected = [
        "123456789012345678901234567890.123456789012345678901234567890|0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab|glad|0.10|\
         {\"a\": 1.10}|\\x00ff|2026-01-02 03:04:05.678901+00|{\"a b\",NULL}|[1,5)|0.1|-9223372036854775808|t",
        "-|-|-|-|-|-|-|-|-|-|-|-",
    ];
    database.run("set timezone = 'UTC'");
    assert_eq!(database.rows("select * from t"), expected);
}

/// A JSON column reads a text as JSON, unless the statement says that it is a string.
#[test]
fn statement_decides_whether_a_text_is_json() {
    let database = Database::with("create table t (j jsonb)");
    let statements = [("insert into t values ($1)", 1), ("insert into t values (to_jsonb($1::text))", 1)];
    let mut session = session(&settings(&database, &statements));
    let mut task = Task::claim(&mut *session, 0);
    let calls: [Calls<'_>; 4] =
        [&[(0, &["{\"a\": 1}"])], &[(1, &["{\"a\": 1}"])], &[(1, &["say \"ü\""])], &[(1, &["NULL"])]];
    assert_eq!(task.commit(&mut *session, &effects(&calls)), Ok(vec![]));
    let rows = ["object|{\"a\": 1}", "string|\"{\\\"a\\\": 1}\"", "string|\"say \\\"ü\\\"\"", "-|-"];
    assert_eq!(database.rows("select jsonb_typeof(j), j from t"), rows);
}

/// A database where everything is serializable and read only by default is no obstacle to READ COMMITTED.
#[test]
fn database_that_is_serializable_by_default_works() {
    let database = Database::with(TABLE);
    database.run(&format!("alter database {} set default_transaction_isolation = 'serializable'", database.name));
    let settings = settings(&database, &[("insert into t (v) select count(*) + $1 from t", 1)]);
    let (mut one, mut other) = (session(&settings), session(&settings));
    let (mut task, mut beside) = (Task::claim(&mut *one, 0), Task::claim(&mut *other, 1));
    for _ in 0..20 {
        assert_eq!(task.commit(&mut *one, &each(&["0"])), Ok(vec![]));
        assert_eq!(beside.commit(&mut *other, &each(&["0"])), Ok(vec![]));
    }
    assert_eq!(database.value("select count(*) from t"), "40");
}

/// A claim waits for another's open transaction only briefly, and reads what it has left.
#[test]
fn claim_does_not_wait_for_long() {
    let database = Database::with(TABLE);
    let mut session = session(&settings(&database, &[]));
    Task::claim(&mut *session, 0);
    let holder = database.session();
    holder.run("begin; update ratchet.position set next_offset = 5");
    let start = std::time::Instant::now();
    let error = session.claim(&key(0), true).expect_err("it is held");
    assert!(start.elapsed().as_millis() < 500, "{:?}", start.elapsed());
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    assert!(error.message.contains("55P03"), "{error}");
    holder.run("commit");
    let claimed = session.claim(&key(0), true).unwrap().expect("it is there");
    assert_eq!((claimed.row.next, claimed.former_epoch), (5, 1));
}

/// Two that claim at the same moment, also where there is no row yet, get different epochs.
#[test]
fn claims_at_the_same_moment_take_turns() {
    let database = Database::with(TABLE);
    let settings = settings(&database, &[]);
    let claims: Vec<_> = (0..4)
        .map(|_| {
            let settings = settings.clone();
            std::thread::spawn(move || {
                let mut session = session(&settings);
                (0..10)
                    .map(|_| {
                        loop {
                            match session.claim(&key(0), true) {
                                Ok(claimed) => break claimed.expect("it may be inserted").row.mark.epoch,
                                Err(error) => assert_eq!(error.kind, ErrorKind::Transient, "{error}"),
                            }
                        }
                    })
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    let mut epochs: Vec<_> = claims.into_iter().flat_map(|claims| claims.join().expect("it does not panic")).collect();
    epochs.sort_unstable();
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "{epochs:?}");
}

/// A row that cannot be read is nobody's to overwrite.
#[test]
fn row_with_a_strange_token_needs_a_person() {
    let database = Database::with(TABLE);
    let mut session = session(&settings(&database, &[]));
    Task::claim(&mut *session, 0);
    database.run("update ratchet.position set token = 'nonsense'");
    let error = session.claim(&key(0), true).expect_err("it cannot be read");
    assert_eq!(error.kind, ErrorKind::Permanent);
    assert_eq!(session.look(&[key(0)]).expect_err("it cannot be read").kind, ErrorKind::Permanent);
    assert_eq!(database.value("select epoch from ratchet.position"), "1");
}

/// Records of one step with several statements each, some null.
#[test]
fn statements_of_a_record_are_carried_out_in_order() {
    let database =
        Database::with("create table t (id bigserial, v int); create table u (n int); insert into u values (0)");
    let statements = [("insert into t (v) select n from u", 0), ("update u set n = coalesce($1, -1)", 1)];
    let mut session = session(&settings(&database, &statements));
    let mut task = Task::claim(&mut *session, 0);
    let mut all = effects(&[&[(0, &[]), (1, &["7"]), (0, &[])]]);
    all.begin(1, b"1", None);
    add(&mut all, &[(1, &["NULL"]), (0, &[])]);
    assert_eq!(task.commit(&mut *session, &all), Ok(vec![]));
    assert_eq!(database.rows("select v from t order by id"), ["0", "7", "-1"]);
}
