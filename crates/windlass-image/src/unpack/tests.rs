//! Layers as their authors mean them, and as attackers write them.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;
use crate::digest;

/// One entry of a layer.
#[derive(Debug, Clone)]
enum Item {
    File(String, Vec<u8>),
    Directory(String),
    Symlink(String, String),
    HardLink(String, String),
    Device(String),
}

/// A tar file, written without any of the checks that the crate's own writer has.
fn tar(items: &[Item]) -> Vec<u8> {
    let mut out = Vec::new();
    for item in items {
        let (kind, path, link, content): (u8, &str, &str, &[u8]) = match item {
            Item::File(path, content) => (b'0', path, "", content),
            Item::Directory(path) => (b'5', path, "", b""),
            Item::Symlink(path, link) => (b'2', path, link, b""),
            Item::HardLink(path, link) => (b'1', path, link, b""),
            Item::Device(path) => (b'3', path, "", b""),
        };
        let mut block = [0; 512];
        let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
        put(0, path.as_bytes());
        put(100, b"0000755");
        put(108, b"0000000");
        put(116, b"0000000");
        put(124, format!("{:011o}", content.len()).as_bytes());
        put(136, b"00000000001");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link.as_bytes());
        put(257, b"ustar\0");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(block);
        out.extend(content);
        out.resize(out.len().next_multiple_of(512), 0);
    }
    out.resize(out.len() + 1024, 0);
    out
}

fn file(path: &str, content: &str) -> Item {
    Item::File(path.to_owned(), content.as_bytes().to_vec())
}

fn directory(path: &str) -> Item {
    Item::Directory(path.to_owned())
}

fn symlink(path: &str, to: &str) -> Item {
    Item::Symlink(path.to_owned(), to.to_owned())
}

fn hard_link(path: &str, to: &str) -> Item {
    Item::HardLink(path.to_owned(), to.to_owned())
}

/// A directory with `outside`, a file, and `root`, where layers are unpacked.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn unpack(layers: &[Vec<Item>], limits: Limits) -> (Self, Result<(), UnpackError>) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("outside"), "untouched").unwrap();
        let mut unpacker = Unpacker::new(&dir.path().join("root"), limits).unwrap();
        let mut unpack = || {
            for items in layers {
                let tar = tar(items);
                unpacker.layer(&tar[..], &digest::of(&tar))?;
            }
            Ok(())
        };
        let result = unpack();
        (Self { dir }, result)
    }

    /// Every path below the root, sorted, with the content of files and the targets of links.
    fn list(&self) -> Vec<String> {
        fn walk(dir: &Path, prefix: &str, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let path = format!("{prefix}{}", entry.file_name().into_string().unwrap());
                let kind = entry.file_type().unwrap();
                if kind.is_symlink() {
                    found.push(format!("{path} -> {}", std::fs::read_link(entry.path()).unwrap().display()));
                } else if kind.is_dir() {
                    found.push(format!("{path}/"));
                    walk(&entry.path(), &format!("{path}/"), found);
                } else {
                    found.push(format!("{path} {}", std::fs::read_to_string(entry.path()).unwrap()));
                }
            }
        }
        let mut found = Vec::new();
        walk(&self.dir.path().join("root"), "", &mut found);
        found.sort();
        found
    }

    fn is_contained(&self) -> bool {
        let mut names: Vec<_> =
            std::fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names == ["outside", "root"] && std::fs::read_to_string(self.dir.path().join("outside")).unwrap() == "untouched"
    }
}

fn check(layers: &[Vec<Item>], expected: &[&str]) {
    let (place, result) = Place::unpack(layers, Limits::default());
    result.unwrap();
    assert_eq!(place.list(), expected);
    assert!(place.is_contained());
}

#[test]
fn layers_cover_each_other() {
    check(
        &[vec![directory("d"), file("d/a", "1"), file("d/b", "2"), file("x", "old")], vec![file("x", "new")]],
        &["d/", "d/a 1", "d/b 2", "x new"],
    );
    // A file in the place of a directory, and the other way round.
    check(
        &[vec![directory("d"), file("d/a", "1"), file("e", "2")], vec![file("d", "f"), directory("e")]],
        &["d f", "e/"],
    );
    // Directories that a layer leaves out are made; links on the way are followed.
    check(
        &[vec![directory("usr/lib"), symlink("lib", "usr/lib")], vec![file("lib/x/y", "1")]],
        &["lib -> usr/lib", "usr/", "usr/lib/", "usr/lib/x/", "usr/lib/x/y 1"],
    );
}

#[test]
fn whiteouts_take_lower_files_away() {
    let lower = || vec![directory("d"), file("d/a", "1"), file("d/b", "2"), directory("d/e"), file("d/e/c", "3")];
    check(&[lower(), vec![file("d/.wh.a", ""), file("d/.wh.e", "")]], &["d/", "d/b 2"]);
    check(&[lower(), vec![file("d/.wh.nothing", "")]], &["d/", "d/a 1", "d/b 2", "d/e/", "d/e/c 3"]);
    check(&[lower(), vec![file("d/.wh..wh..opq", ""), file("d/n", "4")]], &["d/", "d/n 4"]);
    // Also if it comes after what the same layer brings, which stays.
    check(
        &[lower(), vec![file("d/e/n", "4"), file("d/.wh..wh..opq", ""), file("d/.wh.e", "")]],
        &["d/", "d/e/", "d/e/n 4"],
    );
    // What has no name takes nothing away.
    check(&[lower(), vec![file("d/.wh...", ""), file(".wh.", "")]], &["d/", "d/a 1", "d/b 2", "d/e/", "d/e/c 3"]);
}

#[test]
fn links_lead_inside() {
    let (place, result) = Place::unpack(
        &[vec![file("a", "1"), hard_link("b", "a"), hard_link("d/c", "/a"), symlink("s", "../../outside")]],
        Limits::default(),
    );
    result.unwrap();
    assert_eq!(place.list(), ["a 1", "b 1", "d/", "d/c 1", "s -> ../../outside"]);
    // A path through a link that leads upwards ends at the root.
    check(&[vec![symlink("up", "../.."), file("up/f", "1")]], &["f 1", "up -> ../.."]);
    // A file in the place of a link replaces the link, not what it leads to.
    check(&[vec![symlink("s", "../outside"), file("s", "1")]], &["s 1"]);
    check(&[vec![symlink("s", "/"), directory("s")]], &["s/"]);
}

#[test]
fn hostile_entries_are_refused() {
    let absolute = |dir: &Place| dir.dir.path().join("outside").display().to_string();
    let (place, _) = Place::unpack(&[], Limits::default());
    let outside = absolute(&place);
    for items in [
        vec![file("../outside", "x")],
        vec![file("a/../../outside", "x")],
        vec![hard_link("h", "../outside")],
        vec![hard_link("h", &outside), file("h", "x")],
        vec![symlink("s", "../outside"), hard_link("h", "s/")],
        vec![directory("d"), hard_link("h", "d")],
        vec![hard_link("h", "")],
        vec![symlink("s", "")],
        vec![symlink("a", "b"), symlink("b", "a"), file("a/f", "x")],
        vec![file("f", "1"), file("f/g", "2")],
    ] {
        let (place, result) = Place::unpack(std::slice::from_ref(&items), Limits::default());
        // A hard link to a link is another name of the link.
        assert!(result.is_err() || place.is_contained(), "{items:?}");
        assert!(place.is_contained(), "{items:?}");
    }
    // An absolute path is one below the root.
    let (place, result) =
        Place::unpack(&[vec![file("/etc/x", "1"), Item::Device("dev/sda".into())]], Limits::default());
    result.unwrap();
    assert_eq!(place.list(), ["dev/", "etc/", "etc/x 1"]);
}

#[test]
fn bombs_are_defused() {
    let limits = Limits { bytes: 1000, entries: 3 };
    let (_, result) = Place::unpack(&[vec![file("a", &"x".repeat(600)), file("b", &"x".repeat(600))]], limits);
    assert!(matches!(result, Err(UnpackError::Limit(_))), "{result:?}");
    let (_, result) =
        Place::unpack(&[vec![directory("a"), directory("b")], vec![directory("c"), directory("d")]], limits);
    assert!(matches!(result, Err(UnpackError::Limit(_))), "{result:?}");
    // Zeros behind the end of the archive, compressed to next to nothing.
    let dir = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::new(&dir.path().join("root"), limits).unwrap();
    let mut bomb = flate2::GzBuilder::new().write(Vec::new(), flate2::Compression::best());
    io::copy(&mut io::repeat(0).take(32 << 20), &mut bomb).unwrap();
    let bomb = bomb.finish().unwrap();
    assert!(matches!(unpacker.layer(&bomb[..], "sha256:"), Err(UnpackError::Limit(_))));
}

#[test]
fn damaged_layers_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::new(&dir.path().join("root"), Limits::default()).unwrap();
    let layer = tar(&[file("a", "1")]);
    assert!(matches!(unpacker.layer(&layer[..], &digest::of(b"x")), Err(UnpackError::Damaged { .. })));
    assert!(matches!(unpacker.layer(&layer[..600], &digest::of(b"x")), Err(UnpackError::Read(_))));
    assert!(matches!(unpacker.layer(&[0x28, 0xb5, 0x2f, 0xfd][..], ""), Err(UnpackError::Read(_))));
}

#[test]
fn layers_may_be_compressed_with_zstd() {
    let dir = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::new(&dir.path().join("root"), Limits::default()).unwrap();
    let layer = tar(&[file("a", "1")]);
    let compressed = ruzstd::encoding::compress_to_vec(&layer[..], ruzstd::encoding::CompressionLevel::Fastest);
    unpacker.layer(&compressed[..], &digest::of(&layer)).unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("root/a")).unwrap(), "1");
}

fn hostile_path() -> impl Strategy<Value = String> {
    let part =
        prop::sample::select(vec!["..", ".", "", "a", "b", "c", "link", "outside", ".wh.a", ".wh..wh..opq", ".wh..."]);
    (any::<bool>(), prop::collection::vec(part, 1..5))
        .prop_map(|(absolute, parts)| format!("{}{}", if absolute { "/" } else { "" }, parts.join("/")))
}

fn hostile_item() -> impl Strategy<Value = Item> {
    prop_oneof![
        (hostile_path(), prop::collection::vec(any::<u8>(), 0..20))
            .prop_map(|(path, content)| { Item::File(path, content.iter().map(|byte| byte % 26 + b'a').collect()) }),
        hostile_path().prop_map(Item::Directory),
        (hostile_path(), hostile_path()).prop_map(|(path, to)| Item::Symlink(path, to)),
        (hostile_path(), hostile_path()).prop_map(|(path, to)| Item::HardLink(path, to)),
        hostile_path().prop_map(Item::Device),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn nothing_is_written_outside(
        layers in prop::collection::vec(prop::collection::vec(hostile_item(), 0..12), 1..4)
    ) {
        let (place, _) = Place::unpack(&layers, Limits::default());
        prop_assert!(place.is_contained());
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..2048)) {
        let dir = tempfile::tempdir().unwrap();
        let mut unpacker = Unpacker::new(&dir.path().join("root"), Limits::default()).unwrap();
        let _ = unpacker.layer(&bytes[..], "sha256:");
    }
}
