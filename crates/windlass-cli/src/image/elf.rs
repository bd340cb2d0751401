//! What a program needs to be started: its loader and shared libraries, as its ELF headers name them.
//!
//! An image holds nothing but what is put into it, so a program that is linked dynamically, as Rust's are by default,
//! brings these along from the machine that it was built on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// What the headers of a program say.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Elf {
    /// The architecture, in the words of images.
    pub architecture: &'static str,
    /// The loader, if the program is linked dynamically.
    pub interpreter: Option<String>,
    /// The names of the libraries.
    pub needed: Vec<String>,
}

/// Reads the headers; nothing if this is no program for Linux of 64 bits.
pub(super) fn read(bytes: &[u8]) -> Option<Elf> {
    // A 64-bit, little-endian file.
    if bytes.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let number = |at: usize, length: usize| {
        let bytes = bytes.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte)))
    };
    let place = |at: usize| usize::try_from(number(at, 8)?).ok();
    let architecture = match number(18, 2)? {
        62 => "amd64",
        183 => "arm64",
        243 => "riscv64",
        _ => return None,
    };
    let mut elf = Elf { architecture, ..Elf::default() };
    let (table, size, count) = (place(32)?, number(54, 2)? as usize, number(56, 2)? as usize);
    let headers: Vec<usize> = (0..count).map(|index| table + index * size).collect();
    let kind = |at: usize| number(at, 4).map(|kind| kind as u32);
    let text = |at: usize| {
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        String::from_utf8(rest[..end].to_vec()).ok()
    };
    // Where an address of the running program is in the file.
    let in_file = |address: usize| {
        headers.iter().filter(|at| kind(**at) == Some(PT_LOAD)).find_map(|at| {
            let (offset, start, length) = (place(at + 8)?, place(at + 16)?, place(at + 32)?);
            (start..start + length).contains(&address).then(|| offset + (address - start))
        })
    };
    for at in &headers {
        match kind(*at)? {
            PT_INTERP => elf.interpreter = text(place(at + 8)?),
            PT_DYNAMIC => {
                let (start, length) = (place(at + 8)?, place(at + 32)?);
                let entries: Vec<(u64, usize)> = (0..length / 16)
                    .map_while(|index| Some((number(start + index * 16, 8)?, place(start + index * 16 + 8)?)))
                    .take_while(|(tag, _)| *tag != DT_NULL)
                    .collect();
                let strings = entries.iter().find(|(tag, _)| *tag == DT_STRTAB).and_then(|(_, at)| in_file(*at))?;
                let needed = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED);
                elf.needed = needed.filter_map(|(_, at)| text(strings + at)).collect();
            }
            _ => {}
        }
    }
    Some(elf)
}

/// Reads the headers of a program, or says what it is instead.
pub(super) fn program(bytes: &[u8]) -> Result<Elf, &'static str> {
    const ET_EXEC: u8 = 2;
    const ET_DYN: u8 = 3;
    match bytes {
        [] => return Err("an empty file"),
        [b'#', b'!', ..] => return Err("a script"),
        [0xcf | 0xce, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => return Err("a program for macOS"),
        [b'M', b'Z', ..] => return Err("a program for Windows"),
        [0x7f, b'E', b'L', b'F', 1, ..] => return Err("a program of 32 bits"),
        [0x7f, b'E', b'L', b'F', ..] => {}
        _ if bytes.iter().take(512).all(|byte| *byte >= b' ' || byte.is_ascii_whitespace()) => {
            return Err("a text file");
        }
        _ => return Err("no program"),
    }
    // The system that it is for: any that follows System V, or Linux by name.
    if !matches!(bytes.get(7), Some(0 | 3)) {
        return Err("a program for another system");
    }
    let Some(elf) = read(bytes) else { return Err("a program for another architecture") };
    let has_entry = bytes.get(24..32).is_some_and(|address| address.iter().any(|byte| *byte != 0));
    match bytes.get(16) {
        Some(&(ET_EXEC | ET_DYN)) if has_entry => Ok(elf),
        _ => Err("a library or an object file"),
    }
}

/// Where libraries are looked for, besides the directory of the loader.
const DIRECTORIES: [&str; 8] = [
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib",
    "/usr/lib",
];

/// The files that a program needs: the loader, and its libraries with those that they need.
pub(super) fn closure(elf: &Elf) -> Result<Vec<PathBuf>> {
    let Some(interpreter) = &elf.interpreter else { return Ok(Vec::new()) };
    let mut found: BTreeSet<PathBuf> = [PathBuf::from(interpreter)].into();
    let mut open: Vec<String> = elf.needed.clone();
    let mut seen = BTreeSet::new();
    while let Some(name) = open.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let candidates = DIRECTORIES.iter().map(|directory| Path::new(directory).join(&name));
        let fitting = candidates.filter_map(|path| {
            let read = read(&std::fs::read(&path).ok()?)?;
            (read.architecture == elf.architecture).then_some((path, read))
        });
        let Some((path, library)) = fitting.take(1).next() else {
            bail!("the program needs the library {name}, which is not in {}", DIRECTORIES.join(", "));
        };
        found.insert(path);
        open.extend(library.needed);
    }
    let loader = Path::new(interpreter);
    std::fs::metadata(loader).with_context(|| format!("the program's loader {interpreter} is not here"))?;
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn this_program_is_read() {
        let elf = read(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(["amd64", "arm64", "riscv64"].contains(&elf.architecture));
        if elf.interpreter.is_some() {
            assert!(elf.needed.iter().any(|name| name.starts_with("libc.so")), "{elf:?}");
            let files = closure(&elf).unwrap();
            assert!(files.iter().any(|file| file.to_string_lossy().contains("libc.so")), "{files:?}");
        }
    }

    #[test]
    fn other_files_are_named() {
        for (bytes, what) in [
            (&b""[..], "an empty file"),
            (b"#!/bin/sh\n", "a script"),
            (b"hello\n", "a text file"),
            (b"MZ\x90", "a program for Windows"),
            (&[0xcf, 0xfa, 0xed, 0xfe, 0, 0], "a program for macOS"),
            (b"\x7fELF\x01\x01\x01", "a program of 32 bits"),
            (&[0x7f, b'E', b'L', b'F', 2, 1, 1, 9, 0], "a program for another system"),
            (&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0], "a program for another architecture"),
            (&[0, 1, 2], "no program"),
        ] {
            assert_eq!(program(bytes), Err(what));
        }
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(program(&own).is_ok());
        let mut object = own;
        object[16] = 1;
        assert_eq!(program(&object), Err("a library or an object file"));
    }

    #[test]
    fn other_files_are_no_programs() {
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01", &[0x7f, b'E', b'L', b'F', 2, 1, 0, 0]] {
            assert_eq!(read(bytes), None);
        }
    }
}
