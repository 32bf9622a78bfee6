//! Goal: a secret that is replaced in its file is used without a restart of the process, and no record is lost or done
//! twice.

use crate::database;
use crate::load::thing;
use crate::operator::Operator;
use crate::sinks::shop::Shop;
use crate::until::{DEADLINE, within};

#[test]
fn replaced_address_is_used_without_a_restart_of_the_process() {
    let shop = Shop::new("replaced", 2);
    let name = shop.database.value("select current_database()");
    let role = |number: u8| format!("{name}_role_{number}");
    let url = |number: u8| database::shared().url(&role(number), &name);
    for number in [1, 2] {
        shop.database.run(&format!("create role {} superuser login", role(number)));
    }
    let send = |from: usize| {
        let things = (from..from + 50).flat_map(|id| [0, 1].map(|partition| thing(partition, &format!("o-{id}"), 1)));
        shop.job.send(things);
    };
    shop.reach(&url(1));
    send(0);
    let mut operator = Operator::start(&shop.job, "a");
    shop.check(DEADLINE);
    let pid = operator.pid();

    // The former role can no longer log in.
    shop.reach(&url(2));
    shop.database.run(&format!("alter role {} nologin", role(1)));
    let end = format!("select pg_terminate_backend(pid) from pg_stat_activity where usename = '{}'", role(1));
    shop.database.rows(&end);
    send(50);
    operator.await_line(&["files were replaced", "url"], DEADLINE);
    let sessions = format!("select count(*) from pg_stat_activity where usename = '{}'", role(2));
    within(DEADLINE, "the other role to be used", || (shop.database.value(&sessions) != "0").then_some(()));
    shop.check(DEADLINE);
    operator.await_ready(DEADLINE);
    assert_eq!(operator.pid(), pid);
    operator.assert_running();
    operator.stop();
}
