//! What a token endpoint's answers mean.
//!
//! A token for Kafka has to be a JWT whose payload says when it expires (`exp`), as librdkafka requires; the brokers
//! check its signature. A token for another service may be any text if the endpoint says how long it is valid
//! (`expires_in`).
//!
//! **Failure**: see [`NoToken`]. It may pass (`is_lasting` is false) where librdkafka, too, would try again.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::super::wire::login::NoToken;
use super::credentials::Credentials;

/// The longest text of an endpoint that is passed on, in characters.
const SAID_CHARS_MAX: usize = 300;
/// What JSON, addresses and HTML escape characters by.
const ESCAPES: [char; 3] = ['\\', '%', '&'];

/// A token as it was issued. No `Debug`.
pub struct Issued {
    /// The token.
    pub token: String,
    /// Whom it is for, for librdkafka's log.
    pub principal: String,
    /// When it expires, in milliseconds since the epoch, or since now.
    pub end_ms: i64,
    /// Whether [`Issued::end_ms`] is counted from now.
    pub is_from_now: bool,
}

/// Reads an answer.
///
/// # Errors
/// There is no token in it, and why.
pub fn read(credentials: &Credentials, status: u16, body: &[u8]) -> Result<Issued, NoToken> {
    match status {
        200..=299 => issued(body, credentials.names.are_opaque)
            .map_err(|why| lasting(format!("the token endpoint's answer is of no use: {why}"))),
        408 | 425 | 429 | 500..=599 => {
            Err(passing(format!("the token endpoint answers {status}{}", said(credentials, body))))
        }
        _ => Err(lasting(format!(
            "the token endpoint answers {status}{}; correct {}",
            said(credentials, body),
            credentials.names.all
        ))),
    }
}

/// What a person has to fix.
pub fn lasting(why: String) -> NoToken {
    NoToken { is_lasting: true, why }
}

/// What may pass.
pub fn passing(why: String) -> NoToken {
    NoToken { is_lasting: false, why }
}

fn issued(body: &[u8], are_opaque: bool) -> Result<Issued, &'static str> {
    let body: Value = serde_json::from_slice(body).map_err(|_| "it is no JSON")?;
    let token = body.get("access_token").and_then(Value::as_str).ok_or("it holds no access_token")?;
    let in_s = body.get("expires_in").and_then(|seconds| seconds.as_f64().or_else(|| seconds.as_str()?.parse().ok()));
    if let Some(in_s) = in_s.filter(|in_s| are_opaque && *in_s > 0.0) {
        let end_ms = (in_s as i64).saturating_mul(1000);
        return Ok(Issued { token: token.to_owned(), principal: String::new(), end_ms, is_from_now: true });
    }
    let payload = payload(token).ok_or(match are_opaque {
        true => "it holds no expires_in, and the access_token is no JWT that says when it ends",
        false => "the access_token is no JWT, which it has to be",
    })?;
    let end_s = payload.get("exp").and_then(Value::as_f64).filter(|end_s| *end_s > 0.0);
    let end_s = end_s.ok_or("the access_token does not say when it ends (exp)")?;
    let principal = payload.get("sub").and_then(Value::as_str).unwrap_or_default();
    // Beyond what a number holds it is the greatest one.
    let end_ms = (end_s as i64).saturating_mul(1000);
    Ok(Issued { token: token.to_owned(), principal: principal.replace('\0', ""), end_ms, is_from_now: false })
}

/// A JWT's claims: the second of three parts.
fn payload(token: &str) -> Option<Value> {
    let [_, payload, _] = token.split('.').collect::<Vec<_>>().try_into().ok()?;
    let bytes = URL_SAFE_NO_PAD.decode(payload.trim_end_matches('=')).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// What an endpoint says of a refusal, for a log: RFC 6749's `error` and `error_description`, or a text that is no
/// JSON. Nothing of what may spell the secret in another way.
fn said(credentials: &Credentials, body: &[u8]) -> String {
    let read = serde_json::from_slice::<Value>(body).ok();
    let part = |name| read.as_ref().and_then(|read| read.get(name)).and_then(Value::as_str);
    let text = String::from_utf8_lossy(body);
    let parts = match (&read, part("error")) {
        (None, _) => [Some(&*text), None],
        (Some(_), None) => [None, None],
        (Some(_), error) => [error, part("error_description")],
    };
    let parts = parts.into_iter().flatten().map(str::trim).filter(|part| !part.is_empty() && !part.contains(ESCAPES));
    parts.map(|part| format!(": {}", clean(credentials, part))).collect()
}

/// A text from outside, fit for a log: on one line, not too long, without the secret in any form in which it is sent.
pub fn clean(credentials: &Credentials, said: &str) -> String {
    let Credentials { client_secret, .. } = credentials;
    let encoded = utf8_percent_encode(client_secret, NON_ALPHANUMERIC).to_string();
    let forms = [basic(credentials), STANDARD.encode(client_secret), encoded, client_secret.clone()];
    let hidden = forms.iter().fold(said.to_owned(), |said, form| said.replace(form.as_str(), "[hidden]"));
    hidden.chars().take(SAID_CHARS_MAX).map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// The client and its secret as HTTP's basic authentication has them: as they are, as librdkafka and Kafka's own
/// clients send them, without the encoding of RFC 6749 that many servers do not expect.
pub fn basic(credentials: &Credentials) -> String {
    STANDARD.encode(format!("{}:{}", credentials.client_id, credentials.client_secret))
}
