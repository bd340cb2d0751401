//! How the time an expression takes grows with what it looks at.
//!
//! Static cost estimates assume the largest values that a schema allows, and admission policies have none. This one
//! is about the values at hand: loops multiply, what reads a text or a list is linear in it.
//!
//! A [`Growth`] is a polynomial in the size of those values, on the safe side and cheap to work out. A program can use
//! it to decide on which thread an expression is evaluated; what evaluation may cost is bounded elsewhere.

use serde_json::Value;

use super::ast::{Const, Expr, Fold, Kind};
use crate::pattern;

/// What is expected to take longer, in nanoseconds, leaves the threads that serve requests.
const LONG: f64 = 1_000_000.0;
/// The size of a value that holds nothing else.
const NODE: usize = 8;
/// Degrees of a polynomial: no expression gets further within its budget.
const DEGREES: usize = 8;
/// One step of an evaluation.
const STEP: f64 = 50.0;
/// Reading what one value holds.
const READ: f64 = 8.0;
/// Comparing two items of lists.
const COMPARE: f64 = 200.0;
/// Compiling a pattern.
const COMPILE: f64 = 50_000.0;

/// How the time that work takes grows with what it looks at: nanoseconds by the power of the number of values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Growth([f64; DEGREES]);

impl Growth {
    /// Adds work that is done once for each combination of `degree` values.
    pub fn add(&mut self, degree: usize, nanoseconds: f64) {
        self.0[degree.min(DEGREES - 1)] += nanoseconds;
    }

    /// Adds work that is done besides.
    pub fn join(&mut self, other: &Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }

    /// The work if it is done for each part of something. Parts share what there is: only what does not depend
    /// on their sizes is done more often.
    #[must_use]
    pub fn for_each(mut self) -> Self {
        let fixed = std::mem::take(&mut self.0[0]);
        self.0[1] += fixed;
        self
    }

    /// Whether the work may take long for something of this size.
    pub fn is_long(&self, size: usize) -> bool {
        is_long(self.nanoseconds(size))
    }

    /// How long the work may take for something of this size.
    pub fn nanoseconds(&self, size: usize) -> f64 {
        let values = (size / NODE) as f64;
        self.0.iter().rev().fold(0.0, |sum, factor| sum * values + factor)
    }
}

/// Whether work that may take so many nanoseconds is long.
pub fn is_long(nanoseconds: f64) -> bool {
    nanoseconds > LONG
}

/// The size of a value: what [`Growth`] is about.
pub fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => NODE,
        Value::String(text) => NODE + text.len(),
        Value::Array(items) => items.iter().fold(NODE, |sum, item| sum + size(item)),
        Value::Object(map) => map.iter().fold(NODE, |sum, (name, value)| sum + name.len() + size(value)),
    }
}

/// The growth of an expression.
pub(super) fn of(root: &Expr) -> Growth {
    let mut walk = Walk { growth: Growth::default(), loops: 0, times: 1.0, variables: Vec::new() };
    walk.expr(root);
    walk.growth
}

struct Walk<'e> {
    growth: Growth,
    /// How many loops there are around, and how often those over literals run.
    loops: usize,
    times: f64,
    variables: Vec<&'e str>,
}

impl<'e> Walk<'e> {
    fn expr(&mut self, expr: &'e Expr) {
        self.growth.add(self.loops, STEP * self.times);
        match &expr.kind {
            Kind::Const(_) | Kind::Ident(_) | Kind::Broken => {}
            Kind::Select { operand, .. } => self.expr(operand),
            Kind::Call { target, function, args } => {
                let operands: Vec<&Expr> = target.as_deref().into_iter().chain(args).collect();
                self.call(function, &operands);
                for operand in operands {
                    self.expr(operand);
                }
            }
            Kind::List(items) => items.iter().for_each(|item| self.expr(&item.value)),
            Kind::Map(entries) => {
                for entry in entries {
                    self.expr(&entry.key);
                    self.expr(&entry.value);
                }
            }
            Kind::Struct { fields, .. } => fields.iter().for_each(|field| self.expr(&field.value)),
            Kind::Fold(fold) => self.fold(fold),
        }
    }

    fn fold(&mut self, fold: &'e Fold) {
        self.expr(&fold.range);
        self.expr(&fold.init);
        let (loops, times, known) = (self.loops, self.times, self.variables.len());
        match &fold.range.kind {
            Kind::List(items) => self.times *= items.len().max(1) as f64,
            _ => self.loops += 1,
        }
        self.variables.push(&fold.var);
        self.variables.extend(fold.var2.as_deref());
        self.expr(&fold.condition);
        self.expr(&fold.step);
        (self.loops, self.times) = (loops, times);
        self.variables.truncate(known);
        self.expr(&fold.result);
    }

    fn call(&mut self, function: &str, operands: &[&Expr]) {
        let linear = self.linear(operands);
        match function {
            "matches" | "find" | "findAll" => {
                let linear = self.linear(&operands[..operands.len().min(1)]);
                if let Some(Kind::Const(Const::String(source))) = operands.get(1).map(|operand| &operand.kind) {
                    self.growth.add(linear, READ * pattern::states(source) as f64 * self.times);
                } else {
                    self.growth.add(self.loops, COMPILE * self.times);
                    self.growth.add(linear + 1, READ * self.times);
                }
            }
            "distinct" | "sort" | "sortBy" => self.growth.add(linear + 1, COMPARE * self.times),
            _ if function.starts_with("sets.") || function.contains("sort") => {
                self.growth.add(linear + 1, COMPARE * self.times);
            }
            "_&&_" | "_||_" | "!_" | "_?_:_" | "@not_strictly_false" => {}
            // Every item of the list may be compared, whatever it is that is looked for.
            "@in" => self.growth.add(linear, COMPARE * self.times),
            // Looking something up takes as long as what it is looked up by.
            "_[_]" => self.growth.add(self.linear(&operands[operands.len().min(1)..]), READ * self.times),
            // These end with the shorter operand.
            "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" | "startsWith" | "endsWith" => {
                let shortest = operands.iter().map(|operand| self.linear(&[operand])).min();
                self.growth.add(shortest.unwrap_or(linear), READ * self.times);
            }
            _ => self.growth.add(linear, READ * self.times),
        }
    }

    /// How often all of the operands are read: once in every loop, except for what the loop is about, as all of that
    /// comes to no more than what is looped over.
    fn linear(&self, operands: &[&Expr]) -> usize {
        if self.loops > 0 && operands.iter().all(|operand| self.is_part(operand)) { self.loops } else { self.loops + 1 }
    }

    /// Whether an expression comes to no more than what a loop is about, or than what is written down.
    fn is_part(&self, expr: &Expr) -> bool {
        match &expr.kind {
            Kind::Const(_) => true,
            Kind::Ident(name) => self.variables.contains(&name.as_str()),
            Kind::Select { operand, .. } => self.is_part(operand),
            Kind::Call { function, args, .. } if function == "_[_]" => args.first().is_some_and(|of| self.is_part(of)),
            Kind::Call { target, args, .. } => target.as_deref().into_iter().chain(args).all(|part| self.is_part(part)),
            Kind::List(items) => items.iter().all(|item| self.is_part(&item.value)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, sizes: [bool; 3]) {
        let Ok(parsed) = super::super::parser::parse(text, false) else { panic!("{text} is malformed") };
        let growth = of(&parsed.root);
        assert_eq!([1_000, 10_000, 300_000].map(|size| growth.is_long(size)), sizes, "{text}: {growth:?}");
    }

    #[test]
    fn work_is_long_by_what_it_looks_at() {
        let mut growth = Growth::default();
        growth.add(0, 1_000.0);
        growth.add(1, 100.0);
        assert!(!growth.is_long(1_000 * NODE));
        assert!(growth.is_long(10_000 * NODE));
        growth.add(2, 10.0);
        assert!(growth.is_long(1_000 * NODE));
        let each = growth.for_each();
        assert!(!each.is_long(0));
    }

    #[test]
    fn sizes_are_those_of_texts_and_of_what_holds_them() {
        assert_eq!(size(&json!({"ab": ["cd", 1, null]})), 2 + NODE + NODE + NODE + 2 + NODE + NODE);
    }

    #[test]
    fn only_what_may_be_long_is_long() {
        check("self.minimum <= self.maximum", [false, false, false]);
        check("self.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')", [false, false, true]);
        check("self.items.all(x, x.name.startsWith('a'))", [false, false, true]);
        check("self.items.all(x, self.items.exists_one(y, x == y))", [true, true, true]);
        check("self.matches('(a?){500}a{500}')", [true, true, true]);
    }

    /// The loop's variable, as one operand, hid what the other one is.
    #[test]
    fn what_is_searched_in_every_loop_counts() {
        check("self.a.all(x, x in self.b)", [true, true, true]);
        check("self.a.all(x, self.b.contains(x))", [false, true, true]);
        check("self.a.all(x, self.b.indexOf('a') > x)", [false, true, true]);
        check("self.a.all(x, x.b.contains('a'))", [false, false, true]);
        check("self.a.all(x, x in ['a', 'b'])", [false, false, true]);
        check("self.a.all(x, x.name == self.name && x.size() < self.size)", [false, false, true]);
        check("self.a.all(x, self.b[x.name].c > 0)", [false, false, true]);
    }
}
