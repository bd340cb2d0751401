//! The Common Expression Language, as Kubernetes 1.36 speaks it.
//!
//! ```text
//! text ▸ lexer ▸ parser + macros ▸ check (types) ▸ literals ▸ cost (static) ▸ plan ▸ eval (charged)
//! ```
//!
//! [`rules`] uses it for `x-kubernetes-validations`; admission policies and match conditions compile
//! their expressions with [`compile`] too. Everything is bounded: the size and depth of expressions,
//! what evaluating one may cost, and the work that the official cost leaves out.

use std::sync::Arc;

mod ast;
mod charge;
mod check;
mod cost;
pub(crate) mod declare;
mod equal;
pub(crate) mod escape;
mod eval;
mod functions;
mod growth;
mod lexer;
mod library;
mod literals;
mod macros;
mod meter;
mod parser;
mod plan;
pub(crate) mod rules;
mod source;
mod time;
pub(crate) mod types;
mod unescape;
mod unify;
pub(crate) mod value;

use declare::Declared;
use eval::Evaluator;
pub(crate) use eval::Globals;
use meter::Allowance;
use types::Type;
use value::Outcome;

use crate::effort::Growth;

/// What one evaluation may cost.
pub(crate) const CALL_LIMIT: u64 = 1_000_000;

/// What an expression can refer to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The variables, in the order their values are given in.
    variables: Vec<(Box<str>, Type)>,
    /// What is declared about the first variable, for cost estimates.
    declared: Option<Arc<Declared>>,
    /// Whether literals can make the objects that patches are made of.
    patches: bool,
}

impl Environment {
    /// No variables at all.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    pub(crate) fn with(mut self, name: impl Into<Box<str>>, ty: Type) -> Self {
        self.variables.push((name.into(), ty));
        self
    }

    /// Says what paths in expressions lead to.
    pub(crate) fn about(mut self, declared: Arc<Declared>) -> Self {
        self.declared = Some(declared);
        self
    }

    /// Lets literals make `Object{…}` and `JSONPatch{…}`.
    pub(crate) fn patching(mut self) -> Self {
        self.patches = true;
        self
    }
}

impl check::Scope for Environment {
    fn variable(&self, name: &str) -> Option<Type> {
        self.variables.iter().find(|(known, _)| **known == *name).map(|(_, ty)| ty.clone())
    }

    fn object(&self, name: &str) -> Option<Type> {
        if !self.patches {
            return None;
        }
        if name == "JSONPatch" {
            return Some(types::json_patch());
        }
        (name == "Object" || name.starts_with("Object.")).then(|| Type::open(name))
    }

    fn has_function(&self, name: &str) -> bool {
        self.patches || name != "jsonpatch.escapeKey"
    }

    fn own(&self) -> &str {
        match self.declared.as_deref().map(|declared| &declared.ty) {
            Some(Type::Object(object)) => &object.name,
            _ => "",
        }
    }
}

/// Why an expression does not compile, in cel-go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompileError {
    /// The text is wrong.
    Invalid(String),
    /// A constant in it makes no sense.
    Program(String),
}

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Program {
    plan: plan::Node,
    /// The type of its value.
    pub(crate) ty: Type,
    /// The most it can cost.
    pub(crate) max_cost: u64,
    /// How long it may take.
    pub(crate) growth: Growth,
    idents: Vec<Box<str>>,
}

impl Program {
    /// Whether a name occurs in the expression.
    pub(crate) fn mentions(&self, name: &str) -> bool {
        self.idents.iter().any(|ident| **ident == *name)
    }

    /// Evaluates; says what it cost too. Ends when that exceeds `limit`.
    pub(crate) fn eval<'a>(&'a self, globals: &mut dyn Globals<'a>, limit: u64) -> (Outcome<'a>, u64) {
        let mut allowance = Allowance::ONE;
        self.eval_within(globals, limit, &mut allowance)
    }

    /// The same, where the work that costs do not count comes out of what several evaluations may do together.
    pub(crate) fn eval_within<'a>(
        &'a self,
        globals: &mut dyn Globals<'a>,
        limit: u64,
        allowance: &mut Allowance,
    ) -> (Outcome<'a>, u64) {
        let (outcome, cost, left) = Evaluator::new(globals, limit, *allowance).run(&self.plan);
        *allowance = left;
        (outcome, cost)
    }
}

/// Texts that nest or chain more than this are compiled on a stack of their own.
const DEEP: usize = 24;
const DEEP_STACK: usize = 16 * 1024 * 1024;

/// Compiles an expression.
pub(crate) fn compile(text: &str, environment: &Environment) -> Result<Program, CompileError> {
    if depth(text) <= DEEP {
        return compile_here(text, environment);
    }
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(DEEP_STACK);
        match builder.spawn_scoped(scope, || compile_here(text, environment)) {
            Ok(thread) => thread.join().unwrap_or_else(|_| Err(CompileError::Program("compilation panicked".into()))),
            Err(error) => Err(CompileError::Program(error.to_string())),
        }
    })
}

/// How deep the tree of a text can be, roughly: brackets nest, and so do chains of operators.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut chain) = (0usize, 0, 0);
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'?' | b'.' => chain += 1,
            _ => {}
        }
    }
    deepest + chain / 4
}

fn compile_here(text: &str, environment: &Environment) -> Result<Program, CompileError> {
    let mut parsed = parser::parse(text, false).map_err(|issues| CompileError::Invalid(issues.display(text)))?;
    let mut issues = source::Issues::default();
    let checked = check::check(&mut parsed.root, &parsed.offsets, environment, &mut issues);
    if issues.is_empty() {
        let own = check::Scope::own(environment);
        literals::check(&parsed.root, &checked, &parsed.offsets, own, &mut issues);
    }
    if !issues.is_empty() {
        return Err(CompileError::Invalid(issues.display(text)));
    }
    let globals: Vec<&str> = environment.variables.iter().map(|(name, _)| &**name).collect();
    let plan = plan::plan(&parsed.root, &checked, &globals).map_err(CompileError::Program)?;
    let mut idents = Vec::new();
    parsed.root.visit(&mut |expr| {
        if let ast::Kind::Ident(name) = &expr.kind {
            let name = name.strip_prefix('.').unwrap_or(name);
            if !idents.contains(&name) {
                idents.push(name);
            }
        }
    });
    Ok(Program {
        plan,
        ty: checked.ty(parsed.root.id).clone(),
        max_cost: cost::estimate(&parsed.root, &checked, environment.declared.as_deref()),
        growth: growth::of(&parsed.root),
        idents: idents.into_iter().map(Into::into).collect(),
    })
}

#[cfg(test)]
mod tests;
