//! Goal: whatever is requested, mistyped or fails, the program never prints a secret.
//!
//! Secrets are planted wherever users keep them: variables, files, the configuration, the command line. Each command
//! then runs, successfully and unsuccessfully, and its output is searched. Kafka's side is in `tests/kafka/secrets.rs`.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use super::job::{SETTINGS, Started, ask};
use super::planted::{assert_hidden, planted};
use super::{PAYMENTS, Ran, Room};
use crate::until::{DEADLINE, within};

/// Variables that hold secrets, as the configurations below name them.
const VARIABLES: &[&str] = &["PLANTED_USER", "PLANTED_PASSWORD", "PLANTED_STORE", "PLANTED_WORD"];

/// A configuration that keeps its secrets properly, for a Kafka that does not exist.
const KEPT: &str = "\
cluster: kafka
kafka:
  bootstrap.servers: 127.0.0.1:1
  security.protocol: SASL_SSL
  sasl.mechanism: SCRAM-SHA-512
  sasl.username: ${env:PLANTED_USER}
  sasl.password: ${env:PLANTED_PASSWORD}
  ssl.key.password: ${file:key-password}
  ssl.keystore.password: ${env:PLANTED_STORE}
  debug: all
  producer: {ssl.key.password: \"${file:key-password}\"}
http: 127.0.0.1:0
log: {level: trace}
";

impl Room {
    /// A room with secrets everywhere.
    fn with_secrets() -> Self {
        let room = Self::new();
        room.write("key-password", planted("file") + "\n");
        room.write("kept.yaml", KEPT);
        room.write("records.jsonl", "{\"order_id\":1,\"operation\":\"a\",\"version\":1}\n");
        room
    }

    /// Runs a command with the variables set.
    fn run_planted(&self, words: &str, further: &[(&str, String)]) -> Ran {
        let mut command = self.command(words);
        command.envs(VARIABLES.iter().map(|name| (*name, planted(name))));
        command.envs(further.iter().map(|(name, value)| (*name, value)));
        Ran::from(command.output().unwrap())
    }

    /// Starts a job that logs to a file, with the variables set.
    fn start(&self, words: &str, log: &Path) -> Started {
        let child = Command::new(env!("CARGO_BIN_EXE_ratchet"))
            .args(words.split_whitespace())
            .envs(VARIABLES.iter().map(|name| (*name, planted(name))))
            .current_dir(self.path())
            .stdout(Stdio::null())
            .stderr(File::create(log).unwrap())
            .spawn();
        Started(child.unwrap())
    }

    /// Runs a command, which has to end with this code (or any documented one, if none is given), and searches its
    /// output.
    #[track_caller]
    fn hides(&self, words: &str, code: impl Into<Option<i32>>, further: &[(&str, String)]) -> Ran {
        let mut ran = self.run_planted(words, further);
        if let Some(code) = code.into() {
            ran = ran.ended(code);
        }
        assert!(matches!(ran.code, Some(0..=2)), "{words} ended with {:?}: {}", ran.code, ran.stderr);
        assert!(!(ran.stdout.is_empty() && ran.stderr.is_empty()), "{words} prints nothing at all");
        assert_hidden(words, &ran.stdout);
        assert_hidden(words, &ran.stderr);
        ran
    }
}

#[test]
fn no_command_shows_its_environment() {
    let room = Room::with_secrets();
    let variables: Vec<(&str, String)> = ["RATCHET_KAFKA__SASL_PASSWORD", "RATCHET_KAFKA__SSL_KEY_PASSWORD"]
        .into_iter()
        .map(|name| (name, planted(name)))
        .collect();
    let help = room.hides("--help", 0, &variables).stdout;
    let (_, commands) = help.split_once("Commands:").expect("the help lists the commands");
    let commands: Vec<&str> = commands
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    for known in ["run", "check", "test", "replay", "infer", "demo", "schema", "completions"] {
        assert!(commands.contains(&known), "{known} is not in {commands:?}");
    }
    for command in commands {
        let words = if command == "help" { "help".to_owned() } else { format!("{command} --help") };
        room.hides(&words, 0, &variables);
    }
    for words in ["--version", "schema", "completions bash", "completions zsh", "completions fish"] {
        room.hides(words, 0, &variables);
    }
    room.hides("replay payments.yaml records.jsonl", 0, &variables);
    room.hides("replay payments.yaml records.jsonl --explain", 0, &variables);
    room.hides("replay payments.yaml records.jsonl --summary", 0, &variables);
    room.hides("infer records.jsonl", None::<i32>, &variables);
    room.hides("check payments.yaml --config kept.yaml", 0, &variables);
    room.hides("check payments.yaml --expand", 0, &variables);
    room.hides("test payments.yaml", None::<i32>, &variables);
    room.hides("demo --records 50000", 0, &variables);
}

#[test]
fn mistakes_in_settings_are_reported_without_their_values() {
    let room = Room::with_secrets();
    let check = "check payments.yaml --config kept.yaml";
    for set in [
        "kafka.sasl.password={}",
        "kafka.sasl.pasword={}",
        "kafak.sasl.pasword={}",
        "sasl.pasword={}",
        "pwd={}",
        "kafka.consumer.ssl.key.pem={}",
        "lanes=${env:PLANTED_WORD}",
        "memory=${env:PLANTED_WORD}",
        "http=${env:PLANTED_WORD}",
        "cluster=${env:PLANTED_WORD}",
        "commit.interval=${file:key-password}",
        "log.level=${env:PLANTED_WORD}",
        "log.level=ratchet=${env:PLANTED_WORD}",
        "state_dir=~${env:PLANTED_WORD}",
        "topics.create=${file:key-password}",
        "kafka.security.protocol=${env:PLANTED_WORD}",
        "kafka.security.protocol=SASL_SSL --set kafka.sasl.mechanism=OAUTHBEARER \
         --set kafka.sasl.oauthbearer.client.secret=${env:PLANTED_WORD}",
        "kafka.session.timeout.ms=${env:PLANTED_WORD}",
        "kafka.schema.registry.basic.auth.user.info=${env:PLANTED_WORD}",
        "kafka.producer.transaction.timeout.ms=${env:PLANTED_WORD}",
    ] {
        let words = format!("{check} --set {}", set.replace("{}", &planted("set")));
        room.hides(&words, 2, &[]);
        room.hides(&words.replace("check", "run"), 2, &[]);
    }
    // Mistakes that only show when connecting.
    for set in ["kafka.ssl.key.pem=${env:PLANTED_WORD}", "kafka.ssl.ca.pem=${env:PLANTED_WORD}"] {
        room.hides(&format!("{check} --set {set}"), 0, &[]);
        room.hides(&format!("{check} --set {set} --online"), None::<i32>, &[]);
        room.hides(&format!("run payments.yaml --config kept.yaml --set {set}"), 2, &[]);
    }
}

#[test]
fn mistyped_variables_are_reported_without_their_values() {
    let room = Room::with_secrets();
    for (name, code) in [
        ("RATCHET_KAFKA__SASL_PASWORD", 2),
        ("RATCHET_KAFKA_SASL_PASSWORT", 0),
        ("RATCHET_KAFFKA__SASL_PASSWORT", 2),
        ("RATCHET_PASSWD", 0),
        ("RATCHET_LANE", 2),
        ("RATCHET_LANES", 2),
        ("RATCHET_KAFKA__SECURITY_PROTOCOL", 2),
        ("RATCHET_KAFKA__SASL_PASSWORD__X", 2),
    ] {
        // The value of a known setting that is not Kafka's is no secret.
        let value = if name == "RATCHET_LANES" { "many".to_owned() } else { planted("variable") };
        let ran = room.hides("check payments.yaml --config kept.yaml", code, &[(name, value)]);
        assert!(ran.stderr.contains(name) || name.contains("KAFKA__S"), "{name} is not named: {}", ran.stderr);
    }
}

#[test]
fn literal_secrets_are_rejected_and_not_shown() {
    let room = Room::with_secrets();
    let secret = planted("written");
    for (number, line) in [
        format!("kafka: {{bootstrap.servers: x, sasl.password: {secret}}}"),
        format!("kafka:\n  bootstrap.servers: x\n  sasl.password: \"{secret}\"\n  lanes: 7\nlanse: 2"),
        format!("kafka:\n  bootstrap.servers: x\n  sasl: {{password: {secret}}}\nlanse: 2"),
        format!("kafka:\n  bootstrap.servers: x\n  ssl.key.pem: |\n    {secret}\n    {secret}\nlanse: 2"),
        format!("kafka:\n  bootstrap.servers: x\n  sasl.password: [{secret}]"),
        format!("kafka:\n  bootstrap.servers: x\n  sasl.password: '{secret}\nlanes: 2"),
        format!("kafka:\n  bootstrap.servers: x\n  consumer: {{ssl.keystore.password: {secret}}}"),
        format!("sasl_password: {secret}\nlanes: 2"),
        format!("# the old sasl.password: {secret}\nlanes: x"),
        format!("kafka:\n\tsasl.password: {secret}\n"),
        format!("kafka:\n  sasl.password: ${{env:NOT_SET:-{secret}}}\n  bootstrap.servers: x\nlanes: x"),
    ]
    .into_iter()
    .enumerate()
    {
        let file = format!("written-{number}.yaml");
        room.write(&file, line);
        room.hides(&format!("check payments.yaml --config {file}"), 2, &[]);
        room.hides(&format!("run payments.yaml --config {file}"), 2, &[]);
    }
}

#[test]
fn mistakes_in_topologies_do_not_show_substituted_values() {
    let room = Room::with_secrets();
    for (number, line) in [
        "name: ${env:PLANTED_WORD}",
        "input: {topics: [\"${env:PLANTED_WORD}/\"]}",
        "input: {pattern: \"(${env:PLANTED_WORD}\"}",
        "input: {topics: [payments], value_format: \"${env:PLANTED_WORD}\"}",
        "identity: ${env:PLANTED_WORD}",
        "version: {of: value.version, as: \"${env:PLANTED_WORD}\"}",
        "retention: ${env:PLANTED_WORD}",
        "output: {topic: \"${env:PLANTED_WORD}/\"}",
        "dead_letter: {topic: \"${file:key-password}/\"}",
        "on_invalid: ${env:PLANTED_WORD}",
        "preset: ${env:PLANTED_WORD}",
        "limits: {record_bytes: \"${env:PLANTED_WORD}\"}",
        "partitioned_by_identity: ${env:PLANTED_WORD}",
    ]
    .into_iter()
    .enumerate()
    {
        let key = line.split(':').next().unwrap();
        let kept = PAYMENTS.lines().filter(|other| other.split(':').next() != Some(key));
        let file = format!("topology-{number}.yaml");
        room.write(&file, kept.chain([line]).collect::<Vec<_>>().join("\n"));
        room.hides(&format!("check {file} --config kept.yaml"), 2, &[]);
        room.hides(&format!("run {file} --config kept.yaml"), 2, &[]);
        room.hides(&format!("replay {file} records.jsonl"), 2, &[]);
    }
}

#[test]
fn failing_online_check_shows_no_secret() {
    let room = Room::with_secrets();
    room.hides("check payments.yaml --config kept.yaml --online", 1, &[]);
}

/// A job that cannot reach its Kafka logs that again and again, in all detail.
#[test]
fn most_verbose_log_shows_no_secret() {
    let room = Room::with_secrets();
    for format in ["text", "json"] {
        let log = room.path().join(format!("{format}.log"));
        let job = room.start(&format!("run payments.yaml --config kept.yaml --set log.format={format}"), &log);
        let said = || std::fs::read_to_string(&log).unwrap();
        within(DEADLINE, "the job to log why it cannot connect", || {
            let said = said();
            (said.contains("Connection refused") && said.contains("librdkafka")).then_some(())
        });
        let ended = stop(job);
        assert!(matches!(ended.code(), Some(0 | 1)), "{ended}: {}", said());
        let said = said();
        assert!(said.contains("sasl") || said.contains("SASL"), "librdkafka was not verbose: {said}");
        assert_hidden(format, &said);
    }
}

#[test]
fn running_job_shows_no_secret_over_http() {
    let room = Room::with_secrets();
    let log = room.path().join("http.log");
    let cluster = ratchet::cluster::embedded::Embedded::open(&room.path().join("topics"), 1).unwrap();
    let input =
        ratchet::cluster::NewTopic { name: "payments", partition_count: 1, replication_factor: 1, settings: &[] };
    ratchet::cluster::Cluster::create_topic(&cluster, &input).unwrap();
    drop(cluster);
    let job = room.start(&format!("run payments.yaml --config kept.yaml {SETTINGS}"), &log);
    let said = || std::fs::read_to_string(&log).unwrap();
    let address = within(DEADLINE, "the job to log its address", || {
        let said = said();
        let line = said.lines().find(|line| line.contains("address="))?.to_owned();
        Some(line.split("address=").nth(1)?.split_whitespace().next()?.to_owned())
    });
    for path in ["/metrics", "/livez", "/readyz", "/readyz?verbose", "/", "/config", "/debug"] {
        let response = ask(&address, path);
        assert!(response.starts_with("HTTP/1.1 "), "{path}: {response}");
        assert_hidden(path, &response);
    }
    assert!(stop(job).success(), "{}", said());
    assert_hidden("the log", &said());
}

/// Stops a job by SIGTERM, and waits.
fn stop(mut job: Started) -> ExitStatus {
    job.signal("TERM");
    job.0.wait().unwrap()
}
