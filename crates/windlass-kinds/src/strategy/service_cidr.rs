//! ServiceCIDR and IPAddress: where the addresses of services come from.

use std::collections::HashSet;

use serde_json::Value;

use super::{Strategy, keep_all_but_status, keep_metadata};
use crate::field::{FieldError, FieldErrors, Path};
use crate::validation::access::Access;
use crate::validation::{names, net, values};

/// The strategy of ServiceCIDRs.
pub(crate) struct ServiceCidr;

/// The strategy of IPAddresses.
pub(crate) struct IpAddress;

impl Strategy for ServiceCidr {
    fn prepare_status_update(&self, object: &mut Value, old: &Value) {
        keep_all_but_status(object, old);
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let spec = Path::new("spec");
        let path = spec.child("cidrs");
        let cidrs = object.at("spec").texts("cidrs");
        let shown = object.below(&["spec", "cidrs"]).clone();
        if cidrs.is_empty() {
            errors.push(FieldError::required(&path, "at least one CIDR required"));
        } else if cidrs.len() > 2 {
            errors.push(FieldError::invalid(&path, shown, "may only hold up to 2 values"));
        } else {
            for (i, cidr) in cidrs.iter().enumerate() {
                net::legacy_cidr(cidr, &HashSet::new(), &path.index(i), errors);
            }
            if cidrs.len() == 2 && cidrs[0].contains(':') == cidrs[1].contains(':') {
                let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
                errors.push(FieldError::invalid(&path, shown, detail));
            }
        }
    }

    /// A second family may be added; nothing else changes.
    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        let spec = Path::new("spec");
        let path = spec.child("cidrs");
        let (cidrs, before) = (object.at("spec").texts("cidrs"), old.at("spec").texts("cidrs"));
        if cidrs.len() == before.len() || (before.len() == 1 && cidrs.len() == 2) {
            for (i, (cidr, _)) in cidrs.iter().zip(&before).enumerate().filter(|(_, (new, old))| new != old) {
                errors.push(FieldError::invalid(&path.index(i), *cidr, values::IMMUTABLE));
            }
            if cidrs.len() > before.len() {
                self.validate(object, errors);
            }
        } else {
            let shown = object.below(&["spec", "cidrs"]).clone();
            errors.push(FieldError::invalid(&path, shown, values::IMMUTABLE));
        }
    }
}

impl Strategy for IpAddress {
    fn validate(&self, object: &Value, errors: &mut FieldErrors) {
        let metadata = Path::new("metadata");
        net::canonical_ip(object.at("metadata").text("name"), &metadata.child("name"), errors);
        let spec = Path::new("spec");
        let path = spec.child("parentRef");
        let parent = object.below(&["spec", "parentRef"]);
        if parent.is_null() {
            errors.push(FieldError::required(&path, ""));
            return;
        }
        let segment = |value: &str| names::path_segment(value, false);
        values::optional_text(parent, "group", names::subdomain, &path, errors);
        values::required_text(parent, "resource", segment, &path, errors);
        values::required_text(parent, "name", segment, &path, errors);
        values::optional_text(parent, "namespace", segment, &path, errors);
    }

    fn validate_update(&self, object: &Value, old: &Value, errors: &mut FieldErrors) {
        values::immutable(object.at("spec"), old.at("spec"), "parentRef", &Path::new("spec"), errors);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{create_errors, update_errors};
    use super::*;

    #[test]
    fn a_second_family_may_be_added() {
        let cidrs = |cidrs: Value| json!({"spec": {"cidrs": cidrs}});
        let old = cidrs(json!(["10.0.0.0/16"]));
        assert_eq!(create_errors(&ServiceCidr, &old), "[]");
        assert_eq!(update_errors(&ServiceCidr, &old, &cidrs(json!(["10.0.0.0/16", "2001:db8::/64"]))), "[]");
        assert_eq!(
            update_errors(&ServiceCidr, &old, &cidrs(json!(["10.1.0.0/16"]))),
            "spec.cidrs[0]: Invalid value: \"10.1.0.0/16\": field is immutable"
        );
    }

    #[test]
    fn an_address_is_named_after_itself() {
        let address = |name: &str| json!({"metadata": {"name": name}, "spec": {"parentRef": {"resource": "services", "name": "s"}}});
        assert_eq!(create_errors(&IpAddress, &address("10.0.0.1")), "[]");
        assert_eq!(
            create_errors(&IpAddress, &address("x")),
            "metadata.name: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
        );
    }
}
