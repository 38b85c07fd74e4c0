//! How does a batch of samples become durable at once?
//!
//! The head log is a series of files. A commit appends one record, a group: new series, and columns of series numbers,
//! times and values. Numbers of groups rise across files; a file is named after the first group that it may
//! hold, and is removed when all its samples are in tables.
//!
//! Layout of a group, numbers little-endian: mark `SHFG` (4 bytes), length of the body (4), CRC-32C of the body (4),
//! the body: version (1), number of the group (8), count of series (varint), each as number and length (varints) and
//! its labels, count of samples (varint), three columns.

use crate::column::{
    PASSING, put_values, put_varint, put_whole, take_bytes, take_values, take_varint, take_whole,
};
use crate::record::{Damage, FORMAT, checksum};
use crate::space::{Space, Step};
use crate::store::StoreError;
use sheaf_protect::protect;
use sheaf_samples::Labels;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MARK: &[u8; 4] = b"SHFG";
const HEAD_BYTES: usize = 12;
/// A file of the log is followed by another one from this size on.
const FILE_BYTES: u64 = 64 << 20;
/// Most samples of one group; a bound on what a reader allocates.
const SAMPLES_MAX: u64 = 1 << 26;

/// Content of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Group {
    /// Series that are new: numbers and labels.
    pub(crate) series: Vec<(u32, Labels)>,
    pub(crate) ids: Vec<u32>,
    pub(crate) times: Vec<i64>,
    pub(crate) values: Vec<f64>,
}

impl Group {
    pub(crate) fn is_empty(&self) -> bool {
        self.series.is_empty() && self.ids.is_empty()
    }

    fn clear(&mut self) {
        self.series.clear();
        self.ids.clear();
        self.times.clear();
        self.values.clear();
    }
}

fn encode(number: u64, group: &Group, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(MARK);
    out.extend_from_slice(&[0; 8]);
    out.push(FORMAT);
    out.extend_from_slice(&number.to_le_bytes());
    put_varint(out, group.series.len() as u64);
    for (id, labels) in &group.series {
        put_varint(out, u64::from(*id));
        put_varint(out, labels.as_bytes().len() as u64);
        out.extend_from_slice(labels.as_bytes());
    }
    put_varint(out, group.ids.len() as u64);
    let ids: Vec<i64> = group.ids.iter().map(|&id| i64::from(id)).collect();
    put_whole(out, &ids, PASSING);
    put_whole(out, &group.times, PASSING);
    put_values(out, &group.values, PASSING);
    let body = u32::try_from(out.len() - HEAD_BYTES).expect("a group is bounded far below 4 GiB");
    let sum = checksum(&[&out[HEAD_BYTES..]]);
    out[4..8].copy_from_slice(&body.to_le_bytes());
    out[8..12].copy_from_slice(&sum.to_le_bytes());
}

fn decode(body: &[u8]) -> Result<(u64, Group), Damage> {
    let rest = &mut &body[..];
    if take_bytes(rest, 1)? != [FORMAT] {
        return Err(Damage("its version is another"));
    }
    let number = u64::from_le_bytes(take_bytes(rest, 8)?.try_into().expect("8 bytes were taken"));
    let mut group = Group::default();
    for _ in 0..take_varint(rest)? {
        let id = u32::try_from(take_varint(rest)?).map_err(|_| Damage("a series number"))?;
        let length = usize::try_from(take_varint(rest)?).map_err(|_| Damage("a length"))?;
        let labels = Labels::from_bytes(take_bytes(rest, length)?);
        let labels = labels.map_err(|_| Damage("labels of a series"))?;
        group.series.push((id, labels));
    }
    let count = take_varint(rest)?;
    if count > SAMPLES_MAX {
        return Err(Damage("a wrong number of samples"));
    }
    let count = usize::try_from(count).map_err(|_| Damage("a wrong number of samples"))?;
    let ids = take_whole(rest, count)?.into_iter().map(u32::try_from);
    group.ids = ids
        .collect::<Result<_, _>>()
        .map_err(|_| Damage("a series number"))?;
    group.times = take_whole(rest, count)?;
    group.values = take_values(rest, count)?;
    if !rest.is_empty() {
        return Err(Damage("bytes behind its columns"));
    }
    Ok((number, group))
}

/// Finds the next whole group in `bytes` at or behind `at`: where it begins, where it ends, number and content.
fn next_group(bytes: &[u8], mut at: usize) -> Option<(usize, usize, u64, Group)> {
    while at + HEAD_BYTES <= bytes.len() {
        let head = &bytes[at..at + HEAD_BYTES];
        if head[..4] == *MARK {
            let number = |at: usize| {
                let bytes = head[at..at + 4].try_into().expect("4 bytes");
                usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
            };
            let begin = at + HEAD_BYTES;
            let body = begin
                .checked_add(number(4))
                .and_then(|end| bytes.get(begin..end));
            if let Some(body) = body
                && usize::try_from(checksum(&[body])) == Ok(number(8))
                && let Ok((group_number, group)) = decode(body)
            {
                return Some((at, begin + body.len(), group_number, group));
            }
        }
        at += 1;
    }
    None
}

/// The head log of a store.
pub(crate) struct Log {
    dir: PathBuf,
    space: Arc<dyn Space>,
    /// Files by the number of the first group that they may hold, and their lengths; the last one is written to.
    files: BTreeMap<u64, u64>,
    file: File,
    /// Number of the next group.
    next: u64,
    /// A group that a full disk refused; it goes first.
    retry: Option<Group>,
    bytes: Vec<u8>,
}

/// Findings of reading a log, beside the groups.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Replayed {
    pub(crate) groups: u64,
    pub(crate) bytes_damaged: u64,
}

impl Log {
    /// Reads all groups in `dir`, oldest first, into `each`, cuts an end that was not written to its end, and begins a
    /// new file. `at_least` is a lower bound of the next number.
    pub(crate) fn open(
        dir: &Path,
        space: Arc<dyn Space>,
        at_least: u64,
        mut each: impl FnMut(u64, Group),
    ) -> Result<(Self, Replayed), StoreError> {
        std::fs::create_dir_all(dir).map_err(io("create", dir))?;
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(dir).map_err(io("read", dir))? {
            let name = entry.map_err(io("read", dir))?.file_name();
            let first = name.to_str().and_then(|name| name.strip_suffix(".log"));
            if let Some(Ok(first)) = first.map(|first| u64::from_str_radix(first, 16)) {
                files.insert(first, 0);
            }
        }
        let mut replayed = Replayed::default();
        let mut next = at_least.max(1);
        let newest = files.last_key_value().map(|pair| *pair.0);
        for (&first, length) in &mut files {
            let path = path(dir, first);
            let bytes = std::fs::read(&path).map_err(io("read", &path))?;
            let mut end = 0;
            while let Some((begin, after, number, group)) = next_group(&bytes, end) {
                replayed.bytes_damaged += (begin - end) as u64;
                replayed.groups += 1;
                next = next.max(number + 1);
                each(number, group);
                end = after;
            }
            if Some(first) == newest && end > 0 {
                // A process that died may have written its last group and not synced it, or its sync may have failed:
                // then Linux calls the pages clean. What queries show from now on has to stay, so it is written again.
                let file = OpenOptions::new().write(true).open(&path);
                let file = file.map_err(io("open", &path))?;
                rewrite(&*space, &file, &path, &bytes[..end])
                    .map_err(|error| full_or(error, &path))?;
            }
            *length = bytes.len() as u64;
            if end < bytes.len() && Some(first) == newest {
                // A group that was being written when the machine or the process died.
                let cut = Step::LogCut {
                    file: &path,
                    length: end as u64,
                };
                ask(&*space, cut, &path)?;
                let file = OpenOptions::new().write(true).open(&path);
                let file = file.map_err(io("open", &path))?;
                file.set_len(end as u64).map_err(io("cut", &path))?;
                file.sync_all().map_err(io("sync", &path))?;
                *length = end as u64;
            } else {
                replayed.bytes_damaged += (bytes.len() - end) as u64;
            }
        }
        if let Some((&first, &length)) = files.last_key_value()
            && length > 0
        {
            // A file of which nothing could be read keeps its name.
            next = next.max(first + 1);
        }
        let file = begin(dir, next, &*space)?;
        files.entry(next).or_insert(0);
        let log = Self {
            dir: dir.to_owned(),
            space,
            files,
            file,
            next,
            retry: None,
            bytes: Vec::new(),
        };
        Ok((log, replayed))
    }

    /// Number of the next group; those below it are durable.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.files.values().sum()
    }

    /// Samples of the group that waits.
    pub(crate) fn stuck_samples(&self) -> usize {
        self.retry.as_ref().map_or(0, |group| group.ids.len())
    }

    /// Writes the group that waits, if there is one, and then `group`, which is empty afterwards.
    ///
    /// On an error both wait, and the files end where they did.
    pub(crate) fn commit(&mut self, group: &mut Group) -> Result<(), StoreError> {
        if let Some(waiting) = self.retry.take()
            && let Err(error) = self.write(&waiting)
        {
            self.retry = Some(join(waiting, std::mem::take(group)));
            return Err(error);
        }
        if group.is_empty() {
            return Ok(());
        }
        match self.write(group) {
            Ok(()) => {
                group.clear();
                Ok(())
            }
            Err(error) => {
                self.retry = Some(std::mem::take(group));
                protect!(RefusedGroupWaits, else self.retry = None);
                Err(error)
            }
        }
    }

    fn write(&mut self, group: &Group) -> Result<(), StoreError> {
        let (&first, &length) = self.files.last_key_value().expect("one file at least");
        encode(self.next, group, &mut self.bytes);
        let path = path(&self.dir, first);
        let (file, space) = (&path, &self.space);
        let written = space
            .before(Step::LogWrite { file, length })
            .and_then(|()| self.file.write_all_at(&self.bytes, length))
            .and_then(|()| protect!(CommitSync, self.sync(file), else Ok(())));
        if let Err(error) = written {
            // Half a group would be cut at the next start; cut it now, so that the next commit stands in its place.
            let cut = space
                .before(Step::LogCut { file, length })
                .and_then(|()| self.file.set_len(length))
                .and_then(|()| self.file.sync_all());
            cut.map_err(io("cut", &path))?;
            return Err(full_or(error, &path));
        }
        self.next += 1;
        let length = length + self.bytes.len() as u64;
        self.files.insert(first, length);
        self.rotate(FILE_BYTES);
        Ok(())
    }

    fn sync(&self, path: &Path) -> std::io::Result<()> {
        self.space.before(Step::LogSync(path))?;
        self.file.sync_data()
    }

    /// Goes on in a new file if the last one has `bytes` or more, so that the last one can be removed in time.
    pub(crate) fn rotate(&mut self, bytes: u64) {
        let (&first, &length) = self.files.last_key_value().expect("one file at least");
        if length < bytes || self.next <= first {
            return;
        }
        // Groups are durable whether or not there is room for a new file.
        if let Ok(file) = begin(&self.dir, self.next, &*self.space) {
            self.file = file;
            self.files.insert(self.next, 0);
        }
    }

    /// Removes files whose groups are all below `group`.
    pub(crate) fn drop_below(&mut self, group: u64) -> Result<(), StoreError> {
        loop {
            let mut firsts = self.files.keys();
            let (Some(&first), Some(&second)) = (firsts.next(), firsts.next()) else {
                return Ok(());
            };
            if second > group {
                return Ok(());
            }
            let path = path(&self.dir, first);
            ask(&*self.space, Step::LogRemove(&path), &path)?;
            std::fs::remove_file(&path).map_err(io("remove", &path))?;
            self.files.remove(&first);
        }
    }

    /// Copies the log to `to`: files that will not change any more by hard link where the disk can.
    pub(crate) fn copy(&self, to: &Path) -> Result<(), StoreError> {
        std::fs::create_dir_all(to).map_err(io("create", to))?;
        let last = *self.files.last_key_value().expect("one file at least").0;
        for (&first, &length) in &self.files {
            let (from, into) = (path(&self.dir, first), path(to, first));
            if first != last && std::fs::hard_link(&from, &into).is_ok() {
                continue;
            }
            let bytes = std::fs::read(&from).map_err(io("read", &from))?;
            let length = usize::try_from(length)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let mut file = File::create_new(&into).map_err(io("create", &into))?;
            file.write_all(&bytes[..length])
                .and_then(|()| file.sync_all())
                .map_err(io("write", &into))?;
        }
        sync_dir(to)
    }

    /// Reads all files again and counts bytes that are no groups.
    pub(crate) fn verify(&self) -> Result<Replayed, StoreError> {
        let mut replayed = Replayed::default();
        for &first in self.files.keys() {
            let path = path(&self.dir, first);
            let bytes = std::fs::read(&path).map_err(io("read", &path))?;
            let mut end = 0;
            while let Some((begin, after, _, _)) = next_group(&bytes, end) {
                replayed.bytes_damaged += (begin - end) as u64;
                replayed.groups += 1;
                end = after;
            }
            replayed.bytes_damaged += (bytes.len() - end) as u64;
        }
        Ok(replayed)
    }
}

fn join(mut first: Group, mut second: Group) -> Group {
    first.series.append(&mut second.series);
    first.ids.append(&mut second.ids);
    first.times.append(&mut second.times);
    first.values.append(&mut second.values);
    first
}

fn path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:016x}.log"))
}

/// Writes and syncs the first bytes of a file of the log, which are there already.
fn rewrite(space: &dyn Space, file: &File, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let write = Step::LogWrite {
        file: path,
        length: 0,
    };
    space.before(write)?;
    file.write_all_at(bytes, 0)?;
    space.before(Step::LogSync(path))?;
    file.sync_data()
}

/// Asks the disk for a step.
pub(crate) fn ask(space: &dyn Space, step: Step<'_>, path: &Path) -> Result<(), StoreError> {
    space.before(step).map_err(|error| full_or(error, path))
}

fn begin(dir: &Path, first: u64, space: &dyn Space) -> Result<File, StoreError> {
    let path = path(dir, first);
    ask(space, Step::LogBegin(&path), &path)?;
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path);
    let file = file.map_err(|error| full_or(error, &path))?;
    sync_dir(dir)?;
    Ok(file)
}

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    let synced = File::open(dir).and_then(|file| file.sync_all());
    synced.map_err(io("sync", dir))
}

/// Turns errors of a full disk, a quota or a limit of file sizes into [`StoreError::Full`].
pub(crate) fn full_or(error: std::io::Error, path: &Path) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            StoreError::Full {
                free: 0,
                reserve: 1,
            }
        }
        _ => io("write", path)(error),
    }
}

pub(crate) fn io(what: &'static str, path: &Path) -> impl Fn(std::io::Error) -> StoreError {
    let what = format!("{what} {}", path.display());
    move |source| StoreError::Io {
        what: what.clone(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::FileSystem;

    fn disk() -> Arc<dyn Space> {
        Arc::new(FileSystem)
    }

    fn group(from: u32) -> Group {
        let ids: Vec<u32> = (from..from + 100).map(|id| id * 7 % 50).collect();
        Group {
            series: vec![(from, Labels::new([("id", from.to_string())]).unwrap())],
            times: ids.iter().map(|&id| i64::from(id) * 1000).collect(),
            values: ids.iter().map(|&id| f64::from(id) / 3.0).collect(),
            ids,
        }
    }

    fn read(dir: &Path) -> (Vec<(u64, Group)>, Replayed, u64) {
        let mut groups = Vec::new();
        let (log, replayed) =
            Log::open(dir, disk(), 0, |number, group| groups.push((number, group))).unwrap();
        (groups, replayed, log.next())
    }

    fn written(dir: &Path) -> Vec<(u64, Group)> {
        let (mut log, _) = Log::open(dir, disk(), 0, |_, _| unreachable!("empty")).unwrap();
        for from in 0..5 {
            log.commit(&mut group(from)).unwrap();
        }
        (0..5)
            .map(|from| (u64::from(from) + 1, group(from)))
            .collect()
    }

    fn the_file(dir: &Path) -> PathBuf {
        path(dir, 1)
    }

    #[test]
    fn groups_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let expected = written(dir.path());
        let (groups, replayed, next) = read(dir.path());
        assert_eq!(groups, expected);
        assert_eq!((replayed.groups, replayed.bytes_damaged, next), (5, 0, 6));
    }

    #[test]
    fn an_end_cut_anywhere_costs_the_last_group_alone() {
        let dir = tempfile::tempdir().unwrap();
        let expected = written(dir.path());
        let bytes = std::fs::read(the_file(dir.path())).unwrap();
        let (fourth_end, _) = {
            let mut end = 0;
            for _ in 0..4 {
                end = next_group(&bytes, end).unwrap().1;
            }
            (end, ())
        };
        for length in fourth_end..bytes.len() {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(the_file(dir.path()), &bytes[..length]).unwrap();
            let (groups, replayed, _) = read(dir.path());
            assert_eq!(groups, expected[..4], "cut to {length} bytes");
            assert_eq!(replayed.bytes_damaged, 0);
            let left = std::fs::metadata(the_file(dir.path())).unwrap().len();
            assert_eq!(left, fourth_end as u64);
        }
    }

    #[test]
    fn damage_in_the_middle_is_counted_and_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let expected = written(dir.path());
        let mut bytes = std::fs::read(the_file(dir.path())).unwrap();
        let second = next_group(&bytes, 0).unwrap().1;
        let length = next_group(&bytes, second).unwrap().1 - second;
        bytes[second + 40] ^= 4;
        std::fs::write(the_file(dir.path()), &bytes).unwrap();
        let (groups, replayed, _) = read(dir.path());
        assert_eq!(groups[0], expected[0]);
        assert_eq!(groups[1..], expected[2..]);
        assert_eq!(replayed.bytes_damaged, length as u64);
    }

    #[test]
    fn files_below_a_group_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path());
        let (mut log, _) = Log::open(dir.path(), disk(), 0, |_, _| {}).unwrap();
        log.drop_below(5).unwrap();
        assert!(the_file(dir.path()).exists(), "group 5 is in it");
        log.drop_below(6).unwrap();
        assert!(!the_file(dir.path()).exists());
        assert_eq!(log.bytes(), 0);
    }
}
