//! Missing rights, and which right to grant, for both data paths.

use super::wire::code;

/// Whether a broker's error code says that a right is missing.
pub(super) fn is_denial(code: i16) -> bool {
    matches!(
        code,
        code::TOPIC_AUTHORIZATION_FAILED
            | code::GROUP_AUTHORIZATION_FAILED
            | code::CLUSTER_AUTHORIZATION_FAILED
            | code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
}

/// The right to grant, if the code alone determines it. For a topic, the right depends on what the topic is used for.
pub(super) fn grant(code: i16) -> &'static str {
    match code {
        code::GROUP_AUTHORIZATION_FAILED => "; grant Read on the group",
        code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED => "; grant Write on the topology's transactional ids",
        _ => "",
    }
}
