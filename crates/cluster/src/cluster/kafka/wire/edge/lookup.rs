//! Looking names up without blocking: each on a thread of its own, which ends with the result.
//!
//! However many connections wait for a name, one look-up of it runs at a time. A thread that outlives the edge ends by
//! itself.

use std::collections::BTreeSet;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::super::brokers::{Address, TroubleKind};
use super::end::End;

/// The addresses that were found, never empty; or why none were.
pub type Found = Result<Vec<SocketAddr>, End>;

/// The names that are being looked up.
pub struct Lookups {
    under_way: BTreeSet<Address>,
    sender: Sender<(Address, Found)>,
    receiver: Receiver<(Address, Found)>,
    /// Receives a byte with each result.
    bell: UnixStream,
    ringer: UnixStream,
}

impl Lookups {
    /// Starts without look-ups.
    pub fn new() -> io::Result<Self> {
        let (bell, ringer) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        ringer.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        Ok(Self { under_way: BTreeSet::new(), sender, receiver, bell, ringer })
    }

    /// Looks a name up, unless that is already under way.
    pub fn ask(&mut self, address: &Address) -> io::Result<()> {
        if self.under_way.contains(address) {
            return Ok(());
        }
        let (asked, sender, mut ringer) = (address.clone(), self.sender.clone(), self.ringer.try_clone()?);
        let look = move || {
            let found = look_up(&asked);
            // Without a receiver nobody wants the result; a full bell is already readable.
            let _ = sender.send((asked, found));
            let _ = ringer.write(&[0]);
        };
        thread::Builder::new().name("wire-lookup".to_owned()).spawn(look)?;
        self.under_way.insert(address.clone());
        Ok(())
    }

    /// Readable once there is something to [`Lookups::take`].
    pub fn done(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// The results so far.
    pub fn take(&mut self) -> Vec<(Address, Found)> {
        let mut bytes = [0; 64];
        while matches!(self.bell.read(&mut bytes), Ok(1..)) {}
        let all: Vec<_> = self.receiver.try_iter().collect();
        all.iter().for_each(|(address, _)| {
            self.under_way.remove(address);
        });
        all
    }
}

fn look_up(address: &Address) -> Found {
    let name = address.host.trim_end_matches('.');
    match (name, address.port).to_socket_addrs() {
        Ok(found) => {
            let found: Vec<SocketAddr> = found.collect();
            if found.is_empty() { Err(unknown("it has no address")) } else { Ok(found) }
        }
        // The only way to distinguish a DNS server that does not answer (EAI_AGAIN) from a name that does not exist.
        Err(error) if error.to_string().contains("Temporary") => {
            Err(End::passing(format!("its name cannot be resolved at present: {error}")))
        }
        Err(error) => Err(unknown(&error.to_string())),
    }
}

fn unknown(why: &str) -> End {
    End { kind: Some(TroubleKind::Host), reason: format!("its name is unknown: {why}") }
}
