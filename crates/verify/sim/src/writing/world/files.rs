//! Comparison of the files of all disks with their catalogues, and with what was taken and acknowledged.

use super::super::record::{self, Found};
use super::{Ground, RUN, World};
use crate::invariant::{Broken, Invariant};
use sheaf_stream_files::{Durability, FileRow, FileState};
use sheaf_write::{Kinds, Summing};
use std::collections::BTreeSet;
use std::sync::PoisonError;

impl World<'_> {
    /// Compares all files with the catalogue, and their records with what was taken and acknowledged.
    pub(super) fn check_files(&mut self) -> Result<(), Broken> {
        let (mut found, mut names) = (BTreeSet::new(), BTreeSet::new());
        for ground in &self.grounds {
            self.check_disk(ground, &mut found)?;
            for name in ground.disk.files().into_keys() {
                if let Some(name) = names.replace(name) {
                    return Err((
                        Invariant::WholeFiles,
                        format!("two disks have a file {name}"),
                    ));
                }
            }
        }
        let lost: Vec<u64> = self.acknowledged.difference(&found).copied().collect();
        if !lost.is_empty() {
            return Err((
                Invariant::WrittenKept,
                format!("records {lost:?} were promised and are in no file"),
            ));
        }
        // What a recovery has closed is synced; without syncs files that were closed before are not.
        if self.options.durability != Durability::None {
            self.durable.clone_from(&found);
        }
        self.acknowledged = found;
        Ok(())
    }

    /// Compares the files of a disk with its catalogue.
    fn check_disk(&self, ground: &Ground, found: &mut BTreeSet<u64>) -> Result<(), Broken> {
        let files = ground.disk.files();
        let rows = {
            let catalogue = ground.catalogue.lock();
            let catalogue = catalogue.unwrap_or_else(PoisonError::into_inner);
            catalogue.rows(None)
        };
        let rows = rows.map_err(|error| (Invariant::WholeFiles, error.to_string()))?;
        for (name, bytes) in &files {
            let row = rows.iter().find(|row| row.file == *name);
            let Some(row) = row else {
                return Err((
                    Invariant::WholeFiles,
                    format!("{name} is there after a start, and the catalogue has no such file"),
                ));
            };
            self.check_file(row, bytes, found)?;
        }
        for row in &rows {
            let is_there = files.contains_key(&row.file);
            if row.state == FileState::Open || !(is_there || self.may_be_damaged) {
                return Err((
                    Invariant::WholeFiles,
                    format!(
                        "after a start the catalogue has {row:?}; the file is there: {is_there}"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_file(
        &self,
        row: &FileRow,
        bytes: &[u8],
        found: &mut BTreeSet<u64>,
    ) -> Result<(), Broken> {
        let mut summing = Summing::new(Kinds {
            crc32c: row.sums.crc32c.is_some(),
            xxh3: false,
        });
        summing.update(bytes);
        let is_same = row.sums.compare(&summing.sums()).is_ok();
        if !is_same && !self.may_be_damaged {
            return Err((
                Invariant::WholeFiles,
                format!("{row:?}, its file has {:?}", summing.sums()),
            ));
        }
        let mut rest = bytes;
        let (mut records, mut last) = (0, None);
        while let Ok(Some(record)) = record::read(&mut rest) {
            self.check_record(row, record)?;
            if last.is_some_and(|last| last >= record.number) || !found.insert(record.number) {
                return Err((
                    Invariant::WrittenOnce,
                    format!("record {} of {} is there twice", record.number, row.file),
                ));
            }
            last = Some(record.number);
            records += 1;
        }
        if records != row.records && !self.may_be_damaged {
            return Err((
                Invariant::WholeFiles,
                format!("{row:?}, its file has {records} whole records"),
            ));
        }
        Ok(())
    }

    fn check_record(&self, row: &FileRow, record: Found) -> Result<(), Broken> {
        let taken = self.taken.get(&record.number);
        let is_true = taken == Some(&(record.stream, record.block))
            && row.name.stream == format!("s{}", record.stream)
            && row.name.block == record.block
            && row.name.run == RUN;
        if is_true {
            return Ok(());
        }
        Err((
            Invariant::WrittenOnce,
            format!("{record:?} in {}, taken as {taken:?}", row.file),
        ))
    }
}
