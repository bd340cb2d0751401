//! Files that were cut, garbled or lost. What a crash can do is repaired and reported; everything else
//! keeps the store from opening, and leaves its files as they are.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use futures::executor::block_on;
use tempfile::TempDir;
use windlass_store::{
    Durable, DurableOptions, Expect, HistoryBudget, OpenError, Range, Recovery, Revision, Store, Value, Write,
};

const OPTIONS: DurableOptions = DurableOptions {
    history: HistoryBudget { bytes: 1 << 20, events: 10_000 },
    segment_bytes: 2_048,
    checkpoint_bytes: 2_048,
};

fn open(dir: &Path) -> Result<(Durable, Recovery), OpenError> {
    Durable::open(dir, OPTIONS)
}

/// Puts under five keys in turn, each with its own revision as the value.
fn write(store: &Durable, revisions: impl IntoIterator<Item = Revision>) {
    for revision in revisions {
        let padding = vec![b'.'; 40];
        let key = format!("key-{}", revision % 5).into();
        let txn = vec![Write::Put { key, expect: Expect::Any, value: Value::splice(padding, 40) }];
        block_on(store.txn(txn)).unwrap();
    }
}

/// Asserts that the store holds what was written up to its revision, and nothing else.
fn assert_whole(store: &Durable) {
    let revision = *store.revision().borrow();
    let snapshot = block_on(store.range(Range::prefix(""), None, 0)).unwrap();
    let found: Vec<_> = snapshot.entries.iter().map(|entry| entry.modified).collect();
    let mut expected: Vec<_> = (revision.saturating_sub(4).max(2)..=revision).collect();
    expected.sort_by_key(|revision| revision % 5);
    assert_eq!(found, expected);
    for entry in &snapshot.entries {
        assert!(entry.value.ends_with(entry.modified.to_string().as_bytes()));
    }
}

/// The files of a store, as they are on disk at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image(BTreeMap<String, Vec<u8>>);

impl Image {
    fn take(dir: &Path) -> Self {
        let files = fs::read_dir(dir).unwrap().map(|file| {
            let file = file.unwrap();
            (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())
        });
        Self(files.filter(|(name, _)| name != "LOCK").collect())
    }

    /// A store that was killed after writing up to `newest`.
    fn killed(newest: Revision) -> Self {
        let dir = TempDir::new().unwrap();
        let (store, _) = open(dir.path()).unwrap();
        write(&store, 2..=newest);
        Self::take(dir.path())
    }

    /// A store that was closed after writing up to `newest`.
    fn closed(newest: Revision) -> Self {
        let dir = TempDir::new().unwrap();
        let (store, _) = open(dir.path()).unwrap();
        write(&store, 2..=newest);
        block_on(store.close()).unwrap();
        Self::take(dir.path())
    }

    /// A store with a snapshot of revision 40, closed at 80.
    fn with_snapshot() -> Self {
        let dir = TempDir::new().unwrap();
        let (store, _) = open(dir.path()).unwrap();
        write(&store, 2..=40);
        block_on(store.compact(40)).unwrap();
        write(&store, 41..=80);
        block_on(store.close()).unwrap();
        let image = Self::take(dir.path());
        assert_eq!(image.names("snapshot-"), ["snapshot-00000000000000000040.snap"]);
        assert!(image.names("log-").len() > 1);
        image
    }

    fn restore(&self) -> TempDir {
        let dir = TempDir::new().unwrap();
        for (name, bytes) in &self.0 {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        dir
    }

    fn names(&self, prefix: &str) -> Vec<&str> {
        self.0.keys().filter(|name| name.starts_with(prefix)).map(String::as_str).collect()
    }

    fn first(&self) -> String {
        self.names("log-")[0].to_owned()
    }

    fn last(&self) -> String {
        self.names("log-").last().unwrap().to_string()
    }

    fn file(&mut self, name: &str) -> &mut Vec<u8> {
        self.0.get_mut(name).unwrap()
    }

    /// Where the frames of a segment begin and end, by the documented format.
    fn frames(&self, name: &str) -> Vec<(usize, usize)> {
        let file = &self.0[name];
        let mut frames = Vec::new();
        let mut at = 32;
        while file.get(at..at + 4) == Some(b"WLFR") {
            let body = u32::from_le_bytes(file[at + 8..at + 12].try_into().unwrap()) as usize;
            let end = at + 32 + body.next_multiple_of(8);
            frames.push((at, end));
            at = end;
        }
        frames
    }

    /// Opens the image, which must work, and gives what was found.
    fn opens(&self) -> Recovery {
        let dir = self.restore();
        let (store, recovery) = open(dir.path()).unwrap();
        assert_whole(&store);
        let next = recovery.revision + 1;
        write(&store, next..next + 3);
        drop(store);
        let (store, again) = open(dir.path()).unwrap();
        assert_eq!((again.revision, again.truncated_bytes), (next + 2, 0), "it goes on as if nothing had been");
        assert_whole(&store);
        recovery
    }

    /// Opens the image, which must be refused, and gives the reason. Nothing may be changed by it.
    fn refused(&self) -> (OpenError, PathBuf) {
        let dir = self.restore();
        let error = open(dir.path()).expect_err("damage is not served");
        assert_eq!(Image::take(dir.path()), *self, "{error}: nothing is changed");
        let again = open(dir.path()).expect_err("nor the second time").to_string();
        assert_eq!(again, error.to_string());
        (error, dir.path().to_owned())
    }

    fn refused_as_corrupt(&self, name: &str, at: usize, context: &str) {
        let (error, dir) = self.refused();
        let OpenError::Corrupt { path, offset, .. } = &error else { panic!("{context}: {error:?}") };
        assert_eq!((path, *offset), (&dir.join(name), at as u64), "{context}: {error}");
        let text = error.to_string();
        assert!(text.contains(name) && text.contains("backup") && text.contains(&format!("byte {at}")), "{text}");
    }

    fn refused_as_missing(&self, name: &str) {
        let (error, dir) = self.refused();
        let OpenError::Missing { path, .. } = &error else { panic!("{error:?}") };
        assert_eq!(path, &dir.join(name), "{error}");
    }
}

/// Bytes to damage: all of a short span, some of a long one.
fn some(from: usize, to: usize) -> impl Iterator<Item = usize> {
    (from..to).step_by(((to - from) / 40).max(1))
}

#[test]
fn a_log_cut_anywhere_is_a_shorter_log() {
    let image = Image::killed(8);
    let name = image.last();
    let frames = image.frames(&name);
    assert_eq!(frames.len(), 7);
    for length in some(32, frames[6].1 + 40) {
        let mut cut = image.clone();
        cut.file(&name).truncate(length);
        let recovery = cut.opens();
        let whole = frames.iter().filter(|frame| frame.1 <= length).count();
        assert_eq!(recovery.revision, 1 + whole as Revision, "cut to {length}");
        let end = frames.iter().map(|frame| frame.1).filter(|end| *end <= length).max().unwrap_or(32);
        let rest = &cut.0[&name][end..];
        let torn = rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1);
        assert_eq!(recovery.truncated_bytes, torn, "cut to {length}");
    }
}

#[test]
fn a_damaged_last_frame_was_being_written() {
    let image = Image::killed(8);
    let name = image.last();
    let (from, to) = image.frames(&name)[6];
    let unpadded = to - 4;
    for at in some(from, unpadded) {
        for damage in [0x01, 0x80, 0xff] {
            let mut garbled = image.clone();
            garbled.file(&name)[at] ^= damage;
            let recovery = garbled.opens();
            assert_eq!(recovery.revision, 7, "byte {at}");
            assert!(recovery.truncated_bytes > 0, "byte {at}");
        }
    }
}

#[test]
fn garbage_after_the_last_frame_is_cut_off() {
    let image = Image::killed(8);
    let name = image.last();
    let end = image.frames(&name)[6].1;
    for length in [1, 8, 31, 100] {
        let mut garbled = image.clone();
        garbled.file(&name)[end..end + length].fill(0xa5);
        let recovery = garbled.opens();
        assert_eq!((recovery.revision, recovery.truncated_bytes), (8, length as u64));
    }
    // Frames of another file, whole as they are, do not belong to this one.
    let mut grafted = image.clone();
    let other = Image::killed(8);
    let frame = other.frames(&other.last())[6];
    let frame = other.0[&other.last()][frame.0..frame.1].to_vec();
    grafted.file(&name)[end..end + frame.len()].copy_from_slice(&frame);
    let recovery = grafted.opens();
    assert_eq!(recovery.revision, 8);
    assert!(recovery.truncated_bytes > 0);
}

#[test]
fn a_damaged_frame_before_a_whole_one_is_refused() {
    let image = Image::killed(8);
    let name = image.last();
    let frames = image.frames(&name);
    for (from, to) in [frames[0], frames[3], frames[5]] {
        for at in some(from, to - 4) {
            let mut garbled = image.clone();
            garbled.file(&name)[at] ^= 0x10;
            garbled.refused_as_corrupt(&name, from, &format!("byte {at}"));
        }
        let mut zeroed = image.clone();
        zeroed.file(&name)[from..to].fill(0);
        zeroed.refused_as_corrupt(&name, from, "zeroed");
    }
}

#[test]
fn after_a_clean_end_the_last_batch_counts() {
    let image = Image::closed(8);
    let name = image.last();
    let frames = image.frames(&name);
    assert_eq!(frames.len(), 8, "seven batches and the end");
    let mut garbled = image.clone();
    garbled.file(&name)[frames[6].0 + 40] ^= 1;
    garbled.refused_as_corrupt(&name, frames[6].0, "the last batch");
}

#[test]
fn damage_in_earlier_segments_is_refused() {
    let image = Image::killed(60);
    let name = image.first();
    assert!(image.names("log-").len() > 2);
    let frames = image.frames(&name);
    let (batch, seal) = (frames[frames.len() - 2], frames[frames.len() - 1]);
    let mut garbled = image.clone();
    garbled.file(&name)[batch.0 + 35] ^= 1;
    garbled.refused_as_corrupt(&name, batch.0, "the seal comes after it");
    let mut cut = image.clone();
    cut.file(&name).truncate(batch.0 + 35);
    cut.refused_as_corrupt(&name, batch.0, "the next segment begins later");
    let mut cut = image.clone();
    cut.file(&name).truncate(batch.0);
    let (error, _) = cut.refused();
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    // The seal alone may be torn: the crash came between beginning a segment and ending the last.
    let mut torn = image.clone();
    torn.file(&name)[seal.0 + 3] ^= 1;
    let recovery = torn.opens();
    assert_eq!(recovery.revision, 60);
    assert!(recovery.truncated_bytes > 0);
    let mut unsealed = image.clone();
    unsealed.file(&name).truncate(seal.0);
    assert_eq!(unsealed.opens().revision, 60);
}

#[test]
fn a_damaged_header_is_refused() {
    for image in [Image::killed(8), Image::closed(60), Image::with_snapshot()] {
        for name in image.0.keys().cloned().collect::<Vec<_>>() {
            for at in (0..8).chain(12..32) {
                let mut garbled = image.clone();
                garbled.file(&name)[at] ^= 0x40;
                garbled.refused_as_corrupt(&name, 0, &format!("byte {at}"));
            }
            let mut newer = image.clone();
            newer.file(&name)[8] = 2;
            let (error, dir) = newer.refused();
            let OpenError::Format { path, found: 2, supported: 1 } = &error else { panic!("{error:?}") };
            assert_eq!(path, &dir.join(&name));
        }
    }
}

#[test]
fn a_missing_segment_is_noticed() {
    for image in [Image::killed(60), Image::closed(60), Image::with_snapshot()] {
        for name in image.names("log-") {
            let mut robbed = image.clone();
            robbed.0.remove(name);
            robbed.refused_as_missing(name);
        }
    }
    let mut robbed = Image::with_snapshot();
    for name in robbed.names("log-").into_iter().map(str::to_owned).collect::<Vec<_>>() {
        robbed.0.remove(&name);
    }
    robbed.refused_as_missing("log-00000000000000000041.log");
}

#[test]
fn a_missing_snapshot_is_noticed() {
    let mut robbed = Image::with_snapshot();
    robbed.0.remove("snapshot-00000000000000000040.snap");
    robbed.refused_as_missing("log-00000000000000000002.log");
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let image = Image::with_snapshot();
    let name = "snapshot-00000000000000000040.snap";
    let length = image.0[name].len();
    assert_eq!(image.opens().revision, 80);
    for at in some(32, length) {
        let mut garbled = image.clone();
        garbled.file(name)[at] ^= 0x04;
        // Padding is the one thing that nothing is read from.
        let dir = garbled.restore();
        let padding = image.frames(name).iter().any(|(from, to)| {
            let body = u32::from_le_bytes(image.0[name][from + 8..from + 12].try_into().unwrap()) as usize;
            (from + 32 + body..*to).contains(&at)
        });
        match open(dir.path()) {
            Ok((store, _)) => {
                assert!(padding, "byte {at}");
                assert_whole(&store);
            }
            Err(OpenError::Corrupt { path, .. }) => assert_eq!(path, dir.path().join(name)),
            Err(other) => panic!("byte {at}: {other:?}"),
        }
    }
    for cut in some(0, length) {
        let mut cut_off = image.clone();
        cut_off.file(name).truncate(cut);
        let (error, dir) = cut_off.refused();
        assert!(matches!(&error, OpenError::Corrupt { path, .. } if *path == dir.join(name)), "{cut}: {error:?}");
    }
    let mut longer = image.clone();
    longer.file(name).extend([0; 8]);
    longer.refused_as_corrupt(name, length, "a longer file");
}

#[test]
fn what_a_crash_leaves_behind_is_removed() {
    let mut image = Image::with_snapshot();
    // A snapshot and a segment that were being made, and a segment that the snapshot has replaced.
    image.0.insert("snapshot-00000000000000000070.tmp".to_owned(), b"half a snap".to_vec());
    image.0.insert("log-00000000000000000081.tmp".to_owned(), vec![0; 100]);
    image.0.insert("log-00000000000000000002.log".to_owned(), b"obsolete".to_vec());
    image.0.insert("notes.txt".to_owned(), b"not ours".to_vec());
    let dir = image.restore();
    let (store, recovery) = open(dir.path()).unwrap();
    assert_eq!((recovery.revision, recovery.snapshot, recovery.compacted), (80, Some(40), 40));
    assert_whole(&store);
    let left = Image::take(dir.path());
    assert!(left.0.keys().all(|name| !name.contains(".tmp")), "{:?}", left.0.keys());
    assert!(!left.0.contains_key("log-00000000000000000002.log"));
    assert!(left.0.contains_key("notes.txt"));
}

/// The crash came after a segment was begun and before anything was written to it. The next one would
/// have the same name.
#[test]
fn compacting_after_an_empty_segment_keeps_what_is_written_next() {
    let mut image = Image::killed(60);
    let name = image.last();
    image.file(&name).truncate(32);
    let dir = image.restore();
    let (store, recovery) = open(dir.path()).unwrap();
    block_on(store.compact(recovery.revision)).unwrap();
    assert_eq!(Image::take(dir.path()).names("snapshot-").len(), 1);
    let next = recovery.revision + 1;
    write(&store, next..next + 10);
    drop(store);
    let (store, again) = open(dir.path()).unwrap();
    assert_eq!(again.revision, next + 9);
    assert_whole(&store);
}
