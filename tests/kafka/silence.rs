//! Goal: the total loss of Kafka is seen, from readiness, lanes and metrics, costs next to nothing, and is over when
//! Kafka is back.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::Broker;
use crate::load::things;
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

/// After this time without an answer an instance is not ready.
const SILENT_MAX: Duration = Duration::from_secs(30);
/// How long each kind of loss is looked at.
const LOOK: Duration = Duration::from_secs(10);
/// What the kind before has left, and what is free of it: attempts that were under way, and those that are not spaced yet.
const SETTLE: Duration = Duration::from_secs(2);
/// The most attempts in a second; attempts are 0.3 s apart.
const A_FEW: f64 = 5.0;
/// The share of a core that may be spent meanwhile.
const CORE_MAX: f64 = 0.1;
/// A restarted broker recovers its logs, and every client has to find it again.
const RECOVERY: Duration = Duration::from_secs(90);

/// Keeps the port of a broker that is down, so that no other socket takes it. At first, connections are refused; then they
/// are held in silence; then they are closed.
struct InPlace {
    address: SocketAddr,
    /// The bound socket, until it listens.
    socket: Option<OwnedFd>,
    state: Arc<State>,
    accepting: Option<thread::JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    closes: AtomicBool,
    accepted: AtomicU64,
    held: Mutex<Vec<TcpStream>>,
}

impl InPlace {
    /// Takes the port of a broker that has ended. Connections are refused, since nothing listens.
    fn refusing(address: &str) -> Self {
        let address: SocketAddr = address.parse().expect("an address");
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("there is a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("the option exists");
        rustix::net::bind(&socket, &address).expect("the broker has left its port");
        Self { address, socket: Some(socket), state: Arc::default(), accepting: None }
    }

    /// Accepts connections and holds them.
    fn hold(&mut self) {
        let socket = self.socket.take().expect("nothing has listened yet");
        rustix::net::listen(&socket, 128).expect("the socket is bound");
        let (listener, state) = (TcpListener::from(socket), Arc::clone(&self.state));
        self.accepting = Some(thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if state.is_over.load(Ordering::SeqCst) {
                    return;
                }
                state.accepted.fetch_add(1, Ordering::SeqCst);
                let mut held = state.held.lock().expect("nobody panics with it");
                if !state.closes.load(Ordering::SeqCst) {
                    held.push(stream);
                }
            }
        }));
    }

    /// Closes the held connections, and every new one.
    fn close(&self) {
        let mut held = self.state.held.lock().expect("nobody panics with it");
        self.state.closes.store(true, Ordering::SeqCst);
        held.clear();
    }
}

impl Drop for InPlace {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.accepting.take().into_iter().for_each(|accepting| drop(accepting.join()));
    }
}

fn now_seconds() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock after 1970").as_secs_f64()
}

/// What the alert on silence looks at.
fn silent_seconds(operator: &Operator) -> f64 {
    now_seconds() - operator.metric("ratchet_last_broker_response_timestamp_seconds", &[])
}

/// The partitions whose lag is shown, and how long ago the one that is oldest was measured.
fn lags(operator: &Operator) -> (usize, f64) {
    let series = operator.metrics();
    let of = |name: &'static str| series.iter().filter(move |(series, _)| series.split('{').next() == Some(name));
    let measured = of("ratchet_lag_measured_timestamp_seconds").map(|(_, at)| *at).fold(f64::INFINITY, f64::min);
    assert_eq!(of("ratchet_lag_records").count(), of("ratchet_lag_seconds").count());
    (of("ratchet_lag_records").count(), now_seconds() - measured)
}

/// The broker is tried a few times a second, by all clients together, and the rest of the time is spent on nothing.
#[track_caller]
fn costs_little(operator: &Operator, what: &str, accepted: Option<&AtomicU64>) {
    thread::sleep(SETTLE);
    let counts = || {
        let attempts = operator.metric("ratchet_broker_connection_attempts_total", &[]);
        (
            attempts,
            accepted.map_or(0, |accepted| accepted.load(Ordering::SeqCst)),
            operator.cpu_seconds(),
            Instant::now(),
        )
    };
    let before = counts();
    thread::sleep(LOOK);
    let after = counts();
    let seconds = (after.3 - before.3).as_secs_f64();
    let per_second = [after.0 - before.0, (after.1 - before.1) as f64].map(|count| count / seconds);
    let core = (after.2 - before.2) / seconds;
    println!("{what}: {per_second:?} attempts a second, {core:.3} of a core");
    assert!(per_second.iter().all(|count| *count <= A_FEW), "{what}: {per_second:?} attempts a second");
    assert!(core <= CORE_MAX, "{what}: {core} of a core");
}

#[test]
fn total_loss_of_kafka_is_seen_and_costs_little() {
    let mut broker = Broker::start();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), "silence");
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[]);
    // Two of them have no partition.
    job.worker.push("lanes: 4".to_owned());
    job.send(things(0, 0..100, 1).chain(things(1, 0..100, 1)));
    let mut operator = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    operator.await_ready(DEADLINE);
    within(DEADLINE, "the lags to be shown", || (lags(&operator).0 == 2).then_some(()));
    let (_, age) = lags(&operator);
    assert!(age < 10.0 && silent_seconds(&operator) < 10.0, "{age}, {}", silent_seconds(&operator));

    let address = broker.bootstrap();
    // The test's own clients would be counted, too.
    job.kafka = Kafka::at("127.0.0.1:1");
    broker.kill();
    let lost = Instant::now();
    let mut in_place = InPlace::refusing(&address);
    costs_little(&operator, "refuses", None);
    in_place.hold();
    costs_little(&operator, "is silent", Some(&in_place.state.accepted));
    in_place.close();
    costs_little(&operator, "closes", Some(&in_place.state.accepted));
    thread::sleep(SILENT_MAX.saturating_sub(lost.elapsed()));
    let (status, said) = operator.get("/readyz?verbose");
    assert_eq!(status, 503, "{said}");
    assert!(said.contains("[-] brokers: none has answered for 3"), "{said}");
    for lane in 0..4 {
        assert!(said.contains(&format!("[-] lane {}/{lane}: has not joined", job.name)), "{said}");
    }
    let (count, age) = lags(&operator);
    assert!(count == 2 && age >= SILENT_MAX.as_secs_f64() - 5.0, "{count} lags, measured {age} s ago");
    assert!(silent_seconds(&operator) >= SILENT_MAX.as_secs_f64() - 1.0, "{}", silent_seconds(&operator));
    operator.assert_running();

    drop(in_place);
    broker.restart();
    job.kafka = Kafka::at(&broker.bootstrap());
    operator.await_ready(RECOVERY);
    assert!(silent_seconds(&operator) < 5.0, "{}", silent_seconds(&operator));
    job.send(things(0, 100..200, 1).chain(things(1, 100..200, 1)));
    job.await_drained(RECOVERY);
    within(DEADLINE, "the lags to be measured again", || matches!(lags(&operator), (2, ..10.0)).then_some(()));
    operator.stop();
}
