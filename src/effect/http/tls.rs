//! TLS by rustls with ring, and with the system's authorities or a file's.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::Shared;
use super::connect::said;

const TWO: &[u8] = b"h2";
const ONE: &[u8] = b"http/1.1";

impl Shared {
    /// How TLS is spoken. What was read once is not read again, unless it could not be used.
    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let mut tls = self.tls.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(config) = &*tls {
            return Ok(Arc::clone(config));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("TLS cannot be used: {error}"))?
            .with_root_certificates(authorities(self.authorities.as_deref())?)
            .with_no_client_auth();
        config.alpn_protocols = vec![TWO.to_vec(), ONE.to_vec()];
        Ok(Arc::clone(tls.insert(Arc::new(config))))
    }
}

fn authorities(file: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    let Some(file) = file else {
        // Some of a system's certificates may be damaged; those that are not will do.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err("the system has no certificates of authorities: install them (ca-certificates)".to_owned());
        }
        return Ok(roots);
    };
    let unusable = |why: &dyn std::fmt::Display| format!("the authorities in {} cannot be used: {why}", file.display());
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))?;
    for certificate in certificates {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    if roots.is_empty() { Err(unusable(&"there is no certificate")) } else { Ok(roots) }
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
