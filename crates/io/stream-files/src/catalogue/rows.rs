//! Rows of files in a catalogue.

use rusqlite::{Connection, Row, params};
use sheaf_write::{FileName, Kinds, Sums};

/// SQLite has signed integers of 64 bits: larger numbers keep their bits.
pub(super) fn signed(value: u64) -> i64 {
    value.cast_signed()
}

/// State of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileState {
    /// Being written; its name ends in `.part`.
    Open,
    /// Whole.
    Closed,
    /// Left by a crash, and cut behind its last whole record.
    Recovered,
}

impl FileState {
    const ALL: [Self; 3] = [Self::Open, Self::Closed, Self::Recovered];

    /// Name in the catalogue and in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Recovered => "recovered",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }
}

/// Row of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRow {
    /// Name of the file once it is closed.
    pub file: String,
    /// Values of the name.
    pub name: FileName,
    /// State.
    pub state: FileState,
    /// When it was opened, in ns since 1970.
    pub opened_ns: i64,
    /// When it was closed, in ns since 1970.
    pub closed_ns: Option<i64>,
    /// Records: all of a closed file, of an open one those at the last sync.
    pub records: u64,
    /// Bytes and checksums of these records.
    pub sums: Sums,
}

/// Place of the state of shipping behind the columns of a file.
pub(super) const SHIPPED: usize = 16;

/// Outcome of a file that a crash has left open.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Settled {
    /// Number of whole records, and their sums.
    Recovered(u64, Sums),
    /// The file is not there: its row goes.
    Removed,
}

pub(super) fn close(
    connection: &Connection,
    file: &str,
    state: FileState,
    closed_ns: i64,
    records: u64,
    sums: &Sums,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "UPDATE files SET state = ?2, closed_ns = ?3, records = ?4, bytes = ?5, adler32 = ?6, crc32c = ?7, \
         xxh3 = ?8 WHERE name = ?1",
    )?;
    statement.execute(params![
        file,
        state.name(),
        closed_ns,
        signed(records),
        signed(sums.bytes),
        sums.adler32,
        sums.crc32c,
        sums.xxh3.map(signed),
    ])?;
    Ok(())
}

pub(super) fn remove(connection: &Connection, file: &str) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM files WHERE name = ?1", [file])?;
    Ok(())
}

pub(super) fn insert(connection: &Connection, row: &FileRow) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(

        "INSERT INTO files (name, project, run, stream, block, node, seq, state, opened_ns, closed_ns, \
         records, bytes, adler32, crc32c, xxh3) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
    )?;
    statement.execute(params![
        row.file,
        row.name.project,
        signed(row.name.run),
        row.name.stream,
        signed(row.name.block),
        row.name.node,
        signed(row.name.seq),
        row.state.name(),
        row.opened_ns,
        row.closed_ns,
        signed(row.records),
        signed(row.sums.bytes),
        row.sums.adler32,
        row.sums.crc32c,
        row.sums.xxh3.map(signed),
    ])?;
    Ok(())
}

pub(crate) fn row_of(row: &Row<'_>) -> rusqlite::Result<FileRow> {
    let mut file = FileRow {
        file: String::new(),
        name: FileName {
            project: String::new(),
            run: 0,
            stream: String::new(),
            block: 0,
            node: String::new(),
            seq: 0,
        },
        state: FileState::Open,
        opened_ns: 0,
        closed_ns: None,
        records: 0,
        sums: Sums::empty(Kinds::default()),
    };
    read_into(row, &mut file)?;
    Ok(file)
}

/// Reads a row into `file`, whose texts keep their memory.
pub(super) fn read_into(row: &Row<'_>, file: &mut FileRow) -> rusqlite::Result<()> {
    // By their places: a search for each name would take most of the time of a long list.
    let unsigned = |at: usize| row.get::<_, i64>(at).map(i64::cast_unsigned);
    let text = |at: usize, into: &mut String| {
        into.clear();
        into.push_str(row.get_ref(at)?.as_str()?);
        Ok::<(), rusqlite::Error>(())
    };
    text(1, &mut file.file)?;
    text(2, &mut file.name.project)?;
    file.name.run = unsigned(3)?;
    text(4, &mut file.name.stream)?;
    file.name.block = unsigned(5)?;
    text(6, &mut file.name.node)?;
    file.name.seq = unsigned(7)?;
    let state = FileState::named(row.get_ref(8)?.as_str()?);
    file.state = state.ok_or(rusqlite::Error::InvalidQuery)?;
    file.opened_ns = row.get(9)?;
    file.closed_ns = row.get(10)?;
    file.records = unsigned(11)?;
    file.sums = Sums {
        bytes: unsigned(12)?,
        adler32: row.get(13)?,
        crc32c: row.get(14)?,
        xxh3: row.get::<_, Option<i64>>(15)?.map(i64::cast_unsigned),
    };
    Ok(())
}
