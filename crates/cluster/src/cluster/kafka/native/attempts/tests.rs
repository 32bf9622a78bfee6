//! Goal: librdkafka tries a broker that is gone a few times a second, even for a client that knows the controller and is
//! asked for it again and again, as by the watch.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::thread;

use super::super::super::properties::Properties;
use super::super::{Client, outline};
use super::*;

/// How long attempts are counted, once those that are free have been made.
const COUNTED: Duration = Duration::from_secs(4);
const FREE_ONES: Duration = Duration::from_secs(2);
/// As many are a few, of one client: three in a second, and one at either end.
const A_FEW: u64 = 4 * 3 + 4;

/// A broker that knows two requests: for the versions of requests, and for the brokers. It is the only one, and the
/// controller.
struct Broker {
    address: SocketAddr,
    is_gone: Arc<AtomicBool>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
    accepting: thread::JoinHandle<()>,
}

impl Broker {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (is_gone, streams) = (Arc::new(AtomicBool::new(false)), Arc::<Mutex<Vec<TcpStream>>>::default());
        let (gone, all) = (Arc::clone(&is_gone), Arc::clone(&streams));
        let accepting = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if gone.load(Ordering::SeqCst) {
                    return;
                }
                all.lock().unwrap().push(stream.try_clone().unwrap());
                thread::spawn(move || serve(stream, address.port()));
            }
        });
        Self { address, is_gone, streams, accepting }
    }

    /// Nobody listens any more, and all connections are closed.
    fn kill(self) -> SocketAddr {
        self.is_gone.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.accepting.join().unwrap();
        self.streams.lock().unwrap().iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        self.address
    }
}

fn serve(mut stream: TcpStream, port: u16) {
    let mut size = [0; 4];
    while stream.read_exact(&mut size).is_ok() {
        let mut request = vec![0; u32::from_be_bytes(size) as usize];
        if stream.read_exact(&mut request).is_err() {
            return;
        }
        let (api, version) = ([request[0], request[1]], [request[2], request[3]]);
        let mut response = request[4..8].to_vec();
        match (i16::from_be_bytes(api), i16::from_be_bytes(version)) {
            (18, version) => {
                // A newer version is answered in the oldest, which says what there is.
                let error: i16 = if version == 0 { 0 } else { 35 };
                response.extend(error.to_be_bytes());
                response.extend(2_i32.to_be_bytes());
                for [key, least, most] in [[3_i16, 0, 1], [18, 0, 0]] {
                    [key, least, most].iter().for_each(|number| response.extend(number.to_be_bytes()));
                }
            }
            (3, _) => {
                response.extend([1_i32, 1].iter().flat_map(|number| number.to_be_bytes()));
                response.extend(9_i16.to_be_bytes());
                response.extend(b"127.0.0.1");
                response.extend(i32::from(port).to_be_bytes());
                // No rack; then the controller, and no topics.
                response.extend((-1_i16).to_be_bytes());
                response.extend([1_i32, 0].iter().flat_map(|number| number.to_be_bytes()));
            }
            _ => return,
        }
        let mut framed = (response.len() as u32).to_be_bytes().to_vec();
        framed.extend(response);
        if stream.write_all(&framed).is_err() {
            return;
        }
    }
}

/// What is there in place of the broker.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InPlace {
    Nobody,
    Silence,
    Closes,
}

/// How many attempts a client makes at what took the place of its broker, as counted here, and there.
fn attempts_at(in_place: InPlace) -> (u64, Option<u64>) {
    let broker = Broker::start();
    let brokers = BTreeMap::from([("bootstrap.servers".to_owned(), broker.address.to_string())]);
    let properties = Properties::consumer(&brokers, &BTreeMap::new()).unwrap();
    let contact = Arc::clone(properties.contact());
    let client = Client::new(&properties).unwrap();
    assert!(client.ask_for_topics(Duration::from_secs(30)), "it does not know the brokers");
    assert!(contact.heard_ago().is_some());
    let address = broker.kill();
    let accepted = Arc::new(AtomicU64::new(0));
    if in_place != InPlace::Nobody {
        let listener = TcpListener::bind(address).unwrap();
        let counted = Arc::clone(&accepted);
        thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                if in_place == InPlace::Silence {
                    held.push(stream);
                }
            }
        });
    }
    // As the watch does; it ends with the process.
    thread::spawn(move || {
        loop {
            let _ = outline(&client, "orders");
        }
    });
    thread::sleep(FREE_ONES);
    let counts = || (contact.attempts(), accepted.load(Ordering::SeqCst));
    let (before, before_there) = counts();
    thread::sleep(COUNTED);
    let (after, after_there) = counts();
    assert!(in_place == InPlace::Nobody || after_there > 0, "the client never came to what took its broker's place");
    (after - before, (in_place != InPlace::Nobody).then(|| after_there - before_there))
}

#[test]
fn broker_that_refuses_is_tried_a_few_times_a_second() {
    let (attempts, _) = attempts_at(InPlace::Nobody);
    assert!((1..=A_FEW).contains(&attempts), "{attempts} in {COUNTED:?}");
}

#[test]
fn broker_that_accepts_and_closes_is_tried_a_few_times_a_second() {
    let (attempts, there) = attempts_at(InPlace::Closes);
    assert!((1..=A_FEW).contains(&attempts), "{attempts} in {COUNTED:?}");
    assert!(there.is_some_and(|there| there.abs_diff(attempts) <= 2), "{there:?} of {attempts}");
}

#[test]
fn broker_that_is_silent_is_tried_a_few_times_a_second() {
    let (attempts, there) = attempts_at(InPlace::Silence);
    assert!(attempts <= A_FEW && there.is_some_and(|there| there <= A_FEW), "{attempts} and {there:?} in {COUNTED:?}");
    assert!(there.is_some_and(|there| there.abs_diff(attempts) <= 2), "{there:?} of {attempts}");
}
