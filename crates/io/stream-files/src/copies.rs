//! Table of the catalogue with the copies of TFs that a writer node has, as far as they need a row: those that came
//! from another writer, that do not count, or that are stored before they are committed.

use crate::catalogue::{Catalogue, CatalogueError};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};
use sheaf_protocol::control::{HeldPart, StreamFate};
use sheaf_protocol::{Attempt, EpnId, FlpId, Incarnation, RunId, Source, Target, TfId};
use sheaf_write::{Copies, CopyRow, CopyState, HandoffId, HeldRow};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS copies (
    run INTEGER NOT NULL,
    tf INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    copy INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'written', 'void')),
    elsewhere TEXT NOT NULL,
    held TEXT,
    PRIMARY KEY (run, tf, attempt)
) STRICT, WITHOUT ROWID;
";

/// Copies of TFs in the catalogue of a writer node.
#[derive(Debug)]
pub struct CopyTable(Catalogue);

/// A held TF as text.
#[derive(Deserialize, Serialize)]
struct Held {
    epn: u16,
    incarnation: u64,
    /// FLP, incarnation, bytes and CRC-32C of each STF.
    parts: Vec<(u16, u64, u64, u32)>,
    missing: Vec<u16>,
    /// Number among the published ones of its EPN.
    #[serde(default)]
    published: Option<u64>,
    /// Name, and why it was shed or refused, of each stream.
    #[serde(default)]
    streams: Vec<(String, String, String)>,
}

impl Held {
    fn of(row: &HeldRow) -> Self {
        let part = |part: &HeldPart| {
            let source = part.source;
            (source.flp.0, source.incarnation.0, part.bytes, part.digest)
        };
        let fate = |fate: &StreamFate| {
            let StreamFate {
                stream,
                shed,
                refused,
            } = fate.clone();
            (stream, shed, refused)
        };
        Self {
            epn: row.epn.epn.0,
            incarnation: row.epn.incarnation.0,
            parts: row.parts.iter().map(part).collect(),
            missing: row.missing.iter().map(|flp| flp.0).collect(),
            published: row.published,
            streams: row.streams.iter().map(fate).collect(),
        }
    }

    fn row(self) -> HeldRow {
        let part = |(flp, incarnation, bytes, digest)| HeldPart {
            source: Source {
                flp: FlpId(flp),
                incarnation: Incarnation(incarnation),
            },
            bytes,
            digest,
        };
        let fate = |(stream, shed, refused)| StreamFate {
            stream,
            shed,
            refused,
        };
        HeldRow {
            epn: Target {
                epn: EpnId(self.epn),
                incarnation: Incarnation(self.incarnation),
            },
            parts: self.parts.into_iter().map(part).collect(),
            missing: self.missing.into_iter().map(FlpId).collect(),
            published: self.published,
            streams: self.streams.into_iter().map(fate).collect(),
        }
    }
}

fn broken(
    column: usize,
    kind: Type,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
}

fn id_of(row: &Row<'_>) -> rusqlite::Result<HandoffId> {
    Ok(HandoffId {
        run: RunId(row.get::<_, i64>(0)?.cast_unsigned()),
        tf: TfId(row.get::<_, i64>(1)?.cast_unsigned()),
        attempt: Attempt(row.get(2)?),
    })
}

fn copy_of(row: &Row<'_>) -> rusqlite::Result<(HandoffId, CopyRow)> {
    let state: String = row.get(4)?;
    let state = CopyState::ALL.into_iter().find(|it| it.name() == state);
    let elsewhere: String = row.get(5)?;
    let writers = elsewhere.split(' ').filter(|word| !word.is_empty());
    let writers = writers
        .map(str::parse)
        .collect::<Result<BTreeSet<u16>, _>>();
    let held: Option<String> = row.get(6)?;
    let held = held
        .map(|text| serde_json::from_str::<Held>(&text))
        .transpose();
    let copy = CopyRow {
        copy: row.get(3)?,
        // Another one cannot be in the table.
        state: state.unwrap_or(CopyState::Void),
        elsewhere: writers.map_err(|error| broken(5, Type::Text, error))?,
        held: held
            .map_err(|error| broken(6, Type::Text, error))?
            .map(Held::row),
    };
    Ok((id_of(row)?, copy))
}

/// Writes a row, or removes it.
fn put(connection: &Connection, id: HandoffId, row: Option<&CopyRow>) -> rusqlite::Result<()> {
    let HandoffId { run, tf, attempt } = id;
    let key = (run.0.cast_signed(), tf.0.cast_signed(), attempt.0);
    let Some(row) = row else {
        let sql = "DELETE FROM copies WHERE run = ?1 AND tf = ?2 AND attempt = ?3";
        return connection.prepare(sql)?.execute(key).map(drop);
    };
    let elsewhere: Vec<String> = row.elsewhere.iter().map(u16::to_string).collect();
    let held = row
        .held
        .as_ref()
        .map(|held| serde_json::to_string(&Held::of(held)));
    let held = held
        .transpose()
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let sql = "INSERT OR REPLACE INTO copies VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = params![
        key.0,
        key.1,
        key.2,
        row.copy,
        row.state.name(),
        elsewhere.join(" "),
        held
    ];
    connection.prepare(sql)?.execute(values).map(drop)
}

impl CopyTable {
    /// Opens the catalogue of `folder`, which its writer has made, and adds the table if it lacks it.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if it cannot be written.
    pub fn open(folder: &Path) -> Result<Self, CatalogueError> {
        let catalogue = Catalogue::open_as_writer(folder)?;
        catalogue.run(|connection| connection.execute_batch(TABLE))?;
        Ok(Self(catalogue))
    }

    /// Returns all rows.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if they cannot be read.
    pub fn rows(&self) -> Result<Vec<(HandoffId, CopyRow)>, CatalogueError> {
        read_rows(&self.0)
    }

    /// Writes rows, or removes those without a value, in one commit that is on the disk when this returns.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`]; nothing is changed then.
    pub fn keep(&self, rows: &BTreeMap<HandoffId, Option<CopyRow>>) -> Result<(), CatalogueError> {
        self.0.run(|connection| {
            let transaction = connection.unchecked_transaction()?;
            for (id, row) in rows {
                put(&transaction, *id, row.as_ref())?;
            }
            transaction.commit()
        })
    }
}

fn read_rows(catalogue: &Catalogue) -> Result<Vec<(HandoffId, CopyRow)>, CatalogueError> {
    catalogue.run(|connection| {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'copies'";
        let has_table = connection.query_row(sql, [], |_| Ok(())).optional()?;
        if has_table.is_none() {
            return Ok(Vec::new());
        }
        let sql = "SELECT run, tf, attempt, copy, state, elsewhere, held FROM copies";
        let mut statement = connection.prepare(sql)?;
        statement.query_map([], copy_of)?.collect()
    })
}

/// Returns the TFs in the files of `folder` that do not count, as far as its own catalogue tells: void ones, and those
/// that wait for their commit. None in a folder without a catalogue.
///
/// # Errors
///
/// [`CatalogueError`] if the catalogue cannot be read.
pub fn void_tfs(folder: &Path) -> Result<BTreeSet<HandoffId>, CatalogueError> {
    if !Catalogue::is_in(folder) {
        return Ok(BTreeSet::new());
    }
    let mut copies = Copies::default();
    let rows = Catalogue::read(folder)?.copies()?;
    let ids: Vec<HandoffId> = rows.keys().copied().collect();
    copies.add(0, rows);
    Ok(ids
        .into_iter()
        .filter(|id| !copies.counts(0, *id))
        .collect())
}

impl Catalogue {
    /// Returns the rows of copies: none in the catalogue of an EPN. A TF of the files counts unless its row is void.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if they cannot be read.
    pub fn copies(&self) -> Result<BTreeMap<HandoffId, CopyRow>, CatalogueError> {
        Ok(read_rows(self)?.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tf: u64) -> HandoffId {
        HandoffId {
            run: RunId(u64::MAX - 3),
            tf: TfId(tf),
            attempt: Attempt(2),
        }
    }

    #[test]
    fn rows_come_back_as_they_were_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let catalogue = Catalogue::open(folder.path()).expect("a catalogue");
        assert_eq!(catalogue.copies().expect("no table"), BTreeMap::new());
        let table = CopyTable::open(folder.path()).expect("a table");
        let held = HeldRow {
            epn: Target {
                epn: EpnId(3),
                incarnation: Incarnation(u64::MAX),
            },
            parts: vec![HeldPart {
                source: Source {
                    flp: FlpId(7),
                    incarnation: Incarnation(9),
                },
                bytes: 5,
                digest: u32::MAX,
            }],
            missing: vec![FlpId(1)],
            published: Some(8),
            streams: vec![StreamFate {
                stream: "main".to_owned(),
                shed: "queue".to_owned(),
                refused: String::new(),
            }],
        };
        let moved = CopyRow {
            copy: 2,
            state: CopyState::Written,
            elsewhere: [0, 4].into(),
            held: Some(held),
        };
        let void = CopyRow {
            copy: u32::MAX,
            state: CopyState::Void,
            elsewhere: BTreeSet::new(),
            held: None,
        };
        let rows = [(id(1), Some(moved.clone())), (id(2), Some(void.clone()))];
        table.keep(&rows.into()).expect("kept");
        let table = CopyTable::open(folder.path()).expect("again");
        assert_eq!(
            table.rows().expect("rows"),
            [(id(1), moved), (id(2), void.clone())]
        );
        table.keep(&[(id(1), None)].into()).expect("removed");
        let found = Catalogue::read(folder.path()).expect("a reader").copies();
        assert_eq!(found.expect("rows"), [(id(2), void)].into());
        assert_eq!(
            void_tfs(folder.path()).expect("a catalogue"),
            [id(2)].into()
        );
        let empty = tempfile::tempdir().expect("a folder");
        assert_eq!(void_tfs(empty.path()).expect("none"), BTreeSet::new());
    }
}
