//! Files with the output of containers: in the CRI's format, or plain lines.

use std::collections::VecDeque;
use std::io::SeekFrom;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::FutureExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use k8s_openapi::jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio_util::io::StreamReader;
use windlass_node::runtime::{LogOptions, RuntimeError, Session};

/// How often a file is looked at for more while a client follows it.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);
const PIECE: usize = 32 << 10;
/// A longer line is cut here.
const LINE_LIMIT: usize = 1 << 20;

/// The part of a file that is asked for.
pub(super) async fn open(path: String, options: LogOptions) -> Result<BoxStream<'static, Bytes>, RuntimeError> {
    let failed = |error: std::io::Error| {
        RuntimeError::NotFound(format!("failed to try resolving symlinks in path {path:?}: {error}"))
    };
    let mut file = File::open(&path).await.map_err(failed)?;
    if let Some(lines) = options.tail {
        let start = tail(&mut file, lines).await.map_err(failed)?;
        file.seek(SeekFrom::Start(start)).await.map_err(failed)?;
    }
    let reader = Reader { file, buffer: BytesMut::new(), left: options.limit, options, is_over: false };
    Ok(stream::unfold(reader, async |mut reader| reader.next().await.map(|piece| (piece, reader))).boxed())
}

/// What is added to a file from now on, as the output of a process that never ends.
pub(super) async fn attach(path: String) -> Result<Session, RuntimeError> {
    let options = LogOptions { follow: true, tail: Some(0), ..LogOptions::default() };
    let output = open(path, options).await?.map(Ok::<_, std::io::Error>);
    Ok(Session {
        stdin: None,
        stdout: Some(Box::new(StreamReader::new(output))),
        stderr: None,
        resize: None,
        exit: async { Ok(0) }.boxed(),
    })
}

/// Where the last lines of a file begin.
async fn tail(file: &mut File, lines: u64) -> std::io::Result<u64> {
    let lines = usize::try_from(lines).unwrap_or(usize::MAX);
    // The starts of the last lines, and of what would be the next one.
    let mut starts: VecDeque<u64> = VecDeque::from([0]);
    let mut buffer = vec![0; PIECE];
    let mut at = 0_u64;
    loop {
        let read = file.read(&mut buffer).await?;
        if read == 0 {
            break;
        }
        for (offset, _) in buffer[..read].iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
            starts.push_back(at + offset as u64 + 1);
            if starts.len() > lines.saturating_add(1) {
                starts.pop_front();
            }
        }
        at += read as u64;
    }
    if starts.back() == Some(&at) {
        starts.pop_back();
    }
    let skip = starts.len().saturating_sub(lines);
    Ok(starts.get(skip).copied().unwrap_or(at))
}

struct Reader {
    file: File,
    buffer: BytesMut,
    left: Option<u64>,
    options: LogOptions,
    is_over: bool,
}

impl Reader {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.is_over || self.left == Some(0) {
                return None;
            }
            self.buffer.reserve(PIECE);
            let read = self.file.read_buf(&mut self.buffer).await.ok()?;
            let is_end = read == 0 && !self.options.follow;
            self.is_over = is_end;
            let mut output = self.lines(is_end);
            if let Some(left) = &mut self.left {
                output.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= output.len() as u64;
            }
            if !output.is_empty() {
                return Some(output.into());
            }
            if read == 0 && !is_end {
                tokio::time::sleep(FOLLOW_EVERY).await;
            }
        }
    }

    /// The whole lines that are there, as they are shown.
    fn lines(&mut self, is_end: bool) -> Vec<u8> {
        let mut output = Vec::new();
        loop {
            let end = self.buffer.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let cut =
                (self.buffer.len() > LINE_LIMIT || (is_end && !self.buffer.is_empty())).then_some(self.buffer.len());
            let Some(end) = end.or(cut) else { return output };
            let line = self.buffer.split_to(end);
            show(&line, &self.options, &mut output);
        }
    }
}

/// One line of the file as it is shown.
fn show(line: &[u8], options: &LogOptions, output: &mut Vec<u8>) {
    let Some((time, content, is_whole)) = cri(line) else {
        output.extend_from_slice(line);
        return;
    };
    let at = std::str::from_utf8(time).ok().and_then(|time| time.parse::<Timestamp>().ok());
    if options.since.is_some_and(|since| at.is_some_and(|at| at < since)) {
        return;
    }
    if options.timestamps {
        output.extend_from_slice(time);
        output.push(b' ');
    }
    output.extend_from_slice(content);
    if is_whole {
        output.push(b'\n');
    }
}

/// The time and the content of a line in the CRI's format, and whether it ends there.
fn cri(line: &[u8]) -> Option<(&[u8], &[u8], bool)> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let (time, stream, tags, content) = (parts.next()?, parts.next()?, parts.next()?, parts.next().unwrap_or_default());
    let is_time = time.len() >= 20 && time[0].is_ascii_digit() && time.contains(&b'T');
    let is_line = is_time && matches!(stream, b"stdout" | b"stderr") && matches!(tags.first(), Some(b'F' | b'P'));
    is_line.then_some((time, content, tags.first() == Some(&b'F')))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRI: &str = "2026-01-01T00:00:00.5Z stdout F one\n2026-01-01T00:00:01Z stderr P tw\n\
                       2026-01-01T00:00:01Z stderr F o\n2026-01-01T00:00:02Z stdout F three\n";

    async fn check(content: &str, options: LogOptions, expected: &str) {
        let path = std::env::temp_dir().join(format!("windlass-kwok-{:016x}.log", fastrand::u64(..)));
        std::fs::write(&path, content).expect("a file");
        let output = open(path.display().to_string(), options.clone()).await.expect("output");
        let output: Vec<Bytes> = output.collect().await;
        std::fs::remove_file(&path).expect("a file");
        assert_eq!(String::from_utf8_lossy(&output.concat()), expected, "{options:?}");
    }

    #[tokio::test]
    async fn a_file_is_shown_as_its_options_say() {
        let all = LogOptions::default;
        check(CRI, all(), "one\ntwo\nthree\n").await;
        check("plain\nlines", all(), "plain\nlines").await;
        check(CRI, LogOptions { tail: Some(1), ..all() }, "three\n").await;
        check("a\nb\nc\n", LogOptions { tail: Some(2), ..all() }, "b\nc\n").await;
        check("a\nb", LogOptions { tail: Some(1), ..all() }, "b").await;
        check("a\nb\n", LogOptions { tail: Some(0), ..all() }, "").await;
        check("a\nb\n", LogOptions { tail: Some(9), ..all() }, "a\nb\n").await;
        check(CRI, LogOptions { limit: Some(5), ..all() }, "one\nt").await;
        let since = "2026-01-01T00:00:02Z".parse().ok();
        check(CRI, LogOptions { since, timestamps: true, ..all() }, "2026-01-01T00:00:02Z three\n").await;
    }

    #[tokio::test]
    async fn a_file_that_is_missing_is_named() {
        let error = open("/nowhere/x.log".to_owned(), LogOptions::default()).await.err().expect("an error");
        assert!(error.to_string().contains("/nowhere/x.log"), "{error}");
    }
}
