//! Goal: the keys of a batch are sorted and distinct, and each wanted key has the index of its distinct key.

use proptest::prelude::*;

use super::*;

/// Keys, some of which have equal beginnings, or differ only in trailing zeros.
fn random_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        proptest::collection::vec(0..2_u8, 0..4),
        (0..2_u8, 0..3_u8).prop_map(|(first, last)| [&[first; 14][..], &[last]].concat()),
        any::<u64>().prop_map(|n| n.to_be_bytes().repeat(2)),
    ]
}

proptest! {
    #[test]
    fn each_key_is_looked_up_once_and_in_order(keys in proptest::collection::vec(random_key(), 0..60)) {
        let (mut arena, mut wanted, mut order) = (Vec::new(), Vec::new(), Vec::new());
        for (index, key) in keys.iter().enumerate() {
            let start = arena.len();
            arena.extend_from_slice(key);
            order.push(sort_key(key, index));
            wanted.push(Wanted { key: start..arena.len(), number: 0, row: index, is_table: false });
        }
        let distinct = distinct(&mut wanted, &mut order, &arena);
        let mut expected: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        expected.sort();
        expected.dedup();
        prop_assert_eq!(&distinct, &expected);
        for (wanted, key) in wanted.iter().zip(&keys) {
            prop_assert_eq!(distinct[wanted.number], key);
        }
        // This is the order in which the store's values are assigned.
        prop_assert!(order.iter().map(|at| wanted[(at & INDEX_MASK) as usize].number).is_sorted());
    }
}
