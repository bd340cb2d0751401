//! The scale subresource of a custom resource: an `autoscaling/v1` Scale made from fields that the
//! CRD names.

use serde_json::{Map, Value, json};

use crate::field::{FieldError, FieldErrors, Path, quote};
use crate::patch::{go_print, go_type};
use crate::validation::access::Access;

/// Where a version keeps what a Scale shows, as dotted paths with a leading dot.
#[derive(Clone, Debug)]
pub struct ScalePaths {
    /// The desired number, e.g. `.spec.replicas`.
    pub spec_replicas: Box<str>,
    /// The observed number, e.g. `.status.replicas`.
    pub status_replicas: Box<str>,
    /// The selector of the pods, as text.
    pub label_selector: Option<Box<str>>,
}

/// A Scale, and whether the object says how many replicas it wants.
#[derive(Clone, Debug)]
pub struct Scale {
    /// The `autoscaling/v1` object.
    pub object: Value,
    /// Whether the field with the desired number is there.
    pub found: bool,
}

impl ScalePaths {
    /// Reads `subresources.scale` of a CRD's version.
    pub(crate) fn new(scale: &Value) -> Self {
        Self {
            spec_replicas: scale.text("specReplicasPath").into(),
            status_replicas: scale.text("statusReplicasPath").into(),
            label_selector: scale.text_opt("labelSelectorPath").filter(|path| !path.is_empty()).map(Into::into),
        }
    }

    /// The numbers that are written as floats, and where.
    pub(super) fn floats(&self, object: &Value) -> Vec<(Box<str>, Value)> {
        let float = |path: &str| {
            let value = nested(object, path).ok().flatten()?;
            value.is_f64().then(|| (path.into(), value.clone()))
        };
        [&*self.spec_replicas, &*self.status_replicas].into_iter().filter_map(float).collect()
    }

    /// The Scale of an object. Fails if a field has the wrong type.
    pub fn get(&self, object: &Value) -> Result<Scale, String> {
        let desired = nested_int(object, &self.spec_replicas)?;
        let observed = nested_int(object, &self.status_replicas)?.unwrap_or(0);
        let selector = match &self.label_selector {
            Some(path) => nested_text(object, path)?.unwrap_or_default(),
            None => "",
        };
        let mut metadata = Map::new();
        for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(value) = object.at("metadata").get(name) {
                metadata.insert(name.into(), value.clone());
            }
        }
        let mut status = json!({"replicas": observed as i32});
        if !selector.is_empty() {
            status["selector"] = selector.into();
        }
        let mut spec = Map::new();
        if let Some(replicas) = desired.map(|replicas| replicas as i32).filter(|replicas| *replicas != 0) {
            spec.insert("replicas".into(), replicas.into());
        }
        let object = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": spec, "status": status});
        Ok(Scale { object, found: desired.is_some() })
    }

    /// What a GET of the Scale of an object without the field fails with.
    pub fn missing(&self) -> String {
        format!("the spec replicas field {} does not exist", quote(&self.spec_replicas))
    }

    /// What an update that leaves the number out fails with, if the object has none either.
    pub fn cannot_be_empty(&self) -> String {
        format!("the spec replicas field {} cannot be empty", quote(&self.spec_replicas))
    }

    /// Sets the desired number. Fails if something on the way is not an object.
    pub fn set(&self, object: &mut Value, replicas: i64) -> Result<(), String> {
        let steps: Vec<&str> = steps(&self.spec_replicas).collect();
        let mut at = object;
        for (depth, step) in steps.iter().enumerate() {
            let Value::Object(map) = at else {
                let reached = steps[..depth].join(".");
                return Err(format!("value cannot be set because .{reached} is not a map[string]interface{{}}"));
            };
            at = map.entry(*step).or_insert_with(|| Value::Object(Map::new()));
        }
        *at = replicas.into();
        Ok(())
    }

    /// The names of the fields that lead to the desired number.
    pub fn replicas_path(&self) -> Vec<&str> {
        steps(&self.spec_replicas).collect()
    }

    /// Checks the desired number of an object that is written.
    pub(crate) fn validate_spec(&self, object: &Value, errors: &mut FieldErrors) {
        replicas_in_range(object, &self.spec_replicas, errors);
    }

    /// Checks the observed number and the selector of an object that is written.
    pub(crate) fn validate_status(&self, object: &Value, errors: &mut FieldErrors) {
        replicas_in_range(object, &self.status_replicas, errors);
        if let Some(path) = &self.label_selector
            && let Err(problem) = nested_text(object, path)
        {
            errors.push(FieldError::invalid(&Path::new(path), "", problem));
        }
    }
}

/// Replaces the value at a path, if there still is one.
pub(super) fn replace(object: &mut Value, path: &str, value: Value) {
    if let Some(at) = steps(path).try_fold(object, |at, step| at.get_mut(step)) {
        *at = value;
    }
}

fn replicas_in_range(object: &Value, path: &str, errors: &mut FieldErrors) {
    let (value, problem) = match nested_int(object, path) {
        Err(problem) => (0, problem),
        Ok(Some(value)) if value < 0 => (value, "should be a non-negative integer".to_owned()),
        Ok(Some(value)) if value > i64::from(i32::MAX) => {
            (value, format!("should be less than or equal to {}", i32::MAX))
        }
        Ok(_) => return,
    };
    errors.push(FieldError::invalid(&Path::new(path), value, problem));
}

fn steps(path: &str) -> impl Iterator<Item = &str> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

fn nested<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut at = object;
    for (depth, step) in steps(path).enumerate() {
        match at {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(step) {
                Some(below) => at = below,
                None => return Ok(None),
            },
            other => {
                let reached: Vec<&str> = steps(path).take(depth + 1).collect();
                return Err(wrong_type(other, &reached.join("."), "map[string]interface{}"));
            }
        }
    }
    Ok(Some(at))
}

fn nested_int(object: &Value, path: &str) -> Result<Option<i64>, String> {
    let Some(value) = nested(object, path)? else { return Ok(None) };
    value.as_i64().map(Some).ok_or_else(|| wrong_type(value, path, "int64"))
}

fn nested_text<'a>(object: &'a Value, path: &str) -> Result<Option<&'a str>, String> {
    let Some(value) = nested(object, path)? else { return Ok(None) };
    value.as_str().map(Some).ok_or_else(|| wrong_type(value, path, "string"))
}

fn wrong_type(value: &Value, path: &str, expected: &str) -> String {
    let (mut shown, ty) = (String::new(), go_type(value));
    go_print(value, &mut shown);
    let path = path.strip_prefix('.').unwrap_or(path);
    format!(".{path} accessor error: {shown} is of the type {ty}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> ScalePaths {
        ScalePaths::new(&json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector"}))
    }

    #[test]
    fn a_scale_shows_the_fields_the_crd_names() {
        let object = json!({"metadata": {"name": "a", "namespace": "n", "labels": {"x": "y"}},
            "spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "a=b"}});
        let scale = paths().get(&object).expect("well-formed");
        assert!(scale.found);
        let expected = json!({"kind": "Scale", "apiVersion": "autoscaling/v1",
            "metadata": {"name": "a", "namespace": "n"}, "spec": {"replicas": 3},
            "status": {"replicas": 2, "selector": "a=b"}});
        assert_eq!(scale.object, expected);
        assert!(!paths().get(&json!({})).expect("well-formed").found);
    }

    #[test]
    fn setting_makes_the_objects_on_the_way() {
        let mut object = json!({});
        paths().set(&mut object, 5).expect("settable");
        assert_eq!(object, json!({"spec": {"replicas": 5}}));
        assert!(paths().set(&mut json!({"spec": 1}), 5).is_err());
    }

    #[test]
    fn replicas_must_be_a_sensible_number() {
        let mut errors = FieldErrors::default();
        paths().validate_spec(&json!({"spec": {"replicas": -1}}), &mut errors);
        paths().validate_status(&json!({"status": {"replicas": "x", "selector": 1}}), &mut errors);
        let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                ".spec.replicas: Invalid value: -1: should be a non-negative integer",
                ".status.replicas: Invalid value: 0: .status.replicas accessor error: x is of the type string, expected int64",
                r#".status.selector: Invalid value: "": .status.selector accessor error: 1 is of the type int64, expected string"#,
            ]
        );
    }
}
