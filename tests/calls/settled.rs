//! Goal: what somebody decides by hand is carried out by the owner, once, and acknowledged once; what is under way is
//! waited for; whatever is wrong with a command, or with the topic that it is given in, stops nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ratchet::cluster::embedded::Embedded;
use ratchet::cluster::{Cluster, Message, NewTopic};
use ratchet::format::{Acknowledgement, CommandId, Outcome};
use ratchet::record::Headers;
use serde_json::Value;

use crate::calls::payments::{End, KEYED, KEYLESS, Payments, charge, charges};
use crate::cluster::Fresh;
use crate::kafka;
use crate::operator::{Operator, Options};
use crate::provider::{Move, Provider};
use crate::until::{DEADLINE, within};

/// A kill is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(90);

/// What a command has said.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    #[track_caller]
    fn ended(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    fn wrote(self, line: &str) -> Ran {
        assert_eq!(self.out.trim_end(), line, "{self:#?}");
        self
    }

    /// Its message, whose lines are wrapped, says all this.
    #[track_caller]
    fn said(self, all: &[&str]) -> Ran {
        let words: Vec<&str> =
            self.err.split(|c: char| c.is_whitespace() || c == '│').filter(|word| !word.is_empty()).collect();
        let flat = words.join(" ");
        assert!(all.iter().all(|part| flat.contains(part)), "{all:?} in {self:#?}");
        self
    }
}

/// The program, with these words; without the tests' own settings.
fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RATCHET_")) {
        command.env_remove(name);
    }
    command.args(words).stdin(Stdio::null());
    command
}

impl Payments {
    fn command(&self, words: &[&str]) -> Command {
        let config = self.job.write_config("command", &self.job.path("state-command"));
        let mut command = program(words);
        command.arg(self.job.write_topology()).arg("--config").arg(config);
        command
    }

    fn settle(&self, identity: &str, by_hand: &str, timeout: &str) -> Ran {
        let mut command = self.command(&["settle", &self.job.name, identity, by_hand]);
        Ran::of(command.args(["--timeout", timeout]).output().expect("the program is there"))
    }

    /// What `ratchet effects` lists, by identity and partition.
    fn effects(&self, more: &[&str]) -> BTreeMap<(String, i64), Value> {
        let words = [&["effects", self.job.name.as_str(), "--json"], more].concat();
        let ran = Ran::of(self.command(&words).output().expect("the program is there")).ended(0);
        let lines = ran.out.lines().map(|line| serde_json::from_str::<Value>(line).expect("each line is JSON"));
        let at = |line: &Value| {
            let identity = line["identity"].as_str().expect("a text").to_owned();
            (identity, line["partition"].as_i64().expect("a number"))
        };
        lines.map(|line| (at(&line), line)).collect()
    }

    fn control(&self) -> String {
        format!("ratchet.{}.control", self.job.name)
    }

    /// What was acknowledged, by command, in order.
    fn acknowledged(&self) -> BTreeMap<CommandId, Vec<(i32, Acknowledgement)>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in self.job.kafka.read(&self.control()).into_values().flatten() {
            let key = record.key.unwrap_or_default();
            let Some((id, topic, partition)) = CommandId::of_acknowledgement(&key) else { continue };
            assert_eq!(topic, self.job.input);
            let said = Acknowledgement::decode(&record.value.unwrap_or_default()).expect("it was just written");
            all.entry(id).or_default().push((partition, said));
        }
        all
    }

    /// Each command was acknowledged once by each partition; their outcomes by partition, of the only command there is.
    #[track_caller]
    fn only_command(&self) -> BTreeMap<i32, Outcome> {
        let all = self.acknowledged();
        assert_eq!(all.len(), 1, "{all:?}");
        let said = all.into_values().next().unwrap_or_default();
        let by_partition: BTreeMap<i32, Outcome> =
            said.iter().map(|(partition, said)| (*partition, said.outcome)).collect();
        assert_eq!(by_partition.len(), said.len(), "some have acknowledged twice: {said:?}");
        by_partition
    }
}

/// A job that makes at most one call for each record, and an instance of it, for which `a` is in doubt: it has acted,
/// and its answer was lost.
fn doubted(theme: &str, lines: &[&str]) -> (Payments, Operator) {
    let payments = Payments::new(theme, 1, lines).answering_duplicates();
    payments.provider.script("/charges/a", [Move::receipt().unheard()]);
    payments.job.send([charge(0, "a"), charge(0, "b")]);
    let operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert!(matches!(found.first("a"), [End::Letter { reason, .. }] if reason == "in_doubt"), "{found:?}");
    (payments, operator)
}

fn line(was: &str, now: &str, payments: &Payments) -> String {
    format!("settled: [\"a\"] was {was}, and counts as {now} now ({}:0)", payments.job.input)
}

#[test]
fn what_is_settled_as_done_is_a_duplicate() {
    let (payments, mut operator) = doubted("settle-done", &[KEYLESS]);
    let listed = payments.effects(&["--in-doubt"]);
    let at = ("[\"a\"]".to_owned(), 0);
    assert_eq!(listed.keys().collect::<Vec<_>>(), [&at], "b is done");
    assert_eq!((&listed[&at]["state"], &listed[&at]["offset"]), (&"in_doubt".into(), &0.into()));
    payments.settle("a", "done", "30s").ended(0).wrote(&line("in doubt", "done", &payments));
    let already = format!("nothing to do: [\"a\"] is done already ({}:0)", payments.job.input);
    payments.settle("[\"a\"]", "drop", "30s").ended(0).wrote(&already);
    assert!(payments.effects(&[]).is_empty(), "nothing but what is done");
    payments.job.send([charge(0, "a")]);
    let found = payments.found(DEADLINE);
    // Nobody knows what was answered.
    assert!(!found.ends.contains_key(&(0, 2)), "{found:?}");
    assert_eq!(payments.provider.requests(), 2);
    operator.stop();
}

#[test]
fn what_is_to_be_called_again_is_called_for_its_next_record() {
    let (payments, mut operator) = doubted("settle-retry", &[KEYLESS]);
    let forgotten =
        format!("forgotten: [\"a\"] was in doubt, and its next record makes the call ({}:0)", payments.job.input);
    payments.settle("a", "retry", "30s").ended(0).wrote(&forgotten);
    assert!(payments.effects(&[]).is_empty());
    payments.job.send([charge(0, "a"), charge(0, "a")]);
    let found = payments.found(DEADLINE);
    let result = |at: i64| found.ends.get(&(0, at)).map_or(&[][..], Vec::as_slice);
    assert!(matches!(result(2), [End::Result { is_repeated: false, .. }]), "{found:?}");
    assert!(matches!(result(3), [End::Result { is_repeated: true, .. }]), "{found:?}");
    assert_eq!((found.acts["a"], payments.provider.requests()), (2, 3), "as it was ordered");
    operator.stop();
}

#[test]
fn what_is_dropped_has_failed() {
    let (payments, mut operator) = doubted("settle-drop", &[KEYLESS]);
    payments.settle("a", "drop", "30s").ended(0).wrote(&line("in doubt", "failed", &payments));
    payments.job.send([charge(0, "a")]);
    let found = payments.found(DEADLINE);
    let end = found.ends.get(&(0, 2)).map_or(&[][..], Vec::as_slice);
    assert!(
        matches!(end, [End::Result { verdict, is_repeated: true, status: None, .. }] if verdict == "dropped"),
        "{found:?}"
    );
    assert_eq!(payments.provider.requests(), 2);
    let listed = payments.effects(&[]);
    assert_eq!(listed[&("[\"a\"]".to_owned(), 0)]["state"], "dropped");
    // Somebody knows better after all.
    payments.settle("a", "done", "30s").ended(0).wrote(&line("dropped", "done", &payments));
    operator.stop();
}

#[test]
fn rebuilt_store_has_what_was_settled() {
    let (payments, mut operator) = doubted("settle-rebuilt", &[KEYLESS]);
    payments.settle("a", "done", "30s").ended(0);
    operator.kill_and_wipe();
    let mut heir = Operator::start(&payments.job, "b");
    payments.job.send([charge(0, "a")]);
    payments.found(RECOVERY);
    assert_eq!(payments.provider.requests(), 2);
    assert_eq!(payments.only_command(), BTreeMap::from([(0, Outcome::Settled)]));
    heir.stop();
}

/// An instance dies at a point while it carries out a command, and another one goes on.
fn settled_over_a_crash(point: &str) {
    let (payments, mut former) = doubted("settle-crash", &[KEYLESS]);
    former.stop();
    let options = Options { crash_at: Some(point), ..Options::default() };
    let mut first = Operator::start_with(&payments.job, "a", &options);
    first.await_ready(DEADLINE);
    std::thread::scope(|scope| {
        let given = scope.spawn(|| payments.settle("a", "done", "90s"));
        first.await_crash();
        let mut heir = Operator::start(&payments.job, "a");
        given.join().expect("it does not panic").ended(0).wrote(&line("in doubt", "done", &payments));
        payments.job.send([charge(0, "a")]);
        payments.found(RECOVERY);
        heir.stop();
    });
    assert_eq!(payments.only_command(), BTreeMap::from([(0, Outcome::Settled)]), "{point}");
    assert_eq!(payments.provider.requests(), 2, "{point}");
}

#[test]
fn command_whose_transaction_dies_is_carried_out_by_the_heir() {
    settled_over_a_crash("after_command:1");
}

#[test]
fn command_whose_transaction_is_committed_is_not_carried_out_again() {
    settled_over_a_crash("after_acknowledgement:1");
}

#[test]
fn every_partition_of_every_instance_obeys_once() {
    let payments = Payments::new("settle-two", 4, &[KEYLESS]);
    payments.provider.script("/charges/a", [Move::receipt().unheard(), Move::receipt().unheard()]);
    for partition in 0..4 {
        payments.job.send(charges(partition, 0..20));
    }
    // Producers that break the rule: one identity in two partitions.
    payments.job.send([charge(0, "a"), charge(3, "a")]);
    let mut instances = ["a", "b"].map(|label| Operator::start(&payments.job, label));
    instances.iter_mut().for_each(|instance| instance.await_ready(DEADLINE));
    payments.found(DEADLINE);
    let input = &payments.job.input;
    let both = format!("settled: [\"a\"] was in doubt, and counts as done now ({input}:0, {input}:3)");
    payments.settle("a", "done", "30s").ended(0).wrote(&both);
    let outcomes = [Outcome::Settled, Outcome::Unknown, Outcome::Unknown, Outcome::Settled];
    assert_eq!(payments.only_command(), (0..4).zip(outcomes).collect());
    // What it commands is not carried out again when partitions move.
    instances[1].stop();
    payments.job.send((0..4).map(|partition| charge(partition, "a")));
    payments.found(RECOVERY);
    assert_eq!(payments.only_command(), (0..4).zip(outcomes).collect());
    instances[0].stop();
}

#[test]
fn command_waits_for_a_call_that_is_under_way() {
    let payments = Payments::new("settle-waits", 1, &[KEYED, "timeout: 20s"]);
    payments.provider.script("/charges/a", [Move::receipt().late(Duration::from_secs(8))]);
    payments.job.send([charge(0, "a")]);
    let mut operator = Operator::start(&payments.job, "a");
    within(DEADLINE, "the call to be on the wire", || (payments.provider.now() == 1).then_some(()));
    payments.settle("a", "drop", "3s").ended(1).wrote("").said(&["nothing was found within 3s", "stays", ":0)"]);
    assert!(payments.acknowledged().is_empty());
    payments.found(DEADLINE).assert_each_acted_once(false);
    let said = within(DEADLINE, "the command to be carried out", || payments.acknowledged().into_values().next());
    let already = Acknowledgement { outcome: Outcome::Already, was: Some("done".to_owned()) };
    assert_eq!(said, [(0, already)], "what is done stays done");
    operator.stop();
}

#[test]
fn command_that_nobody_hears_stays() {
    let (payments, mut operator) = doubted("settle-alone", &[KEYLESS]);
    operator.stop();
    payments.settle("a", "done", "1s").ended(1).said(&["1 of 1 partition have not answered", "stays"]);
    let mut heir = Operator::start(&payments.job, "b");
    within(DEADLINE, "the command to be carried out", || (!payments.acknowledged().is_empty()).then_some(()));
    assert_eq!(payments.only_command(), BTreeMap::from([(0, Outcome::Settled)]));
    assert!(payments.effects(&[]).is_empty());
    heir.stop();
}

#[test]
fn task_that_stops_for_a_call_in_doubt_goes_on_once_that_is_settled() {
    let payments = Payments::new("settle-fail", 1, &["on_in_doubt: fail"]);
    payments.provider.script("/charges/a", [Move::receipt().unheard()]);
    payments.job.send([charge(0, "a"), charge(0, "b")]);
    let mut first = Operator::start(&payments.job, "a");
    first.await_error(&["task stopped", "it is not known whether it took effect"]);
    payments.settle("a", "done", "1s").ended(1).said(&["stays"]);
    first.terminate();
    first.await_exit(DEADLINE);
    let mut second = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert!(found.first("a").is_empty() && found.first("b").len() == 1, "{found:?}");
    assert_eq!((found.acts["a"], payments.provider.requests()), (1, 2));
    assert_eq!(payments.only_command(), BTreeMap::from([(0, Outcome::Settled)]));
    second.stop();
}

/// With a key no call has a reservation of its own; one in doubt before which the task stops leaves one behind.
#[test]
fn task_that_stops_for_a_call_under_a_grant_can_be_told_too() {
    let key = "idempotency_key: {header: Idempotency-Key, honoured_for: 2m}";
    let lines = [key, "on_in_doubt: fail", "answers: {500: in_doubt}"];
    let payments = Payments::new("settle-granted", 1, &lines);
    payments.provider.script("/charges/a", [Move::answer(500)]);
    payments.job.send([charge(0, "a"), charge(0, "b")]);
    let mut first = Operator::start(&payments.job, "a");
    first.await_error(&["task stopped", "it is not known whether it took effect"]);
    let listed = within(DEADLINE, "what it leaves behind", || payments.effects(&[]).into_iter().next());
    assert_eq!((listed.0, &listed.1["state"]), (("[\"a\"]".to_owned(), 0), &"under_way".into()));
    payments.settle("a", "drop", "1s").ended(1).said(&["stays"]);
    first.terminate();
    first.await_exit(DEADLINE);
    // The key would let it call again: what is reserved goes on, unless the answer is in doubt again.
    payments.provider.script("/charges/a", [Move::answer(500)]);
    let mut second = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert!(found.first("a").is_empty() && found.first("b").len() == 1, "{found:?}");
    assert!(!found.acts.contains_key("a"), "{found:?}");
    assert_eq!(payments.only_command(), BTreeMap::from([(0, Outcome::Settled)]));
    second.stop();
}

#[test]
fn command_of_a_later_release_is_acknowledged_and_not_obeyed() {
    let (payments, mut operator) = doubted("settle-later", &[KEYLESS]);
    let later = CommandId(7).key();
    let commands = [(later.as_str(), r#"{"format":2,"command":"forget"}"#), ("", "no command"), ("another", "{}")];
    payments.job.kafka.send(&payments.control(), commands.map(|(key, value)| Fresh::new(0, key, value)));
    payments.settle("a", "done", "30s").ended(0).wrote(&line("in doubt", "done", &payments));
    let all = payments.acknowledged();
    let outcomes: Vec<Outcome> = all[&CommandId(7)].iter().map(|(_, said)| said.outcome).collect();
    assert_eq!((all.len(), outcomes), (2, vec![Outcome::NotUnderstood]), "{all:?}");
    operator.stop();
}

#[test]
fn unknown_identity_is_a_mistake() {
    let (payments, mut operator) = doubted("settle-unknown", &[KEYLESS]);
    payments.settle("c", "done", "30s").ended(2).wrote("").said(&["nothing is known of [\"c\"] in any of 1 partition"]);
    payments.settle("[\"a\"", "done", "30s").ended(2).said(&["is no identity: it is not JSON"]);
    payments.settle("a", "undone", "30s").ended(2).said(&["write done, retry or drop"]);
    operator.stop();
}

/// The control topic goes and comes again: tasks go on, and what was commanded is not carried out again.
#[test]
fn recreated_control_topic_is_another_one() {
    let (payments, mut operator) = doubted("settle-anew", &[KEYLESS]);
    payments.settle("a", "retry", "30s").ended(0);
    let old = payments.job.kafka.read(&payments.control()).into_values().flatten().next().expect("the command");
    payments.job.kafka.delete(&payments.control());
    payments.settle("a", "done", "5s").ended(2).said(&["does not exist"]);
    payments.job.send([charge(0, "a")]);
    let found = payments.found(DEADLINE);
    assert_eq!(found.acts["a"], 2, "as it was ordered");
    payments.job.kafka.create(&payments.control(), 1, &[]);
    // A copy of the topic before, as another cluster has it.
    let (key, value) = (old.key.expect("a key"), old.value.expect("a value"));
    let key = String::from_utf8(key).expect("hex digits");
    payments.job.kafka.send(&payments.control(), [Fresh::new(0, &key, value)]);
    let said = within(DEADLINE, "the copy to be acknowledged", || payments.acknowledged().into_values().next());
    assert_eq!(said, [(0, Acknowledgement { outcome: Outcome::Elsewhere, was: None })]);
    let already = format!("nothing to do: [\"a\"] is done already ({}:0)", payments.job.input);
    payments.settle("a", "done", "30s").ended(0).wrote(&already);
    payments.job.send([charge(0, "a")]);
    assert_eq!(payments.found(DEADLINE).acts["a"], 2);
    operator.stop();
}

#[test]
fn tables_are_for_people() {
    let (payments, mut operator) = doubted("settle-table", &[KEYLESS]);
    let ran =
        Ran::of(payments.command(&["effects", &payments.job.name]).output().expect("the program is there")).ended(0);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with("PARTITION"), "{ran:#?}");
    for part in [&format!("{}:0", payments.job.input), "[\"a\"]", "in_doubt", "it is not known whether it took effect"]
    {
        assert!(lines[1].contains(part), "{part} in {ran:#?}");
    }
    operator.stop();
}

#[test]
fn effects_behind_an_open_transaction_are_not_left_out() {
    let (payments, mut operator) = doubted("settle-open", &[KEYLESS]);
    operator.stop();
    let open = payments.job.kafka.transaction("settle-open", DEADLINE);
    open.send(&payments.job.changelog(), [Fresh::new(0, "k", "v")]);
    let listed = payments.command(&["effects", &payments.job.name]).output().expect("the program is there");
    let listed = Ran::of(listed).ended(1).said(&["was read up to offset", "run the command again"]);
    assert_eq!(listed.out, "");
    open.abort();
    assert_eq!(payments.effects(&[]).len(), 1);
}

/// On a cluster in a folder nobody can listen while somebody commands: the next run carries it out.
#[test]
fn embedded_cluster_obeys_with_the_next_run() {
    let provider = Provider::start();
    provider.script("/a", [Move::receipt().unheard()]);
    let folder = kafka::run_folder().join("settle-embedded");
    std::fs::create_dir_all(&folder).expect("the run's folder is writable");
    let url = provider.url("/{value.id}");
    let topology = format!(
        "name: embedded\ninput: {{topics: [in]}}\nidentity: value.id\nretention: 30d\nsink: {{http: {{url: '{url}', \
         on_in_doubt: dead_letter}}}}\n"
    );
    std::fs::write(folder.join("embedded.yaml"), topology).expect("the run's folder is writable");
    let topics = folder.join("topics");
    let append = |id: &str| {
        let cluster = Embedded::open(&topics, 1).expect("nobody else has it");
        let topic = NewTopic { name: "in", partition_count: 1, replication_factor: 1, settings: &[] };
        cluster.create_topic(&topic).expect("or it exists");
        let value = format!("{{\"id\":\"{id}\"}}");
        let (key, value) = (None, Some(value.as_bytes()));
        let message =
            Message { topic: "in", partition: 0, key, value, headers: Headers::default(), timestamp: Some(1) };
        cluster.append("in", 0, &[message]).expect("the folder is writable");
    };
    let ran = |words: &[&str], code: i32| {
        let set = |name: &str, path: &Path| format!("{name}={}", path.display());
        let mut command = program(words);
        command.current_dir(&folder).args(["--set", "cluster=embedded", "--set", "http=off"]);
        command.args(["--set", &set("embedded.dir", &topics), "--set", &set("state_dir", &folder.join("state"))]);
        Ran::of(command.output().expect("the program is there")).ended(code)
    };
    append("a");
    ran(&["run", "embedded.yaml", "--until-drained"], 0);
    assert!(ran(&["effects", "embedded", "embedded.yaml", "--in-doubt"], 0).out.contains("[\"a\"]"));
    ran(&["settle", "embedded", "a", "done", "embedded.yaml"], 0)
        .wrote("given: [\"a\"] is settled as done by the next run on this folder");
    append("a");
    ran(&["run", "embedded.yaml", "--until-drained"], 0);
    assert_eq!(ran(&["effects", "embedded", "embedded.yaml"], 0).out, "", "nothing but what is done");
    assert_eq!(provider.requests(), 1);
}
