//! ratchet's own metrics, as it tells them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::failure::{Context as _, Outcome};

/// How long an answer may take.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// All metrics at a point in time.
pub struct Metrics(String);

impl Metrics {
    /// Asks ratchet, which listens there.
    pub fn of(address: SocketAddr) -> Outcome<Metrics> {
        get(address).map(Metrics).context("ratchet's metrics")
    }

    /// The sum of a metric over all its labels; 0 if it is not there.
    pub fn sum(&self, name: &str) -> f64 {
        let of = self.0.lines().filter(|line| line.split(['{', ' ']).next() == Some(name));
        of.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_WAIT)?;
    stream.set_read_timeout(Some(ANSWER_WAIT))?;
    stream.set_write_timeout(Some(ANSWER_WAIT))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
