//! Directories of the sink `streams`, one for each disk, and the behaviour when they take no more.

use super::{MIB, StreamsSink};
use crate::check::{Check, ConfigError, check_directory, path_for};
use serde::{Deserialize, Serialize};
use sheaf_protocol::NodeId;
use sheaf_stream_files::{Catalogue, CatalogueError};
use sheaf_write::{Assignment, IntakeConfig, Overload, Space, Unit, assignments, disk_nodes};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Behaviour when the disks take no more TFs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamsOverload {
    /// TFs wait, and go to other EPNs.
    #[default]
    Block,
    /// Streams of the lowest classes are shed; those of the highest wait.
    Shed,
    /// TFs go to another disk.
    Spill,
}

/// Watermark of a queue where streams are shed and none is given, in percent.
pub(super) const QUEUE_HIGH_PERCENT: u32 = 75;

impl StreamsSink {
    /// Returns the directories of all disks; that for overload is the last one.
    pub(super) fn places(&self) -> Vec<(&'static str, &Path)> {
        let first = ("directory", self.directory.as_path());
        let others = self.directories.iter();
        let others = others.map(|path| ("directories", path.as_path()));
        let spill = ("spill_directory", self.spill_directory.as_path());
        std::iter::once(first)
            .filter(|(_, path)| !path.as_os_str().is_empty())
            .chain(others)
            .chain((self.overload == StreamsOverload::Spill).then_some(spill))
            .collect()
    }

    /// Returns the watermarks on the free space.
    pub(super) fn space(&self) -> Space {
        let min_bytes = self.free_min_mib.saturating_mul(MIB);
        let low_bytes = match self.free_low_mib {
            0 => min_bytes + min_bytes / 4,
            mib => mib.saturating_mul(MIB),
        };
        Space {
            min_bytes,
            low_bytes,
        }
    }

    pub(super) fn intake(&self, classes: Vec<u16>, seed: u64) -> Result<IntakeConfig, String> {
        let assignment = Assignment::named(&self.disk_assignment);
        Ok(IntakeConfig {
            disks: u32::try_from(self.places().len()).unwrap_or(u32::MAX),
            assignment: assignment.map_err(|error| error.to_string())?,
            overload: match self.overload {
                StreamsOverload::Block => Overload::Block,
                StreamsOverload::Shed => Overload::Shed,
                StreamsOverload::Spill => Overload::Spill,
            },
            classes,
            queue_bytes: self.queue_mib * MIB,
            queue_records: super::QUEUE_RECORDS.into(),
            queue_high_percent: self.queue_high_percent,
            space: self.space(),
            slow: Duration::from_millis(self.slow_ms),
            seed,
        })
    }

    /// Checks the directories and the overload of a table that stands at `table`.
    pub(super) fn check_places(&self, table: &str, check: &mut Check) {
        let in_table = |key: &str| format!("{table}.{key}");
        let key = &in_table("directories");
        let is_spill = self.overload == StreamsOverload::Spill;
        let count = self.places().len() - usize::from(is_spill);
        check.that(
            count > 0,
            &in_table("directory"),
            "none",
            "a directory that is there",
        );
        check.that(count <= 64, key, count, "at most 64 directories");
        let is_empty = |path: &Path| path.as_os_str().is_empty();
        check.that(
            !self.directories.iter().any(|path| is_empty(path)),
            key,
            "an empty path",
            "directories that are there",
        );
        check.both(
            is_spill != is_empty(&self.spill_directory),
            &in_table("spill_directory"),
            &in_table("overload"),
            format!("`{}`", self.spill_directory.display()),
            "a directory with the overload spill, and none with another one",
        );
        let places = self.places();
        for (at, (key, path)) in places.iter().enumerate() {
            let is_in = |other: &Path| path.starts_with(other) || other.starts_with(path);
            let others = &places[..at];
            let other = others
                .iter()
                .find(|(_, other)| !is_empty(path) && !is_empty(other) && is_in(other));
            check.that(
                other.is_none(),
                &in_table(key),
                path.display(),
                other.map_or(String::new(), |(_, other)| {
                    format!(
                        "a directory that is not {}, not in it and not around it",
                        other.display()
                    )
                }),
            );
        }
        let files = assignments().iter().filter(|row| row.unit == Unit::File);
        let names: Vec<&str> = files.map(|row| row.name).collect();
        check.that(
            names.contains(&self.disk_assignment.as_str()),
            &in_table("disk_assignment"),
            &self.disk_assignment,
            format!("one of {}", names.join(", ")),
        );
        let has_mark = self.free_low_mib > 0;
        check.both(
            !has_mark || self.free_low_mib > self.free_min_mib,
            &in_table("free_low_mib"),
            &in_table("free_min_mib"),
            self.free_low_mib,
            format!("more than the {} of free_min_mib, or 0", self.free_min_mib),
        );
        for (key, found, least, most) in [
            ("slow_ms", self.slow_ms, 1, 1 << 32),
            ("free_low_mib", self.free_low_mib, 0, 1 << 30),
            ("queue_high_percent", self.queue_high_percent.into(), 1, 99),
        ] {
            check.that(
                (least..=most).contains(&found),
                &in_table(key),
                found,
                format!("{least} to {most}"),
            );
        }
        let mut classes = self.streams.iter().map(|stream| stream.class);
        let first = classes.next();
        check.both(
            self.overload != StreamsOverload::Shed || classes.any(|class| Some(class) != first),
            &in_table("overload"),
            &in_table("stream.class"),
            "shed",
            "streams of two classes or more: those of the highest are never shed",
        );
    }

    /// Looks for the directories that EPN `node` needs on this machine, of a table that stands at `table`.
    pub(super) fn check_directories(&self, table: &str, node: NodeId) -> Option<ConfigError> {
        let mut places = self.places().into_iter();
        places.find_map(|(key, path)| {
            check_directory(&format!("{table}.{key}"), &path_for(path, node))
        })
    }
}

/// Returns the names in file names of the disks with these folders, of the node `node`: those that their files have, or
/// new ones.
pub(super) fn names_of(node: &str, folders: &[PathBuf]) -> Result<Vec<String>, String> {
    let found = folders.iter().map(|folder| newest_node(folder));
    let found: Result<Vec<Option<String>>, CatalogueError> = found.collect();
    let found = found.map_err(|error| error.to_string())?;
    disk_nodes(node, &found).map_err(|error| {
        let folders: Vec<String> = folders
            .iter()
            .map(|folder| folder.display().to_string())
            .collect();
        format!("{}: {error}", folders.join(", "))
    })
}

fn newest_node(folder: &Path) -> Result<Option<String>, CatalogueError> {
    if !Catalogue::is_in(folder) {
        return Ok(None);
    }
    Catalogue::read(folder)?.newest_node()
}
