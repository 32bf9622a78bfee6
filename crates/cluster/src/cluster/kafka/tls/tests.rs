//! Tests with certificates that openssl creates for each run.

use std::process::Command;
use std::sync::OnceLock;

use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConnection, ServerConfig, ServerConnection};

use super::*;

/// A folder with an authority (`ca.pem`), and a certificate that it issued for `localhost`, with the key, plain and
/// encrypted.
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

/// Properties that trust the authority, without a client's certificate.
fn trusting_authority() -> TlsProperties {
    TlsProperties::of_authorities(path("ca.pem"), None)
}

/// Properties with the client's certificate and this key.
fn with_client_key(key: &str) -> TlsProperties {
    TlsProperties { certificate_location: path("cert.pem"), key_location: path(key), ..trusting_authority() }
}

/// Completes a handshake between a client and a broker of this name, which may request the client's certificate.
fn handshake(properties: &TlsProperties, name: &str, requests_certificate: bool) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions().unwrap();
    let server = match requests_certificate {
        true => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots(&trusting_authority()).unwrap(), provider);
            server.with_client_cert_verifier(verifier.build().unwrap())
        }
        false => server.with_no_client_auth(),
    };
    let chain = certificates("", text("cert.pem").unwrap().as_bytes()).unwrap();
    let key = private_key("", text("key.pem").unwrap().as_bytes()).unwrap();
    let mut server = ServerConnection::new(Arc::new(server.with_single_cert(chain, key).unwrap())).unwrap();
    let client = config(properties.clone()).map_err(|error| error.to_string())?.current()?;
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

/// The files of the authority, the client's certificate and its key are replaced in turn.
#[test]
fn changed_files_are_reloaded_unless_they_cannot_be_used() {
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
        ..trusting_authority()
    });
    let tls = tls.unwrap();
    let first = tls.current().unwrap();
    for (damaged, whole, to) in
        [("csr", "ca.pem", "ca"), ("names", "cert.pem", "cert"), ("other.pem", "key.pem", "key")]
    {
        put(damaged, to);
        assert!(Arc::ptr_eq(&first, &tls.current().unwrap()), "{to}");
        put(whole, to);
        assert!(Arc::ptr_eq(&first, &tls.current().unwrap()), "{to} is restored");
    }
    put("stranger.pem", "ca");
    assert!(!Arc::ptr_eq(&first, &tls.current().unwrap()));
}

fn property(properties: &TlsProperties) -> String {
    config(properties.clone()).unwrap_err().property
}

#[test]
fn authorities_come_from_a_file_a_folder_or_a_text() {
    let only = tempfile::tempdir().unwrap();
    // The name has the form that `openssl rehash` produces; rustls-native-certs requires this form.
    std::fs::copy(folder().join("ca.pem"), only.path().join("0a1b2c3d.0")).unwrap();
    let in_folder = only.path().to_str().map(str::to_owned);
    for properties in [
        trusting_authority(),
        TlsProperties { ca_location: in_folder, ..trusting_authority() },
        TlsProperties { ca_location: None, ca_pem: text("ca.pem"), ..trusting_authority() },
        TlsProperties { ca_location: Some(PROBE.to_owned()), ca_pem: text("ca.pem"), ..trusting_authority() },
        TlsProperties { ca_location: path("stranger.pem"), ca_pem: text("ca.pem"), ..trusting_authority() },
    ] {
        handshake(&properties, "localhost", false).unwrap();
    }
    let stranger = TlsProperties { ca_location: path("stranger.pem"), ..trusting_authority() };
    assert!(handshake(&stranger, "localhost", false).unwrap_err().starts_with("client: invalid peer certificate"));
}

#[test]
fn disabled_checks_are_not_made() {
    let elsewhere = "broker.example";
    assert!(handshake(&trusting_authority(), elsewhere, false).unwrap_err().contains("not valid for name"));
    handshake(&TlsProperties { checks_name: false, ..trusting_authority() }, elsewhere, false).unwrap();
    let stranger = TlsProperties { ca_location: path("stranger.pem"), checks_name: false, ..trusting_authority() };
    assert!(handshake(&stranger, "localhost", false).is_err(), "the authority is checked although the name is not");
    handshake(&TlsProperties { checks_certificate: false, ..stranger }, elsewhere, false).unwrap();
}

#[test]
fn clients_show_their_certificate() {
    assert!(handshake(&trusting_authority(), "localhost", true).is_err());
    handshake(&with_client_key("key.pem"), "localhost", true).unwrap();
    let texts = TlsProperties { certificate_pem: text("cert.pem"), key_pem: text("key.pem"), ..trusting_authority() };
    handshake(&texts, "localhost", true).unwrap();
}

#[test]
fn keys_that_rustls_cannot_use_are_for_librdkafka() {
    for key in ["encrypted.pem", "traditional.pem"] {
        let error = config(with_client_key(key)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the kafka property ssl.key.location needs librdkafka: the wire does not read keys that are encrypted"
        );
    }
    for key in ["other.pem", "cert.pem", "nowhere.pem"] {
        assert_eq!(property(&with_client_key(key)), "ssl.key.location", "{key}");
    }
    let of_text = TlsProperties { key_pem: text("encrypted.pem"), ..with_client_key("key.pem") };
    assert_eq!(property(&of_text), "ssl.key.pem");
}

#[test]
fn missing_or_unusable_file_is_reported_by_its_property() {
    let at = |name: &str| Some(folder().join(name).to_str().unwrap().to_owned());
    let empty = tempfile::tempdir().unwrap();
    for ca_location in [at("nowhere.pem"), at("names"), empty.path().to_str().map(str::to_owned)] {
        assert_eq!(property(&TlsProperties { ca_location, ..trusting_authority() }), "ssl.ca.location");
    }
    assert_eq!(property(&TlsProperties { ca_pem: Some("hunter2".to_owned()), ..trusting_authority() }), "ssl.ca.pem");
    assert_eq!(
        property(&TlsProperties { key_location: None, ..with_client_key("key.pem") }),
        "ssl.certificate.location"
    );
    assert_eq!(
        property(&TlsProperties { certificate_location: None, ..with_client_key("key.pem") }),
        "ssl.key.location"
    );
    let certificate_location = at("nowhere.pem");
    assert_eq!(
        property(&TlsProperties { certificate_location, ..with_client_key("key.pem") }),
        "ssl.certificate.location"
    );
}
