//! The shape of the wanted places: the logical types of their values, and the fields that are strings.
//!
//! A shape is a tree, and a schema is a graph. The graph is followed along the wanted places, and below them up to
//! [`VISITS_MAX`] types, [`DEPTH_MAX`] levels, and types that contain themselves. Values further down have no shape,
//! and are written as they are encoded.

use super::compile::decimal_scale;
use crate::dedup::logical::{Logical as Shaped, Shape, Unit as ShapedUnit};
use crate::dedup::steps::{ROOT, Steps, UNWANTED};
use crate::schemas::avro::{Kind, Logical, Record, Schema, Type, TypeId, Unit};

/// The maximum number of types that are visited.
const VISITS_MAX: usize = 100_000;
/// The maximum depth of a shape.
const DEPTH_MAX: usize = 128;

struct Shapes<'s> {
    schema: &'s Schema,
    steps: &'s Steps,
    visits_left: usize,
    /// The types around the current one, from the outermost one that is wanted as a whole.
    open: Vec<TypeId>,
    /// The number of types around the current one.
    depth: usize,
}

/// The shape of these wanted places in records with this schema.
pub(super) fn of(schema: &Schema, steps: &Steps) -> Shape {
    let mut shapes = Shapes { schema, steps, visits_left: VISITS_MAX, open: Vec::new(), depth: 0 };
    shapes.of(schema.root(), ROOT, false)
}

impl Shapes<'_> {
    /// The shape of values of a type at a node, which may be [`UNWANTED`]. `whole` says whether the value is wanted,
    /// and not only places inside it.
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
            // All elements, and all entries, have the same shape.
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
                // A field that is wanted only by an alias is written with its name.
                if !named.contains(&i) || self.steps.children(node).all(|(name, ..)| *name != *field.name.as_bytes()) {
                    fields.push((field.name.as_bytes().into(), self.of(field.of, UNWANTED, true)));
                }
            }
        }
        fields.retain(|(_, shape)| *shape != Shape::Plain);
        let texts = record.fields.iter().filter(|field| whole && self.is_text(field.of)).map(|field| &*field.name);
        Shape::fields(fields, texts)
    }

    /// Whether values of a type are strings, or arrays of strings.
    fn is_text(&self, id: TypeId) -> bool {
        let mut id = id;
        // An array type may contain itself.
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

/// The logical type of a type's values, if they need decoding. Connect's takes precedence over Avro's.
fn logical(schema: &Schema, of: &Type) -> Option<Shaped> {
    let connect = of.connect.as_deref();
    let named = connect.and_then(|connect| Shaped::named(&connect.name, |name| connect.parameter(name)));
    if let Some(named) = named {
        let fits = match named {
            Shaped::Date | Shaped::Time(_) | Shaped::Timestamp(..) | Shaped::Duration(_) => {
                matches!(of.kind, Kind::Int | Kind::Long)
            }
            // Decimals are written as numbers.
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

/// Whether a record has the fields of a decimal that includes its scale.
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
