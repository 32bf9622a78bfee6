//! An authority of the tests, and a certificate of it for `localhost`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An authority.
pub struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    /// The one of this process.
    pub fn shared() -> &'static Authority {
        static SHARED: OnceLock<Authority> = OnceLock::new();
        SHARED.get_or_init(Authority::new)
    }

    /// Another one.
    pub fn new() -> Authority {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority { folder };
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
        let own = ["req", "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority"];
        authority.run(&[&own[..], &["-addext", "keyUsage=critical,keyCertSign"], &key].concat());
        authority.run(&[&["req", "-keyout", "server.key", "-out", "csr", "-subj", "/CN=server"], &key[..5]].concat());
        std::fs::write(authority.path("names"), "subjectAltName=DNS:localhost\n").expect("the folder is writable");
        let from = ["x509", "-req", "-in", "csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
        authority.run(&[&from[..], &["-extfile", "names", "-out", "server.pem", "-days", "2"]].concat());
        authority
    }

    /// The file of its own certificate.
    pub fn file(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// A file of it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// How a server speaks TLS with its certificate.
    pub fn server(&self, protocols: &[&str]) -> Arc<ServerConfig> {
        let chain = CertificateDer::pem_file_iter(self.path("server.pem")).expect("a certificate");
        let chain = chain.collect::<Result<_, _>>().expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(self.path("server.key")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions of TLS").with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.expect("a certificate with its key");
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    fn run(&self, arguments: &[&str]) {
        let mut command = Command::new("openssl");
        let run = command.args(arguments).current_dir(self.folder.path()).stderr(Stdio::piped()).output();
        let run = run.expect("openssl: on Debian and Ubuntu the package openssl");
        assert!(run.status.success(), "openssl: {}", String::from_utf8_lossy(&run.stderr));
    }
}
