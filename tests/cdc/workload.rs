//! What applications do to the tables: every kind of change that a connector shows.

use crate::database::{Database, TABLES, tuples};
use crate::random::Random;
use crate::session::Session;
use crate::until::{DEADLINE, within};

/// How many kinds of transactions there are, and how many of these keep every row under its key.
const KINDS: u64 = 10;
const KEEPING: u64 = 6;

/// An order that is never changed, whatever the seed: only snapshots show it once its insert is gone. Below zero, so
/// that no `id % n` selects it; the first row of its table, so that its read is among the first of a snapshot.
const AT_REST: i64 = -1;

/// The kinds of transactions to generate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kinds {
    All,
    /// No row loses its key: neither deletes nor changes of a primary key.
    Keeping,
}

/// Two overlapping transactions: the other begins later and commits earlier.
pub struct Interleaved {
    pub begin: String,
    pub other: String,
    pub commit: String,
}

/// A transaction that waits for a key which another one holds, deletes and releases.
pub struct Handover {
    pub hold: String,
    /// Waits for the end of the one that holds the key.
    pub take: String,
    /// A transaction on another row, which ends meanwhile.
    pub meanwhile: String,
    pub release: String,
}

impl Handover {
    /// Runs it in three sessions: the one that holds the key, the one that waits for it, and one beside them. `waiting`
    /// counts the sessions that wait for another's transaction.
    pub fn run(&self, [session, other, third]: [&mut Session; 3], waiting: &str) {
        session.run(&self.hold);
        other.begin(&self.take);
        within(DEADLINE, "a transaction that waits for a key", || (third.run(waiting) == ["1"]).then_some(()));
        third.run(&self.meanwhile);
        session.run(&self.release);
        other.finish(&self.take);
    }
}

/// Generates transactions. Each statement writes a greater revision than all before it.
pub struct Workload {
    random: Random,
    revision: i64,
    next_order: i64,
    live: Vec<i64>,
    gone: Vec<i64>,
}

impl Workload {
    pub fn new(random: Random) -> Workload {
        Workload { random, revision: 0, next_order: 1, live: Vec::new(), gone: Vec::new() }
    }

    /// First one transaction of each kind, then any.
    pub fn transactions(&mut self, database: &dyn Database, count: u64, kinds: Kinds) -> Vec<String> {
        let end = if kinds == Kinds::All { KINDS } else { KEEPING };
        while self.live.len() < 8 {
            self.next_order += 1;
            self.live.push(self.next_order);
        }
        let first = self.insert_all_live();
        let further: Vec<String> = (0..count)
            .map(|n| {
                let kind = if n < end { n } else { self.random.below(end) };
                self.transaction(database, kind)
            })
            .collect();
        first.into_iter().chain(further).collect()
    }

    fn transaction(&mut self, database: &dyn Database, kind: u64) -> String {
        match kind {
            0 => self.insert(3),
            1 => self.bulk_load(database),
            2 => self.update_by_list(),
            3 => self.update_by_share(),
            4 => self.several_statements(),
            5 => self.update_lines(),
            6 => self.delete(),
            7 => self.change_key(),
            8 => self.bring_back(),
            _ => self.change_line_keys(),
        }
    }

    /// A transaction that is open while another one begins and commits, on other rows.
    pub fn interleaved(&mut self) -> Interleaved {
        let (a, b, c) = (self.live[0], self.live[1], self.live[2]);
        let mut set =
            |id: i64| format!("update orders set status = 'at once', revision = {} where id = {id};", self.next());
        let (first, second, third) = (set(a), set(b), set(c));
        Interleaved { begin: format!("begin; {first}"), other: second, commit: format!("{third} commit;") }
    }

    /// An order that is handed over from one transaction to another: the other one inserts it or, in turn, gives its
    /// number to an existing row.
    pub fn handover(&mut self, nth: u64) -> Handover {
        let (held, meanwhile) = (self.live[0], self.live[1]);
        let set = |status: &str, revision: i64, id: i64| {
            format!("update orders set status = '{status}', revision = {revision} where id = {id};")
        };
        let hold = format!("begin; {}", set("held", self.next(), held));
        let take = if nth.is_multiple_of(2) || self.live.len() < 9 {
            let row = self.order(held);
            format!("insert into orders values ({row});")
        } else {
            let renumbered = self.live.remove(2);
            self.gone.push(renumbered);
            format!("update orders set id = {held}, revision = {} where id = {renumbered};", self.next())
        };
        let meanwhile = set("meanwhile", self.next(), meanwhile);
        Handover { hold, take, meanwhile, release: format!("delete from orders where id = {held}; commit;") }
    }

    /// A transaction that changes a row, lets another transaction on another row in between, and changes its row again.
    /// It includes a marker's rows, whose number is returned.
    pub fn straddling(&mut self) -> (i64, Interleaved) {
        let (a, b) = (self.live[0], self.live[1]);
        let mut set =
            |id: i64| format!("update orders set status = 'astride', revision = {} where id = {id};", self.next());
        let (first, second, third) = (set(a), set(b), set(a));
        let (id, marker) = self.marker();
        (
            id,
            Interleaved {
                begin: format!("begin; {first}"),
                other: second,
                commit: format!("{third} {marker} commit;"),
            },
        )
    }

    /// A new row for each table, to be committed after everything generated so far.
    pub fn marker(&mut self) -> (i64, String) {
        let id = 1_000_000 + self.next();
        let revision = self.next();
        let orders = format!("insert into orders values ({id}, 'marker', 0, null, {revision});");
        (id, format!("{orders} insert into order_lines values ({id}, 0, 'marker', 0, {revision});"))
    }

    fn next(&mut self) -> i64 {
        self.revision += 1;
        self.revision
    }

    fn any_live(&mut self) -> i64 {
        let at = self.random.below(self.live.len() as u64) as usize;
        self.live[at]
    }

    fn order(&mut self, id: i64) -> String {
        format!("{id},'new',{},'Grüße an Kunde {id}',{}", id * 100, self.next())
    }

    fn line(&mut self, order: i64, line: i64) -> String {
        format!("{order},{line},'sku-{line}',{},{}", self.random.below(9) + 1, self.next())
    }

    /// Inserts the first orders and the one at rest; `None` once they exist.
    fn insert_all_live(&mut self) -> Option<String> {
        (self.revision == 0).then(|| {
            let ids = [AT_REST].into_iter().chain(self.live.clone());
            let rows: Vec<String> = ids.map(|id| self.order(id)).collect();
            format!("insert into orders values {};", tuples(&rows))
        })
    }

    /// A multi-row insert of new orders, with their lines in the same transaction.
    fn insert(&mut self, count: i64) -> String {
        let ids: Vec<i64> = (1..=count).map(|n| self.next_order + n).collect();
        self.next_order += count;
        let orders: Vec<String> = ids.iter().map(|&id| self.order(id)).collect();
        let lines: Vec<String> =
            ids.iter().flat_map(|&id| [(id, 1), (id, 2)]).map(|(id, n)| self.line(id, n)).collect();
        self.live.extend(ids);
        format!(
            "begin; insert into orders values {}; insert into order_lines values {}; commit;",
            tuples(&orders),
            tuples(&lines)
        )
    }

    fn bulk_load(&mut self, database: &dyn Database) -> String {
        let ids: Vec<i64> = (1..=6).map(|n| self.next_order + n).collect();
        self.next_order += 6;
        let orders: Vec<String> = ids.iter().map(|&id| self.order(id)).collect();
        let lines: Vec<String> = ids.iter().map(|&id| self.line(id, 1)).collect();
        self.live.extend(ids);
        database.bulk_load(TABLES[0].name, &orders) + "\n" + &database.bulk_load(TABLES[1].name, &lines)
    }

    fn update_by_list(&mut self) -> String {
        let (a, b) = (self.any_live(), self.any_live());
        format!("update orders set status = 'paid', revision = {} where id in ({a}, {b});", self.next())
    }

    fn update_by_share(&mut self) -> String {
        let share = self.random.below(5);
        format!("update orders set cents = cents + 1, revision = {} where id % 5 = {share};", self.next())
    }

    /// The same row several times in one transaction, and both tables.
    fn several_statements(&mut self) -> String {
        let id = self.any_live();
        let (first, second, third) = (self.next(), self.next(), self.next());
        format!(
            "begin; update orders set status = 'packed', revision = {first} where id = {id}; \
             update order_lines set qty = qty + 1, revision = {second} where order_id = {id}; \
             update orders set status = 'sent', note = null, revision = {third} where id = {id}; commit;"
        )
    }

    fn update_lines(&mut self) -> String {
        let share = self.random.below(3);
        format!("update order_lines set qty = qty + 1, revision = {} where order_id % 3 = {share};", self.next())
    }

    fn take_live(&mut self) -> i64 {
        let at = self.random.below(self.live.len() as u64) as usize;
        let id = self.live.swap_remove(at);
        self.gone.push(id);
        id
    }

    fn delete(&mut self) -> String {
        if self.live.len() < 8 {
            return self.insert(3);
        }
        let id = self.take_live();
        format!("begin; delete from order_lines where order_id = {id}; delete from orders where id = {id}; commit;")
    }

    fn change_key(&mut self) -> String {
        if self.live.len() < 8 {
            return self.insert(3);
        }
        let old = self.take_live();
        self.next_order += 1;
        self.live.push(self.next_order);
        let (new, revision) = (self.next_order, self.next());
        format!("update orders set id = {new}, revision = {revision} where id = {old};")
    }

    /// Inserts a deleted order again under its old number.
    fn bring_back(&mut self) -> String {
        let Some(id) = self.gone.pop() else { return self.delete() };
        self.live.push(id);
        let row = self.order(id);
        format!("insert into orders values ({row});")
    }

    fn change_line_keys(&mut self) -> String {
        let id = self.any_live();
        format!("update order_lines set line = line + 100, revision = {} where order_id = {id};", self.next())
    }
}
