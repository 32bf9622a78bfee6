//! TLS by rustls (versions 1.2 and 1.3, with ring), as librdkafka's `ssl.*` properties describe it for OpenSSL.
//!
//! rustls is stricter than OpenSSL: a broker's certificate has to contain the broker's name as a subject alternative
//! name (the common name does not count), and must not be the certificate of an authority.
//!
//! **Failure**: a property whose file cannot be read, or whose content rustls cannot use, is [`Unsupported`]:
//! librdkafka then uses it, or reports in its own words why it cannot.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::unsupported::Unsupported;
use crate::tls::{Renewed, Verifier};

#[cfg(test)]
mod tests;

/// The value by which librdkafka uses the system's authorities.
const PROBE: &str = "probe";
const UNREADABLE: &str = "it cannot be read";
const UNUSABLE: &str = "what it holds is of no use to the wire's TLS";

/// The properties of TLS. No `Debug`: they may contain a key.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TlsProperties {
    /// A file or a folder of authorities' certificates, or `probe`.
    pub ca_location: Option<String>,
    /// Authorities' certificates.
    pub ca_pem: Option<String>,
    /// A file with the client's certificate and the certificates of its issuers.
    pub certificate_location: Option<String>,
    /// The same as a text, which takes precedence.
    pub certificate_pem: Option<String>,
    /// A file with the client's key.
    pub key_location: Option<String>,
    /// The same as a text, which takes precedence.
    pub key_pem: Option<String>,
    /// Whether a broker's certificate is checked.
    pub checks_certificate: bool,
    /// Whether the certificate has to be for the broker's name.
    pub checks_name: bool,
}

impl TlsProperties {
    /// TLS that checks servers' certificates and names, without a client's certificate.
    pub fn of_authorities(ca_location: Option<String>, ca_pem: Option<String>) -> Self {
        Self {
            ca_location,
            ca_pem,
            certificate_location: None,
            certificate_pem: None,
            key_location: None,
            key_pem: None,
            checks_certificate: true,
            checks_name: true,
        }
    }

    /// The file that a property names.
    fn file(&self, property: &str) -> Option<&str> {
        match property {
            "ssl.ca.location" => self.ca_location.as_deref(),
            "ssl.certificate.location" => self.certificate_location.as_deref(),
            "ssl.key.location" => self.key_location.as_deref(),
            _ => None,
        }
    }
}

/// rustls's configuration, renewed when the files change.
///
/// # Errors
/// The property that rustls cannot use.
pub(super) fn config(properties: TlsProperties) -> Result<Arc<Renewed<ClientConfig>>, Unsupported> {
    config_now(&properties)?;
    let TlsProperties { ca_location, certificate_location, key_location, .. } = properties.clone();
    let ca_location = ca_location.filter(|location| location != PROBE && properties.checks_certificate);
    let files = [ca_location, certificate_location, key_location].into_iter().flatten().map(PathBuf::from);
    let reload = move || {
        config_now(&properties).map_err(|Unsupported { property, why }| {
            let file = properties.file(&property).unwrap_or_default();
            format!("the file {file:?} of the kafka property {property} cannot be used: {why}")
        })
    };
    Ok(Arc::new(Renewed::new(files, reload)))
}

fn config_now(properties: &TlsProperties) -> Result<ClientConfig, Unsupported> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let authorities = match properties.checks_certificate {
        true => {
            let verifier = WebPkiServerVerifier::builder_with_provider(roots(properties)?, Arc::clone(&provider));
            Some(verifier.build().map_err(|_| Unsupported::new("ssl.ca.location", UNUSABLE))?)
        }
        false => None,
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|_| Unsupported::new("security.protocol", "the wire's TLS cannot be used"))?;
    let verifier = Verifier { authorities, checks_name: properties.checks_name, provider };
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let Some((name, chain, key)) = identity(properties)? else { return Ok(builder.with_no_client_auth()) };
    builder.with_client_auth_cert(chain, key).map_err(|_| Unsupported::new(name, UNUSABLE))
}

/// The authorities of the file or the folder and of the text; if there is neither, the system's.
fn roots(properties: &TlsProperties) -> Result<Arc<RootCertStore>, Unsupported> {
    let mut roots = RootCertStore::empty();
    let location = properties.ca_location.as_deref().filter(|location| *location != PROBE).map(Path::new);
    match location {
        // Damaged certificates are skipped, as among the system's.
        Some(folder) if folder.is_dir() => {
            let found = rustls_native_certs::load_certs_from_paths(None, Some(folder)).certs;
            roots.add_parsable_certificates(found);
        }
        Some(file) => add("ssl.ca.location", &read("ssl.ca.location", file)?, &mut roots)?,
        None => {}
    }
    match &properties.ca_pem {
        Some(text) => add("ssl.ca.pem", text.as_bytes(), &mut roots)?,
        None if location.is_none() => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        None => {}
    }
    match roots.is_empty() {
        true => Err(Unsupported::new("ssl.ca.location", "there are no certificates of authorities")),
        false => Ok(Arc::new(roots)),
    }
}

fn add(name: &str, text: &[u8], roots: &mut RootCertStore) -> Result<(), Unsupported> {
    for certificate in certificates(name, text)? {
        roots.add(certificate).map_err(|_| Unsupported::new(name, UNUSABLE))?;
    }
    Ok(())
}

/// The certificates in a text; an error if it contains no certificate.
fn certificates(name: &str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Unsupported> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    all.ok().filter(|all| !all.is_empty()).ok_or_else(|| Unsupported::new(name, UNUSABLE))
}

type Identity = (&'static str, Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The client's certificate and key, with the key's property, if they are set.
fn identity(properties: &TlsProperties) -> Result<Option<Identity>, Unsupported> {
    let TlsProperties { certificate_location, certificate_pem, key_location, key_pem, .. } = properties;
    let certificate =
        either(("ssl.certificate.location", certificate_location), ("ssl.certificate.pem", certificate_pem))?;
    let key = either(("ssl.key.location", key_location), ("ssl.key.pem", key_pem))?;
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some((name, _)), None) => Err(Unsupported::new(name, "there is no key for it")),
        (None, Some((name, _))) => Err(Unsupported::new(name, "there is no certificate for it")),
        (Some((name, chain)), Some((key_name, key))) => {
            Ok(Some((key_name, certificates(name, &chain)?, private_key(key_name, &key)?)))
        }
    }
}

/// The content of a file or a text, with its property. The text takes precedence, but a file that is named has to be
/// readable.
fn either(
    file: (&'static str, &Option<String>),
    text: (&'static str, &Option<String>),
) -> Result<Option<(&'static str, Vec<u8>)>, Unsupported> {
    let of_file = file.1.as_deref().map(|path| Ok((file.0, read(file.0, Path::new(path))?))).transpose()?;
    let of_text = text.1.as_deref().map(|text_| (text.0, text_.as_bytes().to_vec()));
    Ok(of_text.or(of_file))
}

fn private_key(name: &str, text: &[u8]) -> Result<PrivateKeyDer<'static>, Unsupported> {
    // The first or the second line of an encrypted key says so.
    let is_encrypted = text.windows(9).any(|bytes| bytes == b"ENCRYPTED");
    PrivateKeyDer::from_pem_slice(text).map_err(|_| match is_encrypted {
        true => Unsupported::new(name, "the wire does not read keys that are encrypted"),
        false => Unsupported::new(name, UNUSABLE),
    })
}

fn read(name: &str, file: &Path) -> Result<Vec<u8>, Unsupported> {
    std::fs::read(file).map_err(|_| Unsupported::new(name, UNREADABLE))
}
