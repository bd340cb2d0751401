//! Odd paths, queries, headers and methods of requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::json;

use crate::odd::Odd;
use crate::request::{Act, JSON, PROTOBUF, Sent, Subject, YAML};

impl Odd<'_> {
    /// Makes a request odd in its path, query, headers or method, once in a while.
    pub(crate) fn disturb(&mut self, sent: &mut Sent, subject: &Subject<'_>) {
        let reads = matches!(sent.act, Act::Get | Act::List | Act::Watch);
        if reads || self.once_in(6) {
            self.add_query(sent, subject);
        }
        if self.once_in(if reads { 2 } else { 12 }) {
            self.add_accept(sent);
        }
        if self.once_in(16) {
            self.add_header(sent);
        }
        if self.once_in(20) {
            sent.uri = self.odd_path(&sent.uri);
            sent.object = None;
        }
        if self.once_in(60) {
            let methods =
                ["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "FOO", "get"];
            let method = self.pick(&methods);
            sent.method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
            sent.act = Act::Other;
            sent.object = None;
        }
    }

    fn add_query(&mut self, sent: &mut Sent, subject: &Subject<'_>) {
        for _ in 0..=self.rng.usize(..3) {
            let option = self.query(sent.act, subject);
            sent.uri.push(if sent.uri.contains('?') { '&' } else { '?' });
            sent.uri.push_str(&option);
        }
    }

    fn query(&mut self, act: Act, subject: &Subject<'_>) -> String {
        let reads = matches!(act, Act::Get | Act::List | Act::Watch | Act::DeleteCollection);
        let options: &[&str] = if reads {
            &[
                "limit",
                "continue",
                "resourceVersion",
                "resourceVersionMatch",
                "labelSelector",
                "fieldSelector",
                "timeoutSeconds",
                "watch",
                "allowWatchBookmarks",
                "sendInitialEvents",
                "pretty",
                "includeObject",
                "timeout",
                "unknown",
                "shardSelector",
            ]
        } else {
            &[
                "dryRun",
                "fieldManager",
                "fieldValidation",
                "force",
                "gracePeriodSeconds",
                "propagationPolicy",
                "orphanDependents",
                "pretty",
                "timeout",
                "unknown",
                "watch",
                "ignoreStoreReadErrorWithClusterBreakingPotential",
                "resourceVersion",
            ]
        };
        let option = self.pick(options);
        let revision = subject.revision.to_string();
        let values: &[&str] = match option {
            "limit" => &["0", "1", "2", "-1", "abc", "9223372036854775808", "500"],
            "continue" => return format!("continue={}", self.continuation(&revision)),
            "resourceVersion" => &["0", "1", "", "abc", "-1", "99999999999", "18446744073709551616", &revision],
            "resourceVersionMatch" => &["Exact", "NotOlderThan", "exact", ""],
            "labelSelector" => &[
                "app=fuzz",
                "app!=fuzz",
                "app in (fuzz, b)",
                "!app",
                "app",
                "a=b,,",
                "in (",
                "a/b/c=d",
                "-a=b",
                "app notin ()",
                "a>1",
                "a<x",
                "a==b",
                "=",
                "é=a",
                "a in (b",
                ",",
            ],
            "fieldSelector" => &[
                "metadata.name=fuzzed",
                "metadata.namespace=fuzz",
                "metadata.name!=a",
                "spec.nodeName=n",
                "status.phase=Running",
                "type=Opaque",
                "spec.name=abc",
                "spec.size=3",
                "a=b",
                "metadata.name",
                "metadata.name=a\\",
                "metadata.name=a\\,b",
                "=",
                ",",
                "metadata.name=a,metadata.name=b",
                "involvedObject.kind=Pod",
                "spec.unschedulable=true",
                "metadata.name==a/b",
            ],
            "timeoutSeconds" => &["0", "1", "-1", "x", "99999999999"],
            "watch" => &["true", "1", "false", "0", "x", ""],
            "allowWatchBookmarks" | "sendInitialEvents" => &["true", "false", "x"],
            "includeObject" => &["None", "Object", "Metadata", "x"],
            "timeout" => &["1s", "0", "-1s", "abc", "1h", "1", "60s", "1ns", "99999999h"],
            "dryRun" => &["All", "all", "", "All&dryRun=All", "None"],
            "fieldManager" => &[
                "m",
                "",
                "\u{7}",
                "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
            ],
            "fieldValidation" => &["Strict", "Warn", "Ignore", "strict", ""],
            "force" | "orphanDependents" | "ignoreStoreReadErrorWithClusterBreakingPotential" => {
                &["true", "false", "x", ""]
            }
            "gracePeriodSeconds" => &["0", "-1", "x", "9223372036854775808"],
            "propagationPolicy" => &["Foreground", "Background", "Orphan", "x", ""],
            "pretty" => &["true", "false", "x", "1"],
            _ => &["x", "", "%zz", "a;b", "&&", "="],
        };
        let value = values[self.rng.usize(..values.len())];
        match self.rng.usize(..30) {
            0 => format!("{option}={}", escape(&self.text())),
            1 => option.to_owned(),
            // Some values end it and begin another.
            _ if option == "unknown" || value.contains('&') => format!("{option}={value}"),
            _ => format!("{option}={}", escape(value)),
        }
    }

    fn continuation(&mut self, revision: &str) -> String {
        let revision = revision.parse::<i64>().unwrap_or(1);
        let token = match self.rng.usize(..8) {
            0 => return self.pick(&["a", "%00", "!!", "e30", "e30=", "bnVsbA", ""]).to_owned(),
            1 => json!({"v": "meta.k8s.io/v2", "rv": 1, "start": "a"}),
            2 => json!({"v": "meta.k8s.io/v1", "rv": 0, "start": "a"}),
            3 => json!({"v": "meta.k8s.io/v1", "rv": -1, "start": "../a"}),
            4 => json!({"v": "meta.k8s.io/v1", "rv": "1", "start": 1}),
            5 => json!({"v": "meta.k8s.io/v1", "rv": revision, "start": ""}),
            6 => json!({"v": "meta.k8s.io/v1", "rv": revision + 1_000_000, "start": "fuzz/a\u{0}"}),
            _ => json!({"v": "meta.k8s.io/v1", "rv": revision, "start": "fuzz/a\u{0}"}),
        };
        URL_SAFE_NO_PAD.encode(token.to_string())
    }

    fn add_accept(&mut self, sent: &mut Sent) {
        let accept = self.pick(&[
            "application/json",
            "*/*",
            "application/*",
            "application/yaml",
            PROTOBUF,
            "application/cbor",
            "application/vnd.kubernetes.protobuf,application/json",
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1",
            "application/yaml;as=Table;g=meta.k8s.io;v=v1",
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            "application/json;as=Other;g=x;v=y",
            "application/json;q=0",
            "text/html",
            "",
            ",",
            ";",
            "a/b/c",
            "application/json;;",
            "application/json;as=",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
            "application/json;pretty=1",
            "application/json;profile=nosuch",
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
            "text/plain;version=0.0.4",
            "*",
            "application/json;q=x, */*;q=0.1",
        ]);
        sent.header("accept", accept);
    }

    fn add_header(&mut self, sent: &mut Sent) {
        let (name, value) = match self.rng.usize(..22) {
            0 => ("authorization", "Bearer nonsense"),
            1 => (
                "authorization",
                self.pick(&[
                    "Bearer",
                    "Bearer ",
                    "Basic YTpi",
                    "",
                    "bearer a b",
                    "Bearer a.b.c",
                    "Bearer eyJhbGciOiJub25lIn0.e30.",
                    "Negotiate x",
                ]),
            ),
            2..=5 => (
                "impersonate-user",
                self.pick(&[
                    "someone",
                    "",
                    "system:serviceaccount:fuzz:fuzzed",
                    "system:node:fuzzed",
                    "system:admin",
                    "system:serviceaccount:",
                    "system:anonymous",
                ]),
            ),
            6 => ("impersonate-group", self.pick(&["system:masters", "", "g"])),
            7 => ("impersonate-extra-a%2fb", "v"),
            8 => ("impersonate-uid", "u"),
            9 => ("user-agent", self.pick(&["kubectl/v1.36.0", "curl/8", "Mozilla/5.0", "", "Go-http-client/1.1"])),
            10 => ("accept-encoding", self.pick(&["gzip", "gzip;q=0", "deflate, gzip", "*"])),
            11 => ("content-encoding", self.pick(&["gzip", "identity", "x"])),
            12 => ("if-none-match", "\"a\""),
            13 => ("audit-id", self.pick(&["x", "", "a b"])),
            14 => ("x-remote-user", "admin"),
            15 => ("kubectl-command", "kubectl apply"),
            16 => ("upgrade", self.pick(&["websocket", "SPDY/3.1", "h2c", ""])),
            17 => ("connection", self.pick(&["Upgrade", "close", "keep-alive, Upgrade"])),
            18 => ("origin", "https://127.0.0.1:1"),
            19 => ("content-type", self.pick(&[JSON, YAML, PROTOBUF, "application/cbor", "", "a"])),
            20 => (
                "sec-websocket-protocol",
                self.pick(&["base64url.bearer.authorization.k8s.io.eA", "base64.binary.k8s.io", ""]),
            ),
            _ => ("traceparent", self.pick(&["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x"])),
        };
        sent.header(name, value);
    }

    fn odd_path(&mut self, uri: &str) -> String {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(path, query)| (path, Some(query)));
        let mut segments: Vec<String> = path.split('/').map(Into::into).collect();
        let at = self.rng.usize(..segments.len());
        match self.rng.usize(..14) {
            0 => segments.insert(at, String::new()),
            1 => segments.push(String::new()),
            2 => {
                segments.remove(at);
            }
            3 => {
                let segment = self.pick(&[
                    "%2F",
                    "%00",
                    "%zz",
                    "%",
                    "%25",
                    "..",
                    ".",
                    "%2e%2e",
                    "%c3%28",
                    "é",
                    "%F0%9F%98%80",
                    "*",
                    "A",
                    "a%20b",
                    "~",
                    "%0a",
                ]);
                segments[at] = segment.into();
            }
            4 => segments[at] = "a".repeat([63, 253, 254, 300, 5000][self.rng.usize(..5)]),
            5 => segments[at] = segments[at].to_uppercase(),
            6 => segments.insert(at, "watch".into()),
            7 => segments.insert(at, self.pick(&["namespaces", "v1", "apis", "proxy", "status", "x"]).to_owned()),
            8 => segments.extend(["status".into(), "more".into()]),
            9 => segments.push(
                self.pick(&[
                    "status", "scale", "finalize", "exec", "log", "token", "binding", "eviction", "approval", "proxy",
                    "x", "resize",
                ])
                .to_owned(),
            ),
            10 => segments[at] = segments[at].bytes().fold(String::new(), |all, byte| format!("{all}%{byte:02x}")),
            11 => segments.truncate(at),
            12 => segments[at].push_str(self.pick(&["%2F", "x", ".", "%20", "%3f", "%23a"])),
            _ => segments[at] = escape(&self.text()),
        }
        let mut path = segments.join("/");
        if !path.starts_with('/') {
            path.insert(0, '/');
        }
        match query {
            Some(query) => format!("{path}?{query}"),
            None => path,
        }
    }
}

fn escape(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
