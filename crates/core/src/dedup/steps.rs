//! The wanted places of a document as a tree of steps, and the values found there, for documents of any format.

use std::ops::Range;

use crate::schemas::is_index;

/// A wanted place: the number of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PathIndex(pub usize);

/// The value in a wanted place. Ranges are offsets in JSON: that of the document itself, or that extracted from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing.
    #[default]
    Missing,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as written.
    Number { from: usize, to: usize },
    /// The range between the quotes of a string, and whether escapes are in it.
    Text { from: usize, to: usize, escaped: bool },
    /// An object or an array, with its brackets.
    Composite { from: usize, to: usize },
}

/// The node of the document itself.
pub(super) const ROOT: usize = 0;
/// No node: nothing below is wanted.
pub(super) const UNWANTED: usize = usize::MAX;

/// The steps to the wanted places as a tree. Its nodes are numbered in preorder, so that a node and everything below it
/// form one range.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    nodes: Vec<Node>,
}

#[derive(Clone, Debug)]
struct Node {
    /// Children by the step that leads to them.
    children: Vec<Child>,
    /// One past the last node below.
    end: usize,
    /// Whether a path ends here.
    is_place: bool,
}

#[derive(Clone, Debug)]
struct Child {
    /// The field's name, unescaped.
    name: Box<[u8]>,
    /// The name's [`tag`].
    tag: u64,
    /// The name as an array index, if it is one.
    index: Option<usize>,
    node: usize,
}

impl Node {
    #[inline]
    fn child(&self, name: &[u8]) -> Option<usize> {
        let (tag, length) = (tag(name), name.len());
        let matches = |child: &&Child| {
            child.tag == tag && child.name.len() == length && (length <= 8 || child.name[8..] == name[8..])
        };
        self.children.iter().find(matches).map(|child| child.node)
    }
}

impl Steps {
    /// The tree of these paths, and the node at the end of each.
    pub fn new<P: AsRef<[String]>>(paths: &[P]) -> (Self, Vec<usize>) {
        let mut order: Vec<usize> = (0..paths.len()).collect();
        // In sorted order, every path is inserted right after the one that it shares most steps with: preorder.
        order.sort_by_key(|&i| paths[i].as_ref());
        let mut steps = Self { nodes: vec![Node { children: Vec::new(), end: 1, is_place: false }] };
        let mut places = vec![ROOT; paths.len()];
        for i in order {
            places[i] = steps.insert(paths[i].as_ref());
            steps.nodes[places[i]].is_place = true;
        }
        (steps, places)
    }

    /// The same tree with the same nodes, in which the document itself is not wanted.
    pub fn without_root(&self) -> Self {
        let mut steps = self.clone();
        steps.nodes[ROOT].is_place = false;
        steps
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The node that the field with this name leads to from `node`, if anything is wanted there.
    #[inline]
    pub fn field(&self, node: usize, name: &[u8]) -> Option<usize> {
        self.nodes[node].child(name)
    }

    /// The node that the array element with this index leads to from `node`, if anything is wanted there.
    #[inline]
    pub fn element(&self, node: usize, number: usize) -> Option<usize> {
        self.nodes[node].children.iter().find(|child| child.index == Some(number)).map(|child| child.node)
    }

    /// The steps that lead on from `node`, which may be [`UNWANTED`]: the name of each step, its index if it may be
    /// that of an array's element, and its node.
    pub fn children(&self, node: usize) -> impl Iterator<Item = (&[u8], Option<usize>, usize)> {
        let children = self.nodes.get(node).map_or(&[][..], |node| &node.children);
        children.iter().map(|child| (&*child.name, child.index, child.node))
    }

    /// Whether nothing is wanted below `node`, which may be [`UNWANTED`].
    #[inline]
    pub fn is_leaf(&self, node: usize) -> bool {
        self.nodes.get(node).is_none_or(|node| node.children.is_empty())
    }

    /// Whether the value at `node` itself is wanted, and not only places below it.
    #[inline]
    pub fn is_place(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| node.is_place)
    }

    /// The nodes below `node`.
    #[inline]
    pub fn below(&self, node: usize) -> Range<usize> {
        node + 1..self.nodes[node].end
    }

    /// Adds a path to the tree; returns the node at its end.
    fn insert(&mut self, path: &[String]) -> usize {
        let nodes = &mut self.nodes;
        let mut at = ROOT;
        let mut passed = vec![ROOT];
        for step in path {
            let name = step.as_bytes();
            let known = nodes[at].child(name);
            at = known.unwrap_or_else(|| {
                let node = nodes.len();
                nodes.push(Node { children: Vec::new(), end: node + 1, is_place: false });
                nodes[at].children.push(Child { name: name.into(), tag: tag(name), index: array_index(step), node });
                node
            });
            passed.push(at);
        }
        let end = nodes.len();
        // Paths come sorted, so the last node is below every node passed.
        passed.into_iter().for_each(|node| nodes[node].end = end);
        at
    }
}

/// A name's first eight bytes, padded with zeros.
#[inline]
fn tag(name: &[u8]) -> u64 {
    match name.first_chunk::<8>() {
        Some(first) => u64::from_le_bytes(*first),
        None => name.iter().rev().fold(0, |tag, &byte| tag << 8 | u64::from(byte)),
    }
}

/// The array index that a step stands for: digits without a leading zero.
pub(super) fn array_index(step: &str) -> Option<usize> {
    is_index(step).then(|| step.parse().ok()).flatten()
}
