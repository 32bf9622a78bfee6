//! Servers that misbehave below HTTP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A server that does the same with each connection, on a thread each.
pub struct Raw {
    pub port: u16,
    pub connections: Arc<AtomicUsize>,
    /// How many of them it has closed.
    pub closed: Arc<AtomicUsize>,
    /// What was read, by connection.
    pub read: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Raw {
    /// `serve` gets the connection, its number, and where to write down what it has read.
    pub fn start(serve: impl Fn(TcpStream, &mut dyn FnMut(&[u8])) + Send + Sync + 'static) -> Raw {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (connections, read) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::<Vec<u8>>::new())));
        let closed = Arc::new(AtomicUsize::new(0));
        let raw =
            Raw { port, connections: Arc::clone(&connections), closed: Arc::clone(&closed), read: Arc::clone(&read) };
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let number = connections.fetch_add(1, Ordering::SeqCst);
                read.lock().unwrap().push(Vec::new());
                let (serve, read, closed) = (Arc::clone(&serve), Arc::clone(&read), Arc::clone(&closed));
                std::thread::spawn(move || {
                    serve(stream.unwrap(), &mut |bytes| read.lock().unwrap()[number].extend_from_slice(bytes));
                    closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        raw
    }

    /// Waits until it has closed this many connections. By then the end has reached the other side's socket.
    pub fn await_closed(&self, count: usize) {
        super::caller::until("it closes", || self.closed.load(Ordering::SeqCst) >= count);
    }

    /// Everything that was read.
    pub fn all(&self) -> Vec<u8> {
        self.read.lock().unwrap().concat()
    }
}

/// Reads a head, and a body whose length it says. `None` at the end.
pub fn read_request(stream: &mut TcpStream, write_down: &mut dyn FnMut(&[u8])) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    loop {
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        write_down(&byte);
        request.push(byte[0]);
        if let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n") {
            let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if request.len() == head + 4 + length {
                return Some(request);
            }
        }
    }
}

/// Answers, and leaves the connection open.
pub fn answer(stream: &mut TcpStream, status: &str) {
    let _ = stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes());
}

/// A port on which connecting takes for ever: its queue is full.
pub struct Blackhole {
    pub port: u16,
    _kept: (TcpListener, Vec<TcpStream>),
}

impl Blackhole {
    pub fn new() -> Blackhole {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: a plain system call on a socket that is open.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let address = listener.local_addr().unwrap();
        let wait = std::time::Duration::from_millis(300);
        let filling = std::iter::repeat_with(|| TcpStream::connect_timeout(&address, wait));
        let kept: Vec<_> = filling.take(16).map_while(Result::ok).collect();
        assert!(kept.len() < 16, "its queue is never full");
        Blackhole { port: address.port(), _kept: (listener, kept) }
    }
}
