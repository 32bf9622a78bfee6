//! The schema registry's settings as the other rooms read them, and what of them must not be shown.

use std::path::PathBuf;

use http::Uri;

use crate::yaml::Text;

/// Where schemas are fetched from, and as whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaRegistry {
    /// The registry's addresses, all with the same schemas; none if there is no registry.
    pub urls: Vec<String>,
    /// Basic authentication: the user.
    pub username: Option<Text>,
    /// The user's password.
    pub password: Option<Text>,
    /// A bearer token that never changes.
    pub token: Option<Text>,
    /// Bearer tokens from a token endpoint.
    pub oauth: OAuth,
    /// The header `target-sr-cluster`: the cluster, at Confluent Cloud, that tokens are for.
    pub logical_cluster: Option<Text>,
    /// The header `Confluent-Identity-Pool-Id`.
    pub identity_pool: Option<Text>,
    /// A file of authorities' certificates, in place of the system's.
    pub ca: Option<PathBuf>,
    /// A file of the client's certificate.
    pub certificate: Option<PathBuf>,
    /// The file of its key.
    pub key: Option<PathBuf>,
    /// Whether numbers in records take eight bytes instead of four.
    pub are_ids_long: bool,
    /// What numbers in records are at Apicurio.
    pub ids_of: IdsOf,
    /// How long an answer may take, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for SchemaRegistry {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            username: None,
            password: None,
            token: None,
            oauth: OAuth::default(),
            logical_cluster: None,
            identity_pool: None,
            ca: None,
            certificate: None,
            key: None,
            are_ids_long: false,
            ids_of: IdsOf::Contents,
            timeout_ms: 10_000,
        }
    }
}

/// How tokens are asked for, by client credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuth {
    /// The token endpoint.
    pub url: Option<String>,
    /// The client.
    pub client_id: Option<Text>,
    /// Its password.
    pub client_secret: Option<Text>,
    /// What tokens are to be good for.
    pub scope: Option<Text>,
    /// A file of the certificates of the endpoint's authorities.
    pub ca: Option<PathBuf>,
}

/// What a number in a record is an id of, at Apicurio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdsOf {
    /// Of a content: its serializers' default since 3.
    Contents,
    /// Of a version of an artifact: their default before.
    Versions,
}

/// Whether a setting is one of these that holds a secret.
pub fn is_secret(name: &str) -> bool {
    matches!(name, "schema_registry.password" | "schema_registry.token" | "schema_registry.oauth.client_secret")
}

/// Whether a key of a file, at whatever depth, may be the end of such a name.
pub fn is_secret_key(key: &str) -> bool {
    key == "token" || key == "schema_registry.token"
}

/// Whether a text looks like an address with a user, who may have a password.
pub fn names_a_user(text: &str) -> bool {
    text.split(',').any(|one| {
        let authority = one.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
        authority.is_some_and(|authority| authority.contains('@'))
    })
}

/// Whether a text is an address of HTTP, without a user, a query or a fragment.
pub fn is_address(text: &str) -> bool {
    let url = text.parse::<Uri>().ok().filter(|_| !text.contains(['@', '?', '#']));
    url.is_some_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty())
    })
}
