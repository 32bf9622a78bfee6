//! The proxy, as built, with a file of its own.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::Who;
use super::keeper::Keeper;
use crate::contender::{self, Running};
use crate::failure::{Context as _, Outcome};
use crate::kafka::Port;
use crate::live::within;
use crate::metrics::Metrics;
use crate::usage::Usage;

/// How long its start may take.
const START_WAIT: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);

/// A running proxy. Dropping this kills it.
pub struct Proxy {
    running: Running,
    listen: Port,
    metrics: Port,
    folder: PathBuf,
}

impl Proxy {
    /// Starts one in this folder, before this service.
    pub fn start(folder: &Path, who: Who, service: SocketAddr, keeper: &Keeper<'_>) -> Outcome<Proxy> {
        fs::create_dir_all(folder).context(folder.display())?;
        let (listen, metrics, config) = (Port::free(), Port::free(), folder.join("proxy.yaml"));
        let key = if who == Who::Passing { "off" } else { "required" };
        let text = format!(
            "listen: {}\nupstream: http://{service}\nstore: {}\nhttp: {}\nkey: {key}\n",
            listen.address(),
            keeper.yaml(&folder.join("requests").display().to_string()),
            metrics.address(),
        );
        fs::write(&config, text).context(config.display())?;
        let mut command = Command::new(contender::program()?);
        command.arg("proxy").arg("--config").arg(&config);
        let running = Running::start(who.name(), command, folder.with_extension("log"))?;
        let mut proxy = Proxy { running, listen, metrics, folder: folder.to_owned() };
        within(START_WAIT, LOOK, "the proxy to listen", || {
            proxy.running.check()?;
            Ok(TcpStream::connect(proxy.address()).is_ok().then_some(()))
        })?;
        Ok(proxy)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.listen.address()
    }

    /// The resources that it has used.
    pub fn usage(&self) -> Usage {
        self.running.usage()
    }

    /// Its metrics.
    pub fn metrics(&self) -> Outcome<Metrics> {
        Metrics::of(self.metrics.address())
    }

    /// Ends it, and removes its folder.
    pub fn stop(mut self) -> Outcome<()> {
        let ended = self.running.stop().map(drop);
        let _ = fs::remove_dir_all(&self.folder);
        ended
    }
}
