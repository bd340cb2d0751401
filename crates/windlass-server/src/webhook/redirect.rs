//! Redirects, as Go's HTTP client follows them: at most ten, with the body only where the code says so.

use http::header::LOCATION;
use http::{Method, Response, StatusCode, Uri};

use crate::field::quote;

/// How often a webhook may send a request elsewhere.
pub(super) const MOST: usize = 10;

/// One request on its way to an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hop {
    pub(super) https: bool,
    /// `<host>[:<port>]`.
    pub(super) authority: String,
    /// Path and query.
    pub(super) target: String,
    /// POST with the review, or GET without.
    pub(super) method: Method,
}

impl Hop {
    /// The URL, as messages show it.
    pub(super) fn url(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.target)
    }

    /// The host and the port to connect to.
    pub(super) fn address(&self) -> (String, u16) {
        let port = if self.https { 443 } else { 80 };
        let authority = self.authority.parse::<http::uri::Authority>().ok();
        authority.map_or_else(
            || (self.authority.clone(), port),
            |authority| (host(&authority), authority.port_u16().unwrap_or(port)),
        )
    }

    /// Where an answer sends this request; `None` if it stays here.
    pub(super) fn next<B>(&self, answer: &Response<B>) -> Option<Result<Self, String>> {
        let method = match answer.status() {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => Method::GET,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => self.method.clone(),
            _ => return None,
        };
        let location = answer.headers().get(LOCATION)?;
        let location = String::from_utf8_lossy(location.as_bytes()).into_owned();
        Some(self.resolve(&location).map(|hop| Self { method, ..hop }))
    }

    /// The URL that `location` means here.
    fn resolve(&self, location: &str) -> Result<Self, String> {
        let location = location.split('#').next().unwrap_or_default();
        let (https, rest) = match location.split_once("://") {
            Some(("https", rest)) => (true, Some(rest)),
            Some(("http", rest)) => (false, Some(rest)),
            Some((scheme, _)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                return Err(format!("unsupported protocol scheme {}", quote(scheme)));
            }
            _ => (self.https, location.strip_prefix("//")),
        };
        let (authority, target) = match rest {
            Some(rest) => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                (rest[..end].to_owned(), rest[end..].to_owned())
            }
            None => (self.authority.clone(), self.relative(location)),
        };
        let target = if target.starts_with('/') { target } else { format!("/{target}") };
        let hop = Self { https, authority, target, method: self.method.clone() };
        if hop.url().parse::<Uri>().is_err() {
            return Err(format!("failed to parse Location header {}", quote(location)));
        }
        Ok(hop)
    }

    /// A path relative to this one's.
    fn relative(&self, location: &str) -> String {
        let own = self.target.split('?').next().unwrap_or_default();
        match location.as_bytes().first() {
            None => return own.to_owned(),
            Some(b'?') => return format!("{own}{location}"),
            Some(b'/') => return location.to_owned(),
            Some(_) => {}
        }
        let (path, query) = location.split_once('?').map_or((location, None), |(path, query)| (path, Some(query)));
        let mut steps: Vec<&str> = own.split('/').skip(1).collect();
        steps.pop();
        let last = path.split('/').count() - 1;
        for (index, step) in path.split('/').enumerate() {
            match step {
                "." | ".." => {
                    if step == ".." {
                        steps.pop();
                    }
                    if index == last {
                        steps.push("");
                    }
                }
                step => steps.push(step),
            }
        }
        let path = format!("/{}", steps.join("/"));
        query.map_or_else(|| path.clone(), |query| format!("{path}?{query}"))
    }
}

/// The host of an authority, without the brackets of an IPv6 address.
pub(super) fn host(authority: &http::uri::Authority) -> String {
    authority.host().trim_start_matches('[').trim_end_matches(']').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_resolved_against_where_they_came_from() {
        let hop = Hop { https: true, authority: "a:1".into(), target: "/x/y?timeout=1s".into(), method: Method::POST };
        for (location, expected) in [
            ("https://b/z", "https://b/z"),
            ("http://b:2?q", "http://b:2/?q"),
            ("//b/z", "https://b/z"),
            ("/z?q#f", "https://a:1/z?q"),
            ("z", "https://a:1/x/z"),
            ("../z/./w", "https://a:1/z/w"),
            ("?q", "https://a:1/x/y?q"),
        ] {
            assert_eq!(hop.resolve(location).expect("a URL").url(), expected, "{location}");
        }
        assert_eq!(hop.resolve("ftp://b").expect_err("not HTTP"), "unsupported protocol scheme \"ftp\"");
        let answer = |code: u16| Response::builder().status(code).header("location", "/z").body(()).expect("an answer");
        assert_eq!(hop.next(&answer(302)).expect("moves").expect("a URL").method, Method::GET);
        assert_eq!(hop.next(&answer(307)).expect("moves").expect("a URL").method, Method::POST);
        assert_eq!(hop.next(&answer(200)), None);
        assert_eq!(hop.next(&Response::builder().status(302).body(()).expect("an answer")), None);
        assert_eq!(hop.address(), ("a".to_owned(), 1));
    }
}
