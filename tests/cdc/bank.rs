//! A bank's two tables, which are copied into another database, and what applications do to them: values of many types,
//! large ones that a change leaves out, keys of one column and of two, truncates.

use crate::random::Random;
use crate::workload::{Handover, Interleaved};

/// A table that is copied.
pub struct Copied {
    pub name: &'static str,
    /// Its key, as SQL.
    pub key: &'static str,
    /// The key's first column.
    pub id: &'static str,
    /// Of its topic: one where the table is truncated.
    pub partitions: i32,
}

pub const COPIED: [Copied; 2] = [
    Copied { name: "accounts", key: "id", id: "id", partitions: 3 },
    Copied { name: "postings", key: "account, line", id: "account", partitions: 1 },
];

/// The tables, on both sides. Large values are kept outside of their rows, so that a change that leaves them alone has
/// nothing of them: for accounts the log has the new row alone, for postings it has the old row as well.
pub const TABLES: &str = "
create type standing as enum ('good', 'watched', 'closed');
create table accounts (
    id bigint primary key, revision bigint not null, owner text not null, initials char(3), code varchar(12),
    balance numeric, credit numeric(12, 2), rate double precision, share real, visits smallint, is_open boolean,
    standing standing, opened_at timestamptz, signed_at timestamp, born date, calls_at time, notice interval,
    reference uuid, settings jsonb, form json, seal bytea, tags text[], steps int[], address inet,
    contract text not null, scan bytea, history jsonb, pages text[]);
create table postings (
    account bigint, line int, amount numeric(14, 4) not null, booked date, memo text, revision bigint not null,
    primary key (account, line));
alter table accounts alter contract set storage external, alter scan set storage external,
    alter history set storage external, alter pages set storage external;
alter table postings alter memo set storage external;
alter table postings replica identity full;";

/// What notes in the copy that a row went back, or came back after its delete: revisions only rise.
pub const GUARD: &str = "
create table newest (what text primary key, revision bigint not null);
create table fallen (what text, from_revision bigint, to_revision bigint);
create function guard() returns trigger language plpgsql as $$
declare
    place text := tg_table_name || ' ' ||
        (select string_agg(to_jsonb(new) ->> column_name, '/') from unnest(tg_argv) as column_name);
begin
    insert into fallen select place, revision, new.revision from newest
        where what = place and (revision > new.revision or revision = new.revision and tg_op = 'INSERT');
    insert into newest values (place, new.revision)
        on conflict (what) do update set revision = greatest(newest.revision, excluded.revision);
    return null;
end $$;
create trigger guard after insert or update on accounts for each row execute function guard('id');
create trigger guard after insert or update on postings for each row execute function guard('account', 'line');";

/// Columns of accounts, and values of them as SQL.
const VALUES: [(&str, &[&str]); 22] = [
    ("owner", &["'Anne'", "''", "E'Grüße, \"quoted\"\\n\\t\\\\ and ''quoted'' 😀'", "'null'"]),
    ("initials", &["'ab'", "'abc'", "null"]),
    ("code", &["'0012'", "'__debezium'", "null"]),
    ("balance", &["0", "-10.50", "123456789012345678901234567890.123456789", "1e-20", "1e30", "'NaN'", "null"]),
    ("credit", &["1000", "-0.01", "9999999999.99", "null"]),
    ("rate", &["0.1", "-1e-300", "1.7976931348623157e308", "'NaN'", "'-Infinity'", "null"]),
    ("share", &["0.1", "3.4e38", "'Infinity'", "null"]),
    ("visits", &["0", "-32768", "32767", "null"]),
    ("is_open", &["true", "false", "null"]),
    ("standing", &["'good'", "'closed'", "null"]),
    ("opened_at", &["'2026-01-02 03:04:05.678901+02'", "'1969-12-31 23:59:59.999999Z'", "'2026-03-29 01:00Z'", "null"]),
    ("signed_at", &["'2026-03-29 02:30:00.000001'", "'1900-01-01'", "'9999-12-31 23:59:59.999999'", "null"]),
    ("born", &["'2000-02-29'", "'1899-12-31'", "'0001-01-01'", "'9999-12-31'", "null"]),
    ("calls_at", &["'00:00'", "'23:59:59.999999'", "null"]),
    ("notice", &["'1 year 2 mons 3 days 04:05:06.7'", "'-1 day'", "'90 min'", "null"]),
    ("reference", &["'0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab'", "null"]),
    (
        "settings",
        &["'{\"a\": [1.10, null, \"x\"]}'", "'[]'", "'null'", "'\"text\"'", "'12345678901234567890.5'", "null"],
    ),
    ("form", &["'{\"b\": 1.50,  \"a\": [], \"b\": 2}'", "'\"text\"'", "null"]),
    ("seal", &["'\\x'", "'\\x00ff'", "'\\x5c7830'", "null"]),
    ("tags", &["'{}'", "array['a b', null, 'ü,\"x\"', '']", "null"]),
    ("steps", &["'{1,null,-3}'", "null"]),
    ("address", &["'10.0.0.1/8'", "'::1'", "null"]),
];

/// Large columns of accounts, and what makes a large value of a number.
const LARGE: [(&str, &str); 4] = [
    ("contract", "repeat(md5('{}'), 100)"),
    ("scan", "decode(repeat(md5('{}'), 200), 'hex')"),
    ("history", "jsonb_build_object('was', repeat(md5('{}'), 100))"),
    ("pages", "array_fill(md5('{}'), array[100])"),
];

const KINDS: u64 = 11;
/// How many accounts there are at least.
const LIVE_MIN: usize = 8;

/// Generates transactions. Each statement writes a greater revision than all before it.
pub struct Bank {
    random: Random,
    revision: i64,
    last: i64,
    live: Vec<i64>,
    gone: Vec<i64>,
    /// How many changes of one column there were.
    changes: usize,
}

impl Bank {
    pub fn new(random: Random) -> Bank {
        Bank { random, revision: 0, last: 0, live: Vec::new(), gone: Vec::new(), changes: 0 }
    }

    /// First one transaction of each kind, the last of them a truncate, then any others. Last an account is opened and
    /// changed, so that both of its tables show where only the opening comes again.
    pub fn transactions(&mut self, count: u64) -> Vec<String> {
        let mut all = Vec::new();
        if self.live.is_empty() {
            all.push(self.open(LIVE_MIN + 2));
        }
        for n in 0..count {
            let kind = if n < KINDS { n } else { self.random.below(KINDS - 1) };
            all.push(self.transaction(kind));
        }
        all.push(self.open(1));
        let (id, first, second) = (self.last, self.next(), self.next());
        all.push(format!("update accounts set visits = 2, revision = {first} where id = {id};"));
        all.push(format!("update postings set line = line + 100, revision = {second} where account = {id};"));
        all
    }

    fn transaction(&mut self, kind: u64) -> String {
        match kind {
            0 => self.open(2),
            1 | 2 => self.change(),
            3 => self.change_by_share(),
            4 => self.change_large(),
            5 => self.change_several(),
            6 => self.close(),
            7 => self.renumber(),
            8 => self.open_again(),
            9 => self.change_lines(),
            _ => self.truncate(),
        }
    }

    /// A new row for each table, to be committed after everything generated so far; and its number.
    pub fn marker(&mut self) -> (i64, String) {
        let (id, revision) = (1_000_000 + self.next(), self.next());
        let account =
            format!("insert into accounts (id, revision, owner, contract) values ({id}, {revision}, 'marker', '');");
        (id, format!("{account} insert into postings values ({id}, 0, 0, null, 'marker', {revision});"))
    }

    /// A transaction that changes a row, lets another one on another row in between, and changes its row again. It
    /// includes a marker's rows, whose number is returned.
    pub fn straddling(&mut self) -> (i64, Interleaved) {
        let (a, b) = (self.live[0], self.live[1]);
        let mut set = |id: i64| format!("update accounts set balance = 7, revision = {} where id = {id};", self.next());
        let (first, second, third) = (set(a), set(b), set(a));
        let (id, marker) = self.marker();
        let (begin, commit) = (format!("begin; {first}"), format!("{third} {marker} commit;"));
        (id, Interleaved { begin, other: second, commit })
    }

    /// An account whose number is released by one transaction and waited for by another.
    pub fn handover(&mut self) -> Handover {
        let (held, meanwhile) = (self.live[0], self.live[1]);
        let set = |id: i64, revision: i64| format!("update accounts set revision = {revision} where id = {id};");
        let hold = format!("begin; {}", set(held, self.next()));
        let take = format!("{};", self.insert(held));
        let meanwhile = set(meanwhile, self.next());
        Handover { hold, take, meanwhile, release: format!("delete from accounts where id = {held}; commit;") }
    }

    /// An account's insert with large values, a change of its number alone, and one that writes its large values again;
    /// and the new number.
    pub fn renumber_alone(&mut self) -> (i64, [String; 3]) {
        let (old, new) = (self.fresh(), self.fresh());
        let large = LARGE.map(|(name, value)| format!("{name} = {}", value.replace("{}", "large")));
        let large = large.join(", ");
        let (first, second, third) = (self.next(), self.next(), self.next());
        let insert = format!(
            "begin; insert into accounts (id, revision, owner, contract) values ({old}, {first}, 'moves', ''); \
             update accounts set {large} where id = {old}; commit;"
        );
        let renumber = format!("update accounts set id = {new}, revision = {second} where id = {old};");
        let whole = format!("update accounts set {}, revision = {third} where id = {new};", rewritten());
        (new, [insert, renumber, whole])
    }

    fn next(&mut self) -> i64 {
        self.revision += 1;
        self.revision
    }

    fn fresh(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    fn any(&mut self) -> i64 {
        let at = self.random.below(self.live.len() as u64) as usize;
        self.live[at]
    }

    fn take(&mut self) -> i64 {
        let at = self.random.below(self.live.len() as u64) as usize;
        let id = self.live.swap_remove(at);
        self.gone.push(id);
        id
    }

    /// Any of a column's values.
    fn value(&mut self, (name, values): (&'static str, &[&'static str])) -> (&'static str, String) {
        (name, values[self.random.below(values.len() as u64) as usize].to_owned())
    }

    fn large(&self, template: &str) -> String {
        template.replace("{}", &self.revision.to_string())
    }

    fn insert(&mut self, id: i64) -> String {
        let mut columns = vec![("id", id.to_string()), ("revision", self.next().to_string())];
        columns.extend(VALUES.map(|column| self.value(column)));
        let is_large = id % 2 == 1;
        for (name, value) in LARGE {
            match (is_large, name) {
                (true, _) => columns.push((name, self.large(value))),
                (false, "contract") => columns.push((name, "'short'".to_owned())),
                (false, _) => {}
            }
        }
        let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        format!("insert into accounts ({}) values ({})", names.join(", "), values.join(", "))
    }

    fn line(&mut self, account: i64, line: i64) -> String {
        let memo = if line % 2 == 1 { self.large(LARGE[0].1) } else { "'short'".to_owned() };
        let (revision, cents) = (self.next(), self.random.below(1_000_000));
        format!("insert into postings values ({account}, {line}, {cents} / 100.0, '2026-11-23', {memo}, {revision});")
    }

    /// New accounts with their postings, in one transaction.
    fn open(&mut self, count: usize) -> String {
        let mut sql = "begin;".to_owned();
        for _ in 0..count {
            let id = self.fresh();
            sql += &format!(" {}; {} {}", self.insert(id), self.line(id, 1), self.line(id, 2));
            self.live.push(id);
        }
        sql + " commit;"
    }

    /// One column, each in its turn; large values are left alone.
    fn change(&mut self) -> String {
        let (id, (name, value)) = (self.any(), self.value(VALUES[self.changes % VALUES.len()]));
        self.changes += 1;
        format!("update accounts set {name} = {value}, revision = {} where id = {id};", self.next())
    }

    fn change_by_share(&mut self) -> String {
        let share = self.random.below(4);
        format!("update accounts set visits = 1, revision = {} where id % 4 = {share};", self.next())
    }

    /// One large column, the others left alone; now and then it becomes small.
    fn change_large(&mut self) -> String {
        let (id, revision) = (self.any(), self.next());
        let (name, value) = LARGE[self.random.below(LARGE.len() as u64) as usize];
        let value = match self.random.below(4) {
            0 if name == "contract" => "''".to_owned(),
            0 => "null".to_owned(),
            _ => self.large(value),
        };
        format!("update accounts set {name} = {value}, revision = {revision} where id = {id};")
    }

    /// The same row several times in one transaction, and both tables.
    fn change_several(&mut self) -> String {
        let id = self.any();
        let (first, second, third) = (self.next(), self.next(), self.next());
        format!(
            "begin; update accounts set balance = 1.5, revision = {first} where id = {id}; \
             update postings set amount = amount + 0.0001, revision = {second} where account = {id}; \
             update accounts set balance = null, contract = contract || '+', revision = {third} where id = {id}; commit;"
        )
    }

    fn close(&mut self) -> String {
        if self.live.len() < LIVE_MIN {
            return self.open(3);
        }
        let id = self.take();
        format!("begin; delete from postings where account = {id}; delete from accounts where id = {id}; commit;")
    }

    /// A new primary key. The log does not have the old row of an account, so the large values are written again.
    fn renumber(&mut self) -> String {
        if self.live.len() < LIVE_MIN {
            return self.open(3);
        }
        let (old, new, revision) = (self.take(), self.fresh(), self.next());
        self.live.push(new);
        format!("update accounts set id = {new}, revision = {revision}, {} where id = {old};", rewritten())
    }

    fn open_again(&mut self) -> String {
        let Some(id) = self.gone.pop() else { return self.close() };
        self.live.push(id);
        format!("{};", self.insert(id))
    }

    /// New composite keys, large values left alone: the log has them in the old rows.
    fn change_lines(&mut self) -> String {
        let id = self.any();
        format!("update postings set line = line + 100, revision = {} where account = {id};", self.next())
    }

    /// Postings before and after it are in the same transaction.
    fn truncate(&mut self) -> String {
        let (before, after) = (self.any(), self.any());
        let (line, other) = (1_000 + self.next(), 1_000 + self.next());
        format!("begin; {} truncate postings; {} commit;", self.line(before, line), self.line(after, other))
    }
}

/// Assignments that write the large columns again.
fn rewritten() -> &'static str {
    "contract = contract || '', scan = scan || '\\x'::bytea, history = history || '{}'::jsonb, \
     pages = pages || '{}'::text[]"
}
