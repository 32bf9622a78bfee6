//! TLS by rustls, with the meaning that libpq gives to `sslmode`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::url::{Check, Target};
use crate::tls::{Renewed, Verifier};

/// The files of a certificate and of its key.
type Pair = (PathBuf, PathBuf);

/// What to connect with, by the files as they are.
pub(super) fn connector(target: &Target) -> Renewed<MakeRustlsConnect> {
    let (check, root, certificate) = (target.check, target.root.clone(), target.certificate.clone());
    let pair = certificate.clone().map(|(certificate, key)| [certificate, key]);
    let files: Vec<PathBuf> = root.iter().cloned().chain(pair.into_iter().flatten()).collect();
    Renewed::new(files, move || connector_now(check, root.as_deref(), certificate.as_ref()))
}

fn connector_now(check: Check, root: Option<&Path>, certificate: Option<&Pair>) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = match check {
        Check::Nothing => None,
        Check::Authority | Check::Host => Some(authorities(root, &provider)?),
    };
    let checks_name = check == Check::Host;
    let verifier = Verifier { authorities, checks_name, provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS cannot be used: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match certificate {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, error))?;
            config
                .with_client_auth_cert(certificates(certificate)?, key)
                .map_err(|error| unreadable(certificate, error))?
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn unreadable(file: &Path, error: impl std::fmt::Display) -> String {
    format!("{} of the url cannot be used: {error}", file.display())
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = || CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>();
    let found: Vec<_> = read().map_err(|error| unreadable(file, error))?;
    if found.is_empty() { Err(unreadable(file, "it holds no certificate")) } else { Ok(found) }
}

fn authorities(file: Option<&Path>, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, String> {
    let mut roots = RootCertStore::empty();
    match file {
        Some(file) => {
            for certificate in certificates(file)? {
                roots.add(certificate).map_err(|error| unreadable(file, error))?;
            }
        }
        // Some of a system's certificates may be damaged; those that are not will do.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build().map_err(|_| {
        "the system has no certificates of authorities, which the url's sslmode asks for: install them (ca-certificates), \
         or name a file with sslrootcert"
            .to_owned()
    })
}
