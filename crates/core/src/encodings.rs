//! How bytes look that somebody has encoded: in base64, as Kafka Connect writes decimals and bytes in JSON, or by a
//! serializer with a schema registry. Only a look: other bytes may look the same.

/// How a text looks that may be bytes in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base64 {
    /// It is padded with `=`: hardly anything else looks so.
    Padded,
    /// Only its letters and its length fit: it may be any word or number.
    Bare,
}

/// Whether a text may be bytes in base64, and at least one.
pub fn base64(text: &[u8]) -> Option<Base64> {
    let end = text.iter().rposition(|&byte| byte != b'=').map_or(0, |last| last + 1);
    let (digits, padding) = text.split_at(end);
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let is_whole = text.len().is_multiple_of(4) && padding.len() <= 2 && !digits.is_empty();
    let look = if padding.is_empty() { Base64::Bare } else { Base64::Padded };
    (is_whole && digits.iter().all(fits)).then_some(look)
}

/// What follows the prefix of serializers with a schema registry, a zero byte and four with the number of a schema; `None`
/// if they do not begin with one, or nothing follows.
pub fn behind_registry_prefix(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [0, _, _, _, _, rest @ ..] if !rest.is_empty() => Some(rest),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_whole_groups_of_its_letters() {
        for text in ["AQ==", "AIA=", "ASw="] {
            assert_eq!(base64(text.as_bytes()), Some(Base64::Padded), "{text}");
        }
        for text in ["1234", "paid", "12345678", "1e10", "+123", "Infinity", "/+/+"] {
            assert_eq!(base64(text.as_bytes()), Some(Base64::Bare), "{text}");
        }
        for text in [
            "",
            "====",
            "A===",
            "AQ=",
            "a-b=",
            "12.5",
            "12.50",
            "-123",
            "123",
            "12345",
            "NaN",
            "1 23",
            "12=4",
            "1_00",
            "12.3456789",
            "äöa",
        ] {
            assert_eq!(base64(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn prefix_of_a_registry_is_a_zero_byte_and_a_number_before_a_payload() {
        assert_eq!(behind_registry_prefix(b"\0\0\0\0\x05{}"), Some(&b"{}"[..]));
        for other in [&b""[..], b"\0", b"\0\0\0\0\x05", b"\x01\0\0\0\x05{}", b"{\"id\":1}"] {
            assert_eq!(behind_registry_prefix(other), None, "{other:?}");
        }
    }
}
