//! Tokens for other services than Kafka, such as a schema registry: from the same kind of endpoint, by the same source.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::super::wire::login::NoToken;
use super::credentials::{Credentials, Names, url_of};
use super::source::Source;

/// The settings' names in messages.
static OF_A_REGISTRY: Names = Names {
    purpose: "for the schema registry",
    all: "schema_registry.oauth.client_id, schema_registry.oauth.client_secret, schema_registry.oauth.scope or \
          schema_registry.oauth.url",
    url: "schema_registry.oauth.url",
    authorities: "schema_registry.oauth.ca",
    are_opaque: true,
};

/// Whom tokens for a schema registry are asked for, and as whom. No `Debug`: it holds a secret.
#[derive(Clone)]
pub struct TokenClient {
    /// The token endpoint's address.
    pub url: String,
    /// The client.
    pub client_id: String,
    /// Its password.
    pub client_secret: String,
    /// What the token is to be good for, if that is said.
    pub scope: Option<String>,
    /// A file of the certificates of the endpoint's authorities; the system's without it.
    pub authorities: Option<PathBuf>,
}

/// Tokens for a schema registry, renewed before they end, by a thread of their own.
pub struct AccessTokens(Arc<Source>);

/// Why there is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAccess {
    /// Whether a person has to fix it.
    pub is_lasting: bool,
    /// Whether it has been asked for, and nothing has failed yet.
    pub is_awaited: bool,
    /// What happened, and what to do about it; never holds a secret.
    pub why: String,
}

impl std::fmt::Debug for AccessTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessTokens")
    }
}

impl AccessTokens {
    /// Begins to obtain tokens.
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
    /// There is none yet, or none any more.
    pub fn current(&self) -> Result<String, NoAccess> {
        let (tokens, now) = (self.0.tokens(), Instant::now());
        tokens.get(now).map(|token| token.value().to_owned()).map_err(|NoToken { is_lasting, why }| NoAccess {
            is_lasting,
            is_awaited: !tokens.has_failed(),
            why,
        })
    }
}
