//! Where do sealed records stand on disk, and how are they read?
//!
//! Tables of fjall. One keyspace a partition of samples or buckets, so that dropping old content is removing a
//! keyspace; one for series (number to labels), one for seals (number of a series to how far it is sealed), one for
//! marks (how far each kind was derived and dropped). Records come in sorted batches that fjall writes as tables at
//! once, durable when the call returns: its journal and its memory tables stay empty.

use crate::config::Config;
use crate::level::Kind;
use crate::log::{ask, full_or, io, sync_dir};
use crate::record::{Damage, FORMAT, frame, payload};
use crate::space::{Space, Step};
use crate::store::StoreError;
use fjall::{Database, Guard, Keyspace, KeyspaceCreateOptions, KvSeparationOptions, Slice};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

/// Reason why a store does not open.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory was written by another version of the layout; use that version, or another directory.
    #[error("the store has format {found:?}, expected {expected:?}")]
    Version {
        /// Content of the file `format`.
        found: String,
        /// Text that this version writes there.
        expected: String,
    },
    /// Files, and none of them says that they are a store.
    #[error("{0} is not empty and no store")]
    Foreign(PathBuf),
    /// Another process has the store open.
    #[error("another process has the store in {0} open")]
    Locked(PathBuf),
    /// As of any operation.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Mark that is 1 while chunks may be in tables of which no seal speaks.
pub(crate) const WRITING: &str = "writing";

/// Key of a record: series number and first time, so that records of a series stand in the order of their times.
pub(crate) type Key = [u8; 12];

pub(crate) fn key(series: u32, start_ms: i64) -> Key {
    let mut key = [0; 12];
    key[..4].copy_from_slice(&series.to_be_bytes());
    // With the sign flipped, bytes sort as numbers do.
    key[4..].copy_from_slice(&(start_ms ^ i64::MIN).to_be_bytes());
    key
}

pub(crate) fn unkey(key: &[u8]) -> Option<(u32, i64)> {
    let key: &Key = key.try_into().ok()?;
    let series = u32::from_be_bytes(key[..4].try_into().ok()?);
    let start = i64::from_be_bytes(key[4..].try_into().ok()?);
    Some((series, start ^ i64::MIN))
}

/// Row of a table: first time of the record and its frame.
pub(crate) type Row = (i64, Slice);

/// The tables of one store.
pub(crate) struct Tables {
    dir: PathBuf,
    space: Arc<dyn Space>,
    database: Database,
    series: Keyspace,
    seals: Keyspace,
    marks: Keyspace,
    partitions: RwLock<BTreeMap<(Kind, i64), Keyspace>>,
}

/// Content of the file `format` of this version.
pub(crate) fn format_text() -> String {
    format!("sheaf-sample-store {FORMAT}\n")
}

impl Tables {
    /// Opens the tables in `dir`, which is made if it is not there.
    pub(crate) fn open(
        dir: &Path,
        config: &Config,
        space: Arc<dyn Space>,
    ) -> Result<Self, OpenError> {
        check_format(dir)?;
        let folder = dir.join("tables");
        ensure_journal(&folder)?;
        let database = Database::builder(folder)
            .cache_size(config.cache_bytes)
            .worker_threads(1)
            .max_journaling_size(64 << 20)
            .open()
            .map_err(|error| match error {
                fjall::Error::Locked => OpenError::Locked(dir.to_owned()),
                error => OpenError::Store(error.into()),
            })?;
        let keyspace = |name: &str| database.keyspace(name, KeyspaceCreateOptions::default);
        let series = keyspace("series").map_err(StoreError::from)?;
        let seals = keyspace("seals").map_err(StoreError::from)?;
        let marks = keyspace("marks").map_err(StoreError::from)?;
        let tables = Self {
            dir: dir.to_owned(),
            space,
            series,
            seals,
            marks,
            partitions: RwLock::default(),
            database,
        };
        for name in tables.database.list_keyspace_names() {
            let parsed = name.rsplit_once('.').and_then(|(kind, number)| {
                let kind = Kind::ALL.into_iter().find(|one| one.name() == kind)?;
                Some((kind, number.parse().ok()?))
            });
            if let Some((kind, number)) = parsed {
                tables.partition(kind, number)?;
            }
        }
        Ok(tables)
    }

    /// Directory of the store.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    fn partition(&self, kind: Kind, number: i64) -> Result<Keyspace, StoreError> {
        let mut partitions = self.partitions.write().expect("no panic while it is held");
        if let Some(keyspace) = partitions.get(&(kind, number)) {
            return Ok(keyspace.clone());
        }
        let options = || {
            let options = KeyspaceCreateOptions::default();
            // Chunks are written once: with values apart, compaction moves keys alone.
            let apart = KvSeparationOptions::default().separation_threshold(1024);
            options.with_kv_separation((kind == Kind::Raw).then_some(apart))
        };
        let name = format!("{}.{number}", kind.name());
        let keyspace = self.database.keyspace(&name, options)?;
        partitions.insert((kind, number), keyspace.clone());
        Ok(keyspace)
    }

    fn existing(&self, kind: Kind, number: i64) -> Option<Keyspace> {
        let partitions = self.partitions.read().expect("no panic while it is held");
        partitions.get(&(kind, number)).cloned()
    }

    /// Numbers of the partitions of `kind`.
    pub(crate) fn partitions(&self, kind: Kind) -> BTreeSet<i64> {
        let partitions = self.partitions.read().expect("no panic while it is held");
        partitions
            .keys()
            .filter(|key| key.0 == kind)
            .map(|key| key.1)
            .collect()
    }

    /// Removes a partition with all its content. Queries that read it go on.
    pub(crate) fn drop_partition(&self, kind: Kind, number: i64) -> Result<(), StoreError> {
        let mut partitions = self.partitions.write().expect("no panic while it is held");
        if partitions.contains_key(&(kind, number)) {
            let name = format!("{}.{number}", kind.name());
            ask(&*self.space, Step::TableRemove(&name), &self.dir)?;
        }
        if let Some(keyspace) = partitions.remove(&(kind, number)) {
            self.database.delete_keyspace(keyspace)?;
        }
        Ok(())
    }

    /// Writes records of `kind` in the order of series and time; durable when it returns.
    pub(crate) fn put<B: AsRef<[u8]>>(
        &self,
        kind: Kind,
        rows: impl Iterator<Item = (u32, i64, B)>,
    ) -> Result<(), StoreError> {
        let mut by_partition: BTreeMap<i64, Vec<(u32, i64, B)>> = BTreeMap::new();
        for row in rows {
            let rows = by_partition.entry(kind.partition(row.1)).or_default();
            rows.push(row);
        }
        for (number, rows) in by_partition {
            let keyspace = self.partition(kind, number)?;
            let rows = rows
                .iter()
                .map(|(series, start_ms, frame)| (key(*series, *start_ms), frame.as_ref()));
            self.ingest(&keyspace, rows)?;
        }
        Ok(())
    }

    /// The record of `kind` that begins at `start_ms`.
    pub(crate) fn get(
        &self,
        kind: Kind,
        series: u32,
        start_ms: i64,
    ) -> Result<Option<Slice>, StoreError> {
        match self.existing(kind, kind.partition(start_ms)) {
            Some(keyspace) => Ok(keyspace.get(key(series, start_ms))?),
            None => Ok(None),
        }
    }

    /// The latest record of `kind` that begins at `at_ms` or before it, in the partition of `at_ms`.
    pub(crate) fn before(
        &self,
        kind: Kind,
        series: u32,
        at_ms: i64,
    ) -> Result<Option<Row>, StoreError> {
        let number = kind.partition(at_ms);
        let Some(keyspace) = self.existing(kind, number) else {
            return Ok(None);
        };
        let begin = key(series, number * kind.partition_ms());
        let last = keyspace.range(begin..=key(series, at_ms)).next_back();
        last.map(row).transpose()
    }

    /// Records of `kind` that begin within `starts`, which lie in one partition.
    pub(crate) fn range(
        &self,
        kind: Kind,
        series: u32,
        starts: RangeInclusive<i64>,
    ) -> Result<Vec<Row>, StoreError> {
        match self.existing(kind, kind.partition(*starts.start())) {
            Some(keyspace) => keyspace
                .range(key(series, *starts.start())..=key(series, *starts.end()))
                .map(row)
                .collect(),
            None => Ok(Vec::new()),
        }
    }

    /// All records of a partition: key and frame.
    pub(crate) fn scan(&self, kind: Kind, number: i64) -> Option<fjall::Iter> {
        self.existing(kind, number).map(|keyspace| keyspace.iter())
    }

    /// Writes records of series: number and payload, ascending.
    pub(crate) fn put_series<B: AsRef<[u8]>>(
        &self,
        rows: impl Iterator<Item = (u32, B)>,
    ) -> Result<(), StoreError> {
        self.put_numbered(&self.series, rows)
    }

    /// Writes how far series are sealed, ascending.
    pub(crate) fn put_seals<B: AsRef<[u8]>>(
        &self,
        rows: impl Iterator<Item = (u32, B)>,
    ) -> Result<(), StoreError> {
        self.put_numbered(&self.seals, rows)
    }

    /// Gives each record of a series to `each`: number, and payload or damage.
    pub(crate) fn series(
        &self,
        each: impl FnMut(u32, Result<&[u8], Damage>),
    ) -> Result<(), StoreError> {
        each_numbered(&self.series, each)
    }

    /// Gives each seal to `each`: number of the series, and payload or damage.
    pub(crate) fn seals(
        &self,
        each: impl FnMut(u32, Result<&[u8], Damage>),
    ) -> Result<(), StoreError> {
        each_numbered(&self.seals, each)
    }

    /// Writes a mark.
    pub(crate) fn put_mark(&self, name: &str, value: i64) -> Result<(), StoreError> {
        let record = frame(name.as_bytes(), &value.to_le_bytes());
        self.ingest(&self.marks, std::iter::once((name, &record[..])))
    }

    /// Reads a mark.
    pub(crate) fn mark(&self, name: &str) -> Result<Option<i64>, StoreError> {
        let Some(record) = self.marks.get(name)? else {
            return Ok(None);
        };
        let bytes = payload(name.as_bytes(), &record).and_then(|bytes| {
            bytes
                .try_into()
                .map_err(|_| Damage("its length is another"))
        });
        match bytes {
            Ok(bytes) => Ok(Some(i64::from_le_bytes(bytes))),
            Err(damage) => Err(damaged("marks", name, damage)),
        }
    }

    fn put_numbered<B: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        rows: impl Iterator<Item = (u32, B)>,
    ) -> Result<(), StoreError> {
        let rows = rows.map(|(number, payload)| {
            let key = number.to_be_bytes();
            (key, frame(&key, payload.as_ref()))
        });
        self.ingest(keyspace, rows)
    }

    fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        rows: impl Iterator<Item = (K, V)>,
    ) -> Result<(), StoreError> {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        ask(&*self.space, Step::Tables(keyspace.name()), &self.dir)?;
        let mut ingestion = keyspace.start_ingestion()?;
        for (key, value) in rows {
            ingestion.write(key.as_ref(), value.as_ref())?;
        }
        Ok(ingestion.finish()?)
    }

    /// Bytes of all tables.
    pub(crate) fn bytes(&self) -> u64 {
        let partitions = self.partitions.read().expect("no panic while it is held");
        let fixed = [&self.series, &self.seals, &self.marks];
        let all = fixed.into_iter().chain(partitions.values());
        all.map(Keyspace::disk_space).sum()
    }

    /// Merges all tables of each keyspace into one.
    pub(crate) fn compact(&self) -> Result<(), StoreError> {
        let partitions = self.partitions.read().expect("no panic while it is held");
        let fixed = [&self.series, &self.seals, &self.marks];
        for keyspace in fixed.into_iter().chain(partitions.values()) {
            keyspace.major_compact()?;
        }
        Ok(())
    }
}

fn each_numbered(
    keyspace: &Keyspace,
    mut each: impl FnMut(u32, Result<&[u8], Damage>),
) -> Result<(), StoreError> {
    for guard in keyspace.iter() {
        let (key, record) = guard.into_inner()?;
        if let Ok(number) = (*key).try_into() {
            each(u32::from_be_bytes(number), payload(&key, &record));
        }
    }
    Ok(())
}

fn row(guard: Guard) -> Result<Row, StoreError> {
    let (key, record) = guard.into_inner()?;
    let Some((_, start_ms)) = unkey(&key) else {
        let damage = Damage("its key has another length");
        return Err(damaged("a table", &format!("{key:?}"), damage));
    };
    Ok((start_ms, record))
}

pub(crate) fn damaged(table: &str, key: &str, damage: Damage) -> StoreError {
    StoreError::Damaged {
        place: format!("record {key} of {table}"),
        what: damage.0.to_owned(),
    }
}

/// Puts an empty journal where a copy of the tables came without one: fjall 3.1 finds its numbers of versions only if
/// there is a journal, and would take what is written later for older.
fn ensure_journal(folder: &Path) -> Result<(), StoreError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io("read", folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.map_err(io("read", folder))?.file_name());
    }
    let is_journal = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".jnl");
    if names.is_empty() || names.iter().any(is_journal) {
        return Ok(());
    }
    let path = folder.join("0.jnl");
    std::fs::File::create_new(&path).map_err(io("create", &path))?;
    sync_dir(folder)
}

fn check_format(dir: &Path) -> Result<(), OpenError> {
    let (path, expected) = (dir.join("format"), format_text());
    match std::fs::read(&path) {
        Ok(found) if found == expected.as_bytes() => return Ok(()),
        Ok(found) => {
            let found = String::from_utf8_lossy(&found[..found.len().min(80)]).into_owned();
            return Err(OpenError::Version { found, expected });
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(OpenError::Store(io("read", &path)(error))),
    }
    std::fs::create_dir_all(dir).map_err(io("create", dir))?;
    let mut entries = std::fs::read_dir(dir).map_err(io("read", dir))?;
    // A store whose first start died within this function has the draft alone.
    if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "format.new")) {
        return Err(OpenError::Foreign(dir.to_owned()));
    }
    let draft = dir.join("format.new");
    let written = std::fs::File::create(&draft).and_then(|mut file| {
        file.write_all(expected.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| full_or(error, &draft))?;
    std::fs::rename(&draft, &path).map_err(io("rename", &draft))?;
    Ok(sync_dir(dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::FileSystem;

    fn disk() -> Arc<dyn Space> {
        Arc::new(FileSystem)
    }

    #[test]
    fn keys_sort_as_series_and_times_do() {
        let times = [i64::MIN, -5, 0, 7, i64::MAX];
        let keys: Vec<Key> = (0..3)
            .flat_map(|series| times.map(|at| key(series, at)))
            .collect();
        assert!(keys.is_sorted());
        assert_eq!(unkey(&key(7, -5)), Some((7, -5)));
        assert_eq!(unkey(b"short"), None);
    }

    #[test]
    fn records_survive_and_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default();
        let read = |tables: &Tables, at| {
            let row = tables.before(Kind::Raw, 1, at).unwrap();
            row.map(|(start, record)| (start, record.to_vec()))
        };
        {
            let tables = Tables::open(dir.path(), &config, disk()).unwrap();
            let big = vec![7_u8; 2000];
            let rows = [(1, 1000, vec![1]), (1, 5000, big), (2, 1000, vec![3])];
            tables.put(Kind::Raw, rows.into_iter()).unwrap();
            let rows = [(1, 1000, vec![9])];
            tables.put(Kind::Raw, rows.into_iter()).unwrap();
            tables.put_mark("one", 5).unwrap();
            assert_eq!(read(&tables, 1001), Some((1000, vec![9])));
        }
        let tables = Tables::open(dir.path(), &config, disk()).unwrap();
        assert_eq!(read(&tables, 999), None);
        assert_eq!(read(&tables, 4999), Some((1000, vec![9])));
        assert_eq!(read(&tables, 6000), Some((5000, vec![7; 2000])));
        assert_eq!(tables.range(Kind::Raw, 1, 0..=10_000).unwrap().len(), 2);
        assert_eq!(tables.mark("one").unwrap(), Some(5));
        assert_eq!(tables.mark("two").unwrap(), None);
        tables.drop_partition(Kind::Raw, 0).unwrap();
        assert_eq!(read(&tables, 6000), None);
        drop(tables);
        let tables = Tables::open(dir.path(), &config, disk()).unwrap();
        assert!(tables.partitions(Kind::Raw).is_empty());
    }

    #[test]
    fn tables_without_a_journal_keep_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config::default();
        let put = |tables: &Tables, value: u8| {
            let rows = [(1, 1000, vec![value])];
            tables.put(Kind::Minute, rows.into_iter()).unwrap();
        };
        {
            let tables = Tables::open(dir.path(), &config, disk()).unwrap();
            (0..20).for_each(|value| put(&tables, value));
        }
        std::fs::remove_file(dir.path().join("tables/0.jnl")).unwrap();
        let tables = Tables::open(dir.path(), &config, disk()).unwrap();
        put(&tables, 77);
        tables.compact().unwrap();
        let found = tables.get(Kind::Minute, 1, 1000).unwrap();
        assert_eq!(found.as_deref(), Some(&[77][..]));
    }

    #[test]
    fn other_versions_and_foreign_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("format"), "sheaf-sample-store 99\n").unwrap();
        let error = Tables::open(dir.path(), &Config::default(), disk())
            .err()
            .unwrap();
        assert!(matches!(error, OpenError::Version { .. }), "{error}");
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("letter.txt"), "dear").unwrap();
        let error = Tables::open(dir.path(), &Config::default(), disk())
            .err()
            .unwrap();
        assert!(matches!(error, OpenError::Foreign(_)), "{error}");
    }

    #[test]
    fn a_second_process_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Tables::open(dir.path(), &Config::default(), disk()).unwrap();
        let error = Tables::open(dir.path(), &Config::default(), disk())
            .err()
            .unwrap();
        assert!(matches!(error, OpenError::Locked(_)), "{error}");
    }
}
