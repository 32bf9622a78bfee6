//! The key of a request: the client's name for it, which allows the client to repeat it.
//!
//! In the IETF draft the key is a structured field string, in quotes; most clients send it without quotes. Both are the
//! same key. A comma outside quotes is refused: intermediaries join repeated header fields with a comma.

use http::header::{HeaderMap, HeaderName};

/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// Why a key is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("it is empty")]
    Empty,
    #[error("it has more than {KEY_BYTES_MAX} bytes")]
    TooLong,
    #[error("there is more than one key")]
    Several,
    #[error("it contains a byte that is not a visible ASCII character")]
    Character,
    #[error("its quotes are not closed, something follows them, or a backslash does not escape a quote or a backslash")]
    Quotes,
}

/// The key in these headers, if they have one.
pub(super) fn read(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, Error> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Error::Several);
    }
    let text = value.as_bytes().trim_ascii();
    let key = match text {
        [b'"', quoted @ ..] => unquote(quoted)?,
        bare if bare.contains(&b',') => return Err(Error::Several),
        bare if !bare.iter().all(u8::is_ascii_graphic) => return Err(Error::Character),
        bare => bare.to_vec(),
    };
    match key.len() {
        0 => Err(Error::Empty),
        length if length > KEY_BYTES_MAX => Err(Error::TooLong),
        _ => String::from_utf8(key).map(Some).map_err(|_| Error::Character),
    }
}

/// Parses what follows an opening quote (RFC 8941, section 3.3.3).
fn unquote(quoted: &[u8]) -> Result<Vec<u8>, Error> {
    let mut key = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    loop {
        match bytes.next() {
            Some(b'"') if bytes.as_slice().is_empty() => return Ok(key),
            Some(b'"') if bytes.as_slice().trim_ascii_start().starts_with(b",") => return Err(Error::Several),
            Some(b'"') | None => return Err(Error::Quotes),
            Some(b'\\') => match bytes.next() {
                Some(&byte @ (b'"' | b'\\')) => key.push(byte),
                _ => return Err(Error::Quotes),
            },
            Some(&byte @ 0x20..=0x7e) => key.push(byte),
            Some(_) => return Err(Error::Character),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read_all(values: &[&str]) -> Result<Option<String>, Error> {
        let name = HeaderName::from_static("idempotency-key");
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        read(&headers, &name)
    }

    #[test]
    fn keys_are_bare_or_quoted() {
        let same = [r#"8e03978e-40d5-43e8-bc93-6894a57f9324"#, r#""8e03978e-40d5-43e8-bc93-6894a57f9324""#];
        for text in same {
            assert_eq!(read_all(&[text]).unwrap().as_deref(), Some(same[0]));
        }
        assert_eq!(read_all(&[r#""a \"b\", \\c""#]).unwrap().as_deref(), Some(r#"a "b", \c"#));
        assert_eq!(read_all(&["  a  "]).unwrap().as_deref(), Some("a"));
        assert_eq!(read_all(&[]), Ok(None));
    }

    #[test]
    fn invalid_keys_are_refused() {
        let long = "k".repeat(256);
        let quoted = format!("\"{}\"", "k".repeat(255));
        assert_eq!(read_all(&[&quoted]).unwrap().map(|key| key.len()), Some(255));
        let cases = [
            ("", Error::Empty),
            (r#""""#, Error::Empty),
            (&long, Error::TooLong),
            ("a,b", Error::Several),
            (r#""a", "b""#, Error::Several),
            ("a b", Error::Character),
            ("schlüssel", Error::Character),
            (r#""schlüssel""#, Error::Character),
            (r#""a"#, Error::Quotes),
            (r#""a"b"#, Error::Quotes),
            (r#""a\x""#, Error::Quotes),
            (r#""a";p=1"#, Error::Quotes),
        ];
        for (text, expected) in cases {
            assert_eq!(read_all(&[text]), Err(expected), "{text}");
        }
        assert_eq!(read_all(&["a", "a"]), Err(Error::Several));
    }
}
