//! What the operator writes, line by line: reconciles, and texts for people.

use std::fmt::Write as _;

use serde_json::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// The longest line that is read as a whole.
pub(super) const LINE_LIMIT: usize = 64 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    Reconciled(Reconcile),
    Text { level: Level, text: String },
}

/// One call of a reconciler.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reconcile {
    pub controller: String,
    pub key: String,
    pub outcome: String,
    pub seconds: f64,
}

impl Reconcile {
    pub(super) fn succeeded(&self) -> bool {
        matches!(self.outcome.as_str(), "success" | "requeue" | "requeue_after" | "lost")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Error,
    Warn,
    Other,
}

/// Operators of windlass write JSON where there is no terminal; other lines are passed on as they are.
pub(super) fn parse(line: &str) -> Line {
    let Ok(entry @ Value::Object(_)) = serde_json::from_str::<Value>(line) else {
        return Line::Text { level: Level::Other, text: line.to_owned() };
    };
    let fields = &entry["fields"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if entry["target"] == "windlass::reconciled" {
        return Line::Reconciled(Reconcile {
            controller: text(&entry["span"]["controller"]),
            key: text(&fields["key"]),
            outcome: text(&fields["outcome"]),
            seconds: fields["seconds"].as_f64().unwrap_or_default(),
        });
    }
    let level = match entry["level"].as_str() {
        Some("ERROR") => Level::Error,
        Some("WARN") => Level::Warn,
        _ => Level::Other,
    };
    let mut said = text(&fields["message"]);
    let context = [("controller", &entry["span"]["controller"])];
    let context = context.into_iter().filter(|(name, value)| value.is_string() && fields.get(*name).is_none());
    let own = fields.as_object().into_iter().flatten().filter(|(name, _)| *name != "message");
    for (name, value) in own.map(|(name, value)| (name.as_str(), value)).chain(context) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let _ = write!(said, " {name}={value}");
    }
    Line::Text { level, text: said }
}

/// The next line without its end, cut off at [`LINE_LIMIT`]; `None` once there is no more. Not cancel-safe.
pub(super) async fn next_line(reader: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let buffer = reader.fill_buf().await.ok()?;
        if buffer.is_empty() {
            return (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        line.extend_from_slice(&part[..part.len().min(LINE_LIMIT.saturating_sub(line.len()))]);
        let used = end.map_or(buffer.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn reconciles_and_texts_are_told_apart() {
        let line = r#"{"timestamp":"t","level":"DEBUG","fields":{"message":"reconciled","key":"default/a","outcome":"success","seconds":0.0025},"target":"windlass::reconciled","span":{"controller":"guestbook","name":"reconcile"}}"#;
        let reconcile = Reconcile {
            controller: "guestbook".into(),
            key: "default/a".into(),
            outcome: "success".into(),
            seconds: 0.0025,
        };
        assert_eq!(parse(line), Line::Reconciled(reconcile));
        let line = r#"{"level":"WARN","fields":{"message":"reconcile failed","error":"no","n":1},"target":"x","span":{"controller":"guestbook"}}"#;
        let text = "reconcile failed error=no n=1 controller=guestbook".to_owned();
        assert_eq!(parse(line), Line::Text { level: Level::Warn, text });
        assert_eq!(parse("hello"), Line::Text { level: Level::Other, text: "hello".into() });
    }

    #[tokio::test]
    async fn long_lines_are_cut() {
        let text = format!("{}\nnext\r\nlast", "x".repeat(LINE_LIMIT + 10));
        let mut reader = tokio::io::BufReader::with_capacity(1000, text.as_bytes());
        assert_eq!(next_line(&mut reader).await.unwrap().len(), LINE_LIMIT);
        assert_eq!(next_line(&mut reader).await.as_deref(), Some("next"));
        assert_eq!(next_line(&mut reader).await.as_deref(), Some("last"));
        assert_eq!(next_line(&mut reader).await, None);
    }
}
