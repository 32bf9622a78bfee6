//! Writing whole fields and messages as JSON.

use std::cmp::Ordering;
use std::ops::Range;

use super::scalar::{Raw, raw, utf8};
use super::walk::{Failure, Walk, failure, inside};
use crate::dedup::extracted::Mark;
use crate::dedup::steps::UNWANTED;
use crate::schemas::protobuf::wire::Malformed;
use crate::schemas::protobuf::{Field, Known, Many, Type};

impl<'p> Walk<'p, '_, '_> {
    /// Writes a field with these occurrences, and notes it at the node.
    pub fn write(&mut self, field: &'p Field, marks: Range<usize>, node: usize, depth: usize) -> Result<(), Failure> {
        match (field.many, field.of) {
            (Many::One, Type::Message(message) | Type::Group(message)) => {
                self.write_message(message, marks, node, depth)
            }
            (Many::One, of) => match marks.last() {
                Some(last) => self.write_element(of, self.marks[last], last, node, depth),
                None => self.write_absent(field, node, depth),
            },
            (Many::List, of) => {
                let from = self.open(b'[');
                self.elements(field, marks, |walk, number, mark, at| {
                    walk.separate(number == 0, mark.from)?;
                    walk.write_element(of, mark, at, UNWANTED, depth)
                })?;
                self.close(b']', node, from);
                Ok(())
            }
            (Many::Map, of) => self.write_map(of, marks, node, depth),
        }
    }

    /// Writes the element at a mark; `at` is the index of the occurrence around it.
    pub fn write_element(&mut self, of: Type, mark: Mark, at: usize, node: usize, depth: usize) -> Result<(), Failure> {
        match of {
            Type::Message(message) | Type::Group(message) => self.write_message(message, at..at + 1, node, depth),
            _ => {
                let raw = raw(self.bytes, of, mark)?;
                self.scalar(of, raw, node, mark.from)
            }
        }
    }

    /// Writes the value of an absent field; nothing if the field is missing. An absent message is the value of a map's
    /// entry.
    pub fn write_absent(&mut self, field: &'p Field, node: usize, depth: usize) -> Result<(), Failure> {
        match (field.many, field.of, &field.default) {
            (Many::List, ..) => {
                let from = self.open(b'[');
                self.close(b']', node, from);
            }
            (Many::Map, ..) => {
                let from = self.open(b'{');
                self.close(b'}', node, from);
            }
            (Many::One, Type::Message(message) | Type::Group(message), _) => {
                return self.write_message(message, 0..0, node, depth);
            }
            (Many::One, of, Some(default)) => return self.scalar(of, Raw::from(default), node, 0),
            (Many::One, _, None) => {}
        }
        Ok(())
    }

    /// Writes a message with these occurrences.
    pub fn write_message(
        &mut self,
        message: usize,
        marks: Range<usize>,
        node: usize,
        depth: usize,
    ) -> Result<(), Failure> {
        let plan = self.plan;
        let of = &plan.graph.messages[message];
        let Some(layout) = &plan.whole[message] else { return Ok(()) };
        let depth = self.deeper(marks.start, depth)?;
        let at = self.marks.get(marks.start).map_or(0, |mark| mark.from);
        let base = self.scan(layout, message, marks, depth)?;
        if of.known != Known::None {
            self.write_known(of, base, at, node, depth)?;
            self.marks.truncate(base);
            return Ok(());
        }
        let from = self.open(b'{');
        let end = self.marks.len();
        let mut absent = layout.absent.iter();
        let mut is_first = true;
        let mut next = base;
        loop {
            let run = if next < end { self.run(next) } else { None };
            let group = run.as_ref().map_or(usize::MAX, |(field, _)| of.fields[*field].group);
            let counts = run.as_ref().map(|(field, _)| *field);
            while let Some(one) = absent.as_slice().first().filter(|one| one.group <= group) {
                absent.next();
                if Some(one.field) != counts {
                    let field = &of.fields[one.field];
                    self.name(field, std::mem::take(&mut is_first), at)?;
                    self.write_absent(field, UNWANTED, depth)?;
                }
            }
            let Some((field, marks)) = run else { break };
            next = marks.end;
            let field = &of.fields[field];
            self.name(field, std::mem::take(&mut is_first), at)?;
            self.write(field, marks, UNWANTED, depth).map_err(|failure| inside(failure, &field.name))?;
        }
        self.close(b'}', node, from);
        self.marks.truncate(base);
        Ok(())
    }

    /// Writes a map with these entries, sorted by key.
    pub fn write_map(&mut self, of: Type, marks: Range<usize>, node: usize, depth: usize) -> Result<(), Failure> {
        let Type::Message(entry) = of else { return Ok(()) };
        let [key, value] = &self.graph().messages[entry].fields[..] else { return Ok(()) };
        let base = self.marks.len();
        for at in marks {
            let (key_mark, values) = self.entry(entry, at, depth)?;
            self.forget_entry(&values);
            if let (Type::Scalar(_), Raw::Bytes(bytes)) = (key.of, raw(self.bytes, key.of, key_mark)?) {
                utf8(bytes, key_mark.from)?;
            }
            // From here on, the group is the index of the entry, which orders entries with the same key.
            self.marks.push(Mark { group: at, ..key_mark });
        }
        let bytes = self.bytes;
        let order = |a: &Mark, b: &Mark| compare(bytes, key.of, *a, *b);
        let keys = &mut self.marks[base..];
        if !keys.is_sorted_by(|a, b| order(a, b) == Ordering::Less) {
            keys.sort_unstable_by(|a, b| order(a, b).then(a.group.cmp(&b.group)));
        }
        let from = self.open(b'{');
        let mut is_first = true;
        let end = self.marks.len();
        for i in base..end {
            let key_mark = self.marks[i];
            if i + 1 < end && order(&key_mark, &self.marks[i + 1]) == Ordering::Equal {
                continue;
            }
            self.separate(std::mem::take(&mut is_first), key_mark.from)?;
            let mut scratch = [0; 20];
            let name = self.key_text(key.of, key_mark, &mut scratch)?;
            let name = utf8(name, key_mark.from)?;
            self.to.text(UNWANTED, name);
            self.to.out().push(b':');
            let (_, values) = self.entry(entry, key_mark.group, depth)?;
            self.write(value, values.clone(), UNWANTED, depth).map_err(|failure| inside(failure, name))?;
            self.forget_entry(&values);
        }
        self.marks.truncate(base);
        self.close(b'}', node, from);
        Ok(())
    }

    fn open(&mut self, bracket: u8) -> usize {
        let from = self.to.end();
        self.to.out().push(bracket);
        from
    }

    fn close(&mut self, bracket: u8, node: usize, from: usize) {
        self.to.out().push(bracket);
        self.to.composite(node, from);
    }

    /// Writes the name of an object's field.
    fn name(&mut self, field: &Field, is_first: bool, at: usize) -> Result<(), Failure> {
        self.separate(is_first, at)?;
        self.to.text(UNWANTED, &field.name);
        self.to.out().push(b':');
        Ok(())
    }

    /// Writes a comma, except before the first value; fails at byte `at` if too much is written already.
    fn separate(&mut self, is_first: bool, at: usize) -> Result<(), Failure> {
        if self.to.end() > self.written_max {
            return Err(failure(Malformed { at, what: "as JSON, the record would be many times as large" }));
        }
        if !is_first {
            self.to.out().push(b',');
        }
        Ok(())
    }
}

/// The order of two keys of a map.
fn compare(record: &[u8], of: Type, a: Mark, b: Mark) -> Ordering {
    match (raw(record, of, a), raw(record, of, b)) {
        (Ok(Raw::Bytes(a)), Ok(Raw::Bytes(b))) => a.cmp(b),
        (Ok(Raw::Bits(a)), Ok(Raw::Bits(b))) => a.cmp(&b),
        // Both were read before without an error.
        _ => Ordering::Equal,
    }
}
