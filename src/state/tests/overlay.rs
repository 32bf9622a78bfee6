//! The overlay against a plain map: the last write for each key, in the order of first writes.

use proptest::prelude::*;

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
            let got: Vec<_> = overlay.iter().map(|(key, value)| (key.to_owned(), value.map(<[u8]>::to_owned))).collect();
            prop_assert_eq!(&got, &expected);
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
