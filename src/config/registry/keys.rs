//! How the settings of the schema registry, and of the folder of schemas, are written.

use std::path::PathBuf;

use super::super::key::{Key, put};
use super::settings::IdsOf;
use crate::yaml::keys::Omitted;
use crate::yaml::{Text, units};

fn shown(text: Option<&Text>) -> Option<String> {
    text.map(Text::to_string)
}

fn path(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

/// All of these settings.
pub static KEYS: &[Key] = &[
    Key {
        name: "schema_registry.url",
        default: Omitted::Words("none"),
        about: "the registry's address, with the path of its API: Confluent's (at Apicurio `/apis/ccompat/v7`), or \
                Apicurio's own (`/apis/registry/v3`). Several addresses of one registry are separated by commas; if \
                one fails, the next is asked",
        put: |draft, typed| put(&mut draft.config.schema_registry.urls, typed.addresses("http://localhost:8081")),
        show: |config| (!config.schema_registry.urls.is_empty()).then(|| config.schema_registry.urls.join(",")),
    },
    Key {
        name: "schema_registry.username",
        default: Omitted::Words("none"),
        about: "the user of basic authentication, with `schema_registry.password`; at Confluent Cloud an API key",
        put: |draft, typed| draft.config.schema_registry.username = Some(typed.text()),
        show: |config| shown(config.schema_registry.username.as_ref()),
    },
    Key {
        name: "schema_registry.password",
        default: Omitted::Words("none"),
        about: "the user's password, a secret: `${env:NAME}` or `${file:PATH}`",
        put: |draft, typed| draft.config.schema_registry.password = Some(typed.text()),
        show: |config| shown(config.schema_registry.password.as_ref()),
    },
    Key {
        name: "schema_registry.token",
        default: Omitted::Words("none"),
        about: "a fixed bearer token, in place of a user; a secret",
        put: |draft, typed| draft.config.schema_registry.token = Some(typed.text()),
        show: |config| shown(config.schema_registry.token.as_ref()),
    },
    Key {
        name: "schema_registry.oauth.url",
        default: Omitted::Words("none"),
        about: "the token endpoint, if bearer tokens are requested with client credentials; they are renewed in time",
        put: |draft, typed| {
            draft.config.schema_registry.oauth.url = typed.address("https://login.example.com/oauth2/token");
        },
        show: |config| config.schema_registry.oauth.url.clone(),
    },
    Key {
        name: "schema_registry.oauth.client_id",
        default: Omitted::Words("none"),
        about: "the client's id at the token endpoint",
        put: |draft, typed| draft.config.schema_registry.oauth.client_id = Some(typed.text()),
        show: |config| shown(config.schema_registry.oauth.client_id.as_ref()),
    },
    Key {
        name: "schema_registry.oauth.client_secret",
        default: Omitted::Words("none"),
        about: "the client's secret at the token endpoint",
        put: |draft, typed| draft.config.schema_registry.oauth.client_secret = Some(typed.text()),
        show: |config| shown(config.schema_registry.oauth.client_secret.as_ref()),
    },
    Key {
        name: "schema_registry.oauth.scope",
        default: Omitted::Words("none"),
        about: "the scope of the tokens",
        put: |draft, typed| draft.config.schema_registry.oauth.scope = Some(typed.text()),
        show: |config| shown(config.schema_registry.oauth.scope.as_ref()),
    },
    Key {
        name: "schema_registry.oauth.ca",
        default: Omitted::Words("the system's"),
        about: "a file with the certificates of the token endpoint's trusted authorities",
        put: |draft, typed| draft.config.schema_registry.oauth.ca = typed.file("/etc/ratchet/ca.pem"),
        show: |config| path(config.schema_registry.oauth.ca.as_ref()),
    },
    Key {
        name: "schema_registry.logical_cluster",
        default: Omitted::Words("none"),
        about: "the registry's cluster (`lsrc-…`), for tokens at Confluent Cloud; sent as `target-sr-cluster`",
        put: |draft, typed| draft.config.schema_registry.logical_cluster = Some(typed.text()),
        show: |config| shown(config.schema_registry.logical_cluster.as_ref()),
    },
    Key {
        name: "schema_registry.identity_pool",
        default: Omitted::Words("none"),
        about: "the identity pool (`pool-…`), for tokens at Confluent Cloud",
        put: |draft, typed| draft.config.schema_registry.identity_pool = Some(typed.text()),
        show: |config| shown(config.schema_registry.identity_pool.as_ref()),
    },
    Key {
        name: "schema_registry.ca",
        default: Omitted::Words("the system's"),
        about: "a file with the certificates of the registry's trusted authorities",
        put: |draft, typed| draft.config.schema_registry.ca = typed.file("/etc/ratchet/ca.pem"),
        show: |config| path(config.schema_registry.ca.as_ref()),
    },
    Key {
        name: "schema_registry.certificate",
        default: Omitted::Words("none"),
        about: "a file with ratchet's own certificate, for mutual TLS, with `schema_registry.key`",
        put: |draft, typed| draft.config.schema_registry.certificate = typed.file("/etc/ratchet/client.pem"),
        show: |config| path(config.schema_registry.certificate.as_ref()),
    },
    Key {
        name: "schema_registry.key",
        default: Omitted::Words("none"),
        about: "a file with the key of that certificate, not encrypted",
        put: |draft, typed| draft.config.schema_registry.key = typed.file("/etc/ratchet/client.key"),
        show: |config| path(config.schema_registry.key.as_ref()),
    },
    Key {
        name: "schema_registry.id_bytes",
        default: Omitted::Is("4"),
        about: "the length of the numeric schema ids in records: `4`, or `8` for Apicurio's serializers before 3",
        put: |draft, typed| {
            put(&mut draft.config.schema_registry.are_ids_long, typed.choice(&[("4", false), ("8", true)]));
        },
        show: |config| {
            let is_used = !config.schema_registry.urls.is_empty() || config.schemas_dir.is_some();
            is_used.then(|| if config.schema_registry.are_ids_long { "8" } else { "4" }.to_owned())
        },
    },
    Key {
        name: "schema_registry.ids_of",
        default: Omitted::Is("contents"),
        about: "for Apicurio's own API, the kind of the numeric schema ids in records: content ids (`contents`), \
                which its serializers write since 3, or global ids (`versions`)",
        put: |draft, typed| {
            let choices = [("contents", IdsOf::Contents), ("versions", IdsOf::Versions)];
            put(&mut draft.config.schema_registry.ids_of, typed.choice(&choices));
        },
        show: |config| {
            (!config.schema_registry.urls.is_empty()).then(|| match config.schema_registry.ids_of {
                IdsOf::Contents => "contents".to_owned(),
                IdsOf::Versions => "versions".to_owned(),
            })
        },
    },
    Key {
        name: "schema_registry.timeout",
        default: Omitted::Is("10s"),
        about: "how long a request may take, connecting included",
        put: |draft, typed| put(&mut draft.config.schema_registry.timeout_ms, typed.answer_ms("10s")),
        show: |config| {
            let timeout = std::time::Duration::from_millis(config.schema_registry.timeout_ms);
            (!config.schema_registry.urls.is_empty()).then(|| units::show_duration(timeout))
        },
    },
    Key {
        name: "schemas.dir",
        default: Omitted::Words("none"),
        about: "a folder of schema files, which [are used](formats.md#schemas-in-files) before the registry",
        put: |draft, typed| draft.config.schemas_dir = typed.path("schemas"),
        show: |config| path(config.schemas_dir.as_ref()),
    },
];
