//! Files on their way to permanent storage, in the catalogue of their writer.
//!
//! A program that ships files has a table of its own in the database: the writer never changes it, and the shipper
//! never changes that of the files. Every change is on the disk when a call returns, so a program that dies goes on
//! where it was.

use crate::catalogue::{Catalogue, CatalogueError, FileRow, row_of};
use crate::ship_state::ShipState;
use rusqlite::{OptionalExtension as _, Row, params, params_from_iter};
use std::path::Path;

/// A file that is to be shipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shipment {
    /// Number of the file in the catalogue.
    pub id: i64,
    /// The file.
    pub row: FileRow,
    /// Attempts that have failed.
    pub attempts: u32,
    /// Copies that were begun: without any, what is at the destination is not ours.
    pub copies: u32,
}

/// Files and bytes in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShipTotal {
    /// The state.
    pub state: ShipState,
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// Shipments of one folder.
#[derive(Debug)]
pub struct Shipments {
    catalogue: Catalogue,
}

impl Shipments {
    /// Opens the shipments of a folder, which has a catalogue; a writer may have it at the same time.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if there is no catalogue, or one of another version.
    pub fn open(folder: &Path) -> Result<Self, CatalogueError> {
        let catalogue = Catalogue::open_existing(folder)?;
        Ok(Self { catalogue })
    }

    /// Adds all files that are closed and not yet known for `destination`. Returns how many.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if the catalogue cannot be written.
    pub fn enqueue(&self, destination: &str, now_ns: i64) -> Result<usize, CatalogueError> {
        self.catalogue.run(|connection| {
            let mut statement = connection.prepare(
                "INSERT INTO shipments \
                 SELECT id, ?1, 'queued', 0, 0, 0, ?2, NULL FROM files \
                 WHERE state IN ('closed', 'recovered') AND NOT EXISTS \
                 (SELECT 1 FROM shipments WHERE file = files.id AND destination = ?1) \
                 AND NOT EXISTS (SELECT 1 FROM shipments WHERE file = files.id AND state IN ('deletable', 'deleted'))",
            )?;
            statement.execute(params![destination, now_ns])
        })
    }

    /// Notes that a copy is about to begin: whatever is at the destination from now on may be a part of it.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn begin_copy(&self, id: i64, destination: &str) -> Result<(), CatalogueError> {
        self.catalogue.run(|connection| {
            connection.execute(
                "UPDATE shipments SET copies = copies + 1 WHERE file = ?1 AND destination = ?2",
                params![id, destination],
            )?;
            Ok(())
        })
    }

    /// Returns a number that changes when another program has written to the catalogue.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn version(&self) -> Result<i64, CatalogueError> {
        self.catalogue
            .run(|connection| connection.pragma_query_value(None, "data_version", |row| row.get(0)))
    }

    /// Puts files back that a former life was copying to `destination`. Returns how many.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn requeue(&self, destination: &str) -> Result<usize, CatalogueError> {
        self.catalogue.run(|connection| {
            connection.execute(
                "UPDATE shipments SET state = 'queued' WHERE destination = ?1 AND state = 'copying'",
                [destination],
            )
        })
    }

    /// Takes the oldest file that waits for `destination` and is due, and notes that it is on its way.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn take(&self, destination: &str, now_ns: i64) -> Result<Option<Shipment>, CatalogueError> {
        let found = self.catalogue.run(|connection| {
            let mut statement = connection.prepare(
                "SELECT files.*, attempts, copies FROM shipments JOIN files ON files.id = file \
                 WHERE destination = ?1 AND shipments.state = 'queued' AND next_ns <= ?2 \
                 ORDER BY next_ns, file LIMIT 1",
            )?;
            statement
                .query_row(params![destination, now_ns], shipment_of)
                .optional()
        })?;
        if let Some(shipment) = &found {
            self.set(shipment.id, destination, ShipState::Copying, now_ns, None)?;
        }
        Ok(found)
    }

    /// Notes the state of a file on its way to `destination`.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn set(
        &self,
        id: i64,
        destination: &str,
        state: ShipState,
        now_ns: i64,
        error: Option<&str>,
    ) -> Result<(), CatalogueError> {
        self.catalogue.run(|connection| {
            let mut statement = connection.prepare(
                "UPDATE shipments SET state = ?3, changed_ns = ?4, error = ?5 WHERE file = ?1 AND destination = ?2",
            )?;
            statement.execute(params![id, destination, state.name(), now_ns, error])?;
            Ok(())
        })
    }

    /// Notes that an attempt has failed, and when the next one is due.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn retry(
        &self,
        id: i64,
        destination: &str,
        (now_ns, next_ns): (i64, i64),
        error: &str,
    ) -> Result<(), CatalogueError> {
        self.catalogue.run(|connection| {
            let mut statement = connection.prepare(
                "UPDATE shipments SET state = 'queued', attempts = attempts + 1, next_ns = ?4, changed_ns = ?3, \
                 error = ?5 WHERE file = ?1 AND destination = ?2",
            )?;
            statement.execute(params![id, destination, now_ns, next_ns, error])?;
            Ok(())
        })
    }

    /// Returns files that all of `destinations` have, and every other one that they were ever to go to; the oldest
    /// first, at most `limit`.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn shipped(
        &self,
        destinations: &[String],
        limit: u32,
    ) -> Result<Vec<Shipment>, CatalogueError> {
        let places = vec!["?"; destinations.len()].join(", ");
        let wanted = destinations.len();
        self.catalogue.run(|connection| {
            let mut statement = connection.prepare(&format!(
                "SELECT files.*, 0 AS attempts, 0 AS copies FROM files JOIN \
                 (SELECT file FROM shipments WHERE destination IN ({places}) AND state = 'verified' \
                  GROUP BY file HAVING count(*) = {wanted}) AS there ON files.id = there.file \
                 WHERE NOT EXISTS (SELECT 1 FROM shipments WHERE file = files.id AND state <> 'verified') \
                 ORDER BY files.id LIMIT {limit}"
            ))?;
            let rows = statement.query_map(params_from_iter(destinations), shipment_of)?;
            rows.collect()
        })
    }

    /// Notes of a file that it goes from this disk, or that it is gone.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn set_all(&self, id: i64, state: ShipState, now_ns: i64) -> Result<(), CatalogueError> {
        self.catalogue.run(|connection| {
            let mut statement = connection
                .prepare("UPDATE shipments SET state = ?2, changed_ns = ?3 WHERE file = ?1")?;
            statement.execute(params![id, state.name(), now_ns])?;
            Ok(())
        })
    }

    /// Returns the files that a former life was deleting.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn deletable(&self) -> Result<Vec<Shipment>, CatalogueError> {
        self.catalogue.run(|connection| {
            let mut statement = connection.prepare(
                "SELECT files.*, 0 AS attempts, 0 AS copies FROM files WHERE id IN \
                 (SELECT file FROM shipments WHERE state = 'deletable')",
            )?;
            let rows = statement.query_map([], shipment_of)?;
            rows.collect()
        })
    }

    /// Returns files and bytes by state for `destination`, states without files left out.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn totals(&self, destination: &str) -> Result<Vec<ShipTotal>, CatalogueError> {
        self.catalogue.run(|connection| {
            let mut statement = connection.prepare(
                "SELECT shipments.state, count(*), sum(bytes) FROM shipments JOIN files ON files.id = file \
                 WHERE destination = ?1 GROUP BY shipments.state",
            )?;
            let total = |row: &Row<'_>| {
                let state: String = row.get(0)?;
                Ok(ShipTotal {
                    state: ShipState::named(&state).ok_or(rusqlite::Error::InvalidQuery)?,
                    files: row.get::<_, i64>(1)?.cast_unsigned(),
                    bytes: row.get::<_, i64>(2)?.cast_unsigned(),
                })
            };
            let rows = statement.query_map([destination], total)?;
            let mut totals: Vec<ShipTotal> = rows.collect::<Result<_, _>>()?;
            totals.sort_by_key(|total| total.state);
            Ok(totals)
        })
    }

    /// Returns all destinations that files were or are shipped to.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn destinations(&self) -> Result<Vec<String>, CatalogueError> {
        self.catalogue.run(|connection| {
            let mut statement = connection
                .prepare("SELECT DISTINCT destination FROM shipments ORDER BY destination")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect()
        })
    }

    /// Returns when the next file for `destination` is due, in ns since 1970; none if nothing waits.
    ///
    /// # Errors
    ///
    /// As for [`enqueue`](Self::enqueue).
    pub fn next_due_ns(&self, destination: &str) -> Result<Option<i64>, CatalogueError> {
        self.catalogue.run(|connection| {
            connection.query_row(
                "SELECT min(next_ns) FROM shipments WHERE destination = ?1 AND state = 'queued'",
                [destination],
                |row| row.get(0),
            )
        })
    }
}

/// Destination of a file, and how far the file is on its way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the destination.
    pub destination: String,
    /// State of the file.
    pub state: ShipState,
}

impl Place {
    /// Returns whether the destination has the file.
    #[must_use]
    pub fn has_it(&self) -> bool {
        let has = [
            ShipState::Verified,
            ShipState::Deletable,
            ShipState::Deleted,
        ];
        has.contains(&self.state)
    }
}

impl Catalogue {
    /// Returns the destinations of one file, or of all, by the name of the file; none where nothing was shipped.
    ///
    /// # Errors
    ///
    /// [`CatalogueError`] if the catalogue cannot be read.
    pub fn places(&self, file: Option<&str>) -> Result<Vec<(String, Place)>, CatalogueError> {
        self.run(|connection| {
            let has_shipments: bool = connection.query_row(
                "SELECT count(*) FROM sqlite_schema WHERE name = 'shipments'",
                [],
                |row| row.get(0),
            )?;
            if !has_shipments {
                return Ok(Vec::new());
            }
            let mut statement = connection.prepare(
                "SELECT files.name, destination, shipments.state FROM shipments JOIN files ON files.id = file \
                 WHERE ?1 IS NULL OR files.name = ?1 ORDER BY files.id, destination",
            )?;
            let place = |row: &Row<'_>| {
                let state: String = row.get(2)?;
                let place = Place {
                    destination: row.get(1)?,
                    state: ShipState::named(&state).ok_or(rusqlite::Error::InvalidQuery)?,
                };
                Ok((row.get(0)?, place))
            };
            let rows = statement.query_map([file], place)?;
            rows.collect()
        })
    }
}

fn shipment_of(row: &Row<'_>) -> rusqlite::Result<Shipment> {
    Ok(Shipment {
        id: row.get("id")?,
        attempts: row.get("attempts")?,
        copies: row.get("copies")?,
        row: row_of(row)?,
    })
}
