//! Why a login failed.

/// Why a login failed: a message without secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LoginError(pub String);
