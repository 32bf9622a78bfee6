//! One Apache Kafka broker in KRaft mode, on free ports, with settings that make faults quick.

use std::fs::{self, File, OpenOptions};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::install::{Install, KEYSTORE_PASSWORD, version};
use super::port::Port;
use super::process;

/// How long a broker may take to start on a busy machine.
const START_WAIT: Duration = Duration::from_secs(90);
const STARTED: &str = "Kafka Server started";

/// A running broker. Killed when dropped.
///
/// It listens on PLAINTEXT, where everyone is a superuser, and on SASL_SSL with SCRAM-SHA-256. There `ratchet`
/// (password `ratchet-secret`) and `planted` (whose password is one of those in `support/secrets.rs`, which tests
/// search for in every form) are superusers, too, and `limited` (password `limited-secret`) has only the rights that a
/// test grants.
#[derive(Debug)]
pub struct Broker {
    folder: PathBuf,
    ports: Ports,
    process: Option<Child>,
    java: &'static [&'static str],
    routes: Routes,
}

/// How a broker is reached, if not directly.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The local port that clients of [`Broker::behind_proxy`] are sent to, where a proxy has to listen.
    pub clients: Option<u16>,
    /// How brokers reach each other, if single connections are to be cut.
    pub peers: Option<Peers>,
}

/// How the other brokers reach a broker, and how it reaches them. Each broker has a name, which each of them may
/// resolve differently.
#[derive(Clone, Debug)]
pub struct Peers {
    /// Its own name and port, `broker-1:4711`: connections there have to be passed on to [`Broker::behind_peers`].
    pub advertised: String,
    /// The hosts file in which it looks up all names.
    pub hosts: PathBuf,
}

/// Only the first compiler and one collector thread: better for a broker that lives for minutes on two cores.
const BRIEF: &[&str] = &["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx768m"];

#[derive(Debug)]
struct Ports {
    plaintext: Port,
    sasl_ssl: Port,
    controller: Port,
    proxied: Port,
    peers: Port,
}

impl Ports {
    fn free() -> Ports {
        let [plaintext, sasl_ssl, controller, proxied, peers] = [(); 5].map(|()| Port::free());
        Ports { plaintext, sasl_ssl, controller, proxied, peers }
    }
}

impl Broker {
    /// Starts a broker with an empty data folder and waits until it is up.
    pub fn start() -> Broker {
        Broker::start_with(&[])
    }

    /// The same with further server properties, which override the usual ones.
    pub fn start_with(properties: &[(&str, &str)]) -> Broker {
        Broker::start_tuned(properties, BRIEF)
    }

    /// The same with Java options, for a broker under load.
    pub fn start_tuned(properties: &[(&str, &str)], java: &'static [&'static str]) -> Broker {
        Broker::start_new(properties, java, Routes::default())
    }

    /// The same for a broker that checks tokens by the keys in this file.
    pub fn start_trusting(properties: &[(&str, &str)], keys: &Path) -> Broker {
        // Versions from 3.9 on read no file that is not named here.
        let allowed = format!("-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{}", keys.display());
        let java: Vec<&'static str> = BRIEF.iter().copied().chain([&*allowed.leak()]).collect();
        Broker::start_tuned(properties, java.leak())
    }

    /// The same with additional plaintext listeners for clients and brokers that are routed.
    pub fn start_routed(routes: Routes, properties: &[(&str, &str)]) -> Broker {
        Broker::start_new(properties, BRIEF, routes)
    }

    fn start_new(properties: &[(&str, &str)], java: &'static [&'static str], routes: Routes) -> Broker {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let install = Install::get();
        let folder = process::run_folder().join(format!("broker-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir_all(&folder).expect("the run's folder is writable");
        let mut broker = Broker { ports: Ports::free(), folder, process: None, java, routes };
        fs::write(broker.folder.join("server.properties"), broker.server_properties(install, properties))
            .expect("the run's folder is writable");
        broker.format(install);
        broker.launch();
        broker
    }

    /// Starts a controller that is no broker: number 1, for brokers that [`Broker::join_as`] gives other numbers. Clusters
    /// that are to survive restarts have one. A controller that is restarted together with the broker in its process takes
    /// the old leaders for the present ones; Kafka 4.1.0 has then committed a transaction in some partitions and aborted it
    /// in others.
    pub fn start_controller(properties: &[(&str, &str)]) -> Broker {
        let all = [&[("process.roles", "controller")], properties].concat();
        Broker::start_new(&all, BRIEF, Routes::default())
    }

    /// Starts a second broker beside this one, with an empty data folder and number 2. The first stays the controller,
    /// so it has to live as long as the second.
    pub fn join(&self) -> Broker {
        self.start_beside(2, &[], Routes::default())
    }

    /// The same with this number and further server properties.
    pub fn join_as(&self, number: u32, properties: &[(&str, &str)]) -> Broker {
        self.start_beside(number, properties, Routes::default())
    }

    /// The same with additional listeners for routed clients and brokers.
    pub fn join_routed(&self, number: u32, routes: Routes, properties: &[(&str, &str)]) -> Broker {
        self.start_beside(number, properties, routes)
    }

    fn start_beside(&self, number: u32, properties: &[(&str, &str)], routes: Routes) -> Broker {
        let (number, voter) = (number.to_string(), format!("1@127.0.0.1:{}", self.ports.controller));
        let mut all = vec![("process.roles", "broker"), ("node.id", number.as_str())];
        all.push(("controller.quorum.voters", voter.as_str()));
        all.extend_from_slice(properties);
        Broker::start_new(&all, BRIEF, routes)
    }

    /// Where a proxy passes clients on to.
    pub fn behind_proxy(&self) -> SocketAddr {
        self.ports.proxied.address()
    }

    /// Where connections to [`Peers::advertised`] have to be passed on to.
    pub fn behind_peers(&self) -> SocketAddr {
        self.ports.peers.address()
    }

    /// Where it listens as the controller.
    pub fn controller(&self) -> SocketAddr {
        self.ports.controller.address()
    }

    /// Where clients connect in plain text.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.ports.plaintext)
    }

    /// Where clients connect over SASL_SSL.
    pub fn sasl_bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.ports.sasl_ssl)
    }

    /// The properties of a client that logs in there.
    pub fn login(&self, user: &str, password: &str) -> [(&'static str, String); 6] {
        let ca = self.ca_pem().to_str().expect("the target folder's name is text");
        [
            ("bootstrap.servers", self.sasl_bootstrap()),
            ("security.protocol", "SASL_SSL".to_owned()),
            ("ssl.ca.location", ca.to_owned()),
            ("sasl.mechanism", "SCRAM-SHA-256".to_owned()),
            ("sasl.username", user.to_owned()),
            ("sasl.password", password.to_owned()),
        ]
    }

    /// The certificate that clients of [`Broker::sasl_bootstrap`] have to trust.
    pub fn ca_pem(&self) -> &Path {
        &Install::get().ca_pem
    }

    /// The broker's process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Child::id)
    }

    /// The folder of its topics' logs.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Changes the user's password.
    pub fn set_password(&self, user: &str, password: &str) {
        self.configure("users", user, &format!("SCRAM-SHA-256=[password={password}]"));
    }

    /// Sends clients with this id at most this many bytes of records a second.
    pub fn throttle(&self, client_id: &str, bytes_per_second: u32) {
        self.configure("clients", client_id, &format!("consumer_byte_rate={bytes_per_second}"));
    }

    /// Accepts at most this many bytes of records a second from clients with this id.
    pub fn throttle_writes(&self, client_id: &str, bytes_per_second: u32) {
        self.configure("clients", client_id, &format!("producer_byte_rate={bytes_per_second}"));
    }

    fn configure(&self, kind: &str, name: &str, setting: &str) {
        let mut command = java(Install::get());
        command.args([config_tool(), "--bootstrap-server", &self.bootstrap(), "--alter"]);
        command.args(["--add-config", setting, "--entity-type", kind, "--entity-name", name]);
        let done = command.output().expect("java was started a moment ago");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "configuring {kind} {name:?}: {said}");
    }

    /// The broker's log file.
    pub fn log(&self) -> PathBuf {
        self.folder.join("broker.log")
    }

    /// Kills the broker at once (SIGKILL). What it had acknowledged is in its files.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops the broker cleanly (SIGTERM).
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        process::signal(&process, libc::SIGTERM);
        let deadline = Instant::now() + Duration::from_secs(30);
        while process.try_wait().expect("it is our child").is_none() {
            if Instant::now() > deadline {
                let _ = process.kill();
                let _ = process.wait();
                panic!("the broker did not stop within 30 s, see {}", self.log().display());
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Starts the broker again after [`Broker::kill`] or [`Broker::stop`], with its data, on its ports.
    pub fn restart(&mut self) {
        self.kill();
        self.launch();
    }

    /// Freezes the broker (SIGSTOP): connections stay open, and nothing responds.
    pub fn freeze(&self) {
        process::signal(self.process.as_ref().expect("the broker runs"), libc::SIGSTOP);
    }

    /// Lets a frozen broker continue (SIGCONT).
    pub fn thaw(&self) {
        process::signal(self.process.as_ref().expect("the broker runs"), libc::SIGCONT);
    }

    fn server_properties(&self, install: &Install, further: &[(&str, &str)]) -> String {
        let Ports { plaintext, sasl_ssl, controller, proxied, peers } = &self.ports;
        let usual = format!("PLAINTEXT://127.0.0.1:{plaintext},SASL_SSL://127.0.0.1:{sasl_ssl}");
        let (mut listeners, mut advertised) = (usual.clone(), usual);
        if let Some(port) = self.routes.clients {
            listeners += &format!(",PROXIED://127.0.0.1:{proxied}");
            advertised += &format!(",PROXIED://127.0.0.1:{port}");
        }
        let mut among_brokers = "PLAINTEXT";
        if let Some(Peers { advertised: name, .. }) = &self.routes.peers {
            listeners += &format!(",PEERS://127.0.0.1:{peers}");
            advertised += &format!(",PEERS://{name}");
            among_brokers = "PEERS";
        }
        let own = format!("CONTROLLER://127.0.0.1:{controller}");
        // A broker listens to clients and brokers, a controller to brokers.
        let listens = match () {
            () if further.contains(&("process.roles", "broker")) => {
                format!("listeners={listeners}\nadvertised.listeners={advertised}")
            }
            () if further.contains(&("process.roles", "controller")) => format!("listeners={own}"),
            () => format!("listeners={listeners},{own}\nadvertised.listeners={advertised}"),
        };
        let mut text = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             {listens}\n\
             inter.broker.listener.name={among_brokers}\n\
             log.dirs={}\n\
             ssl.keystore.location={}\n\
             ssl.keystore.password={KEYSTORE_PASSWORD}\n",
            self.folder.join("data").display(),
            install.keystore.display(),
        );
        text.push_str(SERVER_PROPERTIES);
        for (name, value) in further {
            text.push_str(&format!("{name}={value}\n"));
        }
        text
    }

    fn format(&self, install: &Install) {
        let done = java(install)
            .args(["kafka.tools.StorageTool", "format", "-t", "cmF0Y2hldC10ZXN0LTAwMQ", "--ignore-formatted", "-c"])
            .arg(self.folder.join("server.properties"))
            .args(["--add-scram", "SCRAM-SHA-256=[name=ratchet,password=ratchet-secret]"])
            .args(["--add-scram", "SCRAM-SHA-256=[name=limited,password=limited-secret]"])
            .args(["--add-scram", "SCRAM-SHA-256=[name=planted,password=hunter2-broker-Zq7Yw]"])
            .output()
            .expect("java was started a moment ago");
        assert!(
            done.status.success(),
            "formatting the broker's folder: {}{}",
            String::from_utf8_lossy(&done.stdout),
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// Starts its process and waits until it is up.
    fn launch(&mut self) {
        let log: File =
            OpenOptions::new().create(true).append(true).open(self.log()).expect("the run's folder is writable");
        let before = log.metadata().expect("an open file").len() as usize;
        let mut command = java_with(Install::get(), self.java);
        if let Some(Peers { hosts, .. }) = &self.routes.peers {
            command.arg(format!("-Djdk.net.hosts.file={}", hosts.display()));
        }
        command
            .args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "kafka.Kafka"])
            .arg(self.folder.join("server.properties"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("an open file"))
            .stderr(log);
        let mut process = process::spawn(command).expect("java was started a moment ago");
        let deadline = Instant::now() + START_WAIT;
        loop {
            let all = fs::read(self.log()).expect("the log was just opened");
            let text = String::from_utf8_lossy(&all[before..]);
            if text.contains(STARTED) {
                let version = format!("Kafka version: {}", version());
                assert!(text.contains(&version), "{} does not say {version:?}", self.log().display());
                self.process = Some(process);
                return;
            }
            let ended = process.try_wait().expect("it is our child");
            if ended.is_some() || Instant::now() > deadline {
                let _ = process.kill();
                let _ = process.wait();
                let tail: Vec<&str> = text.lines().rev().take(30).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                panic!(
                    "Kafka did not start within {START_WAIT:?} ({ended:?}), {}:\n{}",
                    self.log().display(),
                    tail.join("\n")
                );
            }
            sleep(Duration::from_millis(30));
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The class of Kafka's tool for settings; it has moved in 4.4.
fn config_tool() -> &'static str {
    let mut numbers = version().split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let release = (numbers.next(), numbers.next());
    if release < (Some(4), Some(4)) { "kafka.admin.ConfigCommand" } else { "org.apache.kafka.tools.ConfigCommand" }
}

/// Java with Kafka's jars, for short-lived commands.
fn java(install: &Install) -> Command {
    java_with(install, BRIEF)
}

fn java_with(install: &Install, options: &[&str]) -> Command {
    let mut command = Command::new("java");
    command
        .args(options)
        .arg("-cp")
        .arg(format!("{}/*", install.libs.display()))
        .arg("-Dorg.slf4j.simpleLogger.showDateTime=true")
        .arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS");
    command
}

/// The settings that all brokers share. The abort scan, the cleaner and retention run twice a second, and sessions may
/// be as short as a second, so that a takeover takes seconds.
const SERVER_PROPERTIES: &str = "\
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,PROXIED:PLAINTEXT,PEERS:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
sasl.enabled.mechanisms=SCRAM-SHA-256
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PKCS12
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:ratchet;User:planted
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
log.initial.task.delay.ms=500
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
";
