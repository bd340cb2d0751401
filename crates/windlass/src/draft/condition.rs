//! Conditions of an object of any type, through its JSON: the list is found by its place, not by a trait.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::Draft;
use crate::conditions::{self, ConditionStatus, NewCondition};
use crate::decode::strictly;
use crate::object::Object;

impl<K: Object> Draft<K> {
    /// Sets a condition in `status.conditions`, whatever type the status is of. `reason` is one `CamelCase` word for
    /// machines, `message` is for people.
    ///
    /// The condition is marked as observed for the generation of the object that was read. The transition time moves
    /// only when the status does, so that setting the same again is no change and [commits](Self::commit) nothing.
    /// Other fields of a condition that is there stay, and fields that its type does not have are left out.
    ///
    /// Returns whether the condition changes: it was not there, or had another status or reason. That is the moment
    /// for an event. Another message or generation alone is committed, too, but is no change in this sense.
    ///
    /// A status that is missing is made. If the type has no place for conditions, or the status has other fields that
    /// must be set first, committing fails with [`ClientError::Condition`](crate::client::ClientError::Condition)
    /// and sends nothing.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use windlass::{Context, Outcome};
    /// use windlass::conditions::ConditionStatus;
    ///
    /// async fn reconcile(shop: Arc<Deployment>, ctx: Context) -> windlass::Result {
    ///     let mut draft = ctx.draft(&shop);
    ///     if draft.condition("Ready", true, "Stored", "the shop is open") {
    ///         ctx.recorder().normal(&shop, "Stored", "the shop is open");
    ///     }
    ///     draft.condition("Audited", ConditionStatus::Unknown, "NoAnswer", "the auditor was not reached");
    ///     draft.commit(&ctx).await?;
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    pub fn condition(
        &mut self,
        type_: impl Into<String>,
        status: impl Into<ConditionStatus>,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> bool {
        let condition = conditions::new(type_, status, reason, message).observed(self.base.meta().generation);
        match with_condition(&self.object, &condition, Timestamp::now()) {
            Ok(Some((object, changes))) => {
                self.object = object;
                changes
            }
            Ok(None) => false,
            Err(reason) => {
                self.refused.get_or_insert(Refused { condition: condition.type_, reason });
                false
            }
        }
    }
}

/// A condition that could not be set.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) condition: String,
    pub(super) reason: String,
}

/// The object with a condition, and whether that has another status or reason than before; `None` if the object has the
/// condition already. The error says why it cannot have one.
fn with_condition<K: Object>(
    object: &K,
    condition: &NewCondition,
    now: Timestamp,
) -> Result<Option<(K, bool)>, String> {
    let mut json = serde_json::to_value(object).map_err(|error| error.to_string())?;
    let list = json["status"]["conditions"].as_array();
    let before = list.and_then(|list| list.iter().find(|known| known["type"] == condition.type_));
    let changes = before.is_none_or(|before| {
        before["status"] != condition.status.as_str() || before["reason"] != condition.reason.as_str()
    });
    if !set(&mut json, condition, now)? {
        return Ok(None);
    }
    let changed: K = strictly(&json).map_err(|error| format!("the status cannot be made: {error}"))?;
    // A type that does not know of conditions leaves them out.
    let shown = serde_json::to_value(&changed).map_err(|error| error.to_string())?;
    let is_set = |known: &Value| known["type"] == condition.type_ && known["status"] == condition.status.as_str();
    let list = shown["status"]["conditions"].as_array();
    if list.is_some_and(|list| list.iter().any(is_set)) {
        Ok(Some((changed, changes)))
    } else {
        Err("its type has no list `status.conditions`".to_owned())
    }
}

/// Sets a condition in an object's JSON. False if that changes nothing.
fn set(object: &mut Value, condition: &NewCondition, now: Timestamp) -> Result<bool, String> {
    let fields = object.as_object_mut().ok_or("it is not an object")?;
    let status = fields.entry("status").or_insert(Value::Null);
    if status.is_null() {
        *status = json!({});
    }
    let list = status.as_object_mut().ok_or("its status is not an object")?.entry("conditions").or_insert(Value::Null);
    if list.is_null() {
        *list = json!([]);
    }
    let list = list.as_array_mut().ok_or("`status.conditions` is not a list")?;
    let mut wanted = Map::from_iter([
        ("status".to_owned(), json!(condition.status.as_str())),
        ("reason".to_owned(), json!(condition.reason)),
        ("message".to_owned(), json!(condition.message)),
    ]);
    wanted.extend(condition.observed_generation.map(|generation| ("observedGeneration".to_owned(), json!(generation))));
    let known = list.iter_mut().find(|known| known["type"] == condition.type_);
    if let Some(known) = known.as_ref().and_then(|known| known.as_object())
        && wanted.iter().all(|(field, value)| known.get(field) == Some(value))
    {
        return Ok(false);
    }
    if known.as_ref().is_none_or(|known| known["status"] != wanted["status"]) {
        wanted.insert("lastTransitionTime".to_owned(), json!(Time(now)));
    }
    if let Some(Value::Object(known)) = known {
        known.extend(wanted);
    } else {
        wanted.insert("type".to_owned(), json!(condition.type_));
        list.push(Value::Object(wanted));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};
    use kube::api::DynamicObject;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn time(second: i64) -> Value {
        json!(Time(at(second)))
    }

    #[test]
    fn the_transition_time_moves_with_the_status_only() {
        let mut object = json!({"metadata": {}, "status": null});
        let mut apply = |condition: NewCondition, second| {
            let changed = set(&mut object, &condition, at(second)).unwrap();
            (changed, object["status"]["conditions"].clone())
        };
        let ready = |status: bool, message: &str| conditions::new("Ready", status, "Stored", message).observed(3);
        let expected = |status: &str, message: &str, second| {
            json!([{
                "type": "Ready", "status": status, "reason": "Stored", "message": message,
                "observedGeneration": 3, "lastTransitionTime": time(second),
            }])
        };
        assert_eq!(apply(ready(false, "a"), 1), (true, expected("False", "a", 1)));
        assert_eq!(apply(ready(false, "a"), 2), (false, expected("False", "a", 1)));
        assert_eq!(apply(ready(false, "b"), 3), (true, expected("False", "b", 1)));
        assert_eq!(apply(ready(true, "b"), 4), (true, expected("True", "b", 4)));
        let (_, list) = apply(conditions::unknown("Audited", "NoAnswer", ""), 5);
        assert_eq!(list[0], expected("True", "b", 4)[0], "another is left alone");
        let audited = json!({
            "type": "Audited", "status": "Unknown", "reason": "NoAnswer", "message": "", "lastTransitionTime": time(5),
        });
        assert_eq!(list[1], audited);
    }

    #[test]
    fn other_fields_of_a_condition_stay() {
        let heartbeat = json!({
            "type": "Ready", "status": "True", "lastHeartbeatTime": time(1), "lastTransitionTime": time(1),
        });
        let mut node = Node::default();
        node.metadata.generation = Some(1);
        node.status = serde_json::from_value(json!({"conditions": [heartbeat]})).unwrap();
        let lost = conditions::new("Ready", false, "Lost", "no answer").observed(1);
        let (node, _) = with_condition(&node, &lost, at(2)).unwrap().unwrap();
        let condition = &node.status.unwrap().conditions.unwrap()[0];
        assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("False", Some("Lost")));
        assert_eq!(condition.last_heartbeat_time, Some(Time(at(1))));
        assert_eq!(condition.last_transition_time, Some(Time(at(2))));
    }

    #[test]
    fn types_with_and_without_conditions_are_told_apart() {
        let ready = conditions::new("Ready", true, "Stored", "");
        let (deployment, _) = with_condition(&Deployment::default(), &ready, at(1)).unwrap().unwrap();
        assert_eq!(deployment.status.unwrap().conditions.unwrap()[0].type_, "Ready");
        let dynamic: DynamicObject = serde_json::from_value(json!({"metadata": {}})).unwrap();
        let (dynamic, _) = with_condition(&dynamic, &ready, at(1)).unwrap().unwrap();
        assert_eq!(dynamic.data["status"]["conditions"][0]["status"], "True");
        let none = with_condition(&ConfigMap::default(), &ready, at(1)).map(drop);
        assert_eq!(none, Err("its type has no list `status.conditions`".to_owned()));
        let text: DynamicObject = serde_json::from_value(json!({"metadata": {}, "status": "fine"})).unwrap();
        assert_eq!(with_condition(&text, &ready, at(1)).map(drop), Err("its status is not an object".to_owned()));
    }

    #[test]
    fn a_change_of_status_or_reason_is_told() {
        let mut draft = Draft::new(Arc::new(Deployment::default()));
        assert!(draft.condition("Ready", false, "RollingOut", "0 of 2"), "it was not there");
        assert!(!draft.condition("Ready", false, "RollingOut", "0 of 2"));
        assert!(!draft.condition("Ready", false, "RollingOut", "1 of 2"), "another message");
        let list = draft.status.as_ref().unwrap().conditions.as_ref().unwrap();
        assert_eq!(list[0].message.as_deref(), Some("1 of 2"));
        assert!(draft.condition("Ready", false, "Paused", "1 of 2"), "another reason");
        assert!(draft.condition("Ready", true, "Paused", "1 of 2"), "another status");
        let mut none = Draft::new(Arc::new(ConfigMap::default()));
        assert!(!none.condition("Ready", true, "Stored", ""), "the type has no conditions");
    }

    /// A status with a field that must be there.
    #[derive(kube::CustomResource, Clone, Debug, serde::Serialize, serde::Deserialize)]
    #[kube(group = "example.com", version = "v1", kind = "Strict", status = "StrictStatus", schema = "disabled")]
    struct StrictSpec {}

    #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
    struct StrictStatus {
        id: String,
        #[serde(default)]
        conditions: Vec<conditions::Condition>,
    }

    #[test]
    fn a_status_that_must_be_made_first_is_said() {
        let mut draft = Draft::new(Arc::new(Strict::new("x", StrictSpec {})));
        draft.condition("Ready", true, "Stored", "");
        let Refused { condition, reason } = draft.refused.unwrap();
        assert_eq!(condition, "Ready");
        assert!(reason.contains("the status cannot be made: missing field `id`"), "{reason}");
        let mut draft = Draft::new(Arc::new(Strict::new("x", StrictSpec {})));
        draft.status = Some(StrictStatus { id: "7".into(), conditions: Vec::new() });
        assert!(draft.condition("Ready", true, "Stored", ""));
        assert!(draft.condition("Fed", false, "Hungry", ""));
        assert!(draft.refused.is_none());
        assert_eq!(draft.status.as_ref().unwrap().conditions.len(), 2);
    }
}
