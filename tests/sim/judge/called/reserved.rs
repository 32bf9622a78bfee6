//! What an entry says of a call that is reserved, and of what was settled, by the layout in
//! `crates/core/src/format/remembered.rs`.

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved<'a> {
    /// The entry that it will leave.
    pub entry: &'a [u8],
    /// The offset of the record that it is of.
    pub offset: i64,
    /// The steps of its journal.
    pub journal: Vec<Step<'a>>,
}

/// A step of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// Its name; none for the mark that the record is refused.
    pub name: &'a str,
    pub how: How<'a>,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How<'a> {
    Begun,
    Done(&'a str),
    Refused(&'a str),
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, after) = self.0.split_at_checked(count)?;
        self.0 = after;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn length(&mut self, bytes: usize) -> Option<usize> {
        Some(self.take(bytes)?.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn sized(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let length = self.length(bytes)?;
        self.take(length)
    }

    fn text(&mut self, bytes: usize) -> Option<&'a str> {
        std::str::from_utf8(self.sized(bytes)?).ok()
    }

    /// What was settled: the entry that is judged against.
    fn settled(&mut self) -> Option<&'a [u8]> {
        let entry = self.sized(4)?;
        // How; of what was given up, since when; the place; the fingerprint; the result.
        if self.byte()? == 4 {
            self.take(8)?;
        }
        for bytes in [24, 20] {
            if self.byte()? == 1 {
                self.take(bytes)?;
            }
        }
        match self.byte()? {
            1 => {
                self.take(2)?;
                self.sized(4)?;
            }
            2 => drop(self.take(42)?),
            3 => drop(self.sized(2)?),
            _ => {}
        }
        Some(entry)
    }

    fn step(&mut self) -> Option<Step<'a>> {
        let name = self.text(1)?;
        let how = match self.byte()? {
            0 => How::Begun,
            1 => How::Done(self.text(4)?),
            2 => How::Refused(self.text(4)?),
            _ => return None,
        };
        Some(Step { name, how })
    }
}

/// What records are judged against by an entry of which something was settled.
pub fn settled_in(entry: &[u8]) -> Option<&[u8]> {
    let Some(rest) = entry.strip_prefix(&[2]) else { return Some(entry) };
    let mut reader = Reader(rest);
    let parts = reader.byte()?;
    if parts & 1 == 0 { None } else { reader.settled() }
}

/// What is reserved in an entry, if anything is.
pub fn reserved_in(entry: &[u8]) -> Option<Reserved<'_>> {
    let mut reader = Reader(entry.strip_prefix(&[2])?);
    let parts = reader.byte()?;
    if parts & 2 == 0 {
        return None;
    }
    if parts & 1 != 0 {
        reader.settled()?;
    }
    let entry = reader.sized(4)?;
    reader.take(16)?;
    let offset = i64::from_be_bytes(reader.take(8)?.try_into().ok()?);
    // The first attempt, how many there were, and flags.
    reader.take(8 + 4 + 1)?;
    if reader.byte()? == 1 {
        reader.take(20)?;
    }
    let count = reader.length(2)?;
    let journal = (0..count).map(|_| reader.step()).collect::<Option<Vec<_>>>()?;
    Some(Reserved { entry, offset, journal })
}
