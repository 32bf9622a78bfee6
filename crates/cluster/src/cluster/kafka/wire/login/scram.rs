//! SCRAM (RFC 5802) with SHA-256 and SHA-512 (RFC 7677), without channel binding, as Kafka uses it.
//!
//! ```text
//! client  n,,n=user,r=NONCE
//! broker  r=NONCE…MORE,s=SALT,i=ITERATIONS
//! client  c=biws,r=NONCE…MORE,p=PROOF
//! broker  v=SIGNATURE
//! ```
//!
//! The login is complete only when the broker's signature of this exchange proves that it knows the keys derived from
//! the password.
//!
//! **Failure**: an iteration count below Kafka's minimum would make it cheap to try passwords on a stolen exchange; a
//! huge one would block the thread that logs in. Both are refused.

use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::digest::common::BlockSizeUser;
use sha2::digest::{Digest, Output};
use sha2::{Sha256, Sha512};

use super::error::LoginError;

/// The iteration counts that are accepted. Kafka's brokers use 4,096 to 16,384; others may use more.
const ITERATIONS: RangeInclusive<u32> = 4_096..=131_072;
/// Longer messages are refused: a message has to hold no more than a nonce, a salt and a number.
const MESSAGE_BYTES_MAX: usize = 8_192;

/// The message that is expected from the broker next.
pub enum Step {
    /// Nonce, salt and iterations. `first_bare`: the client's first message without its head "n,,". `nonce`: the
    /// client's.
    Challenge { sha512: bool, first_bare: String, nonce: String },
    /// A signature, which must be this one.
    Signature(Vec<u8>),
}

/// The client's first message, and the step that follows.
pub fn begin(sha512: bool, user: &str, nonce: &[u8]) -> (Step, Vec<u8>) {
    let nonce = STANDARD.encode(nonce);
    let user = user.replace('=', "=3D").replace(',', "=2C");
    let first_bare = format!("n={user},r={nonce}");
    let message = format!("n,,{first_bare}").into_bytes();
    (Step::Challenge { sha512, first_bare, nonce }, message)
}

impl Step {
    /// Processes the broker's message; returns the next step and message, or `None` once the login is complete.
    pub fn next(self, password: &str, message: &[u8]) -> Result<Option<(Self, Vec<u8>)>, LoginError> {
        let text = std::str::from_utf8(message).ok().filter(|text| text.len() <= MESSAGE_BYTES_MAX);
        let text = text.ok_or_else(|| malformed("is not text"))?;
        if let Some(reason) = text.strip_prefix("e=") {
            return Err(LoginError(format!("it refuses the login: {reason}")));
        }
        match self {
            Self::Challenge { sha512, first_bare, nonce } => {
                let challenge = Challenge::read(text, &nonce)?;
                let exchange = Exchange { first_bare: &first_bare, challenge: &challenge, text };
                let (final_message, signature) = match sha512 {
                    true => exchange.prove::<Sha512>(password),
                    false => exchange.prove::<Sha256>(password),
                };
                Ok(Some((Self::Signature(signature), final_message.into_bytes())))
            }
            Self::Signature(expected) => {
                let signature = text.split(',').next().and_then(|part| part.strip_prefix("v="));
                let signature = signature.and_then(|text| STANDARD.decode(text).ok());
                let signature = signature.ok_or_else(|| malformed("holds no signature"))?;
                match is_equal(&signature, &expected) {
                    true => Ok(None),
                    false => Err(LoginError(
                        "it did not prove that it knows the password: its signature is wrong".to_owned(),
                    )),
                }
            }
        }
    }
}

/// The broker's first message.
struct Challenge<'a> {
    nonce: &'a str,
    salt: Vec<u8>,
    iterations: u32,
}

impl<'a> Challenge<'a> {
    fn read(text: &'a str, own_nonce: &str) -> Result<Self, LoginError> {
        let mut parts = text.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let nonce = part("r=").ok_or_else(|| malformed("holds no nonce"))?;
        if !nonce.starts_with(own_nonce) || nonce.len() == own_nonce.len() {
            return Err(malformed("belongs to another login: its nonce is wrong"));
        }
        let salt = part("s=").and_then(|salt| STANDARD.decode(salt).ok()).filter(|salt| !salt.is_empty());
        let salt = salt.ok_or_else(|| malformed("holds no salt"))?;
        let iterations = part("i=").and_then(|count| count.parse().ok());
        let iterations = iterations.ok_or_else(|| malformed("holds no number of iterations"))?;
        if !ITERATIONS.contains(&iterations) {
            let (least, most) = (ITERATIONS.start(), ITERATIONS.end());
            return Err(malformed(&format!("asks for {iterations} iterations; {least} to {most} are accepted")));
        }
        Ok(Self { nonce, salt, iterations })
    }
}

fn malformed(what: &str) -> LoginError {
    LoginError(format!("its login message {what}"))
}

/// What both sides sign.
struct Exchange<'a> {
    first_bare: &'a str,
    challenge: &'a Challenge<'a>,
    /// The challenge as it was sent.
    text: &'a str,
}

impl Exchange<'_> {
    /// The client's last message, with its proof, and the signature that the broker has to respond with.
    fn prove<D: Digest + BlockSizeUser + Clone>(&self, password: &str) -> (String, Vec<u8>) {
        let Challenge { nonce, salt, iterations } = self.challenge;
        let salted = stretch::<D>(password.as_bytes(), salt, *iterations);
        // "biws" is the encoded "n,,": no channel binding.
        let without_proof = format!("c=biws,r={nonce}");
        // RFC 5802 calls this AuthMessage.
        let signed = [self.first_bare, self.text, &without_proof].join(",");
        let keyed = Hmac::<D>::new(&salted);
        let client_key = keyed.sign(&[b"Client Key"]);
        let stored_key = D::digest(&client_key);
        let client_signature = Hmac::<D>::new(&stored_key).sign(&[signed.as_bytes()]);
        let proof: Vec<u8> = client_key.iter().zip(&client_signature).map(|(a, b)| a ^ b).collect();
        let server_key = keyed.sign(&[b"Server Key"]);
        let signature = Hmac::<D>::new(&server_key).sign(&[signed.as_bytes()]);
        (format!("{without_proof},p={}", STANDARD.encode(proof)), signature.to_vec())
    }
}

/// HMAC (RFC 2104) with a prepared key, which need not be processed again for each signature.
#[derive(Clone)]
pub struct Hmac<D> {
    inner: D,
    outer: D,
}

impl<D: Digest + BlockSizeUser + Clone> Hmac<D> {
    /// Prepares this key.
    pub fn new(key: &[u8]) -> Self {
        let hashed;
        let key = match key.len() > D::block_size() {
            true => {
                hashed = D::digest(key);
                &hashed[..]
            }
            false => key,
        };
        let padded = |pad: u8| {
            let mut block = vec![pad; D::block_size()];
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            D::new_with_prefix(block)
        };
        Self { inner: padded(0x36), outer: padded(0x5c) }
    }

    /// Signs the parts, one after the other.
    pub fn sign(&self, parts: &[&[u8]]) -> Output<D> {
        let mut inner = self.inner.clone();
        parts.iter().for_each(|part| inner.update(part));
        self.outer.clone().chain_update(inner.finalize()).finalize()
    }
}

/// PBKDF2 (RFC 8018) with HMAC, one block long: SCRAM's `Hi`.
pub fn stretch<D: Digest + BlockSizeUser + Clone>(password: &[u8], salt: &[u8], iterations: u32) -> Output<D> {
    let keyed = Hmac::<D>::new(password);
    let mut last = keyed.sign(&[salt, &1_u32.to_be_bytes()]);
    let mut all = last.clone();
    for _ in 1..iterations {
        last = keyed.sign(&[&last]);
        all.iter_mut().zip(&last).for_each(|(all, last)| *all ^= last);
    }
    all
}

/// Compares in a time that does not depend on the position of a difference.
fn is_equal(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
