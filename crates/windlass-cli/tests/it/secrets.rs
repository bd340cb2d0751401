//! Credentials and Secrets that a real server was given are told to no one else: not in its log, however much it logs, nor in
//! audit events, metrics, refusals, or files that others may read.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::{Method, Request};
use kube::client::Body;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::Running;
use crate::windlass::Sandbox;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const WRONG_TOKEN: &str = "planted-wrong-token-7f3a1c";
const PASSWORD: &str = "planted-basic-password-5b1c9e";
const DATA: &str = "planted-secret-data-91cd27";
const BOOTSTRAP: &str = "planted0bootstrap";
const REVIEWED: &str = "planted-reviewed-token-c04d";

/// The rules for Secrets and tokens that upstream's documentation gives, and everything about everything else.
const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
  resources:
  - {group: '', resources: [secrets, serviceaccounts/token]}
  - {group: authentication.k8s.io, resources: [tokenreviews]}
- level: RequestResponse
";

/// Sends requests, and keeps what refusals say.
struct Asking {
    admin: Client,
    /// Without credentials.
    nobody: Client,
    refusals: Vec<String>,
}

impl Asking {
    async fn new(kubeconfig: &Path) -> Self {
        let file = Kubeconfig::read_from(kubeconfig).unwrap();
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        let mut nobody = config.clone();
        nobody.auth_info = AuthInfo::default();
        let [admin, nobody] = [config, nobody].map(|config| Client::try_from(config).unwrap());
        Self { admin, nobody, refusals: Vec::new() }
    }

    async fn send(&mut self, method: Method, path: &str, content_type: &str, body: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let client = self.admin.clone();
        self.answer(client, request.body(Body::from(body.to_owned().into_bytes())).unwrap()).await
    }

    async fn post(&mut self, path: &str, body: &Value) -> (u16, Value) {
        self.send(Method::POST, path, "application/json", &body.to_string()).await
    }

    /// Asks for Secrets with a header instead of credentials.
    async fn with_header(&mut self, name: &str, value: &str) -> u16 {
        let client = self.nobody.clone();
        self.answer(client, Request::get(SECRETS).header(name, value).body(Body::empty()).unwrap()).await.0
    }

    async fn answer(&mut self, client: Client, request: Request<Body>) -> (u16, Value) {
        let response = client.send(request).await.unwrap();
        let (code, headers) = (response.status().as_u16(), format!("{:?}", response.headers()));
        let body = response.into_body().collect_bytes().await.unwrap();
        if code >= 400 {
            self.refusals.push(format!("{code} {headers} {}", String::from_utf8_lossy(&body)));
        }
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }
}

fn secret(name: &str, kind: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "stringData": data})
}

/// Requests without credentials that are accepted.
async fn ask_with_wrong_credentials(asking: &mut Asking) {
    let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("admin:{PASSWORD}")));
    for value in
        [format!("Bearer {WRONG_TOKEN}"), basic, format!("Bearer planted.{BOOTSTRAP}"), format!("Odd {PASSWORD}")]
    {
        let code = asking.with_header("authorization", &value).await;
        assert!(matches!(code, 401 | 403), "{code} {value}");
    }
    let protocol = format!("base64url.bearer.authorization.k8s.io.{}", BASE64_URL_SAFE_NO_PAD.encode(WRONG_TOKEN));
    let code = asking.with_header("sec-websocket-protocol", &protocol).await;
    assert!(matches!(code, 401 | 403), "{code}");
}

/// Secrets that are accepted, and every way in which one is not.
async fn write_secrets(asking: &mut Asking) {
    let opaque = secret("planted", "Opaque", &json!({"password": DATA}));
    assert_eq!(asking.post(SECRETS, &opaque).await.0, 201);
    assert_eq!(asking.post(SECRETS, &opaque).await.0, 409);
    let bootstrap = json!({"token-id": "planted", "token-secret": BOOTSTRAP, "kubeconfig": format!("token: {DATA}")});
    assert_eq!(
        asking.post(SECRETS, &secret("bootstrap-token-planted", "bootstrap.kubernetes.io/token", &bootstrap)).await.0,
        201
    );
    let fixed = json!({"metadata": {"name": "fixed"}, "immutable": true, "stringData": {"password": DATA}});
    assert_eq!(asking.post(SECRETS, &fixed).await.0, 201);

    let refused = [
        secret("Wrong_Name", "Opaque", &json!({"password": DATA})),
        secret("a", "Opaque", &json!({"wrong key": DATA})),
        secret("a", "kubernetes.io/dockerconfigjson", &json!({".dockerconfigjson": DATA})),
        secret("a", "kubernetes.io/dockercfg", &json!({".dockercfg": DATA})),
        secret("a", "kubernetes.io/tls", &json!({"tls.key": DATA})),
        secret("a", "kubernetes.io/ssh-auth", &json!({"other": DATA})),
        secret("a", "kubernetes.io/service-account-token", &json!({"token": DATA})),
        secret("a", "Opaque", &json!({"password": {"nested": DATA}})),
        secret("a", "Opaque", &json!(DATA)),
        json!({"metadata": {"name": "a"}, "data": {"password": DATA}}),
        json!({"metadata": {"name": "a"}, "data": [DATA]}),
        json!({"metadata": {"name": "a", "labels": {"a": {"b": DATA}}}, "stringData": {"password": DATA}}),
    ];
    for object in &refused {
        let (code, body) = asking.post(SECRETS, object).await;
        assert!(matches!(code, 400 | 422), "{code} {body}");
    }
    let whole = json!({"metadata": {"name": "a"}, "stringData": {"password": DATA}}).to_string();
    for body in [&whole[..whole.len() - 2], &format!("{whole}{whole}"), &whole.replace(':', "=")] {
        assert_eq!(asking.send(Method::POST, SECRETS, "application/json", body).await.0, 400);
    }
    assert_eq!(asking.send(Method::POST, SECRETS, "application/yaml", &format!("stringData: [{DATA}")).await.0, 400);
    patch_secrets(asking).await;
}

async fn patch_secrets(asking: &mut Asking) {
    let (one, fixed) = (format!("{SECRETS}/planted"), format!("{SECRETS}/fixed"));
    let applied = |data: Value| {
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "planted"}, "stringData": data}).to_string()
    };
    let encoded = BASE64_STANDARD.encode(DATA);
    let other = json!([{"op": "test", "path": "/data/password", "value": "b3RoZXI="}]).to_string();
    let wrong_type = json!({"immutable": DATA}).to_string();
    for (path, content_type, body) in [
        (&one, "application/merge-patch+json", wrong_type.clone()),
        (&one, "application/merge-patch+json", json!({"type": "other", "data": {"x": encoded}}).to_string()),
        (&one, "application/merge-patch+json", json!({"data": {"x": DATA}}).to_string()),
        (&one, "application/merge-patch+json", json!({"immutable": 5}).to_string()),
        (&one, "application/strategic-merge-patch+json", wrong_type.clone()),
        (&one, "application/strategic-merge-patch+json", json!({"data": DATA}).to_string()),
        (&one, "application/strategic-merge-patch+json", json!({"data": {"x": DATA}}).to_string()),
        (&one, "application/json-patch+json", other),
        (
            &one,
            "application/json-patch+json",
            json!([{"op": "replace", "path": "/immutable", "value": DATA}]).to_string(),
        ),
        (
            &one,
            "application/json-patch+json",
            json!([{"op": "add", "path": "/data/x", "value": {"y": DATA}}]).to_string(),
        ),
        (&one, "application/apply-patch+yaml", applied(json!({"password": {"nested": DATA}}))),
        (&one, "application/apply-patch+yaml", applied(json!([DATA]))),
        (&one, "application/apply-patch+yaml", applied(json!(DATA))),
        (&fixed, "application/merge-patch+json", json!({"stringData": {"password": DATA.to_uppercase()}}).to_string()),
    ] {
        let path = format!("{path}?fieldManager=m&fieldValidation=Strict");
        let (code, answer) = asking.send(Method::PATCH, &path, content_type, &body).await;
        assert!((400..=500).contains(&code), "{content_type} {body}: {code} {answer}");
    }
}

/// Tokens that are given and asked about. Returns what is secret of them.
async fn use_tokens(asking: &mut Asking) -> Vec<String> {
    let account = json!({"metadata": {"name": "robot"}});
    assert_eq!(asking.post("/api/v1/namespaces/default/serviceaccounts", &account).await.0, 201);
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let (code, answer) = asking.post(path, &json!({"spec": {"audiences": []}})).await;
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    assert_eq!((code, token.split('.').count()), (201, 3));
    assert_eq!(asking.post(path, &json!({"spec": {"expirationSeconds": 1}})).await.0, 422);
    assert_eq!(asking.with_header("authorization", &format!("Bearer {token}")).await, 403);
    let mut changed = token.clone();
    changed.push('A');
    assert_eq!(asking.with_header("authorization", &format!("Bearer {changed}")).await, 401);
    for token in [&token, REVIEWED] {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        assert_eq!(asking.post("/apis/authentication.k8s.io/v1/tokenreviews", &review).await.0, 201);
    }
    let wrong = json!({"spec": {"token": {"nested": REVIEWED}}});
    assert_eq!(asking.post("/apis/authentication.k8s.io/v1/tokenreviews", &wrong).await.0, 400);
    let signature = token.rsplit('.').next().unwrap().to_owned();
    vec![token, signature]
}

/// Requests for certificates, and a webhook that does not answer.
async fn fail_elsewhere(asking: &mut Asking) {
    let request = json!({"metadata": {"name": "c"}, "spec": {"request": BASE64_STANDARD.encode("no request"),
        "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]}});
    assert_eq!(asking.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", &request).await.0, 422);
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]});
    let hook = json!({"metadata": {"name": "h"}, "webhooks": [{"name": "h.example.com", "rules": [rule],
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail", "sideEffects": "None",
        "admissionReviewVersions": ["v1"]}]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(asking.post(path, &hook).await.0, 201);
    assert_eq!(asking.post(SECRETS, &secret("hooked", "Opaque", &json!({"password": DATA}))).await.0, 500);
    assert_eq!(asking.send(Method::DELETE, &format!("{path}/h"), "application/json", "").await.0, 200);
}

/// Every file below a directory, with whether others may read it.
fn files(dir: &Path, is_open: bool, found: &mut Vec<(String, Vec<u8>, bool)>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let Ok(metadata) = path.symlink_metadata() else { continue };
        let is_open = is_open && metadata.permissions().mode() & 0o005 != 0;
        if metadata.is_dir() {
            files(&path, is_open, found);
        } else if metadata.is_file() {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap_or_default(), is_open));
        }
    }
}

fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|window| window == word.as_bytes())
}

#[tokio::test]
async fn planted_secrets_are_told_to_no_one_else() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("policy.yaml"), POLICY).unwrap();
    let args = "up --foreground --listen 127.0.0.1:0 --nodes 0 --kubeconfig kubeconfig --data-dir data \
                --audit-log=audit.log --audit-policy policy.yaml";
    let mut command = sandbox.command(args);
    command.env("RUST_LOG", "trace").stderr(File::create(sandbox.path("log")).unwrap());
    let process = Running::spawn(&mut command);
    process.line_with("ready");
    let kubeconfig = sandbox.path("kubeconfig");
    let mut asking = Asking::new(&kubeconfig).await;
    ask_with_wrong_credentials(&mut asking).await;
    write_secrets(&mut asking).await;
    let tokens = use_tokens(&mut asking).await;
    fail_elsewhere(&mut asking).await;
    let admin = asking.admin.clone();
    let metrics = admin.request_text(Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap();
    process.signal(Signal::TERM);
    assert!(process.wait().success());

    let mut secrets: Vec<String> = [WRONG_TOKEN, PASSWORD, DATA, BOOTSTRAP, REVIEWED].map(str::to_owned).into();
    let encoded: Vec<String> = secrets.iter().map(|plain| BASE64_STANDARD.encode(plain)).collect();
    secrets.extend(encoded.into_iter().map(|text| text.trim_end_matches('=').to_owned()));
    secrets.push(BASE64_STANDARD.encode(format!("admin:{PASSWORD}")));
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let key = text.lines().find_map(|line| line.trim().strip_prefix("client-key-data: ")).unwrap();
    secrets.push(key.trim_matches('"').to_owned());
    for name in ["ca.key", "sa.key", "front-proxy-ca.key"] {
        let text = std::fs::read_to_string(sandbox.path("data/pki").join(name)).unwrap();
        secrets.push(text.lines().nth(1).unwrap().to_owned());
    }
    secrets.extend(tokens);

    let (log, audit) = (std::fs::read(sandbox.path("log")).unwrap(), std::fs::read(sandbox.path("audit.log")).unwrap());
    assert!(contains(&log, "TRACE") && contains(&audit, "\"level\":\"RequestResponse\""));
    assert!(contains(metrics.as_bytes(), "apiserver_request_total") && asking.refusals.len() > 30);
    for secret in &secrets {
        assert!(!contains(&log, secret), "the log has {secret}");
        assert!(!contains(&audit, secret), "an audit event has {secret}");
        assert!(!contains(metrics.as_bytes(), secret), "a metric has {secret}");
        for refusal in &asking.refusals {
            assert!(!refusal.contains(secret.as_str()), "a refusal has {secret}: {refusal}");
        }
    }
    let mut found = Vec::new();
    for part in ["data", "clusters"].map(|part| sandbox.path(part)).iter().filter(|part| part.exists()) {
        // As if the directories above were open: a mode is what keeps a file closed when it is copied.
        files(part, true, &mut found);
    }
    let stored = BASE64_STANDARD.encode(DATA);
    assert!(found.iter().any(|(_, text, is_open)| contains(text, &stored) && !is_open), "the store has the Secret");
    for (name, text, is_open) in &found {
        let told = secrets.iter().find(|secret| contains(text, secret));
        assert!(!(*is_open && told.is_some()), "{name} is open to others and has {told:?}");
    }
}
