//! The settings of the schema registry as other rooms use them, and the values among them that must not be shown.

use std::path::PathBuf;

use http::Uri;

use crate::yaml::Text;

/// The schema registry, and how to log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaRegistry {
    /// The registry's addresses, all with the same schemas; empty without a registry.
    pub urls: Vec<String>,
    /// The user of basic authentication.
    pub username: Option<Text>,
    /// The user's password.
    pub password: Option<Text>,
    /// A bearer token that never changes.
    pub token: Option<Text>,
    /// How bearer tokens are requested from a token endpoint.
    pub oauth: OAuth,
    /// The header `target-sr-cluster`: the registry's cluster, for tokens at Confluent Cloud.
    pub logical_cluster: Option<Text>,
    /// The header `Confluent-Identity-Pool-Id`: the identity pool, for tokens at Confluent Cloud.
    pub identity_pool: Option<Text>,
    /// A file with the certificates of trusted authorities, in place of the system's.
    pub ca: Option<PathBuf>,
    /// A file with ratchet's own certificate.
    pub certificate: Option<PathBuf>,
    /// A file with the key of that certificate.
    pub key: Option<PathBuf>,
    /// Whether numeric ids in records take eight bytes instead of four.
    pub are_ids_long: bool,
    /// The kind of numeric ids in records, at Apicurio.
    pub ids_of: IdsOf,
    /// How long a request may take, in milliseconds.
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

/// The token endpoint, and the client credentials for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuth {
    /// The token endpoint.
    pub url: Option<String>,
    /// The client's id.
    pub client_id: Option<Text>,
    /// The client's secret.
    pub client_secret: Option<Text>,
    /// The scope of the tokens.
    pub scope: Option<Text>,
    /// A file with the certificates of trusted authorities, in place of the system's.
    pub ca: Option<PathBuf>,
}

/// The kind of Apicurio's ids that the numbers in records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdsOf {
    /// Content ids: the default of Apicurio's serializers since 3.
    Contents,
    /// Global ids, each of one version of an artifact: the default before.
    Versions,
}

/// Whether a setting of the schema registry holds a secret.
pub fn is_secret(name: &str) -> bool {
    matches!(name, "schema_registry.password" | "schema_registry.token" | "schema_registry.oauth.client_secret")
}

/// Whether a key in a file, at any depth, may be the last part of such a setting's name.
pub fn is_secret_key(key: &str) -> bool {
    key == "token" || key == "schema_registry.token"
}

/// Whether a text looks like an address with a user, and so perhaps with a password.
pub fn names_a_user(text: &str) -> bool {
    text.split(',').any(|one| {
        let authority = one.split_once("://").and_then(|(_, rest)| rest.split(['/', '?', '#']).next());
        authority.is_some_and(|authority| authority.contains('@'))
    })
}

/// Whether a text is an HTTP address without a user, a query or a fragment.
pub fn is_address(text: &str) -> bool {
    let url = text.parse::<Uri>().ok().filter(|_| !text.contains(['@', '?', '#']));
    url.is_some_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some_and(|host| !host.is_empty())
    })
}
