//! Quotas: what a write would use, whether there is that much left, and the bill.
//!
//! ```text
//! namespace is marked? ▸ read its quotas ▸ what would the write use? ▸ does it fit? ▸ Charge
//! store.txn { the object, the usage of each quota as it was read + what the object uses }
//! ```
//!
//! The usage is written in the same transaction as the object, and only over the usage that was looked at:
//! two writes can never both get what is left, and a write that fails for another reason uses nothing. That
//! something was given back is noticed by the quota controller. Mirrors
//! `apiserver/pkg/admission/plugin/resourcequota`, where the usage is written first.

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::OwnedMutexGuard;
use windlass_store::{Entry, Expect, Range, Write};

use super::Act;
use crate::admission_config::AdmissionPlugin;
use crate::context::Context;
use crate::object;
use crate::quota::{Amounts, Deed, Evaluator, Scope, add, amounts};
use crate::status::{Qualified, Status};
use crate::stored;
use crate::validation::access::AccessMut as _;
use crate::validation::quantity::Quantity;

/// What a write takes from the quotas of its namespace.
#[derive(Default)]
#[must_use]
pub(crate) struct Charge {
    /// The quotas, with what they will say is used.
    writes: Vec<Write>,
    /// Writers in one namespace take turns: the quota can be changed by only one of them.
    _turn: Option<OwnedMutexGuard<()>>,
}

impl Charge {
    /// The writes that go with the object's own.
    pub(crate) fn writes(&self) -> impl Iterator<Item = Write> {
        self.writes.iter().cloned()
    }
}

/// What storing `object` takes from quotas; refused if that is more than is left.
pub(crate) async fn charge(
    context: &Context,
    act: Act<'_>,
    object: &Value,
    old: Option<&Value>,
) -> Result<Charge, Status> {
    let marks = &context.api.restrictions.quotas;
    let may_apply = context.served.namespaced && context.runs(AdmissionPlugin::ResourceQuota);
    if !may_apply || !marks.has(context.namespace()) {
        return Ok(Charge::default());
    }
    let Some(evaluator) = Evaluator::of(&context.served.group, &context.served.plural) else {
        return Ok(Charge::default());
    };
    let deed = match (act, old) {
        (Act::Create(_), _) => Deed::Create,
        (Act::Update(_), Some(old)) => Deed::Update { old, subresource: context.subresource() },
        _ => return Ok(Charge::default()),
    };
    if !evaluator.concerns(deed, object) {
        return Ok(Charge::default());
    }
    let request = Request { evaluator, deed, object, now: context.now };
    // Boxed: few writes are charged, and all would be as large as one that is.
    Box::pin(settle(context, request, act.dry_run())).await
}

/// Looks at the quotas of the namespace.
async fn settle(context: &Context, request: Request<'_>, dry_run: bool) -> Result<Charge, Status> {
    let marks = &context.api.restrictions.quotas;
    let turn = match marks.turn(context.namespace()) {
        Some(turn) if !dry_run => Some(turn.lock_owned().await),
        _ => None,
    };
    let prefix = format!("{}{}/", marks.prefix, context.namespace());
    let found = context.api.store.range(Range::prefix(prefix), None, 0).await.map_err(Status::internal)?;
    if found.entries.is_empty() {
        marks.clear(context.namespace(), found.revision);
        return Ok(Charge::default());
    }
    let refused = |why: String| Status::forbidden(context.qualified(), object::name(request.object), why);
    let mut writes = Vec::new();
    let mut quotas = found.entries.iter().map(Quota::read).collect::<Result<Vec<_>, Status>>()?;
    request.check_constraints(&quotas).map_err(refused)?;
    for quota in &mut quotas {
        if request.add_to(quota).map_err(refused)? {
            writes.push(quota.write());
        }
    }
    if writes.is_empty() || dry_run {
        return Ok(Charge::default());
    }
    Ok(Charge { writes, _turn: turn })
}

/// 409: quotas changed all the time.
pub(crate) fn contended(context: &Context) -> Status {
    let why = "the quotas of the namespace keep changing; please try again";
    Status::conflict(Qualified { group: "", name: "resourcequotas" }, context.namespace(), why)
}

/// A quota as it was read.
struct Quota<'a> {
    entry: &'a Entry,
    object: Value,
    name: String,
    scopes: Vec<Scope>,
    hard: Amounts,
    used: Amounts,
}

impl<'a> Quota<'a> {
    fn read(entry: &'a Entry) -> Result<Self, Status> {
        let object = stored::decode(&entry.value)?;
        // What counts is what the controller has made of the spec: before that, usage is not known.
        let status = object.get("status").unwrap_or(&Value::Null);
        let (hard, used) = (amounts(status, "hard"), amounts(status, "used"));
        Ok(Self { entry, name: object::name(&object).to_owned(), scopes: Scope::of(&object), hard, used, object })
    }

    fn write(&mut self) -> Write {
        let used: Map<String, Value> = self.used.iter().map(|(name, n)| (name.clone(), n.to_string().into())).collect();
        self.object.struct_mut("status").put("used", used);
        let value = stored::encode(&self.object);
        Write::Put { key: self.entry.key.clone(), expect: Expect::At(self.entry.modified), value }
    }
}

/// What is to be written, as far as quotas are concerned.
struct Request<'a> {
    evaluator: Evaluator,
    deed: Deed<'a>,
    object: &'a Value,
    now: Timestamp,
}

impl Request<'_> {
    /// The limits of a quota that are about the object; none if it is not in scope.
    fn restricted<'q>(&self, quota: &'q Quota<'_>, object: &Value) -> Vec<&'q str> {
        if !self.evaluator.is_in_scope(&quota.scopes, object) {
            return Vec::new();
        }
        quota.hard.keys().map(String::as_str).filter(|name| self.evaluator.measures(name)).collect()
    }

    /// Whether the object says what the quotas ask for, and the quotas know what is used.
    fn check_constraints(&self, quotas: &[Quota<'_>]) -> Result<(), String> {
        for quota in quotas {
            let restricted = self.restricted(quota, self.object);
            if let Some(why) = self.evaluator.refusal(&restricted, self.object) {
                return Err(format!("failed quota: {}: {why}", quota.name));
            }
            if restricted.iter().any(|name| !quota.used.contains_key(*name)) {
                return Err(format!("status unknown for quota: {}, resources: {}", quota.name, restricted.join(",")));
            }
        }
        let usage = self.evaluator.usage(self.object, self.now);
        let negative: Vec<&str> = usage.iter().filter(|(_, n)| n.sign() < 0).map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() && quotas.iter().any(|quota| !self.restricted(quota, self.object).is_empty()) {
            return Err(format!("quota usage is negative for resource(s): {}", negative.join(",")));
        }
        Ok(())
    }

    /// Adds what the object uses to what the quota says is used, if it fits. Returns whether that changed.
    fn add_to(&self, quota: &mut Quota<'_>) -> Result<bool, String> {
        if self.restricted(quota, self.object).is_empty() {
            return Ok(false);
        }
        let mut more = self.more(quota);
        more.retain(|name, amount| amount.sign() > 0 && quota.hard.contains_key(name));
        if more.is_empty() {
            return Ok(false);
        }
        let mut used = quota.used.clone();
        add(&mut used, more.clone());
        // What is already the case cannot be refused any more.
        let is_status = matches!(self.deed, Deed::Update { subresource: "status", .. });
        let exceeded: Vec<&str> =
            more.keys().map(String::as_str).filter(|name| used[*name] > quota.hard[*name]).collect();
        if !exceeded.is_empty() && !is_status {
            let show = |amounts: &Amounts| {
                let amount = |name: &&str| amounts.get(*name).copied().unwrap_or(Quantity::ZERO);
                let each: Vec<String> = exceeded.iter().map(|name| format!("{name}={}", amount(name))).collect();
                each.join(",")
            };
            return Err(format!(
                "exceeded quota: {}, requested: {}, used: {}, limited: {}",
                quota.name,
                show(&more),
                show(&quota.used),
                show(&quota.hard)
            ));
        }
        quota.used = used;
        Ok(true)
    }

    /// What the object uses more than before. One that the quota was not about before is new to it.
    fn more(&self, quota: &Quota<'_>) -> Amounts {
        let mut more = self.evaluator.usage(self.object, self.now);
        if let Deed::Update { old, .. } = self.deed
            && !self.restricted(quota, old).is_empty()
        {
            let before = self.evaluator.usage(old, self.now);
            for (name, amount) in &mut more {
                *amount = amount.minus(before.get(name).unwrap_or(&Quantity::ZERO));
            }
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry() -> Entry {
        Entry { key: "/registry/resourcequotas/n/q".into(), value: "{}".into(), created: 1, modified: 1 }
    }

    fn quota<'a>(entry: &'a Entry, scopes: &[&str], hard: &Value, used: &Value) -> Quota<'a> {
        let object =
            json!({"metadata": {"name": "q"}, "spec": {"scopes": scopes}, "status": {"hard": hard, "used": used}});
        let status = &object["status"];
        let (hard, used) = (amounts(status, "hard"), amounts(status, "used"));
        Quota { entry, name: "q".into(), scopes: Scope::of(&object), hard, used, object }
    }

    /// What a write makes of a quota: what is used then, or why it is refused.
    #[track_caller]
    fn check(quota: &mut Quota<'_>, plural: &str, object: &Value, old: Option<&Value>, expected: Result<Value, &str>) {
        let deed = old.map_or(Deed::Create, |old| Deed::Update { old, subresource: "" });
        let evaluator = Evaluator::of("", plural).expect("limited");
        let request = Request { evaluator, deed, object, now: Timestamp::UNIX_EPOCH };
        let checked = request.check_constraints(std::slice::from_ref(quota)).and_then(|()| request.add_to(quota));
        let used: Map<String, Value> =
            quota.used.iter().map(|(name, n)| (name.clone(), n.to_string().into())).collect();
        let outcome = checked.map(|_| Value::from(used));
        assert_eq!(outcome, expected.map_err(str::to_owned), "{object}");
    }

    fn pod(cpu: &str, deadline: Option<i64>) -> Value {
        json!({"spec": {"activeDeadlineSeconds": deadline,
                        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    #[test]
    fn what_fits_is_added() {
        let (entry, hard) = (entry(), json!({"requests.cpu": "2", "pods": "3", "secrets": "1"}));
        let used = json!({"requests.cpu": "500m", "pods": "1", "secrets": "1"});
        let mut quota = quota(&entry, &[], &hard, &used);
        let after = json!({"requests.cpu": "2", "pods": "2", "secrets": "1"});
        check(&mut quota, "pods", &pod("1500m", None), None, Ok(after));
        let refused = "exceeded quota: q, requested: requests.cpu=1m, used: requests.cpu=2, limited: requests.cpu=2";
        check(&mut quota, "pods", &pod("1m", None), None, Err(refused));
    }

    #[test]
    fn everything_that_is_exceeded_is_named() {
        let (entry, hard) =
            (entry(), json!({"services": "1", "services.nodeports": "1", "services.loadbalancers": "1"}));
        let used = json!({"services": "1", "services.nodeports": "0", "services.loadbalancers": "0"});
        let mut quota = quota(&entry, &[], &hard, &used);
        let service = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        let refused = "exceeded quota: q, requested: services=1,services.nodeports=2, used: services=1,\
                       services.nodeports=0, limited: services=1,services.nodeports=1";
        check(&mut quota, "services", &service, None, Err(refused));
    }

    #[test]
    fn only_what_is_added_by_an_update_is_charged() {
        let (entry, hard) = (entry(), json!({"requests.storage": "3Gi", "persistentvolumeclaims": "1"}));
        let used = json!({"requests.storage": "1Gi", "persistentvolumeclaims": "1"});
        let mut quota = quota(&entry, &[], &hard, &used);
        let claim = |storage: &str| json!({"spec": {"resources": {"requests": {"storage": storage}}}});
        let after = json!({"requests.storage": "3Gi", "persistentvolumeclaims": "1"});
        check(&mut quota, "persistentvolumeclaims", &claim("3Gi"), Some(&claim("1Gi")), Ok(after.clone()));
        check(&mut quota, "persistentvolumeclaims", &claim("1Gi"), Some(&claim("3Gi")), Ok(after));
        let refused = "exceeded quota: q, requested: requests.storage=1Gi, used: requests.storage=3Gi, limited: \
                       requests.storage=3Gi";
        check(&mut quota, "persistentvolumeclaims", &claim("4Gi"), Some(&claim("3Gi")), Err(refused));
    }

    #[test]
    fn a_pod_that_comes_into_scope_is_charged_in_full() {
        let (entry, hard, used) = (entry(), json!({"pods": "1"}), json!({"pods": "0"}));
        let mut terminating = quota(&entry, &["Terminating"], &hard, &used);
        check(&mut terminating, "pods", &pod("1", None), None, Ok(json!({"pods": "0"})));
        check(&mut terminating, "pods", &pod("1", Some(5)), Some(&pod("1", None)), Ok(json!({"pods": "1"})));
        let refused = "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1";
        check(&mut terminating, "pods", &pod("1", Some(5)), Some(&pod("1", None)), Err(refused));
    }

    #[test]
    fn usage_must_be_known_and_asked_for() {
        let (entry, hard) = (entry(), json!({"requests.cpu": "1", "pods": "1"}));
        let mut unknown = quota(&entry, &[], &hard, &json!({"pods": "0"}));
        let refused = "status unknown for quota: q, resources: pods,requests.cpu";
        check(&mut unknown, "pods", &pod("1", None), None, Err(refused));
        let mut known = quota(&entry, &[], &hard, &json!({"pods": "0", "requests.cpu": "0"}));
        let silent = json!({"spec": {"containers": [{"name": "c"}]}});
        check(&mut known, "pods", &silent, None, Err("failed quota: q: must specify requests.cpu for: c"));
        let mut fresh = quota(&entry, &[], &json!({}), &json!({}));
        check(&mut fresh, "pods", &silent, None, Ok(json!({})));
    }
}
