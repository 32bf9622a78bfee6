//! Keeps secrets out of stored responses: a provider's responses go to the changelog and to the results topic, which
//! others can read. If a body contains a secret of the topology's headers, only its digest is stored.

use sha2::{Digest, Sha256};

use crate::effect::provider::Body;
use crate::topology::sink::http::Http;

/// Shorter secrets are not searched for: they could not be distinguished from ordinary words.
const SECRET_BYTES_MIN: usize = 8;

/// The secrets that no stored response may contain.
#[derive(Default)]
pub struct Secrets(Vec<memchr::memmem::Finder<'static>>);

impl Secrets {
    /// The secrets in this provider's headers.
    pub fn of(http: &Http) -> Self {
        let substituted = http.headers.iter().flat_map(|(_, value)| value.substituted());
        let long_secrets = substituted.map(|secret| secret.reveal()).filter(|secret| secret.len() >= SECRET_BYTES_MIN);
        Self(long_secrets.map(|secret| memchr::memmem::Finder::new(secret.as_bytes()).into_owned()).collect())
    }

    /// Returns the body as it may be stored, and whether it contains a secret.
    pub fn redact(&self, body: Body) -> (Body, bool) {
        match body {
            Body::Whole(bytes) if self.0.iter().any(|secret| secret.find(&bytes).is_some()) => {
                (Body::Digest { sha256: Sha256::digest(&bytes).into(), bytes: bytes.len() as u64 }, true)
            }
            body => (body, false),
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: no secret is stored with a response, and every other response is stored whole.

    use super::*;

    #[test]
    fn body_with_a_secret_is_stored_as_its_digest() {
        let secrets = Secrets(vec![memchr::memmem::Finder::new(b"s3cret-token").into_owned()]);
        let whole = |text: &str| Body::Whole(text.as_bytes().to_vec());
        for harmless in ["", "s3cret", "{\"id\":1}", "S3CRET-TOKEN"] {
            assert_eq!(secrets.redact(whole(harmless)), (whole(harmless), false), "{harmless}");
        }
        for (text, bytes) in [("s3cret-token", 12), ("you sent: Bearer s3cret-token!", 30)] {
            let (body, is_redacted) = secrets.redact(whole(text));
            assert!(is_redacted && matches!(body, Body::Digest { bytes: length, .. } if length == bytes), "{body:?}");
        }
        assert_eq!(secrets.redact(Body::None), (Body::None, false));
        assert_eq!(Secrets::default().redact(whole("anything")), (whole("anything"), false));
    }
}
