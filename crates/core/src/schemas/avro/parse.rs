//! Parses the text of a schema and of the schemas that it refers to.
//!
//! All texts are read into one list of types. A name may be used before it is defined, or be defined in another text,
//! so each use takes a slot of its own at first. When all texts are read, it is replaced by the type with that name.
//! Recursion is as deep as the text is nested, which serde_json bounds.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::graph::{Connect, Enum, FIXED_BYTES_MAX, Field, Fixed, Kind, Logical, Record, Schema, Type, TypeId, Unit};
use crate::schemas::SchemaError;

/// The maximum length of a full name. Every name in a namespace contains the namespace, so without a bound the memory
/// for names would grow with the square of the text.
const NAME_BYTES_MAX: usize = 1_024;
/// The maximum number of aliases of types in a schema, for the same reason.
const ALIASES_MAX: usize = 10_000;

type Object = Map<String, Value>;

/// An error while its path is being collected: its steps so far, the innermost first.
struct Problem {
    path: Vec<String>,
    what: String,
}

impl Problem {
    fn new(what: impl Into<String>) -> Self {
        Self { path: Vec::new(), what: what.into() }
    }

    fn in_(mut self, step: impl Into<String>) -> Self {
        self.path.push(step.into());
        self
    }

    fn located(mut self, text: Option<String>) -> SchemaError {
        self.path.extend(text);
        self.path.reverse();
        SchemaError { at: self.path.join("."), what: self.what }
    }
}

/// A type while the texts are being read.
enum Slot {
    /// Its definition is being read.
    Open,
    Known(Type),
    /// The use of a name.
    Named(Use),
}

/// The use of a name.
struct Use {
    name: String,
    /// The namespace around the use.
    namespace: Rc<str>,
    /// The text and the record in which it is used.
    at: Rc<str>,
}

struct Builder {
    slots: Vec<Slot>,
    names: HashMap<String, TypeId>,
    /// The aliases of named types, for names that no definition has.
    aliases: HashMap<String, TypeId>,
    /// The text and the record that are being read.
    at: Rc<str>,
}

impl Schema {
    /// Parses a schema. `references` are the texts of the schemas that define the names that `text` does not, in any
    /// order.
    ///
    /// # Errors
    /// A text is not a schema, a name is defined twice, or a name is not defined.
    pub fn parse(text: &str, references: &[&str]) -> Result<Self, SchemaError> {
        let (slots, names, aliases) = (Vec::new(), HashMap::new(), HashMap::new());
        let mut builder = Builder { slots, names, aliases, at: "".into() };
        let mut known = HashSet::from([text]);
        for (i, reference) in references.iter().enumerate() {
            // A schema that several others refer to may be given several times.
            if known.insert(reference) {
                builder.text(reference, Some(format!("reference {}", i + 1)))?;
            }
        }
        let root = builder.text(text, None)?;
        builder.finish(root)
    }
}

impl Builder {
    /// Reads a text, which errors call `name`.
    fn text(&mut self, text: &str, name: Option<String>) -> Result<TypeId, SchemaError> {
        let value: Value = serde_json::from_str(text).map_err(|e| Problem::new(e.to_string()).located(name.clone()))?;
        self.at = name.as_deref().unwrap_or_default().into();
        self.schema(&value, &"".into()).map_err(|problem| problem.located(name))
    }

    /// Reads a schema in this namespace.
    fn schema(&mut self, value: &Value, namespace: &Rc<str>) -> Result<TypeId, Problem> {
        match value {
            Value::String(name) => Ok(match primitive(name) {
                Some(kind) => self.push(kind, None, None),
                None => self.named(name, namespace),
            }),
            Value::Array(branches) => self.union(branches, namespace),
            Value::Object(object) => self.object(object, namespace),
            _ => Err(Problem::new("a schema must be a name, an object or a list")),
        }
    }

    fn object(&mut self, object: &Object, namespace: &Rc<str>) -> Result<TypeId, Problem> {
        let name = match object.get("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(inner @ (Value::Object(_) | Value::Array(_))) => return self.wrapped(object, inner, namespace),
            Some(_) => return Err(Problem::new("a type must be a name, an object or a list")),
            None => return Err(Problem::new("a schema has no `type`")),
        };
        if let Some(kind) = primitive(name) {
            let logical = logical(object, &kind);
            return Ok(self.push(kind, logical, connect(object)));
        }
        match name {
            "record" | "error" => self.record(object, namespace),
            "enum" => {
                let (id, _) = self.define(object, namespace)?;
                let kind = Kind::Enum(Enum { symbols: symbols(object)? });
                self.close(id, kind, object)
            }
            "fixed" => {
                let (id, _) = self.define(object, namespace)?;
                let kind = Kind::Fixed(Fixed { size: size(object)? });
                self.close(id, kind, object)
            }
            "array" => {
                let id = self.open();
                let items = object.get("items").ok_or_else(|| Problem::new("an array has no `items`"))?;
                let items = self.schema(items, namespace).map_err(|problem| problem.in_("items"))?;
                self.close(id, Kind::Array(items), object)
            }
            "map" => {
                let id = self.open();
                let values = object.get("values").ok_or_else(|| Problem::new("a map has no `values`"))?;
                let values = self.schema(values, namespace).map_err(|problem| problem.in_("values"))?;
                self.close(id, Kind::Map(values), object)
            }
            _ => Ok(self.named(name, namespace)),
        }
    }

    /// Reads `{"type": {…}}`, as some writers nest it. Attributes of the outer object count if the inner one lacks
    /// them.
    fn wrapped(&mut self, object: &Object, inner: &Value, namespace: &Rc<str>) -> Result<TypeId, Problem> {
        let id = self.schema(inner, namespace)?;
        let is_definition = matches!(inner, Value::Object(_));
        if let Slot::Known(of) = &mut self.slots[id.0]
            && is_definition
        {
            of.logical = of.logical.or_else(|| logical(object, &of.kind));
            of.connect = of.connect.take().or_else(|| connect(object));
        }
        Ok(id)
    }

    fn record(&mut self, object: &Object, namespace: &Rc<str>) -> Result<TypeId, Problem> {
        let (id, name) = self.define(object, namespace)?;
        let inner = namespace_of(&name).into();
        let outer = std::mem::replace(&mut self.at, name.as_ref().into());
        let Some(Value::Array(list)) = object.get("fields") else {
            return Err(Problem::new(format!("the record {name} has no list of `fields`")));
        };
        let mut names = HashSet::new();
        let mut fields = Vec::with_capacity(list.len());
        for field in list {
            let Some(Value::String(called)) = field.get("name") else {
                return Err(Problem::new(format!("a field of the record {name} has no name")));
            };
            if !names.insert(called.as_str()) {
                return Err(Problem::new(format!("the record {name} has two fields of this name")).in_(called));
            }
            let of = field.get("type").ok_or_else(|| Problem::new("the field has no `type`").in_(called))?;
            let of = self.schema(of, &inner).map_err(|problem| problem.in_(called))?;
            let aliases = texts(field.get("aliases")).map(Box::from).collect();
            fields.push(Field { name: called.as_str().into(), aliases, of });
        }
        self.at = outer;
        let kind = Kind::Record(Record { fields: fields.into() });
        self.close(id, kind, object)
    }

    fn union(&mut self, branches: &[Value], namespace: &Rc<str>) -> Result<TypeId, Problem> {
        let id = self.open();
        let mut ids = Vec::with_capacity(branches.len());
        let mut has_null = false;
        for (i, branch) in branches.iter().enumerate() {
            let problem = |what| Problem::new(what).in_(i.to_string());
            let of = self.schema(branch, namespace).map_err(|problem| problem.in_(i.to_string()))?;
            match &self.slots[of.0] {
                Slot::Known(Type { kind: Kind::Union(_), .. }) => return Err(problem("a union holds a union")),
                Slot::Known(Type { kind: Kind::Null, .. }) if std::mem::replace(&mut has_null, true) => {
                    return Err(problem("a union holds null twice"));
                }
                _ => ids.push(of),
            }
        }
        self.slots[id.0] = Slot::Known(Type { kind: Kind::Union(ids.into()), logical: None, connect: None });
        Ok(id)
    }

    /// Reserves a number for the named type that `object` defines; returns its full name as well.
    fn define(&mut self, object: &Object, namespace: &Rc<str>) -> Result<(TypeId, Box<str>), Problem> {
        let Some(Value::String(name)) = object.get("name") else {
            return Err(Problem::new("a record, an enum or a fixed has no `name`"));
        };
        let own = object.get("namespace").and_then(Value::as_str).unwrap_or(namespace);
        let name = full_name(name, own);
        if name.is_empty() || name.ends_with('.') {
            return Err(Problem::new("a record, an enum or a fixed has an empty name"));
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(Problem::new(format!("a name, with its namespace, has more than {NAME_BYTES_MAX} bytes")));
        }
        let id = self.open();
        for alias in texts(object.get("aliases")) {
            self.aliases.entry(full_name(alias, namespace_of(&name))).or_insert(id);
            if self.aliases.len() > ALIASES_MAX {
                return Err(Problem::new(format!("the types have more than {ALIASES_MAX} aliases")));
            }
        }
        let boxed = name.as_str().into();
        match self.names.insert(name, id) {
            None => Ok((id, boxed)),
            Some(_) => Err(Problem::new(format!("the name {boxed} is defined twice"))),
        }
    }

    fn open(&mut self) -> TypeId {
        self.slots.push(Slot::Open);
        TypeId(self.slots.len() - 1)
    }

    fn close(&mut self, id: TypeId, kind: Kind, object: &Object) -> Result<TypeId, Problem> {
        let logical = logical(object, &kind);
        self.slots[id.0] = Slot::Known(Type { kind, logical, connect: connect(object) });
        Ok(id)
    }

    fn push(&mut self, kind: Kind, logical: Option<Logical>, connect: Option<Box<Connect>>) -> TypeId {
        self.slots.push(Slot::Known(Type { kind, logical, connect }));
        TypeId(self.slots.len() - 1)
    }

    fn named(&mut self, name: &str, namespace: &Rc<str>) -> TypeId {
        self.slots.push(Slot::Named(Use { name: name.to_owned(), namespace: namespace.clone(), at: self.at.clone() }));
        TypeId(self.slots.len() - 1)
    }

    /// The type that a used name stands for.
    fn resolve(&self, used: &Use) -> Result<TypeId, SchemaError> {
        let full = full_name(&used.name, &used.namespace);
        let names = [&full, &used.name];
        let defined = names.iter().find_map(|name| self.names.get(*name));
        let found = defined.or_else(|| names.iter().find_map(|name| self.aliases.get(*name)));
        found.copied().ok_or_else(|| SchemaError {
            at: used.at.to_string(),
            what: format!("no type is named {full}; give the schema that defines it as a reference"),
        })
    }

    /// Replaces each use of a name by its type.
    fn finish(self, root: TypeId) -> Result<Schema, SchemaError> {
        // The new number of each type.
        let mut numbers = Vec::with_capacity(self.slots.len());
        let mut next = 0;
        for slot in &self.slots {
            numbers.push(TypeId(next));
            next += usize::from(!matches!(slot, Slot::Named(_)));
        }
        for (i, slot) in self.slots.iter().enumerate() {
            if let Slot::Named(used) = slot {
                numbers[i] = numbers[self.resolve(used)?.0];
            }
        }
        let renumber = |id: &mut TypeId| *id = numbers[id.0];
        let mut types = Vec::with_capacity(next);
        for slot in self.slots {
            let Slot::Known(mut of) = slot else { continue };
            match &mut of.kind {
                Kind::Record(record) => record.fields.iter_mut().for_each(|field| renumber(&mut field.of)),
                Kind::Array(inner) | Kind::Map(inner) => renumber(inner),
                Kind::Union(branches) => branches.iter_mut().for_each(renumber),
                _ => {}
            }
            types.push(of);
        }
        Ok(Schema { types, root: numbers[root.0] })
    }
}

pub(in crate::schemas) fn primitive(name: &str) -> Option<Kind> {
    Some(match name {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

/// The full name of a name in this namespace.
pub(in crate::schemas) fn full_name(name: &str, namespace: &str) -> String {
    match name.strip_prefix('.') {
        Some(bare) => bare.to_owned(),
        None if name.contains('.') || namespace.is_empty() => name.to_owned(),
        None => format!("{namespace}.{name}"),
    }
}

/// The namespace of a full name.
pub(in crate::schemas) fn namespace_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(namespace, _)| namespace)
}

/// The strings in a list.
fn texts(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

fn symbols(object: &Object) -> Result<Box<[Box<str>]>, Problem> {
    let list = object.get("symbols").and_then(Value::as_array);
    let symbols = list.and_then(|list| list.iter().map(|symbol| symbol.as_str().map(Box::from)).collect());
    symbols.ok_or_else(|| Problem::new("an enum has no list of `symbols`"))
}

/// Some writers put the size in quotes, as the rules of the canonical form mention.
fn size(object: &Object) -> Result<u32, Problem> {
    let size = object.get("size");
    let size = size.and_then(|size| size.as_u64().or_else(|| size.as_str()?.parse().ok()));
    let size = size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size <= FIXED_BYTES_MAX);
    size.ok_or_else(|| Problem::new(format!("a fixed has no `size` from 0 to {FIXED_BYTES_MAX}")))
}

/// The logical type, if it fits this kind.
fn logical(object: &Object, kind: &Kind) -> Option<Logical> {
    Some(match (object.get("logicalType")?.as_str()?, kind) {
        ("decimal", Kind::Bytes) => Logical::Decimal(decimal(object, None)?),
        ("decimal", Kind::Fixed(fixed)) => Logical::Decimal(decimal(object, Some(fixed.size))?),
        ("big-decimal", Kind::Bytes) => Logical::BigDecimal,
        ("uuid", Kind::String | Kind::Fixed(Fixed { size: 16, .. })) => Logical::Uuid,
        ("date", Kind::Int) => Logical::Date,
        ("time-millis", Kind::Int) => Logical::Time(Unit::Milli),
        ("time-micros", Kind::Long) => Logical::Time(Unit::Micro),
        ("timestamp-millis", Kind::Long) => Logical::Timestamp(Unit::Milli),
        ("timestamp-micros", Kind::Long) => Logical::Timestamp(Unit::Micro),
        ("timestamp-nanos", Kind::Long) => Logical::Timestamp(Unit::Nano),
        ("local-timestamp-millis", Kind::Long) => Logical::LocalTimestamp(Unit::Milli),
        ("local-timestamp-micros", Kind::Long) => Logical::LocalTimestamp(Unit::Micro),
        ("local-timestamp-nanos", Kind::Long) => Logical::LocalTimestamp(Unit::Nano),
        ("duration", Kind::Fixed(Fixed { size: 12, .. })) => Logical::Duration,
        _ => return None,
    })
}

/// The scale of a decimal, if the precision and the scale are valid for this many bytes.
fn decimal(object: &Object, bytes: Option<u32>) -> Option<i32> {
    let number = |name: &str| object.get(name).map(|number| number.as_i64().and_then(|n| i32::try_from(n).ok()));
    let precision = number("precision")??;
    let scale = number("scale").unwrap_or(Some(0))?;
    let fits = bytes.is_none_or(|bytes| {
        let bits = (f64::from(bytes) * 8.0 - 1.0).max(0.0);
        f64::from(precision) <= (bits * std::f64::consts::LOG10_2).floor()
    });
    (precision > 0 && (0..=precision).contains(&scale) && fits).then_some(scale)
}

/// The attributes of Kafka Connect's converter.
fn connect(object: &Object) -> Option<Box<Connect>> {
    let name = object.get("connect.name")?.as_str()?.into();
    let parameters = object.get("connect.parameters").and_then(Value::as_object);
    let text = |(name, value): (&String, &Value)| Some((name.as_str().into(), value.as_str()?.into()));
    let parameters = parameters.into_iter().flatten().filter_map(text).collect();
    Some(Box::new(Connect { name, parameters }))
}
