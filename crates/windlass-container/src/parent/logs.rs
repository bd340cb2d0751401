//! The log of a container, in the format of the CRI: `TIME STREAM TAG TEXT`, one line after the other.
//!
//! A line that is longer than a buffer is written in parts, with the tag `P` for all but the last, which has `F`. A file
//! that has become too large becomes `NAME.1`, the one before `NAME.2`, and so on.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use k8s_openapi::jiff::Timestamp;

/// How long a part of a line may be, as the CRI's implementations have it.
const LONGEST: usize = 16 << 10;

/// Writes the log of a container.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    size: u64,
    limit: u64,
    files: u32,
    /// What came of the current line of standard output and of standard error.
    partial: [Vec<u8>; 2],
}

const STREAMS: [&str; 2] = ["stdout", "stderr"];

impl Log {
    pub(super) fn open(path: &Path, limit: u64, files: u32) -> io::Result<Self> {
        if let Some(above) = path.parent() {
            fs::create_dir_all(above)?;
        }
        let file = File::options().create(true).append(true).open(path)?;
        let size = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, size, limit, files, partial: [Vec::new(), Vec::new()] })
    }

    /// Takes what came from a stream.
    pub(super) fn take(&mut self, stream: usize, bytes: &[u8]) {
        let now = Timestamp::now();
        let mut out = Vec::with_capacity(bytes.len() + 64);
        let partial = &mut self.partial[stream];
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            partial.extend_from_slice(text);
            while partial.len() >= LONGEST {
                let rest = partial.split_off(LONGEST);
                entry(&mut out, now, stream, 'P', partial);
                *partial = rest;
            }
            if ends {
                entry(&mut out, now, stream, 'F', partial);
                partial.clear();
            }
        }
        self.write(&out);
    }

    /// Writes lines that have no end, once nothing more comes.
    pub(super) fn finish(&mut self) {
        let mut out = Vec::new();
        for (stream, partial) in self.partial.iter_mut().enumerate() {
            if !partial.is_empty() {
                entry(&mut out, Timestamp::now(), stream, 'P', partial);
                partial.clear();
            }
        }
        self.write(&out);
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.size > 0 && self.size + bytes.len() as u64 > self.limit {
            self.rotate();
        }
        // A full disk loses lines, not containers.
        if self.file.write_all(bytes).is_ok() {
            self.size += bytes.len() as u64;
        }
    }

    fn rotate(&mut self) {
        for number in (1..self.files.saturating_sub(1)).rev() {
            let _ = fs::rename(rotated(&self.path, number), rotated(&self.path, number + 1));
        }
        let _ = fs::rename(&self.path, rotated(&self.path, 1));
        if let Ok(file) = File::options().create(true).append(true).open(&self.path) {
            (self.file, self.size) = (file, 0);
        }
    }
}

/// The file that a log was rotated to.
pub(crate) fn rotated(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    name.into()
}

fn entry(out: &mut Vec<u8>, now: Timestamp, stream: usize, tag: char, text: &[u8]) {
    let _ = write!(out, "{now:.9} {} {tag} ", STREAMS[stream]);
    out.extend_from_slice(text);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lines(path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap();
        text.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    #[test]
    fn lines_are_written_when_they_are_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("logs/0.log");
        let mut log = Log::open(&path, 1 << 20, 3).unwrap();
        log.take(0, b"one\ntw");
        log.take(1, b"oops\n");
        log.take(0, b"o\n\nend");
        log.finish();
        assert_eq!(lines(&path), ["stdout F one", "stderr F oops", "stdout F two", "stdout F ", "stdout P end"]);
        let time = fs::read_to_string(&path).unwrap();
        time.split_once(' ').unwrap().0.parse::<Timestamp>().unwrap();
        log.take(0, &vec![b'x'; LONGEST + 1]);
        log.take(0, b"\n");
        let tags: Vec<(String, usize)> =
            lines(&path)[5..].iter().map(|line| (line[7..8].to_owned(), line.len() - 9)).collect();
        assert_eq!(tags, [("P".to_owned(), LONGEST), ("F".to_owned(), 1)]);
    }

    #[test]
    fn files_are_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        let mut log = Log::open(&path, 100, 3).unwrap();
        for number in 0..10 {
            log.take(0, format!("line {number}\n").as_bytes());
        }
        assert_eq!(lines(&path).last().unwrap(), "stdout F line 9");
        assert!(rotated(&path, 1).exists() && rotated(&path, 2).exists() && !rotated(&path, 3).exists());
    }
}
