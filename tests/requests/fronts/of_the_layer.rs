//! What only the layer has: who a caller is, said by a function.

use super::front::{Ask, Front};
use crate::stores::on_embedded;

#[test]
fn function_says_who_the_caller_is() {
    on_embedded(|store| async move {
        let set = |layer: ratchet::http::Idempotency| {
            layer.caller(|parts| {
                Some(parts.headers.get("session")?.as_bytes().split(|byte| *byte == b'/').next()?.to_vec())
            })
        };
        let front = Front::layer(store, set).await;
        let ask = |session: &str| Ask::under("a").with("session", session).with("authorization", session);
        for (session, is_replayed) in [("ann/1", false), ("ann/2", true), ("ben/1", false)] {
            assert_eq!(front.send(ask(session)).await.is_replayed(), is_replayed, "{session}");
        }
        assert!(!front.send(Ask::under("a")).await.is_replayed());
        assert!(
            front.send(Ask::under("a").with("authorization", "whoever")).await.is_replayed(),
            "nobody in particular"
        );
    });
}
