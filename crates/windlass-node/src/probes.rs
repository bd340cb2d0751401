//! Probes of containers that really run: when they are made, what they ask, and when their outcome counts.
//!
//! A runtime [starts](start) them with a container and drops them with it. What it has to bring along is a [`Target`]: how
//! a command is run in the container, and how a port of its pod is reached.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::core::v1::{Container, GRPCAction, HTTPGetAction, Probe as ApiProbe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::runtime::{Connection, ContainerEvent, Probe};

/// How much of an answer is read.
const ANSWER: usize = 10 << 10;

/// The container that is asked.
pub trait Target: Send + Sync + 'static {
    /// Runs a command in the container: its exit code and its output.
    fn exec(&self, command: Vec<String>) -> BoxFuture<'static, Result<(i32, String), String>>;

    /// Connects to a port of the pod, or of another host.
    fn connect(&self, host: Option<String>, port: u16) -> BoxFuture<'static, Result<Box<dyn Connection>, String>>;
}

/// Probes that are being made; they end when this is dropped.
#[derive(Debug, Default)]
#[must_use = "probes end when this is dropped"]
pub struct Probes {
    tasks: Vec<AbortHandle>,
}

impl Drop for Probes {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Starts the probes of a container. `report` is told the outcomes that count, and every failure.
pub fn start(
    container: &Container,
    startup_done: bool,
    target: &Arc<dyn Target>,
    report: impl Fn(ContainerEvent) + Send + Sync + 'static,
) -> Probes {
    let report = Arc::new(report);
    let has_started = startup_done || container.startup_probe.is_none();
    let (started, wait) = watch::channel(has_started);
    let started = Arc::new(started);
    let all = [
        (Probe::Startup, container.startup_probe.as_ref().filter(|_| !has_started)),
        (Probe::Readiness, container.readiness_probe.as_ref()),
        (Probe::Liveness, container.liveness_probe.as_ref()),
    ];
    let mut probes = Probes::default();
    for (kind, spec) in all {
        let Some(spec) = spec else { continue };
        let action = Action::of(spec, container);
        let schedule = Schedule::of(spec);
        let (target, report, started) = (Arc::clone(target), Arc::clone(&report), Arc::clone(&started));
        let mut wait = wait.clone();
        let task = tokio::spawn(async move {
            if kind != Probe::Startup && wait.wait_for(|started| *started).await.is_err() {
                return;
            }
            let mut judge = Judge::new(kind, &schedule);
            tokio::time::sleep(schedule.delay).await;
            loop {
                let asked = tokio::time::timeout(schedule.timeout, action.ask(&*target));
                let outcome = asked.await.unwrap_or_else(|_| Err(timed_out(&schedule)));
                let verdict = judge.note(outcome.is_ok());
                match (verdict, outcome.err()) {
                    (Some(success), message) => {
                        let message = message.unwrap_or_default();
                        report(ContainerEvent::Probe { probe: kind, success, message });
                    }
                    (None, Some(message)) => report(ContainerEvent::ProbeFailed { probe: kind, message }),
                    (None, None) => {}
                }
                if let Some(success) = verdict {
                    match (kind, success) {
                        (Probe::Startup, true) => _ = started.send(true),
                        (Probe::Readiness, _) | (Probe::Liveness, true) => {}
                        // The container is stopped now.
                        (Probe::Startup | Probe::Liveness, false) => return,
                    }
                    if kind == Probe::Startup {
                        return;
                    }
                }
                tokio::time::sleep(schedule.period).await;
            }
        });
        probes.tasks.push(task.abort_handle());
    }
    probes
}

fn timed_out(schedule: &Schedule) -> String {
    format!("the probe did not end within {}s", schedule.timeout.as_secs())
}

/// When a probe is made.
#[derive(Debug, Clone, Copy)]
struct Schedule {
    delay: Duration,
    period: Duration,
    timeout: Duration,
    successes: i32,
    failures: i32,
}

impl Schedule {
    fn of(spec: &ApiProbe) -> Self {
        let seconds = |value: Option<i32>, default: i32| {
            Duration::from_secs(value.filter(|value| *value >= 0).unwrap_or(default).unsigned_abs().into())
        };
        Self {
            delay: seconds(spec.initial_delay_seconds, 0),
            period: seconds(spec.period_seconds, 10).max(Duration::from_secs(1)),
            timeout: seconds(spec.timeout_seconds, 1).max(Duration::from_secs(1)),
            successes: spec.success_threshold.unwrap_or(1).max(1),
            failures: spec.failure_threshold.unwrap_or(3).max(1),
        }
    }
}

/// Decides which outcomes count. Pure.
#[derive(Debug)]
struct Judge {
    /// What was reported last.
    verdict: Option<bool>,
    last: bool,
    row: i32,
    successes: i32,
    failures: i32,
}

impl Judge {
    fn new(kind: Probe, schedule: &Schedule) -> Self {
        let verdict = match kind {
            // Not ready until it is said, and alive until it is denied.
            Probe::Readiness => Some(false),
            Probe::Liveness => Some(true),
            Probe::Startup => None,
        };
        Self { verdict, last: false, row: 0, successes: schedule.successes, failures: schedule.failures }
    }

    /// Takes an outcome; what is to be reported, if something has changed.
    fn note(&mut self, success: bool) -> Option<bool> {
        self.row = if success == self.last { self.row.saturating_add(1) } else { 1 };
        self.last = success;
        let needed = if success { self.successes } else { self.failures };
        if self.row < needed || self.verdict == Some(success) {
            return None;
        }
        self.verdict = Some(success);
        Some(success)
    }
}

/// What a probe asks, or a hook does.
#[derive(Debug, Clone)]
pub enum Action {
    /// Runs a command, which must end with 0.
    Exec(Vec<String>),
    /// Asks an HTTP server, which must answer with 2xx or 3xx.
    Http {
        /// Where, if not at the pod.
        host: Option<String>,
        /// At which port.
        port: u16,
        /// For which path.
        path: String,
        /// With which headers.
        headers: Vec<(String, String)>,
        /// Whether by TLS, whose certificate is not checked.
        tls: bool,
    },
    /// Connects to a port.
    Tcp {
        /// Where, if not at the pod.
        host: Option<String>,
        /// At which port.
        port: u16,
    },
    /// Asks a server for its health by gRPC.
    Grpc {
        /// At which port.
        port: u16,
        /// For which service.
        service: String,
    },
    /// Cannot be done, with the reason.
    Impossible(String),
}

impl Action {
    fn of(spec: &ApiProbe, container: &Container) -> Self {
        if let Some(exec) = &spec.exec {
            return Self::Exec(exec.command.clone().unwrap_or_default());
        }
        if let Some(http) = &spec.http_get {
            return Self::http(http, container);
        }
        if let Some(tcp) = &spec.tcp_socket {
            return Self::tcp(tcp, container);
        }
        match &spec.grpc {
            Some(GRPCAction { port, service }) => match u16::try_from(*port) {
                Ok(port) => Self::Grpc { port, service: service.clone().unwrap_or_default() },
                Err(_) => Self::Impossible(format!("{port} is not a port")),
            },
            None => Self::Impossible("missing probe handler".to_owned()),
        }
    }

    /// What an HTTP probe or hook does.
    pub fn http(http: &HTTPGetAction, container: &Container) -> Self {
        let port = match port(&http.port, container) {
            Ok(port) => port,
            Err(error) => return Self::Impossible(error),
        };
        let headers = http.http_headers.iter().flatten().map(|header| (header.name.clone(), header.value.clone()));
        let path = http.path.clone().unwrap_or_default();
        Self::Http {
            host: http.host.clone().filter(|host| !host.is_empty()),
            port,
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            headers: headers.collect(),
            tls: http.scheme.as_deref() == Some("HTTPS"),
        }
    }

    fn tcp(tcp: &TCPSocketAction, container: &Container) -> Self {
        match port(&tcp.port, container) {
            Ok(port) => Self::Tcp { host: tcp.host.clone().filter(|host| !host.is_empty()), port },
            Err(error) => Self::Impossible(error),
        }
    }

    /// Does it; what went wrong otherwise.
    pub async fn ask(&self, target: &dyn Target) -> Result<(), String> {
        match self {
            Self::Exec(command) => match target.exec(command.clone()).await? {
                (0, _) => Ok(()),
                (code, output) if output.is_empty() => Err(format!("command terminated with exit code {code}")),
                (_, output) => Err(output),
            },
            Self::Http { host, port, path, headers, tls } => {
                let connection = target.connect(host.clone(), *port).await?;
                let connection = if *tls { crate::insecure_tls::wrap(connection).await? } else { connection };
                get(connection, host.as_deref(), *port, path, headers).await
            }
            Self::Tcp { host, port } => target.connect(host.clone(), *port).await.map(drop),
            Self::Grpc { port, service } => health(target.connect(None, *port).await?, service).await,
            Self::Impossible(why) => Err(why.clone()),
        }
    }
}

/// A port by its number, or by the name that the container gives it.
fn port(port: &IntOrString, container: &Container) -> Result<u16, String> {
    let number = match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
            named.and_then(|port| u16::try_from(port.container_port).ok()).or_else(|| name.parse().ok())
        }
    };
    number.filter(|number| *number > 0).ok_or_else(|| format!("couldn't find port: {port:?}"))
}

async fn get(
    connection: Box<dyn Connection>,
    host: Option<&str>,
    port: u16,
    path: &str,
    headers: &[(String, String)],
) -> Result<(), String> {
    let said = |error: hyper::Error| format!("Get \"{path}\": {error}");
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(connection)).await.map_err(said)?;
    let own = |name: &str| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
    let mut request = Request::get(path);
    if !own("host") {
        request = request.header("host", format!("{}:{port}", host.unwrap_or("localhost")));
    }
    if !own("user-agent") {
        request = request.header("user-agent", "kube-probe/1.36");
    }
    if !own("accept") {
        request = request.header("accept", "*/*");
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request =
        request.header("connection", "close").body(Full::<Bytes>::default()).map_err(|error| error.to_string())?;
    let asked = async {
        let response = sender.send_request(request).await.map_err(said)?;
        let status = response.status();
        if status.is_success() || status.is_redirection() {
            return Ok(());
        }
        Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
    };
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        result = &mut asked => result,
        // A server may close the connection together with its answer.
        _ = connection => asked.await,
    }
}

/// `grpc.health.v1.Health/Check`: the message is a string in field 1, the answer a number in field 1 that must be 1.
async fn health(connection: Box<dyn Connection>, service: &str) -> Result<(), String> {
    let said = |error: hyper::Error| format!("error: health rpc failed: {error}");
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(connection));
    let (mut sender, connection) = handshake.await.map_err(said)?;
    let body = asking_for(service);
    let request = Request::post("http://localhost/grpc.health.v1.Health/Check")
        .header("content-type", "application/grpc")
        .header("user-agent", "kube-probe/1.36")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let asked = async {
        let response = sender.send_request(request).await.map_err(said)?;
        let in_headers = response.headers().get("grpc-status").cloned();
        let body = Limited::new(response.into_body(), ANSWER).collect().await;
        let body = body.map_err(|error| format!("error: health rpc failed: {error}"))?;
        let status = in_headers.or_else(|| body.trailers().and_then(|all| all.get("grpc-status").cloned()));
        let code = status.as_ref().and_then(|status| status.to_str().ok()).unwrap_or("0").to_owned();
        match code.as_str() {
            "0" => {}
            "12" => {
                let service = "the grpc health protocol (grpc.health.v1.Health)";
                return Err(format!("error: this server does not implement {service}"));
            }
            _ => return Err(format!("error: health rpc failed: status {code}")),
        }
        match body.to_bytes().get(5..) {
            Some([0x08, 1, ..]) => Ok(()),
            Some([0x08, 2, ..]) => Err("service unhealthy (responded with \"NOT_SERVING\")".to_owned()),
            Some([0x08, 3, ..]) => Err("service unhealthy (responded with \"SERVICE_UNKNOWN\")".to_owned()),
            _ => Err("service unhealthy (responded with \"UNKNOWN\")".to_owned()),
        }
    };
    let mut asked = std::pin::pin!(asked);
    tokio::select! {
        result = &mut asked => result,
        // A server may close the connection together with its answer.
        _ = connection => asked.await,
    }
}

/// A message that asks for the health of a service, or of the whole server if it has no name: not compressed, then its length,
/// then field 1, whose length is a number of seven bits in each byte.
fn asking_for(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(0x0a);
        let mut length = service.len();
        while length > 0x7f {
            message.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        message.push(length as u8);
        message.extend(service.as_bytes());
    }
    let mut body = vec![0];
    body.extend(u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
    body.extend(message);
    body
}

#[cfg(test)]
mod tests;
