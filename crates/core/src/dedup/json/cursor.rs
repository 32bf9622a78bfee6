//! Reads JSON's tokens one after the other; nothing is copied.

use super::Malformed;

/// A place in a document.
pub(in crate::dedup) struct Cursor<'d> {
    document: &'d [u8],
    at: usize,
}

/// The range of a string's bytes without its quotes, and whether it contains escapes.
#[derive(Clone, Copy)]
pub(in crate::dedup) struct Text {
    pub from: usize,
    pub to: usize,
    pub escaped: bool,
}

/// Number of bytes examined together, where that many are left.
const WIDE: usize = 16;

const EACH: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x80 * EACH;

/// The high bit of each byte of `word` that ends a run of plain characters: a quote, a backslash or a control
/// character. Bits above the lowest one set may be wrong; the lowest never is.
fn special(word: u64) -> u64 {
    let is_zero = |x: u64| x.wrapping_sub(EACH) & !x & HIGH;
    let quote = is_zero(word ^ (EACH * b'"' as u64));
    let backslash = is_zero(word ^ (EACH * b'\\' as u64));
    let control = word.wrapping_sub(EACH * 0x20) & !word & HIGH;
    quote | backslash | control
}

/// Number of plain bytes before the first that ends the run.
#[cfg(target_arch = "x86_64")]
#[inline]
fn plain_of(wide: &[u8; WIDE]) -> usize {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };
    let word = u128::from_le_bytes(*wide);
    // SAFETY: these need SSE2, which every x86_64 has; no pointer is involved.
    let found = unsafe {
        let bytes = _mm_set_epi64x((word >> 64) as i64, word as i64);
        let quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
        let backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
        let control = _mm_cmpeq_epi8(bytes, _mm_min_epu8(bytes, _mm_set1_epi8(0x1f)));
        _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(quote, backslash), control)) as u32
    };
    (found | 1 << WIDE).trailing_zeros() as usize
}

/// Number of plain bytes before the first that ends the run.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn plain_of(wide: &[u8; WIDE]) -> usize {
    let word = u128::from_le_bytes(*wide);
    let (low, high) = (special(word as u64), special((word >> 64) as u64));
    let plain = |found: u64| found.trailing_zeros() as usize / 8;
    if low != 0 { plain(low) } else { 8 + plain(high) }
}

/// Whether all bytes of `word` are decimal digits.
#[inline]
fn all_digits(word: u64) -> bool {
    (word & (0xf0 * EACH)) == 0x30 * EACH && (word.wrapping_add(0x06 * EACH) & (0xf0 * EACH)) == 0x30 * EACH
}

impl<'d> Cursor<'d> {
    pub fn new(document: &'d [u8]) -> Self {
        Self { document, at: 0 }
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.document.len()
    }

    /// The current byte; 0, with which no token begins, at the end.
    #[inline]
    pub fn peek(&self) -> u8 {
        self.document.get(self.at).copied().unwrap_or(0)
    }

    #[inline]
    pub fn bump(&mut self) {
        self.at += 1;
    }

    #[inline]
    pub fn skip_space(&mut self) {
        while matches!(self.peek(), b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
    }

    /// The cursor's position.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    pub fn bytes(&self, from: usize, to: usize) -> &'d [u8] {
        self.document.get(from..to).unwrap_or_default()
    }

    #[cold]
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { at: self.at, what }
    }

    /// `true`, `false` or `null`.
    #[inline]
    pub fn literal(&mut self, word: &'static [u8]) -> Result<(), Malformed> {
        if !self.document.get(self.at..).is_some_and(|rest| rest.starts_with(word)) {
            return Err(self.malformed("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// A number; the cursor is at its first byte.
    #[inline]
    pub fn number(&mut self) -> Result<(usize, usize), Malformed> {
        let from = self.at;
        if self.peek() == b'-' {
            self.bump();
        }
        match self.peek() {
            b'0' => self.bump(),
            b'1'..=b'9' => self.skip_digits(),
            _ => return Err(self.malformed("expected a digit")),
        }
        if self.peek() == b'.' {
            self.bump();
            self.digits()?;
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.bump();
            if matches!(self.peek(), b'+' | b'-') {
                self.bump();
            }
            self.digits()?;
        }
        Ok((from, self.at))
    }

    #[inline]
    fn skip_digits(&mut self) {
        while let Some(chunk) = self.document.get(self.at..).and_then(|rest| rest.first_chunk::<8>())
            && all_digits(u64::from_le_bytes(*chunk))
        {
            self.at += 8;
        }
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        if !self.peek().is_ascii_digit() {
            return Err(self.malformed("expected a digit"));
        }
        self.skip_digits();
        Ok(())
    }

    /// A string; the cursor is at its opening quote.
    #[inline]
    pub fn text(&mut self) -> Result<Text, Malformed> {
        self.bump();
        let from = self.at;
        let mut escaped = false;
        loop {
            self.skip_plain();
            match self.peek() {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ if self.is_at_end() => return Err(self.malformed("the string does not end")),
                _ => return Err(self.malformed("a control character in a string must be escaped")),
            }
        }
        let to = self.at;
        self.bump();
        Ok(Text { from, to, escaped })
    }

    /// Moves to the next quote, backslash or control character, or to the end.
    #[inline]
    fn skip_plain(&mut self) {
        while let Some(chunk) = self.document.get(self.at..).and_then(|rest| rest.first_chunk::<WIDE>()) {
            let plain = plain_of(chunk);
            self.at += plain;
            if plain < WIDE {
                return;
            }
        }
        if let Some(chunk) = self.document.get(self.at..).and_then(|rest| rest.first_chunk::<8>()) {
            let found = special(u64::from_le_bytes(*chunk));
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        while let Some(&byte) = self.document.get(self.at) {
            if byte < 0x20 || byte == b'"' || byte == b'\\' {
                return;
            }
            self.at += 1;
        }
    }

    /// Skips an object or array, checking it; the cursor is at its opening bracket. `closers` is scratch space; at most
    /// `depth_left` levels may be nested.
    pub fn skip_composite(&mut self, closers: &mut Vec<u8>, depth_left: usize) -> Result<(), Malformed> {
        closers.clear();
        if depth_left == 0 {
            return Err(self.malformed("nested too deep"));
        }
        let mut close = self.open();
        self.skip_space();
        let mut ended = self.peek() == close;
        loop {
            while ended {
                self.bump();
                let Some(outer) = closers.pop() else { return Ok(()) };
                close = outer;
                ended = self.is_ended(close)?;
            }
            if close == b'}' {
                self.name()?;
            }
            self.skip_space();
            match self.peek() {
                b'"' => {
                    self.text()?;
                }
                b'-' | b'0'..=b'9' => {
                    self.number()?;
                }
                b'{' | b'[' => {
                    if closers.len() + 1 >= depth_left {
                        return Err(self.malformed("nested too deep"));
                    }
                    closers.push(close);
                    close = self.open();
                    self.skip_space();
                    ended = self.peek() == close;
                    continue;
                }
                other => self.word(other)?,
            }
            ended = self.is_ended(close)?;
        }
    }

    /// Skips an opening bracket; returns the matching closing one.
    #[inline]
    fn open(&mut self) -> u8 {
        let close = if self.peek() == b'{' { b'}' } else { b']' };
        self.bump();
        close
    }

    /// After a value: returns whether the closing bracket comes next; otherwise skips a comma.
    #[inline]
    fn is_ended(&mut self, close: u8) -> Result<bool, Malformed> {
        self.skip_space();
        match self.peek() {
            b',' => self.bump(),
            byte if byte == close => return Ok(true),
            _ => return Err(self.malformed("expected a comma or the end of the object or array")),
        }
        Ok(false)
    }

    /// A field's name and its colon.
    #[inline]
    pub fn name(&mut self) -> Result<Text, Malformed> {
        self.skip_space();
        if self.peek() != b'"' {
            return Err(self.malformed("expected a field's name in double quotes"));
        }
        let text = self.text()?;
        self.skip_space();
        if self.peek() != b':' {
            return Err(self.malformed("expected a colon after the field's name"));
        }
        self.bump();
        Ok(text)
    }

    /// `true`, `false` or `null`, by its first byte.
    #[inline]
    fn word(&mut self, first: u8) -> Result<(), Malformed> {
        match first {
            b't' => self.literal(b"true"),
            b'f' => self.literal(b"false"),
            b'n' => self.literal(b"null"),
            _ => Err(self.malformed("expected a value")),
        }
    }

    /// An escape; the cursor is at its backslash.
    fn escape(&mut self) -> Result<(), Malformed> {
        self.bump();
        match self.peek() {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.bump(),
            b'u' => {
                self.bump();
                match self.hex()? {
                    0xdc00..=0xdfff => return Err(self.malformed("half of a surrogate pair stands alone")),
                    0xd800..=0xdbff => self.low_surrogate()?,
                    _ => {}
                }
            }
            _ => return Err(self.malformed("no such escape")),
        }
        Ok(())
    }

    fn low_surrogate(&mut self) -> Result<(), Malformed> {
        if self.peek() == b'\\' {
            self.bump();
            if self.peek() == b'u' {
                self.bump();
                if matches!(self.hex()?, 0xdc00..=0xdfff) {
                    return Ok(());
                }
            }
        }
        Err(self.malformed("half of a surrogate pair stands alone"))
    }

    /// The four hex digits of an escape.
    fn hex(&mut self) -> Result<u32, Malformed> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = char::from(self.peek()).to_digit(16);
            unit = unit * 16 + digit.ok_or_else(|| self.malformed("expected four hex digits"))?;
            self.bump();
        }
        Ok(unit)
    }
}

/// Appends the unescaped text for the bytes between a string's quotes. [`Cursor::text`] has checked them; otherwise
/// invalid escapes are left out.
pub(in super::super) fn unescape(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&byte| byte == b'\\') {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let Some((&kind, after)) = rest.split_first() else { return };
        rest = after;
        match kind {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => rest = unescape_unit(rest, out),
            other => out.push(other),
        }
    }
    out.extend_from_slice(rest);
}

/// Takes the digits that follow `\u` off the front, and the second half of a surrogate pair if these are the first.
fn unescape_unit<'r>(mut rest: &'r [u8], out: &mut Vec<u8>) -> &'r [u8] {
    let mut code = take_hex(&mut rest);
    if (0xd800..0xdc00).contains(&code)
        && let Some(mut after) = rest.strip_prefix(b"\\u")
    {
        let low = take_hex(&mut after).wrapping_sub(0xdc00) & 0x3ff;
        code = 0x10000 + ((code - 0xd800) << 10) + low;
        rest = after;
    }
    if let Some(character) = char::from_u32(code) {
        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    }
    rest
}

fn take_hex(rest: &mut &[u8]) -> u32 {
    let (digits, after) = rest.split_at(rest.len().min(4));
    *rest = after;
    digits.iter().fold(0, |unit, &digit| unit * 16 + char::from(digit).to_digit(16).unwrap_or(0))
}
