//! One request on its way through flow control.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body::Body as _;

use super::level::{About, Admission, Request, Seats};
use super::queue_set::{Queuing, Work};
use super::watches::CountedWatch;
use super::{Class, FlowControl, classify, work};
use crate::attributes::{Attributes, Target};
use crate::body::{self, Body};
use crate::request::Query;

const SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");
/// A request that has no deadline may take this long for what matters here.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// What a request has been given, from the moment it is classified to its answer.
#[derive(Default)]
pub(crate) struct Passage {
    uids: Option<(HeaderValue, HeaderValue)>,
    seats: Option<Seats>,
    watch: Option<CountedWatch>,
    waited: Duration,
}

/// A request that wants to pass.
#[derive(Clone, Copy)]
pub(crate) struct Entrant<'a> {
    /// The user, and what is wanted.
    pub(crate) request: Attributes<'a>,
    /// The version of the resource.
    pub(crate) version: &'a str,
    /// Its options.
    pub(crate) query: &'a Query,
    /// How long it may take; `None` if it is long-running.
    pub(crate) timeout: Option<Duration>,
}

impl Passage {
    /// Waits for seats, or returns the answer of a request that gets none. Long-running requests pass, but for watches.
    /// Cancel-safe: a request that goes away gives back what it has been given.
    pub(crate) async fn enter(&mut self, control: &FlowControl, entrant: Entrant<'_>) -> Option<Response<Body>> {
        let is_watch = entrant.request.verb == "watch" && matches!(entrant.request.target, Target::Resource(_));
        if !control.options.enabled || (entrant.timeout.is_none() && !is_watch) {
            return None;
        }
        let classes = control.classes.load();
        let class = classify(&classes, &entrant.request)?;
        self.uids = Some((class.schema_uid.clone(), class.level_uid.clone()));
        let is_list = entrant.request.verb == "list" || (is_watch && work::has_initial_events(entrant.query));
        let admission = if is_list && class.queuing != Queuing::Exempt {
            // Boxed: all requests would be as large as one that lists.
            let work = match entrant.request.target {
                Target::Resource(target) => {
                    Box::pin(work::of_list(&control.objects, class, entrant.version, &target, entrant.query)).await
                }
                Target::Path(_) => Work::seats(1),
            };
            admit(control, class, &entrant, work, None)
        } else {
            let (work, watchers) = estimate(control, class, &entrant.request);
            admit(control, class, &entrant, work, watchers)
        };
        drop(classes);
        let result = match admission {
            Admission::Execute(seats) => Ok(seats),
            Admission::Rejected(retry_after) => Err(retry_after),
            Admission::Wait(queued) => {
                let started = tokio::time::Instant::now();
                // A quarter of the time that the request may take.
                let limit = entrant.timeout.unwrap_or(REQUEST_TIMEOUT) / 4;
                let result = Box::pin(queued.wait(limit)).await;
                self.waited = started.elapsed();
                result
            }
        };
        match result {
            Ok(mut seats) => {
                seats.is_watch = is_watch;
                self.seats = Some(seats);
            }
            Err(retry_after) => return Some(too_many_requests(retry_after)),
        }
        if let (true, Target::Resource(target)) = (is_watch, entrant.request.target) {
            self.watch = control.watches.register(&target);
        }
        None
    }

    /// How long the request waited for seats.
    pub(crate) fn waited(&self) -> Duration {
        self.waited
    }

    /// Marks the answer. Seats are free once it is made or, if it is made as it is read, once that has been; those of a
    /// watch once it has begun.
    pub(crate) fn leave(self, mut response: Response<Body>) -> Response<Body> {
        if let Some((schema, level)) = self.uids {
            let headers = response.headers_mut();
            headers.insert(LEVEL_UID, level);
            headers.insert(SCHEMA_UID, schema);
        }
        let is_watch = self.seats.as_ref().is_some_and(|seats| seats.is_watch);
        if let Some(watch) = self.watch.filter(|_| response.status().is_success()) {
            response = response.map(|body| body.guarded(watch));
        }
        match self.seats {
            Some(seats) if !is_watch && response.body().size_hint().exact().is_none() => {
                response.map(|body| body.guarded(seats))
            }
            _ => response,
        }
    }
}

/// What a request that is no list takes.
fn estimate(control: &FlowControl, class: &Class, request: &Attributes<'_>) -> (Work, Option<u32>) {
    match (request.verb, &request.target) {
        ("create" | "update" | "patch" | "delete", Target::Resource(target)) if class.queuing != Queuing::Exempt => {
            let (work, watchers) = work::of_write(control, class, target);
            (work, Some(watchers))
        }
        _ => (Work::seats(1), None),
    }
}

fn admit(control: &FlowControl, class: &Class, entrant: &Entrant<'_>, work: Work, watchers: Option<u32>) -> Admission {
    let flow = control.flow(class, &entrant.request);
    let request = Request { schema: class.index, work, flow, watchers, clock: control.started };
    Arc::clone(&class.level).admit(&request, || about(class, entrant))
}

fn about(class: &Class, entrant: &Entrant<'_>) -> About {
    let request = &entrant.request;
    let about = About {
        distinguisher: class.schema.distinguisher(request).to_owned(),
        user: request.user.name.clone(),
        verb: request.verb.to_owned(),
        arrived: jiff::Timestamp::now(),
        ..About::default()
    };
    match request.target {
        Target::Path(path) => About { path: path.to_owned(), ..about },
        Target::Resource(target) => About {
            namespace: target.namespace.to_owned(),
            name: target.name.to_owned(),
            api_version: match target.group {
                "" => entrant.version.to_owned(),
                group => format!("{group}/{}", entrant.version),
            },
            resource: target.resource.to_owned(),
            subresource: target.subresource.to_owned(),
            ..about
        },
    }
}

/// As upstream's filter answers: no Status, but text.
fn too_many_requests(retry_after: u64) -> Response<Body> {
    let text = "Too many requests, please try again later.\n";
    let mut response = body::text(StatusCode::TOO_MANY_REQUESTS, text);
    response.headers_mut().insert(http::header::RETRY_AFTER, retry_after.into());
    response
}
