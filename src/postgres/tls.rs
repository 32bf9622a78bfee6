//! TLS by rustls, with libpq's meaning of `sslmode`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{CertificateCheck, Target};
use crate::tls::{Renewed, Verifier};

/// The files with a certificate and with its key.
type CertificateFiles = (PathBuf, PathBuf);

/// The TLS connector, which is built anew when its files have changed.
pub(super) fn connector(target: &Target) -> Renewed<MakeRustlsConnect> {
    let (check, authorities_file, certificate) =
        (target.check, target.authorities_file.clone(), target.client_certificate.clone());
    let pair = certificate.clone().map(|(certificate, key)| [certificate, key]);
    let files: Vec<PathBuf> = authorities_file.iter().cloned().chain(pair.into_iter().flatten()).collect();
    Renewed::new(files, move || build_connector(check, authorities_file.as_deref(), certificate.as_ref()))
}

fn build_connector(
    check: CertificateCheck,
    authorities_file: Option<&Path>,
    certificate: Option<&CertificateFiles>,
) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = match check {
        CertificateCheck::Nothing => None,
        CertificateCheck::Authority | CertificateCheck::Host => Some(authorities(authorities_file, &provider)?),
    };
    let checks_name = check == CertificateCheck::Host;
    let verifier = Verifier { authorities, checks_name, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable_file(key, error))?;
            config
                .with_client_auth_cert(certificates(certificate)?, key)
                .map_err(|error| unusable_file(certificate, error))?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn unusable_file(file: &Path, error: impl std::fmt::Display) -> String {
    format!("{} of the url cannot be used: {error}", file.display())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let certificates: Vec<_> = read().map_err(|error| unusable_file(file, error))?;
    if certificates.is_empty() { Err(unusable_file(file, "it holds no certificate")) } else { Ok(certificates) }
}

fn authorities(file: Option<&Path>, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| unusable_file(file, error))?;
            }
        }
        // Damaged certificates of the system are skipped.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().map_err(|_| {
        "the system has no certificates of authorities, which the url's sslmode asks for: install them (ca-certificates), \
         or name a file with sslrootcert"
            .to_owned()
    })
}
