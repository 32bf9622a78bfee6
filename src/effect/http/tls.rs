//! TLS with an origin.

use std::sync::{Arc, PoisonError};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Shared;
use crate::tls::{self, ONE, TWO};
use crate::words::said;

impl Shared {
    /// How TLS is spoken. What was read once is not read again, unless it could not be used.
    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*tls {
            return Ok(Arc::clone(config));
        }
        let config = tls::client(self.authorities.as_deref(), &[TWO, ONE])?;
        Ok(Arc::clone(tls.insert(Arc::new(config))))
    }
}

/// Speaks TLS with a host. Says whether HTTP/2 was agreed upon, which `may_be_two` asks for.
pub(super) async fn handshake<T: AsyncRead + AsyncWrite + Unpin>(
    shared: &Shared,
    stream: T,
    host: &str,
    may_be_two: bool,
) -> Result<(TlsStream<T>, bool), String> {
    let mut config = shared.tls()?;
    if !may_be_two {
        Arc::make_mut(&mut config).alpn_protocols = vec![ONE.to_vec()];
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("{host} cannot be in a certificate"))?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| format!("no TLS with {host}: {}", said(&error)))?;
    let is_two = stream.get_ref().1.alpn_protocol() == Some(TWO);
    Ok((stream, is_two))
}
