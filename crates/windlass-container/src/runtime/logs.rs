//! Reads the logs of containers: files in the format of the CRI.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use tokio::sync::watch;
use windlass_node::runtime::LogOptions;

use crate::parent::rotated;

/// How often a log is looked at that is followed.
const FOLLOWED: Duration = Duration::from_millis(50);
/// How much is read at once.
const CHUNK: u64 = 1 << 20;

/// One line, or a part of one.
struct Line<'a> {
    time: &'a str,
    /// Whether the line goes on.
    partial: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut fields = line.splitn(4, |byte| *byte == b' ');
    let time = std::str::from_utf8(fields.next()?).ok()?;
    let _stream = fields.next()?;
    let partial = fields.next()? == b"P";
    Some(Line { time, partial, text: fields.next().unwrap_or_default() })
}

/// Turns lines of the file into what a client reads.
struct Render {
    options: LogOptions,
    left: Option<u64>,
    /// Whether the line before goes on.
    inside: bool,
}

impl Render {
    fn line(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(line) = parse(line) else { return };
        let old = self.options.since.is_some_and(|since| line.time.parse::<Timestamp>().is_ok_and(|time| time < since));
        if old {
            return;
        }
        if self.options.timestamps && !self.inside {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.partial {
            out.push(b'\n');
        }
        self.inside = line.partial;
    }

    /// Cuts what is more than the client wants. True: that was all.
    fn limit(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(left) = &mut self.left else { return false };
        let most = usize::try_from(*left).unwrap_or(usize::MAX);
        out.truncate(most);
        *left -= out.len() as u64;
        *left == 0
    }
}

/// What a container has written; with `follow`, until it has ended.
pub(super) fn read(
    path: PathBuf,
    options: LogOptions,
    ended: Option<watch::Receiver<bool>>,
) -> io::Result<BoxStream<'static, Bytes>> {
    let mut render = Render { left: options.limit, options, inside: false };
    let mut first = Vec::new();
    let (file, rest) = whole(&path, &mut render, &mut first)?;
    let done = render.limit(&mut first);
    let head = stream::iter((!first.is_empty()).then(|| Bytes::from(first)));
    let follow = render.options.follow && !done;
    let Some(ended) = ended.filter(|_| follow) else { return Ok(head.boxed()) };
    let state = Follow { path, file, rest, render, ended, done: false };
    let tail = stream::unfold(state, async |mut state| state.next().await.map(|bytes| (bytes, state)));
    Ok(head.chain(tail).boxed())
}

/// Everything that there is now. Returns the newest file at its end, and what it has of a line.
fn whole(path: &Path, render: &mut Render, out: &mut Vec<u8>) -> io::Result<(File, Vec<u8>)> {
    let newest = File::open(path)?;
    let mut older: Vec<File> = Vec::new();
    for number in 1.. {
        let Ok(file) = File::open(rotated(path, number)) else { break };
        older.push(file);
    }
    let tail = render.options.tail.map(|tail| usize::try_from(tail).unwrap_or(usize::MAX));
    let mut last: VecDeque<Vec<u8>> = VecDeque::new();
    let mut rest = Vec::new();
    let mut reader = BufReader::new(newest);
    let mut take = |line: Vec<u8>, render: &mut Render, out: &mut Vec<u8>| match tail {
        None => render.line(&line, out),
        Some(tail) => {
            last.push_back(line);
            // A line in parts counts as one of them.
            while last.iter().filter(|line| parse(line).is_some_and(|line| !line.partial)).count() > tail {
                last.pop_front();
            }
        }
    };
    for file in older.into_iter().rev() {
        for line in BufReader::new(file).split(b'\n') {
            take(line?, render, out);
        }
    }
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match line.pop_if(|byte| *byte == b'\n') {
            Some(_) => take(line, render, out),
            None => rest = line,
        }
    }
    if tail != Some(0) {
        for line in last {
            render.line(&line, out);
        }
    }
    Ok((reader.into_inner(), rest))
}

struct Follow {
    path: PathBuf,
    file: File,
    /// The beginning of a line.
    rest: Vec<u8>,
    render: Render,
    ended: watch::Receiver<bool>,
    done: bool,
}

impl Follow {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.done {
                return None;
            }
            // Looked at before the file: what is written before the end is read.
            let ended = *self.ended.borrow() || self.ended.has_changed().is_err();
            let mut out = Vec::new();
            let more = self.read(&mut out).unwrap_or(false);
            self.done = self.render.limit(&mut out) || (ended && !more);
            if !out.is_empty() {
                return Some(out.into());
            }
            if !self.done && !more {
                let _ = tokio::time::timeout(FOLLOWED, self.ended.changed()).await;
            }
        }
    }

    /// Reads what has come. True: there may be more.
    fn read(&mut self, out: &mut Vec<u8>) -> io::Result<bool> {
        let mut bytes = std::mem::take(&mut self.rest);
        let read = self.file.by_ref().take(CHUNK).read_to_end(&mut bytes)?;
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(line) = lines.next() {
            if lines.peek().is_none() {
                self.rest = line.to_vec();
            } else {
                self.render.line(line, out);
            }
        }
        if read > 0 {
            return Ok(true);
        }
        // Another file may have taken its place.
        let position = self.file.stream_position()?;
        match File::open(&self.path) {
            Ok(file) if !same(&file, &self.file) && position >= self.file.metadata()?.len() => {
                self.file = file;
                self.rest.clear();
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

fn same(one: &File, other: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let number = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino())).ok();
    number(one) == number(other)
}

/// The end of a log, for the status of a container that failed: at most 80 lines and 2 KiB.
pub(super) fn end(path: &Path) -> String {
    let options = LogOptions { tail: Some(80), ..LogOptions::default() };
    let mut render = Render { left: None, options, inside: false };
    let mut out = Vec::new();
    if whole(path, &mut render, &mut out).is_err() {
        return String::new();
    }
    let start = out.len().saturating_sub(2048);
    String::from_utf8_lossy(&out[start..]).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;

    use super::*;

    const LINES: &str = "2026-01-01T00:00:00.000000000Z stdout F one\n\
                         2026-01-01T00:00:01.000000000Z stderr P tw\n\
                         2026-01-01T00:00:01.000000000Z stderr F o\n\
                         2026-01-01T00:00:02.000000000Z stdout F three\n";

    async fn text(path: &Path, options: LogOptions) -> String {
        let pieces: Vec<Bytes> = read(path.to_owned(), options, None).unwrap().collect().await;
        String::from_utf8(pieces.concat()).unwrap()
    }

    #[tokio::test]
    async fn parts_of_logs_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, LINES).unwrap();
        let options = LogOptions::default;
        assert_eq!(text(&path, options()).await, "one\ntwo\nthree\n");
        assert_eq!(text(&path, LogOptions { tail: Some(2), ..options() }).await, "two\nthree\n");
        assert_eq!(text(&path, LogOptions { tail: Some(0), ..options() }).await, "");
        assert_eq!(text(&path, LogOptions { limit: Some(5), ..options() }).await, "one\nt");
        let since = "2026-01-01T00:00:02Z".parse().ok();
        let stamped = LogOptions { since, timestamps: true, ..options() };
        assert_eq!(text(&path, stamped).await, "2026-01-01T00:00:02.000000000Z three\n");
        std::fs::rename(&path, rotated(&path, 1)).unwrap();
        std::fs::write(&path, "2026-01-01T00:00:03.000000000Z stdout F four\n").unwrap();
        assert_eq!(text(&path, LogOptions { tail: Some(2), ..options() }).await, "three\nfour\n");
        assert_eq!(end(&path), "one\ntwo\nthree\nfour\n");
    }

    #[tokio::test]
    async fn logs_are_followed_until_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, LINES).unwrap();
        let (end, ended) = watch::channel(false);
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let mut stream = read(path.clone(), options, Some(ended)).unwrap();
        assert_eq!(stream.next().await.unwrap(), "one\ntwo\nthree\n");
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"2026-01-01T00:00:03.000000000Z stdout F fo").unwrap();
        file.write_all(b"ur\n").unwrap();
        assert_eq!(stream.next().await.unwrap(), "four\n");
        std::fs::rename(&path, rotated(&path, 1)).unwrap();
        std::fs::write(&path, "2026-01-01T00:00:04.000000000Z stdout F five\n").unwrap();
        end.send(true).unwrap();
        assert_eq!(stream.next().await.unwrap(), "five\n");
        assert!(stream.next().await.is_none());
    }
}
