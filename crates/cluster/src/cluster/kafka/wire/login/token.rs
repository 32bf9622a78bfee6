//! The tokens of OAUTHBEARER logins, and the cell in which the connections of all clients find them.
//!
//! The source of tokens (the module `oauth`, or a simulation) puts the next token into the cell before the last one
//! ends, or the reason why there is none. A connection reads the cell when it begins to log in: it never requests a
//! token itself.
//!
//! **Failure**: tokens are never shown, not even by `Debug`. A token or an extension with characters that would break
//! the message's format is refused when it is made.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// A token, and the extensions that are sent with it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    value: String,
    extensions: Vec<(String, String)>,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

impl Token {
    /// A token with these extensions, which [`check_extension`] has to accept.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(value: String, extensions: Vec<(String, String)>) -> Result<Self, &'static str> {
        if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token must consist of visible ASCII characters");
        }
        extensions.iter().try_for_each(|(key, value)| check_extension(key, value))?;
        Ok(Self { value, extensions })
    }

    /// The token itself.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The extensions that are sent with it.
    pub fn extensions(&self) -> &[(String, String)] {
        &self.extensions
    }
}

/// Whether this extension can be sent with a token (RFC 7628, section 3.1).
///
/// # Errors
/// What is wrong with it.
pub fn check_extension(key: &str, value: &str) -> Result<(), &'static str> {
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return Err("the name of an extension must consist of ASCII letters");
    }
    if key == "auth" {
        return Err("an extension must not be called auth, the name of the token itself");
    }
    match value.bytes().all(|byte| byte.is_ascii_graphic() || b" \t\r\n".contains(&byte)) {
        true => Ok(()),
        false => Err("the value of an extension may contain only visible ASCII characters and white space"),
    }
}

/// Why no token is available.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoToken {
    /// Whether a person has to fix it.
    pub is_lasting: bool,
    /// What happened, and what to do about it; never holds a secret.
    pub why: String,
}

/// The cell in which the connections of all clients find the token.
#[derive(Default)]
pub struct Tokens(Mutex<Contents>);

#[derive(Default)]
struct Contents {
    /// The token, and when its validity ends.
    token: Option<(Arc<Token>, Instant)>,
    /// Why the last attempt to obtain a token failed, if no token was put since.
    missing: Option<NoToken>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tokens")
    }
}

impl Tokens {
    /// Replaces the token with one that is valid until `end`.
    pub fn put(&self, token: Arc<Token>, end: Instant) {
        *self.lock() = Contents { token: Some((token, end)), missing: None };
    }

    /// Notes why no other token could be obtained. The last one stays valid until its end.
    pub fn fail(&self, missing: NoToken) {
        self.lock().missing = Some(missing);
    }

    /// The token that is valid now.
    ///
    /// # Errors
    /// Why no token is available.
    pub fn get(&self, now: Instant) -> Result<Arc<Token>, NoToken> {
        let contents = self.lock();
        match (&contents.token, &contents.missing) {
            (Some((token, end)), _) if *end > now => Ok(Arc::clone(token)),
            (_, Some(missing)) => Err(missing.clone()),
            (_, None) => Err(NoToken { is_lasting: false, why: "the token endpoint has not answered yet".to_owned() }),
        }
    }

    /// Whether the last attempt to obtain a token failed.
    pub fn has_failed(&self) -> bool {
        self.lock().missing.is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
