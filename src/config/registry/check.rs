//! Checks the schema registry's settings together.

use super::super::layers;
use super::super::setting::{Collected, Setting};
use super::settings::{OAuth, SchemaRegistry};
use crate::yaml::Report;

/// Checks the settings together.
pub fn check(registry: &SchemaRegistry, collected: &Collected, report: &mut Report) {
    let SchemaRegistry { urls, username, password, token, oauth, certificate, key, .. } = registry;
    let OAuth { url, client_id, client_secret, .. } = oauth;
    let is_oauth = url.is_some() || client_id.is_some() || client_secret.is_some();
    // Each needs what stands beside it.
    let pairs = [
        ("username", username.is_some(), "password", password.is_some()),
        ("password", password.is_some(), "username", username.is_some()),
        ("certificate", certificate.is_some(), "key", key.is_some()),
        ("key", key.is_some(), "certificate", certificate.is_some()),
        ("oauth.url", url.is_some(), "oauth.client_id", client_id.is_some()),
        ("oauth.client_id", client_id.is_some(), "oauth.client_secret", client_secret.is_some()),
        ("oauth.client_secret", client_secret.is_some(), "oauth.url", url.is_some()),
        ("oauth.scope", oauth.scope.is_some(), "oauth.url", url.is_some()),
        ("oauth.ca", oauth.ca.is_some(), "oauth.url", url.is_some()),
    ];
    let name = |name: &str| format!("schema_registry.{name}");
    for (given, is_given, needed, is_there) in pairs {
        if is_given && !is_there && !collected.may_miss(&name(needed)) {
            let message = format!("`{}` needs `{}`", name(given), name(needed));
            let help = format!("write both, or neither; the environment variable of the other is {}", variable(needed));
            mistake(collected, &name(given), report, message, "alone here", &help);
        }
    }
    let ways = [("username", username.is_some()), ("token", token.is_some()), ("oauth.url", is_oauth)];
    let given: Vec<&str> = ways.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
    if let [first, second, ..] = given[..] {
        let message = format!("`{}` and `{}` are two ways to log in", name(first), name(second));
        mistake(collected, &name(second), report, message, "the second one", "keep one of them");
    }
    if urls.is_empty() && !collected.may_miss("schema_registry.url") {
        let of_registry = |setting: &&Setting| {
            setting.name.starts_with("schema_registry.") && setting.name != "schema_registry.id_bytes"
        };
        if let Some(setting) = collected.settings.iter().find(of_registry) {
            let message = "`schema_registry.url` is missing: where is the schema registry?".to_owned();
            let help = "write e.g. `schema_registry: {url: \"http://localhost:8081\"}`";
            report.mistake((&setting.file, setting.name_place), message, "this is for a registry", help);
        }
    }
}

fn variable(name: &str) -> String {
    layers::variable_of(&format!("schema_registry.{name}"))
}

fn mistake(collected: &Collected, name: &str, report: &mut Report, message: String, label: &str, help: &str) {
    if let Some(setting) = collected.last(name) {
        report.mistake((&setting.file, setting.name_place), message, label, help);
    }
}
