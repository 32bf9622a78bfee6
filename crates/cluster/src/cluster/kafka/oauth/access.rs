//! Access tokens for a service other than Kafka, such as a schema registry.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::super::wire::login::NoToken;
use super::credentials::{Credentials, Names, url_of};
use super::source::Source;

/// How messages name the settings of a schema registry.
static OF_A_REGISTRY: Names = Names {
    purpose: "for the schema registry",
    all: "schema_registry.oauth.client_id, schema_registry.oauth.client_secret, schema_registry.oauth.scope or \
          schema_registry.oauth.url",
    url: "schema_registry.oauth.url",
    authorities: "schema_registry.oauth.ca",
    are_opaque: true,
};

/// A client of a token endpoint that grants access to a schema registry. No `Debug`: it holds a secret.
#[derive(Clone)]
pub struct TokenClient {
    /// The address of the token endpoint.
    pub url: String,
    /// The client's id.
    pub client_id: String,
    /// The client's secret.
    pub client_secret: String,
    /// The scope to request, if any.
    pub scope: Option<String>,
    /// A file with the certificates of the endpoint's authorities; without it, the system's authorities are trusted.
    pub authorities: Option<PathBuf>,
}

/// Access tokens for a schema registry. A thread of their own renews them before they expire.
pub struct AccessTokens(Arc<Source>);

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAccess {
    /// Whether a person has to fix it.
    pub is_lasting: bool,
    /// Whether the first request is still open, and none has failed yet.
    pub is_awaited: bool,
    /// What happened, and what to do about it. Never contains a secret.
    pub why: String,
}

impl std::fmt::Debug for AccessTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessTokens")
    }
}

impl AccessTokens {
    /// Starts to obtain tokens.
    ///
    /// # Errors
    /// The address or the authorities cannot be used.
    pub fn begin(client: TokenClient) -> Result<Self, String> {
        let TokenClient { url, client_id, client_secret, scope, authorities } = client;
        let url = url_of(&url);
        let url = url
            .ok_or_else(|| format!("{} is no address such as https://host/path, without a user", OF_A_REGISTRY.url))?;
        let ca_location = authorities.map(|path| path.to_string_lossy().into_owned());
        let (extensions, ca_pem, names) = (Vec::new(), None, &OF_A_REGISTRY);
        let credentials = Credentials { client_id, client_secret, scope, extensions, url, ca_location, ca_pem, names };
        let source = Source::of(credentials).map_err(|error| error.message)?;
        source.start_obtaining_tokens();
        Ok(Self(source))
    }

    /// The token that is valid now.
    ///
    /// # Errors
    /// No token has been obtained yet, or the last one has expired and no other could be obtained.
    pub fn current(&self) -> Result<String, NoAccess> {
        let (tokens, now) = (self.0.tokens(), Instant::now());
        tokens.get(now).map(|token| token.value().to_owned()).map_err(|NoToken { is_lasting, why }| NoAccess {
            is_lasting,
            is_awaited: !tokens.has_failed(),
            why,
        })
    }
}
