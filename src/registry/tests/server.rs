//! A small HTTP server on a real socket, which answers as a test tells it to.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// How a request is answered.
pub enum Reply {
    /// With a status, more lines of the head, and a body.
    Answer(u16, String, String),
    /// With nothing, for this time; then the connection is closed.
    Silence(Duration),
    /// With a body that does not end.
    Endless,
}

/// A JSON body.
pub fn json(status: u16, body: impl Into<String>) -> Reply {
    Reply::Answer(status, "Content-Type: application/vnd.schemaregistry.v1+json\r\n".to_owned(), body.into())
}

/// Confluent's answer if the registry does not have the schema.
pub fn absent() -> Reply {
    json(404, r#"{"error_code":40403,"message":"Schema not found"}"#)
}

/// Confluent's answer with a schema, and more members of the object.
pub fn schema(text: &str, more: &str) -> Reply {
    json(200, format!(r#"{{"schema":{}{more}}}"#, serde_json::Value::String(text.to_owned())))
}

type Answer = dyn Fn(&str, &str) -> Reply + Send + Sync;

/// A server. Stops when dropped.
pub struct Server {
    port: u16,
    scheme: &'static str,
    requests: Arc<Mutex<Vec<String>>>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    /// Starts a server that answers each request by its path and its whole text.
    pub fn start(answer: impl Fn(&str, &str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(0, None, answer)
    }

    /// Starts a server that speaks TLS.
    pub fn start_tls(tls: Arc<ServerConfig>, answer: impl Fn(&str, &str) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(0, Some(tls), answer)
    }

    /// Starts a server at this port.
    pub fn start_at(
        port: u16,
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&str, &str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, stopped) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicBool>::default());
        let (seen, is_over) = (Arc::clone(&requests), Arc::clone(&stopped));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let answer: Arc<Answer> = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let (answer, seen, tls) = (Arc::clone(&answer), Arc::clone(&seen), tls.clone());
                // A client may close the connection at any time.
                thread::spawn(move || match tls {
                    None => serve(stream, &*answer, &seen),
                    Some(tls) => serve(StreamOwned::new(ServerConnection::new(tls).unwrap(), stream), &*answer, &seen),
                });
            }
        });
        Self { port, scheme, requests, stopped }
    }

    /// A port at which nothing listens.
    pub fn nowhere() -> u16 {
        TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
    }

    /// The server's address.
    pub fn url(&self) -> String {
        format!("{}://localhost:{}", self.scheme, self.port)
    }

    /// The requested paths, with their queries.
    pub fn paths(&self) -> Vec<String> {
        let path = |request: &String| request.split(' ').nth(1).unwrap_or_default().to_owned();
        self.requests.lock().unwrap().iter().map(path).collect()
    }

    /// The requests, as they were received.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(mut stream: impl Read + Write, answer: &Answer, seen: &Mutex<Vec<String>>) {
    let Some(request) = read(&mut stream) else { return };
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    seen.lock().unwrap().push(request.clone());
    let written = match answer(&path, &request) {
        Reply::Answer(status, head, body) => {
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{head}Connection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()))
        }
        Reply::Silence(wait) => {
            thread::sleep(wait);
            Ok(())
        }
        Reply::Endless => {
            let mut sent = stream.write_all(b"HTTP/1.1 200 X\r\nConnection: close\r\n\r\n{\"schema\":\"");
            while sent.is_ok() {
                sent = stream.write_all(&[b'x'; 65_536]);
            }
            Ok(())
        }
    };
    let _ = written.and_then(|()| stream.flush());
}

fn read(stream: &mut impl Read) -> Option<String> {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    while !text.ends_with("\r\n\r\n") {
        let length = stream.read(&mut bytes).ok().filter(|length| *length > 0)?;
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    Some(text)
}
