//! A real schema registry: Apicurio Registry from Maven Central, with a port and a folder of its own. It also serves
//! Confluent's API.
//!
//! It stores each schema in a file before it responds, so that schemas survive [`Server::kill`].

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::kafka::{self, Port, run_folder};
use crate::until::within;

/// The last version that runs on Java 17.
const VERSION: &str = "3.0.9";
/// The path of Confluent's API.
const CONFLUENT: &str = "/apis/ccompat/v7";
/// The time to start on a busy machine; an idle one needs about ten seconds.
const START_WAIT: Duration = Duration::from_secs(120);
const REQUEST_WAIT: Duration = Duration::from_secs(30);

/// A registry. Killed when dropped.
pub struct Server {
    port: Port,
    folder: PathBuf,
    child: Option<Child>,
}

/// The ids that Apicurio gives a version of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The id of the version.
    pub global: u64,
    /// The id of the content, which versions of several subjects may share.
    pub content: u64,
}

impl Server {
    /// Starts an empty registry.
    pub fn start() -> Server {
        let mut server = Server::stopped();
        server.restart();
        server
    }

    /// A registry that has an address and is not started.
    pub fn stopped() -> Server {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = run_folder().join(format!("schema-registry-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&folder).expect("the run's folder is writable");
        Server { port: Port::free(), folder, child: None }
    }

    /// The registry that tests share; they must not stop it.
    pub fn shared() -> &'static Server {
        static SHARED: OnceLock<Server> = OnceLock::new();
        SHARED.get_or_init(Server::start)
    }

    /// Starts it again, with its schemas.
    pub fn restart(&mut self) {
        self.kill();
        let log = self.folder.join("log");
        let file = File::options().create(true).append(true).open(&log).expect("the run's folder is writable");
        let mut command = Command::new("java");
        command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dquarkus.http.host=127.0.0.1"]);
        command.arg(format!("-Dquarkus.http.port={}", self.port));
        let data = self.folder.join("schemas");
        command.arg(format!("-Dapicurio.datasource.url=jdbc:h2:file:{};WRITE_DELAY=0", data.display()));
        command.arg("-jar").arg(jar()).current_dir(&self.folder).stdin(Stdio::null());
        command.stdout(file.try_clone().expect("an open file")).stderr(file);
        let mut child = kafka::spawn(command).expect("java was started a moment ago");
        within(START_WAIT, &format!("the schema registry to respond, see {}", log.display()), || {
            let ended = child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "the schema registry ended: {ended:?}, see {}", log.display());
            self.request("GET", &format!("{CONFLUENT}/subjects"), "")
                .is_ok_and(|(status, _)| status == 200)
                .then_some(())
        });
        self.child = Some(child);
    }

    /// Kills it without a shutdown, as a power cut would.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The URL of Confluent's API.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}{CONFLUENT}", self.port)
    }

    /// The URL of Apicurio's API.
    pub fn own_url(&self) -> String {
        format!("http://127.0.0.1:{}/apis/registry/v3", self.port)
    }

    /// Registers a schema of this type (`AVRO`, `PROTOBUF`, `JSON`) as the next version of a subject. Returns its id.
    pub fn register(&self, subject: &str, kind: &str, text: &str) -> u32 {
        self.register_with(subject, kind, text, &[])
    }

    /// The same for a schema that refers to the first versions of other subjects, by these subjects' names.
    pub fn register_with(&self, subject: &str, kind: &str, text: &str, references: &[&str]) -> u32 {
        let refer = |name: &&str| json!({"name": name, "subject": name, "version": 1});
        let references: Vec<Value> = references.iter().map(refer).collect();
        let body = json!({"schemaType": kind, "schema": text, "references": references}).to_string();
        let path = format!("{CONFLUENT}/subjects/{}/versions", subject.replace('/', "%2F"));
        let (status, answer) = self.request("POST", &path, &body).expect("it is up");
        assert_eq!(status, 200, "{subject}: {answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let number = answer["id"].as_u64().expect("an id");
        u32::try_from(number).expect("a small number")
    }

    /// The text of the schema with this id.
    pub fn text_of(&self, number: u32) -> String {
        let (status, answer) = self.request("GET", &format!("{CONFLUENT}/schemas/ids/{number}"), "").expect("it is up");
        assert_eq!(status, 200, "schema {number}: {answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        answer["schema"].as_str().expect("a text").to_owned()
    }

    /// The ids that Apicurio gives a version of a subject.
    pub fn ids(&self, subject: &str, version: u32) -> Ids {
        let path = format!("/apis/registry/v3/groups/default/artifacts/{subject}/versions/{version}");
        let (status, answer) = self.request("GET", &path, "").expect("it is up");
        assert_eq!(status, 200, "{subject}: {answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let id = |name: &str| answer[name].as_u64().expect("an id");
        Ids { global: id("globalId"), content: id("contentId") }
    }

    fn request(&self, method: &str, path: &str, body: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.port.address(), REQUEST_WAIT)?;
        stream.set_read_timeout(Some(REQUEST_WAIT))?;
        // In HTTP/1.0, the response is not chunked.
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.ok_or(std::io::ErrorKind::InvalidData)?, body.to_owned()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The registry's program.
fn jar() -> &'static Path {
    static JAR: OnceLock<PathBuf> = OnceLock::new();
    JAR.get_or_init(|| {
        let artifact = format!("io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all");
        let folder = kafka::unpacked(&format!("apicurio-registry-{VERSION}"), &artifact);
        folder.join(format!("apicurio-registry-app-{VERSION}-runner.jar"))
    })
}
