//! Invalid CRDs and how they are refused.

// Tables of `json!` literals read better by value.
#![allow(clippy::needless_pass_by_value)]

use serde_json::json;

use super::*;
use crate::crd::definition::Definition;
use crate::strategy::Strategy;

/// A valid CRD of one version whose `spec` has these properties.
fn crd(properties: Value) -> Value {
    let mut crd = json!({
        "metadata": {"name": "as.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "as", "kind": "A"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}}],
        },
    });
    Definition.default(&mut crd);
    Definition.prepare_create(&mut crd);
    crd
}

fn violations(crd: &Value) -> Vec<String> {
    let mut errors = FieldErrors::default();
    validate(crd, &mut errors);
    errors.0.iter().map(ToString::to_string).collect()
}

/// Checks a CRD that differs from a valid one in the value at `pointer`.
#[track_caller]
fn check(pointer: &str, value: Value, expected: &[&str]) {
    let mut crd = crd(json!({}));
    let (parent, field) = pointer.rsplit_once('/').expect("a JSON pointer");
    crd.pointer_mut(parent).expect("the parent exists")[field] = value;
    assert_eq!(violations(&crd), expected);
}

/// Checks a CRD by the schema of its field `spec.x`; paths are relative to it.
#[track_caller]
fn check_field(schema: Value, expected: &[&str]) {
    let prefix = "spec.validation.openAPIV3Schema.properties[spec].properties[x]";
    let found: Vec<String> =
        violations(&crd(json!({"x": schema}))).iter().map(|text| text.replace(prefix, "x")).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_plain_crd_is_valid() {
    assert_eq!(violations(&crd(json!({"a": {"type": "string"}}))), Vec::<String>::new());
}

#[test]
fn names_groups_and_versions() {
    check(
        "/metadata/name",
        json!("wrong"),
        &[r#"metadata.name: Invalid value: "wrong": must be spec.names.plural+"."+spec.group"#],
    );
    check(
        "/spec/scope",
        json!("Galaxy"),
        &[r#"spec.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespaced""#],
    );
    check(
        "/spec/names/listKind",
        json!("A"),
        &[r#"spec.names.listKind: Invalid value: "A": kind and listKind may not be the same"#],
    );
    let label = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
                 character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
                 validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
    check(
        "/spec/names/shortNames",
        json!(["Bad"]),
        &[&format!(r#"spec.names.shortNames[0]: Invalid value: "Bad": {label}"#)],
    );
    check(
        "/spec/versions/0/storage",
        json!(false),
        &["spec.versions: Invalid value: [{\"Name\":\"v1\",\"Served\":true,\"Storage\":false,\"Deprecated\":false,\
             \"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\
             \"SelectableFields\":null}]: must have exactly one version marked as storage version"],
    );
    check("/spec/versions/0/schema", Value::Null, &["spec.versions[0].schema.openAPIV3Schema: Required value"]);
    check(
        "/spec/preserveUnknownFields",
        json!(true),
        &["spec.preserveUnknownFields: Invalid value: true: cannot set to true, set \
           x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"],
    );
    check(
        "/spec/versions/0/deprecationWarning",
        json!("old"),
        &[r#"spec.versions[0].deprecationWarning: Invalid value: "old": can only be set for deprecated versions"#],
    );
}

#[test]
fn deprecation_warnings_can_be_printed() {
    let mut crd = crd(json!({}));
    crd["spec"]["versions"][0]["deprecated"] = json!(true);
    for (warning, index) in
        [("use v2, please: déjà vu ✓", None), ("a\u{a0}b", Some(1)), ("ab\u{200b}", Some(2)), ("\t", Some(0))]
    {
        crd["spec"]["versions"][0]["deprecationWarning"] = json!(warning);
        let problem = "must only contain printable UTF-8 characters; non-printable character found at index";
        let found = violations(&crd);
        assert_eq!(found.len(), usize::from(index.is_some()), "{warning}: {found:?}");
        assert!(
            found.iter().all(|found| index.is_some_and(|index: usize| found.ends_with(&format!("{problem} {index}"))))
        );
    }
}

#[test]
fn kubernetes_own_groups_need_approval() {
    let mut crd = crd(json!({}));
    crd["spec"]["group"] = json!("x.k8s.io");
    crd["metadata"]["name"] = json!("as.x.k8s.io");
    assert_eq!(
        violations(&crd),
        ["metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
          annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"]
    );
    for annotation in ["unapproved, for testing", "https://github.com/kubernetes/kubernetes/pull/1"] {
        crd["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": annotation});
        assert_eq!(violations(&crd), Vec::<String>::new());
    }
}

#[test]
fn structural_rules() {
    check_field(json!({}), &["x.type: Required value: must not be empty for specified object fields"]);
    check_field(
        json!({"type": "blob"}),
        &[
            r#"x.type: Unsupported value: "blob": supported values: "array", "boolean", "integer", "number", "object", "string""#,
        ],
    );
    check_field(json!({"type": "array"}), &["x.items: Required value: must be specified"]);
    check_field(
        json!({"type": "string", "oneOf": [{"type": "string", "description": "d"}]}),
        &[
            "x.oneOf[0].description: Forbidden: must be empty to be structural",
            "x.oneOf[0].type: Forbidden: must be empty to be structural",
        ],
    );
    check_field(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}), &[]);
    check_field(json!({"type": "object", "$ref": "#/x"}), &["x.$ref: Forbidden: $ref is not supported"]);
    check_field(
        json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
        &["x.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"],
    );
    check_field(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        &["x.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    );
    check_field(
        json!({"type": "string", "pattern": "("}),
        &[
            "x.pattern: Invalid value: \"(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing ): `(`",
        ],
    );
    check_field(
        json!({"type": "object", "x-kubernetes-embedded-resource": true}),
        &["x.properties: Required value: must not be empty if x-kubernetes-embedded-resource is true without \
           x-kubernetes-preserve-unknown-fields"],
    );
}

#[test]
fn the_root_and_its_metadata() {
    let root = "/spec/versions/0/schema/openAPIV3Schema";
    let at = "spec.validation.openAPIV3Schema";
    check(
        root,
        json!({"type": "string"}),
        &[&format!(r#"{at}.type: Invalid value: "string": must be object at the root"#)],
    );
    check(
        root,
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
        &[&format!(
            "{at}.properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
             metadata is implicitly specified"
        )],
    );
    check(
        root,
        json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}}}}}),
        &[],
    );
    check(
        root,
        json!({"type": "object", "anyOf": [{"properties": {"a": {"minimum": 1}}}]}),
        &[&format!("{at}.properties[a]: Required value: because it is defined in {at}.anyOf[0].properties[a]")],
    );
}

#[test]
fn defaults_must_fit() {
    check_field(json!({"type": "integer", "default": null}), &[]);
    check_field(
        json!({"type": "integer", "default": "str"}),
        &[r#"x.default: Invalid value: "string":  in body must be of type integer: "string""#],
    );
    check_field(
        json!({"type": "object", "default": {"unknown": 1}}),
        &[r#"x.default: Invalid value: {"unknown":1}: must not have unknown fields"#],
    );
}

#[test]
fn defaults_obey_their_rules() {
    let rule = json!([{"rule": "self > 5", "message": "too small"}]);
    check_field(
        json!({"type": "integer", "default": 3, "x-kubernetes-validations": rule}),
        &["x.default: Invalid value: 3: too small"],
    );
    // Rules below a default count too, at their path.
    let a = json!({"type": "integer", "x-kubernetes-validations": rule});
    check_field(
        json!({"type": "object", "properties": {"a": a}, "default": {"a": 3}}),
        &["x.default.a: Invalid value: 3: too small"],
    );
    check_field(json!({"type": "object", "properties": {"a": a}, "default": {"a": 6}}), &[]);
    // A default must do as a value that stays and as one that is new.
    let optional = |rule: &str| {
        json!({"type": "string", "maxLength": 9, "default": "x",
            "x-kubernetes-validations": [{"rule": rule, "optionalOldSelf": true}]})
    };
    check_field(optional("oldSelf.hasValue()"), &[r#"x.default: Invalid value: "x": failed rule: oldSelf.hasValue()"#]);
    check_field(optional("!oldSelf.hasValue() || oldSelf.value() == self"), &[]);
    // A rule that does not compile is reported by the default alone.
    check_field(
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "default": {},
            "x-kubernetes-validations": [{"rule": "self.b"}]}),
        &[
            "x.default: Invalid value: \"object\": rule compile error: compilation failed: ERROR: <input>:1:5: undefined field 'b'\n \
           | self.b\n | ....^",
        ],
    );
    check_field(
        json!({"type": "array", "items": {"type": "object", "properties": {"a": a}}, "default": [{"a": 1}, {"b": 2}]}),
        &[
            r#"x.default: Invalid value: [{"a":1},{"b":2}]: must not have unknown fields"#,
            "x.default[0].a: Invalid value: 1: too small",
        ],
    );
}

#[test]
fn defaults_of_embedded_resources_are_resources() {
    let embedded = |default: Value| {
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            "default": default})
    };
    check_field(
        embedded(json!({"metadata": {"name": "a"}})),
        &["x.default.apiVersion: Required value", "x.default.kind: Required value"],
    );
    check_field(
        embedded(json!({"apiVersion": "v1", "kind": "A", "metadata": {"labels": 3}})),
        &["x.default.metadata: Invalid value: {\"labels\":3}: json: cannot unmarshal number into Go struct field \
           ObjectMeta.labels of type map[string]string"],
    );
    check_field(embedded(json!({"apiVersion": "v1", "kind": "A", "metadata": {"unknown": 3}})), &[]);
    check_field(
        embedded(json!({"apiVersion": 1, "kind": "A"})),
        &["x.default.apiVersion: Invalid value: 1: must be a string"],
    );
}

#[test]
fn defaults_inside_metadata_result_in_metadata() {
    let embedded =
        |properties: Value| json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": properties});
    let metadata = |properties: Value| embedded(json!({"metadata": {"type": "object", "properties": properties}}));
    check_field(
        metadata(json!({"finalizers": {"type": "array", "items": {"type": "string"}, "default": ["a.b/c"]}})),
        &[],
    );
    check_field(
        metadata(json!({"name": {"type": "string", "default": "a/b"}})),
        &["x.properties[metadata].properties[name].default: Invalid value: \"a/b\": must result in valid metadata: \
           metadata.name: Invalid value: \"a/b\": may not contain '/'"],
    );
    check_field(
        metadata(json!({"labels": {"type": "integer", "default": 1}})),
        &[
            "x.properties[metadata].properties[labels].default: Invalid value: 1: must result in valid metadata: metadata: \
           Invalid value: {\"labels\":1}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type \
           map[string]string",
        ],
    );
    check_field(
        embedded(
            json!({"apiVersion": {"type": "string", "default": "a/b/c"}, "kind": {"type": "string", "default": ""}}),
        ),
        &[
            "x.properties[apiVersion].default: Invalid value: \"a/b/c\": must result in valid metadata: apiVersion: \
             Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
            "x.properties[kind].default: Invalid value: \"\": must result in valid metadata: kind: Invalid value: \"\": \
             must not be empty",
        ],
    );
    check_field(
        embedded(json!({"metadata": {"type": "object", "default": {"name": "a", "namespace": "B"}}})),
        &["x.properties[metadata].default: Invalid value: {\"name\":\"a\",\"namespace\":\"B\"}: must result in valid \
           metadata: metadata.namespace: Invalid value: \"B\": a lowercase RFC 1123 label must consist of lower case \
           alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
           '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"],
    );
}

#[test]
fn defaults_at_the_root_are_whole_objects() {
    let root = "/spec/versions/0/schema/openAPIV3Schema";
    let at = "spec.validation.openAPIV3Schema";
    let with =
        |default: Value| json!({"type": "object", "properties": {"spec": {"type": "object"}}, "default": default});
    check(
        root,
        with(json!({"spec": {}})),
        &[&format!("{at}.default.apiVersion: Required value"), &format!("{at}.default.kind: Required value")],
    );
    check(root, with(json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"x": 1}, "spec": {}})), &[]);
    check(
        root,
        with(json!({"apiVersion": "a/v1", "kind": "A", "status": {}})),
        &[&format!(
            "{at}.default: Invalid value: {{\"apiVersion\":\"a/v1\",\"kind\":\"A\",\"status\":{{}}}}: must not have unknown fields"
        )],
    );
    check(
        root,
        json!({"type": "object", "properties": {"metadata": {"type": "object", "default": {"name": 1}}}}),
        &[
            &format!(
                "{at}.properties[metadata].default: Invalid value: {{\"name\":1}}: must result in valid metadata: metadata: \
                 Invalid value: {{\"name\":1}}: json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"
            ),
            &format!("{at}.properties[metadata].default: Forbidden: must not be set in top-level metadata"),
        ],
    );
}

#[test]
fn list_and_map_types() {
    let item = json!({"type": "object", "properties": {"k": {"type": "string"}}});
    check_field(
        json!({"type": "array", "items": item, "x-kubernetes-list-type": "map"}),
        &["x.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map"],
    );
    check_field(
        json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}),
        &["x.items.properties[k].default: Required value: this property is in x-kubernetes-list-map-keys, so it must \
           have a default or be a required property"],
    );
    check_field(
        json!({"type": "array", "items": item, "x-kubernetes-list-type": "set"}),
        &["x.items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
           x-kubernetes-list-type=set"],
    );
    check_field(
        json!({"type": "string", "x-kubernetes-list-type": "odd"}),
        &[
            r#"x.type: Invalid value: "string": must be array if x-kubernetes-list-type is specified"#,
            r#"x.x-kubernetes-list-type: Unsupported value: "odd": supported values: "atomic", "set", "map""#,
        ],
    );
}

#[test]
fn rules_are_well_formed() {
    let at = "x.x-kubernetes-validations[0]";
    check_field(
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": " "}]}),
        &[&format!("{at}.rule: Required value: rule is not specified")],
    );
    check_field(
        json!({"type": "integer", "x-kubernetes-validations": [{"rule": "true", "reason": "Because", "fieldPath": ".nope"}]}),
        &[
            &format!(
                "{at}.reason: Unsupported value: \"Because\": supported values: \"FieldValueDuplicate\", \
                 \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\""
            ),
            &format!(r#"{at}.fieldPath: Invalid value: ".nope": must be a valid path"#),
        ],
    );
}

#[test]
fn rules_compile_and_have_types() {
    let rule = |schema: Value, rule: Value| {
        let mut schema = schema;
        schema["x-kubernetes-validations"] = json!([rule]);
        schema
    };
    let string = json!({"type": "string", "maxLength": 10});
    check_field(rule(string.clone(), json!({"rule": "self.size() > 1", "messageExpression": "'is ' + self"})), &[]);
    let at = "x.x-kubernetes-validations[0]";
    check_field(
        rule(string.clone(), json!({"rule": "self < 1"})),
        &[&format!(
            "{at}.rule: Invalid value: {{\"Rule\":\"self \\u003c 1\",\"Message\":\"\",\"MessageExpression\":\"\",\
             \"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}: compilation failed: ERROR: <input>:1:6: found no \
             matching overload for '_<_' applied to '(string, int)'\n | self < 1\n | .....^"
        )],
    );
    let shown = |rule: &str, message: &str, optional: &str| {
        format!(
            "Invalid value: {{\"Rule\":\"{rule}\",\"Message\":\"\",\"MessageExpression\":\"{message}\",\"Reason\":null,\
             \"FieldPath\":\"\",\"OptionalOldSelf\":{optional}}}"
        )
    };
    check_field(
        rule(string.clone(), json!({"rule": "self"})),
        &[&format!("{at}.rule: {}: cel expression must evaluate to a bool", shown("self", "", "null"))],
    );
    check_field(
        rule(string.clone(), json!({"rule": "true", "messageExpression": "1"})),
        &[&format!(
            "{at}.messageExpression: {}: messageExpression must evaluate to a string",
            shown("true", "1", "null")
        )],
    );
    check_field(
        rule(string.clone(), json!({"rule": "true", "optionalOldSelf": true})),
        &[&format!("{at}.optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule")],
    );
    let list = json!({"type": "array", "maxItems": 3, "items": rule(string, json!({"rule": "self == oldSelf"}))});
    check_field(
        list,
        &[
            "x.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the \
           uncorrelatable portion of the schema within x",
        ],
    );
}

/// Rules see what is around them, from the first rule on downwards.
#[test]
fn rules_see_of_metadata_what_the_resource_around_it_shows() {
    let label =
        json!({"type": "object", "maxProperties": 3, "additionalProperties": {"type": "string", "maxLength": 9}});
    let embedded = |outer: Value, inner: Value| {
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-validations": outer,
            "properties": {"metadata": {"type": "object", "x-kubernetes-validations": inner, "properties": {"labels": label}}}})
    };
    let labels = json!([{"rule": "self.labels.size() < 2"}]);
    check_field(embedded(json!([]), labels.clone()), &[]);
    let shown = r#"{"Rule":"self.labels.size() \u003c 2","Message":"","MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}"#;
    check_field(
        embedded(json!([{"rule": "self.metadata.name != self.kind"}]), labels),
        &[&format!(
            "x.properties[metadata].x-kubernetes-validations[0].rule: Invalid value: {shown}: compilation failed: ERROR: \
             <input>:1:5: undefined field 'labels'\n | self.labels.size() < 2\n | ....^"
        )],
    );
}

#[test]
fn the_outermost_list_without_keys_is_named() {
    let inner = json!({"type": "string", "maxLength": 5, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
    let list = |items: Value| json!({"type": "array", "maxItems": 3, "items": items});
    check_field(
        list(list(inner)),
        &[
            "x.items.items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on \
           the uncorrelatable portion of the schema within x",
        ],
    );
}

#[test]
fn rules_may_not_cost_too_much() {
    let limits = "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and \
                  strings are declared)";
    let nested = json!({"type": "array", "items": {"type": "array", "items": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": "self.all(a, self.all(b, a.all(c, b.all(d, c == d))))"}]});
    check_field(
        nested,
        &[
            &format!(
                "x.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x {limits}"
            ),
            "x.x-kubernetes-validations[0].rule: Forbidden: contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema",
            &format!(
                "spec.validation.openAPIV3Schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema exceeds budget by factor of more than 100x {limits}"
            ),
        ],
    );
    // How often a rule is evaluated counts.
    let item = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.contains('a')"}]});
    check_field(
        json!({"type": "array", "maxItems": 50, "items": item}),
        &[&format!(
            "x.items.x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.6x {limits}"
        )],
    );
    check_field(json!({"type": "array", "maxItems": 30, "items": item}), &[]);
}

#[test]
fn an_unchanged_schema_may_stay_expensive() {
    let item = json!({"type": "string", "x-kubernetes-validations": [{"rule": "self.contains('a')"}]});
    let old = crd(json!({"x": {"type": "array", "maxItems": 50, "items": item}}));
    let mut new = old.clone();
    new["spec"]["names"]["shortNames"] = json!(["z"]);
    check_update(&old, &new, &[]);
}

#[test]
fn columns_subresources_and_selectable_fields() {
    check(
        "/spec/versions/0/additionalPrinterColumns",
        json!([{"name": "X", "type": "blob", "format": "odd", "jsonPath": "spec"}]),
        &[
            r#"spec.additionalPrinterColumns[0].type: Invalid value: "blob": must be one of boolean,date,integer,number,string"#,
            "spec.additionalPrinterColumns[0].format: Invalid value: \"odd\": must be one of \
             byte,date,date-time,double,float,int32,int64,password",
            r#"spec.additionalPrinterColumns[0].JSONPath: Invalid value: "spec": must be a simple json path starting with ."#,
        ],
    );
    check(
        "/spec/versions/0/subresources",
        json!({"scale": {"specReplicasPath": ".status.x", "statusReplicasPath": ""}}),
        &[
            r#"spec.subresources.scale.specReplicasPath: Invalid value: ".status.x": should be a json path under .spec"#,
            "spec.subresources.scale.statusReplicasPath: Required value",
        ],
    );
    let mut crd = crd(json!({"l": {"type": "array", "items": {"type": "string"}}, "s": {"type": "string"}}));
    crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.s"}, {"jsonPath": ".spec.s"}, {"jsonPath": ".spec.l"}, {"jsonPath": ".spec.missing"}]);
    assert_eq!(
        violations(&crd),
        [
            r#"spec.selectableFields[1].jsonPath: Duplicate value: ".spec.s""#,
            "spec.selectableFields[2].jsonPath: Invalid value: \".spec.l\": must point to a field of type string, boolean \
             or integer. Enum string fields and strings with formats are allowed.",
            r#"spec.selectableFields[3].jsonPath: Invalid value: ".spec.missing": is an invalid path: does not refer to a valid field"#,
        ]
    );
}

#[test]
fn a_root_without_status_is_shown_as_go_has_it() {
    let mut crd = crd(json!({}));
    let version = &mut crd["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"a": {"type": "string"}},
        "oneOf": [{"required": ["a"]}], "maximum": 3, "x-kubernetes-validations": [{"rule": "true"}]});
    let found = violations(&crd);
    let start = "spec.validation.openAPIV3Schema: Invalid value: {\"ID\":\"\",\"Schema\":\"\",\"Ref\":null,\"Description\":\"\",\
                 \"Type\":\"object\",\"Nullable\":false,";
    assert!(found[0].starts_with(start), "{found:?}");
    for part in [
        "\"Maximum\":3,\"ExclusiveMaximum\":false,",
        "\"Items\":null,\"AllOf\":null,\"OneOf\":[{\"ID\":\"\"",
        "\"Required\":[\"a\"]",
        "\"Properties\":{\"a\":{\"ID\":\"\"",
        "\"XValidations\":[{\"Rule\":\"true\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\
         \"OptionalOldSelf\":null}]}: only [Description Type Format",
    ] {
        assert!(found[0].contains(part), "{part}: {found:?}");
    }
}

#[test]
fn conversion_webhooks_can_be_reached() {
    let at = "spec.conversion";
    check(
        "/spec/conversion",
        json!({"strategy": "Webhook"}),
        &[
            &format!("{at}.webhookClientConfig: Required value: required when strategy is set to Webhook"),
            &format!("{at}.conversionReviewVersions: Required value"),
        ],
    );
    check(
        "/spec/conversion",
        json!({"strategy": "Webhook", "webhook": {"clientConfig": {"url": "http://u:secret@h/?q"}, "conversionReviewVersions": ["v9"]}}),
        &[
            &format!(
                "{at}.webhookClientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]"
            ),
            &format!(
                "{at}.webhookClientConfig.url: Invalid value: \"u:xxxxx\": user information is not permitted in the URL"
            ),
            &format!(
                "{at}.webhookClientConfig.url: Invalid value: \"q\": query parameters are not permitted in the URL"
            ),
            &format!(
                "{at}.conversionReviewVersions: Invalid value: [\"v9\"]: must include at least one of v1, v1beta1"
            ),
        ],
    );
    check(
        "/spec/conversion",
        json!({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}),
        &[&format!("{at}.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook")],
    );
}

#[track_caller]
fn check_update(old: &Value, new: &Value, expected: &[&str]) {
    let mut errors = FieldErrors::default();
    validate_update(new, old, &mut errors);
    let found: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn what_a_crd_may_not_change() {
    let mut old = crd(json!({}));
    let mut new = old.clone();
    new["spec"]["scope"] = json!("Cluster");
    check_update(&old, &new, &[]);
    old["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    new["spec"]["names"]["kind"] = json!("B");
    check_update(
        &old,
        &new,
        &[
            r#"spec.scope: Invalid value: "Cluster": field is immutable"#,
            r#"spec.names.kind: Invalid value: "B": field is immutable"#,
        ],
    );
}

#[test]
fn a_stored_version_must_stay() {
    let old = crd(json!({}));
    let mut new = old.clone();
    new["spec"]["versions"][0]["name"] = json!("v2");
    new["status"]["storedVersions"] = json!(["v1", "v2"]);
    check_update(
        &old,
        &new,
        &[
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, \
           and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 \
           from status.storedVersions",
        ],
    );
}

#[test]
fn what_was_broken_before_may_stay_broken() {
    let old = crd(json!({"x": {"type": "object", "default": {"unknown": 1}},
        "y": {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}}));
    assert_eq!(violations(&old).len(), 2);
    let mut new = old.clone();
    new["spec"]["names"]["shortNames"] = json!(["a"]);
    check_update(&old, &new, &[]);
}

#[test]
fn schemas_that_differ_are_reported_at_their_version() {
    let mut crd = crd(json!({"a": {"type": "string"}}));
    let second = json!({"name": "v2", "served": true, "storage": false,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"a": {}}}}});
    crd["spec"]["versions"].as_array_mut().expect("a list").push(second);
    assert_eq!(
        violations(&crd),
        [
            "spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"
        ]
    );
}

#[test]
fn versions_are_shown_as_upstream_holds_them() {
    let mut crd = crd(json!({}));
    let second = json!({"name": "v2", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "description": "d"}},
        "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.b"}},
        "selectableFields": [{"jsonPath": ".spec.a"}],
        "additionalPrinterColumns": [{"name": "c", "type": "date", "jsonPath": ".d"}]});
    crd["spec"]["versions"].as_array_mut().expect("a list").push(second);
    let violations = violations(&crd);
    let message = violations.iter().find(|message| message.starts_with("spec.versions: ")).expect("the message");
    let (_, second) = message.split_once("{\"Name\":\"v2\",\"Served\":true,\"Storage\":true,").expect("the second");
    assert!(
        second.starts_with(
            "\"Deprecated\":false,\"DeprecationWarning\":null,\"Schema\":{\"OpenAPIV3Schema\":{\"ID\":\"\","
        )
    );
    assert!(second.ends_with(
        "\"XValidations\":null}},\"Subresources\":{\"Status\":{},\"Scale\":{\"SpecReplicasPath\":\".spec.a\",\
         \"StatusReplicasPath\":\".status.b\",\"LabelSelectorPath\":null}},\"AdditionalPrinterColumns\":[{\"Name\":\"c\",\
         \"Type\":\"date\",\"Format\":\"\",\"Description\":\"\",\"Priority\":0,\"JSONPath\":\".d\"}],\
         \"SelectableFields\":[{\"JSONPath\":\".spec.a\"}]}]: must have exactly one version marked as storage version"
    ), "{second}");
}

/// JSON whose keys are mostly schema keywords.
fn schema_like() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![
            Just("object"),
            Just("array"),
            Just("string"),
            Just("integer"),
            Just("map"),
            Just("set"),
            Just("(")
        ]
        .prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("type"),
        Just("properties"),
        Just("items"),
        Just("additionalProperties"),
        Just("default"),
        Just("allOf"),
        Just("anyOf"),
        Just("oneOf"),
        Just("not"),
        Just("required"),
        Just("enum"),
        Just("pattern"),
        Just("format"),
        Just("minimum"),
        Just("maximum"),
        Just("multipleOf"),
        Just("nullable"),
        Just("metadata"),
        Just("a"),
        Just("x-kubernetes-list-type"),
        Just("x-kubernetes-list-map-keys"),
        Just("x-kubernetes-validations"),
        Just("x-kubernetes-embedded-resource"),
        Just("x-kubernetes-int-or-string"),
        Just("uniqueItems"),
        Just("x-kubernetes-preserve-unknown-fields"),
        Just("maxLength"),
        Just("minItems"),
        Just("maxProperties"),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|pairs| Value::Object(
                pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn no_schema_and_no_object_makes_anything_panic(schema in schema_like(), object in schema_like(), old in schema_like()) {
        let mut crd = crd(json!({}));
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema;
        violations(&crd);
        let kind = crate::crd::CustomKind::new(&crd).expect("has a storage version");
        let version = kind.storage_version();
        let (mut object, mut old) = (object, old);
        for value in [&mut object, &mut old] {
            kind.decode(value, version);
            version.default(value);
        }
        let (mut errors, schema) = (FieldErrors::default(), version.schema());
        crate::schema::validate::validate_update(&object, &old, &schema, "", &mut errors);
        crate::schema::validate::list_type::validate(&object, &schema, &mut errors);
        crate::schema::validate::embedded::validate(&object, &schema, &Path::root(), &mut errors);
    }
}
