//! Goal: each form is read as its serializer writes it, and no bytes cause a panic.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use proptest::prelude::*;

use super::*;
use crate::record::HeaderBuf;

const UUID: [u8; 16] = *b"\x89\x79\x17\x62\x23\x36\x18\x6f\x96\x74\x29\x9b\x90\xa8\xe2\xe1";

fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn headers(named: &[(&str, &[u8])]) -> HeaderBuf {
    let mut headers = HeaderBuf::default();
    named.iter().for_each(|(name, value)| headers.push(name.as_bytes(), Some(value)));
    headers
}

/// The id and the payload of bytes without headers.
fn plain(bytes: &[u8]) -> Result<(Id, Vec<u8>), Unframed> {
    read(bytes, Headers::default(), false, IdBytes::Four).map(|framed| (framed.id, framed.payload.into_owned()))
}

#[test]
fn confluent_number_and_guid_are_at_the_beginning() {
    assert_eq!(plain(b"\0\0\0\x01\x02rest"), Ok((Id::Number(258), b"rest".to_vec())));
    assert_eq!(plain(&bytes(&[b"\x01", &UUID, b"rest"])), Ok((Id::Guid(UUID), b"rest".to_vec())));
    assert_eq!(plain(b"\0\0\0\0\x05"), Ok((Id::Number(5), vec![])));
}

#[test]
fn number_of_eight_bytes_is_read_where_the_setting_says_so() {
    let framed = read(b"\0\0\0\0\0\0\0\x01\x02rest", Headers::default(), true, IdBytes::Eight).unwrap();
    assert_eq!((framed.id, framed.payload.as_ref()), (Id::Long(258), &b"rest"[..]));
}

#[test]
fn headers_count_before_the_bytes_and_only_those_of_the_part() {
    let named = headers(&[
        ("other", b"x"),
        ("__key_schema_id", b"\0\0\0\0\x07"),
        ("__value_schema_id", &bytes(&[b"\x01", &UUID])),
    ]);
    let of = |is_key| read(b"\0\0\0\0\x05", named.as_headers(), is_key, IdBytes::Four).unwrap();
    assert_eq!((of(true).id, of(false).id), (Id::Number(7), Id::Guid(UUID)));
    assert_eq!(of(false).payload.as_ref(), b"\0\0\0\0\x05");
}

#[test]
fn apicurio_headers_hold_global_and_content_ids() {
    let long = 300_u64.to_be_bytes();
    for (name, is_key, id) in [
        ("apicurio.value.globalId", false, Id::Global(300)),
        ("apicurio.value.contentId", false, Id::Content(300)),
        ("apicurio.key.globalId", true, Id::Global(300)),
        ("apicurio.key.contentId", true, Id::Content(300)),
    ] {
        let named = headers(&[(name, &long)]);
        let framed = read(b"{}", named.as_headers(), is_key, IdBytes::Four).unwrap();
        assert_eq!((framed.id, framed.payload.as_ref(), framed.is_json), (id, &b"{}"[..], false), "{name}");
        assert!(matches!(read(b"{}", named.as_headers(), !is_key, IdBytes::Four), Err(Unframed::NoId { .. })));
    }
    let json = headers(&[("apicurio.value.globalId", &long), ("apicurio.value.encoding", b"JSON")]);
    assert!(read(b"{}", json.as_headers(), false, IdBytes::Four).unwrap().is_json);
}

#[test]
fn header_without_an_id_is_an_error_that_names_it() {
    for (name, value) in [
        ("apicurio.value.globalId", &b"300"[..]),
        ("__value_schema_id", b""),
        ("__value_schema_id", b"\x02\0\0\0\x05"),
        ("__value_schema_id", b"\0\0\0\x05"),
        ("__value_schema_id", b"\x01\0\0\0\x05"),
        ("apicurio.value.contentHash", b"aff3"),
    ] {
        let error = read(b"{}", headers(&[(name, value)]).as_headers(), false, IdBytes::Four).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let beside = headers(&[("apicurio.value.artifactId", b"payments")]);
    assert!(read(b"\0\0\0\0\x05", beside.as_headers(), false, IdBytes::Four).is_ok(), "the bytes have the id");
}

#[test]
fn glue_is_read_plain_and_compressed() {
    assert_eq!(plain(&bytes(&[b"\x03\0", &UUID, b"rest"])), Ok((Id::Glue(UUID), b"rest".to_vec())));
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    zlib.write_all(&[7; 100_000]).unwrap();
    let compressed = bytes(&[b"\x03\x05", &UUID, &zlib.finish().unwrap()]);
    assert_eq!(plain(&compressed), Ok((Id::Glue(UUID), vec![7; 100_000])));
    assert_eq!(
        plain(&compressed[..compressed.len() - 20]),
        Err(Unframed::Inflated("it is damaged")),
        "a part of it is nothing"
    );
    assert_eq!(plain(&bytes(&[b"\x03\x06", &UUID])), Err(Unframed::Compression(6)));
}

#[test]
fn what_inflates_beyond_the_bound_is_refused() {
    let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
    (0..=INFLATED_BYTES_MAX >> 20).for_each(|_| zlib.write_all(&vec![0; 1 << 20]).unwrap());
    let bomb = bytes(&[b"\x03\x05", &UUID, &zlib.finish().unwrap()]);
    assert_eq!(plain(&bomb), Err(Unframed::Inflated("it is larger than 20 MiB")));
}

#[test]
fn single_object_avro_has_a_fingerprint() {
    assert_eq!(
        plain(b"\xC3\x01\x01\x02\0\0\0\0\0\0rest"),
        Ok((Id::Fingerprint(0x0201), b"rest".to_vec())),
        "little-endian"
    );
}

#[test]
fn bytes_that_end_too_early_say_how_many_are_missing() {
    for (cut, said) in [
        (&b"\0"[..], "takes 5 bytes, there are 1"),
        (b"\0\0\0\0", "takes 5 bytes, there are 4"),
        (b"\x01\0\0", "takes 17 bytes, there are 3"),
        (b"\x03", "takes 18 bytes, there are 1"),
        (b"\xC3\x01\0", "takes 10 bytes, there are 3"),
    ] {
        let error = plain(cut).unwrap_err().to_string();
        assert!(error.ends_with(said), "{error}");
    }
}

#[test]
fn other_bytes_have_no_id() {
    for other in [&b""[..], b"{\"id\":1}", b"  {}", b"[1]", b"\"text\"", b"12", b"\xC3\x02", b"\x02\0\0\0\x05"] {
        assert!(matches!(plain(other), Err(Unframed::NoId { .. })), "{other:?}");
    }
    assert_eq!(
        plain(b"{}").unwrap_err().to_string(),
        "no schema id: the bytes begin with 7B 7D, and no header names a schema"
    );
}

/// Bytes that begin as one of the forms, or with anything.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let begins = prop_oneof![
        Just(vec![]),
        Just(vec![0]),
        Just(vec![0, 0, 0, 0, 5]),
        Just(vec![1]),
        Just(bytes(&[b"\x01", &UUID])),
        Just(vec![3, 0]),
        Just(bytes(&[b"\x03\x05", &UUID, b"\x78\x9C"])),
        Just(vec![0xC3, 0x01]),
    ];
    (begins, proptest::collection::vec(any::<u8>(), 0..64)).prop_map(|(begin, rest)| [begin, rest].concat())
}

proptest! {
    #[test]
    fn bytes_never_panic(
        value in any_bytes(),
        header in any_bytes(),
        name in prop::sample::select(vec!["__value_schema_id", "apicurio.value.globalId", "apicurio.value.contentId",
            "apicurio.protobuf.type", "apicurio.value.artifactId", "other"]),
        encoded in proptest::collection::vec(any::<u8>(), 0..32),
        is_eight in any::<bool>(),
    ) {
        let id_bytes = if is_eight { IdBytes::Eight } else { IdBytes::Four };
        let named = headers(&[(name, &header)]);
        for headers in [named.as_headers(), Headers::from_bytes(&encoded), Headers::default()] {
            if let Ok(framed) = read(&value, headers, false, id_bytes) {
                prop_assert!(framed.payload.len() <= INFLATED_BYTES_MAX.max(value.len()));
                if let Ok((indexes, rest)) = indexes(&framed.payload) {
                    prop_assert!(!indexes.as_slice().is_empty() && indexes.as_slice().iter().all(|index| *index >= 0));
                    prop_assert!(rest.len() < framed.payload.len());
                }
            }
        }
    }

    #[test]
    fn number_and_indexes_are_read_back(
        number in any::<u32>(),
        path in proptest::collection::vec(0..100_000_i32, 1..=DEPTH_MAX),
    ) {
        let mut all = vec![0];
        all.extend(number.to_be_bytes());
        let count = i32::try_from(path.len()).unwrap();
        for value in std::iter::once(count).chain(path.iter().copied()) {
            let mut left = value.cast_unsigned() << 1;
            while left >= 0x80 {
                all.push(u8::try_from(left & 0x7F).unwrap() | 0x80);
                left >>= 7;
            }
            all.push(u8::try_from(left).unwrap());
        }
        let framed = read(&all, Headers::default(), false, IdBytes::Four).unwrap();
        prop_assert_eq!(framed.id, Id::Number(number));
        let (indexes, rest) = indexes(&framed.payload).unwrap();
        prop_assert_eq!((indexes.as_slice(), rest), (path.as_slice(), &b""[..]));
    }
}
