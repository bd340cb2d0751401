//! The IP families of a Service, on a cluster that has only IPv4.
//!
//! Upstream settles them before it looks at anything else, with what the cluster has
//! (`pkg/registry/core/service/storage/alloc.go`): what is wrong with them is told alone. Settling twice changes
//! nothing, so that preparation can ignore what validation reports.

use serde_json::Value;

use super::{checks, is_headless, needs_cluster_ip};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::{Access as _, AccessMut as _};
use crate::validation::net;

/// The family that the cluster has.
const CONFIGURED: &str = "IPv4";
const DUAL_STACK_NEEDED: &str = "must be 'RequireDualStack' or 'PreferDualStack' when multiple";

/// Fills in the policy and the families that a Service leaves to the cluster.
pub(super) fn settle(spec: &mut Value, old: Option<&Value>) -> Result<(), FieldErrors> {
    if !needs_cluster_ip(spec) || old.is_some_and(|old| still_prefers_dual_stack(spec, old)) {
        return Ok(());
    }
    let any_family =
        spec.text("clusterIP") == "None" && spec.at("selector").as_object().is_none_or(serde_json::Map::is_empty);
    if !spec.has("ipFamilyPolicy") {
        let before = old.and_then(|old| old.text_opt("ipFamilyPolicy"));
        let default = if any_family { "RequireDualStack" } else { "SingleStack" };
        spec.put("ipFamilyPolicy", before.unwrap_or(default));
    }
    let path = Path::new("spec");
    checked(|errors| checks::cluster_ips(spec, old, &path, errors))?;
    let mut errors = FieldErrors::default();
    if let Some(old) = old {
        release_second(spec, old, &path, &mut errors);
    }
    fits_policy(spec, &path, &mut errors);
    let families = infer(spec, &path, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    if let Some(families) = families {
        spec.put("ipFamilies", families);
    }
    if any_family {
        fill_with_any(spec);
        return Ok(());
    }
    checked(|errors| configured(spec, &path, errors))?;
    if spec.list("ipFamilies").is_empty() {
        spec.put("ipFamilies", vec![CONFIGURED]);
    }
    Ok(())
}

fn checked(check: impl FnOnce(&mut FieldErrors)) -> Result<(), FieldErrors> {
    let mut errors = FieldErrors::default();
    check(&mut errors);
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn policy_error(spec: &Value, path: &Path<'_>, detail: impl Into<String>) -> FieldError {
    FieldError::invalid(&path.child("ipFamilyPolicy"), spec.at("ipFamilyPolicy").clone(), detail)
}

fn is_single_stack(spec: &Value) -> bool {
    spec.text("ipFamilyPolicy") == "SingleStack"
}

/// A Service that takes what it gets keeps what it has, whatever became of the cluster.
fn still_prefers_dual_stack(spec: &Value, old: &Value) -> bool {
    let prefers = |spec: &Value| spec.text("ipFamilyPolicy") == "PreferDualStack";
    spec.text("type") == old.text("type")
        && ["ClusterIP", "NodePort", "LoadBalancer"].contains(&spec.text("type"))
        && prefers(spec)
        && (prefers(old) || !old.has("ipFamilyPolicy"))
        && ["clusterIPs", "ipFamilies"].iter().all(|field| spec.texts(field) == old.texts(field))
}

/// Asking for one family gives the second back; giving it back needs to be asked for.
fn release_second(spec: &mut Value, old: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for (field, one) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (new, before) = (spec.texts(field), old.texts(field));
        if is_single_stack(spec) {
            if new.len() > 1 && new == before {
                let first = new[0].to_owned();
                spec.put(field, vec![first]);
            }
        } else if !new.is_empty() && new.len() < before.len() {
            errors.push(policy_error(spec, path, format!("must be 'SingleStack' to release the secondary {one}")));
        }
    }
}

fn fits_policy(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    for (field, many) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if is_single_stack(spec) && spec.list(field).len() == 2 {
            errors.push(policy_error(spec, path, format!("{DUAL_STACK_NEEDED} {many} are specified")));
        }
    }
}

/// The families that follow from the addresses, if there are any.
fn infer(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) -> Option<Vec<String>> {
    if is_headless(spec) {
        return None;
    }
    let mut families: Vec<String> = spec.texts("ipFamilies").into_iter().map(str::to_owned).collect();
    for (i, ip) in spec.texts("clusterIPs").into_iter().enumerate() {
        let family = if net::is_ipv6(ip) { "IPv6" } else { CONFIGURED };
        if i < families.len() {
            continue;
        }
        if family == CONFIGURED {
            families.push(family.to_owned());
        } else {
            let detail = format!("{family} is not configured on this cluster");
            let ips = path.child("clusterIPs");
            errors.push(FieldError::invalid(&ips.index(i), spec.at("clusterIPs").clone(), detail));
        }
    }
    Some(families).filter(|families| !families.is_empty())
}

/// A headless Service without a selector may have endpoints of either family, whatever the cluster has.
fn fill_with_any(spec: &mut Value) {
    let first = spec.texts("ipFamilies").first().map_or(CONFIGURED, |family| *family).to_owned();
    if spec.list("ipFamilies").len() > 1 {
        return;
    }
    let other = if first == "IPv4" { "IPv6" } else { "IPv4" };
    if is_single_stack(spec) {
        spec.put("ipFamilies", vec![first]);
    } else {
        spec.put("ipFamilies", vec![first.as_str(), other]);
    }
}

/// What is asked for must be there.
fn configured(spec: &Value, path: &Path<'_>, errors: &mut FieldErrors) {
    if spec.text("ipFamilyPolicy") == "RequireDualStack" {
        errors.push(policy_error(spec, path, "this cluster is not configured for dual-stack services"));
    }
    let families = path.child("ipFamilies");
    for (i, family) in spec.texts("ipFamilies").into_iter().enumerate() {
        if family != CONFIGURED {
            errors.push(FieldError::invalid(&families.index(i), family, "not configured on this cluster"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value)]

    use serde_json::json;

    use super::super::super::testing::{create_errors, created, update_errors};
    use super::super::Service;
    use super::*;

    fn service(mut spec: Value) -> Value {
        spec.fill("ports", json!([{"port": 80}]));
        json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec})
    }

    #[test]
    fn new_services_get_only_what_the_cluster_has() {
        let check = |spec: Value, expected: &str| assert_eq!(create_errors(&Service, &service(spec)), expected);
        let missing = r#"spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster"#;
        let required = r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#;
        check(json!({"ipFamilies": ["IPv6"]}), missing);
        check(json!({"ipFamilies": ["IPv6"], "clusterIP": "None", "selector": {"a": "b"}}), missing);
        check(json!({"ipFamilies": ["IPv6"], "clusterIP": "None"}), "[]");
        check(json!({"ipFamilyPolicy": "PreferDualStack"}), "[]");
        check(json!({"ipFamilyPolicy": "RequireDualStack"}), required);
        check(json!({"ipFamilyPolicy": "RequireDualStack", "clusterIP": "None", "selector": {"a": "b"}}), required);
        let both = json!(["IPv4", "IPv6"]);
        let second = r#"spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster"#;
        check(json!({"ipFamilies": both, "ipFamilyPolicy": "PreferDualStack"}), second);
        check(json!({"ipFamilies": both, "ipFamilyPolicy": "RequireDualStack"}), &format!("[{required}, {second}]"));
        check(
            json!({"ipFamilies": both}),
            r#"spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"#,
        );
        check(
            json!({"clusterIP": "fd00::1"}),
            r#"spec.clusterIPs[0]: Invalid value: ["fd00::1"]: IPv6 is not configured on this cluster"#,
        );
        check(json!({"clusterIP": "fd00::1", "ipFamilies": ["IPv6"]}), missing);
        // What follows from the addresses is not kept where there is no family for one of them.
        check(
            json!({
                "clusterIP": "fd00::1",
                "clusterIPs": ["fd00::1", "10.96.0.50"],
                "ipFamilyPolicy": "PreferDualStack",
            }),
            r#"spec.clusterIPs[0]: Invalid value: ["fd00::1","10.96.0.50"]: IPv6 is not configured on this cluster"#,
        );
        // Nothing else is looked at.
        check(json!({"ipFamilies": ["IPv6"], "ports": [], "sessionAffinity": "Sometimes"}), missing);
        check(
            json!({"ipFamilies": ["IPv4", "IPv4"], "ipFamilyPolicy": "Both"}),
            r#"[spec.ipFamilies[1]: Duplicate value: "IPv4", spec.ipFamilyPolicy: Unsupported value: "Both": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"]"#,
        );
    }

    #[test]
    fn families_are_filled_in() {
        let check = |spec: Value, policy: &str, families: Value| {
            let made = created(&Service, &service(spec));
            assert_eq!((&made["spec"]["ipFamilyPolicy"], &made["spec"]["ipFamilies"]), (&json!(policy), &families));
        };
        check(json!({}), "SingleStack", json!(["IPv4"]));
        check(json!({"ipFamilyPolicy": "PreferDualStack"}), "PreferDualStack", json!(["IPv4"]));
        check(json!({"clusterIP": "None", "selector": {"a": "b"}}), "SingleStack", json!(["IPv4"]));
        check(json!({"clusterIP": "None"}), "RequireDualStack", json!(["IPv4", "IPv6"]));
        check(json!({"clusterIP": "None", "ipFamilies": ["IPv6"]}), "RequireDualStack", json!(["IPv6", "IPv4"]));
        check(json!({"clusterIP": "None", "ipFamilyPolicy": "SingleStack"}), "SingleStack", json!(["IPv4"]));
        check(
            json!({"clusterIP": "None", "ipFamilyPolicy": "PreferDualStack"}),
            "PreferDualStack",
            json!(["IPv4", "IPv6"]),
        );
    }

    #[test]
    fn changed_services_get_only_what_the_cluster_has() {
        let mut old = created(&Service, &service(json!({})));
        old["spec"]["clusterIP"] = "10.96.0.9".into();
        old["spec"]["clusterIPs"] = json!(["10.96.0.9"]);
        let check = |old: &Value, change: Value, expected: &str| {
            let mut new = old.clone();
            for (field, value) in change.as_object().expect("an object") {
                new["spec"].put(field, value.clone());
            }
            assert_eq!(update_errors(&Service, old, &new), expected);
        };
        check(
            &old,
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services"#,
        );
        check(
            &old,
            json!({"ipFamilies": ["IPv6"]}),
            r#"spec.clusterIPs[0]: Invalid value: "10.96.0.9": expected an IPv6 value as indicated by `ipFamilies[0]`"#,
        );
        check(
            &old,
            json!({"ipFamilies": ["IPv4", "IPv6"], "ipFamilyPolicy": "PreferDualStack"}),
            r#"spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster"#,
        );
        check(&old, json!({"ipFamilyPolicy": "PreferDualStack"}), "[]");

        let open = created(&Service, &service(json!({"clusterIP": "None"})));
        check(
            &open,
            json!({"selector": {"a": "b"}}),
            r#"[spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack services, spec.ipFamilies[1]: Invalid value: "IPv6": not configured on this cluster]"#,
        );
        check(&open, json!({"ipFamilyPolicy": "SingleStack", "selector": {"a": "b"}}), "[]");
        check(
            &open,
            json!({"ipFamilies": ["IPv4"]}),
            r#"spec.ipFamilyPolicy: Invalid value: "RequireDualStack": must be 'SingleStack' to release the secondary IP family"#,
        );
    }
}
