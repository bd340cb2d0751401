//! How the time an expression takes grows with what it looks at.
//!
//! Static cost estimates assume the largest values that a schema allows, and admission policies have none. This one
//! is about the values at hand: loops multiply, what reads a text or a list is linear in it.

use super::ast::{Const, Expr, Fold, Kind};
use crate::effort::Growth;
use crate::schema::pattern;

/// One step of an evaluation.
const STEP: f64 = 50.0;
/// Reading what one value holds.
const READ: f64 = 8.0;
/// Comparing two items of lists.
const COMPARE: f64 = 200.0;
/// Compiling a pattern.
const COMPILE: f64 = 50_000.0;

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
    use super::*;

    #[track_caller]
    fn check(text: &str, sizes: [bool; 3]) {
        let Ok(parsed) = super::super::parser::parse(text, false) else { panic!("{text} is malformed") };
        let growth = of(&parsed.root);
        assert_eq!([1_000, 10_000, 300_000].map(|size| growth.is_long(size)), sizes, "{text}: {growth:?}");
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
