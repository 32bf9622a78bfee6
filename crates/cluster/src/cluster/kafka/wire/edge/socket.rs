//! One connection's socket, and TLS on it.

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
use super::end::End;
use super::settings::{Family, SocketSettings};
use crate::cluster::Admitted;
use crate::tls::Renewed;

/// Reads in succession from one socket before others have their turn.
const READS_MAX: usize = 16;
/// The most bytes that are read at once with TLS.
const RAW_BYTES: usize = 64 << 10;

/// The state of a connection.
pub enum Socket {
    /// The attempt is due later.
    Waiting(Admitted),
    /// Its name is being looked up.
    Named,
    /// Its addresses are being tried.
    Opening(Opening),
    /// Connected.
    Open(Box<Open>),
    /// Its client knows that the connection is over.
    Over,
}

/// Addresses that are tried one after the other.
pub struct Opening {
    stream: Option<TcpStream>,
    rest: std::vec::IntoIter<SocketAddr>,
    keepalive: bool,
    /// Why the last address failed.
    failure: Option<String>,
}

/// A connection, and TLS on it if configured.
pub struct Open {
    stream: TcpStream,
    tls: Option<ClientConnection>,
    /// The encrypted bytes of the last read.
    raw: Vec<u8>,
    /// Whether the TLS handshake is complete, or TLS is not used.
    is_begun: bool,
    /// Whether the system accepted no more at the last write.
    is_full: bool,
}

impl Opening {
    /// Tries these in order, except those of an unwanted family.
    pub fn new(mut addresses: Vec<SocketAddr>, settings: SocketSettings) -> Self {
        addresses.retain(|address| settings.family.has(address));
        let failure = (settings.family != Family::Any)
            .then(|| format!("it has no address of the family {} (broker.address.family)", settings.family.as_str()));
        Self { stream: None, rest: addresses.into_iter(), keepalive: settings.keepalive, failure }
    }

    /// Begins to connect to the next address.
    fn next(&mut self) -> Result<(), End> {
        self.stream = None;
        loop {
            let Some(address) = self.rest.next() else {
                let why = self.failure.take().unwrap_or_else(|| "it has no address".to_owned());
                return Err(End::passing(why));
            };
            match begin(address, self.keepalive) {
                Ok(stream) => {
                    self.stream = Some(stream);
                    return Ok(());
                }
                Err(error) => self.failure = Some(refusal(&error)),
            }
        }
    }

    /// Returns the stream once it is connected; after a failure, tries the next address. `is_over`: the system says
    /// that this attempt has ended.
    fn done(&mut self, is_over: bool) -> Result<Option<TcpStream>, End> {
        let Some(stream) = &self.stream else { return self.next().map(|()| None) };
        let outcome = stream.take_error().and_then(|error| error.map_or(Ok(()), Err));
        match outcome.and_then(|()| stream.peer_addr()) {
            Ok(_) => Ok(self.stream.take()),
            Err(error) if error.kind() == ErrorKind::NotConnected && !is_over => Ok(None),
            Err(error) => {
                self.failure = Some(refusal(&error));
                self.next().map(|()| None)
            }
        }
    }
}

fn refusal(error: &io::Error) -> String {
    format!("it did not accept a connection: {error}")
}

fn begin(address: SocketAddr, keepalive: bool) -> io::Result<TcpStream> {
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
    pub owner: Weak<()>,
    pub link: Link,
    pub address: Address,
    pub socket: Socket,
    /// Whether the broker has answered.
    pub is_heard: bool,
}

impl Entry {
    /// Whether the attempt is still to be made.
    pub fn waits(&self) -> Option<Admitted> {
        match self.socket {
            Socket::Waiting(admitted) => Some(admitted),
            _ => None,
        }
    }

    /// The events to poll for.
    pub fn interest(&self, brokers: &Brokers) -> Option<(&TcpStream, PollFlags)> {
        match &self.socket {
            Socket::Waiting(_) | Socket::Named | Socket::Over => None,
            Socket::Opening(opening) => opening.stream.as_ref().map(|stream| (stream, PollFlags::OUT)),
            Socket::Open(open) => {
                let writes = open.tls.as_ref().is_some_and(|tls| tls.wants_write())
                    || (open.is_begun && brokers.has_output(self.link));
                let out = if writes { PollFlags::OUT } else { PollFlags::empty() };
                Some((&open.stream, PollFlags::IN | out))
            }
        }
    }

    /// Handles the events that `poll` has returned.
    pub fn happened(
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
            open.is_full = false;
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
            && let Err(mut end) = open.read(self.link, brokers, now)
        {
            // Sends TLS's alert, which the broker may log.
            let _ = open.flush();
            if end.kind.is_none() && !open.is_begun {
                end.reason.push_str("; perhaps it does not use TLS");
            }
            self.end(end, brokers, now);
        }
    }

    /// Continues opening it, as far as possible. `is_over`: see [`Opening::done`].
    pub fn advance(&mut self, is_over: bool, tls: Option<&Renewed<ClientConfig>>, brokers: &mut Brokers, now: Instant) {
        let Socket::Opening(opening) = &mut self.socket else { return };
        let opened = opening
            .done(is_over)
            .and_then(|stream| stream.map(|stream| Open::new(stream, tls, &self.address.host)).transpose());
        match opened {
            Ok(None) => {}
            Ok(Some(open)) => {
                if open.is_begun {
                    brokers.connected(self.link, now);
                }
                self.socket = Socket::Open(Box::new(open));
                self.write(brokers, now);
            }
            Err(end) => self.end(end, brokers, now),
        }
    }

    /// Writes pending output, unless the system accepts no more.
    pub fn write(&mut self, brokers: &mut Brokers, now: Instant) {
        let Socket::Open(open) = &mut self.socket else { return };
        if !open.is_full
            && let Err(end) = open.write(self.link, brokers, now)
        {
            self.end(end, brokers, now);
        }
    }

    /// Tells its client that the connection is over.
    pub fn end(&mut self, end: End, brokers: &mut Brokers, now: Instant) {
        self.socket = Socket::Over;
        match end.kind {
            Some(kind) => brokers.refused(self.link, kind, &end.reason, now),
            None => brokers.broke(self.link, &end.reason, now),
        }
    }
}

impl Open {
    fn new(stream: TcpStream, tls: Option<&Renewed<ClientConfig>>, host: &str) -> Result<Self, End> {
        let Some(config) = tls else {
            return Ok(Self { stream, tls: None, raw: Vec::new(), is_begun: true, is_full: false });
        };
        let unfit = |why: &dyn std::fmt::Display| End {
            kind: Some(TroubleKind::Certificate),
            reason: format!("TLS cannot be used with it: {why}"),
        };
        let name = ServerName::try_from(host.trim_end_matches('.').to_owned()).map_err(|error| unfit(&error))?;
        let config = config.now().map_err(|why| unfit(&why))?;
        let tls = ClientConnection::new(config, name).map_err(|error| unfit(&error))?;
        Ok(Self { stream, tls: Some(tls), raw: Vec::new(), is_begun: false, is_full: false })
    }

    fn read(&mut self, link: Link, brokers: &mut Brokers, now: Instant) -> Result<(), End> {
        for _ in 0..READS_MAX {
            let goes_on = match self.tls.is_some() {
                true => self.read_tls(link, brokers, now)?,
                false => read_into(&mut self.stream, link, brokers, now)?,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }

    /// Reads in large chunks, which rustls would not do by itself. Returns whether there may be more.
    fn read_tls(&mut self, link: Link, brokers: &mut Brokers, now: Instant) -> Result<bool, End> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        if self.raw.is_empty() {
            self.raw = vec![0; RAW_BYTES];
        }
        let count = match self.stream.read(&mut self.raw) {
            Ok(0) => return Err(closed()),
            Ok(count) => count,
            Err(error) if is_passing(&error) => return Ok(false),
            Err(error) => return Err(broken(&error)),
        };
        let mut rest = self.raw.get(..count).unwrap_or_default();
        while !rest.is_empty() && brokers.knows(link) {
            tls.read_tls(&mut rest).map_err(|error| broken(&error))?;
            tls.process_new_packets().map_err(|error| failed(&error))?;
            if !self.is_begun && !tls.is_handshaking() {
                self.is_begun = true;
                brokers.connected(link, now);
            }
            while self.is_begun && read_into(&mut tls.reader(), link, brokers, now)? {}
        }
        Ok(count == RAW_BYTES)
    }

    fn write(&mut self, link: Link, brokers: &mut Brokers, now: Instant) -> Result<(), End> {
        loop {
            self.flush()?;
            if self.is_full || !self.is_begun || !brokers.has_output(link) {
                return Ok(());
            }
            let mut slices: Vec<IoSlice<'_>> = Vec::new();
            brokers.output(link, &mut slices);
            let written = match &mut self.tls {
                Some(tls) => tls.writer().write_vectored(&slices),
                None => self.stream.write_vectored(&slices),
            };
            match written {
                Ok(0) => return Err(End::passing("it accepts no more bytes")),
                Ok(count) => brokers.written(link, count, now),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => self.is_full = true,
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    /// Writes the output that TLS has ready.
    fn flush(&mut self) -> Result<(), End> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() && !self.is_full {
            match tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_passing(&error) => self.is_full = true,
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }
}

/// Reads once into the client's buffer. Returns whether there may be more.
fn read_into(from: &mut impl io::Read, link: Link, brokers: &mut Brokers, now: Instant) -> Result<bool, End> {
    let room = brokers.input(link);
    if room.is_empty() {
        // The client no longer uses this connection.
        return Ok(false);
    }
    let wanted = room.len();
    match from.read(room) {
        Ok(0) => Err(closed()),
        Ok(count) => {
            brokers.filled(link, count, now);
            Ok(count == wanted)
        }
        Err(error) if is_passing(&error) => Ok(false),
        Err(error) => Err(broken(&error)),
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn closed() -> End {
    End::passing("it closed the connection")
}

fn broken(error: &io::Error) -> End {
    match error.kind() {
        // TLS ended without a close_notify alert.
        ErrorKind::UnexpectedEof => closed(),
        _ => End::passing(format!("the connection broke: {error}")),
    }
}

/// Classifies an error of TLS.
fn failed(error: &rustls::Error) -> End {
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
            return End { kind: Some(TroubleKind::Protocol), reason };
        }
        _ => return End::passing(format!("TLS failed: {error}")),
    };
    End { kind: Some(kind), reason: format!("TLS failed: {error}") }
}
