//! From a checked tree to what is evaluated, as cel-go's planner and optimizer do it: chains of
//! selections become one attribute, constants are folded, patterns are compiled once. What each step
//! costs at run time is fixed here too, since it depends on which form a step takes.

use std::sync::Arc;

use super::ast::{ACCUMULATOR, Const, Expr, Fold, Id, Kind};
use super::charge::Charge;
use super::check::Checked;
use super::functions;
use super::library::{self, Builtin, Fixed};
use crate::pattern;

/// A step of an evaluation.
#[derive(Debug)]
pub(super) enum Node {
    Fixed(Fixed),
    Attribute(Box<Attribute>),
    /// `has(...)`: whether the last qualifier leads anywhere.
    Test(Box<Attribute>),
    And(Box<[Node; 2]>),
    Or(Box<[Node; 2]>),
    Equal(Box<[Node; 2]>),
    NotEqual(Box<[Node; 2]>),
    Call(Box<Call>),
    /// `x in [constants]`.
    InSet(Box<Node>, Vec<Const>),
    /// `optional.or(…)` and, if the flag is set, `optional.orValue(…)`.
    OrElse(Box<[Node; 2]>, bool),
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Object(Box<str>, Vec<(Box<str>, Node, bool)>),
    Fold(Box<FoldNode>),
    /// The accumulator in this slot with one more item; the flag says whether the item is constant.
    Append(usize, Box<Node>, bool),
    /// The accumulator in this slot with one more entry, or with those of a map.
    Insert(usize, Box<Entry>),
}

/// What is put into a map.
#[derive(Debug)]
pub(super) enum Entry {
    One(Node, Node),
    All(Node),
}

/// A variable or value, and the path from it.
#[derive(Debug)]
pub(super) struct Attribute {
    pub(super) base: Base,
    pub(super) qualifiers: Vec<Qualifier>,
}

/// Where an attribute starts.
#[derive(Debug)]
pub(super) enum Base {
    Global(usize),
    Local(usize),
    Operand(Node),
    /// A condition, and the attribute it chooses.
    Choice(Box<(Node, Attribute, Attribute)>),
}

/// One step of an attribute's path.
#[derive(Debug)]
pub(super) struct Qualifier {
    pub(super) key: QualifierKey,
    pub(super) optional: bool,
}

/// What a qualifier looks up.
#[derive(Debug)]
pub(super) enum QualifierKey {
    Field(Box<str>),
    Fixed(Fixed),
    Attribute(Attribute),
    Computed(Node),
}

/// A call of a function.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: &'static str,
    /// The overload; empty if several are possible.
    pub(super) overload: &'static str,
    pub(super) builtin: Builtin,
    pub(super) charge: Charge,
    pub(super) args: Vec<Node>,
    /// The pattern of a `matches`, `find` or `findAll`, if it is constant.
    pub(super) regex: Option<Arc<pattern::Machine>>,
    /// Whether errors are arguments like any other.
    pub(super) lenient: bool,
}

/// A comprehension. Its slots are numbered from `slot`: the accumulator, then its variables.
#[derive(Debug)]
pub(super) struct FoldNode {
    pub(super) slot: usize,
    pub(super) two: bool,
    pub(super) range: Node,
    pub(super) init: Node,
    pub(super) condition: Node,
    pub(super) step: Node,
    pub(super) result: Node,
}

/// Makes a plan. `globals` are the variables, in the order they are given at evaluation.
pub(super) fn plan(root: &Expr, checked: &Checked, globals: &[&str]) -> Result<Node, String> {
    Planner { checked, globals, locals: Vec::new(), accumulators: Vec::new() }.node(root)
}

struct Planner<'a> {
    checked: &'a Checked,
    globals: &'a [&'a str],
    locals: Vec<String>,
    /// The slots of accumulators that start as an empty list or map.
    accumulators: Vec<usize>,
}

impl Planner<'_> {
    fn node(&mut self, expr: &Expr) -> Result<Node, String> {
        Ok(match &expr.kind {
            Kind::Const(value) => Node::Fixed(Fixed::Const(value.clone())),
            Kind::Ident(name) => self.ident(name)?,
            Kind::Select { operand, field, test_only } => {
                let mut attribute = self.attribute(operand)?;
                attribute
                    .qualifiers
                    .push(Qualifier { key: QualifierKey::Field(field.as_str().into()), optional: false });
                let attribute = Box::new(attribute);
                if *test_only { Node::Test(attribute) } else { Node::Attribute(attribute) }
            }
            Kind::Call { target, function, args } => self.call(expr.id, target.as_deref(), function, args)?,
            Kind::List(items) => {
                let nodes: Vec<(Node, bool)> = items
                    .iter()
                    .map(|item| Ok((self.node(&item.value)?, item.optional)))
                    .collect::<Result<_, String>>()?;
                match fixed_list(&nodes) {
                    Some(fixed) => Node::Fixed(fixed),
                    None => Node::List(nodes),
                }
            }
            Kind::Map(entries) => {
                let nodes: Vec<(Node, Node, bool)> = entries
                    .iter()
                    .map(|entry| Ok((self.node(&entry.key)?, self.node(&entry.value)?, entry.optional)))
                    .collect::<Result<_, String>>()?;
                match fixed_map(&nodes) {
                    Some(fixed) => Node::Fixed(fixed),
                    None => Node::Map(nodes),
                }
            }
            Kind::Struct { name, fields } => {
                let fields = fields
                    .iter()
                    .map(|field| Ok((field.name.as_str().into(), self.node(&field.value)?, field.optional)))
                    .collect::<Result<_, String>>()?;
                Node::Object(name.as_str().into(), fields)
            }
            Kind::Fold(fold) => self.fold(fold)?,
            Kind::Broken => return Err("unsupported expr".to_owned()),
        })
    }

    fn ident(&self, name: &str) -> Result<Node, String> {
        let base = if let Some(slot) = self.locals.iter().rposition(|local| local == name) {
            Base::Local(slot)
        } else {
            let plain = name.strip_prefix('.').unwrap_or(name);
            match self.globals.iter().position(|global| *global == plain) {
                Some(index) => Base::Global(index),
                None => match functions::type_named(plain) {
                    Some(ty) => return Ok(Node::Fixed(Fixed::Type(ty.runtime_name().into()))),
                    None => return Err(format!("no such attribute(s): {plain}")),
                },
            }
        };
        Ok(Node::Attribute(Box::new(Attribute { base, qualifiers: Vec::new() })))
    }

    /// An expression as an attribute that qualifiers can be added to.
    fn attribute(&mut self, expr: &Expr) -> Result<Attribute, String> {
        Ok(match self.node(expr)? {
            Node::Attribute(attribute) => *attribute,
            other => Attribute { base: Base::Operand(other), qualifiers: Vec::new() },
        })
    }

    fn index(&mut self, operand: &Expr, index: &Expr, optional: bool) -> Result<Node, String> {
        let mut attribute = self.attribute(operand)?;
        let key = match self.node(index)? {
            Node::Fixed(Fixed::Const(Const::String(field))) => QualifierKey::Field(field),
            Node::Fixed(fixed) => QualifierKey::Fixed(fixed),
            Node::Attribute(attribute) => QualifierKey::Attribute(*attribute),
            other => QualifierKey::Computed(other),
        };
        attribute.qualifiers.push(Qualifier { key, optional });
        Ok(Node::Attribute(Box::new(attribute)))
    }

    fn pair(&mut self, args: &[Expr]) -> Result<Box<[Node; 2]>, String> {
        match args {
            [left, right] => Ok(Box::new([self.node(left)?, self.node(right)?])),
            _ => Err("no such overload".to_owned()),
        }
    }

    fn call(&mut self, id: Id, target: Option<&Expr>, function: &str, args: &[Expr]) -> Result<Node, String> {
        match (function, args) {
            ("_&&_", _) => return Ok(Node::And(self.pair(args)?)),
            ("_||_", _) => return Ok(Node::Or(self.pair(args)?)),
            ("_==_", _) => return Ok(Node::Equal(self.pair(args)?)),
            ("_!=_", _) => return Ok(Node::NotEqual(self.pair(args)?)),
            ("_[_]", [operand, index]) => return self.index(operand, index, false),
            ("_[?_]" | "_?._", [operand, index]) => return self.index(operand, index, true),
            ("_?_:_", [condition, yes, no]) => {
                let condition = self.node(condition)?;
                let choice = Base::Choice(Box::new((condition, self.attribute(yes)?, self.attribute(no)?)));
                return Ok(Node::Attribute(Box::new(Attribute { base: choice, qualifiers: Vec::new() })));
            }
            ("or" | "orValue", [other]) => {
                if let Some(target) = target {
                    let both = Box::new([self.node(target)?, self.node(other)?]);
                    return Ok(Node::OrElse(both, function == "orValue"));
                }
            }
            ("_+_", [left, right]) => {
                if let Some(append) = self.append(left, right)? {
                    return Ok(append);
                }
            }
            ("cel.@mapInsert", [accumulator, entry @ ..]) => return self.insert(accumulator, entry),
            _ => {}
        }
        let args = target.into_iter().chain(args).map(|arg| self.node(arg)).collect::<Result<Vec<Node>, String>>()?;
        let overload = match self.checked.overloads(id) {
            [only] => *only,
            _ => "",
        };
        optimized(function, overload, args)
    }

    /// `@result + [item]` where the accumulator is a list: appends in place.
    fn append(&mut self, left: &Expr, right: &Expr) -> Result<Option<Node>, String> {
        let (Kind::Ident(name), Kind::List(items)) = (&left.kind, &right.kind) else { return Ok(None) };
        let [item] = items.as_slice() else { return Ok(None) };
        let Some(slot) = self.accumulator(name) else { return Ok(None) };
        let item = self.node(&item.value)?;
        let fixed = matches!(item, Node::Fixed(_));
        Ok(Some(Node::Append(slot, Box::new(item), fixed)))
    }

    /// What `transformMap` and `transformMapEntry` do, the only ones who can call this: inserts in place.
    fn insert(&mut self, accumulator: &Expr, entry: &[Expr]) -> Result<Node, String> {
        let slot = match &accumulator.kind {
            Kind::Ident(name) => self.accumulator(name),
            _ => None,
        };
        let entry = match entry {
            [key, value] => Entry::One(self.node(key)?, self.node(value)?),
            [all] => Entry::All(self.node(all)?),
            _ => return Err("no such overload".to_owned()),
        };
        Ok(Node::Insert(slot.ok_or("no such overload")?, Box::new(entry)))
    }

    /// The slot of the innermost accumulator, if that is one of those that grow.
    fn accumulator(&self, name: &str) -> Option<usize> {
        let slot = self.locals.iter().rposition(|local| local == name)?;
        (name == ACCUMULATOR && self.accumulators.contains(&slot)).then_some(slot)
    }

    fn fold(&mut self, fold: &Fold) -> Result<Node, String> {
        let init = self.node(&fold.init)?;
        let range = self.node(&fold.range)?;
        let slot = self.locals.len();
        match &init {
            Node::Fixed(Fixed::List(items)) if items.is_empty() => self.accumulators.push(slot),
            Node::Fixed(Fixed::Map(entries)) if entries.is_empty() => self.accumulators.push(slot),
            _ => {}
        }
        self.locals.push(fold.accu.clone());
        self.locals.push(fold.var.clone());
        if let Some(var2) = &fold.var2 {
            self.locals.push(var2.clone());
        }
        let condition = self.node(&fold.condition)?;
        let step = self.node(&fold.step)?;
        // The result sees the accumulator only, but the slots stay as they are.
        self.locals.truncate(slot + 1);
        let hidden = if fold.var2.is_some() { 2 } else { 1 };
        self.locals.extend((0..hidden).map(|_| String::new()));
        let result = self.node(&fold.result)?;
        self.locals.truncate(slot);
        self.accumulators.retain(|accumulator| *accumulator != slot);
        Ok(Node::Fold(Box::new(FoldNode { slot, two: fold.var2.is_some(), range, init, condition, step, result })))
    }
}

/// A call, or what it is known to be.
fn optimized(function: &str, overload: &'static str, mut args: Vec<Node>) -> Result<Node, String> {
    if overload == "in_list"
        && let [_, Node::Fixed(Fixed::List(items))] = args.as_slice()
    {
        let items = items.clone();
        if items.is_empty() {
            return Ok(Node::Fixed(Fixed::Const(Const::Bool(false))));
        }
        if let Some(set) = constant_set(&items) {
            return Ok(Node::InSet(Box::new(args.swap_remove(0)), set));
        }
    }
    let Some(found) = functions::find(function) else { return Err(format!("no such overload: {function}")) };
    let Some(builtin) = library::find(found.name) else { return Err(format!("no such overload: {function}")) };
    if is_conversion(function)
        && let [Node::Fixed(fixed)] = args.as_slice()
        && let Some(converted) = library::convert::fixed(function, fixed)?
    {
        return Ok(Node::Fixed(converted));
    }
    let regex = match (function, args.get(1)) {
        ("matches" | "find" | "findAll", Some(Node::Fixed(Fixed::Const(Const::String(source))))) => {
            Some(Arc::new(pattern::compile(source)?))
        }
        _ => None,
    };
    Ok(Node::Call(Box::new(Call {
        function: found.name,
        overload,
        builtin,
        charge: Charge::of(function, overload),
        args,
        regex,
        lenient: function == "@not_strictly_false",
    })))
}

fn fixed_list(nodes: &[(Node, bool)]) -> Option<Fixed> {
    let items = nodes.iter().map(|(node, optional)| match node {
        Node::Fixed(fixed) if !optional => Some(fixed.clone()),
        _ => None,
    });
    items.collect::<Option<Vec<Fixed>>>().map(Fixed::List)
}

fn fixed_map(nodes: &[(Node, Node, bool)]) -> Option<Fixed> {
    let entries = nodes.iter().map(|entry| match entry {
        (Node::Fixed(key), Node::Fixed(value), false) => Some((key.clone(), value.clone())),
        _ => None,
    });
    entries.collect::<Option<Vec<_>>>().map(Fixed::Map)
}

fn constant_set(items: &[Fixed]) -> Option<Vec<Const>> {
    items
        .iter()
        .map(|item| match item {
            Fixed::Const(Const::Bytes(_) | Const::Null) => None,
            Fixed::Const(value) => Some(value.clone()),
            _ => None,
        })
        .collect()
}

fn is_conversion(function: &str) -> bool {
    matches!(
        function,
        "bool" | "bytes" | "double" | "duration" | "dyn" | "int" | "string" | "timestamp" | "type" | "uint"
    )
}
