//! Goal: a record's message is the one that its serializer meant, or an error; never another one.

use proptest::prelude::*;

use super::*;
use crate::record::{HeaderBuf, Headers};
use crate::schemas::framing::{DEPTH_MAX, IdBytes, read};

const UUID: [u8; 16] = *b"\x89\x79\x17\x62\x23\x36\x18\x6f\x96\x74\x29\x9b\x90\xa8\xe2\xe1";
/// Its messages are at [0], [1], [1, 0], [1, 0, 0]; sorted: Other, Payment, Payment.Item, Payment.Item.Tax.
const SHOP: &str = "syntax = \"proto3\"; package shop; message Other { string what = 1; } \
    message Payment { string id = 1; message Item { message Tax {} } }";
/// A name before the payment.
const PAYMENT: &[u8] = b"\x09\x0A\x07Payment";

fn headers(named: &[(&str, &[u8])]) -> HeaderBuf {
    let mut headers = HeaderBuf::default();
    named.iter().for_each(|(name, value)| headers.push(name.as_bytes(), Some(value)));
    headers
}

/// The name of a record's message and where its bytes begin, or why that is unclear.
fn of(text: &str, value: &[u8], named: &[(&str, &[u8])], id_bytes: IdBytes) -> Result<(String, usize), String> {
    let schema = Schema::parse(text, &[]).unwrap();
    let headers = headers(named);
    let framed = read(value, headers.as_headers(), false, id_bytes).unwrap();
    let found = which(&framed, &schema).map_err(|unclear| unclear.to_string())?;
    Ok((schema.graph().messages[found.message].name.to_string(), found.from))
}

/// The same behind a number of four bytes.
fn numbered(text: &str, behind: &[u8]) -> Result<(String, usize), String> {
    of(text, &[b"\0\0\0\0\x05", behind].concat(), &[], IdBytes::Four)
}

/// The same without bytes before it, behind a header with an id of Apicurio's, and one with a name.
fn in_headers(name: Option<&str>, value: &[u8]) -> Result<(String, usize), String> {
    let id = ("apicurio.value.contentId", &[0; 8][..]);
    let name = name.map(|name| ("apicurio.protobuf.type", name.as_bytes()));
    of(SHOP, value, &[[id].as_slice(), name.as_slice()].concat(), IdBytes::Four)
}

fn found(name: &str, from: usize) -> Result<(String, usize), String> {
    Ok((name.to_owned(), from))
}

#[test]
fn confluents_indexes_follow_the_number() {
    for (behind, name, from) in [
        (&b"\0\x0A\x02p1"[..], "Other", 1),
        (b"\x02\0\x0A\x02p1", "Other", 2),
        (b"\x02\x02\x0A\x02p1", "Payment", 2),
        (b"\x04\x02\0", "Item", 3),
        (b"\x06\x02\0\0\x08\x01", "Tax", 4),
        (b"\0", "Other", 1),
    ] {
        assert_eq!(numbered(SHOP, behind), found(name, from), "{behind:?}");
        let eight = [b"\0\0\0\0\0\0\0\0\x05", behind].concat();
        assert_eq!(of(SHOP, &eight, &[], IdBytes::Eight), found(name, from), "{behind:?}");
        let guid = [b"\x01", &UUID[..], behind].concat();
        assert_eq!(of(SHOP, &guid, &[], IdBytes::Four), found(name, from), "{behind:?}");
    }
    let deep = "message A { message B { message C { message D { string id = 1; } } } }";
    assert_eq!(numbered(deep, b"\x08\0\0\0\0\x0A\x02p1"), found("D", 5));
}

#[test]
fn confluents_indexes_are_in_the_header_where_the_id_is() {
    let header = |behind: &[u8]| of(SHOP, b"\x0A\x02p1", &[("__value_schema_id", behind)], IdBytes::Four);
    assert_eq!(header(&[b"\x01", &UUID[..], b"\x02\x02"].concat()), found("Payment", 0));
    assert_eq!(header(b"\0\0\0\0\x05\x04\x02\0"), found("Item", 0));
    for unusable in [&b""[..], b"\0\0", b"\x04\x02", b"\x01", b"\x04\x02\x06"] {
        assert!(header(&[b"\x01", &UUID[..], unusable].concat()).is_err(), "{unusable:?}");
    }
}

/// The default of Apicurio's serializers, and what they add if they are told so.
#[test]
fn apicurios_name_follows_the_number() {
    let rest = b"\x0A\x02p1";
    assert_eq!(numbered(SHOP, &[PAYMENT, rest].concat()), found("Payment", 10));
    assert_eq!(numbered(SHOP, PAYMENT), found("Payment", 10), "an empty message");
    assert_eq!(numbered(SHOP, &[b"\x07\x0A\x05Other", &rest[..]].concat()), found("Other", 8));
    assert_eq!(numbered(SHOP, &[b"\x0E\x0A\x0Cshop.Payment", &rest[..]].concat()), found("Payment", 15));
    assert_eq!(numbered(SHOP, &[PAYMENT, b"\x02\x02", rest].concat()), found("Payment", 12), "and indexes");
    let eight = [b"\0\0\0\0\0\0\0\0\x05", PAYMENT, rest].concat();
    assert_eq!(of(SHOP, &eight, &[], IdBytes::Eight), found("Payment", 10));
    let both = "has the messages `Payment` and `Other`, and the record names both";
    assert_eq!(numbered(SHOP, &[PAYMENT, b"\0", rest].concat()), Err(both.to_owned()));
    let none = "has no message `Refunds`, which the record names";
    assert_eq!(numbered(SHOP, b"\x09\x0A\x07Refunds\x0A\x02p1"), Err(none.to_owned()));
}

#[test]
fn apicurios_name_is_in_a_header() {
    let rest = b"\x0A\x02p1";
    assert_eq!(in_headers(Some("Payment"), rest), found("Payment", 0), "before version 3");
    assert_eq!(in_headers(Some("Payment"), &[PAYMENT, rest].concat()), found("Payment", 10), "since then");
    assert_eq!(in_headers(Some("shop.Payment"), &[PAYMENT, rest].concat()), found("Payment", 10));
    assert_eq!(in_headers(Some("Payment"), &[b"\x02\x02", &rest[..]].concat()), found("Payment", 2));
    assert_eq!(in_headers(Some("Payment"), &[PAYMENT, b"\x02\x02", rest].concat()), found("Payment", 12));
    assert_eq!(in_headers(Some("Payment"), b""), found("Payment", 0));
    assert_eq!(in_headers(None, &[PAYMENT, rest].concat()), found("Payment", 10));
    // A message whose bytes are like a name.
    assert_eq!(in_headers(Some("Payment"), b"\x0A\x0A\x08Whatever"), found("Payment", 0));
    let none = "has no message `Refund`, which the record names";
    assert_eq!(in_headers(Some("Refund"), rest), Err(none.to_owned()));
    for value in [&b"\x07\x0A\x05Other\x0A\x02p1"[..], b"\0\x0A\x02p1"] {
        let both = "has the messages `Payment` and `Other`, and the record names both";
        assert_eq!(in_headers(Some("Payment"), value), Err(both.to_owned()), "{value:?}");
    }
}

#[test]
fn record_that_says_nothing_is_the_only_message() {
    let one = "message Payment { string id = 1; message Item {} }";
    for value in [
        &b""[..],
        b"\x0A\x02p1",
        // A number: as indexes, a message that the schema does not have.
        b"\x08\x02\x10\x04\x18\x06",
        b"\x09\0\0\0\0\0\0\xF4\x3F",
    ] {
        assert_eq!(numbered(one, value), found("Payment", 0), "{value:?}");
        let unsaid = "has 2 messages, and the record names none";
        assert_eq!(numbered(SHOP, value), Err(unsaid.to_owned()), "{value:?}");
        assert_eq!(in_headers(None, value), Err(unsaid.to_owned()), "{value:?}");
    }
    assert_eq!(numbered("enum E { A = 0; }", b"").unwrap_err(), Unclear::Unsaid(0).to_string());
}

/// With two letters a name has the same bytes as the indexes of a message: the schema tells.
#[test]
fn schema_tells_a_name_from_indexes() {
    let name = b"\x04\x0A\x02Tx\x0A\x02p1";
    let more = "message B {} message C {} message D {} message E {}";
    let nested = "message F { message G {} message H {} }";
    let named = format!("message Tx {{}} {more} {nested}");
    assert_eq!(numbered(&format!("message Tx {{}} {more} message F {{}}"), name), found("Tx", 5));
    assert_eq!(numbered(&format!("message A {{}} {more} {nested}"), name), found("H", 3));
    let either = "has the messages `Tx` and `H`, and the bytes before the record can be read as either of them";
    assert_eq!(numbered(&named, name), Err(either.to_owned()));
    assert_eq!(
        numbered(&format!("message A {{}} {more} message F {{}}"), name).unwrap_err(),
        no_such("Tx").to_string()
    );
    // And with six letters, four levels deep.
    let longer = b"\x08\x0A\x06Brvdef\x0A\x02p1";
    assert_eq!(numbered("message Brvdef {}", longer), found("Brvdef", 9));
}

/// What Confluent's serializers write by descriptors, and what by texts.
#[test]
fn indexes_that_depend_on_who_counts_are_an_error() {
    let text = "message A { map<int32, int32> m = 1; message B {} message C {} }";
    assert_eq!(numbered(text, b"\x04\0\0"), found("B", 3));
    assert_eq!(numbered(text, b"\x04\0\x04"), found("C", 3));
    let either = "has the messages `B` and `C`, and the bytes before the record can be read as either of them";
    assert_eq!(numbered(text, b"\x04\0\x02"), Err(either.to_owned()));
}

#[test]
fn glue_has_the_place_of_the_message_among_the_sorted_names() {
    let glue = |behind: &[u8]| of(SHOP, &[b"\x03\0", &UUID[..], behind].concat(), &[], IdBytes::Four);
    assert_eq!(glue(b"\x01\x0A\x02p1"), found("Payment", 1));
    assert_eq!(glue(b"\x83\0\x0A"), found("Tax", 2));
    assert_eq!(glue(b"\x04").unwrap_err(), "has no message at the place 4 of the sorted ones, which the record names");
    assert!(glue(b"\xFF\xFF\xFF\xFF\xFF\xFF").unwrap_err().contains("more than 32 bits"));
}

/// Whatever id is before them.
#[test]
fn hostile_indexes_are_errors() {
    for (hostile, said) in [
        (&b"\x01"[..], "at byte 0 after the schema id: no message is nested so deep"),
        (b"\x01\x01\x0A\x02p1", "at byte 0 after the schema id: no message is nested so deep"),
        (b"\x04\x02", "at byte 2 after the schema id: the bytes end there"),
        (b"\x02\x01", "at byte 1 after the schema id: an index is negative"),
        (b"\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF", "at byte 1 after the schema id: a number takes more than 32 bits"),
        (b"\x02\xFF\xFF\xFF\xFF\x1F", "at byte 1 after the schema id: a number takes more than 32 bits"),
        (b"\x02\x04", "has no message with the indexes [2], which the record names"),
        (b"\x04\x02\x02", "has no message with the indexes [1, 1], which the record names"),
    ] {
        for (id, id_bytes) in [
            (&b"\0\0\0\0\x05"[..], IdBytes::Four),
            (&[0; 9], IdBytes::Eight),
            (&[b"\x01", &UUID[..]].concat(), IdBytes::Four),
        ] {
            let error = of(SHOP, &[id, hostile].concat(), &[], id_bytes).unwrap_err();
            assert!(error.ends_with(said), "{hostile:?}: {error}");
        }
    }
    let guid = |behind: &[u8]| of(SHOP, &[b"\x01", &UUID[..], behind].concat(), &[], IdBytes::Four).unwrap_err();
    assert!(guid(b"").ends_with("at byte 0 after the schema id: the bytes end there"));
    assert!(guid(b"\x80\x89\x0F").ends_with("at byte 0 after the schema id: no message is nested so deep"));
}

#[test]
fn hostile_names_are_not_taken_for_names() {
    let one = "message Payment { string id = 1; }";
    for hostile in [
        // Lengths that lie, another field, a second field, no name, no text.
        &b"\x09\x0A\x08Payment"[..],
        b"\x0A\x0A\x07Payment",
        b"\x09\x12\x07Payment",
        b"\x0B\x0A\x07Payment\x10\x01",
        b"\x0B\x0A\x09Pay ment!",
        b"\x09\x0A\x07\xFFayment",
        b"\xFF\xFF\xFF\xFF\x0F\x0A\x07Payment",
    ] {
        assert_eq!(numbered(one, hostile), found("Payment", 0), "{hostile:?}");
        assert!(numbered(SHOP, hostile).is_err(), "{hostile:?}");
    }
}

proptest! {
    /// Whichever serializer has written it, with any bytes after it.
    #[test]
    fn record_is_the_message_that_was_written(
        place in 0..4_usize,
        way in 0..4_usize,
        record in proptest::collection::vec(any::<u8>(), 0..32),
    ) {
        let name = ["Other", "Payment", "Payment.Item", "Payment.Item.Tax"][place];
        let indexes = [&b"\x02\0"[..], b"\x02\x02", b"\x04\x02\0", b"\x06\x02\0\0"][place];
        let length = u8::try_from(name.len()).unwrap();
        let ref_to = [&[length + 2, 0x0A, length], name.as_bytes()].concat();
        // No record begins with a field of number 0.
        let begins = [0x0A, u8::try_from(record.len()).unwrap()];
        let record = [&begins[..], &record].concat();
        let (before, header) = match way {
            0 => (indexes.to_vec(), None),
            1 => (ref_to, None),
            2 => ([&ref_to[..], indexes].concat(), None),
            _ => (Vec::new(), Some(name)),
        };
        let value = [&before[..], &record].concat();
        let expected = found(name.rsplit('.').next().unwrap(), before.len());
        match header {
            None => prop_assert_eq!(numbered(SHOP, &value), expected),
            Some(_) => prop_assert_eq!(in_headers(header, &value), expected),
        }
    }

    #[test]
    fn no_bytes_end_the_thread(
        begin in prop::sample::select(vec![&b""[..], b"\0", b"\x02", b"\x04\x0A\x02", b"\x08\x02", PAYMENT, b"\x09\x0A"]),
        rest in proptest::collection::vec(any::<u8>(), 0..DEPTH_MAX),
        name in prop::option::of("[A-Za-z.]{0,8}"),
        has_one in any::<bool>(),
    ) {
        let value = [begin, &rest].concat();
        let text = if has_one { "message A { message B {} map<int32, int32> m = 1; }" } else { SHOP };
        let schema = Schema::parse(text, &[]).unwrap();
        let id = ("apicurio.value.globalId", &[1; 8][..]);
        let named = name.as_ref().map(|name| headers(&[id, ("apicurio.protobuf.type", name.as_bytes())]));
        let whole = [&b"\0\0\0\0\x05"[..], &value].concat();
        let framed = match &named {
            Some(named) => read(&value, named.as_headers(), false, IdBytes::Four),
            None => read(&whole, Headers::default(), false, IdBytes::Four),
        };
        if let Ok(found) = which(&framed.unwrap(), &schema) {
            prop_assert!(found.message < schema.graph().messages.len());
            prop_assert!(found.from <= value.len());
        }
    }
}
