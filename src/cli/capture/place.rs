//! The places of a topic at which a capture begins and ends, as people write them.

use std::str::FromStr;

use jiff::Timestamp;

use crate::yaml::units::duration_ms;

const NANOSECONDS_PER_MS: i128 = 1_000_000;

/// A place in each partition of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The first offset.
    Earliest,
    /// The end.
    Latest,
    /// This offset.
    Offset(i64),
    /// This number of offsets before the end.
    BeforeEnd(i64),
    /// The first record with this timestamp or a later one, in milliseconds since the epoch.
    Time(i64),
    /// The first record with a timestamp of this many milliseconds ago, or a later one.
    Ago(i64),
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = match text {
            "earliest" => Some(Self::Earliest),
            "latest" | "end" => Some(Self::Latest),
            _ => match text.strip_prefix('-') {
                Some(back) if is_number(back) => back.parse().ok().map(Self::BeforeEnd),
                Some(back) => duration_ms(back).map(Self::Ago),
                None if is_number(text) => text.parse().ok().map(Self::Offset),
                None => text.parse::<Timestamp>().ok().and_then(milliseconds).map(Self::Time),
            },
        };
        known.ok_or_else(|| {
            "write an offset (`1200`), a number of offsets before the end (`-1000`), a time (`2026-11-30T08:00:00Z`), a time \
             before now (`-10m`, `-2d`), `earliest` or `latest`"
                .to_owned()
        })
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The first millisecond that is not before this time.
fn milliseconds(time: Timestamp) -> Option<i64> {
    let nanoseconds = time.as_nanosecond();
    let rounded = nanoseconds.div_euclid(NANOSECONDS_PER_MS) + i128::from(nanoseconds % NANOSECONDS_PER_MS != 0);
    i64::try_from(rounded).ok()
}

impl At {
    /// The time that has to be looked up, if it is one. `now` is in milliseconds since the epoch.
    pub fn time(self, now: i64) -> Option<i64> {
        match self {
            Self::Time(ms) => Some(ms),
            Self::Ago(ms) => Some(now.saturating_sub(ms)),
            _ => None,
        }
    }

    /// The offset in a partition, within these bounds. `found` is the offset of a time; without a record that late, it is the
    /// end.
    pub fn offset(self, (start, end): (i64, i64), found: Option<i64>) -> i64 {
        let at = match self {
            Self::Earliest => start,
            Self::Latest => end,
            Self::Offset(offset) => offset,
            Self::BeforeEnd(count) => end.saturating_sub(count),
            Self::Time(_) | Self::Ago(_) => found.unwrap_or(end),
        };
        at.clamp(start, end.max(start))
    }
}

#[cfg(test)]
mod tests {
    //! Goal: every form is read as what it says, and a place lies within the partition.

    use super::*;

    #[test]
    fn every_form_is_read() {
        let read = |text: &str| text.parse::<At>();
        assert_eq!(read("earliest"), Ok(At::Earliest));
        assert_eq!([read("latest"), read("end")], [Ok(At::Latest), Ok(At::Latest)]);
        assert_eq!([read("0"), read("1200")], [Ok(At::Offset(0)), Ok(At::Offset(1200))]);
        assert_eq!(read("-1000"), Ok(At::BeforeEnd(1000)));
        assert_eq!([read("-10m"), read("-1h30m")], [Ok(At::Ago(600_000)), Ok(At::Ago(5_400_000))]);
        assert_eq!(read("1970-01-01T00:00:01+00:00"), Ok(At::Time(1000)));
        // what is between two milliseconds is before the second one
        assert_eq!(read("1970-01-01T00:00:01.0000001Z"), Ok(At::Time(1001)));
        assert_eq!(read("1969-12-31T23:59:59.9999Z"), Ok(At::Time(0)));
        for wrong in ["", "-", "first", "10m", "--5", "1.5", "2026-11-30", "99999999999999999999", "-5x", "+5"] {
            assert!(read(wrong).unwrap_err().contains("`earliest`"), "{wrong}");
        }
    }

    #[test]
    fn place_lies_within_the_partition() {
        let bounds = (10, 20);
        let of = |at: At, found| at.offset(bounds, found);
        assert_eq!([At::Earliest, At::Latest].map(|at| of(at, None)), [10, 20]);
        assert_eq!([0, 10, 15, 99].map(|offset| of(At::Offset(offset), None)), [10, 10, 15, 20]);
        assert_eq!([0, 3, 99].map(|count| of(At::BeforeEnd(count), None)), [20, 17, 10]);
        assert_eq!([Some(3), Some(12), Some(30), None].map(|found| of(At::Time(1), found)), [10, 12, 20, 20]);
        assert_eq!(At::Earliest.offset((7, 7), None), 7);
        assert_eq!([At::Time(5).time(100), At::Ago(30).time(100), At::Offset(5).time(100)], [Some(5), Some(70), None]);
    }
}
