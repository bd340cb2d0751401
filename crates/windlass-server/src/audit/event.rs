//! Events as they are written: `audit.k8s.io/v1` Event, with its fields in upstream's order.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};

use super::annotations::All;
use crate::user::User;
use crate::validation::access::Access as _;

/// One event.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Event<'a> {
    kind: &'static str,
    api_version: &'static str,
    pub(super) level: &'static str,
    #[serde(rename = "auditID")]
    pub(super) audit_id: &'a str,
    pub(super) stage: &'static str,
    #[serde(rename = "requestURI")]
    pub(super) request_uri: &'a str,
    pub(super) verb: &'a str,
    pub(super) user: UserInfo<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) impersonated_user: Option<UserInfo<'a>>,
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[String]>::is_empty")]
    pub(super) source_ips: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) user_agent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) object_ref: Option<&'a ObjectRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_status: Option<&'a ResponseStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_object: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) response_object: Option<&'a Value>,
    pub(super) request_received_timestamp: String,
    pub(super) stage_timestamp: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) annotations: &'a All,
}

impl<'a> Event<'a> {
    /// An event with nothing in it that may be left out.
    pub(super) fn new(audit_id: &'a str, user: UserInfo<'a>, annotations: &'a All) -> Self {
        Self {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: "",
            audit_id,
            stage: "",
            request_uri: "",
            verb: "",
            user,
            impersonated_user: None,
            source_ips: &[],
            user_agent: "",
            object_ref: None,
            response_status: None,
            request_object: None,
            response_object: None,
            request_received_timestamp: String::new(),
            stage_timestamp: String::new(),
            annotations,
        }
    }
}

/// A user.
#[derive(Serialize, Default)]
pub(super) struct UserInfo<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    uid: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: BTreeMap<&'a str, &'a [String]>,
}

impl<'a> From<&'a User> for UserInfo<'a> {
    fn from(user: &'a User) -> Self {
        let extra = user.extra.iter().map(|(key, values)| (key.as_str(), values.as_slice())).collect();
        Self { username: &user.name, uid: &user.uid, groups: &user.groups, extra }
    }
}

/// What a request was about.
#[derive(Serialize, Default, Clone, Debug)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectRef {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) api_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource_version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
}

impl ObjectRef {
    /// Completes it with what the object of the request says.
    pub(super) fn complete(&mut self, object: &Value) {
        let metadata = object.at("metadata");
        for (field, own) in [
            ("namespace", &mut self.namespace),
            ("name", &mut self.name),
            ("uid", &mut self.uid),
            ("resourceVersion", &mut self.resource_version),
        ] {
            if own.is_empty() {
                metadata.text(field).clone_into(own);
            }
        }
    }
}

/// A time as events have it: in microseconds.
pub(super) fn micro_time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// How a request went.
#[derive(Serialize, Clone, Debug)]
pub(super) struct ResponseStatus {
    metadata: Map<String, Value>,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    details: Value,
    code: u16,
}

impl ResponseStatus {
    /// What an answer says, whose body may be a Status.
    pub(super) fn new(code: u16, body: Option<&Value>) -> Self {
        let text = |field: &str| body.map(|body| body.text(field).to_owned()).unwrap_or_default();
        Self {
            metadata: Map::new(),
            status: text("status"),
            message: text("message"),
            reason: text("reason"),
            details: body.map(|body| body.at("details").clone()).unwrap_or_default(),
            code,
        }
    }
}

/// Takes the managed fields out of an object, of the items of a list, or of the rows of a table.
pub(super) fn drop_managed_fields(object: &mut Value) {
    let drop = |object: &mut Value| {
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            metadata.remove("managedFields");
        }
    };
    drop(object);
    for item in object.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        drop(item);
    }
    for row in object.get_mut("rows").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(object) = row.get_mut("object") {
            drop(object);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_in_upstreams_order_without_empty_ones() {
        let annotations = All::from([("authorization.k8s.io/decision".into(), "allow".to_owned())]);
        let user = User::new("jane", []);
        let mut event = Event::new("id", (&user).into(), &annotations);
        (event.level, event.stage, event.verb) = ("Metadata", "ResponseComplete", "get");
        let status = ResponseStatus::new(200, None);
        event.response_status = Some(&status);
        let text = serde_json::to_string(&event).expect("serialised");
        assert_eq!(
            text,
            "{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"Metadata\",\"auditID\":\"id\",\
             \"stage\":\"ResponseComplete\",\"requestURI\":\"\",\"verb\":\"get\",\
             \"user\":{\"username\":\"jane\",\"groups\":[\"system:authenticated\"]},\
             \"responseStatus\":{\"metadata\":{},\"code\":200},\"requestReceivedTimestamp\":\"\",\
             \"stageTimestamp\":\"\",\"annotations\":{\"authorization.k8s.io/decision\":\"allow\"}}"
        );
    }

    #[test]
    fn managed_fields_are_taken_out_of_objects_lists_and_tables() {
        let object = || json!({"metadata": {"name": "a", "managedFields": [{}]}});
        let bare = json!({"metadata": {"name": "a"}});
        let mut all = json!({"metadata": {}, "items": [object()], "rows": [{"object": object()}]});
        drop_managed_fields(&mut all);
        assert_eq!(all, json!({"metadata": {}, "items": [bare], "rows": [{"object": bare}]}));
        let mut one = object();
        drop_managed_fields(&mut one);
        assert_eq!(one, bare);
    }
}
