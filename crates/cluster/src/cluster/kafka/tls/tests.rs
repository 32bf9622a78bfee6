//! With certificates that are made for the tests, by openssl as the other tests do.

use std::process::Command;
use std::sync::OnceLock;

use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConnection, ServerConfig, ServerConnection};

use super::*;

/// An authority (`ca.pem`), and a certificate of it for `localhost` with its key, plain and encrypted.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = FOLDER.get_or_init(|| {
        let made = tempfile::tempdir().unwrap();
        let run = |line: &str| {
            let run = Command::new("openssl").args(line.split(' ')).current_dir(made.path()).output();
            let run = run.expect("openssl: on Debian and Ubuntu the package openssl");
            assert!(run.status.success(), "openssl: {}", String::from_utf8_lossy(&run.stderr));
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        let uses = "-addext keyUsage=critical,keyCertSign";
        run(&format!("req -x509 -keyout ca.key -out ca.pem -subj /CN=authority -days 2 {uses} {key}"));
        run(&format!("req -keyout key.pem -out csr -subj /CN=server {key}"));
        std::fs::write(made.path().join("names"), "subjectAltName=DNS:localhost\n").unwrap();
        run("x509 -req -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out cert.pem -days 2");
        run("pkcs8 -topk8 -in key.pem -out encrypted.pem -passout pass:hunter2");
        run("ec -in key.pem -out traditional.pem -aes256 -passout pass:hunter2");
        run("req -x509 -key key.pem -out stranger.pem -subj /CN=stranger -days 2");
        run("ecparam -genkey -name prime256v1 -noout -out other.pem");
        made
    });
    made.path()
}

fn path(name: &str) -> Option<String> {
    Some(folder().join(name).to_str().unwrap().to_owned())
}

fn text(name: &str) -> Option<String> {
    Some(std::fs::read_to_string(folder().join(name)).unwrap())
}

/// Of the authority, without a certificate of one's own.
fn trusting() -> TlsProperties {
    TlsProperties::of_authorities(path("ca.pem"), None)
}

/// With the client's certificate and this key.
fn known(key: &str) -> TlsProperties {
    TlsProperties { certificate_location: path("cert.pem"), key_location: path(key), ..trusting() }
}

/// Whether a client gets on with a broker of this name, which may ask for its certificate.
fn meets(properties: &TlsProperties, name: &str, asks_clients: bool) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let server = match asks_clients {
        true => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(&trusting()).unwrap(), provider);
            server.with_client_cert_verifier(verifier.build().unwrap())
        }
        false => server.with_no_client_auth(),
    };
    let chain = certificates("", text("cert.pem").unwrap().as_bytes()).unwrap();
    let key = private_key("", text("key.pem").unwrap().as_bytes()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server.with_single_cert(chain, key).unwrap())).unwrap();
    let client = config(properties.clone()).map_err(|error| error.to_string())?.now()?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(client, name).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets().map_err(|error| format!("server: {error}"))?;
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        client.read_tls(&mut bytes.as_slice()).unwrap();
        client.process_new_packets().map_err(|error| format!("client: {error}"))?;
    }
    Ok(())
}

/// The properties name files that are replaced: the authority's, and the client's certificate, then its key.
#[test]
fn files_are_read_again_and_what_cannot_be_used_is_not() {
    let own = tempfile::tempdir().unwrap();
    let at = |name: &str| Some(own.path().join(name).to_str().unwrap().to_owned());
    let put = |from: &str, to: &str| std::fs::copy(folder().join(from), own.path().join(to)).unwrap();
    put("ca.pem", "ca");
    put("cert.pem", "cert");
    put("key.pem", "key");
    let tls = config(TlsProperties {
        ca_location: at("ca"),
        certificate_location: at("cert"),
        key_location: at("key"),
        ..trusting()
    });
    let tls = tls.unwrap();
    let first = tls.now().unwrap();
    for (damaged, whole, to) in
        [("csr", "ca.pem", "ca"), ("names", "cert.pem", "cert"), ("other.pem", "key.pem", "key")]
    {
        put(damaged, to);
        assert!(Arc::ptr_eq(&first, &tls.now().unwrap()), "{to}");
        put(whole, to);
        assert!(Arc::ptr_eq(&first, &tls.now().unwrap()), "{to} is as it was");
    }
    put("stranger.pem", "ca");
    assert!(!Arc::ptr_eq(&first, &tls.now().unwrap()));
}

fn property(properties: &TlsProperties) -> String {
    config(properties.clone()).unwrap_err().property
}

#[test]
fn authorities_come_from_a_file_a_folder_or_a_text() {
    let only = tempfile::tempdir().unwrap();
    // As openssl rehash would name it; rustls only asks for the shape.
    std::fs::copy(folder().join("ca.pem"), only.path().join("0a1b2c3d.0")).unwrap();
    let in_folder = only.path().to_str().map(str::to_owned);
    for properties in [
        trusting(),
        TlsProperties { ca_location: in_folder, ..trusting() },
        TlsProperties { ca_location: None, ca_pem: text("ca.pem"), ..trusting() },
        TlsProperties { ca_location: Some(PROBE.to_owned()), ca_pem: text("ca.pem"), ..trusting() },
        TlsProperties { ca_location: path("stranger.pem"), ca_pem: text("ca.pem"), ..trusting() },
    ] {
        meets(&properties, "localhost", false).unwrap();
    }
    let stranger = TlsProperties { ca_location: path("stranger.pem"), ..trusting() };
    assert!(meets(&stranger, "localhost", false).unwrap_err().starts_with("client: invalid peer certificate"));
}

#[test]
fn what_is_not_to_be_checked_is_not_checked() {
    let elsewhere = "broker.example";
    assert!(meets(&trusting(), elsewhere, false).unwrap_err().contains("not valid for name"));
    meets(&TlsProperties { checks_name: false, ..trusting() }, elsewhere, false).unwrap();
    let stranger = TlsProperties { ca_location: path("stranger.pem"), checks_name: false, ..trusting() };
    assert!(meets(&stranger, "localhost", false).is_err(), "the authority counts whatever the name is");
    meets(&TlsProperties { checks_certificate: false, ..stranger }, elsewhere, false).unwrap();
}

#[test]
fn clients_show_their_certificate() {
    assert!(meets(&trusting(), "localhost", true).is_err());
    meets(&known("key.pem"), "localhost", true).unwrap();
    let texts = TlsProperties { certificate_pem: text("cert.pem"), key_pem: text("key.pem"), ..trusting() };
    meets(&texts, "localhost", true).unwrap();
}

#[test]
fn keys_that_rustls_cannot_use_are_for_librdkafka() {
    for key in ["encrypted.pem", "traditional.pem"] {
        let error = config(known(key)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kafka property ssl.key.location needs librdkafka: the wire does not read keys that are encrypted"
        );
    }
    for key in ["other.pem", "cert.pem", "nowhere.pem"] {
        assert_eq!(property(&known(key)), "ssl.key.location", "{key}");
    }
    let of_text = TlsProperties { key_pem: text("encrypted.pem"), ..known("key.pem") };
    assert_eq!(property(&of_text), "ssl.key.pem");
}

#[test]
fn what_is_missing_is_named() {
    let at = |name: &str| Some(folder().join(name).to_str().unwrap().to_owned());
    let empty = tempfile::tempdir().unwrap();
    for ca_location in [at("nowhere.pem"), at("names"), empty.path().to_str().map(str::to_owned)] {
        assert_eq!(property(&TlsProperties { ca_location, ..trusting() }), "ssl.ca.location");
    }
    assert_eq!(property(&TlsProperties { ca_pem: Some("hunter2".to_owned()), ..trusting() }), "ssl.ca.pem");
    assert_eq!(property(&TlsProperties { key_location: None, ..known("key.pem") }), "ssl.certificate.location");
    assert_eq!(property(&TlsProperties { certificate_location: None, ..known("key.pem") }), "ssl.key.location");
    let certificate_location = at("nowhere.pem");
    assert_eq!(property(&TlsProperties { certificate_location, ..known("key.pem") }), "ssl.certificate.location");
}
