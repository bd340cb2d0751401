//! Documents that clients keep: each has a tag, and a client that shows it is not sent the document again.

use std::fmt::Write as _;
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderValue, IF_NONE_MATCH, VARY,
};
use http::{HeaderMap, Response, StatusCode};
use sha2::{Digest as _, Sha512};

use crate::body::Body;
use crate::catalog::Snapshot;
use crate::render;

/// A document to answer with.
pub(super) struct Tagged<'a> {
    /// What it is called among the documents of its snapshot.
    pub(super) name: &'a str,
    pub(super) bytes: Bytes,
    pub(super) content_type: &'static str,
    /// Its tag; the digest of its bytes where there is none.
    pub(super) tag: Option<String>,
    /// How long it may be kept.
    pub(super) cache_control: Option<&'static str>,
    /// The size from which it is compressed for clients that ask.
    pub(super) compress_from: usize,
}

impl Tagged<'_> {
    /// The answer: the document, or that the client has it.
    pub(super) fn answer(self, snapshot: &Snapshot, headers: &HeaderMap) -> Response<Body> {
        let tag = self.tag.clone().unwrap_or_else(|| self.digest(snapshot));
        let tag = format!("\"{tag}\"");
        let known = is_known(headers, &tag);
        let mut response = render::raw(StatusCode::OK, self.content_type, Body::empty());
        let out = response.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&tag) {
            out.insert(ETAG, tag);
        }
        out.insert(VARY, HeaderValue::from_static("Accept"));
        if let Some(cache_control) = self.cache_control {
            out.insert(CACHE_CONTROL, HeaderValue::from_static(cache_control));
        }
        if self.bytes.len() >= self.compress_from {
            out.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        if known {
            out.remove(CONTENT_TYPE);
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        if self.bytes.len() >= self.compress_from && takes_gzip(headers) {
            let name = format!("{} gzip", self.name);
            let compressed = snapshot.documents().get(&name, || gzip(&self.bytes));
            if !compressed.is_empty() {
                out.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                return response.map(|_| compressed.into());
            }
        }
        response.map(|_| self.bytes.into())
    }

    fn digest(&self, snapshot: &Snapshot) -> String {
        let digest = snapshot.documents().get(&format!("{} digest", self.name), || {
            let digest = Sha512::digest(&self.bytes);
            let text = digest.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02X}");
                text
            });
            text.into()
        });
        String::from_utf8_lossy(&digest).into_owned()
    }
}

/// Whether `If-None-Match` names the tag.
fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let named = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).any(|one| {
        let one = one.trim();
        one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag
    })
}

/// Whether the client asks for gzip and does not give it no quality.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let asked = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    asked.flat_map(|value| value.split(',')).any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip") || coding == "*");
        let refused = |part: &str| part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0);
        is_gzip && !parts.any(refused)
    })
}

/// The document compressed; empty if that fails, which memory never does.
fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    match encoder.write_all(bytes).and_then(|()| encoder.finish()) {
        Ok(compressed) => compressed.into(),
        Err(_) => Bytes::new(),
    }
}
