//! Checks whether the settings of the schema registry fit together.

use super::super::layers;
use super::super::setting::{Collected, Setting};
use super::settings::{OAuth, SchemaRegistry};
use crate::yaml::Report;

/// Checks the settings together.
pub fn check(registry: &SchemaRegistry, collected: &Collected, report: &mut Report) {
    let SchemaRegistry { urls, username, password, token, oauth, certificate, key, .. } = registry;
    let OAuth { url, client_id, client_secret, .. } = oauth;
    let is_oauth = url.is_some() || client_id.is_some() || client_secret.is_some();
    // The first setting of each row needs the second one.
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
    for (given, is_given, needed, has_needed) in pairs {
        if is_given && !has_needed && !collected.may_miss(&name(needed)) {
            let message = format!("`{}` needs `{}`", name(given), name(needed));
            let help = format!("write both, or neither; the environment variable of the other is {}", variable(needed));
            mistake(collected, &name(given), report, message, "alone here", &help);
        }
    }
    let logins = [("username", username.is_some()), ("token", token.is_some()), ("oauth.url", is_oauth)];
    let given: Vec<&str> = logins.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| *name).collect();
    if let [first, second, ..] = given[..] {
        let message = format!("`{}` and `{}` are two ways to log in", name(first), name(second));
        mistake(collected, &name(second), report, message, "the second one", "keep one of them");
    }
    // An address that cannot be used was reported as such.
    let is_missing = urls.is_empty() && collected.last("schema_registry.url").is_none();
    if is_missing && !collected.may_miss("schema_registry.url") {
        // Ids are also read without a registry.
        let of_registry = |setting: &&Setting| {
            setting.name.starts_with("schema_registry.") && setting.name != "schema_registry.id_bytes"
        };
        if let Some(setting) = collected.settings.iter().find(of_registry) {
            let message = "`schema_registry.url` is missing: where is the schema registry?".to_owned();
            let help = "write e.g. `schema_registry: {url: \"http://localhost:8081\"}`";
            report.mistake((&setting.file, setting.name_place), message, "this setting needs a registry", help);
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
