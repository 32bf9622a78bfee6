//! Scanning a record: the marks of its messages and fields.

use std::ops::Range;

use super::layout::Layout;
use super::plan::Plan;
use crate::dedup::extracted::{Extracted, Mark};
use crate::schemas::Undecodable;
use crate::schemas::protobuf::wire::{Cursor, Malformed};
use crate::schemas::protobuf::{Field, Graph};

/// Why a record cannot be read. Boxed, to keep results small.
pub(super) type Failure = Box<Undecodable>;

/// A record that is being read.
pub(super) struct Walk<'p, 'b, 'x> {
    pub plan: &'p Plan,
    pub bytes: &'b [u8],
    pub to: &'x mut Extracted,
    /// The occurrences of the messages that are being read and of their fields.
    pub marks: Vec<Mark>,
    /// The maximum number of bytes of JSON.
    pub written_max: usize,
}

impl<'p> Walk<'p, '_, '_> {
    pub fn graph(&self) -> &'p Graph {
        &self.plan.graph
    }

    /// The remaining depth inside the message at mark `at`.
    pub fn deeper(&self, at: usize, depth: usize) -> Result<usize, Failure> {
        let at = self.marks.get(at).map_or(0, |mark| mark.from);
        depth.checked_sub(1).ok_or_else(|| failure(Malformed { at, what: "nested too deep" }))
    }

    /// Marks the fields of a message with these occurrences, and sorts the marks; returns the index of the first one.
    pub fn scan(
        &mut self,
        layout: &Layout,
        message: usize,
        marks: Range<usize>,
        depth: usize,
    ) -> Result<usize, Failure> {
        let base = self.marks.len();
        let mut last = 0;
        let mut is_sorted = true;
        for at in marks {
            let Mark { from, to, .. } = self.marks[at];
            let mut cursor = Cursor::new(&self.bytes[..to], from);
            while !cursor.is_at_end() {
                let (number, wire) = cursor.key().map_err(failure)?;
                match layout.get(number) {
                    Some(entry) if entry.takes(wire) => {
                        let name = |malformed| {
                            inside(failure(malformed), &self.plan.graph.messages[message].fields[entry.field].name)
                        };
                        let (from, to) = cursor.value(number, wire, depth).map_err(name)?;
                        let (group, field) = (entry.group, entry.field);
                        is_sorted &= group >= last;
                        last = group;
                        self.marks.push(Mark { group, field, wire, from, to });
                    }
                    _ => {
                        cursor.value(number, wire, depth).map_err(failure)?;
                    }
                }
            }
        }
        if !is_sorted {
            self.marks[base..].sort_unstable_by_key(|mark| (mark.group, mark.from));
        }
        Ok(base)
    }

    /// The field that counts in the group that begins at mark `from`, and the marks of it that count. Their end is the
    /// end of the group.
    pub fn run(&self, from: usize) -> Option<(usize, Range<usize>)> {
        let marks = self.marks.get(from..)?;
        let group = marks.first()?.group;
        let marks = &marks[..marks.iter().take_while(|mark| mark.group == group).count()];
        let field = marks.last()?.field;
        let count = marks.iter().rev().take_while(|mark| mark.field == field).count();
        let end = from + marks.len();
        Some((field, end - count..end))
    }

    /// The index of the last mark of this field, from `base` on.
    pub fn last(&self, base: usize, field: usize) -> Option<usize> {
        let at = self.marks[base..].iter().rposition(|mark| mark.field == field)?;
        Some(base + at)
    }

    /// Calls `each` with the number of each element of a list, its mark, and the index of the occurrence around it.
    pub fn elements(
        &mut self,
        field: &Field,
        marks: Range<usize>,
        mut each: impl FnMut(&mut Self, usize, Mark, usize) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let wire = field.wire();
        let mut number = 0;
        for at in marks {
            let mark = self.marks[at];
            if mark.wire == wire {
                each(self, number, mark, at).map_err(|failure| inside(failure, &number.to_string()))?;
                number += 1;
                continue;
            }
            let mut cursor = Cursor::new(&self.bytes[..mark.to], mark.from);
            while !cursor.is_at_end() {
                let (from, to) = cursor.value(field.number, wire, 0).map_err(failure)?;
                let element = Mark { wire, from, to, ..mark };
                each(self, number, element, at).map_err(|failure| inside(failure, &number.to_string()))?;
                number += 1;
            }
        }
        Ok(())
    }

    /// Reads a map's entry: the mark of its key, and the marks of its value, which [`Self::forget_entry`] drops.
    pub fn entry(&mut self, entry: usize, at: usize, depth: usize) -> Result<(Mark, Range<usize>), Failure> {
        let Some(layout) = &self.plan.whole[entry] else { return Ok((Mark::default(), at..at)) };
        let depth = self.deeper(at, depth)?;
        let base = self.scan(layout, entry, at..at + 1, depth)?;
        let keys = self.marks[base..].iter().take_while(|mark| mark.field == 0).count();
        let key = self.marks[base..base + keys].last().copied().unwrap_or_default();
        // Only the marks of the value are kept.
        self.marks.drain(base..base + keys);
        Ok((key, base..self.marks.len()))
    }

    /// Drops the marks of an entry's value.
    pub fn forget_entry(&mut self, values: &Range<usize>) {
        self.marks.truncate(values.start);
    }
}

#[cold]
pub(super) fn failure(malformed: Malformed) -> Failure {
    let Malformed { at, what } = malformed;
    Box::new(Undecodable { at, field: String::new(), what })
}

/// A failure inside the field with this name.
#[cold]
pub(super) fn inside(mut failure: Failure, name: &str) -> Failure {
    failure.field = if failure.field.is_empty() { name.to_owned() } else { format!("{name}.{}", failure.field) };
    failure
}
