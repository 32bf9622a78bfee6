//! What only the layer has: who a caller is, said by a function; hosts only if they are to count.

use ratchet::http::Idempotency;

use super::front::{Ask, Front};
use crate::requests::stores::on_embedded;

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
            front.send(Ask::under("a").with("authorization", "somebody")).await.is_replayed(),
            "nobody in particular"
        );
    });
}

/// What is asked of a function has no header that could be named.
#[test]
fn function_that_knows_nobody_refuses_where_a_caller_is_required() {
    on_embedded(|store| async move {
        let set = |layer: Idempotency| {
            layer.caller_required(true).caller(|parts| Some(parts.headers.get("session")?.as_bytes().to_vec()))
        };
        let front = Front::layer(store, set).await;
        let refused = front.send(Ask::under("a").with("authorization", "somebody")).await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (400, "caller-missing"));
        assert!(!refused.text().contains("header"), "{}", refused.text());
        assert_eq!(front.send(Ask::under("a").with("session", "ann")).await.whole(), (200, "run 1 of a"));
    });
}

#[test]
fn hosts_count_where_that_is_chosen() {
    on_embedded(|store| async move {
        let ask = |host: &str| Ask::under("a").with("host", host);
        let front = Front::layer(store.clone(), |layer| layer).await;
        assert!(!front.send(ask("shop.example")).await.is_replayed());
        assert!(front.send(ask("bank.example")).await.is_replayed());
        let front = Front::layer(store, |layer| layer.by_host(true)).await;
        for host in ["shop.example", "bank.example"] {
            assert!(!front.send(ask(host)).await.is_replayed(), "{host}");
            assert!(front.send(ask(host)).await.is_replayed(), "{host}");
        }
    });
}
