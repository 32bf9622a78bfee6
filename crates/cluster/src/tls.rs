//! TLS by rustls with ring, and with the system's authorities or a file's.
//!
//! Files are read again for new connections once they hold something else: [`Renewed`].

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};

pub use self::renewed::{Renewed, digest};

mod renewed;

/// The name of HTTP/2 in TLS's protocol negotiation (ALPN).
pub const ALPN_HTTP_2: &[u8] = b"h2";
/// The name of HTTP/1.1 in TLS's protocol negotiation (ALPN).
pub const ALPN_HTTP_1_1: &[u8] = b"http/1.1";

/// How TLS is spoken with servers, whose certificates are from the authorities in this file, or from the system's,
/// which are read once.
pub fn client(authorities: Option<&Path>, protocols: &'static [&'static [u8]]) -> Renewed<ClientConfig> {
    client_as(authorities, None, protocols)
}

/// As [`client`], with the files of the client's own certificate and its key, which servers may request.
pub fn client_as(
    authorities: Option<&Path>,
    own: Option<(&Path, &Path)>,
    protocols: &'static [&'static [u8]],
) -> Renewed<ClientConfig> {
    let file = authorities.map(Path::to_owned);
    let own = own.map(|(certificate, key)| (certificate.to_owned(), key.to_owned()));
    let files =
        file.clone().into_iter().chain(own.clone().into_iter().flat_map(|(certificate, key)| [certificate, key]));
    let files: Vec<PathBuf> = files.collect();
    Renewed::new(files, move || {
        let own = own.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        client_now(file.as_deref(), own, protocols)
    })
}

fn client_now(
    authorities: Option<&Path>,
    own: Option<(&Path, &Path)>,
    protocols: &[&[u8]],
) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .with_root_certificates(roots(authorities)?);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let (chain, own_key) = chain_and_key(certificate, key)?;
            config.with_client_auth_cert(chain, own_key).map_err(|error| unusable_certificate(certificate, &error))?
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// How TLS is spoken with clients, by this certificate, with those that it is signed by, and its key.
pub fn server(certificate: &Path, key: &Path, protocols: &'static [&'static [u8]]) -> Renewed<ServerConfig> {
    let [certificate, key] = [certificate, key].map(Path::to_owned);
    Renewed::new([certificate.clone(), key.clone()], move || server_now(&certificate, &key, protocols))
}

fn server_now(certificate: &Path, key: &Path, protocols: &[&[u8]]) -> Result<ServerConfig, String> {
    let (chain, key) = chain_and_key(certificate, key)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| unusable_certificate(certificate, &error))?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// Reads a certificate, with the certificates that sign it, and its key.
fn chain_and_key(
    certificate: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let read = || CertificateDer::pem_file_iter(certificate)?.collect::<Result<Vec<_>, _>>();
    let chain = read().map_err(|error| unusable_certificate(certificate, &error))?;
    if chain.is_empty() {
        return Err(unusable_certificate(certificate, &"there is none"));
    }
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| format!("the key in {} cannot be used: {error}", key.display()))?;
    Ok((chain, key))
}

fn unusable_certificate(certificate: &Path, why: &dyn std::fmt::Display) -> String {
    format!("the certificate in {} cannot be used: {why}", certificate.display())
}

fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
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

/// Checks as much of the server's certificate as was asked for.
#[derive(Debug)]
pub struct Verifier {
    /// Whom it has to be signed by; without any, nothing of it is checked.
    pub authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Whether it has to be for the server's name.
    pub checks_name: bool,
    /// What signatures are checked with.
    pub provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last: everything else was found right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_name => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
