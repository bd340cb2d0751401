//! Where a reflector's objects come from: the list and watch requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http_body_util::BodyExt;
use kube::Resource as _;
use kube::api::{DynamicObject, ListParams, WatchParams};
use kube::core::Status;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::decode::{Event, Keeping, Page, decode_event, decode_page};
use super::erased::Kind;
use super::json;
use crate::retry::TryTimeout;

/// The seam between a reflector and a server. Tests script it.
pub(crate) trait ListWatch: Send + Sync + 'static {
    /// One page of the list, or all of it.
    fn list<'a>(&'a self, part: Part<'a>) -> BoxFuture<'a, Result<Page, kube::Error>>;

    /// The server's current version of the collection.
    fn version(&self) -> BoxFuture<'_, Result<String, kube::Error>>;

    /// Whether the kind is gone: the server serves it in no version, and has no definition of it, as far as it
    /// lets that be seen. Who may not read definitions follows discovery alone, and takes a definition none of
    /// whose versions is served to be gone: a deleted one looks the same, and must be noticed. An error when
    /// the server cannot be asked.
    fn is_gone(&self) -> BoxFuture<'_, Result<bool, kube::Error>>;

    /// A watch from a version, or, without one, a watch that starts with the current state.
    fn watch<'a>(
        &'a self,
        from: Option<&'a str>,
        timeout_seconds: u32,
    ) -> BoxFuture<'a, Result<EventStream, kube::Error>>;
}

/// How much of a list is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    Page { continue_token: Option<&'a str> },
    Whole,
}

pub(crate) type EventStream = BoxStream<'static, Result<Event, kube::Error>>;

/// What is watched: a kind in all or one namespace, optionally narrowed by selectors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Selection {
    pub(crate) namespace: Option<String>,
    pub(crate) labels: Option<String>,
    pub(crate) fields: Option<String>,
}

impl Selection {
    /// Whether it is everything of its place.
    pub(crate) fn is_whole(&self) -> bool {
        self.labels.is_none() && self.fields.is_none()
    }
}

/// [`ListWatch`] on an API server.
pub(crate) struct ApiSource {
    client: kube::Client,
    request: kube::api::Request,
    selection: Selection,
    /// What items of a list begin with instead of `{`, if they do not say their kind and should.
    opening: Option<Vec<u8>>,
    keeping: Arc<Keeping>,
}

/// Objects per page, as client-go asks for.
const PAGE_SIZE: u32 = 500;

/// The longest event, in bytes. Kubernetes' own server stores objects of a few million, others more.
const LINE_LIMIT: usize = 128 << 20;

/// How long a server may take to answer, and to go on with an answer: as long as Kubernetes' own takes at most.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

impl ApiSource {
    pub(crate) fn new(client: kube::Client, kind: Kind, selection: Selection) -> Self {
        let resource = &kind.resource;
        Self {
            client,
            request: kube::api::Request::new(DynamicObject::url_path(resource, selection.namespace.as_deref())),
            selection,
            opening: kind.untyped.then(|| {
                format!("{{\"apiVersion\":{:?},\"kind\":{:?},", resource.api_version, resource.kind).into_bytes()
            }),
            keeping: Arc::new(Keeping::new(kind)),
        }
    }

    async fn page(&self, continue_token: Option<&str>, limit: Option<u32>) -> Result<Page, kube::Error> {
        let params = ListParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            limit,
            continue_token: continue_token.map(str::to_owned),
            ..ListParams::default()
        };
        let request = if self.keeping.kind.metadata_only {
            self.request.list_metadata(&params)
        } else {
            self.request.list(&params)
        }
        .map_err(kube::Error::BuildRequest)?;
        decode_page(&send(&self.client, request).await?, self.opening.as_deref(), &self.keeping)
    }

    /// Whether discovery tells of the kind in any version. What is missing there is missing only if the
    /// answer is one of an API server's.
    async fn is_discovered(&self) -> Result<bool, kube::Error> {
        let (group, plural) = (&self.keeping.kind.resource.group, &self.keeping.kind.resource.plural);
        let groups: Groups = self.ask("/apis".to_owned()).await?;
        for version in groups.versions_of(group)? {
            let resources: Resources = self.ask(format!("/apis/{version}")).await?;
            if resources.names()?.any(|name| name == plural) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn ask<T: DeserializeOwned>(&self, path: String) -> Result<T, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?;
        serde_json::from_slice(&send(&self.client, request).await?).map_err(kube::Error::SerdeError)
    }
}

impl ListWatch for ApiSource {
    fn list<'a>(&'a self, part: Part<'a>) -> BoxFuture<'a, Result<Page, kube::Error>> {
        match part {
            Part::Page { continue_token } => self.page(continue_token, Some(PAGE_SIZE)).boxed(),
            Part::Whole => self.page(None, None).boxed(),
        }
    }

    fn version(&self) -> BoxFuture<'_, Result<String, kube::Error>> {
        async move { Ok(self.page(None, Some(1)).await?.resource_version) }.boxed()
    }

    fn is_gone(&self) -> BoxFuture<'_, Result<bool, kube::Error>> {
        async move {
            if self.is_discovered().await? {
                return Ok(false);
            }
            // The objects of a definition none of whose versions is served are still there.
            let (group, plural) = (&self.keeping.kind.resource.group, &self.keeping.kind.resource.plural);
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}");
            match self.ask::<IgnoredAny>(path).await {
                Ok(_) => Ok(false),
                // Most operators may not read definitions: then what discovery says has to do. For them the two
                // look the same, and one that is deleted is far more common than one that is not served at all.
                Err(kube::Error::Api(status)) if status.is_not_found() || status.is_forbidden() => Ok(true),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        from: Option<&'a str>,
        timeout_seconds: u32,
    ) -> BoxFuture<'a, Result<EventStream, kube::Error>> {
        let params = WatchParams {
            label_selector: self.selection.labels.clone(),
            field_selector: self.selection.fields.clone(),
            timeout: Some(timeout_seconds),
            bookmarks: true,
            send_initial_events: from.is_none(),
        };
        async move {
            // Without a version the initial state is read consistently, never from a stale cache.
            let version = from.unwrap_or_default();
            let mut request = if self.keeping.kind.metadata_only {
                self.request.watch_metadata(&params, version)
            } else {
                self.request.watch(&params, version)
            }
            .map_err(kube::Error::BuildRequest)?;
            request.headers_mut().insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
            let response = answer(&self.client, request).await?;
            Ok(events(response.into_body(), Arc::clone(&self.keeping), LINE_LIMIT))
        }
        .boxed()
    }
}

/// The groups that a server says it serves.
#[derive(Deserialize)]
struct Groups {
    kind: String,
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    name: String,
    #[serde(default)]
    versions: Vec<GroupVersion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
}

impl Groups {
    fn versions_of(self, group: &str) -> Result<Vec<String>, kube::Error> {
        check_kind(&self.kind, "APIGroupList")?;
        let versions = self.groups.into_iter().filter(|known| known.name == group).flat_map(|known| known.versions);
        Ok(versions.map(|version| version.group_version).collect())
    }
}

/// The resources that a server says it serves in a version of a group.
#[derive(Deserialize)]
struct Resources {
    kind: String,
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
}

impl Resources {
    fn names(&self) -> Result<impl Iterator<Item = &String>, kube::Error> {
        check_kind(&self.kind, "APIResourceList")?;
        Ok(self.resources.iter().map(|resource| &resource.name))
    }
}

fn check_kind(kind: &str, expected: &str) -> Result<(), kube::Error> {
    if kind == expected {
        return Ok(());
    }
    Err(kube::Error::SerdeError(serde::de::Error::custom(format!("the answer is no {expected}"))))
}

async fn send(client: &kube::Client, request: http::Request<Vec<u8>>) -> Result<Bytes, kube::Error> {
    collect(answer(client, request).await?.into_body()).await
}

/// The answer to a request, an error response as [`kube::Error::Api`]. Where the client sends it again,
/// each try has its time.
async fn answer(
    client: &kube::Client,
    request: http::Request<Vec<u8>>,
) -> Result<http::Response<kube::client::Body>, kube::Error> {
    let (mut request, timeout) = (request.map(Into::into), TryTimeout::new(RESPONSE_TIMEOUT));
    request.extensions_mut().insert(timeout.clone());
    let response = tokio::select! {
        biased;
        response = client.send(request) => response?,
        () = timeout.ends() => return Err(silent()),
    };
    let code = response.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(response);
    }
    let body = collect(response.into_body()).await?;
    // Any object can be read as a status: what stands before a server has errors of its own.
    let status = serde_json::from_slice::<Status>(&body).ok().filter(|status| status.code != 0 || status.is_failure());
    let mut status = status.unwrap_or_else(|| Status::failure(String::from_utf8_lossy(&body).trim(), "InternalError"));
    if status.code == 0 {
        status.code = code.as_u16();
    }
    Err(kube::Error::Api(status.boxed()))
}

/// A whole body, however long it takes while something of it arrives.
async fn collect(body: kube::client::Body) -> Result<Bytes, kube::Error> {
    let (mut pieces, mut whole) = (body.into_data_stream(), BytesMut::new());
    while let Some(piece) = tokio::time::timeout(RESPONSE_TIMEOUT, pieces.next()).await.map_err(|_| silent())? {
        whole.extend_from_slice(&piece?);
    }
    Ok(whole.freeze())
}

/// Nothing in a connection tells of a server, or a balancer before it, that accepts a request and forgets it.
fn silent() -> kube::Error {
    kube::Error::Service(format!("the server has said nothing for {RESPONSE_TIMEOUT:?}").into())
}

/// The events of a watch's body: one JSON document per line. Lines are read where they arrived; only one
/// that is spread over several pieces is copied.
fn events(body: kube::client::Body, keeping: Arc<Keeping>, limit: usize) -> EventStream {
    struct Reading {
        body: http_body_util::BodyDataStream<kube::client::Body>,
        /// What arrived and was not read yet.
        piece: Bytes,
        /// The beginning of a line whose end did not arrive yet.
        begun: Vec<u8>,
        keeping: Arc<Keeping>,
    }
    let reading = Reading { body: body.into_data_stream(), piece: Bytes::new(), begun: Vec::new(), keeping };
    futures::stream::unfold(reading, move |mut r| async move {
        loop {
            if let Some(at) = json::line_end(&r.piece) {
                let rest = r.piece.split_to(at);
                r.piece.advance(1);
                let begun = std::mem::take(&mut r.begun);
                let whole = if begun.is_empty() { rest } else { Bytes::from([&begun[..], &rest].concat()) };
                if whole.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return Some((decode_event(&whole, &r.keeping), r));
            }
            if r.begun.len() + r.piece.len() > limit {
                (r.begun, r.piece) = (Vec::new(), Bytes::new());
                let error = format!("an event of more than {limit} bytes");
                return Some((Err(kube::Error::Service(error.into())), r));
            }
            r.begun.extend_from_slice(&r.piece);
            // Even what is left of it, nothing, would keep the whole buffer it was read into.
            r.piece = Bytes::new();
            match r.body.next().await {
                Some(Ok(piece)) => r.piece = piece,
                // A line that is not complete was cut off; the watch resumes before it.
                Some(Err(error)) => {
                    tracing::debug!(%error, "watch cut");
                    return None;
                }
                None => return None,
            }
        }
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::DynamicObject;
    use serde_json::Value;
    use tower::BoxError;

    use super::*;
    use crate::reflector::decode::Decoded;
    use crate::reflector::typed_ref;

    const FIRST: Part<'_> = Part::Page { continue_token: None };

    fn meta(name: &str) -> Value {
        serde_json::json!({"namespace": "d", "name": name, "resourceVersion": "7", "managedFields": [{"manager": "m"}]})
    }

    #[tokio::test]
    async fn items_of_dynamic_kinds_have_their_kind() {
        let resource = kube::api::ApiResource::erase::<ConfigMap>(&());
        let client = kube::Client::new(
            tower::service_fn(|_| async {
                let body = serde_json::json!({"kind": "ConfigMapList", "items": [
                    {"metadata": meta("a"), "data": {"kind": "v"}}, {"kind": "Other", "metadata": meta("b")},
                ]});
                let body = http_body_util::Full::new(Bytes::from(body.to_string()));
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }),
            "default",
        );
        let source = ApiSource::new(client, Kind::of::<DynamicObject>(&resource), Selection::default());
        let page = source.list(FIRST).await.unwrap();
        let kinds: Vec<String> = page
            .items
            .iter()
            .map(|item| match item {
                Decoded::Object(fresh) => {
                    let kept: DynamicObject = serde_json::from_slice(fresh.json.as_ref().unwrap()).unwrap();
                    assert_eq!(kept.types, typed_ref::<DynamicObject>(&*fresh.object).types);
                    kept.types.map(|types| types.kind).unwrap_or_default()
                }
                Decoded::Broken(broken) => broken.error.clone(),
            })
            .collect();
        assert_eq!(kinds[0], "ConfigMap");
        assert_ne!(kinds[1], "ConfigMap");
    }

    #[tokio::test]
    async fn events_are_read_across_chunks() {
        let text = format!(
            "{}\n{}\n\n{}\n{{\"type\":\"ADD",
            serde_json::json!({"type": "ADDED", "object": {"metadata": meta("a")}}),
            serde_json::json!({"type": "DELETED", "object": {"metadata": meta("b"), "data": 1}}),
            serde_json::json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1",
                "metadata": {"resourceVersion": "8", "annotations": {"k8s.io/initial-events-end": "true"}}}}),
        );
        let client = kube::Client::new(
            tower::service_fn(move |_| {
                let chunks: Vec<Result<_, std::convert::Infallible>> = text
                    .as_bytes()
                    .chunks(7)
                    .map(|chunk| Ok(http_body::Frame::data(Bytes::copy_from_slice(chunk))))
                    .collect();
                let body = http_body_util::StreamBody::new(futures::stream::iter(chunks));
                async move { Ok::<_, std::convert::Infallible>(http::Response::new(body)) }
            }),
            "default",
        );
        let source = ApiSource::new(client, Kind::of::<ConfigMap>(&()), Selection::default());
        let events: Vec<_> = source.watch(None, 1).await.unwrap().collect().await;
        assert_eq!(events.len(), 3);
        assert!(matches!(&events[0], Ok(Event::Applied(Decoded::Object(_)))));
        assert!(matches!(&events[1], Ok(Event::Deleted(Decoded::Broken(b))) if b.key.name() == "b"));
        assert!(matches!(
            &events[2],
            Ok(Event::Bookmark { initial_end: true, resource_version }) if resource_version == "8"
        ));
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_an_error() {
        let event = serde_json::json!({"type": "ADDED", "object": {"metadata": meta("a")}}).to_string();
        let read = async |text: String, limit: usize| {
            let body = kube::client::Body::from(text.into_bytes());
            events(body, Arc::new(Keeping::new(Kind::of::<ConfigMap>(&()))), limit).next().await
        };
        assert!(matches!(read(format!("{event}\n{event}"), event.len()).await, Some(Ok(Event::Applied(_)))));
        assert!(read(event.clone(), event.len()).await.is_none(), "cut off");
        let error = read(event.clone(), event.len() - 1).await;
        assert!(matches!(error, Some(Err(kube::Error::Service(_)))));
    }

    #[tokio::test]
    async fn an_error_response_becomes_a_status() {
        let check = async |code: u16, body: &'static str, expected: (u16, &str)| {
            let client = kube::Client::new(
                tower::service_fn(move |_| async move {
                    let mut response =
                        http::Response::new(http_body_util::Full::new(Bytes::from_static(body.as_bytes())));
                    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
                    Ok::<_, std::convert::Infallible>(response)
                }),
                "default",
            );
            let source = ApiSource::new(client, Kind::of::<ConfigMap>(&()), Selection::default());
            let kube::Error::Api(status) = source.list(FIRST).await.unwrap_err() else {
                panic!("expected a status");
            };
            assert_eq!((status.code, status.message.as_str()), expected);
        };
        check(404, "404 page not found\n", (404, "404 page not found")).await;
        check(403, r#"{"error":"x"}"#, (403, r#"{"error":"x"}"#)).await;
        check(410, r#"{"status":"Failure","message":"old"}"#, (410, "old")).await;
        check(500, r#"{"kind":"Status","code":503,"message":"later"}"#, (503, "later")).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_accepts_and_never_answers_fails() {
        let silent = kube::Client::new(
            tower::service_fn(|_| futures::future::pending::<Result<http::Response<kube::client::Body>, BoxError>>()),
            "default",
        );
        let stuck = kube::Client::new(
            tower::service_fn(|_| async {
                let begun = Ok::<_, BoxError>(http_body::Frame::data(Bytes::from_static(b"{\"kind\":")));
                let body = futures::stream::iter([begun]).chain(futures::stream::pending());
                Ok::<_, BoxError>(http::Response::new(http_body_util::StreamBody::new(body)))
            }),
            "default",
        );
        let source = |client| ApiSource::new(client, Kind::of::<ConfigMap>(&()), Selection::default());
        let started = tokio::time::Instant::now();
        let errors = [
            source(silent.clone()).list(FIRST).await.unwrap_err(),
            source(silent.clone()).version().await.unwrap_err(),
            source(silent.clone()).is_gone().await.unwrap_err(),
            source(silent).watch(None, 1).await.map(drop).unwrap_err(),
            source(stuck).list(FIRST).await.unwrap_err(),
        ];
        assert_eq!(started.elapsed(), 5 * RESPONSE_TIMEOUT);
        for error in errors {
            assert!(error.to_string().contains("has said nothing for 60s"), "{error}");
        }
    }

    /// A server that is busy says when to come back, and is not silent until then.
    #[tokio::test(start_paused = true)]
    async fn the_pauses_of_a_busy_server_are_no_silence() {
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let busy = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            let nth = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async move {
                if nth == 4 {
                    futures::future::pending::<()>().await;
                }
                let (code, body) = if nth % 3 == 2 { (200, r#"{"metadata":{},"items":[]}"#) } else { (429, "{}") };
                let answer = http::Response::builder().status(code).header(http::header::RETRY_AFTER, "60");
                answer.body(kube::client::Body::from(body.as_bytes().to_vec())).map_err(BoxError::from)
            }
        });
        let client = crate::retry::with_retries(kube::Client::new(busy, "default"), Arc::default(), None);
        let source = ApiSource::new(client, Kind::of::<ConfigMap>(&()), Selection::default());
        let started = tokio::time::Instant::now();
        source.list(FIRST).await.unwrap();
        assert_eq!(started.elapsed(), Duration::from_secs(120));
        // One that answers once and then forgets is silent from there on.
        let error = source.list(FIRST).await.unwrap_err();
        assert!(error.to_string().contains("has said nothing for 60s"), "{error}");
        assert_eq!(started.elapsed(), Duration::from_secs(240));
    }
}
