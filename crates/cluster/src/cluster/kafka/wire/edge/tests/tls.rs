//! TLS with certificates that openssl creates for the test.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::*;
use crate::tls::Renewed;

/// A certificate authority, and a certificate that it issued for `localhost`, which clients may use as well.
struct Authority {
    root: CertificateDer<'static>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn shared() -> &'static Self {
        static SHARED: OnceLock<Authority> = OnceLock::new();
        SHARED.get_or_init(|| Self::new("wire-tls"))
    }

    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let root = ["req", "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority", "-days", "2"];
        openssl(&folder, &[&root[..], &["-addext", "keyUsage=critical,keyCertSign"], &key].concat());
        openssl(&folder, &[&["req", "-keyout", "key.pem", "-out", "csr", "-subj", "/CN=server"], &key[..]].concat());
        std::fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
        let sign = ["x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        openssl(&folder, &[&sign[..], &["-extfile", "names", "-out", "cert.pem", "-days", "2"]].concat());
        let certificate = |name: &str| CertificateDer::from_pem_file(folder.join(name)).unwrap();
        let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).unwrap();
        let authority = Self { root: certificate("ca.pem"), certificate: certificate("cert.pem"), key };
        std::fs::remove_dir_all(&folder).unwrap();
        authority
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone()).unwrap();
        roots
    }

    fn pair(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        (vec![self.certificate.clone()], self.key.clone_key())
    }

    fn server(&self, asks_clients: bool) -> Transport {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
        let config = match asks_clients {
            true => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(self.roots()), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
            false => config.with_no_client_auth(),
        };
        let (chain, key) = self.pair();
        Transport::Tls(Arc::new(config.with_single_cert(chain, key).unwrap()))
    }

    fn client(&self, has_certificate: bool) -> Edge {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(self.roots());
        let config = match has_certificate {
            true => {
                let (chain, key) = self.pair();
                config.with_client_auth_cert(chain, key).unwrap()
            }
            false => config.with_no_client_auth(),
        };
        Edge::new(Some(Arc::new(Renewed::new([], move || Ok(config.clone())))), SocketSettings::default())
    }
}

fn openssl(folder: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(folder).output().expect("openssl is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn responses_of_all_sizes_arrive_over_tls() {
    let authority = Authority::shared();
    for asks_clients in [false, true] {
        let server = Server::start("localhost", authority.server(asks_clients));
        let mut client = Client::new(authority.client(asks_clients), &[server.address()]);
        let node = client.until_ready();
        client.exchange(node, &bodies());
        assert_eq!(client.brokers.trouble(), None);
    }
}

#[test]
fn certificate_of_another_authority_is_reported_as_trouble() {
    let server = Server::start("localhost", Authority::shared().server(false));
    let mut client = Client::new(Authority::new("wire-tls-other").client(false), &[server.address()]);
    let (kind, message) = client.trouble();
    assert_eq!(kind, TroubleKind::Certificate);
    assert!(message.contains("invalid peer certificate"), "{message}");
}

#[test]
fn certificate_for_another_name_is_reported_as_trouble() {
    let authority = Authority::shared();
    let server = Server::start("127.0.0.1", authority.server(false));
    let mut client = Client::new(authority.client(false), &[server.address()]);
    let (kind, message) = client.trouble();
    assert_eq!(kind, TroubleKind::Certificate);
    assert!(message.contains("invalid peer certificate"), "{message}");
}

#[test]
fn missing_client_certificate_is_reported_as_trouble() {
    let authority = Authority::shared();
    let server = Server::start("localhost", authority.server(true));
    let mut client = Client::new(authority.client(false), &[server.address()]);
    let (kind, message) = client.trouble();
    assert_eq!(kind, TroubleKind::Certificate, "{message}");
}

#[test]
fn tls_on_one_side_only_is_reported() {
    let authority = Authority::shared();
    let server = Server::start("localhost", authority.server(false));
    let (kind, message) = Client::new(Edge::new(None, SocketSettings::default()), &[server.address()]).trouble();
    assert_eq!((kind, message.as_str()), (TroubleKind::Protocol, "it speaks TLS, and this client does not"));
    // A Kafka broker without TLS reads the TLS handshake as the length of a long request, and closes the connection.
    let server = Server::start("localhost", Transport::Plain);
    let mut client = Client::new(authority.client(false), &[server.address()]);
    let failure = client.until(|brokers, _| brokers.failure().map(str::to_owned));
    assert!(failure.starts_with(&server.address().to_string()), "{failure}");
    assert!(failure.ends_with("; perhaps it does not use TLS"), "{failure}");
}

/// The authority's file is replaced while the client runs.
#[test]
fn new_connections_use_replaced_files() {
    let authority = Authority::shared();
    let (folder, other_authority) = (tempfile::tempdir().unwrap(), Authority::new("wire-tls-before"));
    let file = folder.path().join("ca");
    std::fs::write(&file, &*other_authority.root).unwrap();
    let ca_file = file.clone();
    let tls = Renewed::new([file.clone()], move || {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from(std::fs::read(&ca_file).map_err(|error| error.to_string())?);
        roots.add(root).map_err(|error| error.to_string())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        Ok(config.with_root_certificates(roots).with_no_client_auth())
    });
    let server = Server::start("localhost", authority.server(false));
    let mut client = Client::new(Edge::new(Some(Arc::new(tls)), SocketSettings::default()), &[server.address()]);
    assert_eq!(client.trouble().0, TroubleKind::Certificate);
    std::fs::write(&file, &*authority.root).unwrap();
    let node = client.until_ready();
    client.exchange(node, &[b"through".to_vec()]);
    assert_eq!(client.brokers.trouble(), None);
}
