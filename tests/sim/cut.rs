//! Which part of a seed is played: all of it, or what shrinking has left. Written and read as one line, so that a
//! failure can be replayed: `faults=3,7 wire=12 instances=0 records=40`.
//!
//! A seed makes the same choices whatever is played of them, and each has a number: a misfortune its place among
//! those drawn, a request with a fault its place among all requests. Leaving one out does not change what is drawn
//! for the others.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The numbers of the choices that are played; all of them if none are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept(Option<BTreeSet<u64>>);

impl Kept {
    pub fn only(numbers: impl IntoIterator<Item = u64>) -> Self {
        Self(Some(numbers.into_iter().collect()))
    }

    pub fn has(&self, number: u64) -> bool {
        self.0.as_ref().is_none_or(|kept| kept.contains(&number))
    }

    /// The named numbers.
    pub fn named(&self) -> Vec<u64> {
        self.0.iter().flatten().copied().collect()
    }
}

/// The part of a seed that is played.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Misfortunes.
    pub faults: Kept,
    /// Requests that may have a fault on the wire.
    pub wire: Kept,
    pub instances: Kept,
    /// How many records are written to the input.
    pub records: Option<u64>,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (name, kept) in [("faults", &self.faults), ("wire", &self.wire), ("instances", &self.instances)] {
            if let Some(kept) = &kept.0 {
                let numbers: Vec<String> = kept.iter().map(u64::to_string).collect();
                parts.push(format!("{name}={}", numbers.join(",")));
            }
        }
        parts.extend(self.records.map(|records| format!("records={records}")));
        f.write_str(&parts.join(" "))
    }
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
        let mut cut = Self::default();
        for part in text.split_whitespace() {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not NAME=NUMBERS"))?;
            if name == "records" {
                cut.records = Some(number(value)?);
                continue;
            }
            let numbers = value.split(',').filter(|one| !one.is_empty()).map(number).collect::<Result<Vec<_>, _>>()?;
            let kept = match name {
                "faults" => &mut cut.faults,
                "wire" => &mut cut.wire,
                "instances" => &mut cut.instances,
                _ => return Err(format!("{name:?} is none of faults, wire, instances and records")),
            };
            *kept = Kept::only(numbers);
        }
        Ok(cut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_is_read_back_as_written() {
        let cut = Cut { faults: Kept::only([3, 7]), wire: Kept::only([]), records: Some(40), ..Cut::default() };
        assert_eq!(cut.to_string(), "faults=3,7 wire= records=40");
        assert_eq!(cut.to_string().parse(), Ok(cut));
        assert_eq!(Cut::default().to_string(), "");
        assert_eq!("".parse(), Ok(Cut::default()));
    }

    #[test]
    fn malformed_cuts_are_rejected() {
        for text in ["faults", "faults=x", "records=", "others=1"] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }

    #[test]
    fn everything_is_kept_unless_numbers_are_named() {
        assert!(Kept::default().has(5));
        assert!(!Kept::only([]).has(5));
        assert!(Kept::only([5]).has(5));
    }
}
