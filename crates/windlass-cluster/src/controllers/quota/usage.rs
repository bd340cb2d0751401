//! Counts what a quota limits, with the evaluators that admission uses too.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::jiff::Timestamp;
use windlass::client::options::ListOptions;
use windlass::{CachedClient, ReconcileError};
use windlass_api::validation::quantity::Quantity;
use windlass_kinds::quota::{Amounts, Evaluator, Scope, add};

use crate::controllers::discovery::discover;
use crate::controllers::metadata::Metadata;

/// How much is used of everything in `hard` that can be measured.
pub(super) async fn count(
    client: &CachedClient,
    quota: &ResourceQuota,
    hard: &BTreeMap<String, Text>,
) -> Result<BTreeMap<String, Text>, ReconcileError> {
    let namespace = quota.metadata.namespace.as_deref();
    let scopes = Scope::of(&serde_json::to_value(quota)?);
    let mut used = Amounts::new();
    let discovered = discover(client.kube()).await?;
    for ((plural, group), names) in by_resource(hard) {
        let Some(evaluator) = Evaluator::of(group, plural) else { continue };
        let mut served = discovered.preferred.iter().filter(|served| served.namespaced);
        let is_it = |served: &kube::api::ApiResource| served.plural == plural && served.group == group;
        let Some(served) = served.find(|served| is_it(&served.resource)) else { continue };
        let mut sum: Amounts = names.iter().map(|name| ((*name).to_owned(), Quantity::ZERO)).collect();
        let mut add_measured = |mut amounts: Amounts| {
            amounts.retain(|name, _| names.contains(&name.as_str()));
            add(&mut sum, amounts);
        };
        let (resource, now) = (served.resource.clone(), Timestamp::now());
        let all = ListOptions::new().namespace(namespace.unwrap_or_default());
        if !evaluator.counts_only() {
            for object in client.dynamic(&resource).live().list_with(all).await? {
                let object = serde_json::to_value(object)?;
                if evaluator.is_in_scope(&scopes, &object) {
                    add_measured(evaluator.usage(&object, now));
                }
            }
        } else if scopes.is_empty() {
            let listed = client.objects_of::<Metadata>(resource).live().list_with(all).await?;
            let number = Quantity::from_int(listed.len() as i64);
            add_measured(names.iter().map(|name| ((*name).to_owned(), number)).collect());
        }
        used.append(&mut sum);
    }
    Ok(used.into_iter().map(|(name, amount)| (name, Text(amount.to_string()))).collect())
}

/// What is limited, by the plural and group of the resource whose objects use it.
fn by_resource(hard: &BTreeMap<String, Text>) -> BTreeMap<(&str, &str), Vec<&str>> {
    let mut by_resource: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for name in hard.keys() {
        if let Some(resource) = Evaluator::measured(name) {
            by_resource.entry(resource).or_default().push(name);
        }
    }
    by_resource
}

/// Whether two lists say the same amounts, however they are written.
pub(super) fn same(a: Option<&BTreeMap<String, Text>>, b: &BTreeMap<String, Text>) -> bool {
    let same = |(name, text): (&String, &Text)| {
        b.get(name).is_some_and(|other| Quantity::parse(&text.0) == Quantity::parse(&other.0))
    };
    a.is_some_and(|a| a.len() == b.len() && a.iter().all(same))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(all: &[(&str, &str)]) -> BTreeMap<String, Text> {
        all.iter().map(|(name, text)| ((*name).to_owned(), Text((*text).to_owned()))).collect()
    }

    #[test]
    fn what_is_limited_is_listed_once_for_each_resource() {
        let hard =
            amounts(&[("pods", "1"), ("requests.cpu", "1"), ("count/a.b", "1"), ("secrets", "1"), ("storage", "1")]);
        let by_resource: Vec<_> = by_resource(&hard).into_iter().collect();
        let pods = (("pods", ""), vec!["pods", "requests.cpu"]);
        assert_eq!(by_resource, [(("a", "b"), vec!["count/a.b"]), pods, (("secrets", ""), vec!["secrets"])]);
    }

    #[test]
    fn amounts_are_compared_by_value() {
        let a = amounts(&[("memory", "1Gi")]);
        assert!(same(Some(&a), &amounts(&[("memory", "1024Mi")])));
        assert!(!same(Some(&a), &amounts(&[("memory", "1G")])));
        assert!(!same(Some(&a), &amounts(&[])));
        assert!(!same(None, &a));
    }
}
