//! What is left when something goes wrong on the way.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, spawn};
use std::time::{Duration, Instant};

use ratchet::effect::{Answer, CommitError, Effects, ErrorKind, RedoBuilder};
use ratchet::postgres::{Settings, Statement};

use crate::database::{Database, shared};
use crate::kafka;
use crate::postgres::proxy::Proxy;
use crate::postgres::task::{Redos, Task, each, effects, key, session, settings, settings_of, sql, token};
use crate::until::{DEADLINE, within};

const INSERT: &str = "insert into t values ($1)";

#[track_caller]
fn assert_transient(failed: CommitError, words: &str) {
    let CommitError::Held(error) = failed else { panic!("{failed:?}") };
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    assert!(error.message.contains(words), "{error}");
}

fn through(proxy: &Proxy, database: &Database) -> Settings {
    let url = format!("postgres://postgres@127.0.0.1:{}/{}?sslmode=disable", proxy.port, database.name);
    settings_of(&url, vec![sql(INSERT, 1)])
}

/// COMMIT arrived, its answer did not: nobody can know, and the next claim shows that it had happened.
#[test]
fn lost_answer_to_commit_is_unknown() {
    let database = Database::with("create table t (v int)");
    let proxy = Proxy::start(shared().port.number());
    let mut session = session(&through(&proxy, &database));
    let mut task = Task::claim(&mut *session, 0);
    proxy.lose_the_answer_to(b"; commit");
    let failed = task.commit(&mut *session, &each(&["1"])).expect_err("the answer is lost");
    assert!(proxy.has_lost(), "the fault was reached");
    let CommitError::Unknown(error) = failed else { panic!("{failed:?}") };
    assert_eq!(error.kind, ErrorKind::Transient);
    within(DEADLINE, "the commit", || (database.value("select count(*) from t") == "1").then_some(()));
    let claimed = session.claim(&key(0), true).expect("it connects again").expect("it is there");
    assert_eq!((claimed.row.mark.epoch, claimed.row.mark.token), (2, Some(token(1))));
    assert!(claimed.row.redo.is_some());
}

/// A connection that is lost before COMMIT was sent leaves nothing, for sure.
#[test]
fn connection_lost_before_commit_leaves_nothing() {
    let database = Database::with("create table t (v int)");
    let proxy = Proxy::start(shared().port.number());
    let mut session = session(&through(&proxy, &database));
    let mut task = Task::claim(&mut *session, 0);
    proxy.lose_the_answer_to(b"begin");
    assert_transient(task.commit(&mut *session, &each(&["1"])).expect_err("it is cut off"), "connection");
    assert!(proxy.has_lost(), "the fault was reached");
    assert_eq!(task.commit(&mut *session, &each(&["2"])), Ok(vec![]));
    assert_eq!(database.rows("select v from t"), ["2"]);
}

/// Kills the session's own process while its redo is asked for, so within the transaction.
struct Killing<'a>(&'a Database);

impl RedoBuilder for Killing<'_> {
    fn redo(&mut self, _: usize, _: &[Answer]) -> Vec<u8> {
        let kill = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ratchet test' \
                    and datname = current_database()";
        // This thread drives the session.
        let killed = thread::scope(|scope| scope.spawn(|| self.0.rows(kill)).join());
        assert_eq!(killed.expect("it does not panic"), ["t"]);
        Vec::new()
    }
}

/// A process that is terminated within the transaction.
#[test]
fn terminated_process_leaves_nothing() {
    let database = Database::with("create table t (v int)");
    let mut settings = settings(&database, &[]);
    settings.statements = vec![Statement::Sql {
        text: "insert into t values ($1) returning v".to_owned(),
        parameters: 1,
        returns: true,
        expect_rows: None,
    }];
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    let all = each(&["1"]);
    let failed = session.commit(&[task.step(&all)], &mut Killing(&database)).expect_err("it is terminated");
    assert_transient(failed, "terminating connection");
    assert_eq!(task.commit(&mut *session, &each(&["2"])).map(|answers| answers.len()), Ok(1));
    assert_eq!(database.rows("select v from t"), ["2"]);
}

/// The session's process was terminated while it had nothing to do.
#[test]
fn idle_session_that_was_terminated_connects_again() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    Killing(&database).redo(0, &[]);
    let failed = task.commit(&mut *session, &each(&["1"])).expect_err("it is terminated");
    assert_transient(failed, "connection");
    assert_eq!(task.commit(&mut *session, &each(&["1"])), Ok(vec![]));
}

/// Rows are looked at while nothing happens, and that is when connections are lost unnoticed.
#[test]
fn idle_session_that_was_terminated_looks_again_at_once() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let task = Task::claim(&mut *session, 0);
    Killing(&database).redo(0, &[]);
    assert_eq!(session.look(&[key(0)]), Ok(vec![Some(task.mark)]));
}

/// Another writer that takes rows in another order: one of the two goes again.
#[test]
fn deadlock_passes() {
    let database = Database::with("create table t (id int primary key, v int); insert into t values (1, 0), (2, 0)");
    let statements =
        [("update t set v = v + 1 where id = 1", 0), ("update t set v = v + 1 from pg_sleep(1) where id = 2", 0)];
    let settings = settings(&database, &statements);
    let other = database.session();
    other.run("begin; update t set v = 10 where id = 2");
    // The other waits for longer before it looks, so that it is the driver's turn to give way.
    other.run("set deadlock_timeout = '3s'");
    let committing = spawn(move || {
        let mut session = session(&settings);
        let mut task = Task::claim(&mut *session, 0);
        let failed = task.commit(&mut *session, &effects(&[&[(0, &[]), (1, &[])]])).expect_err("it gives way");
        (failed, session, task)
    });
    within(DEADLINE, "the driver to have the first row", || {
        let free = "select count(*) from (select from t where id = 1 for update skip locked) as free";
        (database.value(free) == "0").then_some(())
    });
    other.run("update t set v = 10 where id = 1; commit");
    let (failed, mut session, mut task) = committing.join().expect("it does not panic");
    assert_transient(failed, "40P01");
    assert_eq!(task.commit(&mut *session, &effects(&[&[(0, &[]), (1, &[])]])), Ok(vec![]));
    assert_eq!(database.rows("select v from t order by id"), ["11", "11"]);
}

/// A serialization failure, as a function raises one, is nobody's fault.
#[test]
fn serialization_failure_passes() {
    let database = Database::with(
        "create table t (v int); create sequence s;
         create function f() returns trigger language plpgsql as $$ begin
            if nextval('s') = 1 then raise exception 'could not serialize' using errcode = '40001'; end if;
            return new; end $$;
         create trigger g before insert on t for each row execute function f()",
    );
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    assert_transient(task.commit(&mut *session, &each(&["1", "2"])).expect_err("the first one"), "40001");
    assert_eq!(task.commit(&mut *session, &each(&["1", "2"])), Ok(vec![]));
}

/// A refusal that does not repeat itself blames no record.
#[test]
fn refusal_that_does_not_repeat_itself_blames_nobody() {
    let database = Database::with(
        "create table t (v int); create sequence s;
         create function f() returns trigger language plpgsql as $$ begin
            if nextval('s') = 1 then raise exception 'once'; end if; return new; end $$;
         create trigger g before insert on t for each row execute function f()",
    );
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    assert_transient(task.commit(&mut *session, &each(&["1"])).expect_err("the first time"), "once");
    assert_eq!(task.commit(&mut *session, &each(&["1"])), Ok(vec![]));
}

/// A lock that another holds is waited for some seconds, not for ever.
#[test]
fn lock_is_not_waited_for_for_ever() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    assert_eq!(task.commit(&mut *session, &each(&["1"])), Ok(vec![]));
    let holder = database.session();
    holder.run("begin; lock table t");
    let start = Instant::now();
    assert_transient(task.commit(&mut *session, &each(&["2"])).expect_err("it is locked"), "55P03");
    assert!((3..15).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
    holder.run("rollback");
    assert_eq!(task.commit(&mut *session, &each(&["2"])), Ok(vec![]));
}

/// Says that it is within the transaction, and waits there.
struct Frozen {
    reached: Sender<()>,
    woken: Receiver<()>,
}

impl RedoBuilder for Frozen {
    fn redo(&mut self, _: usize, _: &[Answer]) -> Vec<u8> {
        self.reached.send(()).expect("the test waits for it");
        self.woken.recv().expect("it is woken up");
        Vec::new()
    }
}

/// An owner that is frozen within its transaction holds its heir up for about ten seconds, and commits nothing then.
#[test]
fn frozen_owner_is_given_up_by_the_server() {
    let database = Database::with("create table t (v int)");
    let mut settings = settings(&database, &[]);
    settings.inbox = Some(ratchet::postgres::Inbox { name: "i".to_owned(), retention_ms: None });
    settings.statements = vec![sql(INSERT, 1)];
    let mut heir = session(&settings);
    let ((wake, woken), (reached, is_reached)) = (channel(), channel());
    let owner = spawn(move || {
        let mut session = session(&settings);
        let task = Task::claim(&mut *session, 0);
        let all: Effects = each(&["1"]);
        session.commit(&[task.step(&all)], &mut Frozen { reached, woken })
    });
    is_reached.recv_timeout(DEADLINE).expect("the owner's transaction is open");
    let start = Instant::now();
    let claimed = loop {
        match heir.claim(&key(0), true) {
            Ok(claimed) => break claimed.expect("it is there"),
            Err(error) => assert_eq!(error.kind, ErrorKind::Transient, "{error}"),
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the server gives it up");
        thread::sleep(Duration::from_millis(100));
    };
    assert!(start.elapsed() > Duration::from_secs(5), "{:?}", start.elapsed());
    assert_eq!((claimed.row.mark.epoch, claimed.row.mark.token), (2, None));
    wake.send(()).expect("it waits");
    let failed = owner.join().expect("it does not panic").expect_err("it was given up");
    assert_transient(failed, "25P03");
    assert_eq!(database.value("select count(*) from t"), "0");
}

/// A table that is changed under a prepared statement: the session prepares it anew.
#[test]
fn changed_table_is_prepared_anew() {
    let database = Database::with("create table t (v int)");
    let mut settings = settings(&database, &[]);
    settings.statements = vec![Statement::Sql {
        text: "insert into t values ($1) returning *".to_owned(),
        parameters: 1,
        returns: true,
        expect_rows: None,
    }];
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    assert!(task.commit(&mut *session, &each(&["1"])).is_ok());
    database.run("alter table t alter v type text, add w int default 5");
    let mut answers = task.commit(&mut *session, &each(&["2"]));
    if let Err(failed) = answers {
        assert_transient(failed, "");
        answers = task.commit(&mut *session, &each(&["2"]));
    }
    let row = "{\"v\":\"2\",\"w\":5}".to_owned();
    assert_eq!(answers, Ok(vec![Answer::Done(vec![row])]));
}

/// Columns that were widened, or added, under the statements of a session that goes on.
#[test]
fn altered_columns_are_noticed() {
    let create = "create table t (v varchar(3)); create table u (id int primary key, x varchar(3) unique)";
    let database = Database::with(create);
    let upsert = Statement::Upsert { table: "u".to_owned(), key: vec!["id".to_owned()], columns: None };
    let mut session = session(&settings_of(&database.url, vec![sql(INSERT, 1), upsert]));
    let mut task = Task::claim(&mut *session, 0);
    let row = |text: &str| format!(r#"{{"id": 1, "x": "{text}", "y": 7}}"#);
    let all = |text: &str| effects(&[&[(0, &[text])], &[(1, &[&row(text)])]]);
    assert_eq!(task.commit(&mut *session, &all("abc")), Ok(vec![]));
    database.run("alter table t alter v type varchar(9); alter table u alter x type varchar(9)");
    // A refusal by what was prepared before is not the last word.
    assert_transient(
        task.commit(&mut *session, &all("abcdef")).expect_err("it is refused once"),
        "not at the second attempt",
    );
    assert_eq!(task.commit(&mut *session, &all("abcdef")), Ok(vec![]));
    database.run("alter table u add y int");
    session.look(&[key(0)]).expect("it answers");
    assert_eq!(task.commit(&mut *session, &all("ghi")), Ok(vec![]));
    assert_eq!(database.rows("select * from u"), ["1|ghi|7"]);
}

/// Columns that are gone, or have another type, make a statement from before fail, but not for ever.
#[test]
fn statements_are_prepared_anew_where_they_cannot_be_carried_out() {
    let database = Database::with("create table u (id int primary key, n int, x text)");
    let upsert = Statement::Upsert { table: "u".to_owned(), key: vec!["id".to_owned()], columns: None };
    let mut session = session(&settings_of(&database.url, vec![upsert]));
    let mut task = Task::claim(&mut *session, 0);
    let all = |n: &str| effects(&[&[(0, &[&format!(r#"{{"id": 1, "n": {n}, "x": "a"}}"#)])]]);
    assert_eq!(task.commit(&mut *session, &all("1")), Ok(vec![]));
    for (number, change) in ["drop column x", "alter n type text"].into_iter().enumerate() {
        database.run(&format!("alter table u {change}"));
        let failed = task.commit(&mut *session, &all("2")).expect_err("it is out of date");
        let CommitError::Held(error) = &failed else { panic!("{failed:?}") };
        assert_eq!(error.kind, ErrorKind::Permanent, "{error}");
        let n = (number + 3).to_string();
        assert_eq!(task.commit(&mut *session, &all(&n)), Ok(vec![]), "{change}");
        assert_eq!(database.rows("select id, n from u"), [format!("1|{n}")]);
    }
}

/// A server that stays silent is given up after one time of waiting, however much is under way.
#[test]
fn silent_server_is_given_up_once() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    assert_eq!(task.commit(&mut *session, &each(&["1"])), Ok(vec![]));
    let process =
        "select pid from pg_stat_activity where application_name = 'ratchet test' and datname = current_database()";
    let process: i32 = database.value(process).parse().expect("a number");
    kafka::signal_by_number(process, libc::SIGSTOP).expect("it serves this connection");
    let start = Instant::now();
    let failed = task.commit(&mut *session, &each(&["2"; 500]));
    let took = start.elapsed();
    kafka::signal_by_number(process, libc::SIGCONT).expect("it is still there");
    assert_transient(failed.expect_err("nothing comes"), "has not answered");
    assert!((25..45).contains(&took.as_secs()), "{took:?}");
    let claimed = session.claim(&key(0), true).expect("another connection is made").expect("it is there");
    assert_eq!(claimed.row.mark.token, Some(token(1)));
    assert_eq!(database.value("select count(*) from t"), "1");
}

/// Statements that were taken away under the session.
#[test]
fn deallocated_statements_are_prepared_anew() {
    let database = Database::with("create table t (v int)");
    database.run("create function forget() returns void language plpgsql as $$ begin execute 'deallocate all'; end $$");
    let mut session = session(&settings(&database, &[("select forget()", 0)]));
    let mut task = Task::claim(&mut *session, 0);
    let forget = || effects(&[&[(0, &[])]]);
    assert_eq!(task.commit(&mut *session, &forget()), Ok(vec![]));
    assert_transient(task.commit(&mut *session, &forget()).expect_err("they are gone"), "26000");
    assert_eq!(task.commit(&mut *session, &forget()), Ok(vec![]));
}

/// The transaction ends in nothing where a statement has failed, whatever COMMIT is answered.
#[test]
fn failed_transaction_never_looks_committed() {
    let database = Database::with("create table t (v int)");
    let admin = database.session();
    admin.run("begin");
    let failed = admin.wait(admin.client().batch_execute("select 1 / 0"));
    assert!(failed.is_err());
    assert!(admin.wait(admin.client().batch_execute("commit")).is_ok(), "COMMIT alone looks like success");
    admin.run("begin");
    assert!(admin.wait(admin.client().batch_execute("select 1 / 0")).is_err());
    let tried = admin.wait(admin.client().batch_execute("select 1; commit"));
    assert_eq!(tried.expect_err("what the driver sends does not").code().map(|code| code.code()), Some("25P02"));
}

/// A server that is not there, then is.
#[test]
fn server_that_cannot_be_reached_is_waited_for() {
    let database = Database::with("create table t (v int)");
    let url = format!("postgres://postgres@127.0.0.1:1/{}?sslmode=disable", database.name);
    let mut session = session(&settings_of(&url, vec![]));
    let error = session.claim(&key(0), true).expect_err("nobody is there");
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    let all = each(&[]);
    let mark = ratchet::effect::RowMark { epoch: 1, token: None };
    let key = key(0);
    let step = ratchet::effect::Step { key: &key, mark: &mark, token: token(1), next: 0, effects: &all };
    assert_transient(session.commit(&[step], &mut Redos::default()).expect_err("nobody is there"), "cannot connect");
}

/// A database that does not accept writes for now.
#[test]
fn read_only_database_passes() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[(INSERT, 1)]));
    Task::claim(&mut *session, 0);
    database.run(&format!("alter database {} set default_transaction_read_only = on", database.name));
    let mut later = crate::postgres::task::session(&settings(&database, &[(INSERT, 1)]));
    let error = later.claim(&key(0), true).expect_err("it is read only");
    assert_eq!(error.kind, ErrorKind::Transient, "{error}");
    assert!(error.message.contains("25006"), "{error}");
}
