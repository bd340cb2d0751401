//! From an HTTP request to an HTTP response: the server's pipeline, top to bottom.
//!
//! ```text
//! authenticate ▸ resolve the path ▸ wait for seats ▸ authorise ▸ read the body ▸ registry ▸ render
//! ```

mod aggregated;
mod body;
mod deadline;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;

use crate::api::Api;
use crate::audit::{self, Begin, Record};
pub use crate::authn::Peer;
use crate::authn::User;
use crate::body::Body;
use crate::catalog::{Served, Snapshot};
use crate::codec::negotiate::{self, APPLY_TYPE, Accepted, Endpoint};
use crate::effort::{self, OffloadableFuture};
use crate::field::quote;
use crate::flow_control::{self, Entrant, Passage};
use crate::metrics::{RequestLabels, Waits};
use crate::registry::{self, Context};
use crate::render::{self, RenderContext};
use crate::request::{self, Query, ResourcePath, Target, Verb};
use crate::status::{Qualified, Status};
use crate::{attributes, authn, authz, documents, health, rbac, streams, table};

use body::{Budgets, Read};

/// The subresource whose requests are passed on.
const PROXY: &str = "proxy";

/// The address of a client. The listener puts it into the extensions of a request if the audit is on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteAddress(pub(crate) IpAddr);

/// What goes along with a request from its start to its answer.
struct Filters {
    /// Its id, which the answer tells.
    id: Option<HeaderValue>,
    passage: Passage,
    /// What is recorded of it, if anything is.
    record: Option<Box<Record>>,
}

/// The body of a request, from a connection or from the same process.
pub type Payload = UnsyncBoxBody<Bytes, std::io::Error>;

/// Any body as a [`Payload`].
pub fn payload<B>(body: B) -> Payload
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let frames = body.map_frame(|frame| frame.map_data(|mut data| data.copy_to_bytes(data.remaining())));
    frames.map_err(std::io::Error::other).boxed_unsync()
}

/// Answers one request.
///
/// Neither generic nor `async`: all that a request goes through is compiled here, once, and not into
/// each crate that serves.
pub fn handle(api: Arc<Api>, request: Request<Payload>) -> OffloadableFuture<Response<Body>> {
    let bodiless = request.method() == Method::HEAD;
    let answer = Box::pin(async move {
        let mut filters = Filters { id: audit::id(request.headers()), passage: Passage::default(), record: None };
        let response = match authenticated(&api, request, &mut filters).await {
            Ok(response) => response,
            Err(status) => render::status(&status, &Accepted::json()),
        };
        let Filters { id, passage, record } = filters;
        let mut response = passage.leave(identified(response, id));
        if let Some(record) = record {
            // Boxed: most servers record nothing.
            response = Box::pin(record.answer(response)).await;
        }
        if bodiless { without_body(response) } else { response }
    });
    OffloadableFuture::new(answer, if bodiless { || without_body(too_late()) } else { too_late })
}

fn too_late() -> Response<Body> {
    let id = audit::id(&HeaderMap::new());
    identified(render::status(&Status::timed_out(), &Accepted::json()), id)
}

/// A response with the id of its request.
fn identified(mut response: Response<Body>, id: Option<HeaderValue>) -> Response<Body> {
    if let Some(id) = id {
        response.headers_mut().insert("audit-id", id);
    }
    response
}

/// The head of a response, which tells how long its body would be. HTTP/2 leaves it to the server to send none.
fn without_body(response: Response<Body>) -> Response<Body> {
    let length = response.body().size_hint().exact().filter(|length| *length > 0);
    let mut response = response.map(|_| Body::empty());
    if let Some(length) = length {
        response.headers_mut().insert(CONTENT_LENGTH, length.into());
    }
    response
}

async fn authenticated(
    api: &Arc<Api>,
    request: Request<Payload>,
    filters: &mut Filters,
) -> Result<Response<Body>, Status> {
    let path = request::decode_path(request.uri().path());
    let target = Target::parse(&path);
    let query = Query::parse(request.uri().query());
    let timeout = deadline::timeout(&target, request.method(), &query)?;
    let peer = request.extensions().get::<Peer>();
    let user = match authn::authenticate(api, request.headers(), peer).await {
        Ok(user) => user,
        Err(status) => {
            if api.audit.is_some() {
                let (head, attempted) = (Head::of(&request), authn::attempted(request.headers(), peer));
                let record = begin_refused(api, &path, &target, request.method(), &query, head, filters);
                if let Some(record) = Box::pin(record).await {
                    record.refuse(&attempted).await;
                }
            }
            return Err(status);
        }
    };
    match target {
        Target::Resource(path) => resource(api, user, path, query, timeout, request, filters).await,
        target => {
            let (path, verb) = (&*path, request.method().as_str().to_lowercase());
            let wanted =
                Wanted { verb: &verb, target: attributes::Target::Path(path), version: "", query: &query, timeout };
            let user = match admit(api, user, &wanted, Head::of(&request), filters).await? {
                Ok(user) => user,
                Err(rejected) => return Ok(rejected),
            };
            if let Some(remote) = aggregated::of_path(&api.catalog.snapshot(), &target, path) {
                return Ok(Box::pin(aggregated::pass_on(&remote, &user, request, timeout)).await);
            }
            if let Some(response) = flow_control::answer_dump(&api.flow_control, path, &query) {
                return Ok(response);
            }
            if let Some(response) = health::answer(api, path, &query) {
                return Ok(response);
            }
            // The first to ask after a change waits for a document about everything to be written and compressed.
            api.offload.rest_of_request(Qualified { group: "", name: "openapi" }, path.starts_with("/openapi/")).await;
            documents::answer(api, &target, request.method(), path, &query, request.headers())
        }
    }
}

/// How a request begins.
#[derive(Clone, Copy)]
struct Head<'a> {
    uri: &'a Uri,
    headers: &'a HeaderMap,
    remote: Option<IpAddr>,
}

impl<'a> Head<'a> {
    fn of(request: &'a Request<Payload>) -> Self {
        let remote = request.extensions().get::<RemoteAddress>().map(|address| address.0);
        Self { uri: request.uri(), headers: request.headers(), remote }
    }
}

/// What a request is for.
struct Wanted<'a> {
    verb: &'a str,
    target: attributes::Target<'a>,
    /// The version of the resource.
    version: &'a str,
    query: &'a Query,
    /// How long it may take; `None` if it is long-running.
    timeout: Option<Duration>,
}

/// Lets a request through if there are seats for it and it is allowed. Returns the user that it is carried out for, or the
/// answer of a request that gets no seats.
async fn admit(
    api: &Api,
    requester: User,
    wanted: &Wanted<'_>,
    head: Head<'_>,
    filters: &mut Filters,
) -> Result<Result<User, Response<Body>>, Status> {
    let Wanted { verb, target, version, query, timeout } = *wanted;
    if api.audit.is_some() {
        filters.record = Box::pin(begin_record(api, Some(&requester), wanted, head, filters.id.as_ref())).await;
    }
    let user = authn::impersonate(api, requester, head.headers, verb, target)?;
    if let Some(record) = filters.record.as_mut().filter(|_| head.headers.contains_key("impersonate-user")) {
        record.impersonated(&user);
    }
    let attributes = attributes::Attributes { user: &user, verb, target };
    let entrant = Entrant { request: attributes, version, query, timeout };
    if let Some(rejected) = filters.passage.enter(&api.flow_control, entrant).await {
        return Ok(Err(rejected));
    }
    let (allowed, reason) = match authz::decide_request(api, &attributes).await {
        rbac::Decision::Allowed(reason) => (true, reason),
        rbac::Decision::NoOpinion(reason) => (false, reason),
    };
    if let Some(record) = &mut filters.record {
        record.authorized(allowed, &reason);
    }
    if allowed {
        return Ok(Ok(user));
    }
    let mut refusal = render::status(&authz::forbidden(&attributes, &reason), &Accepted::json());
    refusal.headers_mut().insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Ok(Err(refusal))
}

async fn begin_record(
    api: &Api,
    user: Option<&User>,
    wanted: &Wanted<'_>,
    head: Head<'_>,
    id: Option<&HeaderValue>,
) -> Option<Box<Record>> {
    let begin = Begin {
        user,
        verb: wanted.verb,
        target: wanted.target,
        version: wanted.version,
        uri: head.uri,
        headers: head.headers,
        peer: head.remote,
        is_long_running: wanted.timeout.is_none(),
        id: id?,
    };
    Record::begin(api.audit.as_ref()?, api.now(), begin).await
}

/// The record of a request that could not be authenticated.
async fn begin_refused(
    api: &Api,
    path: &str,
    target: &Target,
    method: &Method,
    query: &Query,
    head: Head<'_>,
    filters: &Filters,
) -> Option<Box<Record>> {
    let verb = method.as_str().to_lowercase();
    let mut wanted = Wanted { verb: &verb, target: attributes::Target::Path(path), version: "", query, timeout: None };
    let name;
    if let Target::Resource(path) = target {
        let verb = path.verb(method, query.flag("watch").unwrap_or(false));
        name = authz::requested_name(verb, path, query);
        wanted.verb = verb.map_or("", Verb::as_str);
        wanted.target = attributes::Target::Resource(attributes::ResourceTarget::of_path(path, &name));
        wanted.version = &path.version;
    }
    begin_record(api, None, &wanted, head, filters.id.as_ref()).await
}

async fn resource(
    api: &Arc<Api>,
    user: User,
    path: ResourcePath,
    query: Query,
    timeout: Option<Duration>,
    request: Request<Payload>,
    filters: &mut Filters,
) -> Result<Response<Body>, Status> {
    let started = Instant::now();
    let watch = query.flag("watch").unwrap_or(false);
    let verb = path.verb(request.method(), watch);
    let name = authz::requested_name(verb, &path, &query);
    let node = authz::requested_node(&path, &query);
    let target = attributes::ResourceTarget { node: &node, ..attributes::ResourceTarget::of_path(&path, &name) };
    let target = attributes::Target::Resource(target);
    let verb_name = verb.map_or("", Verb::as_str);
    let wanted = Wanted { verb: verb_name, target, version: &path.version, query: &query, timeout };
    let user = match admit(api, user, &wanted, Head::of(&request), filters).await? {
        Ok(user) => user,
        Err(rejected) => return Ok(rejected),
    };
    let timeout = timeout.map(|timeout| timeout.saturating_sub(filters.passage.waited()));
    let snapshot = api.catalog.snapshot();
    if let Some(remote) = snapshot.remotes().find(&path.group, &path.version).cloned() {
        drop(snapshot);
        // Boxed: few requests are passed on, and all would be as large as one that is.
        return Ok(Box::pin(aggregated::pass_on(&remote, &user, request, timeout)).await);
    }
    // What is proxied may be asked about with OPTIONS, which is no verb.
    let verb = match (verb, request.method()) {
        (Some(verb), _) => verb,
        (None, &Method::OPTIONS) if path.subresource.as_deref() == Some(PROXY) => Verb::Get,
        (None, _) => return Err(Status::method_not_allowed()),
    };
    let served = match find(&snapshot, &path, verb, request.method()) {
        Ok(served) => served,
        Err(Missing::Group) => return Ok(crate::body::text(StatusCode::NOT_FOUND, "404 page not found\n")),
        Err(Missing::Resource) => return Err(Status::no_such_resource()),
        Err(Missing::Object(status)) => return Err(*status),
        Err(Missing::Verb) => return Err(Status::method_not_allowed()),
    };
    drop(snapshot);
    path.name.as_deref().map_or(Ok(()), check_name)?;
    let labels = labels(&path, verb, request.headers(), &query);
    let deprecation = served.custom().and_then(|kind| kind.version(&served.version)?.deprecation.as_deref());
    let deprecation = deprecation.or_else(|| served.strategy().deprecation());
    let warnings: Vec<String> = deprecation.into_iter().map(Into::into).collect();
    let annotations = filters.record.as_ref().map(|record| record.annotations()).unwrap_or_default();
    if deprecation.is_some() {
        annotations.add("k8s.io/deprecated", || "true".to_owned());
    }
    let (mut parts, body) = request.into_parts();
    let takeover = parts.extensions.remove();
    let socket = if verb == Verb::Watch { streams::watch::asked(&parts.headers, takeover.as_ref()) } else { None };
    let accepted = accepted(&parts.headers, query.get("pretty"), &served, verb)?;
    let fallback = accepted.clone();
    let waits = Waits::default();
    let waited = waits.clone();
    let result = async {
        let reads = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
        let budgets = Budgets { arriving: &api.body_budget, decoded: &api.decoded_budget };
        // The room for the body is given back once the request is answered.
        let Read { bytes: body, room: _room } =
            if reads { body::read(budgets, &user, body).await? } else { Read::default() };
        api.offload.rest_of_request(served.qualified(), effort::is_large_write(body.len())).await;
        if let Some(record) = &mut filters.record {
            record.request_body(&parts.method, &parts.headers, &served.resource, &body);
        }
        let context = Context {
            api: Arc::clone(api),
            served,
            user,
            verb,
            path,
            query,
            headers: parts.headers,
            accepted,
            body,
            now: api.now(),
            warnings,
            conversions: registry::Conversions::default(),
            waits,
            annotations,
            connection: registry::Connection { method: parts.method, uri: parts.uri, takeover },
        };
        let render_context = RenderContext::new(&context)?;
        let answer = registry::serve(context).await?;
        Ok(render::answer(&render_context, answer).await)
    };
    // Pinned, so that there is room for it once.
    let mut result = pin!(result);
    let result = match timeout {
        None => result.as_mut().await,
        // Most requests do not wait for anything, and then there is no timer.
        Some(timeout) => match tokio::time::timeout(timeout, result.as_mut()).await {
            Ok(result) => result,
            Err(_) => Err(Status::request_timed_out()),
        },
    };
    let mut response = match result {
        Ok(response) => response,
        Err(status) => render::status(&status, &fallback),
    };
    if timeout.is_none() {
        response = response.map(Body::long_running);
    }
    if verb == Verb::Watch && response.status().is_success() {
        api.metrics.watching(&labels, 1);
        let guard = WatchGuard { api: Arc::clone(api), labels: labels.clone() };
        response = response.map(|body| body.guarded(guard));
        if let Some(socket) = socket {
            response = socket.carry(response);
        }
    }
    api.metrics.answered(&labels, response.status().as_u16(), started.elapsed(), waited.total());
    let reads = labels.verb != "CONNECT" || labels.subresource == "log";
    if matches!(verb, Verb::Get | Verb::List) && reads {
        response = response.map(|body| measured(body, api, labels));
    }
    Ok(response)
}

/// Counts a watch as ended when its body goes.
struct WatchGuard {
    api: Arc<Api>,
    labels: RequestLabels,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.api.metrics.watching(&self.labels, -1);
    }
}

/// Counts how large a body is, at once or when all of it is on its way.
fn measured(body: Body, api: &Arc<Api>, labels: RequestLabels) -> Body {
    if let Some(bytes) = http_body::Body::size_hint(&body).exact() {
        api.metrics.sent(&labels, bytes);
        return body;
    }
    let mut size = Size { api: Arc::clone(api), labels, bytes: 0 };
    body.observed(move |piece| size.add(piece))
}

/// Counts what was sent when the body goes.
struct Size {
    api: Arc<Api>,
    labels: RequestLabels,
    bytes: u64,
}

impl Size {
    fn add(&mut self, piece: &Bytes) {
        self.bytes += piece.len() as u64;
    }
}

impl Drop for Size {
    fn drop(&mut self) {
        self.api.metrics.sent(&self.labels, self.bytes);
    }
}

/// Why a path leads nowhere.
enum Missing {
    Group,
    Resource,
    Object(Box<Status>),
    Verb,
}

fn find(snapshot: &Snapshot, path: &ResourcePath, verb: Verb, method: &Method) -> Result<Arc<Served>, Missing> {
    let Some(served) = snapshot.find(&path.group, &path.version, &path.resource) else {
        return Err(if snapshot.has_builtin_group(&path.group) { Missing::Resource } else { Missing::Group });
    };
    // Upstream's handler of custom resources passes on what has the wrong scope, as it does with unknown
    // groups.
    let misplaced = if served.custom { Missing::Group } else { Missing::Resource };
    if path.namespace.is_some() && !served.namespaced {
        return Err(misplaced);
    }
    if path.namespace.is_none() && served.namespaced {
        match (path.name.is_some(), verb) {
            // Some namespaced resources are created without a path namespace: reviews are not among them.
            (true, _) => return Err(misplaced),
            (false, Verb::List | Verb::Watch) => {}
            (false, _) if served.custom => return Err(misplaced),
            (false, _) => return Err(Missing::Verb),
        }
    }
    // The path says that it is a watch whatever the method, but only GET is served.
    if path.watch_prefix && !matches!(*method, Method::GET | Method::HEAD) {
        return Err(Missing::Verb);
    }
    if let Some(name) = &path.subresource {
        // Upstream's handler of custom resources does not look at what follows a subresource.
        if path.rest.is_some() && name != PROXY && !served.custom {
            return Err(Missing::Resource);
        }
        let Some(subresource) = served.subresource(name) else {
            // Upstream looks for the object of a custom resource before it finds no such subresource.
            let object = path.name.as_deref().filter(|_| served.custom && matches!(name.as_str(), "status" | "scale"));
            let missing = object.map(|object| Box::new(Status::not_found(served.qualified(), object)));
            return Err(missing.map_or(Missing::Resource, Missing::Object));
        };
        let verb = if verb == Verb::List { "get" } else { verb.as_str() };
        let takes_method = *method != Method::HEAD || served.custom || name == PROXY;
        if !takes_method || !subresource.verbs.iter().any(|known| &**known == verb) {
            return Err(Missing::Verb);
        }
        return Ok(Arc::clone(served));
    }
    let named = path.name.is_some();
    let fits = match verb {
        Verb::Get | Verb::Update | Verb::Patch | Verb::Delete => named,
        Verb::List | Verb::Create | Verb::DeleteCollection => !named,
        Verb::Watch => true,
    };
    // Upstream's routes of built-in kinds are one for each method, and custom resources are served by verb.
    let takes_method = *method != Method::HEAD || served.custom;
    // A custom resource whose CRD is going away still takes changes, and refuses creates in its own words.
    if !takes_method || !fits || !(served.custom || served.serves(verb.as_str())) {
        return Err(Missing::Verb);
    }
    Ok(Arc::clone(served))
}

fn accepted(headers: &HeaderMap, pretty: Option<&str>, served: &Served, verb: Verb) -> Result<Accepted, Status> {
    let header = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    let endpoint = Endpoint {
        custom: served.custom,
        list: matches!(verb, Verb::List | Verb::Watch),
        table: table::supports(&served.resource),
    };
    let mut accepted = match verb {
        Verb::Watch => negotiate::accept_stream(header, endpoint)?,
        _ => negotiate::accept(header, endpoint)?,
    };
    let agent = headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    accepted.pretty |= negotiate::wants_pretty(pretty, agent);
    Ok(accepted)
}

/// A name must be able to stand in a path. Mirrors `NamespaceKeyFunc` of upstream's generic registry.
fn check_name(name: &str) -> Result<(), Status> {
    let why = match name {
        "." | ".." => format!("may not be '{name}'"),
        _ if name.contains('%') => "may not contain '%'".to_owned(),
        _ => return Ok(()),
    };
    Err(Status::bad_request(format!("Name parameter invalid: {}: {why}", quote(name))))
}

/// What a request counts as, in upstream's words.
fn labels(path: &ResourcePath, verb: Verb, headers: &HeaderMap, query: &Query) -> RequestLabels {
    let applies = || headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(APPLY_TYPE));
    let connects = matches!(path.subresource.as_deref(), Some("log" | "exec" | "attach" | "portforward" | "proxy"));
    RequestLabels {
        dry_run: match query.has("dryRun") {
            true if query.all("dryRun").all(|value| value == "All") => "All",
            true => "invalid",
            false => "",
        },
        verb: match verb {
            _ if connects => "CONNECT",
            Verb::Patch if applies() => "APPLY",
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
            Verb::DeleteCollection => "DELETECOLLECTION",
        },
        group: path.group.clone(),
        version: path.version.clone(),
        resource: path.resource.clone(),
        subresource: path.subresource.clone().unwrap_or_default(),
        scope: match (&path.name, &path.namespace) {
            _ if verb == Verb::Create => "resource",
            (Some(_), _) => "resource",
            (None, Some(_)) => "namespace",
            (None, None) => "cluster",
        },
    }
}
