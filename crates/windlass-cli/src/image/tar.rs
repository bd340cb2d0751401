//! Tar files in the format of POSIX (ustar), with nothing in them that depends on time, user or machine.

use std::io::{self, Write};

const BLOCK: usize = 512;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Link,
}

/// Writes entries one after the other.
pub(super) struct Tar<W> {
    out: W,
}

impl<W: Write> Tar<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out }
    }

    pub(super) fn file(&mut self, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.header(path, mode, bytes.len() as u64, Kind::File, "")?;
        self.out.write_all(bytes)?;
        let rest = bytes.len() % BLOCK;
        if rest > 0 {
            self.out.write_all(&[0; BLOCK][rest..])?;
        }
        Ok(())
    }

    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        self.header(&format!("{path}/"), 0o755, 0, Kind::Directory, "")
    }

    pub(super) fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.header(path, 0o777, 0, Kind::Link, to)
    }

    /// Ends the file.
    pub(super) fn finish(mut self) -> io::Result<W> {
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

/// An entry of a tar file that is read.
pub(super) struct Entry<'a> {
    pub path: String,
    /// Where a symbolic link leads.
    pub link: Option<&'a str>,
    pub bytes: &'a [u8],
}

/// The entries of a tar file. Long names are read as GNU's tar and POSIX' pax write them.
pub(super) fn entries(tar: &[u8]) -> io::Result<Vec<Entry<'_>>> {
    let broken = || io::Error::new(io::ErrorKind::InvalidData, "the tar file is damaged");
    let mut entries = Vec::new();
    let mut at = 0;
    let (mut long_path, mut long_link): (Option<&str>, Option<&str>) = (None, None);
    while let Some(block) = tar.get(at..at + BLOCK) {
        if block.iter().all(|byte| *byte == 0) {
            break;
        }
        if &block[257..262] != b"ustar" {
            return Err(broken());
        }
        let size = usize::try_from(number(&block[124..136]).ok_or_else(broken)?).map_err(|_| broken())?;
        let start = at + BLOCK;
        let end = start.checked_add(size).ok_or_else(broken)?;
        let bytes = tar.get(start..end).ok_or_else(broken)?;
        at = end.next_multiple_of(BLOCK);
        let whole = || text(bytes).ok_or_else(broken);
        match block[156] {
            b'L' => long_path = Some(whole()?),
            b'K' => long_link = Some(whole()?),
            b'x' => {
                let records = std::str::from_utf8(bytes).map_err(|_| broken())?;
                for record in records.lines().filter_map(|line| line.split_once(' ')) {
                    match record.1.split_once('=') {
                        Some(("path", path)) => long_path = Some(path),
                        Some(("linkpath", link)) => long_link = Some(link),
                        _ => {}
                    }
                }
            }
            b'g' => {}
            kind => {
                let name = text(&block[..100]).ok_or_else(broken)?;
                // GNU's own format has other things where POSIX has the first part of the path.
                let prefix = if block[262] == 0 { text(&block[345..500]).ok_or_else(broken)? } else { "" };
                let path = match long_path.take() {
                    Some(path) => path.to_owned(),
                    None if prefix.is_empty() => name.to_owned(),
                    None => format!("{prefix}/{name}"),
                };
                let short = text(&block[157..257]).ok_or_else(broken)?;
                let link = long_link.take().unwrap_or(short);
                entries.push(Entry { path, link: (kind == b'2').then_some(link), bytes });
            }
        }
    }
    Ok(entries)
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).ok()
}

/// A number in octal digits, or in binary if its first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        return field[1..].iter().try_fold(0_u64, |sum, byte| sum.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    u64::from_str_radix(text(field)?.trim(), 8).ok()
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
    fn tars_of_the_system_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(120));
        std::fs::create_dir_all(dir.path().join("d".repeat(120))).unwrap();
        std::fs::write(dir.path().join(&long), "hello").unwrap();
        std::os::unix::fs::symlink("b", dir.path().join("a")).unwrap();
        for format in ["gnu", "posix", "ustar"] {
            let names = if format == "ustar" { vec!["a"] } else { vec!["a", &long] };
            let mut command = std::process::Command::new("tar");
            command.arg(format!("--format={format}")).arg("-cf").arg("x.tar").args(&names).current_dir(&dir);
            assert!(command.status().unwrap().success());
            let tar = std::fs::read(dir.path().join("x.tar")).unwrap();
            let read = entries(&tar).unwrap();
            assert_eq!(read.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), names, "{format}");
            assert_eq!(read[0].link, Some("b"));
            assert!(read.get(1).is_none_or(|entry| entry.bytes == b"hello"));
        }
        assert!(entries(&[7; BLOCK]).is_err());
        let mut own = Tar::new(Vec::new());
        own.file("f", 0o644, &[1; 600]).unwrap();
        assert_eq!(entries(&own.finish().unwrap()).unwrap()[0].bytes, [1; 600]);
    }

    #[test]
    fn long_paths_are_divided() {
        assert_eq!(split("a/b"), Some(("", "a/b")));
        assert_eq!(split(&"x".repeat(101)), None);
        let path = format!("{}/{}", "a".repeat(120), "b".repeat(20));
        assert_eq!(split(&path).map(|(prefix, name)| (prefix.len(), name.len())), Some((120, 20)));
    }
}
