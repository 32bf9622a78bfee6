//! The socket of one connection, and TLS on it.
//!
//! The connection's *client* is the [`Brokers`] that requested the connection, and identifies it by a number, its
//! *link*. The client receives the bytes that were read, the number of bytes that were written, and the reason if the
//! connection fails.

use std::io::{self, ErrorKind, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Weak;
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_keepalive;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, ipproto, socket_with};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection};

use super::super::brokers::{Address, Brokers, Link, TroubleKind};
use super::failure::Failure;
use super::settings::{Family, SocketSettings};
use crate::cluster::Admitted;
use crate::tls::Renewed;

/// The most reads in succession from one socket before other sockets are read.
const READS_MAX: usize = 16;
/// The most encrypted bytes that are read at once with TLS.
const ENCRYPTED_BYTES: usize = 64 << 10;

/// The state of a connection.
pub enum Socket {
    /// The attempt to open it may not be made yet: attempts at a broker that does not respond are spaced.
    Waiting(Admitted),
    /// The broker's name is being looked up.
    LookingUp,
    /// The broker's addresses are attempted one after the other.
    Opening(Opening),
    /// The socket is connected.
    Open(Box<OpenSocket>),
    /// The connection has failed, and its client was notified.
    Failed,
}

/// An attempt to connect to addresses one after the other.
pub struct Opening {
    /// The socket that is connecting to the current address; `None` before the first one.
    stream: Option<TcpStream>,
    /// The addresses that were not attempted yet.
    remaining: std::vec::IntoIter<SocketAddr>,
    keepalive: bool,
    /// The reason to report when no address is left: why the last attempt failed or, before any attempt, that no
    /// address is of the configured family. A sentence that refers to the broker as "it".
    reason: Option<String>,
}

/// A connected socket, and TLS on it if configured.
pub struct OpenSocket {
    stream: TcpStream,
    tls: Option<ClientConnection>,
    /// The encrypted bytes of the last read.
    encrypted: Vec<u8>,
    /// Whether the TLS handshake is complete, or TLS is not used.
    is_established: bool,
    /// Whether the last write would have blocked.
    is_write_blocked: bool,
}

impl Opening {
    /// Attempts these addresses in order, except those that the configured family excludes.
    pub fn new(mut addresses: Vec<SocketAddr>, settings: SocketSettings) -> Self {
        addresses.retain(|address| settings.family.contains(address));
        let reason = (settings.family != Family::Any)
            .then(|| format!("it has no address of the family {} (broker.address.family)", settings.family.as_str()));
        Self { stream: None, remaining: addresses.into_iter(), keepalive: settings.keepalive, reason }
    }

    /// Starts to connect to the next address.
    fn start_next(&mut self) -> Result<(), Failure> {
        self.stream = None;
        loop {
            let Some(address) = self.remaining.next() else {
                let reason = self.reason.take().unwrap_or_else(|| "it has no address".to_owned());
                return Err(Failure::temporary(reason));
            };
            match start_connecting(address, self.keepalive) {
                Ok(stream) => {
                    self.stream = Some(stream);
                    return Ok(());
                }
                Err(error) => self.reason = Some(connect_reason(&error)),
            }
        }
    }

    /// Returns the stream once it is connected, and `None` until then. If the attempt at an address has failed, starts
    /// to connect to the next one. `has_ended`: the system reports that the attempt has ended.
    fn poll_connected(&mut self, has_ended: bool) -> Result<Option<TcpStream>, Failure> {
        let Some(stream) = &self.stream else { return self.start_next().map(|()| None) };
        let outcome = stream.take_error().and_then(|error| error.map_or(Ok(()), Err));
        match outcome.and_then(|()| stream.peer_addr()) {
            Ok(_) => Ok(self.stream.take()),
            Err(error) if error.kind() == ErrorKind::NotConnected && !has_ended => Ok(None),
            Err(error) => {
                self.reason = Some(connect_reason(&error));
                self.start_next().map(|()| None)
            }
        }
    }
}

fn connect_reason(error: &io::Error) -> String {
    format!("it did not accept a connection: {error}")
}

fn start_connecting(address: SocketAddr, keepalive: bool) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if keepalive {
        set_socket_keepalive(&socket, true)?;
    }
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let stream = TcpStream::from(socket);
    // Requests are written whole, so none should wait for the next.
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A connection and its owner.
pub(super) struct Entry {
    /// Identifies the connection's client (`Brokers::identity`); cannot be upgraded once the client is dropped.
    pub owner: Weak<()>,
    pub link: Link,
    pub address: Address,
    pub socket: Socket,
    /// Whether the broker has responded.
    pub has_responded: bool,
}

impl Entry {
    /// The admission of the attempt to open the connection; `None` once the attempt was made.
    pub fn admission(&self) -> Option<Admitted> {
        match self.socket {
            Socket::Waiting(admitted) => Some(admitted),
            _ => None,
        }
    }

    /// The events to poll for; `None` if there is no socket to poll.
    pub fn interest(&self, brokers: &Brokers) -> Option<(&TcpStream, PollFlags)> {
        match &self.socket {
            Socket::Waiting(_) | Socket::LookingUp | Socket::Failed => None,
            Socket::Opening(opening) => opening.stream.as_ref().map(|stream| (stream, PollFlags::OUT)),
            Socket::Open(open) => {
                let wants_write = open.tls.as_ref().is_some_and(|tls| tls.wants_write())
                    || (open.is_established && brokers.has_output(self.link));
                let out = if wants_write { PollFlags::OUT } else { PollFlags::empty() };
                Some((&open.stream, PollFlags::IN | out))
            }
        }
    }

    /// Handles the events that `poll` has returned.
    pub fn handle_events(
        &mut self,
        flags: PollFlags,
        tls: Option<&Renewed<ClientConfig>>,
        brokers: &mut Brokers,
        now: Instant,
    ) {
        let Socket::Open(open) = &mut self.socket else {
            return self.advance(flags.intersects(PollFlags::HUP | PollFlags::ERR), tls, brokers, now);
        };
        if flags.contains(PollFlags::OUT) {
            open.is_write_blocked = false;
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
            && let Err(mut failure) = open.read(self.link, brokers, now)
        {
            // Sends the TLS alert, which the broker may log.
            let _ = open.flush();
            if failure.kind.is_none() && !open.is_established {
                failure.reason.push_str("; perhaps it does not use TLS");
            }
            self.fail(failure, brokers, now);
        }
    }

    /// Continues to open the connection, as far as possible. `has_ended`: see [`Opening::poll_connected`].
    pub fn advance(
        &mut self,
        has_ended: bool,
        tls: Option<&Renewed<ClientConfig>>,
        brokers: &mut Brokers,
        now: Instant,
    ) {
        let Socket::Opening(opening) = &mut self.socket else { return };
        let opened = opening
            .poll_connected(has_ended)
            .and_then(|stream| stream.map(|stream| OpenSocket::new(stream, tls, &self.address.host)).transpose());
        match opened {
            Ok(None) => {}
            Ok(Some(open)) => {
                if open.is_established {
                    brokers.connected(self.link, now);
                }
                self.socket = Socket::Open(Box::new(open));
                self.write(brokers, now);
            }
            Err(failure) => self.fail(failure, brokers, now),
        }
    }

    /// Writes pending output, unless the last write would have blocked.
    pub fn write(&mut self, brokers: &mut Brokers, now: Instant) {
        let Socket::Open(open) = &mut self.socket else { return };
        if !open.is_write_blocked
            && let Err(failure) = open.write(self.link, brokers, now)
        {
            self.fail(failure, brokers, now);
        }
    }

    /// Reports the failure to the connection's client: as refused if a person has to fix its cause, otherwise as
    /// broken.
    pub fn fail(&mut self, failure: Failure, brokers: &mut Brokers, now: Instant) {
        self.socket = Socket::Failed;
        match failure.kind {
            Some(kind) => brokers.refused(self.link, kind, &failure.reason, now),
            None => brokers.broke(self.link, &failure.reason, now),
        }
    }
}

impl OpenSocket {
    fn new(stream: TcpStream, tls: Option<&Renewed<ClientConfig>>, host: &str) -> Result<Self, Failure> {
        let Some(config) = tls else {
            return Ok(Self {
                stream,
                tls: None,
                encrypted: Vec::new(),
                is_established: true,
                is_write_blocked: false,
            });
        };
        let unusable = |why: &dyn std::fmt::Display| Failure {
            kind: Some(TroubleKind::Certificate),
            reason: format!("TLS cannot be used with it: {why}"),
        };
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned()).map_err(|error| unusable(&error))?;
        let config = config.current().map_err(|why| unusable(&why))?;
        let tls = ClientConnection::new(config, name).map_err(|error| unusable(&error))?;
        Ok(Self { stream, tls: Some(tls), encrypted: Vec::new(), is_established: false, is_write_blocked: false })
    }

    fn read(&mut self, link: Link, brokers: &mut Brokers, now: Instant) -> Result<(), Failure> {
        for _ in 0..READS_MAX {
            let may_have_more = match self.tls.is_some() {
                true => self.read_tls(link, brokers, now)?,
                false => read_into(&mut self.stream, link, brokers, now)?,
            };
            if !may_have_more {
                break;
            }
        }
        Ok(())
    }

    /// Reads in large chunks, which rustls would not do by itself. Returns whether more bytes may be available.
    fn read_tls(&mut self, link: Link, brokers: &mut Brokers, now: Instant) -> Result<bool, Failure> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        if self.encrypted.is_empty() {
            self.encrypted = vec![0; ENCRYPTED_BYTES];
        }
        let count = match self.stream.read(&mut self.encrypted) {
            Ok(0) => return Err(closed()),
            Ok(count) => count,
            Err(error) if is_temporary(&error) => return Ok(false),
            Err(error) => return Err(io_failure(&error)),
        };
        let mut rest = self.encrypted.get(..count).unwrap_or_default();
        while !rest.is_empty() && brokers.is_in_use(link) {
            tls.read_tls(&mut rest).map_err(|error| io_failure(&error))?;
            tls.process_new_packets().map_err(|error| tls_failure(&error))?;
            if !self.is_established && !tls.is_handshaking() {
                self.is_established = true;
                brokers.connected(link, now);
            }
            while self.is_established && read_into(&mut tls.reader(), link, brokers, now)? {}
        }
        Ok(count == ENCRYPTED_BYTES)
    }

    fn write(&mut self, link: Link, brokers: &mut Brokers, now: Instant) -> Result<(), Failure> {
        loop {
            self.flush()?;
            if self.is_write_blocked || !self.is_established || !brokers.has_output(link) {
                return Ok(());
            }
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            brokers.output(link, &mut slices);
            let written = match &mut self.tls {
                Some(tls) => tls.writer().write_vectored(&slices),
                None => self.stream.write_vectored(&slices),
            };
            match written {
                Ok(0) => return Err(Failure::temporary("it accepts no more bytes")),
                Ok(count) => brokers.written(link, count, now),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_temporary(&error) => self.is_write_blocked = true,
                Err(error) => return Err(io_failure(&error)),
            }
        }
    }

    /// Writes the pending output of TLS.
    fn flush(&mut self) -> Result<(), Failure> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() && !self.is_write_blocked {
            match tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_temporary(&error) => self.is_write_blocked = true,
                Err(error) => return Err(io_failure(&error)),
            }
        }
        Ok(())
    }
}

/// Reads once into the client's buffer. Returns whether more bytes may be available.
fn read_into(from: &mut impl io::Read, link: Link, brokers: &mut Brokers, now: Instant) -> Result<bool, Failure> {
    let input = brokers.input(link);
    if input.is_empty() {
        // The connection is no longer in use.
        return Ok(false);
    }
    let capacity = input.len();
    match from.read(input) {
        Ok(0) => Err(closed()),
        Ok(count) => {
            brokers.filled(link, count, now);
            Ok(count == capacity)
        }
        Err(error) if is_temporary(&error) => Ok(false),
        Err(error) => Err(io_failure(&error)),
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn closed() -> Failure {
    Failure::temporary("it closed the connection")
}

fn io_failure(error: &io::Error) -> Failure {
    match error.kind() {
        // The TLS session ended without a close_notify alert.
        ErrorKind::UnexpectedEof => closed(),
        _ => Failure::temporary(format!("the connection broke: {error}")),
    }
}

/// Classifies an error of TLS.
fn tls_failure(error: &rustls::Error) -> Failure {
    use AlertDescription as Alert;
    let kind = match error {
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => TroubleKind::Certificate,
        rustls::Error::AlertReceived(
            Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::UnknownCA
            | Alert::AccessDenied
            | Alert::HandshakeFailure
            | Alert::NoCertificate,
        ) => TroubleKind::Certificate,
        rustls::Error::InvalidMessage(_) => {
            let reason = format!("it does not speak TLS as this client does: {error}");
            return Failure { kind: Some(TroubleKind::Protocol), reason };
        }
        _ => return Failure::temporary(format!("TLS failed: {error}")),
    };
    Failure { kind: Some(kind), reason: format!("TLS failed: {error}") }
}
