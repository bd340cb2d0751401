//! Tar files: written in the format of POSIX (ustar) with nothing in them that depends on time, user or machine, and read as
//! POSIX and GNU write them.

mod read;

use std::io::{self, Write};

pub use read::{Entry, EntryKind, Reader};

const BLOCK: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    Directory,
    Link,
}

/// Writes entries one after the other.
#[derive(Debug)]
pub struct Tar<W> {
    out: W,
}

impl<W: Write> Tar<W> {
    /// Writes there.
    pub fn new(out: W) -> Self {
        Self { out }
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.header(path, mode, bytes.len() as u64, Kind::File, "")?;
        self.out.write_all(bytes)?;
        let rest = bytes.len() % BLOCK;
        if rest > 0 {
            self.out.write_all(&[0; BLOCK][rest..])?;
        }
        Ok(())
    }

    /// Adds a directory.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        self.header(&format!("{path}/"), 0o755, 0, Kind::Directory, "")
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.header(path, 0o777, 0, Kind::Link, to)
    }

    /// Ends the file.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        Ok(self.out)
    }

    fn header(&mut self, path: &str, mode: u32, size: u64, kind: Kind, link: &str) -> io::Result<()> {
        let (prefix, name) = split(path).ok_or_else(|| io::Error::other(format!("the path {path} is too long")))?;
        if link.len() > 100 {
            return Err(io::Error::other(format!("the link {path} leads too far")));
        }
        let mut block = [0; BLOCK];
        let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
        put(0, name);
        put(100, &format!("{mode:07o}"));
        put(108, "0000000");
        put(116, "0000000");
        put(124, &format!("{size:011o}"));
        put(136, "00000000000");
        put(148, "        ");
        put(
            156,
            match kind {
                Kind::File => "0",
                Kind::Link => "2",
                Kind::Directory => "5",
            },
        );
        put(157, link);
        put(257, "ustar");
        put(263, "00");
        put(329, "0000000");
        put(337, "0000000");
        put(345, prefix);
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.out.write_all(&block)
    }
}

/// Divides a path between the two fields that hold it.
fn split(path: &str) -> Option<(&str, &str)> {
    if path.len() <= 100 {
        return Some(("", path));
    }
    let slashes = path.char_indices().filter(|(_, letter)| *letter == '/').map(|(at, _)| at);
    let mut places = slashes.filter(|at| *at <= 155 && path.len() - at - 1 <= 100 && path.len() > at + 1);
    places.next().map(|at| (&path[..at], &path[at + 1..]))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_tar_of_the_system_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(90));
        let mut tar = Tar::new(std::fs::File::create(dir.path().join("a.tar")).unwrap());
        tar.directory("bin").unwrap();
        tar.file("bin/run", 0o755, b"hello").unwrap();
        tar.link("run", "bin/run").unwrap();
        tar.file(&long, 0o644, &[7; 1024]).unwrap();
        tar.finish().unwrap();
        let mut command = std::process::Command::new("tar");
        let status = command.args(["xf", "a.tar"]).current_dir(&dir).status().unwrap();
        assert!(status.success());
        assert_eq!(std::fs::read(dir.path().join("run")).unwrap(), b"hello");
        assert_eq!(std::fs::read(dir.path().join(long)).unwrap(), [7; 1024]);
    }

    #[test]
    fn long_paths_are_divided() {
        assert_eq!(split("a/b"), Some(("", "a/b")));
        assert_eq!(split(&"x".repeat(101)), None);
        let path = format!("{}/{}", "a".repeat(120), "b".repeat(20));
        assert_eq!(split(&path).map(|(prefix, name)| (prefix.len(), name.len())), Some((120, 20)));
    }
}
