//! Apache Kafka's jars and the brokers' certificate, fetched once for a target folder and shared by all test binaries
//! that run at the same time.
//!
//! Maven copies the jars that `pom.xml` names; a file lock keeps two processes from copying at once. A copy is made
//! beside its place and renamed when complete, so that an interrupted one is never used. Each version of Kafka has its
//! own folder.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names the jars, and the default version.
const POM: &str = include_str!("pom.xml");
/// Names another version.
const VERSION_VARIABLE: &str = "RATCHET_TEST_KAFKA_VERSION";

/// The password of the brokers' keystore; it guards nothing.
pub const KEYSTORE_PASSWORD: &str = "ratchet-test";

/// Where Kafka is installed.
#[derive(Debug)]
pub struct Install {
    /// The jars.
    pub libs: PathBuf,
    /// The brokers' key and certificate, PKCS12.
    pub keystore: PathBuf,
    /// The certificate that clients have to trust as an authority.
    pub ca_pem: PathBuf,
}

impl Install {
    /// The installation, created by the first call.
    ///
    /// # Panics
    /// If Java, Maven or the download is missing, with what to do about it: a Kafka test is never skipped.
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

/// The cache folder: inside the target folder, so that it is removed with it.
pub fn folder() -> PathBuf {
    target_folder().join(format!("kafka-{}", version()))
}

/// Cargo's target folder.
pub fn target_folder() -> PathBuf {
    let program = std::env::current_exe().expect("a test binary has a path");
    // Cargo marks the target folder; settings that the test does not see may have moved it.
    if let Some(marked) = program.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists()) {
        return marked.to_owned();
    }
    checkout().join("target")
}

/// The checkout's folder, whichever of its crates this is compiled in.
pub fn checkout() -> &'static Path {
    let of = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().find(|folder| folder.join("Cargo.lock").exists());
    of.expect("Cargo.lock is at the top of the checkout")
}

fn make() -> Install {
    let folder = folder();
    let _lock = locked(&folder);
    require("java", &["-version"], "Java 17 or newer, for instance `apt-get install openjdk-17-jdk-headless`");
    let install =
        Install { libs: folder.join("libs"), keystore: folder.join("broker.p12"), ca_pem: folder.join("ca.pem") };
    copy_jars(
        &checkout().join("crates/testkit/src/kafka/pom.xml"),
        &install.libs,
        "It needs Maven Central or a mirror of it (~/.m2/settings.xml). To do without, point RATCHET_TEST_BROKERS \
         at a running Kafka; the tests that restart a broker still need the jars.",
    );
    make_certificate(&install);
    install
}

/// Further jars, those named by the Maven file `pom`, in the folder `name` beside Kafka's own.
///
/// # Panics
/// If they cannot be downloaded.
pub fn jars(name: &str, pom: &Path) -> PathBuf {
    let folder = folder();
    let _lock = locked(&folder);
    let libs = folder.join(name);
    copy_jars(pom, &libs, "It needs Maven Central or a mirror of it (~/.m2/settings.xml).");
    libs
}

/// Downloads and unpacks an archive (`tar.gz`) of Maven Central into the folder `name` beside Kafka's own; returns the
/// folder. `artifact` is in Maven's notation: `group:artifact:version:tar.gz:classifier`.
///
/// # Panics
/// If it cannot be downloaded.
pub fn unpacked(name: &str, artifact: &str) -> PathBuf {
    let folder = folder();
    let _lock = locked(&folder);
    let place = folder.join(name);
    if place.exists() {
        return place;
    }
    require("java", &["-version"], "Java 17 or newer, for instance `apt-get install openjdk-17-jdk-headless`");
    require("mvn", &["-v"], "Maven, for instance `apt-get install maven`");
    let fresh = folder.join(format!("{name}.part"));
    remove_folder(&fresh);
    fs::create_dir_all(&fresh).expect("the cache folder is writable");
    // Later versions of the plugin also resolve the artifact's parents, which are not needed.
    let mut copy = Command::new("mvn");
    copy.args(["-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:2.10:copy"]);
    copy.arg(format!("-Dartifact={artifact}")).arg(format!("-DoutputDirectory={}", fresh.display()));
    run(copy, &format!("{artifact} is downloaded at the first run, from Maven Central or a mirror of it"));
    let mut files = fs::read_dir(&fresh).expect("it was just created").flatten().map(|entry| entry.path());
    let archive = files.next().expect("Maven has copied the archive");
    let mut unpack = Command::new("tar");
    unpack.arg("-xzf").arg(&archive).arg("-C").arg(&fresh);
    run(unpack, "an archive of Maven Central is unpacked");
    fs::remove_file(archive).expect("the cache folder is writable");
    fs::rename(&fresh, &place).expect("a folder can be renamed beside itself");
    place
}

fn run(mut command: Command, what: &str) {
    let done = command.output().unwrap_or_else(|e| panic!("{what}, and {command:?} cannot be started: {e}"));
    let said = [done.stdout, done.stderr].concat();
    assert!(done.status.success(), "{what}, and {command:?} has failed:\n{}", String::from_utf8_lossy(&said));
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

/// The brokers' own key, self-signed, for 127.0.0.1 and localhost.
fn make_certificate(install: &Install) {
    if !install.ca_pem.exists() {
        sign(&install.keystore, &install.ca_pem, "dns:localhost,ip:127.0.0.1");
    }
}

/// A key and its self-signed certificate.
#[derive(Debug)]
pub struct Certificate {
    /// Both, as PKCS12, for a broker (`ssl.keystore.location`).
    pub keystore: PathBuf,
    /// The certificate that clients have to trust as an authority.
    pub pem: PathBuf,
}

impl Certificate {
    /// Creates one in `folder` that is valid for this host only.
    pub fn for_host(host: &str, folder: &Path) -> Certificate {
        fs::create_dir_all(folder).unwrap_or_else(|e| panic!("cannot create {}: {e}", folder.display()));
        let (keystore, pem) = (folder.join(format!("{host}.p12")), folder.join(format!("{host}.pem")));
        sign(&keystore, &pem, &format!("dns:{host}"));
        Certificate { keystore, pem }
    }
}

/// Creates a key for these names; the certificate appears last, when everything is complete.
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

/// Removes a folder and its contents, if it exists.
pub fn remove_folder(folder: &Path) {
    match fs::remove_dir_all(folder) {
        Err(e) if e.kind() != ErrorKind::NotFound => panic!("cannot remove {}: {e}", folder.display()),
        _ => {}
    }
}
