//! Goal: each layer overrides the one before, every mistake of every layer is reported, and no secret is ever shown.

use std::net::SocketAddr;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::yaml::keys::Omitted;
use crate::yaml_testing::{Fake, yamlish};

const BROKERS: &str = "kafka.bootstrap.servers=b:9092";

fn env() -> Fake {
    Fake { cores: 8, ..Fake::default() }
}

fn load_text_with(text: &str, environment: Fake, sets: &[&str]) -> Result<Config, Diagnostics> {
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
    load(Some(Path::new("r.yaml")), &sets, &environment.with_file("r.yaml", text))
}

fn config(text: &str, environment: Fake, sets: &[&str]) -> Config {
    load_text_with(text, environment, sets).map_err(|diagnostics| diagnostics.render(false)).unwrap()
}

#[track_caller]
fn refuses(text: &str, environment: Fake, sets: &[&str], words: &[&str]) {
    let sets: Vec<&str> = sets.iter().copied().chain([BROKERS]).collect();
    let diagnostics = load_text_with(text, environment, &sets).expect_err("a mistake");
    let [only] = diagnostics.mistakes() else { panic!("{}", diagnostics.render(false)) };
    let said = format!("{} | {} | {}", only.message(), only.label(), only.help_text().unwrap_or_default());
    for word in words {
        assert!(said.contains(word), "no {word:?} in {said}");
    }
    assert!(only.position().is_some());
}

#[test]
fn defaults_are_as_documented() {
    let config = load(None, &[BROKERS.to_owned()], &env()).unwrap();
    assert_eq!(config.cluster, ClusterKind::Kafka);
    assert_eq!(config.lanes, 4);
    assert_eq!(config.commit, Commit { interval_ms: 200, spacing_ms: 5, records_max: 100_000, bytes_max: 64 << 20 });
    assert_eq!(config.http, Some(SocketAddr::from(([127, 0, 0, 1], 9464))));
    assert_eq!(
        config.topics,
        TopicSettings { create: Create::Internal, replication_factor: 3, min_insync_replicas: 2 }
    );
    assert_eq!(config.log, Log { format: LogFormat::Text, level: "info".to_owned() });
    assert_eq!(load(None, &[BROKERS.to_owned()], &Fake::default()).unwrap().lanes, 1);
}

#[test]
fn each_layer_overrides_the_one_before() {
    let text =
        "lanes: 1\nhttp: off\nstate_dir: file\ncommit: {interval: 1s, records: 7}\nkafka: {bootstrap.servers: file}\n";
    let env = env()
        .with_variable("RATCHET_STATE_DIR", "variable")
        .with_variable("RATCHET_LANES", "2")
        .with_variable("RATCHET_COMMIT__INTERVAL", "2s")
        .with_variable("RATCHET_HTTP", "")
        .with_variable("RATCHET_KAFKA__BOOTSTRAP_SERVERS", "variable")
        .with_variable("RATCHET_KAFKA__CONSUMER__FETCH_MIN_BYTES", "9");
    let config =
        config(text, env, &["lanes=3", "kafka.producer.linger.ms=5", "commit.interval=3s", "commit.interval=4s"]);
    assert_eq!((config.lanes, config.state_dir.to_str()), (3, Some("variable")));
    assert_eq!((config.commit.interval_ms, config.commit.records_max), (4_000, 7));
    assert_eq!(config.http, None);
    assert_eq!(config.kafka.for_admin()["bootstrap.servers"], "variable");
    assert_eq!(config.kafka.for_consumer()["fetch.min.bytes"], "9");
    assert_eq!(config.kafka.for_producer()["linger.ms"], "5");
    assert_eq!(config.kafka.for_consumer().get("linger.ms"), None);
}

#[test]
fn keys_may_be_dotted_or_nested() {
    let config = config(
        "topics.create: all\ntopics: {replication_factor: 1, min_insync_replicas: 1}\nkafka:\n  security: {protocol: ssl}\n  \
         ssl.ca: {location: /ca}\n  bootstrap.servers: b\n  consumer:\n    fetch: {min: {bytes: 3}}\n  producer:\n",
        env(),
        &[],
    );
    assert_eq!(config.topics, TopicSettings { create: Create::All, replication_factor: 1, min_insync_replicas: 1 });
    assert_eq!(config.kafka.for_admin()["ssl.ca.location"], "/ca");
    assert_eq!(config.kafka.for_consumer()["fetch.min.bytes"], "3");
}

#[test]
fn embedded_cluster_needs_no_brokers() {
    let config = config("cluster: embedded\nembedded: {dir: /d, partitions: 2}\n", env(), &[]);
    assert_eq!(config.cluster, ClusterKind::Embedded { dir: PathBuf::from("/d"), partitions: 2 });
    let diagnostics = load(None, &[], &env()).unwrap_err();
    assert!(diagnostics.render(false).contains("RATCHET_KAFKA__BOOTSTRAP_SERVERS"));
}

#[test]
fn limits_are_inclusive() {
    let kafka = ["cluster=kafka"];
    let embedded = ["cluster=embedded", "embedded.dir=/d"];
    let taken = |cluster: &[&str], setting: &str| {
        let sets: Vec<&str> = cluster.iter().copied().chain([BROKERS, setting]).collect();
        load_text_with("", env(), &sets).is_ok()
    };
    for (at, beyond) in [
        ("lanes=64", "lanes=65"),
        ("lanes=1", "lanes=0"),
        ("memory=64MiB", "memory=67108863"),
        ("unpacked=20MiB", "unpacked=20971519"),
        ("commit.interval=5s", "commit.interval=5001ms"),
        ("commit.interval=1ms", "commit.interval=0ms"),
        ("commit.spacing=5s", "commit.spacing=5001ms"),
        ("commit.spacing=0ms", "commit.spacing=-1ms"),
        ("commit.records=10000000", "commit.records=10000001"),
        ("commit.bytes=1GiB", "commit.bytes=1073741825"),
    ] {
        assert!(taken(&kafka, at), "{at}");
        assert!(!taken(&kafka, beyond), "{beyond}");
    }
    assert!(taken(&embedded, "embedded.partitions=1000"));
    assert!(!taken(&embedded, "embedded.partitions=1001"));
}

#[test]
fn every_setting_is_applied_and_has_a_variable() {
    for name in keys::names() {
        let diagnostics = load_text_with("", env(), &[BROKERS, &format!("{name}=not right,")]);
        assert!(
            diagnostics.is_err() || matches!(name, "embedded.dir" | "state_dir" | "schemas.dir" | "log.level"),
            "{name}"
        );
        let variable = layers::variable_of(name);
        let config = load_text_with("", env().with_variable(&variable, "not right,"), &[BROKERS]);
        assert!(config.is_err() || config.is_ok_and(|config| config.warnings.is_empty()), "{variable}");
    }
}

#[test]
fn commented_example_has_every_setting_with_its_default() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/ratchet.yaml");
    let text = std::fs::read_to_string(folder).unwrap();
    let with_file = config(&text, env(), &[]);
    let without = load(None, &["kafka.bootstrap.servers=localhost:9092".to_owned()], &env()).unwrap();
    assert_eq!(with_file.to_string(), without.to_string());
    for name in keys::names() {
        let key = name.rsplit('.').next().unwrap();
        assert!(text.contains(&format!("{key}:")), "{name}");
    }
}

#[test]
fn default_of_unpacked_is_derived_from_memory() {
    let unpacked =
        |sets: &[&str]| load_text_with("", env(), &[&[BROKERS], sets].concat()).unwrap().unpacked_bytes >> 20;
    assert_eq!(unpacked(&["memory=64MiB"]), 128);
    assert_eq!(unpacked(&["memory=4GiB"]), 1024);
    assert_eq!(unpacked(&["unpacked=32MiB", "memory=4GiB"]), 32);
}

#[test]
fn wrong_values_are_rejected_with_what_to_write() {
    let file = |text: &str, words: &[&str]| refuses(text, env(), &[], words);
    file("cluster: kafak", &["did you mean `kafka`?"]);
    file("lanes: 0", &["from 1 to 64", "lanes: 2"]);
    file("lanes: [1]", &["a list"]);
    file("memory: lots", &["a size of at least 64MiB", "memory: 512MiB"]);
    file("memory: 1MiB", &["at least 64MiB"]);
    file("commit: {interval: 200}", &["with its unit", "commit.interval: 200ms"]);
    file("commit: {interval: 1h}", &["to 5s"]);
    file("commit: 200ms", &["`commit` must be a mapping"]);
    file("http: localhost", &["127.0.0.1:9464"]);
    file("state_dir: ~/state", &["without `~`"]);
    file("state_dir:", &["no value"]);
    file("topics: {create: internl}", &["did you mean `internal`?"]);
    file("topics: {replication_factor: 1}", &["`topics.min_insync_replicas` is 2", "the same or less"]);
    file("log: {level: warm}", &["did you mean `warn`?"]);
    file("log: {level: 'a=b=c'}", &["a level, or a filter"]);
    file("kafka: {bootstrap.servers: [a, b]}", &["commas"]);
    file("- a", &["must be a mapping"]);
    file("kafka: b:9092", &["`kafka` must be a mapping"]);
    file("kafka: {consumer: x}", &["`kafka.consumer` must be a mapping"]);
}

#[test]
fn unknown_keys_are_rejected_with_a_suggestion() {
    refuses("comit: {interval: 1s}", env(), &[], &["unknown key `comit`", "did you mean `commit`?"]);
    refuses("commit: {intervall: 1s}", env(), &[], &["did you mean `interval`?"]);
    refuses("colour: red", env(), &[], &["`state_dir`", "`kafka`"]);
    refuses("lanes: 1\nlanes: 2", env(), &[], &["twice"]);
    refuses("kafka: {a.b: 1, a: {b: 2}}", env(), &[], &["`kafka.a.b` stands here twice"]);
    refuses("", env(), &["lane=1"], &["did you mean `lanes`?", "--set lanes="]);
    refuses("", env(), &["lanes"], &["has no `=`"]);
    refuses("", env(), &["kafka.consumer=1"], &["not a setting"]);
    refuses("", env(), &["lanes="], &["empty"]);
    refuses("", env().with_variable("RATCHET_LANE", "1"), &[], &["did you mean `RATCHET_LANES`?"]);
    refuses("", env().with_variable("RATCHET_COMMIT__COLOUR_OF_IT", "1"), &[], &["`__` separates levels"]);
}

#[test]
fn mistake_that_hides_the_brokers_is_the_only_one() {
    let alone = |text: &str, environment: Fake, sets: &[&str], words: &str| {
        let diagnostics = load_text_with(text, environment, sets).unwrap_err();
        let [only] = diagnostics.mistakes() else { panic!("{text} {sets:?}: {}", diagnostics.render(false)) };
        let said = format!("{} | {} | {}", only.message(), only.label(), only.help_text().unwrap_or_default());
        assert!(said.contains(words), "no {words:?} in {said}");
    };
    for (text, words) in [
        ("kafak: {bootstrap.servers: b}", "did you mean `kafka`?"),
        ("kafka: b:9092", "must be a mapping"),
        ("kafka: {bootstrap.servers: [a, b]}", "this is a list"),
        ("kafka: {bootstrap.servers: }", "no value"),
        ("kafka: {bootstrap.servers: '${env:NOWHERE}'}", "NOWHERE"),
        ("kafka: {bootstrap.server: b}", "did you mean `bootstrap.servers`?"),
        ("kafka: {client.id: a}\nkafka: {bootstrap.servers: b}", "twice"),
        ("cluster: embeded", "did you mean `embedded`?"),
        ("clutser: embedded", "did you mean `cluster`?"),
        ("cluster: ", "no value"),
        ("- a", "must be a mapping"),
        ("kafka: {", "here"),
    ] {
        alone(text, env(), &[], words);
    }
    alone("", env(), &["kafak.bootstrap.servers=b"], "did you mean `kafka.bootstrap.servers`?");
    alone("", env(), &["kafka.bootstrap.server=b"], "did you mean `bootstrap.servers`?");
    alone("", env(), &["kafka.bootstrap.servers"], "has no `=`");
    alone("", env(), &["kafka.bootstrap.servers="], "empty");
    let misspelt = env().with_variable("RATCHET_KAFAK__BOOTSTRAP_SERVERS", "b");
    alone("", misspelt, &[], "did you mean `RATCHET_KAFKA__BOOTSTRAP_SERVERS`?");
    let nowhere = load(Some(Path::new("nowhere.yaml")), &[], &env()).unwrap_err();
    let messages: Vec<_> = nowhere.mistakes().iter().map(Mistake::message).collect();
    assert!(matches!(messages[..], [only] if only.contains("nowhere.yaml cannot be read")), "{messages:?}");
    // Unrelated mistakes are reported as well.
    assert_eq!(
        load_text_with("lanes: 0\nkafka: {client.id: a}", env(), &["embeded.dir=b"]).unwrap_err().mistakes().len(),
        3
    );
}

#[test]
fn other_programs_variables_give_at_most_a_warning() {
    let env = env()
        .with_variable("RATCHET_TEST_BROKERS", "x")
        .with_variable("RATCHET_CRASH_AT", "x")
        .with_variable("RATCHET_SERVICE_HOST", "x")
        .with_variable("RATCHET_PORT_9464_TCP", "x")
        .with_variable("RATCHET_DASHBOARD_COLOURS", "x")
        .with_variable("PATH", "x");
    let config = config("", env, &[BROKERS]);
    let warned: Vec<_> = config.warnings.iter().map(Mistake::message).collect();
    assert_eq!(warned, ["`RATCHET_DASHBOARD_COLOURS` is not a setting"]);
}

#[test]
fn properties_that_ratchet_sets_are_rejected_with_the_reason() {
    refuses("kafka: {group.id: x}", env(), &[], &["`group.id`", "by the topology's name"]);
    refuses("kafka: {producer: {acks: 1}}", env(), &[], &["`acks`", "exactly once"]);
    refuses(
        "kafka: {consumer: {auto: {offset: {reset: latest}}}}",
        env(),
        &[],
        &["`auto.offset.reset`", "`input.start`"],
    );
    refuses("", env().with_variable("RATCHET_KAFKA__TRANSACTIONAL_ID", "x"), &[], &["`transactional.id`"]);
    for property in [
        "enable.auto.commit",
        "isolation.level",
        "enable.idempotence",
        "partition.assignment.strategy",
        "enable.partition.eof",
    ] {
        refuses("", env(), &[&format!("kafka.{property}=x")], &["ratchet sets", property]);
    }
}

/// The mistakes in these settings if only properties with the prefixes `fetch.` and `transaction.` are known; each with
/// whether it is a warning.
fn mistakes_with(text: &str, sets: &[&str]) -> Vec<(String, bool)> {
    let wrong = |message| Err(Explained { message, label: "here".to_owned(), help: String::new() });
    let takes = |property: &str, value: &str| match property {
        "bootstrap.servers" => Ok(()),
        _ if !property.starts_with("fetch.") && !property.starts_with("transaction.") => {
            wrong(format!("{property} is none"))
        }
        _ if value == "x" => wrong(format!("{property} does not fit")),
        _ => Ok(()),
    };
    let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).chain([BROKERS.to_owned()]).collect();
    let environment = env().with_file("r.yaml", text);
    let mistakes = match load_with(Some(Path::new("r.yaml")), &sets, &environment, &takes) {
        Ok(config) => config.warnings,
        Err(diagnostics) => diagnostics.into_mistakes(),
    };
    assert!(mistakes.iter().all(|mistake| mistake.position().is_some()), "{mistakes:?}");
    mistakes.iter().map(|mistake| (mistake.message().to_owned(), mistake.is_warning())).collect()
}

#[test]
fn every_rejected_property_is_reported_with_all_other_mistakes() {
    let said = mistakes_with(
        "lanes: many\nkafka: {nonsense: 1, consumer: {fetch.wait: x}, producer: {more.nonsense: 1}, fetch.min: x}\n",
        &["kafka.fetch.min=1"],
    );
    let said: Vec<&str> = said.iter().map(|(message, _)| message.as_str()).collect();
    let expected = [
        "`lanes` must be a whole number from 1 to 64",
        "nonsense is none",
        "fetch.wait does not fit",
        "more.nonsense is none",
    ];
    assert_eq!(said, expected, "a later layer corrects fetch.min");
}

#[test]
fn transaction_must_end_before_the_broker_ends_it() {
    let said = |interval: &str, timeout: &str, name: &str| {
        let said = mistakes_with(&format!("{interval}\nkafka: {{{name}: {timeout}}}\n"), &[]);
        said.into_iter()
            .map(|(message, is_warning)| (message.contains("the broker ends"), is_warning))
            .collect::<Vec<_>>()
    };
    for name in ["transaction.timeout.ms", "producer.transaction.timeout.ms"] {
        assert_eq!(said("commit.interval: 2s", "4000", name), []);
        assert_eq!(said("commit.interval: 2s", "3999", name), [(true, true)]);
        assert_eq!(said("commit.interval: 2s", "2000", name), [(true, false)]);
        assert_eq!(said("", "150", name), [(true, false)], "the interval is 200ms");
    }
    // the producer's own overrides the common one
    let both = "commit.interval: 2s\nkafka: {transaction.timeout.ms: 1000, producer: {transaction.timeout.ms: 9000}}\n";
    assert_eq!(mistakes_with(both, &[]), []);
    assert_eq!(mistakes_with(both, &["kafka.producer.transaction.timeout.ms=1000"]).len(), 1);
    let (line, column) = (2, 18);
    let text = "lanes: 1\ncommit.interval: 5s\nkafka: {bootstrap.servers: b, transaction.timeout.ms: 3000}\n";
    let diagnostics = load_text_with(text, env(), &[]).unwrap_err();
    assert_eq!(diagnostics.mistakes()[0].position(), Some(("r.yaml", line, column)));
    assert!(diagnostics.mistakes()[0].help_text().unwrap().contains("10000"), "{}", diagnostics.render(false));
}

#[test]
fn new_group_protocol_is_rejected_with_the_reason() {
    let words = ["ratchet sets `group.protocol` itself", "classic protocol", "KIP-848", "remove it"];
    refuses("kafka: {group.protocol: consumer}", env(), &[], &words);
    refuses("kafka: {consumer: {group.protocol: consumer}}", env(), &[], &words);
    refuses("", env().with_variable("RATCHET_KAFKA__GROUP_PROTOCOL", "consumer"), &[], &words);
    refuses("", env(), &["kafka.group.remote.assignor=uniform"], &["`group.remote.assignor`", "classic protocol"]);
}

#[test]
fn secrets_are_passed_on_and_never_shown() {
    let text = "state_dir: ${env:DIR}\nlanes: ${env:LANES:-3}\nkafka:\n  bootstrap.servers: b\n  sasl.username: ${file:user}\n  \
                sasl.password: ${env:PASSWORD}\n";
    let env = env()
        .with_variable("DIR", "/hunter2")
        .with_variable("PASSWORD", "hunter2")
        .with_variable("RATCHET_KAFKA__SSL_KEY_PASSWORD", "hunter2")
        .with_file("user", "hunter2\n");
    let config = config(text, env, &["kafka.ssl.keystore.password=${env:PASSWORD}"]);
    let properties = config.kafka.for_producer();
    for name in ["sasl.username", "sasl.password", "ssl.key.password", "ssl.keystore.password"] {
        assert_eq!(properties[name], "hunter2", "{name}");
    }
    assert_eq!((config.lanes, config.state_dir.to_str()), (3, Some("/hunter2")));
    for shown in [format!("{config}"), format!("{config:?}"), format!("{:?}", config.kafka)] {
        assert!(!shown.contains("hunter2") && shown.contains("***"), "{shown}");
    }
    assert!(config.to_string().contains("lanes: ***\n"));
}

#[test]
fn overriding_layer_decides_whether_a_setting_is_secret() {
    let config = config("lanes: ${env:LANES:-3}\n", env(), &[BROKERS, "lanes=2"]);
    assert!(config.to_string().contains("lanes: 2\n"), "{config}");
}

#[test]
fn secrets_in_clear_text_are_rejected_and_not_shown() {
    let block = "kafka:\n  group.id: x\n  ssl.key.pem: |\n    -----hunter2\n    hunter2\n  other: y\n";
    for (text, sets) in [
        ("kafka: {sasl.password: hunter2, group.id: x}\n", &[][..]),
        ("kafka:\n  sasl:\n    password: hunter2\n    nonsense: []\n", &[]),
        ("kafka:\n  sasl.password: 'hunter2\n  lanes: 3\n", &[]),
        ("kafka:\n  ssl.key.pem: |\n    hunter2\n   bad: [\n", &[]),
        ("lanes: x\nkafka: {sasl.password: \"${env:NONE:-hunter2}\"}\n", &[]),
        (block, &[]),
        ("# sasl.password: hunter2\nlanes: x\n", &[]),
        ("|\n  sasl.password: hunter2\n", &[]),
        ("comit: 'x\n  sasl.password: hunter2'\n", &[]),
        ("lanes: 3\n", &["kafka.sasl.password=hunter2"]),
        ("lanes: 3\n", &["kafka.sasl.pasword=x", "kafka.ssl.key.password=hunter2"]),
    ] {
        let rendered = load_text_with(text, env(), sets).unwrap_err().render(false);
        assert!(!rendered.contains("hunter2"), "{rendered}");
    }
    let wrong = env().with_variable("RATCHET_KAFKA__SASL_PASSWORD__X", "hunter2").with_variable("RATCHET_LANES", "x");
    assert!(!load_text_with("", wrong, &[BROKERS]).unwrap_err().render(false).contains("hunter2"));
}

#[test]
fn memory_is_half_of_the_smallest_limit() {
    const GIB: u64 = 1 << 30;
    let half = |files: &[(&str, &str)]| {
        let env = files.iter().fold(env(), |env, (path, text)| env.with_file(path, text));
        load(None, &[BROKERS.to_owned()], &env).unwrap().memory_bytes
    };
    let machine = ("/proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");
    assert_eq!(half(&[]), GIB);
    assert_eq!(half(&[machine]), 4 * GIB);
    assert_eq!(half(&[machine, ("/sys/fs/cgroup/memory.max", "max\n")]), 4 * GIB);
    assert_eq!(half(&[machine, ("/sys/fs/cgroup/memory.max", "2147483648\n")]), GIB);
    let nested = [
        machine,
        ("/proc/self/cgroup", "0::/user.slice/job\n"),
        ("/sys/fs/cgroup/user.slice/job/memory.max", "max\n"),
        ("/sys/fs/cgroup/user.slice/memory.max", "4294967296\n"),
    ];
    assert_eq!(half(&nested), 2 * GIB);
    let version_1 = [
        machine,
        ("/proc/self/cgroup", "5:cpu,memory:/docker/x\n4:pids:/y\n"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1073741824\n"),
    ];
    assert_eq!(half(&version_1), GIB / 2);
    assert_eq!(half(&[machine, ("/proc/self/cgroup", "0::/../../x\n")]), 4 * GIB);
}

#[test]
fn variable_of_a_setting_leads_back_to_its_name() {
    for (name, variable) in [
        ("state_dir", "RATCHET_STATE_DIR"),
        ("topics.min_insync_replicas", "RATCHET_TOPICS__MIN_INSYNC_REPLICAS"),
        ("kafka.sasl.oauthbearer.client.secret", "RATCHET_KAFKA__SASL_OAUTHBEARER_CLIENT_SECRET"),
        ("kafka.producer.linger.ms", "RATCHET_KAFKA__PRODUCER__LINGER_MS"),
    ] {
        assert_eq!(layers::variable_of(name), variable);
    }
}

proptest! {
    #[test]
    fn loader_never_panics(text in yamlish(), set in yamlish(), variable in yamlish()) {
        let environment = env().with_variable("RATCHET_LANES", &variable).with_variable(&format!("RATCHET_{set}"), &text);
        if let Err(diagnostics) = load_text_with(&text, environment, &[&set]) {
            diagnostics.render(true);
        }
    }

    #[test]
    fn mistakes_never_show_a_secret(before in yamlish(), after in yamlish()) {
        let text = format!("{before}\nkafka:\n  sasl.password: hunter2\n{after}");
        let rendered = match load_text_with(&text, env(), &[]) {
            Ok(config) => config.to_string(),
            Err(diagnostics) => diagnostics.render(false),
        };
        prop_assert!(!rendered.contains("hunter2"), "{rendered}");
    }
}

#[test]
fn the_reference_has_the_table_of_the_settings() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let row = |key: &key::Key| {
        let default = match key.default {
            Omitted::Is(value) => format!("`{value}`"),
            Omitted::Words(words) => words.to_owned(),
            Omitted::Refused | Omitted::Nothing => unreachable!("{} has no default", key.name),
        };
        format!("| `{}` | {} | {default} |\n", key.name, key.about)
    };
    let (start, end) = ("<!-- settings -->\n", "<!-- end of settings -->");
    let (before, rest) = page.split_once(start).unwrap();
    let (_, after) = rest.split_once(end).unwrap();
    let rows: String = keys::all().map(row).collect();
    let now = format!("{before}{start}| key | what | default |\n|---|---|---|\n{rows}{end}{after}");
    if std::env::var_os("RATCHET_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(&path, &now).unwrap();
    } else {
        assert!(now == page, "docs/operations.md has another table than src/config/keys.rs: run `make schema`");
    }
}
