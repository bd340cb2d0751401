//! The Common Expression Language, as Kubernetes 1.36 speaks it.
//!
//! ```text
//! text ▸ lexer ▸ parser + macros ▸ check (types) ▸ literals ▸ cost (static) ▸ plan ▸ eval (charged)
//! ```
//!
//! Messages, costs and limits are those of cel-go and of Kubernetes' libraries, because users see them and cluster
//! administrators rely on them. Everything is bounded: the size and depth of expressions, what evaluating one may cost,
//! and the work that the official cost leaves out.
//!
//! [`compile`] checks an expression against an [`Environment`] and makes a [`Program`]; [`Program::eval`] evaluates it
//! over JSON. Nothing here does I/O or reads a clock.
//!
//! ```
//! use serde_json::json;
//! use windlass_cel::shape::Shape;
//! use windlass_cel::types::Type;
//! use windlass_cel::value::{Outcome, Value, adapt};
//! use windlass_cel::{CALL_LIMIT, Environment, Globals, compile};
//!
//! /// The values of the environment's variables, by index.
//! struct Variables<'a>(&'a [serde_json::Value]);
//!
//! impl<'a> Globals<'a> for Variables<'a> {
//!     fn get(&mut self, index: usize) -> Outcome<'a> {
//!         adapt(&self.0[index], Shape::Dynamic)
//!     }
//! }
//!
//! let environment = Environment::new().with("object", Type::Dyn);
//! let program = compile("object.replicas <= 3 && object.image.startsWith('registry/')", &environment)
//!     .map_err(|error| format!("{error:?}"))?;
//!
//! let objects = [json!({"replicas": 2, "image": "registry/web:1"})];
//! let (outcome, cost) = program.eval(&mut Variables(&objects), CALL_LIMIT);
//! assert!(matches!(outcome, Ok(Value::Bool(true))));
//! assert!(cost < 10);
//! # Ok::<(), String>(())
//! ```
//!
//! To evaluate over data that a schema describes, implement [`shape::Schema`] for the type that holds the schema, give
//! the variable the type that the schema has ([`types::Declared`]), and use [`Shape::Schema`](shape::Shape::Schema).
//! `windlass-api` does that for `x-kubernetes-validations` of custom resources.
//!
//! [`go`], [`names`], [`format`](mod@format) and [`pattern`] are what the libraries are made of, and of use without CEL:
//! text as Go reads and writes it, Kubernetes' rules for names, OpenAPI's string formats, and regular expressions with
//! RE2's syntax that take bounded time.

use std::sync::Arc;

mod ast;
mod charge;
mod check;
mod cost;
mod equal;
pub mod escape;
mod eval;
pub mod format;
mod functions;
pub mod go;
pub mod growth;
mod lexer;
mod library;
mod literals;
mod macros;
mod meter;
pub mod names;
pub mod opaque;
mod parser;
pub mod pattern;
mod plan;
pub mod shape;
mod source;
mod time;
pub mod types;
mod unescape;
mod unify;
pub mod value;

use eval::Evaluator;
pub use eval::Globals;
pub use meter::Allowance;
use types::{Declared, Type};
use value::Outcome;

use growth::Growth;

/// What one evaluation may cost.
pub const CALL_LIMIT: u64 = 1_000_000;

/// What an expression can refer to.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The variables, in the order their values are given in.
    variables: Vec<(Box<str>, Type)>,
    /// What is declared about the first variable, for cost estimates.
    declared: Option<Arc<Declared>>,
    /// Whether literals can make the objects that patches are made of.
    patches: bool,
}

impl Environment {
    /// No variables at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: impl Into<Box<str>>, ty: Type) -> Self {
        self.variables.push((name.into(), ty));
        self
    }

    /// Says what paths in expressions lead to.
    #[must_use]
    pub fn about(mut self, declared: Arc<Declared>) -> Self {
        self.declared = Some(declared);
        self
    }

    /// Lets literals make `Object{…}` and `JSONPatch{…}`.
    #[must_use]
    pub fn patching(mut self) -> Self {
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
pub enum CompileError {
    /// The text is wrong.
    Invalid(String),
    /// A constant in it makes no sense.
    Program(String),
}

/// A compiled expression.
#[derive(Debug)]
pub struct Program {
    plan: plan::Node,
    /// The type of its value.
    pub ty: Type,
    /// The most it can cost.
    pub max_cost: u64,
    /// How long it may take.
    pub growth: Growth,
    idents: Vec<Box<str>>,
}

impl Program {
    /// Whether a name occurs in the expression.
    pub fn mentions(&self, name: &str) -> bool {
        self.idents.iter().any(|ident| **ident == *name)
    }

    /// Evaluates; says what it cost too. Ends when that exceeds `limit`.
    pub fn eval<'a>(&'a self, globals: &mut dyn Globals<'a>, limit: u64) -> (Outcome<'a>, u64) {
        let mut allowance = Allowance::ONE;
        self.eval_within(globals, limit, &mut allowance)
    }

    /// The same, where the work that costs do not count comes out of what several evaluations may do together.
    pub fn eval_within<'a>(
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
pub fn compile(text: &str, environment: &Environment) -> Result<Program, CompileError> {
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
