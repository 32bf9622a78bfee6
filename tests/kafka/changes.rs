//! Goal: what ratchet remembers of a CDC stream (the tombstones that deletes owe, the scopes and segments of two
//! servers, a table's truncate) survives kills and lost disks; and a change of its meaning is refused.

mod plot;

use std::collections::BTreeMap;

use plot::{Plot, Step};

use crate::checker::bytes::{self, POSITION_KEY, Scope};
use crate::checker::fold;
use crate::cluster::{Fresh, Stored};
use crate::job::Job;
use crate::load::now_ms;
use crate::operator::{Operator, Options};
use crate::until::DEADLINE;

const PARTITIONS: i32 = 2;

/// A job with the preset of Debezium's MySQL connector.
fn cdc(theme: &str) -> Job {
    let mut job = Job::new(theme, PARTITIONS);
    job.instead = Some(format!("preset: debezium-mysql@1\ninput: {{topics: [{}]}}\n", job.input));
    job
}

type Bytes = Option<Vec<u8>>;

/// A record without its place.
fn content(record: &Stored) -> (Bytes, Bytes, i64) {
    (record.key.clone(), record.value.clone(), record.timestamp.expect("each has one"))
}

fn sent(record: &Fresh) -> (Bytes, Bytes, i64) {
    (record.key.clone(), record.value.clone(), record.timestamp.expect("each has one"))
}

/// Compares all that the job has left in Kafka with the plots.
fn check_all(job: &Job, plots: &[Plot]) {
    let (output, changelog) = (job.kafka.read(&job.output), job.kafka.read(&job.changelog()));
    for (partition, plot) in (0..PARTITIONS).zip(plots) {
        let got: Vec<_> = output[&partition].iter().map(content).collect();
        let expected: Vec<_> = plot.survivors().map(sent).collect();
        for (nth, (got, expected)) in got.iter().zip(&expected).enumerate() {
            assert_eq!(got, expected, "{}:{partition}, the {nth}th survivor", job.output);
        }
        assert_eq!(got.len(), expected.len(), "{}:{partition}", job.output);
        let mut state: BTreeMap<_, _> = fold(&changelog[&partition]);
        let position = bytes::position(&state.remove(POSITION_KEY).expect("a position record"));
        assert_eq!(position.processed, [(0, plot.records.len() as i64)]);
        assert_eq!(position.truncates, 1);
        // How far each got shows in the segments, and in what was dropped.
        let scopes: Vec<_> = position.scopes.into_iter().map(|scope| Scope { reached: Vec::new(), ..scope }).collect();
        assert_eq!(scopes, plot.scopes(), "the scopes of partition {partition}");
        let expected = plot.entries();
        assert_eq!(state.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (key, entry) in &expected {
            assert_eq!(&state[key], entry, "{}", String::from_utf8_lossy(key));
        }
    }
}

/// Sends these steps and starts an operator that dies at this point.
fn dies(job: &Job, plots: &mut [Plot], steps: &[Step], point: &str) -> Operator {
    plots.iter_mut().for_each(|plot| job.send(plot.play(steps)));
    let mut dying = Operator::start_with(job, "a", &Options { crash_at: Some(point), ..Options::default() });
    dying.await_crash();
    dying
}

/// Kills an operator wherever something of a source's peculiarities has to be remembered; `wiped` loses the disk each
/// time.
fn survives(theme: &str, wiped: bool) {
    let job = cdc(theme);
    let start = now_ms() - 600_000;
    let mut plots: Vec<Plot> = (0..PARTITIONS).map(|partition| Plot::new(partition, 40, start)).collect();
    let [snapshot, deletes, tombstones, failover, failback, end] = plot::CHAPTERS;
    let end_life = |mut operator: Operator| if wiped { operator.kill_and_wipe() } else { operator.kill() };
    end_life(dies(&job, &mut plots, snapshot, "after_commit:1"));
    end_life(dies(&job, &mut plots, deletes, "after_sends:1"));
    // None of that was committed; now it is, and the tombstones are owed.
    end_life(dies(&job, &mut plots, &[], "after_commit:1"));
    end_life(dies(&job, &mut plots, tombstones, "after_sends:1"));
    end_life(dies(&job, &mut plots, failover, "after_commit:1"));
    end_life(dies(&job, &mut plots, failback, "after_sends:1"));
    plots.iter_mut().for_each(|plot| job.send(plot.play(end)));
    let mut successor = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    successor.stop();
    check_all(&job, &plots);
}

#[test]
fn scopes_owed_tombstones_and_truncates_survive_kills() {
    survives("cdc-kills", false);
}

#[test]
fn scopes_owed_tombstones_and_truncates_survive_lost_disks() {
    survives("cdc-wiped", true);
}

/// The rules that give the entries their meaning.
const MEANING: [(&str, &str); 4] = [
    ("identity", "[value.id]"),
    ("version", "{of: value.version, as: integer}"),
    ("epoch", "[value.server, {const: 1}]"),
    ("kinds", "{of: value.op, delete: [d], read: [r]}"),
];

fn written(job: &Job, changed: &[(&str, &str)]) -> String {
    let mut lines: BTreeMap<&str, &str> = MEANING.into();
    lines.extend(changed.iter().copied());
    let lines: String = lines.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
    format!("input: {{topics: [{}], value_format: json}}\n{lines}", job.input)
}

fn change(op: &str, id: &str, version: i64) -> Fresh {
    let value = format!(r#"{{"id":"{id}","version":{version},"server":"one","other":"two","op":"{op}"}}"#);
    Fresh::new(0, id, value).at(now_ms())
}

#[test]
fn changed_meaning_is_refused_and_other_changes_are_accepted() {
    let mut job = Job::new("meaning", 1);
    job.instead = Some(written(&job, &[]));
    job.send([change("c", "known", 5), change("c", "known", 4)]);
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.stop();
    for changed in [
        ("identity", "[value.id, value.other]"),
        ("identity", "[{content: value.id}]"),
        ("version", "{of: value.version, as: decimal}"),
        ("version", "{of: value.version, as: integer, none: [0]}"),
        ("epoch", "[value.other, {const: 1}]"),
        ("epoch", "[value.server]"),
        ("kinds", "{of: value.op, delete: [d, x], read: [r]}"),
    ] {
        job.instead = Some(written(&job, &[changed]));
        let mut refused = Operator::start(&job, "a");
        let status = refused.await_exit(DEADLINE);
        assert!(status.code().is_some_and(|code| code != 0), "{changed:?}: {status}");
        for word in ["under other rules", "have changed their meaning", "new name", &job.input] {
            assert!(refused.printed().contains(word), "{changed:?}: {word:?} is missing, {}", refused.tail());
        }
        assert_eq!(job.output().len(), 1, "{changed:?}");
    }
    let elsewhere = format!("{{topic: {}.elsewhere}}", job.name);
    job.kafka.create(&format!("{}.elsewhere", job.name), 1, &[]);
    let free = [
        ("on_equal", "dead_letter"),
        ("on_late", "forward"),
        ("on_epoch_change", "drop"),
        ("on_null_value", "drop"),
        ("refresh", "on_duplicate"),
        ("retention", "30d"),
        ("kinds", "{of: value.op, delete: [d], read: [r], reads: by_version}"),
        ("epoch", "[value.server, {const: 2}]"),
        ("output", elsewhere.as_str()),
    ];
    for (next, changed) in (6..).zip(free) {
        job.instead = Some(written(&job, &[changed]));
        let output = if changed.0 == "output" { format!("{}.elsewhere", job.name) } else { job.output.clone() };
        let count = || job.kafka.read(&output)[&0].len();
        let before = count();
        // The first is decided by what is remembered; the second is new, in the new epoch too.
        // A read only wins over what is known where reads compare by version.
        let op = if changed.0 == "kinds" { "r" } else { "c" };
        job.send([change("c", "known", next - 2), change(op, "known", next)]);
        let mut accepted = Operator::start(&job, "a");
        job.await_drained(DEADLINE);
        accepted.stop();
        // Another constant is another epoch, and starts with the first record.
        let new = if changed.0 == "epoch" { 2 } else { 1 };
        assert_eq!(count() - before, new, "{changed:?}, {}", accepted.tail());
    }
}
