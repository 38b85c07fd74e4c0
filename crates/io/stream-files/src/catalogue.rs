//! Catalogue of the files of a writer: an SQLite database that other programs read while it is written.
//!
//! A file has a row from before its first byte. While it is open the row has the beginning of the file that was durable
//! at the last sync, with its checksums, so that a restart need not read it again. Layout:
//! `docs/reference/stream-files.md`.

mod rows;

pub use rows::{FileRow, FileState};
pub(crate) use rows::{Settled, row_of};

use crate::ship_state::{self, ShipState};
use rows::{SHIPPED, close, insert, read_into, remove, signed};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};
use sheaf_write::Sums;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Version of the tables, in SQLite's `user_version`. Version 1 had no shipments; a writer adds them.
const VERSION: i32 = 2;
const VERSION_WITHOUT_SHIPMENTS: i32 = 1;
/// Mark of our databases, in SQLite's `application_id`: "SHWR".
const APPLICATION: i32 = 0x5348_5752;
/// How long programs wait for another that holds the database.
const BUSY: Duration = Duration::from_secs(5);
/// How long a writer of files does: then it tells that it cannot write, and tries again.
const WRITER_BUSY: Duration = Duration::from_millis(100);

const TABLES: &str = "
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL,
    run INTEGER NOT NULL,
    stream TEXT NOT NULL,
    block INTEGER NOT NULL,
    node TEXT NOT NULL,
    seq INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('open', 'closed', 'recovered')),
    opened_ns INTEGER NOT NULL,
    closed_ns INTEGER,
    records INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    adler32 INTEGER NOT NULL,
    crc32c INTEGER,
    xxh3 INTEGER
) STRICT;
CREATE INDEX files_state ON files (state) WHERE state = 'open';
CREATE INDEX files_place ON files (run, stream, block);
";

/// Name of the database in a folder.
const FILE: &str = "catalogue.sqlite";

/// Why the catalogue cannot be used.
#[derive(Debug, Error)]
pub enum CatalogueError {
    /// The database is of another program or of another version.
    #[error("{} is a database of {found}, expected a catalogue of version {VERSION}", path.display())]
    Foreign {
        /// The database.
        path: PathBuf,
        /// Marks found.
        found: String,
    },
    /// SQLite fails: the disk, a damaged file, or a lock that another process keeps.
    #[error("the catalogue {}: {source}", path.display())]
    Sqlite {
        /// The database.
        path: PathBuf,
        /// Error of SQLite.
        source: rusqlite::Error,
    },
}

/// Catalogue of the files in one folder.
pub struct Catalogue {
    path: PathBuf,
    connection: Connection,
}

impl fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Catalogue").field(&self.path).finish()
    }
}

/// Lock that keeps writers of a catalogue waiting while it lives, as a program does that forgets a transaction. For
/// experiments.
#[derive(Debug)]
pub struct CatalogueLock {
    _catalogue: Catalogue,
}

impl CatalogueLock {
    /// Takes the lock of the catalogue of `folder`.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if there is no catalogue, or another program keeps it locked for long.
    pub fn take(folder: &Path) -> Result<Self, CatalogueError> {
        let catalogue = Catalogue::open_existing(folder)?;
        catalogue.run(|connection| connection.execute_batch("BEGIN IMMEDIATE"))?;
        Ok(Self {
            _catalogue: catalogue,
        })
    }
}

impl Catalogue {
    /// Opens the catalogue of `folder`, and makes it if there is none.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if it is of another version or cannot be written.
    pub fn open(folder: &Path) -> Result<Self, CatalogueError> {
        let path = folder.join(FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let catalogue = Self::connect(path, flags)?;
        let (version, application) = catalogue.marks()?;
        let tables = catalogue.run(|connection| {
            connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
                row.get::<_, i64>(0)
            })
        })?;
        let is_new = tables == 0 && version == 0;
        if !is_new {
            catalogue.check_marks(version, application)?;
        }
        catalogue.run(|connection| {
            // Readers do not wait for the writer, nor it for them; a commit is on the disk when it returns.
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "FULL")
        })?;
        if is_new {
            catalogue.make_tables()?;
        } else if version == VERSION_WITHOUT_SHIPMENTS {
            catalogue.run(|connection| {
                connection.execute_batch(&format!(
                    "BEGIN; {} PRAGMA user_version = {VERSION}; COMMIT;",
                    ship_state::TABLE
                ))
            })?;
        }
        Ok(catalogue)
    }

    /// Opens the catalogue of `folder` as its writer, which has no time to wait for others.
    pub(crate) fn open_as_writer(folder: &Path) -> Result<Self, CatalogueError> {
        let catalogue = Self::open(folder)?;
        catalogue.run(|connection| connection.busy_timeout(WRITER_BUSY))?;
        Ok(catalogue)
    }

    /// Opens the catalogue of `folder` as a program beside its writer; there must be one.
    pub(crate) fn open_existing(folder: &Path) -> Result<Self, CatalogueError> {
        // Not made where there is none, which a mistyped folder has.
        drop(Self::read(folder)?);
        Self::open(folder)
    }

    /// Opens a new catalogue in memory, for simulations.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if SQLite fails.
    pub fn in_memory() -> Result<Self, CatalogueError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let catalogue = Self::connect(PathBuf::from(":memory:"), flags)?;
        catalogue.make_tables()?;
        Ok(catalogue)
    }

    fn make_tables(&self) -> Result<(), CatalogueError> {
        self.run(|connection| {
            connection.execute_batch(&format!(
                "BEGIN; {TABLES} {} PRAGMA user_version = {VERSION}; \
                 PRAGMA application_id = {APPLICATION}; COMMIT;",
                ship_state::TABLE
            ))
        })
    }

    /// Opens the catalogue of `folder` for reading, while a writer may have it.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if there is none, or it is of another version.
    pub fn read(folder: &Path) -> Result<Self, CatalogueError> {
        let path = folder.join(FILE);
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let catalogue = Self::connect(path, flags)?;
        let (version, application) = catalogue.marks()?;
        catalogue.check_marks(version, application)?;
        Ok(catalogue)
    }

    fn connect(path: PathBuf, flags: OpenFlags) -> Result<Self, CatalogueError> {
        let opened = Connection::open_with_flags(&path, flags);
        let opened = opened.and_then(|connection| {
            connection.busy_timeout(BUSY)?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => Ok(Self { path, connection }),
            Err(source) => Err(CatalogueError::Sqlite { path, source }),
        }
    }

    fn marks(&self) -> Result<(i32, i32), CatalogueError> {
        self.run(|connection| {
            let mark = |name| connection.pragma_query_value(None, name, |row| row.get(0));
            Ok((mark("user_version")?, mark("application_id")?))
        })
    }

    fn check_marks(&self, version: i32, application: i32) -> Result<(), CatalogueError> {
        let is_known = [VERSION, VERSION_WITHOUT_SHIPMENTS].contains(&version);
        if is_known && application == APPLICATION {
            return Ok(());
        }
        Err(CatalogueError::Foreign {
            path: self.path.clone(),
            found: if application == APPLICATION {
                format!("version {version}")
            } else {
                format!("application id {application:#x}")
            },
        })
    }

    pub(crate) fn run<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, CatalogueError> {
        work(&self.connection).map_err(|source| CatalogueError::Sqlite {
            path: self.path.clone(),
            source,
        })
    }

    /// Returns whether `folder` has a catalogue.
    #[must_use]
    pub fn is_in(folder: &Path) -> bool {
        folder.join(FILE).is_file()
    }

    /// Path of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes a file that is about to be written.
    ///
    /// # Errors
    ///
    /// [`CatalogueError::Sqlite`], as all that follow; nothing is changed then.
    pub fn add(&self, row: &FileRow) -> Result<(), CatalogueError> {
        self.run(|connection| insert(connection, row))
    }

    /// Notes many files in one commit: all of them, or none.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn add_all(&self, rows: impl Iterator<Item = FileRow>) -> Result<(), CatalogueError> {
        self.run(|connection| {
            let transaction = connection.unchecked_transaction()?;
            for row in rows {
                insert(&transaction, &row)?;
            }
            transaction.commit()
        })
    }

    /// Notes the beginning of an open file that is durable.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn set_checkpoint(
        &self,
        file: &str,
        records: u64,
        sums: &Sums,
    ) -> Result<(), CatalogueError> {
        self.run(|connection| {
            let mut statement = connection.prepare(
                "UPDATE files SET records = ?2, bytes = ?3, adler32 = ?4, crc32c = ?5, xxh3 = ?6 \
                 WHERE name = ?1 AND state = 'open'",
            )?;
            statement.execute(params![
                file,
                signed(records),
                signed(sums.bytes),
                sums.adler32,
                sums.crc32c,
                sums.xxh3.map(signed),
            ])?;
            Ok(())
        })
    }

    /// Notes a file that has its final name.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn close(
        &self,
        file: &str,
        state: FileState,
        closed_ns: i64,
        records: u64,
        sums: &Sums,
    ) -> Result<(), CatalogueError> {
        self.run(|connection| close(connection, file, state, closed_ns, records, sums))
    }

    /// Notes what a recovery has made of files, in one commit.
    pub(crate) fn settle(
        &self,
        closed_ns: i64,
        outcomes: &[(String, Settled)],
    ) -> Result<(), CatalogueError> {
        self.run(|connection| {
            let transaction = connection.unchecked_transaction()?;
            for (file, settled) in outcomes {
                match settled {
                    Settled::Removed => remove(&transaction, file)?,
                    Settled::Recovered(records, sums) => {
                        let state = FileState::Recovered;
                        close(&transaction, file, state, closed_ns, *records, sums)?;
                    }
                }
            }
            transaction.commit()
        })
    }

    /// Returns the row of a file.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn get(&self, file: &str) -> Result<Option<FileRow>, CatalogueError> {
        self.run(|connection| {
            let mut statement = connection.prepare("SELECT * FROM files WHERE name = ?1")?;
            statement.query_row([file], row_of).optional()
        })
    }

    /// Returns the `{node}` in the name of the newest file; `None` without a file.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn newest_node(&self) -> Result<Option<String>, CatalogueError> {
        self.run(|connection| {
            let mut statement =
                connection.prepare("SELECT node FROM files ORDER BY id DESC LIMIT 1")?;
            statement.query_row([], |row| row.get(0)).optional()
        })
    }

    /// Returns the rows with this state, or all, in the order in which the files were opened.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn rows(&self, state: Option<FileState>) -> Result<Vec<FileRow>, CatalogueError> {
        let wanted = Wanted {
            state,
            ..Wanted::default()
        };
        let mut rows = Vec::new();
        self.each(&wanted, |row, _| rows.push(row.clone()))?;
        Ok(rows)
    }

    /// Gives each row that is wanted to `take`, in the order in which the files were opened, with the state of the
    /// shipment that is least far, if there is one.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn each(
        &self,
        wanted: &Wanted,
        mut take: impl FnMut(&FileRow, Option<ShipState>),
    ) -> Result<(), CatalogueError> {
        self.run(|connection| {
            let has_shipments: bool = connection.query_row(
                "SELECT count(*) FROM sqlite_schema WHERE name = 'shipments'",
                [],
                |row| row.get(0),
            )?;
            let is_shipping = has_shipments
                && connection.query_row("SELECT EXISTS (SELECT 1 FROM shipments)", [], |row| {
                    row.get(0)
                })?;
            let shipped = match is_shipping {
                true => ship_state::LEAST_FAR,
                false => "NULL",
            };
            let mut statement = connection.prepare(&format!(
                "SELECT *, {shipped} AS shipped FROM files \
                 WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR run = ?2) \
                 AND (?3 IS NULL OR stream = ?3) ORDER BY id"
            ))?;
            let params = params![
                wanted.state.map(FileState::name),
                wanted.run.map(signed),
                wanted.stream
            ];
            let mut rows = statement.query(params)?;
            // One row for all: the texts of a long list are not allocated again and again.
            let mut file = None;
            while let Some(row) = rows.next()? {
                let shipped = match row.get::<_, Option<i64>>(SHIPPED)? {
                    Some(at) => ShipState::ALL.get(at.unsigned_abs() as usize).copied(),
                    None => None,
                };
                let file = match &mut file {
                    Some(file) => {
                        read_into(row, file)?;
                        file
                    }
                    None => file.insert(row_of(row)?),
                };
                take(file, shipped);
            }
            Ok(())
        })
    }
}

/// Rows that are wanted of a catalogue; all without any condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// State of the files; `None`: any.
    pub state: Option<FileState>,
    /// Run; `None`: any.
    pub run: Option<u64>,
    /// Stream; `None`: any.
    pub stream: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_write::FileName;

    fn row(seq: u64) -> FileRow {
        FileRow {
            file: format!("test.{seq}.tf"),
            name: FileName {
                project: "test".to_owned(),
                run: u64::MAX - 1,
                stream: "main".to_owned(),
                block: 3,
                node: "epn-0".to_owned(),
                seq,
            },
            state: FileState::Open,
            opened_ns: 5,
            closed_ns: None,
            records: 0,
            sums: Sums {
                bytes: 0,
                adler32: 1,
                crc32c: Some(u32::MAX),
                xxh3: Some(u64::MAX),
            },
        }
    }

    #[test]
    fn rows_are_read_as_they_were_written_while_the_writer_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let writer = Catalogue::open(folder.path()).expect("made");
        writer.add(&row(0)).expect("added");
        writer.add(&row(1)).expect("added");
        let sums = Sums {
            bytes: 77,
            adler32: 9,
            ..row(0).sums
        };
        writer.set_checkpoint("test.0.tf", 7, &sums).expect("noted");
        let closed = FileState::Closed;
        writer
            .close("test.1.tf", closed, 8, 2, &sums)
            .expect("closed");
        let reader = Catalogue::read(folder.path()).expect("readable");
        let open = FileRow {
            records: 7,
            sums,
            ..row(0)
        };
        let all = [
            open.clone(),
            FileRow {
                state: closed,
                closed_ns: Some(8),
                records: 2,
                sums,
                ..row(1)
            },
        ];
        assert_eq!(reader.rows(None).expect("rows"), all);
        assert_eq!(reader.rows(Some(FileState::Open)).expect("rows"), [open]);
        assert_eq!(reader.get("test.1.tf").expect("row"), Some(all[1].clone()));
        assert!(writer.add(&row(1)).is_err(), "the name is taken");
        assert_eq!(
            reader.newest_node().expect("a node"),
            Some("epn-0".to_owned())
        );
        // Opened again, it has the same rows.
        drop((reader, writer));
        let again = Catalogue::open(folder.path()).expect("opened");
        assert_eq!(again.rows(None).expect("rows"), all);
    }

    #[test]
    fn a_catalogue_of_version_1_is_read_and_brought_up_to_date_by_a_writer() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(Catalogue::open(folder.path()).expect("made"));
        let old = Connection::open(folder.path().join(FILE)).expect("opens");
        old.execute_batch("DROP TABLE shipments; PRAGMA user_version = 1;")
            .expect("as version 1 made it");
        let reader = Catalogue::read(folder.path()).expect("readable");
        assert_eq!(reader.rows(None).expect("rows"), []);
        let writer = Catalogue::open(folder.path()).expect("opens");
        assert_eq!(writer.marks().expect("marks"), (VERSION, APPLICATION));
        writer.add(&row(0)).expect("added");
        let mut found = Vec::new();
        let wanted = Wanted::default();
        let each = reader.each(&wanted, |row, shipped| found.push((row.clone(), shipped)));
        each.expect("rows");
        assert_eq!(found, [(row(0), None)]);
    }

    #[test]
    fn databases_of_others_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let none = Catalogue::read(folder.path()).expect_err("there is none");
        assert!(none.to_string().contains("catalogue.sqlite"), "{none}");
        let other = Connection::open(folder.path().join(FILE)).expect("SQLite makes it");
        other
            .execute_batch("CREATE TABLE mine (x); PRAGMA user_version = 7;")
            .expect("a table");
        let refused = Catalogue::open(folder.path()).expect_err("of another program");
        assert!(
            refused
                .to_string()
                .contains("application id 0x0, expected a catalogue of version 2"),
            "{refused}"
        );
        let folder = tempfile::tempdir().expect("a folder");
        drop(Catalogue::open(folder.path()).expect("made"));
        let later = Connection::open(folder.path().join(FILE)).expect("opens");
        later
            .execute_batch("PRAGMA user_version = 3;")
            .expect("set");
        let refused = Catalogue::open(folder.path()).expect_err("of a later version");
        assert!(refused.to_string().contains("version 3"), "{refused}");
        std::fs::write(
            folder.path().join(FILE),
            "no database at all, but of some length",
        )
        .expect("written");
        assert!(Catalogue::open(folder.path()).is_err());
    }
}
