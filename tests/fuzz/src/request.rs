//! Requests: valid ones, and how they are made odd.

use http::{HeaderName, HeaderValue, Method, Uri};
use serde_json::{Value, json};
use windlass_api::codec::{protobuf, yaml};

use crate::kinds::{Kind, NAMESPACE};
use crate::odd::Odd;
use crate::text;

pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const YAML: &str = "application/yaml";

/// What a request is about; findings and the summary name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Act {
    Create,
    Update,
    JsonPatch,
    MergePatch,
    StrategicPatch,
    Apply,
    Get,
    List,
    Watch,
    Delete,
    DeleteCollection,
    Subresource,
    Connect,
    Other,
}

/// A request that is sent.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) act: Act,
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Where to read what it writes; for a create, the collection.
    pub(crate) object: Option<String>,
}

impl Sent {
    pub(crate) fn new(act: Act, method: Method, uri: impl Into<String>) -> Self {
        Self { act, method, uri: uri.into(), headers: Vec::new(), body: Vec::new(), object: None }
    }

    pub(crate) fn json(act: Act, method: Method, uri: impl Into<String>, body: &Value) -> Self {
        let mut sent = Self::new(act, method, uri);
        text::write(body, &mut sent.body);
        sent.header("content-type", JSON);
        sent
    }

    pub(crate) fn header(&mut self, name: &str, value: &str) {
        self.headers.push((name.into(), value.into()));
    }

    pub(crate) fn has_header(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known == name)
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        // A delete reads its options from the query only if it has no body.
        self.uri.contains("dryRun") && (self.method != Method::DELETE || self.body.is_empty())
    }

    /// The request as HTTP has it; `None` if no client could send it.
    pub(crate) fn build<B: From<Vec<u8>>>(&self) -> Option<http::Request<B>> {
        let uri: Uri = self.uri.parse().ok()?;
        let mut request = http::Request::builder().method(self.method.clone()).uri(uri);
        for (name, value) in &self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            request = request.header(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
        }
        request.body(self.body.clone().into()).ok()
    }
}

/// What a case is about: a kind, the object that it has created, and its name.
pub(crate) struct Subject<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) valid: &'a Value,
    /// The object as it was last read; null if there is none.
    pub(crate) live: Value,
    pub(crate) revision: u64,
}

impl Subject<'_> {
    pub(crate) fn name(&self) -> &str {
        self.valid["metadata"]["name"].as_str().unwrap_or("fuzzed")
    }

    pub(crate) fn path(&self) -> String {
        format!("{}/{}", self.kind.collection(), self.name())
    }

    /// The object as it is, or as it was sent.
    pub(crate) fn object(&self) -> &Value {
        if self.live.is_null() { self.valid } else { &self.live }
    }
}

impl Odd<'_> {
    /// One odd request.
    pub(crate) fn request(&mut self, subject: &Subject<'_>) -> Sent {
        let kind = subject.kind;
        if !kind.serves("get") {
            let mut sent = if self.once_in(40) { self.elsewhere() } else { self.create(subject) };
            self.disturb(&mut sent, subject);
            return sent;
        }
        let mut sent = match self.rng.usize(..100) {
            0..22 => self.create(subject),
            22..40 => self.update(subject),
            40..46 => self.json_patch(subject),
            46..53 => self.merge_patch(subject, false),
            53..61 => self.merge_patch(subject, true),
            61..69 => self.apply(subject),
            69..84 if !kind.subresources.is_empty() => self.subresource(subject),
            69..74 | 84..87 => Sent::new(Act::Get, Method::GET, subject.path()),
            74..77 | 87..91 => Sent::new(Act::List, Method::GET, self.collection(subject)),
            77..78 | 91..92 => Sent::new(Act::Watch, Method::GET, format!("{}?watch=true", self.collection(subject))),
            78..82 | 92..96 => self.delete(subject),
            82..83 | 96..97 => self.delete_collection(subject),
            _ => self.elsewhere(),
        };
        self.disturb(&mut sent, subject);
        sent
    }

    fn collection(&mut self, subject: &Subject<'_>) -> String {
        let kind = subject.kind;
        match self.rng.usize(..10) {
            0 => format!("{}/{}", kind.prefix, kind.plural),
            1 => format!("{}/watch/{}", kind.prefix, kind.plural),
            _ => kind.collection(),
        }
    }

    fn create(&mut self, subject: &Subject<'_>) -> Sent {
        let mut object = subject.valid.clone();
        match self.rng.usize(..6) {
            0 => {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("name");
                    metadata.insert("generateName".into(), "fuzz-".into());
                }
            }
            1 => {}
            _ => object["metadata"]["name"] = format!("fuzzed{}", self.rng.usize(..10)).into(),
        }
        self.mutate(&mut object, subject.kind.schema);
        let mut sent = Sent::new(Act::Create, Method::POST, subject.kind.collection());
        self.encode(&mut sent, &object);
        sent.object = Some(subject.kind.collection());
        sent
    }

    fn update(&mut self, subject: &Subject<'_>) -> Sent {
        let mut object = subject.object().clone();
        self.mutate(&mut object, subject.kind.schema);
        if self.once_in(6) {
            let version = self.version();
            put(&mut object, "resourceVersion", version);
        }
        let mut sent = Sent::new(Act::Update, Method::PUT, subject.path());
        self.encode(&mut sent, &object);
        sent.object = Some(subject.path());
        sent
    }

    pub(crate) fn version(&mut self) -> Value {
        match self.rng.usize(..3) {
            0 => Value::String(self.text()),
            1 => text::raw(self.pick(&["1", "1.5", "true", "null", "{}"])),
            _ => Value::String(
                self.pick(&["0", "1", "-1", "abc", "99999999999", "18446744073709551616", "01", "+1", "1 "]).to_owned(),
            ),
        }
    }

    /// Writes a body in one of the forms that a server reads.
    fn encode(&mut self, sent: &mut Sent, object: &Value) {
        let content_type = match self.rng.usize(..20) {
            0..2 => {
                if let Ok(bytes) = protobuf::encode(object) {
                    sent.body = bytes;
                    if self.rng.usize(..3) > 0 {
                        self.garble_bytes(&mut sent.body);
                    }
                    sent.header("content-type", PROTOBUF);
                    return;
                }
                JSON
            }
            2 => {
                sent.body = self.yaml(object);
                sent.header("content-type", YAML);
                return;
            }
            3 if self.once_in(4) => self.pick(&[
                "application/cbor",
                "text/plain",
                "",
                "application/json;charset=utf-8",
                "application/json; stream=watch",
                "application/x-www-form-urlencoded",
                "multipart/form-data",
                "a",
                "application/json,application/yaml",
                "application/merge-patch+json",
            ]),
            _ => JSON,
        };
        text::write(object, &mut sent.body);
        if self.once_in(12) {
            self.garble_bytes(&mut sent.body);
        }
        sent.header("content-type", content_type);
    }

    pub(crate) fn yaml(&mut self, object: &Value) -> Vec<u8> {
        let mut out = if self.rng.bool() {
            yaml::write(object).into_bytes()
        } else {
            let mut out = Vec::new();
            text::write(object, &mut out);
            out
        };
        if self.rng.bool() {
            let line = self.pick(&[
                "a: &a [*a]\n",
                "<<: {kind: Other}\n",
                "? {a: b}\n: c\n",
                "--- \n",
                "%YAML 1.1\n---\n",
                "!!binary a: b\n",
                "a: |\n b\n",
                "\t",
                "0777: 0o7\n",
                "yes: no\n",
                "a: &x {b: c}\nd: {<<: *x}\n",
                "a: *missing\n",
                "1.0: 2001-01-01\n",
                "...\n",
                "- a\n",
                "~: ~\n",
            ]);
            let at = if self.rng.bool() { 0 } else { out.len() };
            out.splice(at..at, line.bytes());
        }
        if self.once_in(3) {
            self.garble_bytes(&mut out);
        }
        out
    }

    fn subresource(&mut self, subject: &Subject<'_>) -> Sent {
        let (name, verbs) = &subject.kind.subresources[self.rng.usize(..subject.kind.subresources.len())];
        let path = format!("{}/{name}", subject.path());
        if matches!(name.as_str(), "exec" | "attach" | "portforward" | "proxy" | "log") {
            return self.connect(&path, name);
        }
        let verb = verbs[self.rng.usize(..verbs.len())].as_str();
        let object = self.body_of(subject, name);
        match verb {
            "get" => Sent::new(Act::Subresource, Method::GET, path),
            "patch" => {
                let mut body = object;
                let act = Act::Subresource;
                match self.rng.usize(..4) {
                    0 => {
                        let body = self.operations(&body);
                        self.patch(act, path, &body, "application/json-patch+json")
                    }
                    1 => {
                        self.mutate(&mut body, None);
                        let mut sent = self.patch(act, path, &body, "application/apply-patch+yaml");
                        sent.uri.push_str("?fieldManager=fuzz&force=true");
                        sent
                    }
                    kind => {
                        self.mutate(&mut body, None);
                        let mut body = if self.rng.bool() { self.part(&body) } else { body };
                        if kind == 2 {
                            self.direct(&mut body);
                            self.patch(act, path, &body, "application/strategic-merge-patch+json")
                        } else {
                            self.patch(act, path, &body, "application/merge-patch+json")
                        }
                    }
                }
            }
            verb => {
                let mut object = object;
                self.mutate(&mut object, if name == "scale" { None } else { subject.kind.schema });
                if self.once_in(8) {
                    let version = self.version();
                    put(&mut object, "resourceVersion", version);
                }
                let (method, read) =
                    if verb == "create" { (Method::POST, None) } else { (Method::PUT, Some(path.clone())) };
                let mut sent = Sent::new(Act::Subresource, method, path);
                self.encode(&mut sent, &object);
                sent.object = read;
                sent
            }
        }
    }

    /// What a subresource is sent.
    fn body_of(&mut self, subject: &Subject<'_>, subresource: &str) -> Value {
        let metadata = json!({"name": subject.name(), "namespace": NAMESPACE});
        match subresource {
            "scale" => {
                json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": self.rng.usize(..4)}, "status": {"replicas": 0, "selector": ""}})
            }
            "binding" => {
                json!({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}})
            }
            "eviction" => {
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": {"gracePeriodSeconds": 0, "preconditions": {"uid": "x"}, "propagationPolicy": "Background", "dryRun": []}})
            }
            "token" => {
                json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": metadata, "spec": {"audiences": ["a"], "expirationSeconds": 3600, "boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "fuzzed"}}})
            }
            "approval" => {
                let mut object = subject.object().clone();
                object["status"]["conditions"] =
                    json!([{"type": "Approved", "status": "True", "reason": "R", "message": "m"}]);
                object
            }
            "ephemeralcontainers" => {
                let mut object = subject.object().clone();
                object["spec"]["ephemeralContainers"] =
                    json!([{"name": "debug", "image": "b", "targetContainerName": "main", "stdin": true}]);
                object
            }
            "status" => {
                let mut object = subject.object().clone();
                if let Some(schema) = subject.kind.schema.and_then(|schema| schema.properties.get("status")) {
                    object["status"] = self.invent("status", schema, 0);
                }
                object
            }
            _ => subject.object().clone(),
        }
    }

    fn connect(&mut self, path: &str, name: &str) -> Sent {
        let method = [Method::GET, Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS]
            [self.rng.usize(..6)]
        .clone();
        let rest = if name == "proxy" { self.pick(&["", "/", "/a/b", "/../..", "/a?b=c", "//a"]) } else { "" };
        let query = self.pick(&[
            "",
            "?command=a&command=b&stdout=true",
            "?container=main",
            "?container=none&stdin=1",
            "?follow=true&tailLines=-1",
            "?sinceSeconds=x",
            "?limitBytes=0",
            "?ports=80",
            "?ports=-1&ports=x",
            "?previous=true",
            "?tty=true&stderr=true",
            "?sinceTime=x",
            "?stream=Stdout",
            "?path=/a",
            "?insecureSkipTLSVerifyBackend=true",
        ]);
        let query = if rest.contains('?') { "" } else { query };
        let mut sent = Sent::new(Act::Connect, method, format!("{path}{rest}{query}"));
        match self.rng.usize(..4) {
            0 => {
                for (name, value) in [
                    ("connection", "Upgrade"),
                    ("upgrade", "websocket"),
                    ("sec-websocket-version", "13"),
                    ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA=="),
                ] {
                    sent.header(name, value);
                }
                let protocol = self.pick(&[
                    "v5.channel.k8s.io",
                    "v4.channel.k8s.io",
                    "channel.k8s.io",
                    "x",
                    "v4.base64.channel.k8s.io",
                    "SPDY/3.1+portforward.k8s.io",
                ]);
                sent.header("sec-websocket-protocol", protocol);
            }
            1 => {
                sent.header("connection", "Upgrade");
                sent.header("upgrade", "SPDY/3.1");
                let version = self.pick(&["v4.channel.k8s.io", "portforward.k8s.io", "x"]);
                sent.header("x-stream-protocol-version", version);
            }
            _ => {}
        }
        sent
    }

    fn delete(&mut self, subject: &Subject<'_>) -> Sent {
        let mut sent = Sent::new(Act::Delete, Method::DELETE, subject.path());
        self.delete_options(&mut sent, subject);
        sent
    }

    fn delete_collection(&mut self, subject: &Subject<'_>) -> Sent {
        // Only what cases have created: the objects of a cluster are not to be deleted all the time.
        let query = if subject.kind.namespaced {
            self.pick(&[
                "",
                "?labelSelector=app%3Dfuzz",
                "?limit=1",
                "?fieldSelector=metadata.name%3Dfuzzed",
                "?labelSelector=in%20(",
            ])
        } else {
            self.pick(&[
                "?labelSelector=app%3Dfuzz",
                "?fieldSelector=metadata.name%3Dfuzzed",
                "?labelSelector=,,",
                "?fieldSelector=a",
            ])
        };
        let mut sent =
            Sent::new(Act::DeleteCollection, Method::DELETE, format!("{}{query}", subject.kind.collection()));
        self.delete_options(&mut sent, subject);
        sent
    }

    fn delete_options(&mut self, sent: &mut Sent, subject: &Subject<'_>) {
        if self.once_in(3) {
            return;
        }
        let metadata = &subject.live["metadata"];
        let (uid, version) = (&metadata["uid"], &metadata["resourceVersion"]);
        let choices = [
            json!({}),
            json!({"gracePeriodSeconds": 0}),
            json!({"preconditions": {"uid": uid, "resourceVersion": version}}),
            json!({"preconditions": {"uid": "other"}}),
            json!({"propagationPolicy": "Foreground"}),
            json!({"propagationPolicy": "Orphan", "gracePeriodSeconds": 30}),
            json!({"orphanDependents": true}),
            json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
            json!({"dryRun": ["All"]}),
            json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true}),
        ];
        let mut options = choices[self.rng.usize(..choices.len())].clone();
        options["kind"] = "DeleteOptions".into();
        options["apiVersion"] = self.pick(&["v1", "meta.k8s.io/v1", "apps/v1", "policy/v1"]).into();
        if self.rng.bool() {
            self.mutate(&mut options, None);
        }
        if self.once_in(5) {
            self.encode(sent, &options);
        } else {
            text::write(&options, &mut sent.body);
            sent.header("content-type", JSON);
        }
    }

    /// What is no resource.
    fn elsewhere(&mut self) -> Sent {
        let paths = [
            "/",
            "/api",
            "/apis",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/apis/apps/v9",
            "/version",
            "/healthz",
            "/livez?verbose",
            "/readyz?exclude=ping",
            "/readyz/none",
            "/metrics",
            "/openapi/v2",
            "/openapi/v3",
            "/openapi/v3/api/v1",
            "/openapi/v3/apis/fuzz.example.com/v1?hash=x",
            "/.well-known/openid-configuration",
            "/openid/v1/jwks",
            "/debug/api_priority_and_fairness/dump_requests",
            "/debug/api_priority_and_fairness/dump_queues?x",
            "/apis/fuzz.example.com/v1",
            "/logs",
            "/a/b/c",
            "/api/v1/componentstatuses",
            "/api/v1/componentstatuses/x",
            "/api/v1/namespaces/fuzz/status",
            "/api/v1/namespaces/fuzz/finalize",
            "/apis/metrics.k8s.io/v1beta1/nodes",
        ];
        let path = paths[self.rng.usize(..paths.len())];
        let method = [Method::GET, Method::GET, Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT]
            [self.rng.usize(..7)]
        .clone();
        Sent::new(Act::Other, method, path)
    }
}

/// Sets a field of an object's metadata, if it has any.
pub(crate) fn put(object: &mut Value, field: &str, value: Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert(field.into(), value);
    }
}
