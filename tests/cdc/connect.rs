//! Kafka Connect, standalone, with one Debezium connector.
//!
//! It flushes its offsets when it stops cleanly, and never in between: so after a kill, everything since the last clean
//! stop is delivered again.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::database::Database;
use crate::kafka::{self, Port};
use crate::schema_registry::Server as Registry;
use crate::until::within;

/// How long a clean stop may take.
const STOP_WAIT: Duration = Duration::from_secs(60);

/// What keys and values are written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Converter {
    /// JSON, with the schema beside the payload or without.
    Json { schemas: bool },
    /// Avro, by schemas in the tests' registry, with Confluent's ids.
    Avro,
}

impl Converter {
    /// The worker's settings for it.
    fn settings(self) -> Vec<(&'static str, String)> {
        match self {
            Converter::Json { schemas } => vec![
                ("", "org.apache.kafka.connect.json.JsonConverter".to_owned()),
                (".schemas.enable", schemas.to_string()),
            ],
            Converter::Avro => vec![
                ("", "io.apicurio.registry.utils.converter.AvroConverter".to_owned()),
                (".apicurio.registry.url", Registry::shared().own_url().replace("/v3", "/v2")),
                (".apicurio.registry.auto-register", "true".to_owned()),
                (".apicurio.registry.as-confluent", "true".to_owned()),
                (".apicurio.registry.use-id", "contentId".to_owned()),
                (".apicurio.registry.headers.enabled", "false".to_owned()),
            ],
        }
    }

    /// A topology that reads it, from one that reads JSON.
    pub fn topology(self, text: &str) -> String {
        match self {
            Converter::Json { .. } => text.to_owned(),
            Converter::Avro => {
                let (before, input) = text.split_once("\ninput: {").expect("a topology has an input");
                format!("{before}\ninput: {{key_format: avro, value_format: avro, {input}")
            }
        }
    }

    /// The connector's settings for it.
    fn of_connector(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Converter::Json { .. } => &[],
            // Names that Avro accepts.
            Converter::Avro => &[("schema.name.adjustment.mode", "avro"), ("field.name.adjustment.mode", "avro")],
        }
    }
}

/// A connector, running or not. Killed when dropped.
pub struct Connect {
    /// The connector's.
    name: String,
    libs: PathBuf,
    folder: PathBuf,
    /// Where it answers requests.
    port: Port,
    child: Option<Child>,
}

impl Connect {
    /// Writes the settings, with `further` overriding others; starts nothing.
    pub fn new(database: &dyn Database, brokers: &str, further: &[(&str, &str)]) -> Connect {
        let name = database.name();
        let pom = Path::new(env!("CARGO_MANIFEST_DIR")).join(database.pom());
        let kind = pom.file_name().and_then(|file| file.to_str()?.split('.').next()).expect("KIND.pom.xml");
        let libs = kafka::jars(&format!("connect-{kind}"), &pom);
        let folder = kafka::run_folder().join(format!("connect-{name}"));
        fs::create_dir_all(&folder).expect("the run's folder is writable");
        let connect = Connect { name: name.to_owned(), libs, folder, port: Port::free(), child: None };
        let mut config: Map<String, Value> = Map::new();
        for (setting, value) in database.connector(brokers) {
            config.insert(setting.to_owned(), value.into());
        }
        for (setting, value) in database.converter().of_connector() {
            config.insert((*setting).to_owned(), (*value).into());
        }
        config.insert("topic.prefix".to_owned(), database.topic_prefix().into());
        config.insert("tasks.max".to_owned(), "1".into());
        for (setting, value) in further {
            config.insert((*setting).to_owned(), (*value).into());
        }
        let connector = json!({"name": name, "config": config});
        fs::write(connect.folder.join("connector.json"), connector.to_string()).expect("the folder is writable");
        fs::write(connect.folder.join("worker.properties"), connect.worker(brokers, database.converter()))
            .expect("the folder is writable");
        connect
    }

    /// Changes one of the connector's settings for its next start, and returns the old value.
    pub fn set(&self, setting: &str, value: Option<&str>) -> Option<String> {
        assert!(self.child.is_none(), "it runs");
        let file = self.folder.join("connector.json");
        let text = fs::read_to_string(&file).expect("it was written");
        let mut connector: Value = serde_json::from_str(&text).expect("it was written as JSON");
        let config = connector["config"].as_object_mut().expect("a connector has settings");
        let before = match value {
            Some(value) => config.insert(setting.to_owned(), value.into()),
            None => config.remove(setting),
        };
        fs::write(file, connector.to_string()).expect("the folder is writable");
        before.and_then(|value| value.as_str().map(str::to_owned))
    }

    fn worker(&self, brokers: &str, converter: Converter) -> String {
        let converter = converter.settings().into_iter();
        let converter =
            converter.flat_map(|(name, value)| ["key", "value"].map(|of| format!("{of}.converter{name}={value}\n")));
        format!(
            "bootstrap.servers={brokers}\n\
             {}\
             offset.storage.file.filename={}\n\
             offset.flush.interval.ms=3600000\n\
             offset.flush.timeout.ms=50000\n\
             task.shutdown.graceful.timeout.ms=50000\n\
             plugin.discovery=SERVICE_LOAD\n\
             listeners=http://127.0.0.1:{}\n",
            converter.collect::<String>(),
            self.offsets().display(),
            self.port,
        )
    }

    fn offsets(&self) -> PathBuf {
        self.folder.join("offsets")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("connect.log")
    }

    /// Starts it.
    pub fn start(&mut self) {
        assert!(self.child.is_none(), "it runs already");
        let log: File =
            OpenOptions::new().create(true).append(true).open(self.log()).expect("the run's folder is writable");
        let worker = self.folder.join("worker.properties");
        let mut command = Command::new("java");
        command
            .args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"])
            .args(["-Dorg.slf4j.simpleLogger.showDateTime=true"])
            .args(["-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"])
            .arg("-cp")
            .arg(format!("{}/*", self.libs.display()))
            .arg("org.apache.kafka.connect.cli.ConnectStandalone")
            .arg(worker)
            .arg(self.folder.join("connector.json"))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("an open file"))
            .stderr(log);
        self.child = Some(kafka::spawn(command).expect("java was started a moment ago"));
    }

    /// Fails the test if the connector has given up.
    pub fn assert_running(&mut self) {
        let ended = self.child.as_mut().expect("it was started").try_wait().expect("it is our child");
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let given_up = log.lines().find(|line| line.contains("unrecoverable") || line.contains("Failed to create"));
        assert!(ended.is_none() && given_up.is_none(), "{ended:?} {given_up:?}, see {}", self.log().display());
    }

    /// Kills it (SIGKILL): offsets that it has not flushed are lost.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops the connector cleanly, so that it flushes its offsets, then the process.
    ///
    /// The process is killed: asked to stop, it now and then never ends. Kafka Connect and Jetty both stop the server of
    /// requests then, at the same time, and the one waits for threads that the other has forgotten.
    pub fn stop(&mut self) {
        let log = self.log();
        let what = |what: &str| format!("{what}, see {}", log.display());
        let path = format!("/connectors/{}", self.name);
        within(STOP_WAIT, &what("Kafka Connect to take a request"), || {
            self.answer("PUT", &format!("{path}/stop"))?.starts_with("HTTP/1.1 204").then_some(())
        });
        within(STOP_WAIT, &what("the connector to stop"), || {
            let answer = self.answer("GET", &format!("{path}/status"))?;
            // Whatever its encoding: the object stands between the braces.
            let status: Value = serde_json::from_str(&answer[answer.find('{')?..=answer.rfind('}')?]).ok()?;
            (status["connector"]["state"] == "STOPPED" && status["tasks"] == json!([])).then_some(())
        });
        assert!(self.offsets().exists(), "{}", what("it stopped without flushing its offsets"));
        self.kill();
    }

    /// The answer to a request, if there is one.
    fn answer(&self, method: &str, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.port.address()).ok()?;
        stream.set_read_timeout(Some(STOP_WAIT)).ok()?;
        let head = "Host: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        write!(stream, "{method} {path} HTTP/1.1\r\n{head}").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        Some(answer)
    }

    /// Removes its offsets, so that it will take a snapshot.
    pub fn lose_offsets(&self) {
        assert!(self.child.is_none(), "it runs");
        fs::remove_file(self.offsets()).expect("it has stored its offsets before");
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.log()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(15)..];
            eprintln!("--- Kafka Connect's log, {}:\n{}", self.log().display(), tail.join("\n"));
        }
        self.kill();
    }
}
