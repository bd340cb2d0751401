//! Type checking, after cel-go's `checker/checker.go`: every node gets a type, every call the
//! overloads it may mean. Dotted names of functions and types become what they name.

use super::ast::{Const, Expr, Fold, Id, Kind};
use super::functions::{self, Function};
use super::parser::is_reserved;
use super::source::Issues;
use super::types::Type;
use super::unify::{Substitution, most_general};

/// What is known about the nodes of a checked expression, by id.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) types: Vec<Type>,
    pub(super) overloads: Vec<Vec<&'static str>>,
}

impl Checked {
    pub(super) fn ty(&self, id: Id) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    pub(super) fn overloads(&self, id: Id) -> &[&'static str] {
        self.overloads.get(id as usize).map(Vec::as_slice).unwrap_or_default()
    }
}

/// What an expression can refer to.
pub(super) trait Scope {
    /// The type of the variable `name`.
    fn variable(&self, name: &str) -> Option<Type>;
    /// The type that an object literal with this name makes.
    fn object(&self, name: &str) -> Option<Type>;
    /// Whether there is a function of this name here.
    fn has_function(&self, name: &str) -> bool;
    /// The name of the type that the expression is about; messages do not show it.
    fn own(&self) -> &str;
}

/// Checks an expression, rewriting it where names resolve.
pub(super) fn check(root: &mut Expr, offsets: &[usize], scope: &dyn Scope, issues: &mut Issues) -> Checked {
    let mut checker = Checker {
        scope,
        offsets,
        issues,
        locals: Vec::new(),
        substitution: Substitution::default(),
        types: vec![None; offsets.len()],
        overloads: vec![Vec::new(); offsets.len()],
    };
    checker.check(root);
    let substitution = checker.substitution;
    let types = checker.types.into_iter().map(|ty| ty.map_or(Type::Dyn, |ty| substitution.apply(&ty, true))).collect();
    Checked { types, overloads: checker.overloads }
}

struct Checker<'a> {
    scope: &'a dyn Scope,
    offsets: &'a [usize],
    issues: &'a mut Issues,
    locals: Vec<(String, Type)>,
    substitution: Substitution,
    types: Vec<Option<Type>>,
    overloads: Vec<Vec<&'static str>>,
}

impl Checker<'_> {
    fn report(&mut self, id: Id, message: String) {
        self.issues.push(self.offsets.get(id as usize).copied(), message);
    }

    fn show(&self, ty: &Type) -> String {
        ty.display(self.scope.own())
    }

    fn ty(&self, id: Id) -> Type {
        self.types[id as usize].clone().unwrap_or(Type::Error)
    }

    fn set(&mut self, id: Id, ty: Type) {
        self.types[id as usize] = Some(ty);
    }

    fn mismatch(&mut self, id: Id, expected: &Type, found: &Type) {
        let message = format!("expected type '{}' but found '{}'", self.show(expected), self.show(found));
        self.report(id, message);
    }

    fn undeclared(&mut self, id: Id, name: &str) {
        self.report(id, format!("undeclared reference to '{name}' (in container '')"));
        self.set(id, Type::Error);
    }

    fn local(&self, name: &str) -> Option<Type> {
        self.locals.iter().rev().find(|(local, _)| local == name).map(|(_, ty)| ty.clone())
    }

    fn global(&self, name: &str) -> Option<Type> {
        let name = name.strip_prefix('.').unwrap_or(name);
        self.scope
            .variable(name)
            .or_else(|| functions::type_named(name).map(|ty| Type::Meta(Some(ty.into()))))
            .or_else(|| self.scope.object(name).map(|ty| Type::Meta(Some(ty.into()))))
    }

    fn check(&mut self, expr: &mut Expr) {
        let id = expr.id;
        match &mut expr.kind {
            Kind::Const(value) => {
                let ty = const_type(value);
                self.set(id, ty);
            }
            Kind::Ident(name) => {
                if let Some(ty) = self.local(name).or_else(|| self.global(name)) {
                    self.set(id, ty);
                } else {
                    let name = name.clone();
                    self.undeclared(id, &name);
                }
            }
            Kind::Select { .. } => self.select(expr),
            Kind::Call { .. } => self.call(expr),
            Kind::List(items) => {
                let mut joined: Option<Type> = None;
                for item in items {
                    self.check(&mut item.value);
                    let ty = self.ty(item.value.id);
                    let ty = if item.optional { self.unwrapped(item.value.id, ty) } else { ty };
                    joined = Some(self.join(joined, ty));
                }
                let item = joined.unwrap_or_else(|| self.substitution.fresh());
                self.set(id, Type::list(item));
            }
            Kind::Map(entries) => {
                let (mut keys, mut values): (Option<Type>, Option<Type>) = (None, None);
                for entry in entries {
                    self.check(&mut entry.key);
                    let ty = self.ty(entry.key.id);
                    keys = Some(self.join(keys, ty));
                    self.check(&mut entry.value);
                    let ty = self.ty(entry.value.id);
                    let ty = if entry.optional { self.unwrapped(entry.value.id, ty) } else { ty };
                    values = Some(self.join(values, ty));
                }
                let key = keys.unwrap_or_else(|| self.substitution.fresh());
                let value = values.unwrap_or_else(|| self.substitution.fresh());
                self.set(id, Type::map(key, value));
            }
            Kind::Struct { .. } => self.structure(expr),
            Kind::Fold(fold) => self.fold(id, fold),
            Kind::Broken => self.set(id, Type::Error),
        }
    }

    /// What an optional entry of a literal adds.
    fn unwrapped(&mut self, id: Id, ty: Type) -> Type {
        match ty {
            Type::Optional(of) => (*of).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                self.mismatch(id, &Type::optional(other.clone()), &other);
                other
            }
        }
    }

    /// The type of elements of both types. That they differ is complained about later, because
    /// `format` does not mind.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        match previous {
            None => current,
            Some(previous) if self.substitution.assignable(&previous, &current) => most_general(&previous, &current),
            Some(_) => Type::Dyn,
        }
    }

    fn select(&mut self, expr: &mut Expr) {
        let id = expr.id;
        // A dotted name may name a type.
        if let Some(name) = expr.qualified_name() {
            let first = name.split('.').next().unwrap_or_default();
            if self.local(first).is_none()
                && let Some(ty) = self.global(&name)
            {
                self.set(id, ty);
                expr.kind = Kind::Ident(name);
                return;
            }
        }
        let Kind::Select { operand, field, test_only } = &mut expr.kind else { return };
        let ty = self.field(id, operand, field, false);
        let ty = if *test_only { Type::Bool } else { self.substitution.apply(&ty, false) };
        self.set(id, ty);
    }

    /// The type of a field of `operand`.
    fn field(&mut self, id: Id, operand: &mut Expr, field: &str, optional: bool) -> Type {
        self.check(operand);
        let operand = self.substitution.apply(&self.ty(operand.id), false);
        let (target, was_optional) = match operand {
            Type::Optional(of) => ((*of).clone(), true),
            other => (other, false),
        };
        let result = match &target {
            Type::Map(entry) => entry.1.clone(),
            // A keyword may be written as it is.
            Type::Object(object) => {
                if let Some(declared) = object.fields.get(field).or_else(|| {
                    is_reserved(field).then(|| object.fields.get(format!("__{field}__").as_str())).flatten()
                }) {
                    declared.ty.clone()
                } else if object.open {
                    Type::Dyn
                } else {
                    let message = if object.fields.is_empty() && object.name.starts_with("kubernetes.") {
                        format!("unexpected failed resolution of '{}'", object.name)
                    } else {
                        format!("undefined field '{field}'")
                    };
                    self.report(id, message);
                    Type::Error
                }
            }
            Type::Var(_) => {
                self.substitution.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                let message = format!("type '{}' does not support field selection", self.show(other));
                self.report(id, message);
                Type::Dyn
            }
        };
        if was_optional || optional { Type::optional(result) } else { result }
    }

    fn call(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let Kind::Call { target, function, args } = &mut expr.kind else { return };
        if function == "_?._" {
            if let [operand, Expr { kind: Kind::Const(Const::String(field)), id: field_id }] = args.as_mut_slice() {
                self.set(*field_id, Type::String);
                let field = field.clone();
                let ty = self.field(id, operand, &field, true);
                let ty = self.substitution.apply(&ty, false);
                self.set(id, ty);
                self.overloads[id as usize] = vec!["select_optional_field"];
            }
            return;
        }
        for arg in args.iter_mut() {
            self.check(arg);
        }
        let Some(receiver) = target else {
            let name = function.strip_prefix('.').unwrap_or(function).to_owned();
            match self.function(&name) {
                Some(found) => {
                    function.clone_from(&name);
                    self.resolve(id, found, None, args);
                }
                None => self.undeclared(id, &function.clone()),
            }
            return;
        };
        // `a.b.c()` may be the function `a.b.c`.
        if let Some(prefix) = receiver.qualified_name() {
            let name = format!("{}.{function}", prefix.strip_prefix('.').unwrap_or(&prefix));
            if let Some(found) = self.function(&name) {
                *target = None;
                *function = name;
                self.resolve(id, found, None, args);
                return;
            }
        }
        self.check(receiver);
        match self.function(function) {
            Some(found) => self.resolve(id, found, Some(receiver), args),
            None => self.undeclared(id, &function.clone()),
        }
    }

    fn function(&self, name: &str) -> Option<&'static Function> {
        functions::find(name).filter(|_| self.scope.has_function(name))
    }

    fn resolve(&mut self, id: Id, function: &'static Function, target: Option<&Expr>, args: &[Expr]) {
        let mut types: Vec<Type> = target.into_iter().chain(args).map(|arg| self.ty(arg.id)).collect();
        if matches!(function.name, "_&&_" | "_||_") {
            let mut fine = true;
            for (arg, ty) in args.iter().zip(&types) {
                if !self.substitution.assignable(ty, &Type::Bool) {
                    self.mismatch(arg.id, &Type::Bool, ty);
                    fine = false;
                }
            }
            self.overloads[id as usize] = vec![function.overloads[0].id];
            self.set(id, if fine { Type::Bool } else { Type::Error });
            return;
        }
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in &function.overloads {
            if overload.member != target.is_some() || overload.args.len() != types.len() {
                continue;
            }
            let params: Vec<Type> = (0..overload.params).map(|_| self.substitution.fresh()).collect();
            let candidates: Vec<Type> = overload.args.iter().map(|arg| instantiate(arg, &params)).collect();
            if !self.substitution.all_assignable(&types, &candidates) {
                continue;
            }
            matching.push(overload.id);
            let own = self.substitution.apply(&instantiate(&overload.result, &params), false);
            result = Some(match result {
                None => own,
                Some(known) if !known.is_dyn() && !own.same(&known) => Type::Dyn,
                Some(known) => known,
            });
        }
        let Some(result) = result else {
            for ty in &mut types {
                *ty = self.substitution.apply(ty, true);
            }
            let shown: Vec<String> = types.iter().map(|ty| self.show(ty)).collect();
            let signature = match target {
                Some(_) => format!("{}.({})", shown[0], shown[1..].join(", ")),
                None => format!("({})", shown.join(", ")),
            };
            let name = function.name;
            self.report(id, format!("found no matching overload for '{name}' applied to '{signature}'"));
            self.set(id, Type::Error);
            return;
        };
        self.overloads[id as usize] = matching;
        self.set(id, result);
    }

    fn structure(&mut self, expr: &mut Expr) {
        let id = expr.id;
        let Kind::Struct { name, fields } = &mut expr.kind else { return };
        let plain = name.strip_prefix('.').unwrap_or(name).to_owned();
        let Some(ty) = self.scope.object(&plain) else {
            let name = name.clone();
            self.undeclared(id, &name);
            return;
        };
        *name = plain;
        self.set(id, ty.clone());
        let Type::Object(object) = &ty else { return };
        for field in fields {
            self.check(&mut field.value);
            let value = self.ty(field.value.id);
            let value = if field.optional { self.unwrapped(field.value.id, value) } else { value };
            let Some(declared) = object.fields.get(field.name.as_str()) else {
                if object.open {
                    continue;
                }
                self.report(field.id, format!("undefined field '{}'", field.name));
                continue;
            };
            if !self.substitution.assignable(&declared.ty, &value) {
                let (expected, found) = (self.show(&declared.ty), self.show(&value));
                let name = &field.name;
                self.report(
                    field.id,
                    format!("expected type of field '{name}' is '{expected}' but provided type is '{found}'"),
                );
            }
        }
    }

    fn fold(&mut self, id: Id, fold: &mut Fold) {
        self.check(&mut fold.range);
        self.check(&mut fold.init);
        let range = self.substitution.apply(&self.ty(fold.range.id), false);
        let accu = self.ty(fold.init.id);
        self.locals.push((fold.accu.clone(), accu.clone()));
        let two = fold.var2.is_some();
        let (var, var2) = match &range {
            Type::List(item) if two => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Error),
            Type::Map(entry) => (entry.0.clone(), entry.1.clone()),
            Type::Dyn | Type::Error | Type::Var(_) => {
                self.substitution.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let shown = self.show(other);
                self.report(
                    fold.range.id,
                    format!(
                        "expression of type '{shown}' cannot be range of a comprehension (must be list, map, or dynamic)"
                    ),
                );
                (Type::Error, Type::Error)
            }
        };
        self.locals.push((fold.var.clone(), var));
        if let Some(name) = &fold.var2 {
            self.locals.push((name.clone(), var2));
        }
        self.check(&mut fold.condition);
        self.assert(&fold.condition, &Type::Bool);
        self.check(&mut fold.step);
        self.assert(&fold.step, &accu);
        self.locals.truncate(self.locals.len() - if two { 2 } else { 1 });
        self.check(&mut fold.result);
        self.locals.pop();
        let ty = self.substitution.apply(&self.ty(fold.result.id), false);
        self.set(id, ty);
    }

    fn assert(&mut self, expr: &Expr, expected: &Type) {
        let found = self.ty(expr.id);
        if !self.substitution.assignable(expected, &found) {
            self.mismatch(expr.id, expected, &found);
        }
    }
}

fn const_type(value: &Const) -> Type {
    match value {
        Const::Null => Type::Null,
        Const::Bool(_) => Type::Bool,
        Const::Int(_) => Type::Int,
        Const::Uint(_) => Type::Uint,
        Const::Double(_) => Type::Double,
        Const::String(_) => Type::String,
        Const::Bytes(_) => Type::Bytes,
    }
}

/// A declaration's type with variables for its parameters.
fn instantiate(ty: &Type, params: &[Type]) -> Type {
    match ty {
        Type::Param(param) => params[*param as usize].clone(),
        Type::List(of) => Type::list(instantiate(of, params)),
        Type::Optional(of) => Type::optional(instantiate(of, params)),
        Type::Meta(Some(of)) => Type::Meta(Some(instantiate(of, params).into())),
        Type::Map(entry) => Type::map(instantiate(&entry.0, params), instantiate(&entry.1, params)),
        other => other.clone(),
    }
}
