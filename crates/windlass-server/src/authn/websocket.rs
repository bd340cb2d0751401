//! The bearer token of a WebSocket: browsers cannot set headers, so it is one of the subprotocols they ask for. Mirrors
//! `authentication/request/websocket/protocol.go` of upstream's `apiserver`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::{CONNECTION, UPGRADE};

use crate::streams::watch::BEARER_PROTOCOL;

/// The token among the subprotocols, if there is one; the error says what is wrong with it.
pub(super) fn bearer(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let has = |name, part: &str| {
        let mut values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.any(|value| value.to_ascii_lowercase().contains(part))
    };
    if !has(CONNECTION, "upgrade") || !has(UPGRADE, "websocket") {
        return Ok(None);
    }
    let values = headers.get_all("sec-websocket-protocol").iter().filter_map(|value| value.to_str().ok());
    let (mut token, mut others) = (None, 0);
    for protocol in values.flat_map(|value| value.split(',')).map(str::trim) {
        let Some(encoded) = protocol.strip_prefix(BEARER_PROTOCOL) else {
            others += 1;
            continue;
        };
        let decoded =
            URL_SAFE_NO_PAD.decode(encoded).map_err(|_| "invalid base64.bearer.authorization token encoding")?;
        let decoded = String::from_utf8(decoded).map_err(|_| "invalid base64.bearer.authorization token encoding")?;
        if token.replace(decoded).is_some() {
            return Err("multiple base64.bearer.authorization tokens specified");
        }
    }
    match token.filter(|token| !token.is_empty()) {
        // Without another one the server could not choose one that is no secret.
        Some(_) if others == 0 => Err("missing additional subprotocol"),
        token => Ok(token),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(protocols: &str, expected: Result<Option<&str>, &'static str>) {
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-protocol", protocols)]
        {
            headers.insert(name, value.parse().expect("a value"));
        }
        assert_eq!(bearer(&headers).as_ref().map(Option::as_deref), expected.as_ref().copied());
    }

    #[test]
    fn a_subprotocol_carries_the_token() {
        let token = format!("{BEARER_PROTOCOL}{}", URL_SAFE_NO_PAD.encode("secret"));
        check(&format!("{token}, v4.channel.k8s.io"), Ok(Some("secret")));
        check("v4.channel.k8s.io", Ok(None));
        check(&token, Err("missing additional subprotocol"));
        check(&format!("{token}, {token}, x"), Err("multiple base64.bearer.authorization tokens specified"));
    }
}
