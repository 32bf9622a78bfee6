//! Runs a program on a record. It recurses as deep as the record is nested, which is bounded.

use super::cursor::{Cursor, Read};
use super::program::{Entry, Item, Member, Op, OpId, Part, Program};
use super::scalar;
use super::skip::{NO_BRANCH, Skip, enter};
use crate::dedup::extracted::Extracted;
use crate::dedup::steps::UNWANTED;
use crate::schemas::avro::DURATION;

/// A record being read.
struct Reading<'p, 'c, 'b> {
    program: &'p Program,
    cursor: &'c mut Cursor<'b>,
    to: &'c mut Extracted,
    /// The number of bytes that may be written.
    written_max: usize,
}

/// Runs a program on a record of at most `depth_max` levels. It writes at most `written_max` bytes and one more value.
pub(super) fn read<'b>(
    program: &Program,
    cursor: &mut Cursor<'b>,
    to: &mut Extracted,
    depth_max: usize,
    written_max: usize,
) -> Read<()> {
    Reading { program, cursor, to, written_max }.run(program.root, depth_max)
}

impl Reading<'_, '_, '_> {
    fn run(&mut self, op: OpId, depth_left: usize) -> Read<()> {
        let program = self.program;
        match &program.ops[op] {
            Op::Skip(skip) => program.skips.skip(*skip, self.cursor, depth_left),
            Op::Scalar(node, of) => scalar::read(*of, *node, &program.symbols, self.cursor, self.to),
            Op::Union(branches) => {
                let branch = branches[self.cursor.choice(branches.len(), NO_BRANCH)?];
                // No branch is a union.
                self.run(branch, depth_left)
            }
            Op::Both(first, second) => {
                let at = self.cursor.at();
                self.run(*first, depth_left)?;
                self.cursor.go_to(at);
                self.run(*second, depth_left)
            }
            Op::FindFields(parts) => self.find_fields(parts, depth_left),
            Op::FindItems { wanted, item } => self.find_items(wanted, *item, depth_left),
            Op::FindEntries { wanted, value } => self.find_entries(wanted, *value, depth_left),
            Op::Duration(node, nodes) => self.duration(*node, *nodes),
            Op::Object(node, members) => self.object(*node, members, depth_left),
            Op::Array { node, wanted, item } => self.array(*node, wanted, *item, depth_left),
            Op::Map { node, wanted, value } => self.map(*node, wanted, *value, depth_left),
        }
    }

    fn find_fields(&mut self, parts: &[Part], depth_left: usize) -> Read<()> {
        let depth_left = enter(self.cursor, depth_left)?;
        for part in parts {
            self.program.skips.skip_fields(part.fields, self.cursor, depth_left)?;
            if let Some(member) = &part.then {
                self.member(member, depth_left)?;
            }
        }
        Ok(())
    }

    fn member(&mut self, member: &Member, depth_left: usize) -> Read<()> {
        self.run(member.op, depth_left).map_err(|fault| fault.under(self.program.skips.name(member.name)))
    }

    fn find_items(&mut self, wanted: &[Item], item: Skip, depth_left: usize) -> Read<()> {
        let depth_left = enter(self.cursor, depth_left)?;
        let skips = &self.program.skips;
        let mut wanted = wanted.iter().peekable();
        let mut first: u64 = 0;
        while let Some(block) = self.cursor.block()? {
            let end = first.saturating_add(block.count);
            let mut next = first;
            while let Some(found) = wanted.next_if(|found| found.number < end) {
                skips.skip_items(item, next, found.number - next, self.cursor, depth_left)?;
                self.run(found.op, depth_left).map_err(|fault| fault.under(found.number.to_string()))?;
                next = found.number + 1;
            }
            match block.end {
                Some(end) if end >= self.cursor.at() => self.cursor.go_to(end),
                Some(_) => self.cursor.end_block(block)?,
                None => skips.skip_items(item, next, end - next, self.cursor, depth_left)?,
            }
            first = end;
        }
        Ok(())
    }

    fn find_entries(&mut self, wanted: &[Entry], value: Skip, depth_left: usize) -> Read<()> {
        let depth_left = enter(self.cursor, depth_left)?;
        while let Some(block) = self.cursor.block()? {
            for _ in 0..block.count {
                let key = self.cursor.prefixed()?;
                match wanted.iter().find(|entry| *entry.key == *key) {
                    Some(entry) => {
                        // If the key is repeated, only its last entry counts.
                        self.to.forget(entry.nodes.clone());
                        self.run(entry.op, depth_left)
                    }
                    None => self.program.skips.skip(value, self.cursor, depth_left),
                }
                .map_err(|fault| fault.under_key(key))?;
            }
            self.cursor.end_block(block)?;
        }
        Ok(())
    }

    fn object(&mut self, node: usize, members: &[Member], depth_left: usize) -> Read<()> {
        let depth_left = enter(self.cursor, depth_left)?;
        let from = self.to.end();
        self.to.out().push(b'{');
        for (i, member) in members.iter().enumerate() {
            self.check_written()?;
            let name = &self.program.members[member.name as usize];
            self.to.out().extend_from_slice(&name[usize::from(i == 0)..]);
            self.member(member, depth_left)?;
        }
        self.to.out().push(b'}');
        self.to.composite(node, from);
        Ok(())
    }

    fn array(&mut self, node: usize, wanted: &[Item], item: OpId, depth_left: usize) -> Read<()> {
        let depth_left = enter(self.cursor, depth_left)?;
        let from = self.to.end();
        self.to.out().push(b'[');
        let mut wanted = wanted.iter().peekable();
        let mut number: u64 = 0;
        while let Some(block) = self.cursor.block()? {
            for _ in 0..block.count {
                self.check_written()?;
                if number > 0 {
                    self.to.out().push(b',');
                }
                let op = wanted.next_if(|wanted| wanted.number == number).map_or(item, |wanted| wanted.op);
                self.run(op, depth_left).map_err(|fault| fault.under(number.to_string()))?;
                number += 1;
            }
            self.cursor.end_block(block)?;
        }
        self.to.out().push(b']');
        self.to.composite(node, from);
        Ok(())
    }

    fn map(&mut self, node: usize, wanted: &[Entry], value: OpId, depth_left: usize) -> Read<()> {
        let depth_left = enter(self.cursor, depth_left)?;
        let from = self.to.end();
        self.to.out().push(b'{');
        let mut is_first = true;
        while let Some(block) = self.cursor.block()? {
            for _ in 0..block.count {
                self.check_written()?;
                if !std::mem::take(&mut is_first) {
                    self.to.out().push(b',');
                }
                let key = self.cursor.text()?;
                self.to.text(UNWANTED, key);
                self.to.out().push(b':');
                let mut op = value;
                if let Some(entry) = wanted.iter().find(|entry| *entry.key == *key.as_bytes()) {
                    // If the key is repeated, only its last entry counts.
                    self.to.forget(entry.nodes.clone());
                    op = entry.op;
                }
                self.run(op, depth_left).map_err(|fault| fault.under_key(key.as_bytes()))?;
            }
            self.cursor.end_block(block)?;
        }
        self.to.out().push(b'}');
        self.to.composite(node, from);
        Ok(())
    }

    fn duration(&mut self, node: usize, nodes: [usize; 3]) -> Read<()> {
        let from = self.to.end();
        for (i, name) in DURATION.into_iter().enumerate() {
            self.to.out().push(if i == 0 { b'{' } else { b',' });
            self.to.text(UNWANTED, name);
            self.to.out().push(b':');
            self.to.integer(nodes[i], u32::from_le_bytes(self.cursor.array()?).into());
        }
        self.to.out().push(b'}');
        self.to.composite(node, from);
        Ok(())
    }

    /// Checks the size of the JSON, before each field, item and entry.
    fn check_written(&self) -> Read<()> {
        if self.to.end() > self.written_max {
            return Err(self.cursor.fault(self.cursor.at(), "as JSON, the record would be many times as large"));
        }
        Ok(())
    }
}
