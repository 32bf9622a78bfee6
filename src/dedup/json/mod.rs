//! Reads wanted fields out of a JSON document in one pass, without a tree and without allocating.
//!
//! The whole document is checked, also what nobody wants: UTF-8, structure, numbers, escapes, surrogate
//! pairs, nesting. What is accepted is exactly what `serde_json` accepts into a `Value`, but for two
//! things: the nesting limit is ours, and a number may be of any size, since none is ever turned into a
//! double. Where an object has a field twice, the last one counts, and nothing inside the first.

mod cursor;

use std::ops::Range;

use cursor::Cursor;
pub(super) use cursor::unescape;

/// What is not JSON, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (byte {at})")]
pub(super) struct Malformed {
    /// The byte, from 0, at which it was noticed.
    pub at: usize,
    /// What was wrong.
    pub what: &'static str,
}

/// What stands in a wanted place. Ranges are the document's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    #[default]
    Missing,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written.
    Number { from: usize, to: usize },
    /// What is between a string's quotes, and whether there are escapes in it.
    Text { from: usize, to: usize, escaped: bool },
    /// An object or an array.
    Composite,
}

/// The wanted places as a tree of steps. Nodes are in preorder, so that a node and everything below it
/// are one range.
#[derive(Debug)]
struct Node {
    /// Children by the step that leads to them.
    children: Vec<Child>,
    /// One past the last node below.
    end: usize,
}

#[derive(Debug)]
struct Child {
    /// The field's name, unescaped.
    name: Box<[u8]>,
    /// The name as an array's index, where it is one.
    index: Option<usize>,
    node: usize,
}

const ROOT: usize = 0;
/// No node: nothing below is wanted.
const UNWANTED: usize = usize::MAX;

/// An object or array that is being read.
#[derive(Clone, Copy, Debug)]
struct Frame {
    node: usize,
    /// What closes it.
    close: u8,
    /// An array's next index.
    index: usize,
}

/// Reads the wanted fields of documents, one document after the other.
#[derive(Debug)]
pub(super) struct Scanner {
    nodes: Vec<Node>,
    /// What was found for each node.
    found: Vec<Found>,
    /// The open objects and arrays.
    frames: Vec<Frame>,
    /// A field name without its escapes.
    name: Vec<u8>,
    depth_max: usize,
}

/// A wanted place: ask [`Scanner::found`] for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(usize);

impl Scanner {
    /// A scanner for these ways into a document, and their places in the same order.
    pub fn new(ways: &[&[String]], depth_max: usize) -> (Self, Vec<Place>) {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        // Sorted, every way is inserted right after the one that it shares most steps with: preorder.
        order.sort_by_key(|&i| ways[i]);
        let mut nodes = vec![Node { children: Vec::new(), end: 1 }];
        let mut places = vec![Place(ROOT); ways.len()];
        for i in order {
            places[i] = Place(insert(&mut nodes, ways[i]));
        }
        let found = vec![Found::Missing; nodes.len()];
        (Self { nodes, found, frames: Vec::new(), name: Vec::new(), depth_max }, places)
    }

    /// What the last document that was scanned has in `place`.
    pub fn found(&self, place: Place) -> Found {
        self.found[place.0]
    }

    /// Checks a document and notes what it has in the wanted places. After an error nothing is known of it.
    pub fn scan(&mut self, document: &[u8]) -> Result<(), Malformed> {
        if simdutf8::basic::from_utf8(document).is_err() {
            let at = std::str::from_utf8(document).map_or_else(|e| e.valid_up_to(), str::len);
            return Err(Malformed { at, what: "invalid UTF-8" });
        }
        self.found.fill(Found::Missing);
        self.frames.clear();
        let mut cursor = Cursor::new(document);
        let mut node = ROOT;
        loop {
            let opened = self.value(&mut cursor, node)?;
            match self.next(&mut cursor, opened)? {
                Some(next) => node = next,
                None => break,
            }
        }
        cursor.skip_space();
        if !cursor.is_at_end() {
            return Err(cursor.malformed("expected nothing more"));
        }
        Ok(())
    }

    /// Reads a value, or the opening of one: whether it was an opening.
    #[inline]
    fn value(&mut self, cursor: &mut Cursor<'_>, node: usize) -> Result<bool, Malformed> {
        cursor.skip_space();
        let found = match cursor.peek() {
            b'"' => {
                let text = cursor.text()?;
                Found::Text { from: text.from, to: text.to, escaped: text.escaped }
            }
            b'-' | b'0'..=b'9' => {
                let (from, to) = cursor.number()?;
                Found::Number { from, to }
            }
            open @ (b'{' | b'[') => {
                if self.frames.len() >= self.depth_max {
                    return Err(cursor.malformed("nested too deep"));
                }
                cursor.bump();
                let close = if open == b'{' { b'}' } else { b']' };
                self.frames.push(Frame { node, close, index: 0 });
                Found::Composite
            }
            b't' => cursor.literal(b"true").map(|()| Found::Bool(true))?,
            b'f' => cursor.literal(b"false").map(|()| Found::Bool(false))?,
            b'n' => cursor.literal(b"null").map(|()| Found::Null)?,
            _ => return Err(cursor.malformed("expected a value")),
        };
        if let Some(cell) = self.found.get_mut(node) {
            *cell = found;
        }
        Ok(found == Found::Composite)
    }

    /// Goes on to the next value, closing whatever ends before it: the value's node, `None` where the
    /// document is done. `opened`: the innermost object or array has only just begun.
    #[inline]
    fn next(&mut self, cursor: &mut Cursor<'_>, mut opened: bool) -> Result<Option<usize>, Malformed> {
        loop {
            let Some(frame) = self.frames.last_mut() else { return Ok(None) };
            cursor.skip_space();
            if cursor.peek() == frame.close {
                cursor.bump();
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
            if frame.close == b']' {
                let index = frame.index;
                frame.index += 1;
                let node = frame.node;
                return Ok(Some(self.element(node, index)));
            }
            let node = frame.node;
            return self.field(cursor, node).map(Some);
        }
    }

    /// The node of an array's element.
    #[inline]
    fn element(&self, node: usize, index: usize) -> usize {
        let Some(node) = self.nodes.get(node) else { return UNWANTED };
        node.children.iter().find(|child| child.index == Some(index)).map_or(UNWANTED, |child| child.node)
    }

    /// Reads a field's name and colon: the field's node.
    #[inline]
    fn field(&mut self, cursor: &mut Cursor<'_>, node: usize) -> Result<usize, Malformed> {
        cursor.skip_space();
        if cursor.peek() != b'"' {
            return Err(cursor.malformed("expected a field's name in double quotes"));
        }
        let text = cursor.text()?;
        cursor.skip_space();
        if cursor.peek() != b':' {
            return Err(cursor.malformed("expected a colon after the field's name"));
        }
        cursor.bump();
        let Some(node) = self.nodes.get(node) else { return Ok(UNWANTED) };
        let mut name = cursor.bytes(text.from, text.to);
        if text.escaped {
            self.name.clear();
            unescape(name, &mut self.name);
            name = &self.name;
        }
        let Some(child) = node.children.iter().find(|child| *child.name == *name) else { return Ok(UNWANTED) };
        // A second field of this name: what the first one held does not count.
        let below: Range<usize> = child.node..self.nodes[child.node].end;
        self.found[below].fill(Found::Missing);
        Ok(child.node)
    }
}

/// Adds a way to the tree: the node at its end.
fn insert(nodes: &mut Vec<Node>, way: &[String]) -> usize {
    let mut at = ROOT;
    let mut passed = vec![ROOT];
    for step in way {
        let name = step.as_bytes();
        let known = nodes[at].children.iter().find(|child| *child.name == *name).map(|child| child.node);
        at = known.unwrap_or_else(|| {
            let node = nodes.len();
            nodes.push(Node { children: Vec::new(), end: node + 1 });
            nodes[at].children.push(Child { name: name.into(), index: array_index(step), node });
            node
        });
        passed.push(at);
    }
    let end = nodes.len();
    // Ways come sorted, so that the last node lies below every node that was passed.
    passed.into_iter().for_each(|node| nodes[node].end = end);
    at
}

/// The index that a step stands for in an array: digits without a leading zero.
fn array_index(step: &str) -> Option<usize> {
    let canonical = step == "0" || (!step.starts_with('0') && step.bytes().all(|byte| byte.is_ascii_digit()));
    canonical.then(|| step.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
