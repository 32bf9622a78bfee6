//! The shape of what a plan reads: which values are of logical types, and which fields are texts.
//!
//! A shape is a tree, and a schema a graph: it is followed along the wanted places, and below them as far as
//! [`VISITS_MAX`], [`DEPTH_MAX`] and types that hold themselves allow. Beyond, values have no shape, and are written as
//! they are encoded.

use super::compile::decimal_scale;
use crate::dedup::logical::{Logical as Shaped, Shape, Unit as ShapedUnit};
use crate::dedup::steps::{ROOT, Steps, UNWANTED};
use crate::schemas::avro::{Kind, Logical, Record, Schema, Type, TypeId, Unit};

/// How many types are looked at.
const VISITS_MAX: usize = 100_000;
/// How deep a shape is at most.
const DEPTH_MAX: usize = 128;

struct Shapes<'s> {
    schema: &'s Schema,
    steps: &'s Steps,
    visits_left: usize,
    /// The types around the one that is looked at, from the outermost one that is wanted as a whole.
    open: Vec<TypeId>,
    /// How many types are around it.
    depth: usize,
}

/// The shape of records with this schema, as far as these places are wanted.
pub(super) fn of(schema: &Schema, steps: &Steps) -> Shape {
    let mut shapes = Shapes { schema, steps, visits_left: VISITS_MAX, open: Vec::new(), depth: 0 };
    shapes.of(schema.root(), ROOT, false)
}

impl Shapes<'_> {
    /// The shape of values of a type at a node, which may be [`UNWANTED`]. `whole`: not only what is wanted inside.
    fn of(&mut self, id: TypeId, node: usize, whole: bool) -> Shape {
        let whole = whole || self.steps.is_place(node);
        if self.visits_left == 0 || self.depth == DEPTH_MAX || whole && node == UNWANTED && self.open.contains(&id) {
            return Shape::Plain;
        }
        self.visits_left -= 1;
        self.depth += 1;
        if whole {
            self.open.push(id);
        }
        let shape = self.of_type(id, node, whole);
        if whole {
            self.open.pop();
        }
        self.depth -= 1;
        shape
    }

    fn of_type(&mut self, id: TypeId, node: usize, whole: bool) -> Shape {
        let of = self.schema.get(id);
        if let Some(logical) = logical(self.schema, of) {
            return Shape::Logical(logical);
        }
        match &of.kind {
            Kind::Record(record) => self.of_record(record, node, whole),
            // What holds for one element, or key, holds for all.
            Kind::Array(items) => self.of(*items, UNWANTED, true).in_array(),
            Kind::Map(values) => self.of(*values, UNWANTED, true).in_map(),
            Kind::Union(branches) => match self.schema.only_branch(branches) {
                Some(only) => self.of(only, node, whole),
                // Which branch a value has, only the record says.
                None => Shape::Plain,
            },
            _ => Shape::Plain,
        }
    }

    fn of_record(&mut self, record: &Record, node: usize, whole: bool) -> Shape {
        let wanted: Vec<_> = self.steps.children(node).map(|(name, _, child)| (name.to_owned(), child)).collect();
        let mut fields = Vec::new();
        let mut named = Vec::new();
        for (name, child) in wanted {
            if let Some(field) = record.find(&name) {
                fields.push((name.into(), self.of(record.fields[field].of, child, whole)));
                named.push(field);
            }
        }
        if whole {
            for (i, field) in record.fields.iter().enumerate() {
                // One that is wanted by an alias only is written by its name.
                if !named.contains(&i) || self.steps.children(node).all(|(name, ..)| *name != *field.name.as_bytes()) {
                    fields.push((field.name.as_bytes().into(), self.of(field.of, UNWANTED, true)));
                }
            }
        }
        fields.retain(|(_, shape)| *shape != Shape::Plain);
        let texts = record.fields.iter().filter(|field| whole && self.is_text(field.of)).map(|field| &*field.name);
        Shape::fields(fields, texts)
    }

    /// Whether values of a type are texts, or arrays of texts.
    fn is_text(&self, id: TypeId) -> bool {
        let mut id = id;
        // Arrays may hold themselves; none that is worth a look is nested as deep.
        for _ in 0..DEPTH_MAX {
            let of = self.schema.get(id);
            id = match &of.kind {
                Kind::String | Kind::Enum(_) => return true,
                Kind::Fixed(_) => return of.logical == Some(Logical::Uuid),
                Kind::Array(items) => *items,
                Kind::Union(branches) => match self.schema.only_branch(branches) {
                    Some(only) => only,
                    None => return false,
                },
                _ => return false,
            };
        }
        false
    }
}

/// The logical type of values of a type, if they need decoding: what Connect's converter says goes before what Avro
/// knows.
fn logical(schema: &Schema, of: &Type) -> Option<Shaped> {
    let connect = of.connect.as_deref();
    let named = connect.and_then(|connect| Shaped::named(&connect.name, |name| connect.parameter(name)));
    if let Some(named) = named {
        let fits = match named {
            Shaped::Date | Shaped::Time(_) | Shaped::Timestamp(..) | Shaped::Duration(_) => {
                matches!(of.kind, Kind::Int | Kind::Long)
            }
            // They are written as numbers.
            Shaped::Decimal(_) => false,
            Shaped::Bits(_) => matches!(of.kind, Kind::Bytes | Kind::Fixed(_)) && decimal_scale(of).is_none(),
            Shaped::VariableDecimal => matches!(&of.kind, Kind::Record(record) if is_variable(schema, record)),
        };
        return Some(named).filter(|_| fits);
    }
    Some(match of.logical? {
        Logical::Date => Shaped::Date,
        Logical::Time(unit) => Shaped::Time(shaped(unit)),
        Logical::Timestamp(unit) => Shaped::Timestamp(shaped(unit), true),
        Logical::LocalTimestamp(unit) => Shaped::Timestamp(shaped(unit), false),
        _ => return None,
    })
}

/// Whether these are the fields of a decimal with a scale of its own.
fn is_variable(schema: &Schema, record: &Record) -> bool {
    record.fields.len() == 2
        && record.fields.iter().all(|field| {
            let of = schema.get(field.of);
            match &*field.name {
                "scale" => matches!(of.kind, Kind::Int | Kind::Long),
                "value" => matches!(of.kind, Kind::Bytes) && decimal_scale(of).is_none(),
                _ => false,
            }
        })
}

fn shaped(unit: Unit) -> ShapedUnit {
    match unit {
        Unit::Milli => ShapedUnit::Milli,
        Unit::Micro => ShapedUnit::Micro,
        Unit::Nano => ShapedUnit::Nano,
    }
}
