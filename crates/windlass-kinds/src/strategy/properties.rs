//! Properties that hold for every built-in kind, on arbitrary objects shaped by its schema:
//! defaulting is idempotent, and nothing panics whatever the values are.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::Strategy;
use crate::field::FieldErrors;
use crate::resource::{Resource, builtins};
use crate::schema::{Schema, Type};
use crate::strategy_of as of;

/// Strings that mean something somewhere, so that generated objects get past the first check.
const WORDS: &[&str] = &[
    "",
    "a",
    "Always",
    "Never",
    "None",
    "Indexed",
    "ClusterIP",
    "LoadBalancer",
    "ExternalName",
    "RollingUpdate",
    "Recreate",
    "ClientIP",
    "In",
    "Exists",
    "TCP",
    "10.0.0.1",
    "::1",
    "10.0.0.0/8",
    "x/y",
    "../..",
    "1,3-5",
    "é",
    "a.b.c",
    "-",
    "50%",
    "*/5 * * * *",
    "Container",
    "Queue",
    "Limited",
    "Localhost",
    "Resource",
    "cpu",
    "kubernetes.io/tls",
    "bm90IGpzb24=",
    "{",
];
const QUANTITIES: &[&str] = &["0", "1", "-1", "100m", "1Gi", "1.5", "1e3", "12345678901234567890E", "0.0001"];

/// A small deterministic generator: proptest chooses the seed and shrinks it.
struct Chooser(u64);

impl Chooser {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit.max(1)
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn value(&mut self, schema: &Schema, depth: usize) -> Value {
        match schema.ty {
            Type::String => match schema.enumeration.get(self.below(schema.enumeration.len() + 2)) {
                Some(value) => value.clone(),
                None => self.pick(WORDS).into(),
            },
            Type::Integer => [0_i64, 1, -1, 2, 80, 70_000, i64::MAX, i64::MIN][self.below(8)].into(),
            Type::Number => json!(1.5),
            Type::Boolean => (self.below(2) == 0).into(),
            Type::Quantity => self.pick(QUANTITIES).into(),
            Type::IntOrString => {
                if self.below(2) == 0 {
                    json!([0, 1, -1, 80][self.below(4)])
                } else {
                    self.pick(WORDS).into()
                }
            }
            Type::Array => {
                let length = if depth > 9 { 0 } else { self.below(3) };
                let item = schema.items.as_deref();
                (0..length).filter_map(|_| item.map(|item| self.value(item, depth + 1))).collect()
            }
            Type::Object | Type::Any => self.object(schema, depth),
        }
    }

    fn object(&mut self, schema: &Schema, depth: usize) -> Value {
        let mut map = Map::new();
        if depth > 9 {
            return Value::Object(map);
        }
        for (name, property) in &schema.properties {
            let wanted = schema.required.contains(name) || self.below(3) == 0 || depth < 2;
            if wanted && &**name != "managedFields" {
                map.insert(name.to_string(), self.value(property, depth + 1));
            }
        }
        if let Some(values) = schema.additional.as_deref() {
            for _ in 0..self.below(3) {
                let key = self.pick(WORDS).to_owned();
                let value = self.value(values, depth + 1);
                map.insert(key, value);
            }
        }
        Value::Object(map)
    }
}

fn stored() -> impl Iterator<Item = &'static Resource> {
    builtins().iter().filter(|resource| resource.serves("create") && resource.serves("get"))
}

fn exercise(resource: &Resource, strategy: &dyn Strategy, chooser: &mut Chooser) {
    let mut object = chooser.value(&resource.schema(), 0);
    let mut old = chooser.value(&resource.schema(), 0);
    for object in [&mut object, &mut old] {
        super::conversion::to_storage(&resource.group, &resource.version, &resource.kind, object);
        strategy.default(object);
        let once = object.clone();
        strategy.default(object);
        assert_eq!(*object, once, "defaulting {} twice", resource.kind);
    }
    strategy.prepare_create(&mut old);
    let mut errors = FieldErrors::default();
    strategy.validate(&old, &mut errors);
    let mut changed = object.clone();
    strategy.prepare_update(&mut changed, &old);
    strategy.validate_update(&changed, &old, &mut errors);
    let mut status = object.clone();
    strategy.prepare_status_update(&mut status, &old);
    strategy.validate_status_update(&status, &old, &mut errors);
    for subresource in resource.subresources.iter().filter(|sub| *sub.kind == *resource.kind) {
        let mut part = object.clone();
        strategy.prepare_subresource(&subresource.name, &mut part, &old);
        strategy.validate_subresource(&subresource.name, &part, &old, &mut errors);
    }
    let _ = strategy.desired_state_changed(&changed, &old);
    let _ = (strategy.warnings(&object, None), strategy.warnings(&object, Some(&old)));
    let _ = (strategy.expressions(&object), strategy.grace_period(&object, None));
    for field in strategy.selectable_fields() {
        let _ = strategy.field_value(&object, field);
    }
    strategy.canonicalize(&mut object);
    super::conversion::from_storage(&resource.group, &resource.version, &resource.kind, &mut object);
    let _ = super::scale::get(&object);
    let _ = errors.to_string();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_kind_survives_arbitrary_objects(seed in any::<u64>()) {
        let mut chooser = Chooser(seed);
        for resource in stored() {
            exercise(resource, of(&resource.group, &resource.kind), &mut chooser);
        }
    }
}

#[test]
fn empty_objects_are_checked_too() {
    for resource in stored() {
        let strategy = of(&resource.group, &resource.kind);
        let mut object = json!({});
        strategy.default(&mut object);
        strategy.prepare_create(&mut object);
        let mut errors = FieldErrors::default();
        strategy.validate(&object, &mut errors);
        strategy.validate_update(&object, &json!({}), &mut errors);
    }
}
