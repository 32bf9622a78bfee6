//! How a client logs in (SASL): PLAIN, SCRAM and OAUTHBEARER, their messages and the requests that carry them.
//!
//! SaslHandshake names the mechanism, SaslAuthenticate carries a message each way until the login is complete (KIP-43,
//! KIP-152). A broker may limit the login's lifetime (KIP-368); the connection then logs in again in time.
//!
//! Names and passwords are sent as they are written, without SASLprep: Kafka's brokers and clients do the same.
//!
//! **Failure**: a broker's refusal, an invalid response, or a missing proof that the broker knows the password is
//! [`LoginError`]. No error message holds a password or a token, not even if a broker sends it back.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

pub use self::error::LoginError;
pub use self::token::{NoToken, Token, Tokens, check_extension};
use super::code::UNSUPPORTED_SASL_MECHANISM;
use super::connection::fields::{Fields, put, put_bytes, put_no_tags};

mod bearer;
mod error;
pub(super) mod scram;
#[cfg(test)]
mod tests;
mod token;

/// SaslHandshake's API key.
pub const HANDSHAKE: i16 = 17;
/// Its only usable version: after a handshake of version 0, the messages of the login would not be sent in requests.
pub const HANDSHAKE_VERSION: i16 = 1;
/// SaslAuthenticate's API key.
pub const AUTHENTICATE: i16 = 36;
/// Its versions.
pub const AUTHENTICATE_VERSIONS: std::ops::RangeInclusive<i16> = 0..=2;
/// The most characters of a broker's text that are passed on.
const BROKER_TEXT_CHARS_MAX: usize = 300;
/// Random bytes of a nonce.
pub const NONCE_BYTES: usize = 24;

/// How a client logs in. TLS is handled by the module `edge`. `Debug` shows no password and no token.
#[derive(Clone, Default)]
pub enum Login {
    /// Without a login, or by the certificate of the TLS connection.
    #[default]
    None,
    /// SASL PLAIN (RFC 4616): the password is sent as it is.
    Plain {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// SCRAM-SHA-256 or SCRAM-SHA-512 (RFC 5802, RFC 7677): the password is not sent, and the broker has to prove that
    /// it knows the keys derived from it.
    Scram {
        /// Whether by SHA-512.
        sha512: bool,
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// OAUTHBEARER, with the token that is valid when a connection begins to log in: [`Login::with_current_token`]
    /// turns this into [`Login::Bearer`].
    OAuth(Arc<Tokens>),
    /// OAUTHBEARER with this token.
    Bearer(Arc<Token>),
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Plain { user, .. } => f.debug_struct("Plain").field("user", user).finish_non_exhaustive(),
            Self::Scram { sha512, user, .. } => {
                f.debug_struct("Scram").field("sha512", sha512).field("user", user).finish_non_exhaustive()
            }
            Self::OAuth(_) => f.write_str("OAuth"),
            Self::Bearer(_) => f.write_str("Bearer"),
        }
    }
}

impl Login {
    /// The mechanism's name (IANA's), `None` for no login.
    pub fn mechanism(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Plain { .. } => Some("PLAIN"),
            Self::Scram { sha512: false, .. } => Some("SCRAM-SHA-256"),
            Self::Scram { sha512: true, .. } => Some("SCRAM-SHA-512"),
            Self::OAuth(_) | Self::Bearer(_) => Some("OAUTHBEARER"),
        }
    }

    /// This login with the token that is valid now: a connection uses the same token from the beginning to the end of
    /// its login.
    ///
    /// # Errors
    /// The login needs a token, and none is available.
    pub fn with_current_token(&self, now: Instant) -> Result<Self, NoToken> {
        match self {
            Self::OAuth(tokens) => tokens.get(now).map(Self::Bearer),
            other => Ok(other.clone()),
        }
    }

    fn secret(&self) -> &str {
        match self {
            Self::None | Self::OAuth(_) => "",
            Self::Plain { password, .. } | Self::Scram { password, .. } => password,
            Self::Bearer(token) => token.value(),
        }
    }

    /// A broker's text in a form for logs: on one line, not too long, without the password or the token.
    pub fn clean(&self, text: &str) -> String {
        let secret = self.secret();
        let hidden = if secret.is_empty() { text.to_owned() } else { text.replace(secret, "[hidden]") };
        hidden.chars().take(BROKER_TEXT_CHARS_MAX).map(|char| if char.is_control() { ' ' } else { char }).collect()
    }
}

/// The messages of a login that are still to be exchanged. `Debug` shows no content, which may be keys derived from a
/// password.
pub struct Dialogue(Step);

enum Step {
    /// PLAIN's message was sent.
    Plain,
    Scram(scram::Step),
    Bearer(bearer::Step),
    Done,
}

impl fmt::Debug for Dialogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialogue")
    }
}

impl Dialogue {
    /// Begins a login, and returns the first message too. `nonce` has to be new and unpredictable.
    ///
    /// # Errors
    /// The name or the password cannot be sent by this mechanism.
    pub fn begin(login: &Login, nonce: [u8; NONCE_BYTES]) -> Result<(Self, Vec<u8>), LoginError> {
        match login {
            Login::None => Ok((Self(Step::Done), Vec::new())),
            Login::Plain { user, password } => {
                if [user, password].iter().any(|part| part.contains('\0')) {
                    return Err(LoginError(
                        "a user name or password for PLAIN must not contain a zero byte".to_owned(),
                    ));
                }
                Ok((Self(Step::Plain), ["", user, password].join("\0").into_bytes()))
            }
            Login::Scram { sha512, user, .. } => {
                let (step, message) = scram::begin(*sha512, user, &nonce);
                Ok((Self(Step::Scram(step)), message))
            }
            Login::OAuth(_) => Err(LoginError("there is no token to log in with".to_owned())),
            Login::Bearer(token) => Ok((Self(Step::Bearer(bearer::Step::Verdict)), bearer::begin(token))),
        }
    }

    /// Processes the broker's message. Returns the next message to send, or `None` once the login is complete.
    ///
    /// # Errors
    /// The broker refused, or did not prove that it knows the password.
    pub fn next(&mut self, login: &Login, message: &[u8]) -> Result<Option<Vec<u8>>, LoginError> {
        match std::mem::replace(&mut self.0, Step::Done) {
            Step::Plain => Ok(None),
            Step::Scram(step) => {
                let next =
                    step.next(login.secret(), message).map_err(|LoginError(why)| LoginError(login.clean(&why)))?;
                let Some((step, message)) = next else { return Ok(None) };
                self.0 = Step::Scram(step);
                Ok(Some(message))
            }
            Step::Bearer(step) => {
                let next = step.next(message).map_err(|LoginError(why)| LoginError(login.clean(&why)))?;
                let Some((step, message)) = next else { return Ok(None) };
                self.0 = Step::Bearer(step);
                Ok(Some(message))
            }
            Step::Done => Err(LoginError("the broker sent a message after the login was complete".to_owned())),
        }
    }

    /// The error of a refused login: the reason that the broker gave in an earlier message, or else `error`.
    pub fn refused(self, login: &Login, error: LoginError) -> LoginError {
        match self.0 {
            Step::Bearer(bearer::Step::Refused(why)) => LoginError(login.clean(&why)),
            _ => error,
        }
    }
}

/// The body of a SaslHandshake for this mechanism.
pub fn handshake(mechanism: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, mechanism, false);
    out
}

/// Reads a SaslHandshake's response.
///
/// # Errors
/// The broker does not offer the mechanism, or the response is malformed.
pub fn read_handshake_response(login: &Login, body: &[u8]) -> Result<(), LoginError> {
    let read = || {
        let mut fields = Fields::new(body, false);
        let error = fields.reader.i16()?;
        let offered = (0..fields.count(2)?).map(|_| fields.text()).collect::<Option<Vec<_>>>()?;
        Some((error, offered))
    };
    let (error, offered) = read().ok_or_else(|| LoginError("its response to a login is malformed".to_owned()))?;
    let mechanism = login.mechanism().unwrap_or("none");
    match error {
        0 => Ok(()),
        UNSUPPORTED_SASL_MECHANISM => {
            let offered = login.clean(&offered.join(", "));
            Err(LoginError(format!("it does not support the login {mechanism}, only {offered}")))
        }
        _ => Err(LoginError(format!("it refuses the login {mechanism}: error {error}"))),
    }
}

/// The body of a SaslAuthenticate in this version, which carries `message`.
pub fn authenticate_request(message: &[u8], version: i16) -> Vec<u8> {
    let (mut out, is_flexible) = (Vec::new(), version >= 2);
    put_bytes(&mut out, message, is_flexible);
    put_no_tags(&mut out, is_flexible);
    out
}

/// Reads a SaslAuthenticate's response in this version: the broker's message, and the login's lifetime in milliseconds,
/// 0 for unlimited.
///
/// # Errors
/// The broker refuses, or the response is malformed.
pub fn read_authenticate_response<'a>(
    login: &Login,
    body: &'a [u8],
    version: i16,
) -> Result<(&'a [u8], u64), LoginError> {
    let read = || {
        let mut fields = Fields::new(body, version >= 2);
        let (error, text, message) = (fields.reader.i16()?, fields.nullable_text()?, fields.bytes()?);
        let lifetime_ms = if version >= 1 { fields.reader.i64()? } else { 0 };
        Some((error, text.unwrap_or_default(), message, lifetime_ms))
    };
    let (error, text, message, lifetime_ms) =
        read().ok_or_else(|| LoginError("its response to a login is malformed".to_owned()))?;
    match error {
        0 => Ok((message, lifetime_ms.try_into().unwrap_or(0))),
        _ if text.is_empty() => Err(LoginError(format!("it refuses the login: error {error}"))),
        _ => Err(LoginError(format!("it refuses the login: {}", login.clean(text)))),
    }
}
