//! Answers that repeat a secret: what a provider says is remembered in the changelog and written to the topic for results,
//! which others can read. A body that holds a secret of the topology's headers is kept as its digest.

use sha2::{Digest, Sha256};

use crate::effect::provider::Body;
use crate::topology::sink::http::Http;

/// What is shorter than this is no secret that could be told from other words.
const SECRET_BYTES_MIN: usize = 8;

/// What no answer may repeat.
#[derive(Default)]
pub struct Secrets(Vec<memchr::memmem::Finder<'static>>);

impl Secrets {
    /// Those of this provider's headers.
    pub fn of(http: &Http) -> Self {
        let all = http.headers.iter().flat_map(|(_, value)| value.substituted());
        let long = all.map(|secret| secret.reveal()).filter(|secret| secret.len() >= SECRET_BYTES_MIN);
        Self(long.map(|secret| memchr::memmem::Finder::new(secret.as_bytes()).into_owned()).collect())
    }

    /// A body, as it may be kept. Says whether it holds a secret.
    pub fn hide(&self, body: Body) -> (Body, bool) {
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
    //! Goal: no secret leaves in an answer, and no other answer is held back.

    use super::*;

    #[test]
    fn body_with_a_secret_is_its_digest() {
        let secrets = Secrets(vec![memchr::memmem::Finder::new(b"s3cret-token").into_owned()]);
        let whole = |text: &str| Body::Whole(text.as_bytes().to_vec());
        for harmless in ["", "s3cret", "{\"id\":1}", "S3CRET-TOKEN"] {
            assert_eq!(secrets.hide(whole(harmless)), (whole(harmless), false), "{harmless}");
        }
        for (held, bytes) in [("s3cret-token", 12), ("you sent: Bearer s3cret-token!", 30)] {
            let (body, is_hidden) = secrets.hide(whole(held));
            assert!(is_hidden && matches!(body, Body::Digest { bytes: length, .. } if length == bytes), "{body:?}");
        }
        assert_eq!(secrets.hide(Body::None), (Body::None, false));
        assert_eq!(Secrets::default().hide(whole("anything")), (whole("anything"), false));
    }
}
