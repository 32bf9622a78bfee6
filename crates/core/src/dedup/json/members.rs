//! The fields and elements at the top of an object or array, as they are written. The document must be one that a scanner
//! has accepted, or a part of it; anything else ends the walk early.

use std::ops::Range;

use super::Cursor;

/// Deeper than any document that a scanner accepts.
const DEPTH_MAX: usize = usize::MAX;

/// Calls `each` with every field of an object, in its order: what is between the quotes of the name, and the range from
/// the name's opening quote to the value's end. Ends early where `each` returns false. `closers` is scratch space.
pub(in crate::dedup) fn fields(
    object: &[u8],
    closers: &mut Vec<u8>,
    mut each: impl FnMut(&[u8], Range<usize>) -> bool,
) -> Option<()> {
    let mut cursor = open(object, b'{')?;
    while cursor.peek() != b'}' {
        cursor.skip_space();
        let from = cursor.at();
        let name = cursor.name().ok()?;
        skip_value(&mut cursor, closers)?;
        if !each(cursor.bytes(name.from, name.to), from..cursor.at()) {
            break;
        }
        next(&mut cursor, b'}')?;
    }
    Some(())
}

/// The range of an array's element of this number, from 0. `closers` is scratch space.
pub(in crate::dedup) fn element(array: &[u8], number: usize, closers: &mut Vec<u8>) -> Option<Range<usize>> {
    let (mut at, mut found) = (0, None);
    elements(array, closers, |range| {
        found = (at == number).then_some(range);
        at += 1;
        found.is_none()
    });
    found
}

/// Calls `each` with the range of every element of an array, in order. Ends early where `each` returns false. `closers` is
/// scratch space.
pub(in crate::dedup) fn elements(
    array: &[u8],
    closers: &mut Vec<u8>,
    mut each: impl FnMut(Range<usize>) -> bool,
) -> Option<()> {
    let mut cursor = open(array, b'[')?;
    while cursor.peek() != b']' {
        cursor.skip_space();
        let from = cursor.at();
        skip_value(&mut cursor, closers)?;
        if !each(from..cursor.at()) {
            break;
        }
        next(&mut cursor, b']')?;
    }
    Some(())
}

/// The record in a union of Avro's JSON, if `object` is one: an object whose only field holds an object, and has a name
/// with a dot. `closers` is scratch space.
pub(in crate::dedup) fn record_in_union<'d>(object: &'d [u8], closers: &mut Vec<u8>) -> Option<&'d [u8]> {
    let mut cursor = open(object, b'{')?;
    let name = cursor.name().ok()?;
    if !cursor.bytes(name.from, name.to).contains(&b'.') {
        return None;
    }
    cursor.skip_space();
    let from = cursor.at();
    if cursor.peek() != b'{' {
        return None;
    }
    cursor.skip_composite(closers, DEPTH_MAX).ok()?;
    let to = cursor.at();
    cursor.skip_space();
    (cursor.peek() == b'}').then(|| &object[from..to])
}

/// A cursor behind the opening bracket.
fn open(composite: &[u8], bracket: u8) -> Option<Cursor<'_>> {
    let mut cursor = Cursor::new(composite);
    if cursor.peek() != bracket {
        return None;
    }
    cursor.bump();
    cursor.skip_space();
    Some(cursor)
}

fn skip_value(cursor: &mut Cursor<'_>, closers: &mut Vec<u8>) -> Option<()> {
    cursor.skip_space();
    match cursor.peek() {
        b'"' => cursor.text().map(|_| ()),
        b'{' | b'[' => cursor.skip_composite(closers, DEPTH_MAX),
        b't' => cursor.literal(b"true"),
        b'f' => cursor.literal(b"false"),
        b'n' => cursor.literal(b"null"),
        _ => cursor.number().map(|_| ()),
    }
    .ok()
}

/// Moves past a comma, or to the closing bracket.
fn next(cursor: &mut Cursor<'_>, close: u8) -> Option<()> {
    cursor.skip_space();
    match cursor.peek() {
        b',' => cursor.bump(),
        other if other == close => {}
        _ => return None,
    }
    cursor.skip_space();
    Some(())
}

#[cfg(test)]
mod tests {
    //! Goal: whatever is at the top comes out as it is written, and nothing else does.

    use super::*;

    fn all(object: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields(object.as_bytes(), &mut Vec::new(), |name, range| {
            all.push((text(name), object[range].to_owned()));
            true
        });
        all
    }

    #[test]
    fn fields_come_out_as_they_are_written() {
        let object = r#"{ "a" : 1, "b":{"a": [2,"}"]} ,"c\n":"x\"y","d":null,"e": true ,"f":[]}"#;
        let expected = [
            ("a", r#""a" : 1"#),
            ("b", r#""b":{"a": [2,"}"]}"#),
            (r"c\n", r#""c\n":"x\"y""#),
            ("d", r#""d":null"#),
            ("e", r#""e": true"#),
            ("f", r#""f":[]"#),
        ];
        assert_eq!(all(object), expected.map(|(name, raw)| (name.to_owned(), raw.to_owned())));
        assert_eq!(all("{}"), []);
        assert_eq!(all("{ }"), []);
        assert_eq!(all("[1]"), []);
    }

    #[test]
    fn elements_are_found_by_their_number() {
        let array = r#"[ {"id":1} ,2,"]", [3] ]"#;
        let of = |number| element(array.as_bytes(), number, &mut Vec::new()).map(|range| &array[range]);
        assert_eq!([of(0), of(1), of(2), of(3)], [r#"{"id":1}"#, "2", r#""]""#, "[3]"].map(Some));
        assert_eq!(of(4), None);
        assert_eq!(element(b"[]", 0, &mut Vec::new()), None);
        assert_eq!(element(b"{}", 0, &mut Vec::new()), None);
    }

    #[test]
    fn only_a_record_in_a_union_is_unwrapped() {
        let of = |object: &'static str| record_in_union(object.as_bytes(), &mut Vec::new());
        assert_eq!(of(r#"{"shop.public.t.Value": {"id":1} }"#), Some(&br#"{"id":1}"#[..]));
        for other in
            [r#"{"id":1}"#, r#"{"a.b":1}"#, r#"{"a.b":{},"c":1}"#, r#"{"ab":{}}"#, "{}", "[]", r#"{"a.b":[{}]}"#]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }
}
