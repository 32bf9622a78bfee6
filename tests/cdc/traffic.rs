//! Six sessions that change one table of accounts at once, until they are told to stop: transfers, deletes, accounts that
//! are opened again under an old number, numbers that change.
//!
//! There are few accounts, so the sessions wait for each other: for a row, and for a number that another transaction is about
//! to release. If a session cannot go on, because the number is taken or because of a deadlock, it gives up the transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::random::Random;
use crate::session::Session;

/// How many sessions there are.
pub const SESSIONS: usize = 6;
/// The numbers that accounts have. Those below 1 are nobody's but the test's.
const NUMBERS: u64 = 500;
/// Between two transactions of a session.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(60));

/// The accounts of both sides.
pub const ACCOUNTS: &str = "
create table accounts (id bigint primary key, owner text not null, balance bigint not null, revision bigint not null);";

/// The source's objects beside the accounts: the numbers of revisions, and a table of the accounts that are gone (deleted or
/// renumbered), in order, each with its transaction.
pub const SOURCE: &str = "
create sequence revisions;
create table gone (nth bigserial primary key, id bigint not null, how text not null, transaction bigint not null);
create function note_what_is_gone() returns trigger language plpgsql as $$ begin
    insert into gone (id, how, transaction)
        values (old.id, case tg_op when 'DELETE' then 'deleted' else 'renumbered' end, txid_current());
    return null;
end $$;
create trigger a_delete after delete on accounts for each row execute function note_what_is_gone();
create trigger a_renumbering after update of id on accounts for each row when (old.id <> new.id)
    execute function note_what_is_gone();";

/// The accounts that there are at first, as SQL.
pub fn opening() -> String {
    format!(
        "insert into accounts select n, 'owner ' || n, 100, nextval('revisions') from generate_series(1, {NUMBERS}) n;"
    )
}

/// Sessions at work.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<u64>>>,
}

impl Traffic {
    pub fn start(sessions: Vec<Session>, random: &mut Random) -> Traffic {
        let stop = Arc::new(AtomicBool::new(false));
        let begin = |session| {
            let (stop, random) = (Arc::clone(&stop), Random::new(random.next()));
            thread::spawn(move || work(session, random, &stop))
        };
        let threads = sessions.into_iter().map(begin).collect();
        Traffic { stop, threads }
    }

    /// Stops them, and says how many transactions of each kind there were.
    pub fn stop(self) -> String {
        self.stop.store(true, Ordering::Relaxed);
        let counts = self.threads.into_iter().map(|thread| thread.join().expect("a session has failed"));
        let sums =
            counts.fold(vec![0; KINDS.len()], |sums, counts| sums.iter().zip(counts).map(|(a, b)| a + b).collect());
        let sums: Vec<_> = sums.iter().zip(KINDS).map(|(count, kind)| format!("{count} {kind}")).collect();
        sums.join(", ")
    }
}

/// What a session does, most of the time the first.
const KINDS: [&str; 5] =
    ["transfers", "deletes", "openings", "deletes and openings in one transaction", "changes of a number"];

fn work(mut session: Session, mut random: Random, stop: &AtomicBool) -> Vec<u64> {
    let mut counts = vec![0; KINDS.len()];
    while !stop.load(Ordering::Relaxed) {
        let kind = random.below(10_u64).saturating_sub(5) as usize;
        session.run(&transaction(kind, &mut random));
        counts[kind] += 1;
        thread::sleep(random.duration(PAUSE.0, PAUSE.1));
    }
    counts
}

/// A transaction of one kind, which succeeds in any case.
fn transaction(kind: usize, random: &mut Random) -> String {
    let mut any = || random.between(1, NUMBERS);
    let (one, other) = (any(), any());
    let add = |id: u64, amount: i64| {
        format!("update accounts set balance = balance + {amount}, revision = nextval('revisions') where id = {id};")
    };
    let open = |id: u64| {
        format!(
            "insert into accounts values ({id}, 'owner ' || nextval('revisions'), 50, currval('revisions')) \
             on conflict do nothing;"
        )
    };
    let delete = |id: u64| format!("delete from accounts where id = {id};");
    // A transaction that holds a row for a while has others wait for it, and for its number.
    let hold = "perform pg_sleep(0.01);";
    let statements = match kind {
        0 => format!("{} {}", add(one, -7), add(other, 7)),
        1 => format!("{} {hold} {}", add(one, 1), delete(one)),
        2 => open(one),
        3 => format!("{} {hold} {}", delete(one), open(one)),
        _ => format!("update accounts set id = {other}, revision = nextval('revisions') where id = {one}; {hold}"),
    };
    format!("do $$ begin {statements} exception when unique_violation or deadlock_detected then null; end $$;")
}
