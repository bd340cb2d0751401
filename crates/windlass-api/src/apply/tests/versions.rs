//! Owners that speak of several versions of a kind.

use serde_json::json;

use super::*;

/// A kind whose field `spec.host` is called `spec.hostname` in v2.
struct Renaming {
    v1: Schema,
    v2: Schema,
}

impl Renaming {
    fn new() -> Self {
        let schema = |field| {
            let spec = object_schema([(field, scalar(Type::String)), ("extra", scalar(Type::String))]);
            object_schema([("spec", spec)])
        };
        Self { v1: schema("host"), v2: schema("hostname") }
    }
}

impl Versions for Renaming {
    fn convert<'v, 'o>(&'v self, object: &'o Value, api_version: &str) -> Converted<'o, 'v> {
        let (schema, from, to) = match api_version {
            "e.com/v1" => (&self.v1, "hostname", "host"),
            "e.com/v2" => (&self.v2, "host", "hostname"),
            "e.com/v3" => return Err(Unconvertible::NoSuchVersion),
            other => return Err(Unconvertible::Failed(Box::new(Status::unclassified(format!("no {other}"))))),
        };
        let mut object = object.clone();
        object["apiVersion"] = api_version.into();
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
            && let Some(value) = spec.remove(from)
        {
            spec.insert(to.to_owned(), value);
        }
        Ok((Cow::Owned(object), schema))
    }
}

/// One object of the kind, written at one version or the other.
struct Host<'v> {
    versions: &'v Renaming,
    stored: Stored<'v>,
}

impl<'v> Host<'v> {
    fn new(versions: &'v Renaming) -> Self {
        Self { versions, stored: Stored::new(&versions.v1, "e.com/v1", "Host") }
    }

    /// Moves on to a version.
    fn at(&mut self, api_version: &'static str) -> &mut Self {
        if let Some(live) = self.stored.live.take() {
            let owners = live["metadata"]["managedFields"].clone();
            let (live, _) = self.versions.convert(&live, api_version).unwrap();
            let mut live = live.into_owned();
            live["metadata"]["managedFields"] = owners;
            self.stored.live = Some(live);
        }
        self.stored.api_version = api_version;
        self.stored.schema = if api_version == "e.com/v1" { &self.versions.v1 } else { &self.versions.v2 };
        self
    }

    fn apply(&mut self, name: &'static str, spec: &Value, force: bool) -> Result<Value, Status> {
        let who = Manager { versions: self.versions, ..self.stored.manager(name, "") };
        self.stored.try_apply(&who, &json!({"spec": spec}), force).map(|object| object["spec"].clone())
    }

    fn owners(&self) -> Vec<(String, Value)> {
        let name = |who: String| who.split(' ').next().unwrap().to_owned();
        self.stored.owners().into_iter().map(|(who, set)| (name(who), set["f:spec"].clone())).collect()
    }
}

#[test]
fn a_conflict_is_told_in_the_owners_version() {
    let versions = Renaming::new();
    let mut host = Host::new(&versions);
    host.apply("m1", &json!({"host": "x", "extra": "e"}), false).unwrap();
    let refused = host.at("e.com/v2").apply("m2", &json!({"hostname": "y"}), false).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"m1\": .spec.host");
    let spec = host.apply("m2", &json!({"hostname": "y"}), true).unwrap();
    assert_eq!(spec, json!({"hostname": "y", "extra": "e"}));
    assert_eq!(
        host.owners(),
        [("m1".to_owned(), json!({"f:extra": {}})), ("m2".to_owned(), json!({"f:hostname": {}}))]
    );
}

#[test]
fn what_another_owns_under_another_name_stays() {
    let versions = Renaming::new();
    let mut host = Host::new(&versions);
    host.apply("m1", &json!({"host": "x", "extra": "e"}), false).unwrap();
    host.at("e.com/v2").apply("m2", &json!({"hostname": "x"}), false).unwrap();
    assert_eq!(host.at("e.com/v1").apply("m1", &json!({"extra": "e"}), false).unwrap()["host"], "x");
    // ... until no manager does.
    let spec = host.at("e.com/v2").apply("m2", &json!({}), false).unwrap();
    assert_eq!(spec, json!({"extra": "e"}));
    assert_eq!(host.owners()[0], ("m1".to_owned(), json!({"f:extra": {}})));
}

#[test]
fn appliers_give_up_fields_of_their_old_version() {
    let versions = Renaming::new();
    let mut host = Host::new(&versions);
    host.apply("m1", &json!({"host": "x", "extra": "e"}), false).unwrap();
    let spec = host.at("e.com/v2").apply("m1", &json!({"hostname": "x"}), false).unwrap();
    assert_eq!(spec, json!({"hostname": "x"}));
    assert_eq!(host.owners(), [("m1".to_owned(), json!({"f:hostname": {}}))]);
}

#[test]
fn an_update_takes_from_owners_in_their_version() {
    let versions = Renaming::new();
    let mut host = Host::new(&versions);
    host.apply("m1", &json!({"host": "x", "extra": "e"}), false).unwrap();
    host.at("e.com/v2");
    let mut new = host.stored.live.clone().unwrap();
    new["spec"]["hostname"] = json!("y");
    let who = Manager { versions: &versions, ..host.stored.manager("m2", "") };
    update(host.stored.schema, host.stored.live.as_ref(), &mut new, &who, Timestamp::UNIX_EPOCH);
    host.stored.live = Some(new);
    assert_eq!(
        host.owners(),
        [("m1".to_owned(), json!({"f:extra": {}})), ("m2".to_owned(), json!({"f:hostname": {}}))]
    );
}

#[test]
fn unreadable_owners_fail_applies_and_not_updates() {
    let versions = Renaming::new();
    let mut host = Host::new(&versions);
    host.apply("m1", &json!({"host": "x"}), false).unwrap();
    host.stored.live.as_mut().unwrap()["metadata"]["managedFields"][0]["apiVersion"] = json!("e.com/v9");
    assert_eq!(host.apply("m2", &json!({"extra": "e"}), false).unwrap_err().message, "no e.com/v9");
    let mut new = host.stored.live.clone().unwrap();
    new["spec"]["extra"] = json!("e");
    let who = Manager { versions: &versions, ..host.stored.manager("m2", "") };
    update(host.stored.schema, host.stored.live.as_ref(), &mut new, &who, Timestamp::UNIX_EPOCH);
    assert_eq!(new["metadata"].get("managedFields"), None);
    // A kind that drops versions for good just loses what was said in them.
    host.stored.live.as_mut().unwrap()["metadata"]["managedFields"][0]["apiVersion"] = json!("e.com/v3");
    host.apply("m2", &json!({"extra": "e"}), false).unwrap();
    assert_eq!(host.owners(), [("m2".to_owned(), json!({"f:extra": {}}))]);
}
