//! A broker with a thread for each connection, which answers like the brokers of the simulated world.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::cluster::kafka::wire::brokers::tests::world::{Cluster, ECHO, Seen};
use crate::cluster::kafka::wire::brokers::{Address, Link};

/// What a server speaks.
#[derive(Clone)]
pub enum Speaks {
    Plain,
    Tls(Arc<ServerConfig>),
}

/// A broker; its threads end with their connections, and the listener's with the process.
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    streams: Mutex<Vec<TcpStream>>,
    holds: AtomicBool,
    connections: AtomicUsize,
}

impl Server {
    /// Listens on `host`, a name of this machine.
    pub fn start(host: &'static str, speaks: Speaks) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Arc<Shared> = Arc::default();
        let of_all = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, speaks, shared) = (stream.unwrap(), speaks.clone(), of_all.clone());
                let end = stream.try_clone().unwrap();
                shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
                shared.connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    match speaks {
                        Speaks::Plain => serve(stream, host, port, &shared),
                        Speaks::Tls(config) => {
                            let tls = ServerConnection::new(config).unwrap();
                            serve(StreamOwned::new(tls, stream), host, port, &shared);
                        }
                    }
                    let _ = end.shutdown(Shutdown::Both);
                    shared.connections.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        Self { address: Address { host: host.to_owned(), port }, shared }
    }

    pub fn address(&self) -> Address {
        self.address.clone()
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Sets whether clients' echo requests are held back.
    pub fn hold(&self, holds: bool) {
        self.shared.holds.store(holds, Ordering::SeqCst);
    }

    /// Closes all connections.
    pub fn cut(&mut self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn serve(mut stream: impl Read + Write, host: &'static str, port: u16, shared: &Shared) {
    let cluster = Cluster {
        nodes: [(1, port)].into(),
        topics: [("orders".to_owned(), (1, vec![(1, 5)]))].into(),
        api_versions_max: 4,
        metadata_max: 12,
        host,
        ..Cluster::default()
    };
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let Ok(count) = usize::try_from(i32::from_be_bytes(length)) else { return };
        if count > 1 << 26 {
            return;
        }
        let mut frame = vec![0; count];
        if stream.read_exact(&mut frame).is_err() {
            return;
        }
        let seen = Seen::read(Link(0), port, frame);
        while seen.api_key == ECHO && shared.holds.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let response = seen.response(&cluster.answer(&seen).unwrap());
        if stream.write_all(&response).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}
