//! Debezium's JDBC sink on Kafka Connect, standalone.
//!
//! Its settings are those with which it was fastest here; the page shows them. The key of a row is taken from the
//! record's value, so that keys need no schema.

use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};

use super::accounts;
use crate::failure::{Context as _, Failure, Outcome};
use crate::kafka;

/// Its version, for the page.
pub fn version() -> &'static str {
    const POM: &str = include_str!("../../peers/debezium-jdbc/pom.xml");
    let of = POM.split_once("<artifactId>debezium-connector-jdbc</artifactId>").map_or("", |(_, rest)| rest);
    let version = of.split_once("<version>").map_or("", |(_, rest)| rest);
    version.split('<').next().unwrap_or_default()
}

/// The JVM's flags.
pub const JVM: [&str; 2] = ["-XX:+UseParallelGC", "-Xmx1g"];
/// What is behind the database's address: the driver sends the inserts of a batch as few statements of many rows.
pub const URL_SETTINGS: &str = "?reWriteBatchedInserts=true";
/// The connector's settings that have to do with speed.
pub const TUNED: [(&str, &str); 6] = [
    ("tasks.max", "2"),
    ("batch.size", "1000"),
    ("use.reduction.buffer", "true"),
    ("consumer.override.max.poll.records", "1000"),
    ("consumer.override.max.partition.fetch.bytes", "4194304"),
    ("consumer.override.fetch.max.bytes", "67108864"),
];
/// The others.
const SETTINGS: [(&str, &str); 7] = [
    ("connector.class", "io.debezium.connector.jdbc.JdbcSinkConnector"),
    ("connection.username", "postgres"),
    ("connection.password", "none"),
    ("insert.mode", "upsert"),
    ("primary.key.mode", "record_value"),
    ("primary.key.fields", "id"),
    ("schema.evolution", "none"),
];

/// Its jars, which the first call has Maven fetch.
pub fn jars() -> Outcome<PathBuf> {
    let pom = kafka::checkout().join("benches/peers/debezium-jdbc/pom.xml");
    catch_unwind(|| kafka::jars("debezium-jdbc", &pom))
        .map_err(|_| Failure("debezium-jdbc: Maven could not fetch it; the reason is above".to_owned()))
}

/// The command that runs Connect with the connector, whose files are in `folder`.
pub fn command(jars: &Path, folder: &Path, brokers: &str, name: &str, input: &str, jdbc_url: &str) -> Outcome<Command> {
    let mut config: Map<String, Value> = Map::new();
    let url = format!("{jdbc_url}{URL_SETTINGS}");
    let own = [("topics", input), ("connection.url", &url), ("collection.name.format", accounts::TABLE)];
    for (setting, value) in SETTINGS.into_iter().chain(TUNED).chain(own) {
        config.insert(setting.to_owned(), value.into());
    }
    let connector = json!({"name": name, "config": config});
    fs::write(folder.join("connector.json"), connector.to_string()).context(folder.display())?;
    let worker = format!(
        "bootstrap.servers={brokers}\n\
         key.converter=org.apache.kafka.connect.storage.StringConverter\n\
         value.converter=org.apache.kafka.connect.json.JsonConverter\n\
         value.converter.schemas.enable=true\n\
         offset.storage.file.filename={}\n\
         plugin.discovery=SERVICE_LOAD\n\
         listeners=http://127.0.0.1:0\n",
        folder.join("offsets").display(),
    );
    fs::write(folder.join("worker.properties"), worker).context(folder.display())?;
    let mut command = Command::new("java");
    command
        .args(JVM)
        .arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        .arg("-cp")
        .arg(format!("{}/*", jars.display()))
        .arg("org.apache.kafka.connect.cli.ConnectStandalone")
        .arg(folder.join("worker.properties"))
        .arg(folder.join("connector.json"))
        .current_dir(folder);
    Ok(command)
}
