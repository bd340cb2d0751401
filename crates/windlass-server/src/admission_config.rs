//! The configuration of admission, as it is in effect: which plugins run, which webhooks are registered, which policies are
//! bound, and which namespaces have quotas or limit ranges.
//!
//! Each part is kept in step with the store by a task, and read by writes with one atomic load or one look into a map. What
//! is done with it to a request is [`admission`](crate::admission)'s part.

mod authorizer;
mod conditions;
mod constraints;
mod expression;
mod marks;
mod plugins;
mod policy;
mod programs;
mod type_check;
mod webhook;

pub(crate) use authorizer::Subject;
pub(crate) use constraints::{Constraints, NamedRule};
pub(crate) use expression::Variables;
pub(crate) use marks::Restrictions;
pub use plugins::{AdmissionPlugin, AdmissionPlugins, UnknownPlugin};
pub(crate) use policy::{BUDGET, Binding, Bound, Change, Policies, Policy};
pub(crate) use programs::{Compiled, Input, OutOfBudget, Round, problems};
pub use type_check::ExpressionWarning;
pub(crate) use type_check::check as check_policy;
pub(crate) use webhook::{Hook, Rule, Scope, Webhooks};
