//! What a controller must be allowed, besides reading what it watches.

use super::Watch;
use crate::object::Object;
use crate::rbac::Rules;

/// What a controller does besides watching.
#[derive(Debug, Clone, Default)]
pub(super) struct Permits {
    /// What follows from owning: not all of it used by all, so not asked for at the start.
    pub(super) derived: Derived,
    /// How what is owned is written: one of these ways, at least.
    pub(super) owned: Derived,
    /// What the user says.
    pub(super) said: Rules,
}

/// Rules about kinds, of which only those in namespaces can be limited to some.
#[derive(Debug, Clone, Default)]
pub(super) struct Derived {
    namespaced: Rules,
    cluster_scoped: Rules,
}

impl Derived {
    /// Allows verbs on what a [`Watch`] selects.
    pub(super) fn allow<K: Object, V>(&mut self, watch: &Watch<K>, resource: &str, verbs: V)
    where
        V: IntoIterator<Item: Into<String>>,
    {
        let group = K::group(&watch.dt);
        if watch.is_cluster_scoped() {
            self.cluster_scoped.allow(None, &group, [resource], verbs);
        } else {
            self.namespaced.allow(watch.scope.in_namespace(), &group, [resource], verbs);
        }
    }

    /// The rules of a manager of these namespaces; of all when there are none.
    pub(super) fn within(&self, namespaces: &[String]) -> Rules {
        let mut rules = self.namespaced.spread(namespaces);
        rules.extend(&self.cluster_scoped);
        rules
    }
}
