//! A message of a schema and the wanted places in it, resolved once to the fields that lead to them.

use std::sync::Arc;

use super::layout::Layout;
use crate::dedup::logical::Shape;
use crate::dedup::steps::{ROOT, Steps};
use crate::schemas::protobuf::{Graph, Inside, Known, Many, Place, Scalar, Schema, Type};

/// The maximum depth of nested messages, whatever the limits say.
pub(super) const DEPTH_MAX: usize = 200;

/// How to read the wanted places of one message's records.
#[derive(Debug)]
pub(in crate::dedup) struct Plan {
    pub(super) graph: Arc<Graph>,
    pub(super) steps: Steps,
    /// The number of the message that records are.
    pub(super) root: usize,
    /// By node: the fields that lead to a wanted place, if a message is at the node.
    pub(super) wanted: Vec<Option<Layout>>,
    /// By message: all of its fields, if it may be written as a whole.
    pub(super) whole: Vec<Option<Layout>>,
    shape: Shape,
    pub(super) depth_max: usize,
}

impl Plan {
    /// The plan for records of the message with this number.
    pub fn new(schema: &Schema, root: usize, steps: &Steps, depth_max: usize) -> Self {
        let graph = Arc::clone(schema.graph());
        let nodes = steps.len();
        let mut plan = Self {
            wanted: std::iter::repeat_with(|| None).take(nodes).collect(),
            whole: std::iter::repeat_with(|| None).take(graph.messages.len()).collect(),
            graph,
            steps: steps.clone(),
            root,
            shape: Shape::Plain,
            depth_max: depth_max.min(DEPTH_MAX),
        };
        let place = Place { of: Type::Message(root), many: Many::One };
        plan.compile(ROOT, place);
        plan.shape = plan.shape_of(&[ROOT], place);
        plan
    }

    /// The logical types of values in the wanted places, and the fields there that are strings.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Resolves the wanted places at and below a node. Recurses as deep as the paths have steps.
    fn compile(&mut self, node: usize, place: Place) {
        if self.steps.is_place(node) {
            self.compile_whole(place.of);
        }
        if self.steps.is_leaf(node) {
            return;
        }
        let graph = Arc::clone(&self.graph);
        if let (Many::One, Type::Message(message) | Type::Group(message)) = (place.many, place.of) {
            let message = &graph.messages[message];
            match message.known {
                Known::None => self.wanted[node] = Some(Layout::of_wanted(message, &self.steps, node)),
                _ => self.compile_whole(place.of),
            }
        } else if place.many == Many::Map {
            // Entries are read with all their fields.
            self.compile_whole(place.of);
        }
        let children: Vec<_> = self.steps.children(node).map(|(name, _, child)| (name.to_vec(), child)).collect();
        for (name, child) in children {
            let inside = std::str::from_utf8(&name).ok().and_then(|name| graph.step(place, name));
            match inside {
                Some(Inside::Place(inner)) => self.compile(child, inner),
                Some(Inside::Anything) => self.compile_whole(place.of),
                None => {}
            }
        }
    }

    /// Resolves all messages that a type leads to.
    fn compile_whole(&mut self, of: Type) {
        let mut open = vec![of];
        while let Some(of) = open.pop() {
            let (Type::Message(number) | Type::Group(number)) = of else { continue };
            if self.whole[number].is_none() {
                let message = &self.graph.messages[number];
                self.whole[number] = Some(Layout::of_all(message));
                open.extend(message.fields.iter().map(|field| field.of));
            }
        }
    }

    /// The shape of the value at these nodes, which have the same type. Recurses as deep as the paths have steps.
    fn shape_of(&self, nodes: &[usize], place: Place) -> Shape {
        let children = nodes.iter().flat_map(|node| self.steps.children(*node));
        let mut children: Vec<(&[u8], usize)> = children.map(|(name, _, child)| (name, child)).collect();
        let inside = |nodes: &[usize], step: &[u8]| match std::str::from_utf8(step) {
            Ok(step) => match self.graph.step(place, step) {
                Some(Inside::Place(inner)) => self.shape_of(nodes, inner),
                _ => Shape::Plain,
            },
            Err(_) => Shape::Plain,
        };
        let all: Vec<_> = children.iter().map(|(_, node)| *node).collect();
        match (place.many, place.of) {
            (Many::List, _) if !all.is_empty() => inside(&all, b"0").in_array(),
            (Many::Map, _) if !all.is_empty() => inside(&all, b"").in_map(),
            (Many::One, Type::Message(message) | Type::Group(message)) => {
                let message = &self.graph.messages[message];
                if message.known != Known::None {
                    return Shape::Plain;
                }
                children.sort_unstable();
                let fields = children.chunk_by(|(a, _), (b, _)| a == b).filter_map(|same| {
                    let nodes: Vec<_> = same.iter().map(|(_, node)| *node).collect();
                    let step = same.first()?.0;
                    Some((step.into(), inside(&nodes, step))).filter(|(_, shape)| *shape != Shape::Plain)
                });
                let is_place = nodes.iter().any(|node| self.steps.is_place(*node));
                let texts = message.fields.iter().filter(|field| is_place && self.is_text(field.many, field.of));
                Shape::fields(fields.collect(), texts.map(|field| &*field.name))
            }
            _ => Shape::Plain,
        }
    }

    /// Whether a field is a string, or a list of strings, and not bytes in base64.
    fn is_text(&self, many: Many, of: Type) -> bool {
        let is_text = match of {
            Type::Scalar(scalar) => scalar == Scalar::String,
            Type::Enum(of) => !self.graph.enums[of].is_null,
            Type::Message(of) | Type::Group(of) => {
                let message = &self.graph.messages[of];
                match message.known {
                    Known::Timestamp | Known::Duration | Known::FieldMask => true,
                    Known::Wrapper => message.fields.iter().all(|field| field.of == Type::Scalar(Scalar::String)),
                    _ => false,
                }
            }
        };
        is_text && many != Many::Map
    }
}
