//! Random calls, to a store and to the rules: each is answered the same.
//!
//! Leases and retention are so long that they do not end, or over at once: so the answers do not depend on how fast the
//! machine is.

use std::time::Duration;

use ratchet::http::request::{AnswerBody, Fingerprint, OnInDoubt, Reservation, Store, Token, Wanted};

use super::model::Model;
use super::{LONG, answer, new_id};
use crate::random::Random;

/// Makes `count` calls.
pub async fn compare(store: &dyn Store, count: usize) {
    let seed = rand::random();
    let mut random = Random::new(seed);
    let model = Model::default();
    let (ids, tokens): (Vec<_>, Vec<_>) = (0..3).map(|_| (new_id(), Token(rand::random()))).unzip();
    let length = |random: &mut Random| if random.below(3) == 0 { Duration::ZERO } else { LONG };
    for number in 0..count {
        let pick = |random: &mut Random| random.below(3) as usize;
        let held = Reservation { id: ids[pick(&mut random)], token: tokens[pick(&mut random)] };
        let (said, expected) = match random.below(10) {
            0..5 => {
                let wanted = Wanted {
                    held,
                    fingerprint: Fingerprint([u8::from(random.below(8) == 0); 32]),
                    lease: length(&mut random),
                    retention: length(&mut random),
                    on_in_doubt: if random.below(3) == 0 { OnInDoubt::Refuse } else { OnInDoubt::Run },
                };
                let (said, expected) = (store.reserve(&wanted).await, model.reserve(&wanted).await);
                (format!("{said:?}"), format!("{expected:?}"))
            }
            5 => {
                let lease = length(&mut random);
                let (said, expected) = (store.extend(held, lease).await, model.extend(held, lease).await);
                (format!("{said:?}"), format!("{expected:?}"))
            }
            6..8 => {
                let mut given = answer(200 + (number % 300) as u16, &format!("answer {number}"));
                if random.below(3) == 0 {
                    given.body = AnswerBody::CutOff;
                }
                let kept = length(&mut random);
                let (said, expected) =
                    (store.complete(held, &given, kept).await, model.complete(held, &given, kept).await);
                (format!("{said:?}"), format!("{expected:?}"))
            }
            8 => {
                let (said, expected) = (store.release(held).await, model.release(held).await);
                (format!("{said:?}"), format!("{expected:?}"))
            }
            _ => {
                // How many are removed, and when, is a store's own affair.
                store.tidy().await.expect("the store is there");
                continue;
            }
        };
        assert_eq!(said, expected, "call {number} of seed {seed}");
    }
}
