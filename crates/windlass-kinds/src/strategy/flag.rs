//! What of a strategy takes no code: each flag is a deviation from what most kinds do.

use crate::validation::metadata::Rules;
use crate::validation::names::NameRule;

/// A way in which a kind differs from most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// Names are DNS labels instead of subdomains.
    LabelName,
    /// Names are any segments of paths instead of subdomains.
    PathSegmentName,
    /// A finalizer without a domain need not be one of Kubernetes' own.
    AnyFinalizer,
    /// PUT on a missing object creates it.
    CreateOnUpdate,
    /// An update must have the resourceVersion that it is based on.
    VersionedUpdate,
    /// The kind counts changes of the desired state in `metadata.generation`.
    Generation,
    /// Deleting an object leaves its dependents alone when the client does not say.
    OrphansDependents,
}

/// The flags of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Flags(&'static [Flag]);

impl Flags {
    /// What most kinds do.
    pub const NONE: Self = Self(&[]);
    /// Custom kinds.
    pub const CUSTOM: Self = Self(&[Flag::AnyFinalizer, Flag::VersionedUpdate, Flag::Generation]);

    pub(crate) const fn new(flags: &'static [Flag]) -> Self {
        Self(flags)
    }

    /// Whether the kind has the flag.
    pub fn has(self, flag: Flag) -> bool {
        self.0.contains(&flag)
    }

    /// What the kind asks of metadata.
    pub fn metadata_rules(self, namespaced: bool) -> Rules {
        let name = if self.has(Flag::LabelName) {
            NameRule::Label
        } else if self.has(Flag::PathSegmentName) {
            NameRule::PathSegment
        } else {
            NameRule::Subdomain
        };
        Rules { namespaced, name, standard_finalizers: !self.has(Flag::AnyFinalizer) }
    }
}
