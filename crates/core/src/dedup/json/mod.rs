//! Reads wanted fields from a JSON document in one pass, without building a tree and without allocating.
//!
//! The whole document is checked, including what is not wanted: UTF-8, structure, numbers, escapes, surrogate pairs,
//! nesting. It accepts exactly what `serde_json` accepts into a `Value`, except that the nesting limit is ours and a
//! number may be of any size, since none is ever turned into a double. Where an object has a field twice, the last one
//! counts, and nothing inside the first.
//!
//! **Kafka Connect's and Avro's JSON.** A scanner that looks through them ([`Scanner::new`]) recognises three wrappings
//! and nothing else:
//!
//! - a root object with a field `payload` and at most one other, `schema`, in any order, which is an object or null (a
//!   scalar is a column of that name): every path starts in the payload;
//! - the same with `schemaId`, a number or a text, in place of the schema, which Apicurio Registry's `ExtJsonConverter`
//!   writes. The payload has to be an object then, for two columns may have these names, and no path may begin with one
//!   of them: the reader of such a path means the fields of the record itself;
//! - a record in a union, `{"server1.dbo.customers.Value": {…}}`: an object into which some path continues, whose only
//!   field holds an object and has a name that contains a dot and is a step of no path: the path continues in that
//!   inner object. Avro's full names have dots; one level is looked through, not several;
//! - a scalar in a union, `{"string": "x"}`: see [`scalar_in_union`], for callers that want a scalar.

mod cursor;
pub(super) mod members;
mod tape;

use std::ops::Range;

pub(super) use cursor::{Cursor, unescape};
pub(super) use tape::{Tape, TokenKind};

use super::steps::{Found, PathIndex, ROOT, Steps, UNWANTED};

/// Why a document is not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (byte {at})")]
pub(super) struct Malformed {
    /// The byte, from 0, at which it was noticed.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// An open object or array in which something is wanted.
#[derive(Clone, Copy, Debug)]
struct Frame {
    node: usize,
    /// What closes it.
    close: u8,
    /// Whether this is the object that a union wraps: its start and end are not the node's.
    in_union: bool,
    /// Whether the first field was taken for the wrapping of a union.
    looked_through: bool,
    /// Number of elements or fields so far.
    count: usize,
}

/// What a field's name says about its value.
#[derive(Clone, Copy)]
struct Next {
    node: usize,
    /// Whether the value, if an object, may be one wrapped by a union in this node.
    union: bool,
}

/// The nodes of Kafka Connect's wrapping.
#[derive(Debug)]
struct Wrapping {
    schema: usize,
    /// [`UNWANTED`] if the fields beside a `schemaId` are asked for.
    schema_id: usize,
    payload: usize,
    /// The wanted places inside the payload.
    places: Vec<usize>,
    /// Whether the document has fields other than those two.
    others: bool,
}

/// Reads the wanted fields of documents, one document after the other.
#[derive(Debug)]
pub(super) struct Scanner {
    steps: Steps,
    /// The wanted places' nodes.
    places: Vec<usize>,
    wrapping: Option<Wrapping>,
    /// Whether the last document was wrapped.
    wrapped: bool,
    /// What was found for each node.
    found: Vec<Found>,
    /// The open objects and arrays.
    frames: Vec<Frame>,
    /// The closing brackets of those in which nothing is wanted.
    closers: Vec<u8>,
    /// A field name without its escapes.
    name: Vec<u8>,
    depth_max: usize,
}

impl Scanner {
    /// A scanner for these paths into a document; [`PathIndex`] i is where path i leads. `looking_through`: also through
    /// Kafka Connect's and Avro's wrappings, see the module.
    pub fn new(paths: &[&[String]], depth_max: usize, looking_through: bool) -> Self {
        let [schema, schema_id, payload] = ["schema", "schemaId", "payload"].map(str::to_owned);
        let mut all: Vec<Vec<String>> = paths.iter().map(|path| path.to_vec()).collect();
        let is_own = |path: &&[String]| path.first().is_some_and(|step| *step == schema_id || *step == payload);
        let has_own = paths.iter().any(is_own);
        if looking_through {
            all.extend(paths.iter().map(|path| [std::slice::from_ref(&payload), path].concat()));
            all.extend([vec![schema], vec![schema_id], vec![payload]]);
        }
        let (steps, mut places) = Steps::new(&all);
        let wrapping = looking_through.then(|| {
            let mut inside = places.split_off(paths.len());
            let mut last = || inside.pop().unwrap_or(UNWANTED);
            let (payload, schema_id, schema) = (last(), last(), last());
            let schema_id = if has_own { UNWANTED } else { schema_id };
            Wrapping { schema, schema_id, payload, places: inside, others: false }
        });
        let found = vec![Found::Missing; steps.len()];
        Self {
            steps,
            places,
            wrapping,
            wrapped: false,
            found,
            frames: Vec::new(),
            closers: Vec::new(),
            name: Vec::new(),
            depth_max,
        }
    }

    /// What the last scanned document has at `place`.
    #[inline]
    pub fn found(&self, place: PathIndex) -> Found {
        let places = match &self.wrapping {
            Some(wrapping) if self.wrapped => &wrapping.places,
            _ => &self.places,
        };
        self.found[places[place.0]]
    }

    /// Where the last document's schema is, if it was wrapped and has one.
    #[inline]
    pub fn schema(&self) -> Option<Range<usize>> {
        let wrapping = self.wrapping.as_ref().filter(|_| self.wrapped)?;
        match self.found[wrapping.schema] {
            Found::Composite { from, to } => Some(from..to),
            _ => None,
        }
    }

    /// Whether it looks through wrappings.
    #[inline]
    pub fn is_looking_through(&self) -> bool {
        self.wrapping.is_some()
    }

    /// Checks a document and notes what is in the wanted places. After an error, nothing is known about it.
    pub fn scan(&mut self, document: &[u8]) -> Result<(), Malformed> {
        if simdutf8::basic::from_utf8(document).is_err() {
            let at = std::str::from_utf8(document).map_or_else(|e| e.valid_up_to(), str::len);
            return Err(Malformed { at, what: "invalid UTF-8" });
        }
        self.found.fill(Found::Missing);
        self.frames.clear();
        if let Some(wrapping) = &mut self.wrapping {
            wrapping.others = false;
        }
        let mut cursor = Cursor::new(document);
        let mut next = Next { node: ROOT, union: false };
        loop {
            let opened = self.value(&mut cursor, next)?;
            match self.next(&mut cursor, opened)? {
                Some(node) => next = node,
                None => break,
            }
        }
        cursor.skip_space();
        if !cursor.is_at_end() {
            return Err(cursor.malformed("expected nothing more"));
        }
        self.wrapped = self.wrapping.as_ref().is_some_and(|wrapping| self.is_wrapped(wrapping, document));
        Ok(())
    }

    /// Whether the scanned document is a payload with what belongs to it.
    #[inline]
    fn is_wrapped(&self, wrapping: &Wrapping, document: &[u8]) -> bool {
        // The payload is only ever found as a field of the root: its name is not looked for anywhere else.
        let payload = self.found[wrapping.payload];
        let schema = self.found[wrapping.schema];
        if wrapping.others || payload == Found::Missing {
            return false;
        }
        match self.found.get(wrapping.schema_id) {
            None | Some(Found::Missing) => matches!(schema, Found::Missing | Found::Null | Found::Composite { .. }),
            Some(Found::Number { .. } | Found::Text { .. }) => {
                let is_object = |from: usize| document.get(from) == Some(&b'{');
                schema == Found::Missing && matches!(payload, Found::Composite { from, .. } if is_object(from))
            }
            Some(_) => false,
        }
    }

    /// Reads a value, or the opening bracket of one in which something is wanted; returns whether it was an opening.
    #[inline]
    fn value(&mut self, cursor: &mut Cursor<'_>, next: Next) -> Result<bool, Malformed> {
        cursor.skip_space();
        let byte = cursor.peek();
        let from = cursor.at();
        let found = match byte {
            b'"' => {
                let text = cursor.text()?;
                Found::Text { from: text.from, to: text.to, escaped: text.escaped }
            }
            b'-' | b'0'..=b'9' => {
                let (from, to) = cursor.number()?;
                Found::Number { from, to }
            }
            b'{' | b'[' => return self.composite(cursor, next, byte),
            b't' => cursor.literal(b"true").map(|()| Found::Bool(true))?,
            b'f' => cursor.literal(b"false").map(|()| Found::Bool(false))?,
            b'n' => cursor.literal(b"null").map(|()| Found::Null)?,
            _ => return Err(Malformed { at: from, what: "expected a value" }),
        };
        if !next.union
            && let Some(cell) = self.found.get_mut(next.node)
        {
            *cell = found;
        }
        Ok(false)
    }

    /// Skips an object or array in which nothing is wanted, or the opening bracket of another.
    fn composite(&mut self, cursor: &mut Cursor<'_>, next: Next, open: u8) -> Result<bool, Malformed> {
        let in_union = next.union && open == b'{';
        let from = cursor.at();
        let is_leaf = self.steps.is_leaf(next.node);
        if is_leaf || (next.union && !in_union) {
            cursor.skip_composite(&mut self.closers, self.depth_max.saturating_sub(self.frames.len()))?;
            if !next.union
                && let Some(cell) = self.found.get_mut(next.node)
            {
                *cell = Found::Composite { from, to: cursor.at() };
            }
            return Ok(false);
        }
        if self.frames.len() >= self.depth_max {
            return Err(cursor.malformed("nested too deep"));
        }
        cursor.bump();
        if in_union {
            if let Some(outer) = self.frames.last_mut() {
                outer.looked_through = true;
            }
        } else {
            self.found[next.node] = Found::Composite { from, to: from };
        }
        let close = if open == b'{' { b'}' } else { b']' };
        self.frames.push(Frame { node: next.node, close, in_union, looked_through: false, count: 0 });
        Ok(true)
    }

    /// Moves to the next value, closing whatever ends before it; `None` at the end of the document. `opened`: the
    /// innermost object or array has only just been opened.
    #[inline]
    fn next(&mut self, cursor: &mut Cursor<'_>, mut opened: bool) -> Result<Option<Next>, Malformed> {
        loop {
            let Some(frame) = self.frames.last_mut() else { return Ok(None) };
            cursor.skip_space();
            if cursor.peek() == frame.close {
                cursor.bump();
                if !frame.in_union
                    && let Found::Composite { to, .. } = &mut self.found[frame.node]
                {
                    *to = cursor.at();
                }
                self.frames.pop();
                opened = false;
                continue;
            }
            if !opened {
                if cursor.peek() != b',' {
                    return Err(cursor.malformed("expected a comma or the end of the object or array"));
                }
                cursor.bump();
            }
            let index = frame.count;
            frame.count += 1;
            if frame.close == b']' {
                let child = self.steps.element(frame.node, index);
                return Ok(Some(Next { node: child.unwrap_or(UNWANTED), union: false }));
            }
            return self.field(cursor, index).map(Some);
        }
    }

    /// Reads the name and colon of the innermost object's next field.
    #[inline]
    fn field(&mut self, cursor: &mut Cursor<'_>, index: usize) -> Result<Next, Malformed> {
        let text = cursor.name()?;
        let mut name = cursor.bytes(text.from, text.to);
        if text.escaped {
            self.name.clear();
            unescape(name, &mut self.name);
            name = &self.name;
        }
        let depth = self.frames.len();
        let Some(frame) = self.frames.last_mut() else { return Ok(Next { node: UNWANTED, union: false }) };
        if frame.looked_through {
            // The first field is not the only one, so this was not a union.
            frame.looked_through = false;
            self.found[self.steps.below(frame.node)].fill(Found::Missing);
        }
        let child = self.steps.field(frame.node, name);
        if let (Some(wrapping), 1) = (&mut self.wrapping, depth) {
            let known = [wrapping.schema, wrapping.schema_id, wrapping.payload];
            wrapping.others |= child.is_none_or(|child| !known.contains(&child));
        }
        match child {
            Some(child) => {
                // In case this field is repeated: what the first one held does not count.
                self.found[child..self.steps.below(child).end].fill(Found::Missing);
                Ok(Next { node: child, union: false })
            }
            None => {
                let union = index == 0 && self.wrapping.is_some() && !frame.in_union && name.contains(&b'.');
                Ok(Next { node: if union { frame.node } else { UNWANTED }, union })
            }
        }
    }
}

/// The scalar in a union of Avro's JSON, if `object` is one: an object with exactly one field, named after a type.
/// `object` has been scanned before; ranges are in its bytes.
pub(super) fn scalar_in_union(object: &[u8]) -> Option<Found> {
    let mut cursor = Cursor::new(object);
    if cursor.peek() != b'{' {
        return None;
    }
    cursor.bump();
    let name = cursor.name().ok()?;
    if !is_scalar_type(cursor.bytes(name.from, name.to)) {
        return None;
    }
    cursor.skip_space();
    let found = match cursor.peek() {
        b'"' => {
            let text = cursor.text().ok()?;
            Found::Text { from: text.from, to: text.to, escaped: text.escaped }
        }
        b't' => cursor.literal(b"true").map(|()| Found::Bool(true)).ok()?,
        b'f' => cursor.literal(b"false").map(|()| Found::Bool(false)).ok()?,
        b'n' => cursor.literal(b"null").map(|()| Found::Null).ok()?,
        _ => {
            let (from, to) = cursor.number().ok()?;
            Found::Number { from, to }
        }
    };
    cursor.skip_space();
    (cursor.peek() == b'}').then_some(found)
}

/// Whether this is Avro's name for a scalar type.
pub(super) fn is_scalar_type(name: &[u8]) -> bool {
    const TYPES: [&[u8]; 7] = [b"string", b"int", b"long", b"float", b"double", b"bytes", b"boolean"];
    TYPES.contains(&name)
}

#[cfg(test)]
mod tests;
