//! Compiles a schema and the tree of wanted places to a program.
//!
//! Each pair of a type and a node has one operation, and each type has one skip. Both are reserved at their first use
//! and filled in later, one by one, so types may contain themselves and may be nested as deep as there are types.
//!
//! A field may be wanted by its name and by an alias at once, at two nodes. If the record around it is only searched,
//! the field is read for each node. If that record is written, the field is written for one node, and the record is
//! searched once more for the others.

use std::collections::{BTreeMap, HashMap};

use super::program::{Entry, Item, Member, Op, OpId, Part, Program, Scalar};
use super::skip::{Fields, Skip, Skips};
use crate::dedup::logical::Logical as Named;
use crate::dedup::steps::{ROOT, Steps, UNWANTED};
use crate::schemas::avro::{DURATION, Field, Fixed, Kind, Logical, Record, Schema, Type, TypeId};

/// Whether a value is searched for wanted places, or written as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mode {
    Find,
    Write,
}

struct Compiler<'s> {
    schema: &'s Schema,
    steps: &'s Steps,
    /// By type: whether its values take no bytes.
    is_empty: Vec<bool>,
    program: Program,
    ops: HashMap<(TypeId, usize, Mode), OpId>,
    unfilled: Vec<(OpId, TypeId, usize, Mode)>,
    skips: HashMap<TypeId, Skip>,
    unfilled_skips: Vec<(Skip, TypeId)>,
    /// By record: the number of the name of its first field.
    names: HashMap<TypeId, u32>,
    /// By enum: its index in [`Program::symbols`].
    symbols: HashMap<TypeId, u32>,
    /// Whether a field of a written record is wanted by two names.
    has_twins: bool,
    /// Whether written records are searched once more for such fields.
    reads_twice: bool,
}

/// The program for records with this schema.
pub(super) fn compile(schema: &Schema, steps: &Steps) -> Program {
    let program = Compiler::new(schema, steps, false).compile();
    program.unwrap_or_else(|| Compiler::new(schema, steps, true).compile().unwrap_or_default())
}

impl Default for Program {
    fn default() -> Self {
        let (ops, skips) = (vec![Op::Skip(Skip::Nothing)], Skips::default());
        Self { ops, root: 0, skips, symbols: Vec::new(), members: Vec::new() }
    }
}

impl<'s> Compiler<'s> {
    fn new(schema: &'s Schema, steps: &'s Steps, reads_twice: bool) -> Self {
        let program = Program { ops: Vec::new(), ..Program::default() };
        Self {
            schema,
            steps,
            is_empty: empty_types(schema),
            program,
            ops: HashMap::new(),
            unfilled: Vec::new(),
            skips: HashMap::new(),
            unfilled_skips: Vec::new(),
            names: HashMap::new(),
            symbols: HashMap::new(),
            has_twins: false,
            reads_twice,
        }
    }

    /// The program; `None` if it would have to search written records once more and does not.
    fn compile(mut self) -> Option<Program> {
        self.program.root = self.at(self.schema.root(), ROOT);
        while let Some((op, of, node, mode)) = self.unfilled.pop() {
            self.program.ops[op] = match mode {
                Mode::Find => self.find(of, node),
                Mode::Write => self.write(of, node),
            };
        }
        while let Some((skip, of)) = self.unfilled_skips.pop() {
            self.fill_skip(skip, of);
        }
        (self.reads_twice || !self.has_twins).then_some(self.program)
    }

    /// The operation for a value at a node, if no value around it is written.
    fn at(&mut self, of: TypeId, node: usize) -> OpId {
        if !self.steps.is_place(node) {
            return self.op(of, node, Mode::Find);
        }
        let write = self.op(of, node, Mode::Write);
        if !self.reads_twice || self.steps.is_leaf(node) {
            return write;
        }
        let find = self.op(of, node, Mode::Find);
        self.push(Op::Both(write, find))
    }

    fn op(&mut self, of: TypeId, node: usize, mode: Mode) -> OpId {
        if let Some(known) = self.ops.get(&(of, node, mode)) {
            return *known;
        }
        let op = self.push(Op::Skip(Skip::Nothing));
        self.ops.insert((of, node, mode), op);
        self.unfilled.push((op, of, node, mode));
        op
    }

    fn push(&mut self, op: Op) -> OpId {
        self.program.ops.push(op);
        self.program.ops.len() - 1
    }

    /// The operation that searches a value for wanted places.
    fn find(&mut self, of: TypeId, node: usize) -> Op {
        match self.schema.kind(of) {
            Kind::Record(record) => self.find_fields(of, record, node),
            Kind::Union(branches) => Op::Union(branches.iter().map(|of| self.op(*of, node, Mode::Find)).collect()),
            Kind::Array(items) => {
                let (wanted, item) = (self.items(*items, node, Mode::Find), self.skip(*items));
                Op::FindItems { wanted, item }
            }
            Kind::Map(values) => {
                let (wanted, value) = (self.entries(*values, node, Mode::Find), self.skip(*values));
                Op::FindEntries { wanted, value }
            }
            Kind::Fixed(_) if self.schema.get(of).logical == Some(Logical::Duration) => {
                Op::Duration(UNWANTED, self.duration(node))
            }
            _ => Op::Skip(self.skip(of)),
        }
    }

    fn find_fields(&mut self, of: TypeId, record: &Record, node: usize) -> Op {
        let names = self.names(of, record);
        let wanted = self.wanted_fields(record, node);
        let mut parts = Vec::new();
        let (mut skips, mut skipped) = (Vec::new(), Vec::new());
        for (name, (i, field)) in (names..).zip(record.fields.iter().enumerate()) {
            let Some(nodes) = wanted.get(&i) else {
                let skip = self.skip(field.of);
                if skip != Skip::Nothing {
                    skips.push(skip);
                    skipped.push(name);
                }
                continue;
            };
            let ops: Vec<_> = nodes.iter().map(|node| self.at(field.of, *node)).collect();
            let Some(op) = ops.into_iter().reduce(|first, second| self.push(Op::Both(first, second))) else { continue };
            let fields = self.fields(std::mem::take(&mut skips), std::mem::take(&mut skipped));
            parts.push(Part { fields, then: Some(Member { name, op }) });
        }
        if !skips.is_empty() {
            parts.push(Part { fields: self.fields(skips, skipped), then: None });
        }
        Op::FindFields(parts.into())
    }

    /// The operation that writes a value, and notes it and the wanted places inside. The node may be [`UNWANTED`].
    fn write(&mut self, of: TypeId, node: usize) -> Op {
        let Type { kind, logical, .. } = self.schema.get(of);
        let scalar = match kind {
            Kind::Record(record) => {
                let names = self.names(of, record);
                let wanted = self.wanted_fields(record, node);
                self.has_twins |= wanted.values().any(|nodes| nodes.len() > 1);
                let node_of = |i| wanted.get(&i).and_then(|nodes| nodes.first()).copied().unwrap_or(UNWANTED);
                let fields = (names..).zip(record.fields.iter().enumerate());
                let member = |(name, (i, field)): (u32, (usize, &Field))| Member {
                    name,
                    op: self.op(field.of, node_of(i), Mode::Write),
                };
                return Op::Object(node, fields.map(member).collect());
            }
            Kind::Union(branches) => {
                return Op::Union(branches.iter().map(|of| self.op(*of, node, Mode::Write)).collect());
            }
            Kind::Array(items) => {
                let wanted = self.items(*items, node, Mode::Write);
                return Op::Array { node, wanted, item: self.op(*items, UNWANTED, Mode::Write) };
            }
            Kind::Map(values) => {
                let wanted = self.entries(*values, node, Mode::Write);
                return Op::Map { node, wanted, value: self.op(*values, UNWANTED, Mode::Write) };
            }
            Kind::Fixed(_) if *logical == Some(Logical::Duration) => {
                return Op::Duration(node, self.duration(node));
            }
            Kind::Fixed(Fixed { size, .. }) => match decimal_scale(self.schema.get(of)) {
                Some(scale) => Scalar::Decimal(Some(*size), scale),
                None if *logical == Some(Logical::Uuid) => Scalar::FixedUuid,
                None => Scalar::Fixed(*size),
            },
            Kind::Bytes => match decimal_scale(self.schema.get(of)) {
                Some(scale) => Scalar::Decimal(None, scale),
                None if *logical == Some(Logical::BigDecimal) => Scalar::BigDecimal,
                None => Scalar::Bytes,
            },
            Kind::String if *logical == Some(Logical::Uuid) => Scalar::Uuid,
            Kind::String => Scalar::Text,
            Kind::Enum(symbols) => Scalar::Enum(self.symbols(of, &symbols.symbols)),
            Kind::Null => Scalar::Null,
            Kind::Boolean => Scalar::Bool,
            Kind::Int => Scalar::Int,
            Kind::Long => Scalar::Long,
            Kind::Float => Scalar::Float,
            Kind::Double => Scalar::Double,
        };
        Op::Scalar(node, scalar)
    }

    /// The wanted fields of a record at a node: the nodes of each field, by the field's number.
    fn wanted_fields(&self, record: &Record, node: usize) -> BTreeMap<usize, Vec<usize>> {
        let mut wanted: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, _, child) in self.steps.children(node) {
            if let Some(field) = record.find(name) {
                wanted.entry(field).or_default().push(child);
            }
        }
        wanted
    }

    /// The wanted items of an array.
    fn items(&mut self, of: TypeId, node: usize, mode: Mode) -> Box<[Item]> {
        let steps = self.steps;
        let numbered = steps.children(node).filter_map(|(_, number, child)| Some((number?, child)));
        let numbered: BTreeMap<usize, usize> = numbered.collect();
        let item = |(number, child): (usize, usize)| Item { number: number as u64, op: self.inside(of, child, mode) };
        numbered.into_iter().map(item).collect()
    }

    /// The wanted values of a map.
    fn entries(&mut self, of: TypeId, node: usize, mode: Mode) -> Box<[Entry]> {
        let steps = self.steps;
        let entry = |(key, _, child): (&[u8], _, usize)| {
            let op = self.inside(of, child, mode);
            Entry { key: key.into(), op, nodes: child..steps.below(child).end }
        };
        steps.children(node).map(entry).collect()
    }

    fn inside(&mut self, of: TypeId, node: usize, mode: Mode) -> OpId {
        match mode {
            Mode::Find => self.at(of, node),
            Mode::Write => self.op(of, node, mode),
        }
    }

    /// The nodes of a duration's fields.
    fn duration(&self, node: usize) -> [usize; 3] {
        DURATION.map(|name| match node {
            UNWANTED => UNWANTED,
            node => self.steps.field(node, name.as_bytes()).unwrap_or(UNWANTED),
        })
    }

    /// The number of the name of a record's first field; the other fields' names follow it.
    fn names(&mut self, of: TypeId, record: &Record) -> u32 {
        let names = &mut self.program.skips.names;
        *self.names.entry(of).or_insert_with(|| {
            let first = number(names.len());
            for field in &record.fields {
                names.push(field.name.clone());
                let quoted = serde_json::Value::from(&*field.name).to_string();
                self.program.members.push(format!(",{quoted}:").into_bytes().into());
            }
            first
        })
    }

    fn symbols(&mut self, of: TypeId, symbols: &[Box<str>]) -> u32 {
        let known = &mut self.program.symbols;
        *self.symbols.entry(of).or_insert_with(|| {
            known.push(symbols.into());
            number(known.len() - 1)
        })
    }

    /// The skip for values of a type.
    fn skip(&mut self, of: TypeId) -> Skip {
        if self.is_empty[of.index()] {
            return Skip::Nothing;
        }
        if let Some(known) = self.skips.get(&of) {
            return *known;
        }
        let skips = &mut self.program.skips;
        let skip = match self.schema.kind(of) {
            Kind::Null => return Skip::Nothing,
            Kind::Boolean => return Skip::Bool,
            Kind::Int | Kind::Long => return Skip::Number,
            Kind::Float => return Skip::Fixed(4),
            Kind::Double => return Skip::Fixed(8),
            Kind::Bytes | Kind::String => return Skip::Prefixed,
            Kind::Fixed(fixed) => return Skip::Fixed(fixed.size),
            Kind::Enum(of) => return Skip::Enum(number(of.symbols.len())),
            Kind::Record(_) => Skip::Fields(reserve(&mut skips.fields, Fields::default())),
            Kind::Array(_) => Skip::Array(reserve(&mut skips.arrays, Skip::Nothing)),
            Kind::Map(_) => Skip::Map(reserve(&mut skips.maps, Skip::Nothing)),
            Kind::Union(_) => Skip::Union(reserve(&mut skips.unions, Box::default())),
        };
        self.skips.insert(of, skip);
        self.unfilled_skips.push((skip, of));
        skip
    }

    fn fill_skip(&mut self, skip: Skip, of: TypeId) {
        match (skip, self.schema.kind(of)) {
            (Skip::Fields(fields), Kind::Record(record)) => {
                let names = self.names(of, record);
                let all = (names..).zip(&record.fields).map(|(name, field)| (self.skip(field.of), name));
                let (skips, names): (Vec<_>, Vec<_>) = all.filter(|(skip, _)| *skip != Skip::Nothing).unzip();
                self.program.skips.fields[fields as usize] = Fields { skips: skips.into(), names: names.into() };
            }
            (Skip::Array(array), Kind::Array(items)) => self.program.skips.arrays[array as usize] = self.skip(*items),
            (Skip::Map(map), Kind::Map(values)) => self.program.skips.maps[map as usize] = self.skip(*values),
            (Skip::Union(union), Kind::Union(branches)) => {
                let branches = branches.iter().map(|of| self.skip(*of)).collect();
                self.program.skips.unions[union as usize] = branches;
            }
            _ => {}
        }
    }

    fn fields(&mut self, skips: Vec<Skip>, names: Vec<u32>) -> u32 {
        reserve(&mut self.program.skips.fields, Fields { skips: skips.into(), names: names.into() })
    }
}

/// The scale of a type whose values are decimals. Connect gives it in a parameter, where it may also be negative.
pub(super) fn decimal_scale(of: &Type) -> Option<i32> {
    let connect = of.connect.as_deref();
    let named = connect.and_then(|connect| Named::named(&connect.name, |name| connect.parameter(name)));
    match (named, of.logical) {
        (Some(Named::Decimal(scale)), _) | (_, Some(Logical::Decimal(scale))) => Some(scale),
        _ => None,
    }
}

/// Appends an element; returns its number.
fn reserve<T>(list: &mut Vec<T>, element: T) -> u32 {
    list.push(element);
    number(list.len() - 1)
}

/// An index in 32 bits, which keeps programs small.
fn number(of: usize) -> u32 {
    u32::try_from(of).expect("a schema has fewer types and names than 2^32")
}

/// Which types have values that take no bytes.
fn empty_types(schema: &Schema) -> Vec<bool> {
    let mut is_empty = vec![false; schema.len()];
    // By record: the number of its fields that may take bytes. By type: the records that have a field of it.
    let mut open = vec![0_usize; schema.len()];
    let mut holders = vec![Vec::new(); schema.len()];
    let mut found = Vec::new();
    for (id, of) in schema.types() {
        match &of.kind {
            Kind::Null | Kind::Fixed(Fixed { size: 0, .. }) => found.push(id),
            Kind::Record(record) if record.fields.is_empty() => found.push(id),
            Kind::Record(record) => {
                open[id.index()] = record.fields.len();
                record.fields.iter().for_each(|field| holders[field.of.index()].push(id));
            }
            _ => {}
        }
    }
    while let Some(id) = found.pop() {
        is_empty[id.index()] = true;
        for holder in &holders[id.index()] {
            open[holder.index()] -= 1;
            if open[holder.index()] == 0 {
                found.push(*holder);
            }
        }
    }
    is_empty
}
