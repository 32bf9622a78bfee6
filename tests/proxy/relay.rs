//! A relay between a proxy and its store's server: it can be slow, silent, or cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// How often is looked whether something has changed.
const LOOK: Duration = Duration::from_millis(5);

/// What happens to what passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Clear,
    /// Each piece takes so long.
    Slow(Duration),
    /// Nothing passes. Connections stay open, and what was sent arrives afterwards.
    Silent,
    /// Connections end, and new ones end at once.
    Cut,
}

/// A running relay; its threads end with their connections.
pub struct Relay {
    pub port: u16,
    line: Arc<Mutex<Line>>,
}

impl Relay {
    /// Leads to this port.
    pub fn to(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, line) = (listener.local_addr().unwrap().port(), Arc::new(Mutex::new(Line::Clear)));
        let of_all = Arc::clone(&line);
        spawn(move || {
            for client in listener.incoming().flatten() {
                if *of_all.lock().unwrap() == Line::Cut {
                    continue;
                }
                let server = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (out, back) = (Arc::clone(&of_all), Arc::clone(&of_all));
                spawn(move || carry(client, server, &out));
                spawn(move || carry(server_too, client_too, &back));
            }
        });
        Relay { port, line }
    }

    pub fn set(&self, line: Line) {
        *self.line.lock().unwrap() = line;
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, line: &Mutex<Line>) {
    from.set_read_timeout(Some(LOOK)).unwrap();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let now = *line.lock().unwrap();
        if now == Line::Cut {
            break;
        }
        if now == Line::Silent {
            sleep(LOOK);
            continue;
        }
        let length = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        if let Line::Slow(length) = now {
            sleep(length);
        }
        while *line.lock().unwrap() == Line::Silent {
            sleep(LOOK);
        }
        if *line.lock().unwrap() == Line::Cut || to.write_all(&chunk[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
