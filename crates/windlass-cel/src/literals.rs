//! What is checked about literals once the types are right: durations, timestamps, patterns, formats,
//! and that the elements of a list or map have one type.

use super::ast::{Const, Expr, Kind};
use super::check::Checked;
use super::library::format_string::{Piece, pieces, refusal};
use super::source::Issues;
use super::time;
use super::types::Type;
use crate::go::duration;
use crate::pattern;

/// Reports what is wrong with the literals of a checked expression.
pub(super) fn check(root: &Expr, checked: &Checked, offsets: &[usize], own: &str, issues: &mut Issues) {
    let mut literals = Literals { checked, offsets, own, issues };
    root.visit(&mut |expr| literals.call(expr));
    literals.elements(root, false);
}

struct Literals<'a> {
    checked: &'a Checked,
    offsets: &'a [usize],
    own: &'a str,
    issues: &'a mut Issues,
}

impl Literals<'_> {
    fn report(&mut self, id: super::ast::Id, message: String) {
        self.issues.push(self.offsets.get(id as usize).copied(), message);
    }

    fn call(&mut self, expr: &Expr) {
        let Kind::Call { target, function, args } = &expr.kind else { return };
        let Some(first) = args.first() else { return };
        if let Kind::Const(value) = &first.kind {
            let fine = match (function.as_str(), value) {
                ("duration", Const::String(text)) => duration::parse(text).is_some(),
                ("timestamp", Const::String(text)) => time::parse_rfc3339(text).is_some_and(time::in_range),
                ("timestamp", Const::Int(seconds)) => time::Timestamp::new(*seconds, 0).is_some(),
                ("matches", Const::String(text)) => pattern::check(text).is_ok(),
                _ => true,
            };
            if !fine {
                self.report(first.id, format!("invalid {function} argument"));
            }
        }
        if let (Some(target), "format") = (target, function.as_str())
            && let (Kind::Const(Const::String(format)), Kind::List(items)) = (&target.kind, &first.kind)
        {
            let items: Vec<&Expr> = items.iter().map(|item| &item.value).collect();
            self.format(expr, format, &items);
        }
    }

    fn format(&mut self, expr: &Expr, format: &str, args: &[&Expr]) {
        let parsed = match pieces(format, args.len()) {
            Ok(parsed) => parsed,
            Err(problem) => {
                self.report(expr.id, problem);
                return;
            }
        };
        let clauses = parsed.iter().filter_map(|piece| match piece {
            Piece::Clause(clause) => Some(clause.letter),
            Piece::Text(_) => None,
        });
        let mut used = 0;
        for (letter, arg) in clauses.zip(args) {
            used += 1;
            if let Err(culprit) = self.takes(letter, arg) {
                let given = self.checked.ty(culprit).runtime_name();
                self.report(culprit, format!("error during formatting: {}", refusal(letter, &given)));
                return;
            }
        }
        if args.len() > used {
            let message = format!("too many arguments supplied to string.format (expected {used}, got {})", args.len());
            self.report(expr.id, message);
        }
    }

    /// Whether a clause takes an argument; else which part of it is wrong.
    fn takes(&self, letter: char, arg: &Expr) -> Result<(), super::ast::Id> {
        let ty = self.checked.ty(arg.id);
        let fine = match letter {
            _ if ty.is_dyn() => true,
            'd' | 'o' => matches!(ty, Type::Int | Type::Uint),
            'f' | 'e' => matches!(ty, Type::Double | Type::String),
            'b' => matches!(ty, Type::Int | Type::Uint | Type::Bool),
            'x' | 'X' => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
            _ => !matches!(ty, Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Error),
        };
        if !fine {
            return Err(arg.id);
        }
        if letter == 's' {
            match &arg.kind {
                Kind::List(items) => items.iter().try_for_each(|item| self.takes('s', &item.value))?,
                Kind::Map(entries) => entries
                    .iter()
                    .try_for_each(|entry| self.takes('s', &entry.key).and_then(|()| self.takes('s', &entry.value)))?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The elements of lists and maps have one type, but for the arguments of `format`.
    fn elements(&mut self, root: &Expr, exempt: bool) {
        let mut exempted = Vec::new();
        root.visit(&mut |expr| {
            if let Kind::Call { function, target, args } = &expr.kind
                && function == "format"
            {
                for arg in target.as_deref().into_iter().chain(args) {
                    arg.visit(&mut |below| exempted.push(below.id));
                }
            }
        });
        let exempted: std::collections::HashSet<super::ast::Id> = exempted.into_iter().collect();
        if exempt {
            return;
        }
        let mut found = Vec::new();
        root.visit(&mut |expr| {
            if exempted.contains(&expr.id) {
                return;
            }
            match &expr.kind {
                Kind::List(items) => {
                    let types = items.iter().map(|item| (item.value.id, item.optional));
                    self.one_type(types, true, &mut found);
                }
                Kind::Map(entries) => {
                    self.one_type(entries.iter().map(|entry| (entry.key.id, false)), false, &mut found);
                    let values = entries.iter().map(|entry| (entry.value.id, entry.optional));
                    self.one_type(values, false, &mut found);
                }
                _ => {}
            }
        });
        for (id, message) in found {
            self.report(id, message);
        }
    }

    fn one_type(
        &self,
        elements: impl Iterator<Item = (super::ast::Id, bool)>,
        first_only: bool,
        found: &mut Vec<(super::ast::Id, String)>,
    ) {
        let mut expected: Option<Type> = None;
        for (id, optional) in elements {
            let mut ty = self.checked.ty(id).clone();
            if let (true, Type::Optional(of)) = (optional, &ty) {
                ty = (**of).clone();
            }
            match &expected {
                None => expected = Some(ty),
                Some(expected) if !expected.same(&ty) => {
                    let (expected, ty) = (expected.display(self.own), ty.display(self.own));
                    found.push((id, format!("expected type '{expected}' but found '{ty}'")));
                    if first_only {
                        return;
                    }
                }
                Some(_) => {}
            }
        }
    }
}
