//! The group versions that CustomResourceDefinitions and computed kinds want served.

use std::collections::BTreeSet;

use tokio::sync::watch;

/// The names of the APIServices that CRDs want, as they change.
#[derive(Default)]
pub(crate) struct CustomVersions {
    pub(crate) wanted: watch::Sender<BTreeSet<String>>,
    /// Those of kinds that are computed, which are wanted as long as the server runs.
    computed: parking_lot::Mutex<BTreeSet<String>>,
}

impl CustomVersions {
    /// These groups and versions are wanted from now on.
    pub(crate) fn set(&self, versions: BTreeSet<(&str, &str)>) {
        let mut names: BTreeSet<String> = versions.into_iter().map(|(group, version)| name(group, version)).collect();
        names.extend(self.computed.lock().iter().cloned());
        self.wanted.send_if_modified(|wanted| {
            let changed = *wanted != names;
            *wanted = names;
            changed
        });
    }

    /// This group and version is wanted as well, whatever CRDs want.
    pub(crate) fn add_computed(&self, group: &str, version: &str) {
        let name = name(group, version);
        let mut computed = self.computed.lock();
        computed.insert(name.clone());
        self.wanted.send_if_modified(|wanted| wanted.insert(name));
    }
}

/// The name of the APIService of a group and version.
pub(crate) fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}
