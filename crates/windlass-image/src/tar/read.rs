//! Reads tar files one entry after the other, from a stream that is never held in memory.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::BLOCK;

/// How many bytes a header that stands for others may have: long names and attributes.
const EXTENSION: u64 = 1 << 20;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A file, whose content follows.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Another name of a file that came before.
    HardLink,
    /// A named pipe.
    Fifo,
    /// A device, or an unknown type.
    Other,
}

/// An entry of a tar file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is. As it was written: it may be absolute, or lead upwards.
    pub path: String,
    /// What it is.
    pub kind: EntryKind,
    /// Where a link leads.
    pub link: String,
    /// Its mode.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When it was changed, in seconds.
    pub mtime: i64,
    /// How many bytes its content has.
    pub size: u64,
    /// Extended attributes.
    pub xattrs: BTreeMap<String, Vec<u8>>,
}

/// Reads entries one after the other: [`next_entry`](Self::next_entry), then the content of that entry by [`Read`].
#[derive(Debug)]
pub struct Reader<R> {
    inner: R,
    /// What is left of the content of the entry.
    content: u64,
    /// What comes between it and the next entry.
    padding: u64,
}

/// What headers say about the entry that follows them.
#[derive(Default)]
struct Extended {
    path: Option<String>,
    link: Option<String>,
    size: Option<u64>,
    uid: Option<u32>,
    gid: Option<u32>,
    xattrs: BTreeMap<String, Vec<u8>>,
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the tar file is damaged")
}

impl<R: Read> Reader<R> {
    /// Reads from there.
    pub fn new(inner: R) -> Self {
        Self { inner, content: 0, padding: 0 }
    }

    /// What was read from, at the place that was reached.
    pub fn into_inner(self) -> R {
        self.inner
    }

    /// The next entry; what was not read of the one before is skipped. `None` at the end.
    pub fn next_entry(&mut self) -> io::Result<Option<Entry>> {
        let mut extended = Extended::default();
        loop {
            self.skip()?;
            let Some(block) = self.block()? else { return Ok(None) };
            let size = number(&block[124..136]).ok_or_else(broken)?;
            let kind = block[156];
            if matches!(kind, b'L' | b'K' | b'x' | b'g') {
                if size > EXTENSION {
                    return Err(broken());
                }
                self.begin(size);
                let mut bytes = Vec::new();
                self.read_to_end(&mut bytes)?;
                match kind {
                    b'L' => extended.path = Some(text(&bytes)?),
                    b'K' => extended.link = Some(text(&bytes)?),
                    b'x' => extended.records(&bytes)?,
                    _ => {}
                }
                continue;
            }
            return self.entry(&block, kind, size, extended).map(Some);
        }
    }

    fn entry(&mut self, block: &[u8; BLOCK], kind: u8, size: u64, extended: Extended) -> io::Result<Entry> {
        let name = text(&block[..100])?;
        // GNU's own format has other things where POSIX has the first part of the path.
        let prefix = if &block[257..263] == b"ustar\0" { text(&block[345..500])? } else { String::new() };
        let short = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        let path = extended.path.unwrap_or(short);
        let kind = match kind {
            // Old tars have directories as files whose names end with a slash.
            b'0' | 0 | b'7' if path.ends_with('/') => EntryKind::Directory,
            b'0' | 0 | b'7' => EntryKind::File,
            b'1' => EntryKind::HardLink,
            b'2' => EntryKind::Symlink,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            _ => EntryKind::Other,
        };
        let size = extended.size.unwrap_or(size);
        // A hard link has no content, whatever its header says about that of the file.
        let size = if matches!(kind, EntryKind::File | EntryKind::Other) { size } else { 0 };
        self.begin(size);
        let small = |range: std::ops::Range<usize>| number(&block[range]).and_then(|value| u32::try_from(value).ok());
        Ok(Entry {
            path,
            kind,
            link: match extended.link {
                Some(link) => link,
                None => text(&block[157..257])?,
            },
            mode: small(100..108).ok_or_else(broken)? & 0o7777,
            uid: extended.uid.or_else(|| small(108..116)).ok_or_else(broken)?,
            gid: extended.gid.or_else(|| small(116..124)).ok_or_else(broken)?,
            mtime: number(&block[136..148]).and_then(|value| i64::try_from(value).ok()).unwrap_or(0),
            size,
            xattrs: extended.xattrs,
        })
    }

    /// The next header; `None` at the end of the file, which is a block of zeros or the end of the stream.
    fn block(&mut self) -> io::Result<Option<[u8; BLOCK]>> {
        let mut block = [0; BLOCK];
        let mut filled = 0;
        while filled < BLOCK {
            match self.inner.read(&mut block[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(broken()),
                read => filled += read,
            }
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = number(&block[148..156]).ok_or_else(broken)?;
        let unsummed = block[..148].iter().chain(&block[156..]).map(|byte| u64::from(*byte)).sum::<u64>();
        if sum != unsummed + 8 * u64::from(b' ') {
            return Err(broken());
        }
        Ok(Some(block))
    }

    fn begin(&mut self, size: u64) {
        self.content = size;
        self.padding = (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64;
    }

    fn skip(&mut self) -> io::Result<()> {
        let rest = self.content.checked_add(self.padding).ok_or_else(broken)?;
        let skipped = io::copy(&mut (&mut self.inner).take(rest), &mut io::sink())?;
        (self.content, self.padding) = (0, 0);
        if skipped == rest { Ok(()) } else { Err(broken()) }
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.content).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.inner.read(&mut buffer[..most])?;
        if read == 0 {
            return Err(broken());
        }
        self.content -= read as u64;
        Ok(read)
    }
}

impl Extended {
    /// Records as pax has them: `LENGTH NAME=VALUE\n`, where the length counts all of it.
    fn records(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
            let length = std::str::from_utf8(&bytes[..space]).ok().and_then(|text| text.parse::<usize>().ok());
            let length = length.filter(|length| *length > space + 1 && *length <= bytes.len()).ok_or_else(broken)?;
            let record = bytes[space + 1..length].strip_suffix(b"\n").ok_or_else(broken)?;
            bytes = &bytes[length..];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
            let (name, value) = (&record[..equals], &record[equals + 1..]);
            let as_number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            let as_id = || as_number().and_then(|id| u32::try_from(id).ok()).ok_or_else(broken);
            match name {
                b"path" => self.path = Some(text(value)?),
                b"linkpath" => self.link = Some(text(value)?),
                b"size" => self.size = Some(as_number().ok_or_else(broken)?),
                b"uid" => self.uid = Some(as_id()?),
                b"gid" => self.gid = Some(as_id()?),
                _ => {
                    if let Some(attribute) = name.strip_prefix(b"SCHILY.xattr.") {
                        self.xattrs.insert(text(attribute)?, value.to_vec());
                    }
                }
            }
        }
        Ok(())
    }
}

/// Text up to the first zero.
fn text(bytes: &[u8]) -> io::Result<String> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).map(str::to_owned).map_err(|_| broken())
}

/// A number in octal digits, or in binary if its first bit is set. An empty field is zero.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        return field[1..].iter().try_fold(0_u64, |sum, byte| sum.checked_mul(256)?.checked_add(u64::from(*byte)));
    }
    let text = text(field).ok()?;
    let text = text.trim();
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Tar;
    use super::*;

    fn all(tar: &[u8]) -> io::Result<Vec<(Entry, Vec<u8>)>> {
        let mut reader = Reader::new(tar);
        let mut found = Vec::new();
        while let Some(entry) = reader.next_entry()? {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes)?;
            found.push((entry, bytes));
        }
        Ok(found)
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
            let read = all(&std::fs::read(dir.path().join("x.tar")).unwrap()).unwrap();
            assert_eq!(read.iter().map(|(entry, _)| entry.path.as_str()).collect::<Vec<_>>(), names, "{format}");
            assert_eq!((read[0].0.kind, read[0].0.link.as_str()), (EntryKind::Symlink, "b"));
            assert!(read.get(1).is_none_or(|(_, bytes)| bytes == b"hello"));
        }
    }

    #[test]
    fn our_own_tars_are_read() {
        let mut own = Tar::new(Vec::new());
        own.directory("d").unwrap();
        own.file("d/f", 0o600, &[1; 600]).unwrap();
        own.link("l", "d/f").unwrap();
        let own = own.finish().unwrap();
        let read = all(&own).unwrap();
        let kinds: Vec<_> = read.iter().map(|(entry, bytes)| (entry.kind, entry.mode, bytes.len())).collect();
        let expected =
            [(EntryKind::Directory, 0o755, 0), (EntryKind::File, 0o600, 600), (EntryKind::Symlink, 0o777, 0)];
        assert_eq!(kinds, expected);
        // Cut off anywhere, or damaged anywhere in its headers, it is an error or shorter, never something else.
        for end in 1..own.len() - 1024 {
            assert!(all(&own[..end]).is_err() || all(&own[..end]).unwrap().len() < 3, "{end}");
        }
        let mut damaged = own.clone();
        damaged[3] ^= 1;
        assert!(all(&damaged).is_err());
        assert!(all(&[7; BLOCK]).is_err());
    }

    #[test]
    fn attributes_are_read_with_zeros_in_them() {
        let value = [1, 0, 0, 2, b'\n'];
        let mut record = b"41 SCHILY.xattr.security.capability=".to_vec();
        record.extend(value);
        let length = record.len() + 1;
        record[..2].copy_from_slice(length.to_string().as_bytes());
        record.push(b'\n');
        let mut extended = Extended::default();
        extended.records(&record).unwrap();
        assert_eq!(extended.xattrs["security.capability"], value);
        assert!(Extended::default().records(b"99 path=x\n").is_err());
        assert!(Extended::default().records(b"x").is_err());
    }
}
