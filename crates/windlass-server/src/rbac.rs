//! Role-based access control: the roles and bindings that are stored, as a policy that answers at once.
//!
//! ```text
//! roles, bindings ──watch hub──▶ follow ──▶ Policy (immutable, swapped) ◀── every request
//! ```

mod follow;
mod policy;
mod rules;

pub(crate) use follow::Rbac;
pub(crate) use policy::{Decision, Kind, Policy};
pub(crate) use rules::{Rule, missing, uncovered};

/// The group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
