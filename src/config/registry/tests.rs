//! Goal: settings are read from all layers, mistakes say what to do, and a value that may hold a password is never
//! shown.

use std::path::{Path, PathBuf};

use super::super::{Config, load};
use super::*;
use crate::yaml::Text;
use crate::yaml_testing::Fake;

#[test]
fn addresses_are_http_addresses_without_a_user() {
    for good in ["http://localhost:8081", "https://host/apis/ccompat/v7", "http://[::1]:8081/"] {
        assert!(is_address(good) && !names_a_user(good), "{good}");
    }
    for bad in ["", "localhost:8081", "ftp://host", "http://me:hunter2@host", "http://host?x=y", "http://"] {
        assert!(!is_address(bad), "{bad}");
    }
    assert!(names_a_user("http://host,https://me:hunter2@host/") && !names_a_user("http://host/me@you"));
}

fn loaded(text: &str, environment: Fake) -> Result<Config, String> {
    let text = format!("kafka: {{bootstrap.servers: 'b:9092'}}\n{text}");
    let loaded = load(Some(Path::new("r.yaml")), &[], &environment.with_file("r.yaml", text.as_str()));
    loaded.map_err(|diagnostics| diagnostics.render(false))
}

fn refused(text: &str, said: &str) {
    let rendered = loaded(text, Fake::default()).expect_err("a mistake");
    assert!(rendered.contains(said), "no {said:?} in {rendered}");
    assert!(!rendered.contains("hunter2"), "{rendered}");
}

#[test]
fn settings_are_read_from_all_layers_and_secrets_stay_hidden() {
    let environment = Fake::default()
        .with_variable("PASSWORD", "hunter2")
        .with_variable("RATCHET_SCHEMA_REGISTRY__ID_BYTES", "8")
        .with_variable("RATCHET_SCHEMAS__DIR", "/schemas");
    let text = "schema_registry:\n  url: 'http://a:8081, https://b/apis/ccompat/v7'\n  username: me\n  \
                password: '${env:PASSWORD}'\n  timeout: 3s\n  ids_of: versions\n";
    let config = loaded(text, environment).unwrap();
    let registry = &config.schema_registry;
    assert_eq!(registry.urls, ["http://a:8081", "https://b/apis/ccompat/v7"]);
    assert_eq!(registry.password.as_ref().map(Text::reveal), Some("hunter2"));
    assert_eq!((registry.timeout_ms, registry.are_ids_long, registry.ids_of), (3_000, true, IdsOf::Versions));
    assert_eq!(config.schemas_dir, Some(PathBuf::from("/schemas")));
    let shown = config.to_string();
    assert!(shown.contains("schema_registry:\n  url: http://a:8081,https://b/apis/ccompat/v7\n"), "{shown}");
    assert!(shown.contains("  password: ***\n") && !shown.contains("hunter2"), "{shown}");
    let by_variable = Fake::default()
        .with_variable("RATCHET_SCHEMA_REGISTRY__URL", "http://a")
        .with_variable("RATCHET_SCHEMA_REGISTRY__TOKEN", "hunter2");
    let config = loaded("", by_variable).unwrap();
    assert_eq!(config.schema_registry.token.as_ref().map(Text::reveal), Some("hunter2"));
    assert!(!format!("{config:?} {:?}", config.schema_registry).contains("hunter2"));
}

#[test]
fn settings_are_not_shown_without_a_registry() {
    let config = loaded("", Fake::default()).unwrap();
    assert_eq!(config.schema_registry, SchemaRegistry::default());
    assert!(!config.to_string().contains("schema"), "{config}");
}

#[test]
fn mistakes_name_the_settings_that_are_missing_or_excluded() {
    let with = |more: &str| format!("schema_registry: {{url: 'http://a', {more}}}\n");
    refused(&with("username: me"), "`schema_registry.username` needs `schema_registry.password`");
    refused(&with("certificate: /c"), "`schema_registry.certificate` needs `schema_registry.key`");
    refused(&with("oauth: {url: 'http://t', client_id: me}"), "needs `schema_registry.oauth.client_secret`");
    refused(&with("oauth: {url: 'http://t,http://u'}"), "must be an address");
    refused(&with("oauth.scope: s"), "`schema_registry.oauth.scope` needs `schema_registry.oauth.url`");
    refused("schema_registry: {username: me}\n", "needs `schema_registry.password`");
    refused("schema_registry: {ca: /c}\n", "`schema_registry.url` is missing");
    refused(&with("id_bytes: 5"), "id_bytes");
    refused(&with("timeout: 1ms"), "from 100ms to 5m");
    refused("schema_registry: {url: 'localhost:8081'}\n", "begins with http:// or https://");
    refused("schema_registry: {url: 'http://me:hunter2@a'}\n", "without a user");
    let wrong = loaded("schema_registry: {url: 'localhost:8081'}\n", Fake::default()).unwrap_err();
    assert!(!wrong.contains("is missing"), "{wrong}");
    refused("schema_registry: {url: 'http://a', password: hunter2, username: me}\n", "must not be written out");
    refused("schema_registry: {url: 'http://a', token: hunter2}\n", "must not be written out");
    let both = Fake::default().with_variable("X", "hunter2");
    let both = loaded(&with("token: '${env:X}', username: me, password: '${env:X}'"), both).unwrap_err();
    assert!(both.contains("are two ways to log in") && !both.contains("hunter2"), "{both}");
}
