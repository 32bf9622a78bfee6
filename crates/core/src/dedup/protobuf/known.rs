//! Well-known messages, which have a JSON form of their own: those of google/protobuf, and Confluent's decimal.

use std::io::Write;

use super::scalar::{Raw, raw, utf8};
use super::walk::{Failure, Walk, failure};
use crate::dedup::extracted::Mark;
use crate::dedup::logical::{decimal, time};
use crate::dedup::steps::{Found, UNWANTED};
use crate::schemas::protobuf::wire::Malformed;
use crate::schemas::protobuf::{Known, Message, push_camel_case};

/// The seconds since 1970 in the years 1 to 9999.
const TIMESTAMPS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;
/// About 10,000 years.
const DURATION_SECONDS_MAX: i64 = 315_576_000_000;
const NANOS: std::ops::RangeInclusive<i64> = 0..=999_999_999;

impl<'p, 'b> Walk<'p, 'b, '_> {
    /// Writes a well-known message that begins at byte `at`, and whose marks begin at `base`.
    pub fn write_known(
        &mut self,
        of: &'p Message,
        base: usize,
        at: usize,
        node: usize,
        depth: usize,
    ) -> Result<(), Failure> {
        let invalid = |what| Err(failure(Malformed { at, what }));
        match of.known {
            Known::Timestamp => {
                let (seconds, nanos) = (self.number(of, base, 0)?, self.number(of, base, 1)?);
                if !TIMESTAMPS.contains(&seconds) || !NANOS.contains(&nanos) {
                    return invalid("a timestamp outside the years 1 to 9999");
                }
                self.plain_text(node, |out| write_timestamp(seconds, nanos, out));
            }
            Known::Duration => {
                let (seconds, nanos) = (self.number(of, base, 0)?, self.number(of, base, 1)?);
                let is_mixed = seconds < 0 && nanos > 0 || seconds > 0 && nanos < 0;
                let is_long = seconds.unsigned_abs() > DURATION_SECONDS_MAX.unsigned_abs();
                if is_mixed || is_long || !NANOS.contains(&nanos.abs()) {
                    return invalid("an invalid duration");
                }
                self.plain_text(node, |out| write_duration(seconds, nanos, out));
            }
            Known::FieldMask => self.write_mask(base, node)?,
            Known::Wrapper | Known::Struct | Known::ListValue | Known::Value => match self.run(base) {
                Some((field, marks)) => self.write(&of.fields[field], marks, node, depth)?,
                None if of.known == Known::Value => self.to.null(node),
                None => self.write_absent(&of.fields[0], node, depth)?,
            },
            Known::Any => {
                let from = self.to.end();
                for (field, name) in of.fields.iter().zip(["{\"@type\":", ",\"value\":"]) {
                    self.to.out().extend_from_slice(name.as_bytes());
                    let last = self.last(base, field.group);
                    self.write(field, last.map_or(base..base, |at| at..at + 1), UNWANTED, depth)?;
                }
                self.to.out().push(b'}');
                self.to.composite(node, from);
            }
            Known::Decimal => {
                let scale = self.number(of, base, 2)?;
                let unscaled = self.last(base, 0).map_or(&[][..], |at| self.marked(at));
                let mut is_decimal = true;
                self.to.number(node, |out| is_decimal = write_decimal(unscaled, scale, out));
                if !is_decimal {
                    return invalid("a decimal with more digits than any database has");
                }
            }
            Known::None => {}
        }
        Ok(())
    }

    /// The integer in the field with this index; 0 if it is absent.
    fn number(&self, of: &Message, base: usize, field: usize) -> Result<i64, Failure> {
        let Some(last) = self.last(base, field) else { return Ok(0) };
        match raw(self.bytes, of.fields[field].of, self.marks[last])? {
            Raw::Bits(bits) => Ok(bits.cast_signed()),
            Raw::Bytes(_) => Ok(0),
        }
    }

    fn marked(&self, at: usize) -> &'b [u8] {
        let Mark { from, to, .. } = self.marks[at];
        let bytes = self.bytes;
        &bytes[from..to]
    }

    /// Writes a string that needs no escapes.
    fn plain_text(&mut self, node: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let out = self.to.out();
        out.push(b'"');
        let from = out.len();
        write(out);
        let to = out.len();
        out.push(b'"');
        self.to.note(node, Found::Text { from, to, escaped: false });
    }

    /// Writes the paths of a mask in camel case, separated by commas.
    fn write_mask(&mut self, base: usize, node: usize) -> Result<(), Failure> {
        let mut text = String::new();
        for (number, mark) in self.marks[base..].iter().enumerate() {
            if number > 0 {
                text.push(',');
            }
            push_camel_case(utf8(&self.bytes[mark.from..mark.to], mark.from)?, false, &mut text);
        }
        self.to.text(node, &text);
        Ok(())
    }
}

/// Appends a timestamp in RFC 3339 format, in UTC.
fn write_timestamp(seconds: i64, nanos: i64, out: &mut Vec<u8>) {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = time::date_of(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    for (number, digits, separator) in
        [(year, 4, b'-'), (month, 2, b'-'), (day, 2, b'T'), (hour, 2, b':'), (minute, 2, b':'), (second, 2, b'Z')]
    {
        push_digits(number, digits, out);
        out.push(separator);
    }
    if nanos != 0 {
        out.pop();
        write_fraction(nanos, out);
        out.push(b'Z');
    }
}

fn write_duration(seconds: i64, nanos: i64, out: &mut Vec<u8>) {
    if seconds < 0 || nanos < 0 {
        out.push(b'-');
    }
    let _ = write!(out, "{}", seconds.unsigned_abs());
    if nanos != 0 {
        write_fraction(nanos.abs(), out);
    }
    out.push(b's');
}

/// Appends a point and three, six or nine digits.
fn write_fraction(nanos: i64, out: &mut Vec<u8>) {
    out.push(b'.');
    match nanos {
        _ if nanos % 1_000_000 == 0 => push_digits(nanos / 1_000_000, 3, out),
        _ if nanos % 1_000 == 0 => push_digits(nanos / 1_000, 6, out),
        _ => push_digits(nanos, 9, out),
    }
}

/// Appends a number of at most `digits` digits, with leading zeros.
fn push_digits(number: i64, digits: usize, out: &mut Vec<u8>) {
    let at = out.len();
    out.resize(at + digits, b'0');
    let mut left = number;
    for digit in out[at..].iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8; // One digit.
        left /= 10;
    }
}

/// Appends a decimal with all digits of its scale; false if it is invalid.
fn write_decimal(unscaled: &[u8], scale: i64, out: &mut Vec<u8>) -> bool {
    let unscaled = if unscaled.is_empty() { &[0] } else { unscaled };
    i32::try_from(scale).is_ok_and(|scale| decimal::write(unscaled, scale, out).is_ok())
}
