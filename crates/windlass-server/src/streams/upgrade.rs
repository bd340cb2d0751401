//! How a connection stops being HTTP: what the client asks for, what it is answered, and what takes the connection over.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::header::{CONNECTION, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Response, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;

use super::websocket;
use crate::body::Body;

const SPDY: &str = "SPDY/3.1";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
const ACCEPTED_PROTOCOLS: HeaderName = HeaderName::from_static("x-accepted-stream-protocol-versions");
const WEBSOCKET_KEY: &str = "sec-websocket-key";
const WEBSOCKET_ACCEPT: HeaderName = HeaderName::from_static("sec-websocket-accept");
const WEBSOCKET_PROTOCOL: HeaderName = HeaderName::from_static("sec-websocket-protocol");
const WEBSOCKET_VERSION: &str = "sec-websocket-version";
/// A SPDY connection inside of a WebSocket, and its protocol.
pub(crate) const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";

/// A connection that is not HTTP any more.
pub(crate) type Raw = TokioIo<Upgraded>;
/// What serves a connection once it is not HTTP any more.
type Session = Box<dyn FnOnce(Raw) -> BoxFuture<'static, ()> + Send>;

/// Where a request leaves what takes over its connection. Put into a request's extensions by what serves the connection.
#[derive(Clone, Default)]
pub(crate) struct Takeover(Arc<Mutex<Option<Session>>>);

impl Takeover {
    /// Has `session` serve the connection after the answer, which has to be a [switch](StatusCode::SWITCHING_PROTOCOLS).
    pub(crate) fn by<F>(&self, session: impl FnOnce(Raw) -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        *self.0.lock() = Some(Box::new(|raw| Box::pin(session(raw))));
    }

    /// What takes over the connection, if a request asked for it.
    pub(crate) fn take(&self) -> Option<Session> {
        self.0.lock().take()
    }
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked<'h> {
    /// A WebSocket with one of these subprotocols.
    WebSocket { key: &'h str, protocols: Vec<&'h str> },
    /// SPDY with one of these protocols.
    Spdy { protocols: Vec<&'h str> },
}

/// What a client asks for; `None` if it does not ask to upgrade.
pub(crate) fn asked(headers: &HeaderMap) -> Option<Asked<'_>> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mut connection = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    connection.find(|value| value.to_ascii_lowercase().contains("upgrade"))?;
    let values = |name: &HeaderName| -> Vec<&str> {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty()).collect()
    };
    let upgrade = text(UPGRADE.as_str())?;
    if upgrade.eq_ignore_ascii_case("websocket") {
        return Some(Asked::WebSocket {
            key: text(WEBSOCKET_KEY).filter(|_| text(WEBSOCKET_VERSION) == Some("13")).unwrap_or_default(),
            protocols: values(&WEBSOCKET_PROTOCOL),
        });
    }
    Some(Asked::Spdy { protocols: values(&STREAM_PROTOCOL) })
}

/// A subprotocol of WebSockets with channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subprotocol {
    pub(crate) name: &'static str,
    /// Messages are text.
    pub(crate) base64: bool,
    /// Ends are told as a `Status`.
    pub(crate) statuses: bool,
    /// The client can end a channel.
    pub(crate) closes: bool,
}

const fn subprotocol(name: &'static str, base64: bool, statuses: bool, closes: bool) -> Subprotocol {
    Subprotocol { name, base64, statuses, closes }
}

/// What commands are run over.
const COMMAND: [Subprotocol; 5] = [
    subprotocol("v4.channel.k8s.io", false, true, false),
    subprotocol("v4.base64.channel.k8s.io", true, true, false),
    subprotocol("channel.k8s.io", false, false, false),
    subprotocol("base64.channel.k8s.io", true, false, false),
    subprotocol("", false, false, false),
];
const V5: Subprotocol = subprotocol("v5.channel.k8s.io", false, true, true);

/// The subprotocol of a command: the fifth version if the client has it, else the first that it names.
pub(crate) fn for_command(protocols: &[&str]) -> Option<Subprotocol> {
    if protocols.contains(&V5.name) { Some(V5) } else { first(protocols, &COMMAND) }
}

/// The subprotocol of forwarded ports.
pub(crate) fn for_ports(protocols: &[&str]) -> Option<Subprotocol> {
    first(protocols, &[COMMAND[0], COMMAND[1], COMMAND[4]])
}

fn first(protocols: &[&str], known: &[Subprotocol]) -> Option<Subprotocol> {
    let protocols = if protocols.is_empty() { &[""] } else { protocols };
    protocols.iter().find_map(|asked| known.iter().find(|known| known.name == *asked)).copied()
}

/// Answers that the connection becomes a WebSocket.
pub(crate) fn to_websocket(key: &str, protocol: &str) -> Response<Body> {
    let mut response = switch("websocket");
    if let Ok(accept) = HeaderValue::from_str(&websocket::accept(key)) {
        response.headers_mut().insert(WEBSOCKET_ACCEPT, accept);
    }
    if let Ok(protocol) = HeaderValue::from_str(protocol)
        && !protocol.is_empty()
    {
        response.headers_mut().insert(WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

/// Answers that the connection becomes a SPDY connection.
pub(crate) fn to_spdy(protocol: &str) -> Response<Body> {
    let mut response = switch(SPDY);
    if let Ok(protocol) = HeaderValue::from_str(protocol) {
        response.headers_mut().insert(STREAM_PROTOCOL, protocol);
    }
    response
}

/// The protocol of a SPDY connection: the first that the client names and the server knows.
pub(crate) fn negotiate<'p>(asked: &[&'p str], known: &[&str]) -> Result<&'p str, Box<Response<Body>>> {
    if asked.is_empty() {
        let why = "unable to upgrade: header X-Stream-Protocol-Version does not exist in request";
        return Err(Box::new(refuse(StatusCode::BAD_REQUEST, why)));
    }
    let protocol = asked.iter().find(|protocol| known.contains(protocol)).copied();
    protocol.ok_or_else(|| {
        let (asked, accepts) = (asked.join(" "), known.join(" "));
        let why = format!(
            "unable to upgrade: unable to negotiate protocol: client supports [{asked}], server accepts [{accepts}]"
        );
        let mut response = refuse(StatusCode::FORBIDDEN, &why);
        for known in known.iter().filter_map(|known| HeaderValue::from_str(known).ok()) {
            response.headers_mut().append(ACCEPTED_PROTOCOLS, known);
        }
        Box::new(response)
    })
}

fn switch(upgrade: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    response.headers_mut().insert(UPGRADE, HeaderValue::from_static(upgrade));
    response
}

/// Refuses to upgrade, in plain text as a kubelet does.
pub(crate) fn refuse(code: StatusCode, why: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(why.to_owned()));
    *response.status_mut() = code;
    response.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_version_wins_and_else_the_clients_first() {
        let check = |asked: &[&str], expected: Option<&str>| {
            assert_eq!(for_command(asked).map(|protocol| protocol.name), expected, "{asked:?}");
        };
        check(&["v4.channel.k8s.io", "v5.channel.k8s.io"], Some("v5.channel.k8s.io"));
        check(&["v4.channel.k8s.io"], Some("v4.channel.k8s.io"));
        check(&["other", "base64.channel.k8s.io", "v4.channel.k8s.io"], Some("base64.channel.k8s.io"));
        check(&[], Some(""));
        check(&["other"], None);
    }

    #[test]
    fn a_request_asks_for_a_websocket_or_spdy() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            let pairs =
                pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            pairs.fold(HeaderMap::new(), |mut headers, (name, value)| {
                headers.append(name, value);
                headers
            })
        };
        assert_eq!(asked(&headers(&[("upgrade", "websocket")])), None);
        let websocket = headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "k"),
            ("sec-websocket-protocol", "a, b"),
        ]);
        assert_eq!(asked(&websocket), Some(Asked::WebSocket { key: "k", protocols: vec!["a", "b"] }));
        let spdy = headers(&[
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
        ]);
        assert_eq!(asked(&spdy), Some(Asked::Spdy { protocols: vec!["v4.channel.k8s.io", "v3.channel.k8s.io"] }));
    }
}
