//! Name look-ups that do not block: each runs on a thread of its own, which ends with the result.
//!
//! However many connections wait for a name, only one look-up of it runs at a time. A thread that outlives the edge
//! ends when its look-up returns.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::super::brokers::{Address, TroubleKind};
use super::failure::Failure;

/// The addresses of a name, never empty; or why no address was found.
pub type LookupResult = Result<Vec<SocketAddr>, Failure>;

/// The look-ups in progress.
pub struct Lookups {
    /// The names that are being looked up.
    pending: BTreeSet<Address>,
    sender: Sender<(Address, LookupResult)>,
    receiver: Receiver<(Address, LookupResult)>,
    /// Receives a byte with each result.
    bell: UnixStream,
    /// The other end of `bell`, to which the bytes are written.
    ringer: UnixStream,
}

impl Lookups {
    /// Starts without look-ups.
    pub fn new() -> io::Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        Ok(Self { pending: BTreeSet::new(), sender, receiver, bell, ringer })
    }

    /// Starts to look a name up, unless a look-up of it is already pending.
    pub fn start(&mut self, address: &Address) -> io::Result<()> {
        if self.pending.contains(address) {
            return Ok(());
        }
        let (name, sender, mut ringer) = (address.clone(), self.sender.clone(), self.ringer.try_clone()?);
        let work = move || {
            let result = look_up(&name);
            // The receiver may be gone together with the edge. If the bell's buffer is full, the bell is readable
            // anyway.
            let _ = sender.send((name, result));
            let _ = ringer.write(&[0]);
        };
        thread::Builder::new().name("wire-lookup".to_owned()).spawn(work)?;
        self.pending.insert(address.clone());
        Ok(())
    }

    /// A descriptor that is readable once [`Lookups::take_results`] would return a result.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Takes the results that have arrived.
    pub fn take_results(&mut self) -> Vec<(Address, LookupResult)> {
        let mut bytes = [0; 64];
        while matches!(self.bell.read(&mut bytes), Ok(1..)) {}
        let results: Vec<_> = self.receiver.try_iter().collect();
        results.iter().for_each(|(address, _)| {
            self.pending.remove(address);
        });
        results
    }
}

fn look_up(address: &Address) -> LookupResult {
    let name = address.host.trim_end_matches('.');
    match (name, address.port).to_socket_addrs() {
        Ok(addresses) => {
            let addresses: Vec<SocketAddr> = addresses.collect();
            if addresses.is_empty() { Err(unknown_name("it has no address")) } else { Ok(addresses) }
        }
        // The only way to distinguish a DNS server that does not respond (EAI_AGAIN) from a name that does not exist.
        Err(error) if error.to_string().contains("Temporary") => {
            Err(Failure::temporary(format!("its name cannot be resolved at present: {error}")))
        }
        Err(error) => Err(unknown_name(&error.to_string())),
    }
}

fn unknown_name(why: &str) -> Failure {
    Failure { kind: Some(TroubleKind::Host), reason: format!("its name is unknown: {why}") }
}
