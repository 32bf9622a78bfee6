//! Numbers, texts and counts are read as they were written, and no byte beyond the input is read.

use proptest::prelude::*;

use super::*;

const EDGES: [i64; 12] = [0, 1, -1, 63, -64, 64, -65, 8_191, 8_192, i32::MAX as i64, i32::MIN as i64, 1 << 33];

#[test]
fn numbers_are_read_as_they_were_written() {
    for number in EDGES {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, number);
        assert_eq!(bytes.len(), varint_bytes(number), "{number}");
        let mut scratch = Scratch::new();
        scratch.varint(number);
        let mut flushed = vec![9];
        scratch.flush(&mut flushed);
        assert_eq!(flushed[1..], bytes);
        for end in 0..bytes.len() {
            assert_eq!((varint(&bytes[..end]), varlong(&bytes[..end])), (None, None), "{number}, {end} bytes");
        }
        bytes.push(7);
        assert_eq!((varint(&bytes), varlong(&bytes)), (Some((number, &[7][..])), Some((number, &[7][..]))));
    }
}

#[test]
fn varints_without_end_are_refused() {
    let unending = [0xff; 20];
    assert_eq!((varint(&unending), varlong(&unending)), (None, None));
    let mut six_bytes = [0x80_u8; 6];
    six_bytes[5] = 1;
    assert_eq!(varint(&six_bytes), None);
    assert_eq!(varlong(&six_bytes), Some((1 << 34, &[][..])));
    // A longer encoding than necessary, as some clients write.
    assert_eq!(varint(&[0x82, 0x80, 0, 5]), Some((1, &[5][..])));
}

#[test]
fn prefixed_bytes_stay_within_the_input() {
    assert_eq!(prefixed_bytes(&[1, 9]), Some((None, &[9][..])));
    assert_eq!(prefixed_bytes(&[0, 9]), Some((Some(&[][..]), &[9][..])));
    assert_eq!(prefixed_bytes(&[4, 8, 9, 7]), Some((Some(&[8, 9][..]), &[7][..])));
    for broken in [&[][..], &[4, 8], &[3], &[0xfe, 0xff, 0xff, 0xff, 0x0f, 0]] {
        assert_eq!(prefixed_bytes(broken), None, "{broken:?}");
    }
}

#[test]
fn counts_beyond_the_input_are_refused() {
    let three = [0, 0, 0, 3, 1, 2, 3, 4, 5, 6];
    assert_eq!(Reader::new(&three).count(2), Some(3));
    assert_eq!(Reader::new(&three).count(3), None);
    assert_eq!(Reader::new(&[0xff; 4]).count(2), Some(0), "null");
    assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xfe]).count(2), None);
    assert_eq!(Reader::new(&[4, 1, 2, 3]).compact_count(1), Some(3));
    assert_eq!(Reader::new(&[5, 1, 2, 3]).compact_count(1), None);
    assert_eq!(Reader::new(&[0]).compact_count(1), Some(0), "null");
}

#[test]
fn texts_are_utf8_or_null() {
    let mut bytes = Vec::new();
    put_text(&mut bytes, "zürich");
    put_compact_text(&mut bytes, "orders");
    bytes.extend([0xff, 0xff, 0]);
    let mut reader = Reader::new(&bytes);
    assert_eq!((reader.text(), reader.compact_text()), (Some(Some("zürich")), Some(Some("orders"))));
    assert_eq!((reader.text(), reader.compact_text()), (Some(None), Some(None)));
    assert_eq!((reader.position(), reader.rest().len()), (bytes.len(), 0));
    assert_eq!(Reader::new(&[0, 1, 0xff]).text(), None);
    assert_eq!(Reader::new(&[2, 0xff]).compact_text(), None);
    assert_eq!(Reader::new(&[0xff, 0xfe, 0, 0]).text(), None);
    let mut long = Vec::new();
    put_text(&mut long, &"x".repeat(40_000));
    assert_eq!(Reader::new(&long).text().unwrap().unwrap().len(), i16::MAX as usize);
}

#[test]
fn tagged_fields_are_passed_to_the_callback() {
    let bytes = [2, 0, 2, 8, 9, 5, 1, 7, 42];
    let mut reader = Reader::new(&bytes);
    let mut seen = Vec::new();
    let read = reader.tags(|tag, field| {
        seen.push((tag, field.rest().to_vec()));
        Some(())
    });
    assert_eq!((read, seen, reader.rest()), (Some(()), vec![(0, vec![8, 9]), (5, vec![7])], &[42][..]));
    assert_eq!(Reader::new(&bytes).tags(|_, _| None), None);
    for end in 0..8 {
        assert_eq!(Reader::new(&bytes[..end]).tags(|_, _| Some(())), None, "{end} bytes");
    }
    assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0]).tags(|_, _| Some(())), None);
}

proptest! {
    #[test]
    fn any_number_is_read_as_it_was_written(number: i64, small: i32) {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, number);
        prop_assert_eq!(varlong(&bytes), Some((number, &[][..])));
        prop_assert_eq!(bytes.len(), varint_bytes(number));
        bytes.clear();
        put_varint(&mut bytes, i64::from(small));
        prop_assert_eq!(varint(&bytes), Some((i64::from(small), &[][..])));
    }
}
