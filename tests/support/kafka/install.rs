//! Apache Kafka's jars and the brokers' certificate, fetched once for a target folder and shared by
//! every test binary that runs at the same time.
//!
//! Maven copies the jars that `pom.xml` names; a lock on a file keeps two from copying at once. A copy is
//! made beside its place and renamed when it is whole, so that one that was interrupted is never used. Each
//! version of Kafka has a folder of its own.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the jars, and the version that is used unless another is asked for.
const POM: &str = include_str!("pom.xml");
/// Where another version is asked for.
const VERSION_VARIABLE: &str = "RATCHET_TEST_KAFKA_VERSION";

/// What protects the brokers' keystore; it guards nothing.
pub const KEYSTORE_PASSWORD: &str = "ratchet-test";

/// Where Kafka lies.
#[derive(Debug)]
pub struct Install {
    /// The jars.
    pub libs: PathBuf,
    /// The brokers' key and certificate, PKCS12.
    pub keystore: PathBuf,
    /// The certificate, to be given to clients as the authority's.
    pub ca_pem: PathBuf,
}

impl Install {
    /// The installation, made at the first call.
    ///
    /// # Panics
    /// With what to do about it, where Java, Maven or the download is missing: a Kafka test is never skipped.
    pub fn get() -> &'static Install {
        static INSTALL: OnceLock<Install> = OnceLock::new();
        INSTALL.get_or_init(make)
    }
}

/// The version of the brokers that the tests start.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| match std::env::var(VERSION_VARIABLE) {
        Ok(version) if !version.is_empty() => version,
        _ => {
            let (_, named) = POM.split_once("<kafka.version>").expect("pom.xml names a version");
            named.split('<').next().unwrap_or_default().to_owned()
        }
    })
}

/// The cache folder: inside the target folder, so that it goes away with it.
pub fn folder() -> PathBuf {
    target_folder().join(format!("kafka-{}", version()))
}

/// Cargo's target folder.
pub fn target_folder() -> PathBuf {
    let program = std::env::current_exe().expect("a test binary has a path");
    // Cargo marks the target folder; it may have been moved by settings that the test does not see.
    if let Some(marked) = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists()) {
        return marked.to_owned();
    }
    checkout().join("target")
}

/// The checkout's folder, in whatever crate of it this is compiled.
pub fn checkout() -> &'static Path {
    let of = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("Cargo.lock").exists());
    of.expect("Cargo.lock stands at the top of the checkout")
}

fn make() -> Install {
    let folder = folder();
    let _lock = locked(&folder);
    require("java", &["-version"], "Java 17 or newer, for instance `apt-get install openjdk-17-jdk-headless`");
    let install =
        Install { libs: folder.join("libs"), keystore: folder.join("broker.p12"), ca_pem: folder.join("ca.pem") };
    copy_jars(
        &checkout().join("tests/support/kafka/pom.xml"),
        &install.libs,
        "It needs Maven Central or a mirror of it (~/.m2/settings.xml). To do without, point RATCHET_TEST_BROKERS \
         at a running Kafka; the tests that restart a broker still need the jars.",
    );
    make_certificate(&install);
    install
}

/// Further jars: those that the Maven file `pom` names, in a folder of this name beside Kafka's own.
///
/// # Panics
/// Where they are not there and cannot be had.
pub fn jars(name: &str, pom: &Path) -> PathBuf {
    let folder = folder();
    let _lock = locked(&folder);
    let libs = folder.join(name);
    copy_jars(pom, &libs, "It needs Maven Central or a mirror of it (~/.m2/settings.xml).");
    libs
}

fn locked(folder: &Path) -> File {
    fs::create_dir_all(folder).unwrap_or_else(|e| panic!("cannot create {}: {e}", folder.display()));
    let lock = File::create(folder.join("install.lock")).expect("the cache folder is writable");
    lock.lock().expect("the cache folder's file system has locks");
    lock
}

fn copy_jars(pom: &Path, libs: &Path, help: &str) {
    let wanted = fs::read(pom).unwrap_or_else(|e| panic!("cannot read {}: {e}", pom.display()));
    if fs::read(libs.join("pom.xml")).is_ok_and(|made_from| made_from == wanted) {
        return;
    }
    require("mvn", &["-v"], "Maven, for instance `apt-get install maven`");
    let fresh = libs.with_extension("part");
    remove_folder(&fresh);
    let copied = Command::new("mvn")
        .args(["-q", "-B", "dependency:copy-dependencies", "-f"])
        .arg(pom)
        .arg(format!("-Dkafka.version={}", version()))
        .arg(format!("-DoutputDirectory={}", fresh.display()))
        .output()
        .expect("mvn was started a moment ago");
    assert!(
        copied.status.success(),
        "Maven could not copy the jars of {} into {}. They are downloaded at the first run.\n{help}\n{}{}",
        pom.display(),
        fresh.display(),
        String::from_utf8_lossy(&copied.stdout),
        String::from_utf8_lossy(&copied.stderr),
    );
    fs::write(fresh.join("pom.xml"), wanted).expect("the cache folder is writable");
    remove_folder(libs);
    fs::rename(&fresh, libs).expect("a folder can be renamed beside itself");
}

/// A key of the brokers' own, signed by itself, for 127.0.0.1 and localhost.
fn make_certificate(install: &Install) {
    if !install.ca_pem.exists() {
        sign(&install.keystore, &install.ca_pem, "dns:localhost,ip:127.0.0.1");
    }
}

/// A key and its certificate, signed by itself.
#[derive(Debug)]
pub struct Certificate {
    /// Both, PKCS12, for a broker (`ssl.keystore.location`).
    pub keystore: PathBuf,
    /// The certificate, to be given to clients as the authority's.
    pub pem: PathBuf,
}

impl Certificate {
    /// A fresh one for a host of this name and no other, in `folder`.
    pub fn for_host(host: &str, folder: &Path) -> Certificate {
        fs::create_dir_all(folder).unwrap_or_else(|e| panic!("cannot create {}: {e}", folder.display()));
        let (keystore, pem) = (folder.join(format!("{host}.p12")), folder.join(format!("{host}.pem")));
        sign(&keystore, &pem, &format!("dns:{host}"));
        Certificate { keystore, pem }
    }
}

/// Makes a key for these names; its certificate is there when all of it is.
fn sign(keystore: &Path, pem: &Path, names: &str) {
    let part = pem.with_extension("part");
    for old in [keystore, &part] {
        let _ = fs::remove_file(old);
    }
    let names = format!("SAN={names}");
    let key = ["-genkeypair", "-keyalg", "RSA", "-keysize", "2048", "-validity", "3650", "-dname", "CN=ratchet-test"];
    keytool(keystore, &[&key[..], &["-ext", &names]].concat());
    keytool(keystore, &["-exportcert", "-rfc", "-file", part.to_str().expect("the target folder's name is text")]);
    fs::rename(&part, pem).expect("a file can be renamed beside itself");
}

fn keytool(keystore: &Path, args: &[&str]) {
    let done = Command::new("keytool")
        .args(args)
        .args(["-alias", "broker", "-storetype", "PKCS12", "-storepass", KEYSTORE_PASSWORD, "-keystore"])
        .arg(keystore)
        .output()
        .unwrap_or_else(|e| panic!("the Kafka tests need the JDK's keytool, which comes with Java: {e}"));
    assert!(done.status.success(), "keytool {args:?}: {}", String::from_utf8_lossy(&done.stdout));
}

fn require(program: &str, args: &[&str], what: &str) {
    match Command::new(program).args(args).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!("`{program}` does not work: {}", String::from_utf8_lossy(&output.stderr)),
        Err(e) => {
            panic!("the Kafka tests need {what}, or RATCHET_TEST_BROKERS=host:port of a running Kafka ({program}: {e})")
        }
    }
}

/// Removes a folder with all that is in it, if it is there.
pub fn remove_folder(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => panic!("cannot remove {}: {e}", folder.display()),
        _ => {}
    }
}
