//! Goal: a proxy's file is read as the tables of its keys say, and every mistake in it is shown with its place.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method, StatusCode};

use super::*;
use crate::http::request::OnInDoubt;
use crate::topology::tables::{Table, compare_tables, row, rows};
use crate::yaml::Mistake;
use crate::yaml::keys::{Mapping, Omitted};
use crate::yaml_testing::Fake;

const MINIMAL: &str = "listen: 127.0.0.1:8080\nupstream: http://127.0.0.1:3000\nstore: {embedded: {dir: requests}}\n";

#[track_caller]
fn loaded(text: &str) -> Config {
    load_text("proxy.yaml", text, &Fake::default()).unwrap_or_else(|all| panic!("{text}\n{}", all.render(false)))
}

/// The mistakes in a text: each one's line and message.
#[track_caller]
fn mistakes(text: &str) -> Vec<(usize, String)> {
    let all = load_text("proxy.yaml", text, &Fake::default()).expect_err("it has mistakes");
    let line = |mistake: &Mistake| (mistake.position().map_or(0, |(_, line, _)| line), mistake.message().to_owned());
    all.mistakes().iter().map(line).collect()
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn routes_inherit_omitted_keys_from_the_top() {
    let text = format!(
        "{MINIMAL}retention: 2h\nkey: required\ncaller: none\nroutes:\n  - path: /charges/*\n    methods: [POST, PATCH]\n    \
         on_in_doubt: refuse\n    fingerprint: {{headers: [Api-Version], except: [sent_at, meta.attempt]}}\n    \
         request_bytes_max: 64KiB\n    timeout: 5s\n  - {{path: /hooks, key: off, caller: X-Tenant}}\n"
    );
    let config = loaded(&text);
    let [charges, hooks, rest] = &config.routes[..] else { panic!("{:?}", config.routes) };
    assert_eq!((charges.name(), hooks.name(), rest.name()), ("/charges/*", "/hooks", "default"));
    assert_eq!(charges.methods, [Method::POST, Method::PATCH]);
    assert_eq!((charges.rule.key, charges.rule.on_in_doubt), (KeyUse::Required, OnInDoubt::Refuse));
    assert_eq!(charges.rule.retention, Duration::from_secs(7_200));
    assert_eq!(charges.rule.fingerprint_headers, ["api-version"]);
    assert_eq!(charges.rule.fingerprint_except, ["sent_at", "meta.attempt"]);
    assert_eq!((charges.rule.request_bytes_max, charges.rule.timeout), (64 << 10, Duration::from_secs(5)));
    assert_eq!((charges.rule.caller.clone(), hooks.rule.key), (None, KeyUse::Off));
    assert_eq!(hooks.rule.caller, Some(HeaderName::from_static("x-tenant")));
    assert_eq!(rest.rule.on_in_doubt, OnInDoubt::Run);
}

#[test]
fn explicit_default_changes_nothing() {
    let shown = |text: &str| format!("{:?}", Config { warnings: Vec::new(), ..loaded(text) });
    let plain = shown(MINIMAL);
    let mut checked = 0;
    for key in keys::TOP.keys {
        let Omitted::Is(default) = key.default else { continue };
        assert_eq!(shown(&format!("{MINIMAL}{}: {default}\n", key.name)), plain, "{}", key.name);
        checked += 1;
    }
    assert!(checked >= 18, "only {checked} defaults are checked");
}

#[test]
fn all_mistakes_are_shown_at_once_each_with_its_place() {
    let text = "listen: 8080\nupstream: http://a/path\nstore: {}\nretension: 1h\nroutes:\n  - path: charges\n    \
                methods: [post]\n  - {path: /a, lease: 10ms, header: 'a b'}\n  - {path: /b, on_in_doubt: again}\n\
                connections_max: 0\nhead_bytes_max: 1KiB\nlog: {level: loud}\nat_work_max: 0\nbodies_bytes_max: 0B\n\
                caller: none\n";
    let lines: Vec<usize> = mistakes(text).iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [1, 2, 3, 4, 6, 7, 8, 8, 9, 10, 11, 12, 13, 14], "{:#?}", mistakes(text));
}

#[track_caller]
fn expect_mistake(more: &str, words: &str) {
    let all = mistakes(&format!("{MINIMAL}{more}"));
    assert!(all.iter().any(|(_, message)| message.contains(words)), "{more}: {all:?}");
}

#[test]
fn senseless_settings_are_refused() {
    expect_mistake("routes: [{path: '/*'}, {path: /charges}]\n", "the route `/charges` is never used");
    expect_mistake("routes: [{path: /a, methods: [PUT]}, {path: /a, methods: [PUT]}]\n", "never used");
    loaded(&format!("{MINIMAL}routes: [{{path: /a, methods: [PUT]}}, {{path: /a}}]\n"));
    expect_mistake("http: 127.0.0.1:8080\n", "`http` is the address that clients connect to");
    expect_mistake(
        "reservation_header: idempotency-key\n",
        "`reservation_header` is the same header as that of the key",
    );
    expect_mistake("retention: 10s\n", "`retention`, `lease`");
    expect_mistake("scope: the shop\n", "`scope` must be a name of up to 100 letters");
    expect_mistake(&format!("scope: {}\n", "s".repeat(101)), "`scope` must be a name");
    expect_mistake(
        "tls: {certificate: nowhere.pem, key: nowhere.key}\n",
        "the certificate in nowhere.pem cannot be used",
    );
    expect_mistake("tls: {certificate: nowhere.pem}\n", "`tls.key` is missing");
    assert_eq!(mistakes("").len(), 1);
    let absent = load("nowhere.yaml".as_ref(), &Fake::default()).expect_err("the file does not exist");
    assert!(absent.mistakes()[0].message().contains("nowhere.yaml"));
}

/// The warnings about a text: each one's line and message.
#[track_caller]
fn warnings_for(more: &str) -> Vec<(usize, String)> {
    let config = loaded(&format!("{MINIMAL}{more}"));
    let line = |warning: &Mistake| (warning.position().map_or(0, |(_, line, _)| line), warning.message().to_owned());
    config.warnings.iter().map(line).collect()
}

#[test]
fn missing_caller_is_warned_about() {
    let has_warning = |more: &str| match &warnings_for(more)[..] {
        [] => false,
        [(2, message)] => message.starts_with("nothing says how to tell callers apart"),
        other => panic!("{other:?}"),
    };
    for more in [
        "",
        "key: required\n",
        "routes: [{path: /a, caller: none}]\n",
        "key: off\nroutes: [{path: /a, key: required}]\n",
    ] {
        assert!(has_warning(more), "{more}");
    }
    for more in [
        "caller: Authorization\n",
        "caller: none\n",
        "key: off\n",
        "key: off\nroutes: [{path: /a, key: required, caller: Authorization}, {path: /b}]\n",
    ] {
        assert!(!has_warning(more), "{more}");
    }
    assert!(!has_warning("caller: {required: true}\n"));
    let named = warnings_for("caller: authorization\nroutes:\n  - {path: /a, caller: X-Tenant}\n");
    assert_eq!(named.len(), 1, "{named:?}");
    assert!(named[0].0 == 6 && named[0].1.contains("a client that sends another's `x-tenant` and key"), "{named:?}");
}

#[test]
fn callers_header_may_be_required() {
    let tenant = Some(HeaderName::from_static("x-tenant"));
    let text = format!(
        "{MINIMAL}caller: {{header: X-Tenant, required: true}}\nroutes:\n  - {{path: /a}}\n  - {{path: /b, caller: X-Other}}\n  \
         - {{path: /c, caller: {{required: false}}}}\n  - {{path: /d, caller: none}}\n"
    );
    let config = loaded(&text);
    let callers: Vec<_> =
        config.routes.iter().map(|route| (route.rule.caller.clone(), route.rule.caller_required)).collect();
    let other = Some(HeaderName::from_static("x-other"));
    assert_eq!(
        callers,
        [(tenant.clone(), true), (other, true), (tenant.clone(), false), (None, false), (tenant, true)]
    );
    let places: Vec<usize> =
        config.warnings.iter().map(|warning| warning.position().map_or(0, |(_, line, _)| line)).collect();
    assert_eq!(places, [4, 7], "each named header that clients can forge: {:?}", config.warnings);
    let plain = loaded(&format!("{MINIMAL}caller: {{required: true}}\n"));
    let rule = &plain.routes[0].rule;
    assert_eq!((rule.caller.clone(), rule.caller_required), (Some(http::header::AUTHORIZATION), true));
    assert!(plain.warnings.is_empty(), "{:?}", plain.warnings);
    expect_mistake("caller: {require: true}\n", "unknown key `caller.require`");
    expect_mistake("caller: {header: none of these}\n", "`caller.header` must be a header's name");
    expect_mistake("caller: {header: none}\n", "`caller.header` must be a header's name");
    expect_mistake("caller: [X-Tenant]\n", "`caller` must be a header's name, `none`, or a mapping");
}

#[test]
fn embedded_store_may_be_bounded() {
    let bounded = |max: &str| MINIMAL.replace("{dir: requests}", &format!("{{dir: requests, store_bytes_max: {max}}}"));
    let store = loaded(&format!("{}caller: none\n", bounded("10GiB"))).store;
    assert_eq!(store, StoreConfig::Embedded { dir: PathBuf::from("requests"), bytes_max: Some(10 << 30) });
    for wrong in ["64MiB", "17TiB", "134217727", "many"] {
        let mistakes = load_text("proxy.yaml", &bounded(wrong), &Fake::default()).expect_err(wrong).render(false);
        assert!(
            mistakes.contains("`store.embedded.store_bytes_max` must be a size from 128MiB to 16TiB"),
            "{mistakes}"
        );
    }
}

#[test]
fn unprotected_requests_and_a_useless_header_are_warned_about() {
    let down = "while the store does not answer, requests are passed on unprotected";
    for (more, line) in [("on_store_down: pass\n", 4), ("routes:\n  - {path: /a, on_store_down: pass}\n", 5)] {
        let all = warnings_for(&format!("{more}caller: none\n"));
        assert!(all.len() == 1 && all[0].0 == line && all[0].1.starts_with(down), "{more}: {all:?}");
    }
    assert!(warnings_for("on_store_down: refuse\ncaller: none\n").is_empty());
    let useless = "`reservation_header` needs a store in PostgreSQL, but this one is `embedded`";
    for (more, line) in [("reservation_header: x-r\n", 4), ("routes:\n  - {path: /a, reservation_header: x-r}\n", 5)] {
        assert_eq!(warnings_for(&format!("{more}caller: none\n")), [(line, useless.to_owned())], "{more}");
    }
    let postgres = MINIMAL.replace("{embedded: {dir: requests}}", "{postgres: {url: 'postgres://ann@db/shop'}}");
    assert!(loaded(&format!("{postgres}reservation_header: x-r\ncaller: none\n")).warnings.is_empty());
}

/// These statuses say that the service has failed; some services fail only before they have done anything.
#[test]
fn only_error_statuses_release_a_request() {
    let text = format!(
        "{MINIMAL}caller: none\non_in_doubt: refuse\nreleased: [503, 408]\nroutes:\n  - {{path: /a, released: []}}\n  - {{path: /b}}\n"
    );
    let config = loaded(&text);
    let all: Vec<Vec<u16>> = config
        .routes
        .iter()
        .map(|route| route.rule.releasing_statuses.iter().map(StatusCode::as_u16).collect())
        .collect();
    assert_eq!(all, [vec![], vec![503, 408], vec![503, 408]]);
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    for status in ["200", "302", "399", "600", "'503 '", "all", "5xx"] {
        expect_mistake(
            &format!("on_in_doubt: refuse\nreleased: [{status}]\n"),
            "`released` must be a list of statuses, each from 400 to 599, or `4xx`",
        );
    }
    let all = &loaded(&format!("{MINIMAL}released: [503, 4xx]\n")).routes[0].rule.releasing_statuses;
    let all: Vec<u16> = all.iter().map(StatusCode::as_u16).collect();
    assert_eq!(
        all,
        [vec![503], (400..408).collect(), (409..500).collect()].concat(),
        "a service may have acted before 408"
    );
    expect_mistake("on_in_doubt: refuse\nreleased: 503\n", "`released` must be a list of statuses");
    assert!(loaded(MINIMAL).routes[0].rule.releasing_statuses.is_empty(), "none by default");
}

#[test]
fn useless_released_statuses_are_warned_about() {
    for (more, line) in [
        ("released: [503]\n", Some(4)),
        ("released: [503, 422]\n", None),
        ("released: [4xx]\n", None),
        ("released: [408]\n", Some(4)),
        ("released: [503]\nroutes: [{path: /a, on_in_doubt: refuse}]\n", None),
        ("routes:\n  - {path: /a, released: [503]}\n", Some(5)),
        ("on_in_doubt: refuse\nroutes:\n  - {path: /a, released: [503], on_in_doubt: run}\n", Some(6)),
        ("on_in_doubt: refuse\nroutes:\n  - {path: /a, released: [503]}\n", None),
    ] {
        let lines: Vec<usize> = warnings_for(&format!("{more}caller: none\n")).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, Vec::from_iter(line), "{more}");
    }
}

/// Checks that the message contains these words.
#[track_caller]
fn expect_message(text: &str, words: &[&str]) {
    let shown = load_text("proxy.yaml", text, &Fake::default()).expect_err(text).render(false);
    let shown = shown.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    words.iter().for_each(|words| assert!(shown.contains(words), "{words}: {shown}"));
}

#[test]
fn host_name_to_listen_on_is_refused() {
    let with = |listen: &str| MINIMAL.replace("127.0.0.1:8080", listen);
    for listen in ["localhost:8080", "8080", "':8080'", "shop.example:8080"] {
        expect_message(
            &with(listen),
            &[
                "`listen` must be an IP address and a port",
                "write `listen: 127.0.0.1:8080` for this machine alone, or `listen: 0.0.0.0:8080`",
                "1 mistake",
            ],
        );
    }
    for listen in ["127.0.0.1", "'::1'", "localhost", "localhost:99999", "here"] {
        expect_message(
            &with(listen),
            &["`listen` must be an IP address and a port", "write e.g. `listen: 127.0.0.1:8080`"],
        );
    }
    expect_message(
        &format!("{MINIMAL}http: localhost:9464\n"),
        &["`http` must be", "or `off`", "write `http: 127.0.0.1:9464`"],
    );
    expect_message(&format!("{MINIMAL}http: [off]\n"), &["`http` must be", "1 mistake"]);
    assert_eq!(loaded(&with("'[::1]:8080'")).listen.to_string(), "[::1]:8080");
}

#[test]
fn method_in_lower_case_is_refused() {
    expect_message(
        &format!("{MINIMAL}routes: [{{path: /a, methods: [POST, patch]}}]\n"),
        &["`routes.methods`: methods are written in upper-case letters", "write `PATCH`", "1 mistake"],
    );
    expect_message(
        &format!("{MINIMAL}routes: [{{path: /a, methods: ['a b']}}]\n"),
        &["`routes.methods` must be", "`a b` is not"],
    );
}

#[test]
fn topology_is_recognised() {
    let topology =
        "name: payments\ninput: {topics: [payments]}\nidentity: value.id\noutput: {topic: payments.unique}\n";
    assert_eq!(mistakes(topology), [(1, "this is a topology, not a proxy's file".to_owned())]);
    expect_message(topology, &["check it with `ratchet check proxy.yaml`, run it with `ratchet run proxy.yaml`"]);
    // A proxy's file with a stray key of a topology is still a proxy's file.
    assert_eq!(mistakes(&format!("{MINIMAL}name: payments\ncaller: none\n")), [(4, "unknown key `name`".to_owned())]);
}

#[test]
fn proxy_has_exactly_one_valid_store() {
    let with = |store: &str| MINIMAL.replace("{embedded: {dir: requests}}", store);
    let environment =
        Fake::default().with_variable("DB", "postgres://ann:hunter2@db/shop").with_variable("R", "redis://:hunter2@r");
    let read = |store: &str| load_text("proxy.yaml", &with(store), &environment);
    let config = read("{postgres: {url: '${env:DB}', schema: api}}").unwrap();
    assert_eq!(
        (config.store.kind(), config.store.describe().as_str()),
        ("postgres", "postgres, in the table api.request of database \"shop\" at db:5432 as user \"ann\"")
    );
    assert!(!format!("{config:?}").contains("hunter2"), "the password is shown");
    let config = read("{redis: {url: '${env:R}'}}").unwrap();
    assert_eq!((config.store.kind(), config.store.describe().as_str()), ("redis", "redis, at r:6379"));
    for (store, words) in [
        ("{postgres: {url: 'postgres://ann:hunter2@db/shop'}}", "the password in `store.postgres.url` is a secret"),
        ("{redis: {url: 'redis://:hunter2@r'}}", "the password in `store.redis.url` is a secret"),
        ("{postgres: {url: 'mysql://db'}}", "`store.postgres.url` is not the address of a database"),
        ("{redis: {url: 'http://r'}}", "`store.redis.url` is not the address of a server of Redis"),
        ("{embedded: {dir: a}, redis: {url: '${env:R}'}}", "a proxy has one store"),
        ("{embedded: {}}", "`store.embedded.dir` is missing"),
        ("{embedded: {dir: ~/a}}", "`store.embedded.dir` must be"),
    ] {
        let shown = read(store).expect_err(store).render(false);
        assert!(shown.contains(words), "{store}\n{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

/// A proxy's file for a command line with this service, caller and store.
fn command_line(upstream: &str, caller: Option<&str>, store: (&str, &str, Option<&str>)) -> String {
    crate::proxy::to_yaml(&crate::proxy::CommandLineSettings {
        listen: "127.0.0.1:0",
        upstream,
        http: "off",
        caller,
        store,
    })
}

#[test]
fn command_line_is_read_as_given() {
    let text = command_line("http://[::1]:3000", Some("Authorization"), ("embedded", "a \"folder\": #1", None));
    let config = loaded(&text);
    assert_eq!(config.store, StoreConfig::Embedded { dir: PathBuf::from("a \"folder\": #1"), bytes_max: None });
    assert_eq!(
        (config.listen.port(), config.metrics_listen, config.upstream.url().as_str()),
        (0, None, "http://[::1]:3000")
    );
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let text = command_line("b", Some("none"), ("postgres", "d", Some("${env:NONE}")));
    let all = load_text(COMMAND_LINE, &text, &Fake::default()).expect_err("two settings are wrong");
    assert_eq!(all.mistakes().len(), 2, "{}", all.render(false));
}

#[test]
fn missing_caller_on_the_command_line_is_warned_about_as_in_a_file() {
    let help = |text: &str, name: &str| {
        let config = load_text(name, text, &Fake::default()).unwrap_or_else(|all| panic!("{}", all.render(false)));
        let [warning] = &config.warnings[..] else { panic!("{:?}", config.warnings) };
        assert!(warning.message().contains("receive each other's answers"), "{warning}");
        warning.help_text().unwrap_or_default().to_owned()
    };
    let text = command_line("http://a", None, ("embedded", "d", None));
    assert!(help(&text, COMMAND_LINE).starts_with("pass `--caller none`"));
    assert!(help(MINIMAL, "proxy.yaml").starts_with("write `caller: {required: true}`"));
}

/// The tables of the reference.
fn tables() -> Vec<Table> {
    const KEYS: &str = "key | what | default";
    let is_of_rules = |name: &str| keys::RULE.key(name).is_some();
    let own = |mapping: &'static Mapping| {
        mapping.keys.iter().filter(|key| !is_of_rules(key.name)).map(|key| row("", key)).collect()
    };
    vec![
        ("proxy", KEYS, own(&keys::TOP)),
        ("route", KEYS, own(&keys::ROUTE)),
        ("rule", KEYS, rows(&keys::RULE)),
        ("store", KEYS, rows(&super::store::STORE)),
    ]
}

#[test]
fn reference_has_the_tables_of_the_keys() {
    compare_tables(&repository().join("docs/http-idempotency.md"), tables(), "src/proxy/settings/keys.rs");
}

#[test]
fn example_of_the_documentation_has_no_mistakes() {
    let page = std::fs::read_to_string(repository().join("docs/http-idempotency.md")).expect("the page");
    let (_, file) = page.split_once("\n### The file\n").expect("a section on the file");
    let (text, _) = file.split_once("```yaml\n").and_then(|(_, rest)| rest.split_once("```")).expect("an example");
    let known = Fake::default().with_variable("DATABASE_URL", "postgres://shop@localhost/shop");
    let config = load_text("proxy.yaml", text, &known).unwrap_or_else(|all| panic!("{text}\n{}", all.render(false)));
    assert_eq!((config.routes.len(), config.warnings.len()), (2, 0), "the route and the rest");
}

#[test]
fn every_key_has_a_description_and_an_example() {
    let all = keys::ALL.iter().chain(super::store::ALL);
    for key in all.clone().flat_map(|mapping| mapping.keys) {
        assert!(!key.about.is_empty() && !key.about.ends_with('.'), "{}: {}", key.name, key.about);
        assert!(key.example.contains(key.name), "{}: {}", key.name, key.example);
    }
    let count: usize = all.map(|mapping| mapping.keys.len()).sum();
    assert!(count > 50, "{count}");
}

#[test]
fn committed_schema_is_the_printed_one() {
    let path = repository().join("config/proxy.schema.json");
    if std::env::var_os("RATCHET_GOLDEN").is_some_and(|word| word == "write") {
        std::fs::write(&path, schema::text()).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == schema::text(),
        "config/proxy.schema.json is not what `ratchet schema proxy` prints: run `make schema`"
    );
    assert!(jsonschema::meta::is_valid(&schema::schema()));
}

#[test]
fn shipped_file_is_read_and_matches_the_schema() {
    let text = std::fs::read_to_string(repository().join("config/proxy.yaml")).unwrap();
    assert!(text.starts_with("# yaml-language-server: $schema=proxy.schema.json\n"), "it does not name its schema");
    let config = loaded(&text);
    assert!(config.routes.len() > 1 && config.warnings.is_empty(), "{config:?}");
    let validator = jsonschema::validator_for(&schema::schema()).unwrap();
    let refusals = |text: &str| validator.iter_errors(&crate::topology::tests::json_of(text)).count();
    assert_eq!(refusals(&text), 0);
    assert_eq!(refusals(MINIMAL), 0);
    assert!(refusals(&format!("{MINIMAL}routes: [{{key: off}}]\n")) > 0 && refusals("listen: a\n") > 0);
}
