//! Local ports that nobody else gets while their server is down.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::TcpSocket;

/// A port of 127.0.0.1, from the system, for a server that allows the reuse of its address, as Kafka, PostgreSQL and
/// all others here do.
///
/// It stays bound, though nothing listens at it: the system gives it neither to another server nor to an outgoing
/// connection, also between a server's end and its next start; and connections are refused.
pub struct Port {
    number: u16,
    _bound: TcpSocket,
}

impl Port {
    pub fn free() -> Port {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_reuseaddr(true).expect("an option of every socket");
        socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a free port");
        Port { number: socket.local_addr().expect("a bound socket").port(), _bound: socket }
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.number))
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}
