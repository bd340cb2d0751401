//! Versions that have to fit together: kubectl's, that of the operator's types, and the cluster's.

use super::Finding;

const CHECK: &str = "versions";
/// How many minor versions kubectl may be older or newer than a cluster (`pkg/cmd/version/skew_warning.go` of kubectl).
const KUBECTL_SKEW: u32 = 1;
/// The oldest version that `k8s-openapi` has types of.
const OLDEST_TYPES: u32 = 33;

/// Compares with the cluster's version what is known of the others.
pub(super) fn check(cluster: &str, kubectl: Option<&str>, types: Option<u32>) -> Vec<Finding> {
    let Some((major, minor)) = numbers(cluster) else { return Vec::new() };
    let mut findings = Vec::new();
    let kubectl = kubectl.and_then(numbers);
    if let Some((own_major, own)) = kubectl
        && (own_major != major || own.abs_diff(minor) > KUBECTL_SKEW)
    {
        let message = format!(
            "kubectl is of {own_major}.{own}, and the cluster of {major}.{minor}: kubectl supports clusters that are one minor \
             version older or newer"
        );
        let remedy = format!("install kubectl {major}.{minor}: https://kubernetes.io/docs/tasks/tools");
        findings.push(Finding::warning(CHECK, message, remedy));
    }
    if let Some(types) = types
        && types > minor.max(OLDEST_TYPES)
    {
        let message = format!(
            "the operator has the types of Kubernetes 1.{types}, and the cluster is of 1.{minor}: it drops fields that are \
             newer, and has no kinds that are"
        );
        let remedy = format!(
            "put v1_{} in the place of v1_{types} in Cargo.toml and api/Cargo.toml: the oldest version of your clusters",
            minor.max(OLDEST_TYPES)
        );
        findings.push(Finding::warning(CHECK, message, remedy));
    }
    if findings.is_empty() {
        let what = match (kubectl, types) {
            (Some(_), Some(_)) => "kubectl and the operator's types fit",
            (Some(_), None) => "kubectl fits",
            (None, Some(_)) => "the operator's types fit",
            (None, None) => return findings,
        };
        findings.push(Finding::ok(CHECK, format!("{what} the cluster")));
    }
    findings
}

/// Major and minor number: of `v1.36.4`, 1 and 36.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.strip_prefix('v')?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The minor version of Kubernetes whose types a project has, by the feature that its `Cargo.toml` names.
pub(super) fn of_types(manifest: &str) -> Option<u32> {
    let features = manifest.split('"').filter_map(|text| text.strip_prefix("v1_")?.parse().ok());
    features.max()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn versions_that_do_not_fit_are_named() {
        for (cluster, kubectl, types, expected) in [
            (
                "v1.36.4",
                Some("v1.36.0"),
                Some(36),
                vec![(Level::Ok, "kubectl and the operator's types fit the cluster")],
            ),
            ("v1.36.4", Some("v1.35.9"), None, vec![(Level::Ok, "kubectl fits the cluster")]),
            ("v1.36.4+k3s1", None, Some(34), vec![(Level::Ok, "the operator's types fit the cluster")]),
            (
                "v1.36.4",
                Some("v1.34.1"),
                Some(36),
                vec![(Level::Warning, "kubectl is of 1.34, and the cluster of 1.36")],
            ),
            ("v1.33.0", Some("v1.35.1"), None, vec![(Level::Warning, "kubectl is of 1.35, and the cluster of 1.33")]),
            ("v2.36.0", Some("v1.36.1"), None, vec![(Level::Warning, "kubectl is of 1.36, and the cluster of 2.36")]),
            (
                "v1.33.0",
                Some("v1.33.1"),
                Some(36),
                vec![(Level::Warning, "the operator has the types of Kubernetes 1.36, and the cluster is of 1.33")],
            ),
            ("v1.36.4", None, None, vec![]),
            ("unknown", Some("v1.36.0"), Some(36), vec![]),
        ] {
            let found = check(cluster, kubectl, types);
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (finding, (level, start)) in found.iter().zip(expected) {
                assert!(finding.level == level && finding.message.starts_with(start), "{finding:?}");
            }
        }
        let old = check("v1.28.0", None, Some(36));
        assert!(
            old[0].remedy.as_ref().is_some_and(|remedy| remedy.starts_with("put v1_33 in the place of v1_36")),
            "{old:?}"
        );
        assert_eq!(check("v1.28.0", None, Some(33))[0].level, Level::Ok, "there are no older ones");
    }

    #[test]
    fn the_types_are_those_of_a_feature() {
        let manifest = "windlass = { version = \"0.1\", features = [\"webhook\", \"v1_34\"] }\n";
        assert_eq!(of_types(manifest), Some(34));
        assert_eq!(of_types("windlass = { version = \"0.1\", features = [\"latest\"] }\n"), None);
    }
}
