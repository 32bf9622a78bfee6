//! Skips values without wanted places. Numbers, lengths and choices are checked, since the end of a value depends on
//! them; strings are not.

use super::cursor::{Cursor, Read};

/// How to skip a value. Small, so that the skips of a record's fields lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Skip {
    /// The value takes no bytes.
    Nothing,
    Number,
    Prefixed,
    Fixed(u32),
    Bool,
    /// The number of symbols.
    Enum(u32),
    /// An index in [`Skips::unions`].
    Union(u32),
    /// An index in [`Skips::fields`].
    Fields(u32),
    /// An index in [`Skips::arrays`].
    Array(u32),
    /// An index in [`Skips::maps`].
    Map(u32),
}

/// The skips of composite types.
#[derive(Debug, Default)]
pub(super) struct Skips {
    pub unions: Vec<Box<[Skip]>>,
    pub fields: Vec<Fields>,
    pub arrays: Vec<Skip>,
    pub maps: Vec<Skip>,
    /// The names of fields, for errors.
    pub names: Vec<Box<str>>,
}

/// Consecutive fields of a record.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub skips: Box<[Skip]>,
    /// The number of each field's name.
    pub names: Box<[u32]>,
}

/// The record has too many levels.
pub(super) const TOO_DEEP: &str = "nested too deep";
/// The index of a branch is out of range.
pub(super) const NO_BRANCH: &str = "a union has no branch of this number";
/// The index of a symbol is out of range.
pub(super) const NO_SYMBOL: &str = "an enum has no symbol of this number";

impl Skips {
    /// Skips a value of at most `depth_left` levels.
    #[inline]
    pub fn skip(&self, skip: Skip, cursor: &mut Cursor<'_>, depth_left: usize) -> Read<()> {
        match skip {
            Skip::Number => cursor.skip_long(),
            Skip::Prefixed => cursor.prefixed().map(drop),
            Skip::Union(union) => {
                let branches = &self.unions[union as usize];
                match branches[cursor.choice(branches.len(), NO_BRANCH)?] {
                    Skip::Nothing => Ok(()),
                    Skip::Number => cursor.skip_long(),
                    Skip::Prefixed => cursor.prefixed().map(drop),
                    branch => self.skip_other(branch, cursor, depth_left),
                }
            }
            other => self.skip_other(other, cursor, depth_left),
        }
    }

    fn skip_other(&self, skip: Skip, cursor: &mut Cursor<'_>, depth_left: usize) -> Read<()> {
        match skip {
            Skip::Nothing => Ok(()),
            Skip::Fixed(size) => cursor.fixed(size).map(drop),
            Skip::Bool => cursor.bool().map(drop),
            Skip::Enum(symbols) => cursor.choice(symbols as usize, NO_SYMBOL).map(drop),
            Skip::Fields(fields) => self.skip_fields(fields, cursor, enter(cursor, depth_left)?),
            Skip::Array(array) => self.skip_array(self.arrays[array as usize], cursor, enter(cursor, depth_left)?),
            Skip::Map(map) => self.skip_map(self.maps[map as usize], cursor, enter(cursor, depth_left)?),
            Skip::Number | Skip::Prefixed | Skip::Union(_) => self.skip(skip, cursor, depth_left),
        }
    }

    /// Skips fields of at most `depth_left` levels each.
    pub fn skip_fields(&self, fields: u32, cursor: &mut Cursor<'_>, depth_left: usize) -> Read<()> {
        let fields = &self.fields[fields as usize];
        for (i, skip) in fields.skips.iter().enumerate() {
            self.skip(*skip, cursor, depth_left).map_err(|fault| fault.under(self.name(fields.names[i])))?;
        }
        Ok(())
    }

    fn skip_array(&self, item: Skip, cursor: &mut Cursor<'_>, depth_left: usize) -> Read<()> {
        let mut number: u64 = 0;
        while let Some(block) = cursor.block()? {
            match block.end {
                Some(end) => cursor.go_to(end),
                None => self.skip_items(item, number, block.count, cursor, depth_left)?,
            }
            number = number.saturating_add(block.count);
        }
        Ok(())
    }

    /// Skips `count` items, of which the first has the index `first`.
    pub fn skip_items(
        &self,
        item: Skip,
        first: u64,
        count: u64,
        cursor: &mut Cursor<'_>,
        depth_left: usize,
    ) -> Read<()> {
        // Any other item takes at least a byte, so the record bounds the work.
        if item == Skip::Nothing {
            return Ok(());
        }
        for i in 0..count {
            let number = || first.saturating_add(i).to_string();
            self.skip(item, cursor, depth_left).map_err(|fault| fault.under(number()))?;
        }
        Ok(())
    }

    fn skip_map(&self, value: Skip, cursor: &mut Cursor<'_>, depth_left: usize) -> Read<()> {
        while let Some(block) = cursor.block()? {
            if let Some(end) = block.end {
                cursor.go_to(end);
                continue;
            }
            for _ in 0..block.count {
                let key = cursor.prefixed()?;
                self.skip(value, cursor, depth_left).map_err(|fault| fault.under_key(key))?;
            }
        }
        Ok(())
    }

    /// The name with this number.
    pub fn name(&self, name: u32) -> &str {
        &self.names[name as usize]
    }
}

/// Goes one level deeper.
#[inline]
pub(super) fn enter(cursor: &Cursor<'_>, depth_left: usize) -> Read<usize> {
    depth_left.checked_sub(1).ok_or_else(|| cursor.fault(cursor.at(), TOO_DEEP))
}
