//! Compares the overlay with a plain map: the last write for each key, in the order of first writes.

use proptest::prelude::*;

use super::super::overlay::{Hashed, KeyHash};
use super::*;

proptest! {
    #[test]
    fn overlay_is_a_map_in_order_of_first_write(
        rounds in proptest::collection::vec(proptest::collection::vec(
            (proptest::collection::vec(0..4_u8, 0..3), proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20))),
            0..60,
        ), 1..3),
    ) {
        let mut overlay = Overlay::new();
        for writes in rounds {
            let mut expected: Vec<(Vec<u8>, Option<Vec<u8>>)> = Vec::new();
            for (key, value) in &writes {
                overlay.put(key, value.as_deref());
                match expected.iter_mut().find(|(found, _)| found == key) {
                    Some(found) => found.1.clone_from(value),
                    None => expected.push((key.clone(), value.clone())),
                }
            }
            let owned = |(key, value): (&[u8], Option<&[u8]>)| (key.to_owned(), value.map(<[u8]>::to_owned));
            let actual: Vec<_> = overlay.iter().map(owned).collect();
            prop_assert_eq!(&actual, &expected);
            prop_assert_eq!(overlay.len(), expected.len());
            for (key, value) in &expected {
                prop_assert_eq!(overlay.get(key), Some(value.as_deref()));
            }
            prop_assert_eq!(overlay.get(b"never written"), None);
            overlay.clear();
            prop_assert!(overlay.is_empty() && overlay.bytes() == 0);
        }
    }
}

/// Keys of three lengths, many of which have the same first bytes.
fn random_key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (0..200_u8).prop_map(|n| vec![n]),
        (0..3_u8, 0..200_u8).prop_map(|(first, last)| [&[first; 12][..], &[last]].concat()),
        any::<u64>().prop_map(|n| n.to_be_bytes().to_vec()),
    ]
}

proptest! {
    /// Large overlays in layers, like memtables: their slots wrap around, and values move.
    #[test]
    fn newest_layer_with_a_key_has_its_value(
        layers in proptest::collection::vec(
            proptest::collection::vec((random_key(), proptest::option::of(0..40_usize)), 0..400),
            1..4,
        ),
        others in proptest::collection::vec(random_key(), 0..100),
        has_room: bool,
    ) {
        let mut expected: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut overlays: Vec<Overlay> = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let value = |length: &Option<usize>| length.map(|length| vec![number as u8; length]);
            let writes: Vec<_> = layer.iter().map(|(key, length)| (key.clone(), value(length))).collect();
            // The second half goes through another overlay, which passes on only each key's last value.
            let (first_half, second_half) = writes.split_at(writes.len() / 2);
            let mut overlay = overlays.last().filter(|_| has_room).map_or_else(Overlay::new, Overlay::with_capacity_of);
            first_half.iter().for_each(|(key, value)| overlay.put(key, value.as_deref()));
            let mut later = Overlay::new();
            second_half.iter().for_each(|(key, value)| later.put(key, value.as_deref()));
            overlay.put_all(&later);
            let in_order: BTreeMap<_, _> = writes.into_iter().collect();
            prop_assert_eq!(overlay.len(), in_order.len());
            let owned = |(key, value): (&[u8], Option<&[u8]>)| (key.to_vec(), value.map(<[u8]>::to_vec));
            prop_assert!(overlay.in_order().iter().map(owned).eq(in_order.clone()));
            let middle = others.first().cloned().unwrap_or_default();
            let (before, after) = in_order.iter().partition::<Vec<_>, _>(|(key, _)| **key < middle);
            let (first, last): (Vec<_>, Vec<_>) = {
                let order = overlay.in_order();
                let (first, last) = order.split(&middle);
                (first.map(owned).collect(), last.map(owned).collect())
            };
            let is_equal = |expected: Vec<(&Vec<u8>, &Option<Vec<u8>>)>, actual: Vec<(Vec<u8>, Option<Vec<u8>>)>| {
                actual.iter().map(|(key, value)| (key, value)).eq(expected)
            };
            prop_assert!(is_equal(before, first) && is_equal(after, last), "split at {middle:?}");
            expected.extend(in_order);
            overlays.push(overlay);
        }
        let keys: Vec<&[u8]> = expected.keys().chain(&others).map(Vec::as_slice).collect();
        let mut visited = 0;
        Overlay::get_first_of_each(overlays.iter().rev(), &keys, |at, value| {
            assert_eq!(at, visited, "in order");
            visited += 1;
            let expected = expected.get(keys[at]).map(Option::as_deref);
            assert_eq!(value, expected, "{:?}", keys[at]);
            assert_eq!(Overlay::get_first(overlays.iter().rev(), keys[at]), expected);
        });
        prop_assert_eq!(visited, keys.len());
    }

    /// An overlay that was large before is cleared key by key.
    #[test]
    fn cleared_overlay_holds_nothing(
        large in 0..2000_usize,
        rounds in proptest::collection::vec(proptest::collection::vec(random_key(), 0..60), 1..4),
    ) {
        let mut overlay = Overlay::new();
        (0..large).for_each(|n| overlay.put(&n.to_be_bytes(), None));
        overlay.clear();
        for keys in rounds {
            for key in &keys {
                prop_assert_eq!(overlay.get(key).is_some(), overlay.iter().any(|(found, _)| found == key));
                overlay.put(key, Some(b"1"));
                prop_assert_eq!(overlay.get(key), Some(Some(&b"1"[..])));
            }
            overlay.clear();
            prop_assert!(overlay.is_empty() && overlay.iter().next().is_none());
            prop_assert!(keys.iter().all(|key| overlay.get(key).is_none()));
        }
    }
}

#[test]
fn moved_value_is_overwritten_in_its_new_place() {
    let mut overlay = Overlay::new();
    overlay.put(b"key", Some(b"1111"));
    overlay.put(b"other", None);
    overlay.put(b"key", Some(b"22222222"));
    let bytes = overlay.bytes();
    for value in [&b"33333333"[..], b"4", b"55555555"] {
        overlay.put(b"key", Some(value));
        assert_eq!(overlay.iter().collect::<Vec<_>>(), [(&b"key"[..], Some(value)), (b"other", None)]);
    }
    assert_eq!(overlay.bytes(), bytes);
}

#[test]
fn values_of_the_same_size_are_overwritten_in_place() {
    let mut overlay = Overlay::new();
    overlay.put(b"key", Some(b"1111"));
    let bytes = overlay.bytes();
    for value in [&b"2222"[..], b"33", b"4444"] {
        overlay.put(b"key", Some(value));
        overlay.put(b"key", None);
        overlay.put(b"key", Some(value));
        assert_eq!(overlay.get(b"key"), Some(Some(value)));
    }
    assert_eq!(overlay.bytes(), bytes);
}

#[test]
fn store_can_be_locked_only_once_in_a_process() {
    let registry = Registry::new();
    let lock = registry.clone().try_lock(Path::new("a")).unwrap();
    assert!(registry.try_lock(Path::new("a")).is_none());
    assert!(registry.try_lock(Path::new("b")).is_some());
    assert_eq!(lock.path(), Path::new("a"));
    drop(lock);
    assert!(registry.try_lock(Path::new("a")).is_some());
}

#[test]
fn keys_with_the_same_hash_are_told_apart() {
    let hash = KeyHash(7);
    let keys: Vec<[u8; 1]> = (0..40).map(|n| [n]).collect();
    let (mut lower, mut upper) = (Overlay::new(), Overlay::new());
    for key in &keys[..20] {
        lower.put_hashed(hash, key, Some(b"former"));
        lower.put_hashed(hash, key, Some(key));
    }
    keys[10..30].iter().for_each(|key| upper.put_hashed(hash, key, None));
    assert_eq!((lower.len(), upper.len()), (20, 20));
    let expected = |n: usize| match n {
        0..10 => Some(Some(&keys[n][..])),
        10..30 => Some(None),
        _ => None,
    };
    for first in [0, 8] {
        let hashed: Vec<Hashed<'_>> = keys[first..first + 32].iter().map(|key| (hash, &key[..])).collect();
        let values = Overlay::get_first_of_block([&upper, &lower].into_iter(), &hashed);
        (0..32).for_each(|at| assert_eq!(values[at], expected(first + at), "{}", first + at));
    }
    assert_eq!(lower.get_hashed(hash, &keys[3]), expected(3));
    assert_eq!(upper.get_hashed(hash, &keys[3]), None);
}
