//! The tokens of a .proto file.

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Integer(u64),
    Float(f64),
    /// The characters between the quotes, with escapes.
    Text(&'t str),
    Symbol(char),
    End,
}

/// Why there is no token, and at which offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    pub at: usize,
    pub what: &'static str,
}

/// The next token from `at` on, and the offsets at which it begins and ends.
pub(super) fn next(text: &str, at: usize) -> Result<(Token<'_>, usize, usize), Unknown> {
    let from = skip_space(text, at)?;
    let rest = &text.as_bytes()[from..];
    let Some(&first) = rest.first() else { return Ok((Token::End, from, from)) };
    let length = |is_part: fn(&u8) -> bool| rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
    if first.is_ascii_alphabetic() || first == b'_' {
        let to = from + length(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        return Ok((Token::Word(&text[from..to]), from, to));
    }
    let is_number = first.is_ascii_digit() || first == b'.' && rest.get(1).is_some_and(u8::is_ascii_digit);
    if is_number {
        return number(text, from);
    }
    if first == b'"' || first == b'\'' {
        let to =
            from + 1 + text_length(&rest[1..], first).ok_or(Unknown { at: from, what: "an unterminated string" })?;
        return Ok((Token::Text(&text[from + 1..to]), from, to + 1));
    }
    let symbol = text[from..].chars().next().unwrap_or_default();
    if !symbol.is_ascii_punctuation() {
        return Err(Unknown { at: from, what: "an unexpected character" });
    }
    Ok((Token::Symbol(symbol), from, from + 1))
}

/// Skips blanks and comments.
fn skip_space(text: &str, mut at: usize) -> Result<usize, Unknown> {
    let bytes = text.as_bytes();
    loop {
        let rest = &bytes[at..];
        match rest {
            [byte, ..] if byte.is_ascii_whitespace() || *byte == 0x0b => at += 1,
            // A byte order mark.
            [0xef, 0xbb, 0xbf, ..] if at == 0 => at += 3,
            [b'/', b'/', ..] => at += memchr::memchr(b'\n', rest).unwrap_or(rest.len()),
            [b'/', b'*', ..] => {
                let end = memchr::memmem::find(&rest[2..], b"*/");
                at += 4 + end.ok_or(Unknown { at, what: "an unterminated comment" })?;
            }
            _ => return Ok(at),
        }
    }
}

/// The length of a string up to its closing quote, if that is on the same line.
fn text_length(rest: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        match rest.get(at)? {
            b'\n' => return None,
            b'\\' => at += 2,
            byte if *byte == quote => return Some(at),
            _ => at += 1,
        }
    }
}

fn number(text: &str, from: usize) -> Result<(Token<'_>, usize, usize), Unknown> {
    let rest = &text.as_bytes()[from..];
    let is_hex = matches!(rest, [b'0', b'x' | b'X', ..]);
    let mut length = 0;
    while let Some(byte) = rest.get(length) {
        let is_sign = matches!(byte, b'+' | b'-') && !is_hex && matches!(rest[length - 1], b'e' | b'E');
        if !byte.is_ascii_alphanumeric() && *byte != b'.' && *byte != b'_' && !is_sign {
            break;
        }
        length += 1;
    }
    let to = from + length;
    let word = &text[from..to];
    let bad = Unknown { at: from, what: "not a number" };
    if let Some(hex) = word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).map(|value| (Token::Integer(value), from, to)).map_err(|_| bad);
    }
    if word.bytes().all(|byte| byte.is_ascii_digit()) {
        let radix = if word.len() > 1 && word.starts_with('0') { 8 } else { 10 };
        if let Ok(value) = u64::from_str_radix(word, radix) {
            return Ok((Token::Integer(value), from, to));
        }
        if radix == 8 {
            return Err(bad);
        }
    }
    let float = word.strip_suffix(['f', 'F']).unwrap_or(word);
    float.parse().map(|value| (Token::Float(value), from, to)).map_err(|_| bad)
}

/// Replaces the escapes in a string; `None` if one is unknown.
pub(super) fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        let letter = rest.chars().next()?;
        let plain = match letter {
            'a' => 7,
            'b' => 8,
            'f' => 12,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 11,
            '\\' | '\'' | '"' | '?' => letter as u8,
            _ => {
                rest = coded(letter, rest, &mut out)?;
                continue;
            }
        };
        out.push(plain);
        rest = &rest[1..];
    }
    out.extend_from_slice(rest.as_bytes());
    Some(out)
}

/// Appends the character of a numeric escape; returns the rest of the string.
fn coded<'t>(letter: char, rest: &'t str, out: &mut Vec<u8>) -> Option<&'t str> {
    let (skipped, radix, digits_max, is_char) = match letter {
        '0'..='7' => (0, 8, 3, false),
        'x' | 'X' => (1, 16, 2, false),
        'u' => (1, 16, 4, true),
        'U' => (1, 16, 8, true),
        _ => return None,
    };
    let rest = &rest[skipped..];
    let digits = rest.chars().take(digits_max).take_while(|c| c.is_digit(radix)).count();
    let code = u32::from_str_radix(&rest[..digits], radix).ok()?;
    if is_char {
        let c = char::from_u32(code).filter(|_| digits == digits_max)?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        out.push(u8::try_from(code).ok()?);
    }
    Some(&rest[digits..])
}
