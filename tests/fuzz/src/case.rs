//! One case: a valid object is created, odd requests are sent, and every answer is checked.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use fastrand::Rng;
use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use windlass_api::codec::body;
use windlass_api::codec::negotiate::Format;

use crate::expected;
use crate::kinds::Material;
use crate::odd::Odd;
use crate::report::Report;
use crate::request::{Act, Sent, Subject};
use crate::world::{Answer, Silence, World};

/// How many odd requests a case has at most.
const REQUESTS: usize = 10;

/// What has panicked, wherever that was.
pub(crate) static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// How many panics there are: cheaper to look at.
pub(crate) static PANICKED: AtomicUsize = AtomicUsize::new(0);

/// Keys that the server's own tasks write, whatever a request does.
const OWN: &[&str] = &[
    "/registry/apiextensions.k8s.io/",
    "/registry/apiregistration.k8s.io/",
    "/registry/clusterroles/",
    "/registry/configmaps/kube-system/extension-apiserver-authentication",
    "/registry/flowschemas/",
    "/registry/prioritylevelconfigurations/",
    "/registry/leases/kube-system/",
    "/registry/ipaddresses/",
    "/registry/servicecidrs/",
    "/registry/services/specs/default/kubernetes",
    "/registry/services/endpoints/default/kubernetes",
    "/registry/endpointslices/default/kubernetes",
];

/// A case that runs.
pub(crate) struct Case<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) material: &'a Material,
    pub(crate) report: &'a mut Report,
    pub(crate) seed: u64,
    pub(crate) index: u64,
    /// Prints everything.
    pub(crate) verbose: bool,
}

impl Case<'_> {
    pub(crate) async fn run(&mut self) -> Result<()> {
        let material = self.material;
        // Neighbouring seeds and cases have nothing in common.
        let mut rng = Rng::with_seed(
            self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.index.wrapping_mul(0xd134_2543_de82_ef95),
        );
        rng.u64(..);
        let kind = loop {
            let kind = &material.kinds[rng.usize(..material.kinds.len())];
            // Definitions take the server long, and others too few cases would look at.
            if !kind.objects.is_empty() && (kind.plural != "customresourcedefinitions" || rng.usize(..3) == 0) {
                break kind;
            }
        };
        let valid = &kind.objects[rng.usize(..kind.objects.len())];
        let mut odd = Odd { rng, material };
        let mut subject = Subject { kind, valid, live: Value::Null, revision: self.world.revision() };
        if kind.serves("get") {
            let sent = Sent::json(Act::Create, Method::POST, kind.collection(), valid);
            self.report.all += 1;
            match self.world.send(&sent).await {
                Ok(answer) if answer.code == 201 => subject.live = serde_json::from_slice(&answer.body)?,
                Ok(answer) => self.report.find("a valid object is refused", &self.at(0), &describe(&sent, &answer)),
                Err(_) => self.report.find("a valid object is not answered", &self.at(0), &sent.uri),
            }
        }
        for step in 1..=1 + odd.rng.usize(..REQUESTS) {
            let sent = odd.request(&subject);
            self.step(step, &sent, &mut subject).await;
        }
        self.report.cases += 1;
        let settled = self.world.settle().await;
        if let Err(why) = settled {
            self.report.find("the store", &self.at(0), &why.to_string());
        }
        self.world.compact().await
    }

    fn at(&self, step: usize) -> String {
        format!("{}:{} request {step}", self.seed, self.index)
    }

    async fn step(&mut self, step: usize, sent: &Sent, subject: &mut Subject<'_>) {
        let before = self.world.revision();
        if self.verbose {
            println!("\n{step}. {}", show(sent));
        }
        let answer = self.world.send(sent).await;
        self.take_panics(step, sent);
        let answer = match answer {
            Ok(answer) => answer,
            Err(Silence::Unsendable | Silence::Panicked) => return,
            Err(Silence::TooSlow) => return self.report.find("no answer in time", &self.at(step), &show(sent)),
        };
        if self.verbose {
            println!("-> {} {} {}", answer.code, answer.content_type, answer.text());
        }
        let at = self.at(step);
        self.report.all += 1;
        self.report
            .answered(sent.act, answer.code, answer.took, || format!("{at} {} {}", sent.method, short(&sent.uri)));
        if answer.code >= 400 {
            self.check_refusal(sent, &answer, &at);
        } else if answer.text().contains("\"type\":\"ERROR\"") && answer.text().contains("\"code\":500") {
            self.report.find("a watch ends with 500", &at, &describe(sent, &answer));
        }
        let must_not_write = answer.code >= 400
            && answer.code != 504
            && !expected::is_refused_late(answer.code, &answer.text())
            && sent.act != Act::DeleteCollection
            && !sent.uri.contains("timeout");
        if must_not_write || (sent.is_dry_run() && answer.code < 300 && sent.uri.contains("dryRun=All")) {
            self.check_unchanged(before, sent, &answer, &at).await;
        }
        if answer.code < 300
            && !sent.is_dry_run()
            && let Some(path) = &sent.object
        {
            self.read_back(path, sent, &answer, &at, subject).await;
        }
        subject.revision = self.world.revision();
    }

    fn take_panics(&mut self, step: usize, sent: &Sent) {
        if PANICKED.load(Ordering::Relaxed) == 0 {
            return;
        }
        let at = self.at(step);
        for panic in PANICS.lock().drain(..) {
            self.report.find("panic", &at, &format!("{panic}\n{}", show(sent)));
        }
        PANICKED.store(0, Ordering::Relaxed);
    }

    /// A refusal is a Status with the code of the answer, and no 500 that upstream would not give.
    fn check_refusal(&mut self, sent: &Sent, answer: &Answer, at: &str) {
        if sent.method == Method::HEAD {
            return;
        }
        let content_type = answer.content_type.split(';').next().unwrap_or_default();
        let format = match content_type {
            "application/json" => Some(Format::Json),
            "application/yaml" => Some(Format::Yaml),
            "application/vnd.kubernetes.protobuf" => Some(Format::Protobuf),
            _ => None,
        };
        let status = format.and_then(|format| body::read(&answer.body, format).ok()).map(|(value, _)| value);
        let message = match &status {
            Some(status) => status["message"].as_str().unwrap_or_default().to_owned(),
            None => answer.text(),
        };
        if answer.code == 500 {
            match expected::internal(&message) {
                Some(row) => self.report.explain(row),
                None => return self.report.find("500", at, &format!("{message}\n{}", describe(sent, answer))),
            }
        }
        let right = match &status {
            Some(status) if status["kind"] == "Status" || format == Some(Format::Protobuf) => {
                status["status"] == "Failure" && status["code"] == answer.code && !message.is_empty()
            }
            _ => expected::is_text(answer.code, &sent.uri, &message),
        };
        if !right {
            self.report.find(
                "no valid Status",
                at,
                &format!("{} {} {message}\n{}", answer.code, answer.content_type, &describe(sent, answer)),
            );
        }
    }

    /// What was refused or only tried has changed nothing.
    async fn check_unchanged(&mut self, before: u64, sent: &Sent, answer: &Answer, at: &str) {
        self.report.unchanged += 1;
        if self.world.revision() == before {
            return;
        }
        for event in self.world.changes(before).await {
            let key = String::from_utf8_lossy(&event.key).into_owned();
            if !OWN.iter().any(|own| key.starts_with(own)) {
                self.report.find("a refusal has changed something", at, &format!("{key}\n{}", describe(sent, answer)));
            }
        }
    }

    /// What was answered is what is read.
    async fn read_back(&mut self, path: &str, sent: &Sent, answer: &Answer, at: &str, subject: &mut Subject<'_>) {
        if sent.has_header("accept")
            || sent.has_header("impersonate-user")
            || sent.uri.contains("pretty")
            || sent.has_header("user-agent")
        {
            return;
        }
        let Ok(written) = serde_json::from_slice::<Value>(&answer.body) else {
            // What nests deeper than that reads is read by the server's own reader.
            if body::read(&answer.body, Format::Json).is_err() {
                self.report.find("no JSON", at, &describe(sent, answer));
            }
            return;
        };
        let is_scale = sent.uri.contains("/scale");
        if written["kind"] != subject.kind.kind.as_str() && !is_scale {
            return;
        }
        let path = match (sent.act, written["metadata"]["name"].as_str()) {
            (Act::Create, Some(name)) => format!("{path}/{}", escaped(name)),
            // Of an update of a status, the whole object is read.
            (Act::Subresource, Some(_)) if !is_scale => subject.path(),
            _ => path.to_owned(),
        };
        if !subject.kind.serves("get") {
            return;
        }
        self.report.all += 1;
        let Some(read) = self.world.get(&path, None).await else {
            return self.report.find("a GET is not answered", at, &describe(sent, answer));
        };
        let deleting = !written["metadata"]["deletionTimestamp"].is_null();
        if read.code == 404 && deleting {
            return;
        }
        self.report.read_back += 1;
        if read.body == answer.body {
            if sent.act != Act::Create && !is_scale {
                subject.live = written;
            }
            return;
        }
        let now = serde_json::from_slice::<Value>(&read.body).unwrap_or_default();
        // Tasks of the server write conditions of some kinds meanwhile.
        let own = matches!(
            subject.kind.plural.as_str(),
            "clusterroles"
                | "customresourcedefinitions"
                | "apiservices"
                | "flowschemas"
                | "prioritylevelconfigurations"
                | "servicecidrs"
        );
        if own && now["metadata"]["resourceVersion"] != written["metadata"]["resourceVersion"] {
            return;
        }
        self.report.find(
            "a write reads back otherwise",
            at,
            &format!("{} {path}\n{}\nread: {}", read.code, describe(sent, answer), read.text()),
        );
    }
}

/// A name as it is in a path: some kinds take any but a few characters.
fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    name.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A request and its answer.
fn describe(sent: &Sent, answer: &Answer) -> String {
    format!("{}\n-> {} {} {}", show(sent), answer.code, answer.content_type, answer.text())
}

fn show(sent: &Sent) -> String {
    let headers: Vec<String> = sent.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let body = String::from_utf8_lossy(&sent.body[..sent.body.len().min(3_000)]).into_owned();
    format!("{} {} [{}] {body}", sent.method, short(&sent.uri), headers.join(", "))
}

fn short(text: &str) -> String {
    text.chars().take(300).collect()
}
