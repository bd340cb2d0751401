//! Which types go with which: the substitution a check builds up, after cel-go's `checker/types.go`.

use std::sync::Arc;

use super::types::Type;

/// What the type variables of one check stand for. Changes can be taken back.
#[derive(Default)]
pub(super) struct Substitution {
    bound: Vec<Option<Type>>,
    /// What was bound before each change, newest last.
    trail: Vec<(u32, Option<Type>)>,
}

impl Substitution {
    /// A new variable.
    pub(super) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Var(self.bound.len() as u32 - 1)
    }

    /// Whether a value of type `from` may be used as a `to`; remembers what that takes.
    pub(super) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// The same for all of a call's arguments together.
    pub(super) fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        let mark = self.trail.len();
        if self.each(from, to) {
            return true;
        }
        while self.trail.len() > mark {
            if let Some((var, old)) = self.trail.pop() {
                self.bound[var as usize] = old;
            }
        }
        false
    }

    fn each(&mut self, from: &[Type], to: &[Type]) -> bool {
        from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.one(from, to))
    }

    fn bind(&mut self, var: u32, to: Type) {
        let old = self.bound[var as usize].replace(to);
        self.trail.push((var, old));
    }

    fn one(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Var(var) = to {
            match self.substitutes(from, *var) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Var(var) = from {
            return self.substitutes(to, *var).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, Type::Null) | (Type::Meta(_), Type::Meta(_)) => true,
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.one(a, b),
            (Type::Map(a), Type::Map(b)) => self.one(&a.0, &b.0) && self.one(&a.1, &b.1),
            (a, b) => a.same(b),
        }
    }

    /// Whether the variable can stand for the type, and whether it already stood for one.
    fn substitutes(&mut self, ty: &Type, var: u32) -> (bool, bool) {
        if matches!(ty, Type::Var(other) if *other == var) {
            return (true, true);
        }
        if let Some(known) = self.bound[var as usize].clone() {
            if ty.same(&known) {
                return (true, true);
            }
            if !self.one(ty, &known) {
                return (false, true);
            }
            let general = most_general(ty, &known);
            if !self.occurs(var, &general) {
                self.bind(var, general);
            }
            return (true, true);
        }
        if self.occurs(var, ty) {
            return (false, false);
        }
        self.bind(var, ty.clone());
        (true, false)
    }

    fn occurs(&self, var: u32, within: &Type) -> bool {
        match within {
            Type::Var(other) if *other == var => true,
            Type::Var(other) => self.bound[*other as usize].as_ref().is_some_and(|known| self.occurs(var, known)),
            Type::List(of) | Type::Optional(of) | Type::Meta(Some(of)) => self.occurs(var, of),
            Type::Map(entry) => self.occurs(var, &entry.0) || self.occurs(var, &entry.1),
            _ => false,
        }
    }

    /// The type with every known variable replaced; an unknown one becomes `dyn` if `close`.
    pub(super) fn apply(&self, ty: &Type, close: bool) -> Type {
        match ty {
            Type::Var(var) => match &self.bound[*var as usize] {
                Some(known) => self.apply(known, close),
                None if close => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(of) => Type::list(self.apply(of, close)),
            Type::Optional(of) => Type::optional(self.apply(of, close)),
            Type::Meta(Some(of)) => Type::Meta(Some(Arc::new(self.apply(of, close)))),
            Type::Map(entry) => Type::map(self.apply(&entry.0, close), self.apply(&entry.1, close)),
            other => other.clone(),
        }
    }
}

fn is_nullable(ty: &Type) -> bool {
    matches!(ty, Type::Object(_) | Type::Opaque(_) | Type::Optional(_) | Type::Timestamp | Type::Duration)
}

/// The more general of two types that go together.
pub(super) fn most_general(a: &Type, b: &Type) -> Type {
    if less_specific(a, b) { a.clone() } else { b.clone() }
}

fn less_specific(a: &Type, b: &Type) -> bool {
    if a.is_dyn() || matches!(a, Type::Var(_)) {
        return true;
    }
    if b.is_dyn() || matches!(b, Type::Var(_)) {
        return false;
    }
    match (a, b) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => less_specific(&a.0, &b.0) && less_specific(&a.1, &b.1),
        (Type::Meta(_), Type::Meta(_)) => true,
        (a, b) => a.same(b),
    }
}
