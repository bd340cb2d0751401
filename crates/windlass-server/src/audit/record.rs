//! One request on its way, and what is recorded of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Response, Uri};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::event::{Event, ObjectRef, ResponseStatus, UserInfo, drop_managed_fields, micro_time};
use super::policy::{Level, Seen, Verdict};
use super::{Annotations, Audit, Stage};
use crate::attributes::Target;
use crate::body::Body;
use crate::codec::negotiate::{self, Format};
use crate::codec::peek::Raw;
use crate::codec::{self, Expected};
use crate::object;
use crate::resource::Resource;
use crate::user::User;

/// Longer names of clients are cut.
const MAX_USER_AGENT: usize = 1024;
/// Of an answer that is made as it is read, this much is kept for its event; a longer one is recorded without.
const MAX_STREAMED: usize = 4 << 20;

/// A request as it begins.
#[derive(Clone, Copy)]
pub(crate) struct Begin<'a> {
    pub(crate) user: Option<&'a User>,
    pub(crate) verb: &'a str,
    pub(crate) target: Target<'a>,
    /// The version of the resource.
    pub(crate) version: &'a str,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// Where it comes from.
    pub(crate) peer: Option<IpAddr>,
    /// Whether it lasts as long as its client wants.
    pub(crate) is_long_running: bool,
    pub(crate) id: &'a HeaderValue,
}

/// What is recorded of one request.
pub(crate) struct Record {
    audit: Arc<Audit>,
    verdict: Verdict,
    id: String,
    uri: String,
    verb: String,
    user: Option<User>,
    impersonated: Option<User>,
    source_ips: Vec<String>,
    user_agent: String,
    object: Option<ObjectRef>,
    received: Timestamp,
    annotations: Annotations,
    request_object: Option<Value>,
    status: Option<ResponseStatus>,
    is_long_running: bool,
    /// Whether its last event has been written, or is left to another task.
    is_settled: bool,
}

impl Record {
    /// Begins to record a request that comes in `now`, if the policy says so.
    pub(crate) async fn begin(audit: &Arc<Audit>, now: Timestamp, begin: Begin<'_>) -> Option<Box<Self>> {
        let verdict = audit.policy.judge(&Seen { user: begin.user, verb: begin.verb, target: begin.target });
        audit.levels[verdict.level as usize].fetch_add(1, Ordering::Relaxed);
        if verdict.level == Level::None {
            return None;
        }
        let object = match begin.target {
            Target::Path(_) => None,
            Target::Resource(target) => Some(ObjectRef {
                resource: target.resource.to_owned(),
                namespace: target.namespace.to_owned(),
                name: target.name.to_owned(),
                api_group: target.group.to_owned(),
                api_version: begin.version.to_owned(),
                subresource: target.subresource.to_owned(),
                ..ObjectRef::default()
            }),
        };
        let level = verdict.level;
        let record = Self {
            audit: Arc::clone(audit),
            verdict,
            id: String::from_utf8_lossy(begin.id.as_bytes()).into_owned(),
            uri: begin.uri.path_and_query().map_or_else(String::new, ToString::to_string),
            verb: begin.verb.to_owned(),
            user: begin.user.cloned(),
            impersonated: None,
            source_ips: source_ips(begin.headers, begin.peer),
            user_agent: user_agent(begin.headers),
            object,
            received: now,
            annotations: Annotations::new(level),
            request_object: None,
            status: None,
            is_long_running: begin.is_long_running,
            is_settled: false,
        };
        let record = Box::new(record);
        // A request that is not authenticated has no event for this.
        if record.user.is_some() {
            record.write(Stage::RequestReceived, record.received, None).await;
        }
        Some(record)
    }

    /// The request goes on as another user's.
    pub(crate) fn impersonated(&mut self, user: &User) {
        self.impersonated = Some(user.clone());
    }

    /// What was said to the request, and why.
    pub(crate) fn authorized(&mut self, allowed: bool, reason: &str) {
        let decision = if allowed { "allow" } else { "forbid" };
        self.annotations.add("authorization.k8s.io/decision", || decision.to_owned());
        self.annotations.add("authorization.k8s.io/reason", || reason.to_owned());
    }

    /// Takes what other parts of the server add to the event.
    pub(crate) fn annotations(&self) -> Annotations {
        self.annotations.clone()
    }

    /// The body of the request, for a resource of this kind. What cannot be read is left out.
    pub(crate) fn request_body(&mut self, method: &Method, headers: &HeaderMap, resource: &Resource, body: &Bytes) {
        if body.is_empty() || (method == Method::PATCH && self.verdict.level < Level::Request) {
            return;
        }
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let read = |format| codec::body::read(body, format).ok().map(|(value, _)| value);
        let object = if method == Method::PATCH {
            // Every patch is YAML, since JSON is.
            read(Format::Yaml)
        } else {
            match negotiate::body_format(Some(content_type).filter(|text| !text.is_empty()), resource.custom) {
                Ok(Format::Protobuf) => {
                    let decoded = codec::decode_body(body, Format::Protobuf, Expected::from(resource));
                    decoded.ok().map(|decoded| decoded.value)
                }
                Ok(format) => read(format),
                Err(_) => None,
            }
        };
        let Some(mut object) = object else { return };
        if method != Method::PATCH
            && let Some(reference) = &mut self.object
        {
            reference.complete(&object);
        }
        if self.verdict.level >= Level::Request {
            if self.verdict.omit_managed_fields {
                drop_managed_fields(&mut object);
            }
            self.request_object = Some(object);
        }
    }

    /// A request that could not be authenticated. Its answer is all that is recorded.
    pub(crate) async fn refuse(mut self: Box<Self>, methods: &str) {
        let message = format!("Authentication failed, attempted: {methods}");
        let message =
            if methods.is_empty() { "Authentication failed, no credentials provided".to_owned() } else { message };
        self.status = Some(ResponseStatus::new(401, Some(&json!({"message": message}))));
        self.is_settled = true;
        self.write(Stage::ResponseStarted, Timestamp::now(), None).await;
    }

    /// The request is answered.
    pub(crate) async fn answer(mut self: Box<Self>, response: Response<Body>) -> Response<Body> {
        let code = response.status().as_u16();
        let content_type =
            response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let is_json = content_type.split(';').next() == Some("application/json");
        let wants_object = self.verdict.level == Level::RequestResponse;
        let full = response.body().full().filter(|_| is_json).cloned();
        let is_status = full
            .as_ref()
            .is_some_and(|body| Raw::new(body).field("kind").is_some_and(|kind| kind.bytes() == b"\"Status\""));
        let object = full.filter(|_| wants_object || is_status);
        let object: Option<Value> = object.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        self.status = Some(ResponseStatus::new(code, object.as_ref().filter(|_| is_status)));
        self.is_settled = true;
        if self.is_long_running {
            self.write(Stage::ResponseStarted, Timestamp::now(), None).await;
        }
        if response.body().full().is_some() {
            self.write(Stage::ResponseComplete, Timestamp::now(), object.filter(|_| wants_object)).await;
            return response;
        }
        let collects = wants_object && is_json && !self.is_long_running;
        let mut rest = Rest { record: self, collected: collects.then(Vec::new) };
        if collects {
            return response.map(|body| body.observed(move |piece| rest.add(piece)));
        }
        response.map(|body| body.guarded(rest))
    }

    /// Writes an event, after it has waited for room.
    async fn write(&self, stage: Stage, time: Timestamp, response: Option<Value>) {
        if let Some(line) = self.line(stage, time, response) {
            self.audit.log.write(line).await;
        }
    }

    fn line(&self, stage: Stage, time: Timestamp, mut response: Option<Value>) -> Option<Vec<u8>> {
        if self.verdict.omit_stages.has(stage) {
            return None;
        }
        if self.verdict.omit_managed_fields
            && let Some(object) = &mut response
        {
            drop_managed_fields(object);
        }
        let user = self.user.as_ref().map(UserInfo::from).unwrap_or_default();
        let annotations = self.annotations.all();
        let mut event = Event::new(&self.id, user, &annotations);
        event.level = self.verdict.level.name();
        event.stage = stage.name();
        event.request_uri = &self.uri;
        event.verb = &self.verb;
        event.impersonated_user = self.impersonated.as_ref().map(UserInfo::from);
        event.source_ips = &self.source_ips;
        event.user_agent = &self.user_agent;
        event.object_ref = self.object.as_ref();
        event.response_status = self.status.as_ref();
        event.request_object = self.request_object.as_ref();
        event.response_object = response.as_ref();
        event.request_received_timestamp = micro_time(self.received);
        event.stage_timestamp = micro_time(time);
        let mut line = serde_json::to_vec(&event).ok()?;
        line.push(b'\n');
        Some(line)
    }
}

impl Drop for Record {
    /// A request that is never answered: its client has gone, or the server has panicked.
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let (stage, code, status) = if std::thread::panicking() {
            let message = "APIServer panic'd";
            (Stage::Panic, 500, json!({"status": "Failure", "message": message, "reason": "InternalError"}))
        } else {
            // Upstream says so, too: what becomes of the request is not known.
            (Stage::ResponseComplete, 200, json!({"status": "Success", "message": "Connection closed early"}))
        };
        self.status = Some(ResponseStatus::new(code, Some(&status)));
        if let Some(line) = self.line(stage, Timestamp::now(), None) {
            self.audit.log.try_write(line);
        }
    }
}

/// The end of an answer that is made as it is read.
struct Rest {
    record: Box<Record>,
    /// The answer so far, if it is recorded and not too long.
    collected: Option<Vec<u8>>,
}

impl Rest {
    fn add(&mut self, piece: &Bytes) {
        if let Some(collected) = &mut self.collected {
            if collected.len() + piece.len() > MAX_STREAMED {
                self.collected = None;
            } else {
                collected.extend_from_slice(piece);
            }
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let object = self.collected.take().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        if let Some(line) = self.record.line(Stage::ResponseComplete, Timestamp::now(), object) {
            self.record.audit.log.try_write(line);
        }
    }
}

/// The id of a request: the one that its client has given it, or a new one.
pub(crate) fn id(headers: &HeaderMap) -> Option<HeaderValue> {
    let given = headers.get("audit-id").filter(|id| !id.is_empty());
    given.cloned().or_else(|| HeaderValue::from_str(&object::new_uid()).ok())
}

/// Where a request comes from: first the addresses that proxies name, then the connection's end.
fn source_ips(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut ips: Vec<IpAddr> = text("x-forwarded-for").split(',').filter_map(|ip| ip.trim().parse().ok()).collect();
    if let Ok(ip) = text("x-real-ip").trim().parse::<IpAddr>()
        && !ips.contains(&ip)
    {
        ips.push(ip);
    }
    if let Some(peer) = peer.filter(|peer| ips.last() != Some(peer)) {
        ips.push(peer);
    }
    ips.iter().map(ToString::to_string).collect()
}

fn user_agent(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let mut agent = agent.unwrap_or_default();
    if agent.len() > MAX_USER_AGENT {
        let mut end = MAX_USER_AGENT;
        while !agent.is_char_boundary(end) {
            end -= 1;
        }
        agent.truncate(end);
        agent.push_str("...TRUNCATED");
    }
    agent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_those_of_proxies_and_of_the_connection() {
        let mut headers = HeaderMap::new();
        headers.insert("x-forwarded-for", HeaderValue::from_static("192.0.2.1, unknown, 192.0.2.2"));
        headers.insert("x-real-ip", HeaderValue::from_static("192.0.2.2"));
        let peer = Some(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(source_ips(&headers, peer), ["192.0.2.1", "192.0.2.2", "127.0.0.1"]);
        assert_eq!(source_ips(&HeaderMap::new(), peer), ["127.0.0.1"]);
    }

    #[test]
    fn long_names_of_clients_are_cut() {
        let mut headers = HeaderMap::new();
        headers.insert(USER_AGENT, HeaderValue::from_str(&"x".repeat(2000)).expect("valid"));
        assert_eq!(user_agent(&headers).len(), 1024 + "...TRUNCATED".len());
    }
}
