//! What everything in a manager needs to be allowed, and whether it is.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::Manager;
use crate::events::EventApi;
use crate::rbac::Rules;

impl Manager {
    /// Everything the operator needs to be allowed: see [`rbac`](crate::rbac).
    ///
    /// ```no_run
    /// # fn example(manager: windlass::Manager) {
    /// print!("{}", manager.rules().to_yaml("petstore-manager"));
    /// # }
    /// ```
    pub fn rules(&self) -> Rules {
        self.needs().0
    }

    /// What the operator may not do of what it cannot do without. Of a kind that a controller owns
    /// it must be able to write something, in one way or another. What the server has not said until
    /// `deadline` is taken to be allowed.
    pub(super) fn missing(&self, deadline: Instant) -> impl Future<Output = Rules> + Send + use<> {
        let mut owned = Rules::default();
        for controller in &self.controllers {
            owned.extend(&controller.owned(self.client.caches().namespaces()));
        }
        let ((_, needed), kube) = (self.needs(), self.client.kube().clone());
        async move {
            let mut missing = needed.missing(&kube, deadline).await;
            missing.extend(&owned.missing(&kube, deadline).await.where_all_of(&owned));
            missing
        }
    }

    /// All rules, and those without which the manager cannot start.
    fn needs(&self) -> (Rules, Rules) {
        let (mut all, mut needed) = (Rules::default(), Rules::default());
        let namespaces = self.client.caches().namespaces();
        for controller in &self.controllers {
            let (more, must) = controller.rules(namespaces, self.client.kube().default_namespace());
            all.extend(&more);
            needed.extend(&must);
        }
        if let Some(election) = &self.election {
            let (namespace, group) = (Some(election.namespace_for(self.client.kube())), "coordination.k8s.io");
            needed.allow(namespace, group, ["leases"], ["create"]);
            needed.allow_named(namespace, group, "leases", &election.name, ["get", "update"]);
        }
        if self.metrics_access && self.metrics_server.is_some() {
            needed.allow(None, "authentication.k8s.io", ["tokenreviews"], ["create"]);
            needed.allow(None, "authorization.k8s.io", ["subjectaccessreviews"], ["create"]);
        }
        #[cfg(feature = "webhook")]
        for webhooks in &self.webhooks {
            needed.extend(&webhooks.rules());
            all.extend(&webhooks.rules_of_the_past());
        }
        all.extend(&needed);
        let group = if self.event_api == EventApi::EventsV1 { "events.k8s.io" } else { "" };
        let mut events = Rules::default();
        events.allow(None, group, ["events"], ["create", "patch"]);
        let mut places: BTreeSet<String> = namespaces.iter().cloned().collect();
        if !namespaces.is_empty() {
            places.extend(self.controllers.iter().flat_map(|controller| controller.event_namespaces(namespaces)));
        }
        all.extend(&events.spread(&places.into_iter().collect::<Vec<_>>()));
        (all, needed)
    }
}
