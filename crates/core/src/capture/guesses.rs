//! Guesses by the look of a capture's bytes: for hints, never for verdicts.

/// Whether a key is a struct as Kafka Connect's `StringConverter` writes it: `Struct{id=1}`.
pub fn is_struct_text(bytes: &[u8]) -> bool {
    bytes.starts_with(b"Struct{") && bytes.ends_with(b"}")
}

/// The beginnings of the years 2000 and 2100 in seconds: times of our days lie between them.
const DAYS: std::ops::Range<i128> = 946_684_800..4_102_444_800;

/// Units of time, and how many of each are a second.
pub const UNITS: [(&str, i128); 4] =
    [("seconds", 1), ("milliseconds", 1_000), ("microseconds", 1_000_000), ("nanoseconds", 1_000_000_000)];

/// The unit in which a number is a time of our days, and how many of it are a second; `None` if it is in none.
pub fn unit_of(number: i128) -> Option<(&'static str, i128)> {
    UNITS.into_iter().find(|(_, per_second)| DAYS.contains(&(number / per_second)))
}

/// The unit that a record's timestamp seems to have, if that is not milliseconds.
pub fn unit_of_timestamp(ms: i64) -> Option<&'static str> {
    unit_of(i128::from(ms)).map(|(unit, _)| unit).filter(|unit| *unit != "milliseconds")
}

/// Whether lines are CSV: each with as many separators as the first, at least one, outside of quotes, and none of them
/// JSON.
pub fn is_csv<'a>(lines: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
    [b',', b';', b'\t'].into_iter().any(|separator| {
        let mut counts = lines.clone().map(|line| separators(line, separator));
        match (counts.next(), counts.next()) {
            (Some(first), Some(second)) if first > 0 => first == second && counts.all(|count| count == first),
            _ => false,
        }
    })
}

/// How often a separator occurs outside of double quotes.
fn separators(line: &[u8], separator: u8) -> usize {
    let mut is_quoted = false;
    line.iter()
        .filter(|&&byte| {
            is_quoted ^= byte == b'"';
            byte == separator && !is_quoted
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_as_many_separators_in_each_line() {
        let is_csv = |text: &str| super::is_csv(text.lines().map(str::as_bytes));
        assert!(is_csv("id,name\n1,a\n2,\"b, c\"") && is_csv("1;2\n3;4") && is_csv("a\tb\nc\td"));
        assert!(!is_csv("id,name") && !is_csv("no csv\nno csv") && !is_csv("a,b\nc"));
    }

    #[test]
    fn unit_of_a_time_is_told_by_its_size() {
        let units = [1_764_300_001, 1_764_300_001_000, 1_764_300_001_000_000, 1_764_300_001_000_000_000];
        let found = units.map(|number| unit_of(number).unwrap().0);
        assert_eq!(found, ["seconds", "milliseconds", "microseconds", "nanoseconds"]);
        assert_eq!([0, -1, 7, 500_000, 30_000_000_000].map(unit_of), [None; 5]);
        assert_eq!(unit_of_timestamp(1_764_300_001_000), None);
        assert_eq!(unit_of_timestamp(1_764_300_001), Some("seconds"));
    }

    #[test]
    fn struct_has_its_braces() {
        assert!(is_struct_text(b"Struct{id=1}") && !is_struct_text(b"{\"id\":1}"));
    }
}
