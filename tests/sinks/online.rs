//! Goal: `ratchet check --online` says what a topology will meet in its database, and changes nothing there.

use ratchet::postgres::ddl;

use crate::checked::check_online;
use crate::database::{Database, GUARDED, shared};
use crate::load::{Load, Random};
use crate::operator::Operator;
use crate::sinks::shop::{Shop, TABLES};
use crate::until::DEADLINE;

/// A shop whose operators have the role without rights, which may read all tables but ratchet's own.
fn limited(theme: &str) -> Shop {
    let shop = Shop::new(theme, 1);
    shop.reach(&shared().url("limited", &shop.database.name));
    shop.database.run(&format!("revoke create on database {} from public", shop.database.name));
    shop.database.run("grant select on all tables in schema public to limited");
    shop
}

#[test]
fn database_that_is_as_it_should_be_is_fine_and_left_so() {
    let shop = Shop::new("online-fine", 1);
    check_online(&shop.job).says(0, &["in the database: fine", "on the cluster: fine", "'ratchet run' creates them"]);
    let left = "select (select count(*) from applied), (select count(*) from pg_namespace where nspname = 'ratchet')";
    assert_eq!(shop.database.value(left), "0|0");
    shop.database.run(&ddl("ratchet"));
    check_online(&shop.job).says(0, &["in the database: fine"]).says_nothing_of("creates them");
}

#[test]
fn missing_table_and_column_are_named() {
    let shop = Shop::new("online-missing", 1);
    let statement = "insert into applied (part, at, id, version, note)";
    shop.database.run("alter table applied drop column note");
    let words =
        ["in the database: cannot be used", statement, "column \"note\" of relation \"applied\" does not exist"];
    check_online(&shop.job).says(2, &words);
    shop.database.run("drop table applied");
    check_online(&shop.job)
        .says(2, &[statement, "relation \"applied\" does not exist (42P01)", "run would wait for the database"]);
}

#[test]
fn parameters_without_a_type_are_named() {
    let statements = "
      - sql: insert into latest select 'a', 1, 1 where $1 is null
        with: [value.note]
      - sql: update latest set id = $1, version = $1
        with: [value.version]
";
    let shop = Shop::with("online-types", 1, Database::with(TABLES), statements.trim_start_matches('\n'));
    let words = [
        "could not determine data type of parameter $1 (42P18)",
        "inconsistent types deduced for parameter $1",
        "run would wait for the database and process nothing, for 2 reasons",
    ];
    check_online(&shop.job).says(2, &words);
}

#[test]
fn missing_rights_are_named() {
    let shop = limited("online-rights");
    shop.database.run(&ddl("ratchet"));
    let words = ["permission denied for schema ratchet (42501)", "grant usage on schema \"ratchet\""];
    check_online(&shop.job).says(2, &words);
    shop.database
        .run("grant usage on schema ratchet to limited; grant select on all tables in schema ratchet to limited");
    let words = [
        "permission denied for table applied (42501)",
        "permission denied for table latest (42501)",
        "grant the right to this role",
        "may not update on ratchet's own table \"ratchet\".position",
    ];
    check_online(&shop.job).says(2, &words);
}

#[test]
fn tables_that_it_may_not_create_are_printed() {
    let shop = limited("online-own");
    let ddl = ddl("ratchet");
    let grant = "grant select, insert, update on \"ratchet\".position to \"limited\";";
    let words = ["this role may not create them", "let somebody who may create them run this", &ddl, grant];
    check_online(&shop.job).says(2, &words);
}

#[test]
fn database_that_cannot_be_reached_is_said() {
    let shop = Shop::new("online-unreached", 1);
    shop.reach_by(1);
    check_online(&shop.job).says(2, &["in the database: cannot be used", "cannot connect to database"]);
    shop.reach(&shared().url("postgres", "nowhere"));
    check_online(&shop.job).says(2, &["database \"nowhere\" does not exist (3D000)"]);
}

#[test]
fn wrong_password_is_said_and_never_shown() {
    let shop = Shop::new("online-password", 1);
    let (user, _) = GUARDED;
    let (port, name) = (&shared().port, &shop.database.name);
    shop.reach(&format!("postgres://{user}:hunter2@127.0.0.1:{port}/{name}"));
    let checked = check_online(&shop.job);
    let words = ["password authentication failed", "28P01", "see the user and the password in the url"];
    checked.says(2, &words).says_nothing_of("hunter2");
}

#[test]
fn rows_are_compared_with_what_the_group_says() {
    let shop = Shop::new("online-rows", 2);
    let mut load = Load::new(Random::seeded("online rows"), 2, 50);
    shop.job.send(load.records(300));
    let mut operator = Operator::start(&shop.job, "a");
    shop.check(DEADLINE);
    check_online(&shop.job).says(0, &["in the database: fine", "on the cluster: fine"]);
    operator.stop();
    check_online(&shop.job).says(0, &["on the cluster: fine"]);
    let database = &shop.database;
    database.run("create table kept as select * from ratchet.position");
    let put_back = "truncate ratchet.position; insert into ratchet.position select * from kept";
    for (sql, code, words) in [
        ("delete from ratchet.position where partition = 1", 2, "no row for 1 partition of"),
        (
            "update ratchet.position set token = former_token, former_token = null, next_offset = 0",
            2,
            "the database is behind Kafka for 2 partitions",
        ),
        ("update ratchet.position set topic_id = repeat('0', 32)", 2, "rows of this topology for another topic"),
        (
            "update ratchet.position set next_offset = next_offset + 9, former_token = null, \
             token = regexp_replace(token, '^[0-9a-f]{16}', repeat('0', 16))",
            0,
            "seems to be ahead of Kafka for 2 partitions",
        ),
        ("drop schema ratchet cascade", 2, "no row for 2 partitions of"),
    ] {
        database.run(sql);
        check_online(&shop.job).says(code, &[words]);
        if !sql.starts_with("drop") {
            database.run(put_back);
        }
    }
}

#[test]
fn commits_that_a_crash_may_take_back_are_said() {
    let shop = Shop::new("online-asynchronous", 1);
    shop.database.run(&format!("alter database {} set synchronous_commit = off", shop.database.name));
    check_online(&shop.job).says(0, &["in the database: fine", "synchronous_commit is off"]);
}
