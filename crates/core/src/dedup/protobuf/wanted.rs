//! Following the wanted paths through a record.

use std::ops::Range;

use super::layout::Layout;
use super::walk::{Failure, Walk, inside};
use crate::dedup::steps::ROOT;
use crate::schemas::protobuf::{Field, Known, Many, Type};

impl<'p> Walk<'p, '_, '_> {
    /// Reads the record, whose mark is the first.
    pub fn root(&mut self, message: usize) -> Result<(), Failure> {
        let depth = self.plan.depth_max;
        if self.plan.steps.is_place(ROOT) {
            self.write_message(message, 0..1, ROOT, depth)?;
        }
        self.below_message(message, 0..1, ROOT, depth)
    }

    /// Reads the wanted places of a field with these occurrences: the field itself, and places inside it.
    fn field(&mut self, field: &'p Field, marks: Range<usize>, node: usize, depth: usize) -> Result<(), Failure> {
        if self.plan.steps.is_place(node) {
            self.write(field, marks.clone(), node, depth)?;
        }
        if self.plan.steps.is_leaf(node) { Ok(()) } else { self.below(field, marks, node, depth) }
    }

    /// Reads the wanted places inside a field.
    fn below(&mut self, field: &'p Field, marks: Range<usize>, node: usize, depth: usize) -> Result<(), Failure> {
        match (field.many, field.of) {
            (Many::One, Type::Message(message) | Type::Group(message)) => {
                self.below_message(message, marks, node, depth)
            }
            (Many::One, _) => Ok(()),
            (Many::List, of) => self.elements(field, marks, |walk, number, mark, at| {
                let Some(child) = walk.plan.steps.element(node, number) else { return Ok(()) };
                if walk.plan.steps.is_place(child) {
                    walk.write_element(of, mark, at, child, depth)?;
                }
                match of {
                    Type::Message(message) | Type::Group(message) => {
                        walk.below_message(message, at..at + 1, child, depth)
                    }
                    _ => Ok(()),
                }
            }),
            (Many::Map, of) => self.below_map(of, marks, node, depth),
        }
    }

    /// Reads the wanted entries of a map.
    fn below_map(&mut self, of: Type, marks: Range<usize>, node: usize, depth: usize) -> Result<(), Failure> {
        let Type::Message(entry) = of else { return Ok(()) };
        let [key, value] = &self.graph().messages[entry].fields[..] else { return Ok(()) };
        for at in marks {
            let (key_mark, values) = self.entry(entry, at, depth)?;
            let mut scratch = [0; 20];
            let name = self.key_text(key.of, key_mark, &mut scratch)?;
            if let Some(child) = self.plan.steps.field(node, name) {
                // If the key is repeated, only its last entry counts.
                self.to.forget(child..self.plan.steps.below(child).end);
                let marks = values.clone();
                let read = if marks.is_empty() {
                    self.absent(value, marks, child, depth)
                } else {
                    self.field(value, marks, child, depth)
                };
                read.map_err(|failure| inside(failure, &String::from_utf8_lossy(name)))?;
            }
            self.forget_entry(&values);
        }
        Ok(())
    }

    /// Reads the wanted places inside a message with these occurrences.
    fn below_message(&mut self, message: usize, marks: Range<usize>, node: usize, depth: usize) -> Result<(), Failure> {
        let plan = self.plan;
        if plan.steps.is_leaf(node) {
            return Ok(());
        }
        let known = plan.graph.messages[message].known;
        let layout = if known == Known::None { &plan.wanted[node] } else { &plan.whole[message] };
        let Some(layout) = layout else { return Ok(()) };
        let depth = self.deeper(marks.start, depth)?;
        let fields = &plan.graph.messages[message].fields;
        let base = self.scan(layout, message, marks, depth)?;
        match known {
            Known::None => self.wanted_fields(layout, fields, base, depth)?,
            Known::Struct | Known::Value | Known::ListValue => {
                if let Some((field, marks)) = self.run(base) {
                    self.below(&fields[field], marks, node, depth)?;
                }
            }
            Known::Any => {
                for (name, field) in ["@type", "value"].into_iter().zip(0..) {
                    if let Some(child) = plan.steps.field(node, name.as_bytes()) {
                        match self.last(base, field) {
                            Some(at) => self.field(&fields[field], at..at + 1, child, depth)?,
                            None => self.absent(&fields[field], 0..0, child, depth)?,
                        }
                    }
                }
            }
            _ => {}
        }
        self.marks.truncate(base);
        Ok(())
    }

    /// Reads the wanted fields, present and absent. The marks of the present ones begin at `base`.
    fn wanted_fields(
        &mut self,
        layout: &'p Layout,
        fields: &'p [Field],
        base: usize,
        depth: usize,
    ) -> Result<(), Failure> {
        let end = self.marks.len();
        let mut absent = layout.absent.iter();
        let mut next = base;
        loop {
            let run = if next < end { self.run(next) } else { None };
            let group = run.as_ref().map_or(usize::MAX, |(field, _)| fields[*field].group);
            let counts = run.as_ref().map(|(field, _)| *field);
            while let Some(one) = absent.as_slice().first().filter(|one| one.group <= group) {
                absent.next();
                if Some(one.field) != counts {
                    for (_, node) in layout.nodes(one.field) {
                        self.absent(&fields[one.field], 0..0, *node, depth)?;
                    }
                }
            }
            let Some((field, marks)) = run else { return Ok(()) };
            next = marks.end;
            let field_of = &fields[field];
            for (_, node) in layout.nodes(field) {
                let read = self.field(field_of, marks.clone(), *node, depth);
                read.map_err(|failure| inside(failure, &field_of.name))?;
            }
        }
    }

    /// Reads the wanted places of an absent field. `none` is an empty range of marks.
    fn absent(&mut self, field: &'p Field, none: Range<usize>, node: usize, depth: usize) -> Result<(), Failure> {
        if self.plan.steps.is_place(node) {
            self.write_absent(field, node, depth)?;
        }
        match field.of {
            // An absent value of a map's entry is an empty message.
            Type::Message(message) | Type::Group(message) if field.many == Many::One => {
                self.below_message(message, none, node, depth)
            }
            _ => Ok(()),
        }
    }
}
