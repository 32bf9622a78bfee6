//! Goal: schemas are fetched from a real HTTP server, whatever it answers, and no look-up waits for it.

mod server;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use ratchet_testkit::issuer::{CLIENT, Issuer, SCOPE, Terms};
use ratchet_testkit::provider::Authority;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use self::server::{Reply, Server, absent, json, schema};
use super::shelf::Kept;
use super::*;
use crate::schemas::{Language, Written};
use crate::yaml::Text;

const TIMING: Timing = Timing {
    pause_min: Duration::from_millis(10),
    pause_max: Duration::from_millis(50),
    absent_pause: Duration::from_millis(10),
    absent_for: Duration::from_millis(600),
    compare: Duration::from_secs(3600),
};
const LONG: Duration = Duration::from_secs(30);
const INT: &str = r#""int""#;

fn settings(urls: &[String]) -> SchemaRegistry {
    SchemaRegistry { urls: urls.to_vec(), timeout_ms: 5_000, ..SchemaRegistry::default() }
}

fn open(settings: &SchemaRegistry) -> Registry {
    Registry::open_at(settings, &Metrics::new(), TIMING).unwrap()
}

fn registry(server: &Server) -> Registry {
    open(&settings(&[server.url()]))
}

/// An error whose message is the whole request.
fn sent_back(request: &str) -> Reply {
    json(500, format!(r#"{{"message":{}}}"#, serde_json::Value::from(request)))
}

fn known(registry: &Registry, id: Id) -> Kept {
    match registry.wait_for(&id, LONG) {
        LookUp::Known(written) => written,
        other => panic!("{id}: {other:?}, {:?}", registry.trouble()),
    }
}

fn gone(registry: &Registry, id: Id) -> String {
    match registry.wait_for(&id, LONG) {
        LookUp::Absent(why) => why,
        other => panic!("{id}: {other:?}, {:?}", registry.trouble()),
    }
}

/// Why the registry does not answer, once that is known; the schema is pending until then.
fn trouble(registry: &Registry, id: Id) -> String {
    let began = Instant::now();
    loop {
        assert!(matches!(registry.look_up(&id), LookUp::Pending));
        if let Some(why) = registry.trouble() {
            return why;
        }
        assert!(began.elapsed() < LONG, "no failure is recorded");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn schema_is_pending_then_known_and_requested_once() {
    let server = Server::start(|_, _| schema(INT, ""));
    let metrics = Metrics::new();
    let registry = Registry::open_at(&settings(&[format!("{}/", server.url())]), &metrics, TIMING).unwrap();
    assert!(matches!(registry.look_up(&Id::Number(5)), LookUp::Pending));
    let first = known(&registry, Id::Number(5));
    assert_eq!(*first, Written::alone(Language::Avro, INT));
    assert!(Arc::ptr_eq(&first, &known(&registry, Id::Number(5))), "always the same object");
    known(&registry, Id::Guid([0x11; 16]));
    assert_eq!(
        server.paths(),
        ["/schemas/ids/5?fetchMaxId=false", "/schemas/guids/11111111-1111-1111-1111-111111111111"]
    );
    let request = server.requests().remove(0).to_lowercase();
    assert!(request.contains("host: localhost:") && !request.contains("authorization"), "{request}");
    let said = metrics.render();
    assert!(said.contains("ratchet_schema_registry_requests_total{result=\"found\"} 2\n"), "{said}");
    assert!(said.contains("ratchet_schema_registry_schemas 2\n"), "{said}");
    assert_eq!(registry.trouble(), None);
}

#[test]
fn basic_authentication_is_sent() {
    let server = Server::start(|_, _| schema(INT, ""));
    let (username, password) = (Some(Text::plain("me")), Some(Text::secret("hunter2")));
    known(&open(&SchemaRegistry { username, password, ..settings(&[server.url()]) }), Id::Number(5));
    let request = server.requests().remove(0).to_lowercase();
    assert!(request.contains("authorization: basic bwu6ahvudgvymg==\r\n"), "{request}");
}

#[test]
fn fixed_token_is_sent_with_the_headers_of_confluent_cloud() {
    let server = Server::start(|_, _| schema(INT, ""));
    let registry = open(&SchemaRegistry {
        token: Some(Text::secret("abc")),
        logical_cluster: Some(Text::plain("lsrc-1")),
        identity_pool: Some(Text::plain("pool-1")),
        ..settings(&[server.url()])
    });
    known(&registry, Id::Number(5));
    let request = server.requests().remove(0).to_lowercase();
    for line in ["authorization: bearer abc", "target-sr-cluster: lsrc-1", "confluent-identity-pool-id: pool-1"] {
        assert!(request.contains(&format!("{line}\r\n")), "{line}: {request}");
    }
}

#[test]
fn token_of_the_token_endpoint_is_sent_and_never_shown() {
    let issuer = Issuer::open(Terms { secret: "hunter2".to_owned(), audience: "registry", seconds: 300 });
    let server = Server::start(|path, request| match request.to_lowercase().contains("authorization: bearer ey") {
        true if path.contains("/6") => sent_back(request),
        true => schema(INT, ""),
        false => json(401, "{}"),
    });
    let oauth = crate::config::OAuth {
        url: Some(issuer.url()),
        client_id: Some(Text::plain(CLIENT)),
        client_secret: Some(Text::secret("hunter2")),
        scope: Some(Text::plain(SCOPE)),
        ca: Some(issuer.ca_pem()),
    };
    let registry = open(&SchemaRegistry { oauth: oauth.clone(), ..settings(&[server.url()]) });
    known(&registry, Id::Number(5));
    let token = issuer.issued().remove(0);
    assert!(server.requests()[0].contains(&format!("Bearer {token}\r\n")));
    let said = trouble(&registry, Id::Number(6));
    assert!(said.contains("it answers 500") && !said.contains(&token[..8]), "{said}");
    let wrong = crate::config::OAuth { client_secret: Some(Text::secret("guess")), ..oauth };
    let said = trouble(&open(&SchemaRegistry { oauth: wrong, ..settings(&[server.url()]) }), Id::Number(5));
    assert!(
        said.contains("the token endpoint answers 401") && said.contains("schema_registry.oauth.client_secret"),
        "{said}"
    );
    assert!(!said.contains("guess"), "{said}");
}

#[test]
fn references_come_before_the_schema_once_for_each_name() {
    let server = Server::start(|path, _| match path {
        "/schemas/ids/5?fetchMaxId=false" => schema(
            "root",
            r#","schemaType":"PROTOBUF","references":[{"name":"a.proto","subject":"a/x","version":1},
            {"name":"b.proto","subject":"b","version":2}]"#,
        ),
        "/subjects/a%2Fx/versions/1?deleted=true" => {
            schema("a", r#","references":[{"name":"b.proto","subject":"b","version":2}]"#)
        }
        "/subjects/b/versions/2?deleted=true" => {
            schema("b", r#","references":[{"name":"a.proto","subject":"a/x","version":1}]"#)
        }
        _ => absent(),
    });
    let written = known(&registry(&server), Id::Number(5));
    let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    assert_eq!(written.references, [named("b.proto", "b"), named("a.proto", "a")]);
    assert_eq!((written.language, server.paths().len()), (Language::Protobuf, 3));
}

#[test]
fn references_are_bounded() {
    let server = Server::start(|path, _| {
        let number: u32 = path.trim_matches(|char: char| !char.is_ascii_digit()).parse().unwrap_or(0);
        let next = number + 1;
        schema("x", &format!(r#","references":[{{"name":"n{next}","subject":"s","version":{next}}}]"#))
    });
    let why = gone(&registry(&server), Id::Number(5));
    assert!(
        why.contains("schema 5 of the schema registry cannot be used: it refers to more than 256 other schemas"),
        "{why}"
    );
}

#[test]
fn reference_that_is_absent_makes_its_schema_absent() {
    let server = Server::start(|path, _| match path.starts_with("/schemas") {
        true => schema("x", r#","references":[{"name":"Money","subject":"money","version":1}]"#),
        false => json(404, r#"{"error_code":40402,"message":"Version 1 not found."}"#),
    });
    let why = gone(&registry(&server), Id::Number(5));
    assert!(why.contains("schema 5 is not in the schema registry: the schema that it refers to as Money:"), "{why}");
}

#[test]
fn absent_schema_is_requested_a_few_times_and_again_later() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Server::start(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        0..4 => absent(),
        _ => schema(INT, ""),
    });
    let registry = registry(&server);
    let why = gone(&registry, Id::Number(5));
    assert!(why.starts_with("schema 5 is not in the schema registry: http://localhost:"), "{why}");
    assert!(why.ends_with("it answers 404 to GET /schemas/ids/5 (Schema not found)"), "{why}");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert!(matches!(registry.look_up(&Id::Number(5)), LookUp::Absent(_)), "for some time");
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    let began = Instant::now();
    while !matches!(registry.look_up(&Id::Number(5)), LookUp::Known(_)) {
        assert!(began.elapsed() < LONG, "it is requested again");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn schema_that_was_registered_just_now_is_waited_for() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |_, _| match asked.fetch_add(1, Ordering::SeqCst) {
        0..2 => absent(),
        _ => schema(INT, ""),
    });
    known(&registry(&server), Id::Number(5));
}

#[test]
fn random_ids_are_not_each_waited_for_long() {
    let server = Server::start(|_, _| absent());
    // None is asked for anew, however long this takes.
    let timing = Timing { absent_for: 10 * LONG, ..TIMING };
    let registry = Registry::open_at(&settings(&[server.url()]), &Metrics::new(), timing).unwrap();
    let began = Instant::now();
    (0..200).for_each(|number| drop(registry.look_up(&Id::Number(number))));
    (0..200).for_each(|number| drop(gone(&registry, Id::Number(number))));
    let asked = server.paths().len();
    // Ten of them three times, and one more for each six seconds.
    let several_times = 11 + usize::try_from(began.elapsed().as_secs() / 6).unwrap();
    assert!((200..=200 + 2 * several_times).contains(&asked), "{asked}");
}

#[test]
fn registry_that_is_down_is_asked_until_it_answers() {
    let port = Server::nowhere();
    let registry = open(&settings(&[format!("http://localhost:{port}")]));
    let said = trouble(&registry, Id::Number(5));
    assert!(said.contains(&format!("http://localhost:{port}: it cannot be reached: ")), "{said}");
    let _server = Server::start_at(port, None, |_, _| schema(INT, ""));
    known(&registry, Id::Number(5));
    assert_eq!(registry.trouble(), None);
}

#[test]
fn slow_registry_holds_up_no_look_up() {
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |_, _| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::Silence(Duration::from_secs(4)),
        _ => schema(INT, ""),
    });
    let registry = open(&SchemaRegistry { timeout_ms: 2_000, ..settings(&[server.url()]) });
    let began = Instant::now();
    assert!(matches!(registry.look_up(&Id::Number(5)), LookUp::Pending));
    assert!(matches!(registry.wait_for(&Id::Number(5), Duration::from_millis(20)), LookUp::Pending));
    assert!(began.elapsed() < Duration::from_millis(1_900), "{:?}", began.elapsed());
    let said = trouble(&registry, Id::Number(5));
    assert!(said.ends_with("it does not answer within 2s"), "{said}");
    known(&registry, Id::Number(5));
}

#[test]
fn error_says_what_has_answered_in_place_of_a_registry_which_is_asked_again() {
    for (answers, said) in [
        (
            ("200 text/html", "<html>log in</html>"),
            "it answers 200 to GET /schemas/ids/5 with HTML: is schema_registry.url",
        ),
        (("200 text/plain", "hello"), "with something that is not JSON"),
        (("404 text/plain", "404 page not found"), "and not as a registry that lacks a schema"),
        (
            ("404 application/json", r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#),
            "(HTTP 404 Not Found), and not",
        ),
        (
            ("500 application/json", r#"{"error_code":50001,"message":"store error"}"#),
            "it answers 500 to GET /schemas/ids/5 (store error)",
        ),
        (("429 text/plain", ""), "it answers 429"),
        (("301 text/plain", ""), "it answers 301 to GET /schemas/ids/5, and leads to https://elsewhere/x: write that"),
    ] {
        let is_fixed = Arc::new(Mutex::new(false));
        let fixed = Arc::clone(&is_fixed);
        let (head, body) = answers;
        let (status, kind) = head.split_once(' ').unwrap();
        let server = Server::start(move |_, _| match *fixed.lock().unwrap() {
            true => schema(INT, ""),
            false => Reply::Answer(
                status.parse().unwrap(),
                format!("Content-Type: {kind}\r\nLocation: https://elsewhere/x?token=hunter2\r\n"),
                body.to_owned(),
            ),
        });
        let metrics = Metrics::new();
        let registry = Registry::open_at(&settings(&[server.url()]), &metrics, TIMING).unwrap();
        let found = trouble(&registry, Id::Number(5));
        assert!(metrics.render().contains("{result=\"found\"} 0\n"), "{}", metrics.render());
        assert!(found.contains(&server.url()), "{found}");
        assert!(found.contains(said) && !found.contains("hunter2"), "{found}");
        *is_fixed.lock().unwrap() = true;
        known(&registry, Id::Number(5));
        assert!(server.paths().iter().all(|path| path.starts_with("/schemas/ids/5")), "no redirect is followed");
    }
}

#[test]
fn refused_login_is_reported_without_a_secret() {
    let server = Server::start(|path, request| match path.contains("/6") {
        true => sent_back(request),
        false => json(401, format!(r#"{{"error_code":401,"message":{}}}"#, serde_json::Value::from(request))),
    });
    let (username, password) = (Some(Text::plain("me")), Some(Text::secret("hunter2")));
    let settings = SchemaRegistry { username, password, ..settings(&[server.url()]) };
    let metrics = Metrics::new();
    let registry = Registry::open_at(&settings, &metrics, TIMING).unwrap();
    let said = trouble(&registry, Id::Number(5));
    assert!(
        said.ends_with(
            "it answers 401 to GET /schemas/ids/5: correct schema_registry.username or password, or the user's rights"
        ),
        "{said}"
    );
    assert!(!metrics.render().contains("{result=\"refused\"} 0"));
    let registry = Registry::open_at(&settings, &metrics, TIMING).unwrap();
    let said = trouble(&registry, Id::Number(6));
    assert!(said.contains("it answers 500") && !said.contains("hunter2") && !said.contains("bWU6aHVudGVyMg"), "{said}");
    assert!(!format!("{registry:?} {settings:?}").contains("hunter2"));
}

/// Messages show only the beginning of a text, which may end within a secret.
#[test]
fn no_part_of_a_long_secret_is_shown() {
    let server = Server::start(|_, request| sent_back(request));
    let token = Some(Text::secret("hunter2".repeat(100)));
    let said = trouble(&open(&SchemaRegistry { token, ..settings(&[server.url()]) }), Id::Number(5));
    assert!(said.contains("it answers 500") && !said.contains("hunter"), "{said}");
}

#[test]
fn next_address_is_asked_when_one_fails_and_absence_needs_all() {
    let down = format!("http://localhost:{}", Server::nowhere());
    let server = Server::start(|path, _| if path.contains("/5") { schema(INT, "") } else { absent() });
    let registry = open(&settings(&[down.clone(), server.url()]));
    known(&registry, Id::Number(5));
    let said = trouble(&registry, Id::Number(6));
    assert!(said.contains(&format!("{down}: it cannot be reached")), "the address that is down may have it: {said}");
    let other = Server::start(|_, _| absent());
    gone(&open(&settings(&[server.url(), other.url()])), Id::Number(6));
    assert!(!other.paths().is_empty());
}

#[test]
fn address_with_a_login_page_is_passed_over() {
    let page = Server::start(|_, _| Reply::Answer(200, String::new(), "<html>log in</html>".to_owned()));
    let server = Server::start(|_, _| schema(INT, ""));
    let metrics = Metrics::new();
    let registry = Registry::open_at(&settings(&[page.url(), server.url()]), &metrics, TIMING).unwrap();
    known(&registry, Id::Number(5));
    known(&registry, Id::Number(6));
    let rendered = metrics.render();
    for line in ["{result=\"found\"} 2\n", "{result=\"failed\"} 1\n"] {
        assert!(rendered.contains(line), "{line}: {rendered}");
    }
    assert_eq!(page.paths().len(), 1, "the address that answered last is asked first");
}

#[test]
fn known_schema_is_never_replaced_by_another_text() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = Server::start(move |_, _| match count.fetch_add(1, Ordering::SeqCst) {
        0 => schema(INT, ""),
        _ => schema(r#""long""#, ""),
    });
    let timing = Timing { compare: Duration::from_millis(20), ..TIMING };
    let registry = Registry::open_at(&settings(&[server.url()]), &Metrics::new(), timing).unwrap();
    assert_eq!(known(&registry, Id::Number(5)).text, INT);
    let began = Instant::now();
    while asked.load(Ordering::SeqCst) < 3 {
        assert!(began.elapsed() < LONG, "it is compared");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(known(&registry, Id::Number(5)).text, INT);
}

#[test]
fn endless_and_large_answers_are_unusable() {
    let server = Server::start(|path, _| match path.contains("/5") {
        true => Reply::Endless,
        false => schema(&"x".repeat((1 << 20) + 1), ""),
    });
    let registry = registry(&server);
    let why = gone(&registry, Id::Number(5));
    assert!(why.ends_with("cannot be used: the answer is longer than 4 MiB"), "{why}");
    let why = gone(&registry, Id::Number(6));
    assert!(why.ends_with("cannot be used: it is larger than 1 MiB"), "{why}");
}

/// The TLS settings of a server that requires a certificate of the client.
fn mutual(authority: &Authority) -> Arc<ServerConfig> {
    let chain = |name: &str| {
        CertificateDer::pem_file_iter(authority.path(name)).unwrap().collect::<Result<Vec<_>, _>>().unwrap()
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    chain("ca.pem").into_iter().for_each(|certificate| roots.add(certificate).unwrap());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider)).build().unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.path("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_client_cert_verifier(verifier).with_single_cert(chain("server.pem"), key);
    Arc::new(config.unwrap())
}

#[test]
fn tls_needs_the_authority_and_presents_the_certificate_if_the_server_asks() {
    let authority = Authority::shared();
    let plain = Server::start_tls(authority.server(&[]), |_, _| schema(INT, ""));
    let said = trouble(&registry(&plain), Id::Number(5));
    assert!(said.contains("no TLS with it: ") && said.contains("schema_registry.ca"), "{said}");
    let ca = Some(authority.file());
    known(&open(&SchemaRegistry { ca: ca.clone(), ..settings(&[plain.url()]) }), Id::Number(5));
    let strict = Server::start_tls(mutual(authority), |_, _| schema(INT, ""));
    let said = trouble(&open(&SchemaRegistry { ca: ca.clone(), ..settings(&[strict.url()]) }), Id::Number(5));
    assert!(said.contains(&strict.url()), "{said}");
    let (certificate, key) = (Some(authority.path("server.pem")), Some(authority.path("server.key")));
    known(&open(&SchemaRegistry { ca, certificate, key, ..settings(&[strict.url()]) }), Id::Number(5));
}

#[test]
fn texts_and_references_are_fetched_by_apicurios_own_api() {
    let server = Server::start(|path, _| match path {
        "/apis/registry/v3/ids/globalIds/5?returnArtifactType=true" => Reply::Answer(
            200,
            "X-Registry-ArtifactType: PROTOBUF\r\nContent-Type: application/x-protobuf\r\n".to_owned(),
            "message A {}".to_owned(),
        ),
        "/apis/registry/v3/ids/globalIds/5/references" => {
            json(200, r#"[{"groupId":"g","artifactId":"money","version":"1","name":"money.proto"}]"#)
        }
        "/apis/registry/v3/groups/g/artifacts/money/versions/1/content" => {
            Reply::Answer(200, String::new(), "message Money {}".to_owned())
        }
        "/apis/registry/v3/groups/g/artifacts/money/versions/1/references" => json(200, "[]"),
        _ => json(404, r#"{"status":404,"name":"ArtifactNotFoundException","title":"none"}"#),
    });
    for (path, id) in [
        ("/apis/ccompat/v7", Id::Global(5)),
        ("/apis/registry/v3", Id::Global(5)),
        ("/apis/registry/v3", Id::Number(5)),
    ] {
        let url = format!("{}{path}", server.url());
        let ids_of = crate::config::IdsOf::Versions;
        let written = known(&open(&SchemaRegistry { ids_of, ..settings(&[url]) }), id);
        assert_eq!((written.language, written.text.as_str()), (Language::Protobuf, "message A {}"), "{path}");
        assert_eq!(written.references, [("money.proto".to_owned(), "message Money {}".to_owned())], "{path}");
    }
}

#[test]
fn apicurio_before_3_is_asked_by_version_2_of_its_api() {
    let server = Server::start(|path, _| match path {
        "/apis/registry/v2/ids/contentIds/5?returnArtifactType=true" => {
            Reply::Answer(200, String::new(), r#"{"type":"record","name":"R","fields":[]}"#.to_owned())
        }
        "/apis/registry/v2/ids/contentIds/5/references" => json(200, "[]"),
        _ => Reply::Answer(404, String::new(), String::new()),
    });
    let registry = open(&settings(&[format!("{}/apis/ccompat/v7", server.url())]));
    assert_eq!(known(&registry, Id::Content(5)).language, Language::Avro);
}

#[test]
fn ids_that_no_registry_has_are_absent_at_once() {
    let server = Server::start(|_, _| schema(INT, ""));
    let registry = registry(&server);
    for id in [Id::Glue([7; 16]), Id::Fingerprint(7)] {
        assert!(matches!(registry.look_up(&id), LookUp::Absent(why) if why.contains("schemas.dir")));
    }
    assert!(server.paths().is_empty());
}

#[test]
fn latest_version_is_fetched_for_checks() {
    let server = Server::start(|path, _| match path {
        "/subjects/payments-value/versions/latest" => schema(INT, r#","id":5,"version":3,"subject":"payments-value""#),
        _ => json(404, r#"{"error_code":40401,"message":"Subject not found."}"#),
    });
    let registry = registry(&server);
    let latest = registry.latest("payments-value", LONG).unwrap().unwrap();
    let written = Written::alone(Language::Avro, INT);
    assert_eq!(latest, Latest { id: Some(5), version: Some(3), written });
    assert_eq!(registry.latest("other", LONG), Ok(None));
    let down = open(&settings(&[format!("http://localhost:{}", Server::nowhere())]));
    assert!(down.latest("payments-value", LONG).unwrap_err().contains("it cannot be reached"));
}

#[test]
fn dropped_registry_sends_no_more_requests() {
    let server = Server::start(|_, _| json(500, "{}"));
    let dropped = registry(&server);
    trouble(&dropped, Id::Number(5));
    drop(dropped);
    std::thread::sleep(Duration::from_millis(200));
    let asked = server.paths().len();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(server.paths().len(), asked);
}

#[test]
fn folder_comes_before_the_registry() {
    let server = Server::start(|_, _| schema(r#""long""#, ""));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("5.avsc"), INT).unwrap();
    let text = format!(
        "kafka: {{bootstrap.servers: 'a:1'}}\nschemas: {{dir: '{}'}}\nschema_registry: {{url: '{}'}}\n",
        folder.path().display(),
        server.url()
    );
    let path = folder.path().join("ratchet.yaml");
    std::fs::write(&path, text).unwrap();
    let config = crate::config::load(Some(&path), &[], &crate::config::Process).unwrap();
    let sources = sources(&config, &Metrics::new()).unwrap();
    let text = |number| match sources.wait_for(&Id::Number(number), LONG) {
        LookUp::Known(written) => written.text.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((text(5).as_str(), text(6).as_str()), (INT, r#""long""#));
    assert!(matches!(sources.look_up(&Id::Glue([7; 16])), LookUp::Absent(why) if why.contains("; ")));
}
