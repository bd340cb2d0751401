//! What an expression can cost at most, before anything is evaluated: cel-go's `checker/cost.go` with
//! the estimates of Kubernetes' libraries. Upstream refuses rules by these numbers, so they must agree
//! to the last unit, oddities included.

use std::collections::HashMap;

use super::ast::{Const, Expr, Fold, Id, Kind};
use super::check::Checked;
use super::types::Type;
use super::types::{Declared, KEY};

mod calls;

/// The cost of making a list, a map, an object.
pub(super) const LIST: u64 = 10;
pub(super) const MAP: u64 = 30;
pub(super) const OBJECT: u64 = 40;
/// Reading a character of a string.
pub(super) const STRING_FACTOR: f64 = 0.1;
/// Matching a character of a pattern.
pub(super) const REGEX_FACTOR: f64 = 0.25;

/// A range of sizes or costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const ZERO: Self = Self::exactly(0);
    pub(super) const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    pub(super) const fn exactly(value: u64) -> Self {
        Self { min: value, max: value }
    }

    pub(super) fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn multiply(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub(super) fn times(self, factor: f64) -> Self {
        Self { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

fn scaled(value: u64, factor: f64) -> u64 {
    // A float beyond the range becomes the largest number.
    (value as f64 * factor).ceil() as u64
}

/// The most an expression can cost.
pub(super) fn estimate(root: &Expr, checked: &Checked, declared: Option<&Declared>) -> u64 {
    let mut coster = Coster {
        checked,
        declared,
        paths: HashMap::new(),
        locals: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
    };
    coster.cost(root).max
}

/// Where in the declared data an expression leads. `None` is nowhere; `Some(None)` somewhere that is
/// not declared.
type Path<'a> = Option<Option<&'a Declared>>;

/// What is known about the keys and values of a list or map.
#[derive(Clone, Copy)]
struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        let (a, b) = (a?, b?);
        Some(Self { is_list: a.is_list, key: a.key.union(b.key), value: a.value.union(b.value) })
    }
}

#[derive(Clone, Copy)]
struct Local<'a> {
    path: Path<'a>,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// An argument of a call, as estimates of functions see it.
struct Argument<'a> {
    expr: &'a Expr,
    ty: &'a Type,
    path: Path<'a>,
    computed: Option<Range>,
}

struct Coster<'a> {
    checked: &'a Checked,
    declared: Option<&'a Declared>,
    paths: HashMap<Id, Path<'a>>,
    locals: HashMap<&'a str, Vec<Local<'a>>>,
    sizes: HashMap<Id, Range>,
    entries: HashMap<Id, Entries>,
}

/// One step further in the declared data.
enum Step<'s> {
    Items,
    Keys,
    Indices,
    Field(&'s str),
}

impl<'a> Coster<'a> {
    fn cost(&mut self, expr: &'a Expr) -> Range {
        match &expr.kind {
            Kind::Const(_) | Kind::Broken => Range::ZERO,
            Kind::Ident(name) => {
                let path = self.local(name).map_or(Some(self.declared), |local| local.path);
                self.paths.insert(expr.id, path);
                Range::exactly(1)
            }
            Kind::Select { operand, field, test_only } => {
                let mut sum = self.cost(operand);
                if *test_only {
                    return sum;
                }
                if matches!(self.checked.ty(operand.id), Type::Map(_) | Type::Object(_) | Type::Param(_)) {
                    sum = sum.add(Range::exactly(1));
                }
                let path = self.step(self.path(operand), &Step::Field(field));
                self.paths.insert(expr.id, Some(path));
                sum
            }
            Kind::Call { target, function, args } => self.call(expr, target.as_deref(), function, args),
            Kind::List(items) => {
                let (mut sum, mut size) = (Range::ZERO, empty_union(items.is_empty()));
                for item in items {
                    sum = sum.add(self.cost(&item.value));
                    size = size.union(self.size_or_unknown(&item.value));
                }
                self.entries.insert(expr.id, Entries { is_list: true, key: Range::exactly(1), value: size });
                sum.add(Range::exactly(LIST))
            }
            Kind::Map(entries) => {
                let mut sum = Range::ZERO;
                let (mut key, mut value) = (empty_union(entries.is_empty()), empty_union(entries.is_empty()));
                for entry in entries {
                    sum = sum.add(self.cost(&entry.key));
                    sum = sum.add(self.cost(&entry.value));
                    key = key.union(self.size_or_unknown(&entry.key));
                    value = value.union(self.size_or_unknown(&entry.value));
                }
                self.entries.insert(expr.id, Entries { is_list: false, key, value });
                sum.add(Range::exactly(MAP))
            }
            Kind::Struct { fields, .. } => {
                let sum = fields.iter().fold(Range::ZERO, |sum, field| sum.add(self.cost(&field.value)));
                sum.add(Range::exactly(OBJECT))
            }
            Kind::Fold(fold) if fold.is_bind() => self.bind(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn bind(&mut self, expr: &'a Expr, fold: &'a Fold) -> Range {
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_accu(fold);
        sum = sum.add(self.cost(&fold.result));
        self.pop(&fold.accu);
        self.copy_sizes(expr, &fold.result);
        sum
    }

    fn push_accu(&mut self, fold: &'a Fold) {
        let local =
            Local { path: self.path(&fold.init), size: self.size(&fold.init), entries: self.entries_of(&fold.init) };
        self.push(&fold.accu, local);
    }

    fn fold(&mut self, expr: &'a Expr, fold: &'a Fold) -> Range {
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_accu(fold);
        let entries = self.entries_of(&fold.range);
        let is_list = match entries {
            Some(entries) => entries.is_list,
            None => matches!(self.checked.ty(fold.range.id), Type::List(_)),
        };
        let path = self.path(&fold.range);
        let (keys, values) = if is_list { (Step::Indices, Step::Items) } else { (Step::Keys, Step::Items) };
        let key = Local { path: Some(self.step(path, &keys)), size: entries.map(|e| e.key), entries: None };
        let value = Local { path: Some(self.step(path, &values)), size: entries.map(|e| e.value), entries: None };
        match &fold.var2 {
            Some(var2) => {
                self.push(&fold.var, key);
                self.push(var2, value);
            }
            None => self.push(&fold.var, if is_list { value } else { key }),
        }
        let once = self.cost(&fold.condition);
        let once = self.cost(&fold.step).add(once);
        self.pop(&fold.var);
        if let Some(var2) = &fold.var2 {
            self.pop(var2);
        }
        sum = sum.add(self.cost(&fold.result));
        self.pop(&fold.accu);
        let count = self.size_or_unknown(&fold.range);
        sum = sum.add(count.multiply(once));
        match &fold.init.kind {
            Kind::Const(_) => {
                if let Some(size) = self.size(&fold.init) {
                    self.sizes.insert(expr.id, size);
                }
            }
            Kind::List(_) | Kind::Map(_) => {
                self.sizes.insert(expr.id, count);
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn call(&mut self, expr: &'a Expr, target: Option<&'a Expr>, function: &str, args: &'a [Expr]) -> Range {
        if function == "dyn"
            && let [arg] = args
        {
            let cost = self.cost(arg);
            self.copy_sizes(expr, arg);
            return cost.add(Range::exactly(1));
        }
        let mut costs = Vec::with_capacity(args.len());
        let mut arguments = Vec::with_capacity(args.len());
        for arg in args {
            costs.push(self.cost(arg));
            arguments.push(self.argument(arg));
        }
        let overloads = self.checked.overloads(expr.id);
        if overloads.is_empty() {
            return Range::ZERO;
        }
        let mut sum = Range::ZERO;
        let target = target.map(|target| {
            sum = self.cost(target);
            self.argument(target)
        });
        let mut cost = Range { min: u64::MAX, max: 0 };
        let mut result: Option<Range> = None;
        for overload in overloads {
            let (own, size) = self.overload(expr, function, overload, target.as_ref(), &arguments, &costs);
            cost = cost.union(own);
            if let Some(size) = size {
                result = Some(result.map_or(size, |known| known.union(size)));
            }
            if matches!(*overload, "index_list" | "index_map")
                && let Some(operand) = args.first()
            {
                result = self.entries_of(operand).map(|entries| entries.value);
                let path = self.step(self.path(operand), &Step::Items);
                self.paths.insert(expr.id, Some(path));
            }
            if result.is_none() {
                result = self.size(expr);
            }
        }
        if let Some(result) = result {
            self.sizes.insert(expr.id, result);
        }
        sum.add(cost)
    }

    fn argument(&mut self, expr: &'a Expr) -> Argument<'a> {
        Argument { expr, ty: self.checked.ty(expr.id), path: self.path(expr), computed: self.size(expr) }
    }

    fn local(&self, name: &str) -> Option<Local<'a>> {
        self.locals.get(name)?.last().copied()
    }

    fn push(&mut self, name: &'a str, local: Local<'a>) {
        self.locals.entry(name).or_default().push(local);
    }

    fn pop(&mut self, name: &str) {
        if let Some(stack) = self.locals.get_mut(name) {
            stack.pop();
        }
    }

    fn path(&self, expr: &Expr) -> Path<'a> {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path;
        }
        self.paths.get(&expr.id).copied().flatten()
    }

    /// Upstream drops the first part of every path, taking it for `self`: a step from nowhere leads to
    /// the root.
    fn step(&self, path: Path<'a>, step: &Step<'_>) -> Option<&'a Declared> {
        let Some(at) = path else { return self.declared };
        at.and_then(|at| match step {
            Step::Items => at.element.as_deref(),
            Step::Keys => matches!(at.ty, Type::Map(_)).then_some(&KEY),
            Step::Indices => None,
            Step::Field(field) => at.field(field),
        })
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Range {
        self.size(expr).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = literal_size(expr) {
            return Some(Range::exactly(size));
        }
        if let Some(size) = declared_size(self.path(expr)) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.ty(expr.id)) {
            return Some(Range::exactly(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.size,
            _ => None,
        }
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name)?.entries,
            _ => None,
        }
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        if let Some(size) = self.size(from) {
            self.sizes.insert(to.id, size);
        }
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }
}

/// Where a union over the elements of a literal starts.
fn empty_union(is_empty: bool) -> Range {
    Range { min: if is_empty { 0 } else { u64::MAX }, max: 0 }
}

fn declared_size(path: Path<'_>) -> Option<Range> {
    path.flatten().map(|declared| Range { min: 0, max: declared.max_elements })
}

fn literal_size(expr: &Expr) -> Option<u64> {
    Some(match &expr.kind {
        Kind::Const(Const::String(text)) => text.chars().count() as u64,
        Kind::Const(Const::Bytes(bytes)) => bytes.len() as u64,
        Kind::Const(_) => 1,
        Kind::List(items) => items.len() as u64,
        Kind::Map(entries) => entries.len() as u64,
        _ => return None,
    })
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(of) => is_scalar(of),
        _ => false,
    }
}
