//! OAUTHBEARER (RFC 7628, KIP-255), where `^A` is the byte 1.
//!
//! ```text
//! client  n,,^Aauth=Bearer TOKEN^Akey=value^A^A
//! broker  (empty)                                  the login is complete
//!      or {"status":"invalid_token", …}            the login is refused: this message is the challenge
//! client  ^A                                       after a challenge
//! broker  an error                                 after a challenge
//! ```
//!
//! **Failure**: the broker's challenge says why it refuses a token; the error that follows only ends the exchange.

use super::error::LoginError;
use super::token::Token;

/// Ends each part of the client's message, and is the client's whole response to a refusal.
const SEPARATOR: char = '\x01';
/// Longer challenges are not parsed.
const CHALLENGE_BYTES_MAX: usize = 8_192;

/// The message that is expected from the broker next.
pub enum Step {
    /// An empty message, or a refusal.
    Verdict,
    /// An error, after a challenge that gave this reason.
    Refused(String),
}

/// The client's first message.
pub fn begin(token: &Token) -> Vec<u8> {
    let mut message = format!("n,,{SEPARATOR}auth=Bearer {}{SEPARATOR}", token.value());
    for (key, value) in token.extensions() {
        message.extend([key, "=", value]);
        message.push(SEPARATOR);
    }
    message.push(SEPARATOR);
    message.into_bytes()
}

impl Step {
    /// Processes the broker's message; returns the next step and message, or `None` once the login is complete.
    pub fn next(self, message: &[u8]) -> Result<Option<(Self, Vec<u8>)>, LoginError> {
        match self {
            Self::Verdict if message.is_empty() => Ok(None),
            Self::Verdict => Ok(Some((Self::Refused(refusal(message)), vec![SEPARATOR as u8]))),
            Self::Refused(why) => Err(LoginError(why)),
        }
    }
}

/// The reason for the refusal that a challenge gives, in words for a person.
fn refusal(challenge: &[u8]) -> String {
    let hint = "its issuer and audience must be those that the broker trusts, and it must not have expired by the \
                broker's clock";
    let read = |challenge| serde_json::from_slice::<serde_json::Value>(challenge).ok();
    let read = Some(challenge).filter(|challenge| challenge.len() <= CHALLENGE_BYTES_MAX).and_then(read);
    let part = |name| read.as_ref().and_then(|read| read.get(name)).and_then(serde_json::Value::as_str);
    let status = part("status").map_or_else(|| String::from_utf8_lossy(challenge).into_owned(), str::to_owned);
    match part("scope") {
        Some(scope) => format!("it refuses the token: {status}; it requires the scope {scope}; {hint}"),
        None => format!("it refuses the token: {status}; {hint}"),
    }
}
