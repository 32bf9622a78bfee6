//! Goal: the rights that docs/operations.md lists are those that a run needs: with exactly these it can do everything,
//! and without any one of them it says which is missing.
//!
//! The list is parsed from the documentation. The broker's authorizer is Kafka's own (StandardAuthorizer).

use std::time::Duration;

use crate::checked::check_online;
use crate::checker::{Fate, check};
use crate::cluster::{Acl, Kafka, Resource};
use crate::job::Job;
use crate::kafka::{self, shared_broker};
use crate::load::{thing, things};
use crate::operator::{Operator, Options};
use crate::real_kafka::access::{log_in, password};
use crate::until::{DEADLINE, within};

const DOCS: &str = include_str!("../../docs/operations.md");
/// The topology in the documentation's list.
const EXAMPLE: &str = "payments";
/// A user without any rights but those granted.
const USER: &str = "limited";

/// One right of the list, and when it is needed.
struct Listed {
    acl: Acl,
    why: String,
}

impl Listed {
    /// Whether it is needed only where ratchet creates the output.
    fn is_for_a_new_output(&self) -> bool {
        self.why.contains("`topics.create: all`")
    }
}

/// The documentation's list, for this job.
fn listed(job: &Job) -> Vec<Listed> {
    let (_, section) = DOCS.split_once("\n## Rights\n").expect("the documentation lists the rights");
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [resource, name, operations, why] = cells[..] else { panic!("not four cells: {row}") };
        let resource = match resource {
            "Topic" => Resource::Topic,
            "Group" => Resource::Group,
            "TransactionalId" => Resource::TransactionalId,
            other => panic!("{other} is not a resource type"),
        };
        let prefixed = name.ends_with("(prefixed)");
        let name = name.split('`').nth(1).expect("a name in backticks").replace(EXAMPLE, &job.name);
        let operations = operations.split(", ").map(move |operation| Listed {
            acl: Acl { resource, name: name.clone(), prefixed, operation: operation.to_owned() },
            why: why.to_owned(),
        });
        operations.collect::<Vec<_>>()
    })
    .collect()
}

/// A job that uses every feature, named as in the documentation, run by the limited user. Its input exists.
fn job(theme: &str) -> Job {
    let broker = shared_broker();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), theme);
    job.input = job.name.clone();
    job.output = format!("{}.unique", job.name);
    job.topology.push(format!("audit: {{topic: {}.audit}}", job.name));
    job.kafka.create(&job.input, 2, &[]);
    log_in(&mut job, broker, USER);
    job
}

fn grant(job: &Job, rights: impl Iterator<Item = Listed>) {
    let acls: Vec<Acl> = rights.map(|right| right.acl).collect();
    job.kafka.allow(USER, &acls);
}

fn start(job: &Job, label: &str, crash_at: Option<&str>) -> Operator {
    Operator::start_with(job, label, &Options { crash_at, ..password("limited-secret") })
}

/// Starts, forwards, drops and explains, sets aside, dies, is fenced by its successor, restores, continues.
fn use_every_right(job: &Job) {
    let broken = crate::cluster::Fresh::new(0, "broken", "{").at(crate::load::now_ms());
    job.send(things(0, 0..50, 1).chain(things(0, 0..50, 1)).chain([broken]));
    let mut first = start(job, "a", None);
    job.await_drained(DEADLINE);
    first.kill();
    let mut second = start(job, "a", Some("after_sends:1"));
    job.send(things(1, 50..60, 1));
    second.await_crash();
    let mut third = start(job, "b", None);
    job.send([thing(0, "thing-1", 2)]);
    job.await_drained(DEADLINE);
    assert!(!third.printed().contains("owner not fenced"), "{}", third.tail());
    third.stop();
    let found = check(job, &[third.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (61, 50));
    assert_eq!(job.kafka.read(&job.dead_letter())[&0].len(), 1);
    let explained: usize = job.kafka.read(&format!("{}.audit", job.name)).values().map(Vec::len).sum();
    assert_eq!(explained, 50);
}

#[test]
fn documented_rights_suffice_to_run() {
    let job = job("rights-exact");
    job.kafka.create(&job.output, 2, &[]);
    grant(&job, listed(&job).into_iter().filter(|right| !right.is_for_a_new_output()));
    use_every_right(&job);
}

#[test]
fn documented_rights_suffice_to_create_the_output() {
    let mut job = job("rights-all");
    job.worker.push("topics: {create: all, replication_factor: 1, min_insync_replicas: 1}".to_owned());
    grant(&job, listed(&job).into_iter());
    use_every_right(&job);
}

/// Starts a job that lacks its `index`th right, and waits until it has said so and ended.
fn lack(index: usize) {
    let mut job = job(&format!("rights-lack-{index}"));
    let mut rights = listed(&job);
    let missing = rights.remove(index);
    if missing.is_for_a_new_output() {
        job.worker.push("topics: {create: all, replication_factor: 1, min_insync_replicas: 1}".to_owned());
    } else {
        job.kafka.create(&job.output, 2, &[]);
    }
    grant(&job, rights.into_iter());
    let Acl { resource, name, operation, .. } = missing.acl;
    // A right granted on a prefix is missed on a topic with that prefix.
    let named = if resource == Resource::Topic && name.ends_with('.') { job.changelog() } else { name };
    let words = match resource {
        Resource::Topic => format!("grant {operation} on topic {named}"),
        Resource::Group => format!("grant {operation} on the group"),
        Resource::TransactionalId => format!("grant {operation} on the topology's transactional ids"),
    };
    job.send(things(0, 0..10, 1));
    let mut operator = start(&job, "a", None);
    operator.await_error(&[&words, &named]);
    assert_eq!(operator.await_exit(Duration::from_secs(30)).code(), Some(2), "{}", operator.tail());
    // `check` can see a topic's rights once the topic exists, and by now it does if that is possible.
    match resource {
        Resource::TransactionalId => check_online(&job).says(0, &["grant Write on them", &named]),
        _ => check_online(&job).says(2, &[&words, &named]),
    };
    let errors = operator.log().into_iter().filter(|line| line["level"] == "ERROR");
    let others = errors.filter(|line| !line.to_string().contains(&named)).filter(|line| line["topology"].is_string());
    assert_eq!(others.collect::<Vec<_>>(), Vec::<serde_json::Value>::new(), "more than {words:?} was reported");
    let came_out = job.kafka.partitions(&job.output).is_some_and(|_| !job.output().is_empty());
    assert!(!came_out, "records came out without {words:?}");
}

#[test]
fn each_missing_right_is_named() {
    const AT_ONCE: usize = 4;
    let count = listed(&job("rights-count")).len();
    assert!(count >= 17, "the documentation lists {count} rights: was the table found?");
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    lack(index);
                }
            });
        }
    });
}

/// Takes the right to write to `name` away from a running job, which logs all these words. Nothing more comes out until
/// the right is granted again.
#[track_caller]
fn take_write_away(job: &Job, resource: Resource, name: &str, words: &[&str]) {
    job.kafka.create(&job.output, 2, &[]);
    let rights: Vec<Listed> = listed(job).into_iter().filter(|right| !right.is_for_a_new_output()).collect();
    let mut acls = rights.iter().map(|right| &right.acl);
    let taken = acls.find(|acl| acl.resource == resource && acl.name == name && acl.operation == "Write");
    let taken = taken.expect("the right is listed").clone();
    grant(job, rights.into_iter());
    job.send(things(0, 0..10, 1));
    let mut operator = start(job, "a", None);
    job.await_drained(DEADLINE);
    job.kafka.disallow(USER, &taken);
    job.send(things(0, 10..20, 1));
    operator.await_line(words, DEADLINE);
    assert_eq!(job.output().len(), 10, "records came out without {taken:?}");
    // It has not given up meanwhile.
    job.kafka.allow(USER, std::slice::from_ref(&taken));
    within(DEADLINE, "the rest to come out", || (job.output().len() == 20).then_some(()));
    operator.assert_running();
    operator.stop();
}

#[test]
fn write_right_revoked_during_a_run_is_named() {
    // The error says which topic it is on the wire. By librdkafka only librdkafka's own line does.
    let adding = if kafka::is_on_the_wire() { "adding" } else { "failed to add partition" };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let job = job("rights-revoked-ids");
            let ids = format!("ratchet.{}.", job.name);
            let words = ["grant Write on the topology's transactional ids"];
            take_write_away(&job, Resource::TransactionalId, &ids, &words);
        });
        scope.spawn(|| {
            let job = job("rights-revoked-output");
            let words = [adding, job.output.as_str(), "topic authorization failed"];
            take_write_away(&job, Resource::Topic, &job.output, &words);
        });
        scope.spawn(|| {
            let job = job("rights-revoked-changelog");
            let (prefix, changelog) = (format!("ratchet.{}.", job.name), job.changelog());
            let words = [adding, changelog.as_str(), "topic authorization failed"];
            take_write_away(&job, Resource::Topic, &prefix, &words);
        });
    });
}

/// Takes a right away from a running job whose tasks then have to settle, and grants it again once that was logged: the
/// job continues as if nothing had happened.
#[track_caller]
fn revoke_briefly(theme: &str, resource: Resource, operation: &str, named: fn(&Job) -> String) {
    let job = job(theme);
    job.kafka.create(&job.output, 2, &[]);
    let rights: Vec<Listed> = listed(&job).into_iter().filter(|right| !right.is_for_a_new_output()).collect();
    let name = named(&job);
    let mut acls = rights.iter().map(|right| &right.acl);
    let taken = acls.find(|acl| acl.resource == resource && acl.name == name && acl.operation == operation);
    let taken = taken.expect("the right is listed").clone();
    grant(&job, rights.into_iter());
    job.send((0..2).flat_map(|partition| things(partition, 0..10, 1)));
    let mut operator = start(&job, "a", None);
    job.await_drained(DEADLINE);
    job.kafka.disallow(USER, &taken);
    // A fenced owner restores under another id: fence each anew until one meets the missing right.
    within(DEADLINE, &format!("it to log that {operation} is missing on {name}"), || {
        for owner in job.owners().into_iter().flatten() {
            job.kafka.transaction(&owner, DEADLINE).abort();
        }
        job.send((0..2).flat_map(|partition| things(partition, 0..1, 1)));
        operator.printed().to_lowercase().contains("authorization failed").then_some(())
    });
    // Longer than all the client's retries.
    std::thread::sleep(Duration::from_secs(3));
    job.kafka.allow(USER, std::slice::from_ref(&taken));
    job.send((0..2).flat_map(|partition| things(partition, 10..20, 1)));
    within(DEADLINE, "the rest to come out", || (job.output().len() == 40).then_some(()));
    operator.assert_running();
    operator.stop();
}

#[test]
fn briefly_missing_read_right_stops_nothing() {
    std::thread::scope(|scope| {
        scope.spawn(|| revoke_briefly("moment-input", Resource::Topic, "Read", |job| job.input.clone()));
        scope.spawn(|| revoke_briefly("moment-group", Resource::Group, "Read", |job| job.group()));
    });
}
