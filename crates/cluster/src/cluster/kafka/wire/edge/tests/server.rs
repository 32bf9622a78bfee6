//! A broker with a thread for each connection, which responds like the brokers of the simulated world.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::cluster::kafka::wire::brokers::tests::world::{Cluster, ECHO, SeenRequest};
use crate::cluster::kafka::wire::brokers::{Address, Link};

/// Whether a server encrypts its connections.
#[derive(Clone)]
pub enum Transport {
    Plain,
    Tls(Arc<ServerConfig>),
}

/// A broker. Its threads end with their connections, and the listener's thread with the process.
pub struct Server {
    address: Address,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    streams: Mutex<Vec<TcpStream>>,
    holds_echoes: AtomicBool,
    connections: AtomicUsize,
}

impl Server {
    /// Listens on `host`, a name of this machine.
    pub fn start(host: &'static str, transport: Transport) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared: Arc<Shared> = Arc::default();
        let listener_shared = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, transport, shared) = (stream.unwrap(), transport.clone(), listener_shared.clone());
                let closer = stream.try_clone().unwrap();
                shared.streams.lock().unwrap().push(stream.try_clone().unwrap());
                shared.connections.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    match transport {
                        Transport::Plain => serve(stream, host, port, &shared),
                        Transport::Tls(config) => {
                            let tls = ServerConnection::new(config).unwrap();
                            serve(StreamOwned::new(tls, stream), host, port, &shared);
                        }
                    }
                    let _ = closer.shutdown(Shutdown::Both);
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

    /// Sets whether responses to echo requests are held back.
    pub fn hold_echoes(&self, holds: bool) {
        self.shared.holds_echoes.store(holds, Ordering::SeqCst);
    }

    /// Closes all connections.
    pub fn close_all(&mut self) {
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
        let seen = SeenRequest::read(Link(0), port, frame);
        while seen.api_key == ECHO && shared.holds_echoes.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let response = seen.response(&cluster.default_response(&seen).unwrap());
        if stream.write_all(&response).and_then(|()| stream.flush()).is_err() {
            return;
        }
    }
}
