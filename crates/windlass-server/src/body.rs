//! The body of a response: nothing, bytes, or a stream of bytes that is made as it is read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};

/// A response body.
pub struct Body {
    inner: Inner,
    /// Dropped together with the body: counts open watches.
    guard: Option<Box<dyn Send>>,
    is_long_running: bool,
}

enum Inner {
    Full(Bytes),
    Stream(BoxStream<'static, Bytes>),
}

impl Body {
    /// No body.
    pub fn empty() -> Self {
        Bytes::new().into()
    }

    /// A body made as it is read: long lists and watches.
    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { inner: Inner::Stream(stream.boxed()), guard: None, is_long_running: false }
    }

    /// All of the body, if it is not made as it is read.
    pub(crate) fn full(&self) -> Option<&Bytes> {
        match &self.inner {
            Inner::Full(bytes) => Some(bytes),
            Inner::Stream(_) => None,
        }
    }

    /// The same body, with something that sees each piece of it on its way, if it is made as it is read. It is dropped
    /// when the body ends or the client goes away.
    #[must_use]
    pub fn observed(self, mut observe: impl FnMut(&Bytes) + Send + 'static) -> Self {
        match self.inner {
            Inner::Stream(stream) => {
                let inner = Inner::Stream(stream.inspect(move |bytes| observe(bytes)).boxed());
                Self { inner, ..self }
            }
            Inner::Full(_) => self,
        }
    }

    /// The same body, with something that is dropped when it ends or the client goes away.
    #[must_use]
    pub fn guarded(self, guard: impl Send + 'static) -> Self {
        let guard: Box<dyn Send> = match self.guard {
            Some(other) => Box::new((other, guard)),
            None => Box::new(guard),
        };
        Self { guard: Some(guard), inner: self.inner, is_long_running: self.is_long_running }
    }

    /// The same body, which the client may read for as long as it wants.
    #[must_use]
    pub(crate) fn long_running(self) -> Self {
        Self { is_long_running: true, ..self }
    }

    /// Whether the client may read it for as long as it wants.
    pub(crate) fn is_long_running(&self) -> bool {
        self.is_long_running
    }
}

impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self { inner: Inner::Full(bytes.into()), guard: None, is_long_running: false }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut self.get_mut().inner {
            Inner::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            Inner::Full(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Inner::Stream(stream) => stream.poll_next_unpin(cx).map(|next| next.map(|bytes| Ok(Frame::data(bytes)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.inner, Inner::Full(bytes) if bytes.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.inner {
            Inner::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Inner::Stream(_) => SizeHint::default(),
        }
    }
}

/// A plain text answer.
pub(crate) fn text(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert("x-content-type-options", http::HeaderValue::from_static("nosniff"));
    response
}
