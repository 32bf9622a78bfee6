//! A job whose records are the work of one of the example programs, and what has become of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::cluster::{Fresh, Kafka};
use crate::job::Job;
use crate::load::now_ms;
use crate::operator::{Operator, Options};
use crate::provider::{Move, Provider};

/// A kill is followed by the session timeout, the transaction timeout and a restore.
pub const RECOVERY: Duration = Duration::from_secs(90);

/// One of the example programs at work.
pub struct Work {
    pub job: Job,
    pub provider: Provider,
    program: PathBuf,
    env: Vec<(&'static str, String)>,
}

/// What has become of a record's identity.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// The results: their verdicts and bodies.
    pub results: Vec<(String, String)>,
    /// The reasons of dead letters.
    pub letters: Vec<String>,
}

impl Work {
    /// This example with these lines of `sink.handler`, on a topic with two partitions.
    pub fn of(example: &str, lines: &[&str], env: Vec<(&'static str, String)>) -> Work {
        let provider = Provider::start();
        provider.always(Move::receipt());
        let mut job = Job::on(Kafka::shared(), example);
        job.kafka.create(&job.input, 2, &[]);
        job.kafka.create(&job.output, 2, &[]);
        job.rules.version = None;
        let result = format!("result: {{topic: {}}}", job.output);
        let usual = ["retry: {first: 50ms, max: 500ms}", "timeout: 5s", &result];
        let all: Vec<&str> = usual.into_iter().chain(lines.iter().copied()).collect();
        job.topology = vec![format!("sink:\n  handler:\n    {}", all.join("\n    "))];
        Work::with(job, provider, example, env)
    }

    /// This example with a job that there is.
    pub fn with(job: Job, provider: Provider, example: &str, env: Vec<(&'static str, String)>) -> Work {
        Work { job, provider, program: program(example), env }
    }

    /// Answers duplicates with what the first one got.
    pub fn answering_duplicates(mut self) -> Work {
        self.job.topology.push("on_duplicate: result".to_owned());
        self
    }

    /// Starts the program; `crash_at` kills it at a point.
    pub fn start(&self, label: &str, crash_at: Option<&str>) -> Operator {
        let mut env = self.env.clone();
        env.extend(["PAYMENTS_URL", "SHOP_URL"].map(|name| (name, self.provider.url(""))));
        let options = Options { crash_at, env, program: Some(self.program.clone()), ..Options::default() };
        Operator::start_with(&self.job, label, &options)
    }

    /// Sends these records, as JSON, to the partitions in turn.
    pub fn send(&self, records: impl IntoIterator<Item = (usize, String)>) {
        let record = |(number, value): (usize, String)| {
            Fresh::new((number % 2) as i32, &format!("o-{number}"), value).at(now_ms())
        };
        self.job.send(records.into_iter().map(record).collect::<Vec<_>>());
    }

    /// What has become of each identity, once everything is settled.
    #[track_caller]
    pub fn ends(&self) -> BTreeMap<String, Ends> {
        self.job.await_drained(RECOVERY);
        let mut ends: BTreeMap<String, Ends> = BTreeMap::new();
        for record in self.job.output() {
            let id = String::from_utf8(record.key.clone().expect("a key")).expect("a text");
            let verdict = record.header("__ratchet.result.verdict").expect("a verdict");
            let body = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default()).into_owned();
            ends.entry(id).or_default().results.push((verdict, body));
        }
        if self.job.kafka.partitions(&self.job.dead_letter()).is_some() {
            for record in self.job.kafka.read(&self.job.dead_letter()).into_values().flatten() {
                let id = String::from_utf8(record.key.clone().expect("a key")).expect("a text");
                ends.entry(id).or_default().letters.push(record.header("__ratchet.errors.reason").expect("a reason"));
            }
        }
        ends
    }

    /// How often the provider has acted for each target.
    pub fn acts(&self) -> BTreeMap<String, u32> {
        self.provider.acts_by_target()
    }
}

/// An example's program, which Cargo has built beside the tests.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test is a program");
    let target = test.parent().and_then(|deps| deps.parent()).expect("tests are in `deps`");
    let program = target.join("examples").join(example);
    assert!(program.exists(), "{} is missing: build the examples first (`cargo build --examples`)", program.display());
    program
}
