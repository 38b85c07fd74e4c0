//! Records of all TFs of runs, simulated or live, as a file: CSV, or Parquet.
//!
//! A row a TF of a run, with the columns of [`COLUMNS`]. Times are in ns of the run; one that did not come, or that a
//! live run does not tell, is empty (in Parquet: null).

use sheaf_sim::des::TfRecord;
use sheaf_testbed::IoError;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use thiserror::Error;

#[cfg(feature = "parquet")]
mod columns;
pub mod live;

/// Columns before those of [`TfRecord::COLUMNS`].
pub const COLUMNS: [&str; 3] = ["point", "label", "seed"];

/// Reasons why records are not written.
#[derive(Debug, Error)]
pub enum RecordsError {
    /// Name of a file that says no format.
    #[error("found {}, expected a name that ends with .csv or .parquet", .0.display())]
    Format(PathBuf),
    /// Parquet in a build without it.
    #[error(
        "found {}, and this build has no Parquet: expected a name that ends with .csv, or a build with \
         `cargo build --release --bin sheaf --features sheaf-lab/parquet`",
        .0.display()
    )]
    NoParquet(PathBuf),
    /// The file cannot be made or written.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The writer of Parquet fails.
    #[error("cannot write {}: {why}", path.display())]
    Rows {
        /// The file.
        path: PathBuf,
        /// Message of the writer.
        why: String,
    },
}

/// File of records.
pub struct RecordsFile {
    path: PathBuf,
    format: Format,
}

enum Format {
    Csv(BufWriter<File>),
    #[cfg(feature = "parquet")]
    Parquet(columns::Writer),
}

/// Run whose records are written, by its point.
#[derive(Clone, Copy, Debug)]
pub struct Of<'a> {
    /// Number of the point in the file of the experiment, from 0.
    pub point: usize,
    /// Label of the point.
    pub label: &'a str,
    /// Seed of the run; 0 of a live one.
    pub seed: u64,
    /// Records of its TFs.
    pub records: &'a [TfRecord],
}

impl RecordsFile {
    /// Checks that this build writes the format that the name of a file says.
    ///
    /// # Errors
    ///
    /// [`RecordsError::Format`] and [`RecordsError::NoParquet`].
    pub fn check(path: &Path) -> Result<(), RecordsError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("csv") => Ok(()),
            Some("parquet") if cfg!(feature = "parquet") => Ok(()),
            Some("parquet") => Err(RecordsError::NoParquet(path.to_owned())),
            _ => Err(RecordsError::Format(path.to_owned())),
        }
    }

    /// Makes the file, in the format that its name says.
    ///
    /// # Errors
    ///
    /// All of [`RecordsError`].
    pub fn create(path: &Path) -> Result<Self, RecordsError> {
        Self::check(path)?;
        let made = File::create(path);
        let made = made.map_err(IoError::of(format!("make {}", path.display())))?;
        #[cfg(feature = "parquet")]
        if path.extension().is_some_and(|it| it == "parquet") {
            let writer = columns::Writer::new(made).map_err(rows(path))?;
            return Ok(Self {
                path: path.to_owned(),
                format: Format::Parquet(writer),
            });
        }
        let mut file = BufWriter::new(made);
        let columns: Vec<&str> = COLUMNS.into_iter().chain(TfRecord::COLUMNS).collect();
        writeln!(file, "{}", columns.join(",")).map_err(Self::failed(path))?;
        let format = Format::Csv(file);
        Ok(Self {
            path: path.to_owned(),
            format,
        })
    }

    fn failed(path: &Path) -> impl Fn(std::io::Error) -> RecordsError {
        let what = format!("write {}", path.display());
        move |error| IoError::of(what.clone())(error).into()
    }

    /// Adds the records of a run.
    ///
    /// # Errors
    ///
    /// A file that cannot be written.
    pub fn add(&mut self, of: &Of<'_>) -> Result<(), RecordsError> {
        match &mut self.format {
            Format::Csv(file) => {
                let label = sheaf_sim::summary::csv_text(of.label);
                for record in of.records {
                    let times = record.times().map(or_empty).join(",");
                    writeln!(
                        file,
                        "{},{label},{},{},{times},{},{},{},{}",
                        of.point,
                        of.seed,
                        record.tf,
                        or_empty(record.epn.map(u64::from)),
                        record.attempts,
                        record.bytes,
                        record.fate.name(),
                    )
                    .map_err(Self::failed(&self.path))?;
                }
                Ok(())
            }
            #[cfg(feature = "parquet")]
            Format::Parquet(writer) => writer.add(of).map_err(rows(&self.path)),
        }
    }

    /// Ends the file.
    ///
    /// # Errors
    ///
    /// A file that cannot be written.
    pub fn finish(self) -> Result<(), RecordsError> {
        match self.format {
            Format::Csv(mut file) => file.flush().map_err(Self::failed(&self.path)),
            #[cfg(feature = "parquet")]
            Format::Parquet(writer) => writer.finish().map_err(rows(&self.path)),
        }
    }
}

fn or_empty(value: Option<u64>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

#[cfg(feature = "parquet")]
fn rows(path: &Path) -> impl Fn(::parquet::errors::ParquetError) -> RecordsError {
    let path = path.to_owned();
    move |error| RecordsError::Rows {
        path: path.clone(),
        why: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_sim::des::{Run, run};
    use sheaf_sim::scenario::Scenario;

    /// Returns a run of a farm whose EPNs have work for half of what comes, so that TFs wait.
    fn crowded() -> Run {
        let mut scenario = Scenario {
            epns: 1,
            duration_s: 1.0,
            ..Scenario::default()
        };
        scenario.processing.ms = 40.0;
        run(&scenario, 1, |_| true).expect("a scenario that can be run")
    }

    #[test]
    fn a_row_has_the_times_of_a_tf_in_their_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.csv");
        let run = crowded();
        let mut file = RecordsFile::create(&path).expect("made");
        let of = Of {
            point: 2,
            label: "a, b",
            seed: run.seed,
            records: &run.records,
        };
        file.add(&of).expect("written");
        file.finish().expect("written");
        let text = std::fs::read_to_string(&path).expect("it is there");
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("point,label,seed,tf,announced_ns,"),
            "{}",
            lines[0]
        );
        assert_eq!(lines.len(), 51);
        let last = lines[50];
        assert!(
            last.starts_with("2,\"a, b\",1,49,") && last.ends_with(",complete"),
            "{last}"
        );
        let times: Vec<u64> = last
            .split(',')
            .skip(5)
            .take(6)
            .map(|cell| cell.parse().expect(cell))
            .collect();
        assert!(times.is_sorted(), "{last}");
        // 50 TFs a second, 25 done: the last one has waited for about a second.
        let wait = run.records[49].wait_ns(u64::MAX).expect("it was processed");
        assert!((900_000_000..1_100_000_000).contains(&wait), "{wait}");
        assert_eq!(run.unprocessed, 0);
    }

    #[test]
    fn a_name_without_a_format_is_refused() {
        let error = RecordsFile::create(Path::new("records.txt"))
            .err()
            .expect("no format");
        assert!(
            error
                .to_string()
                .contains("expected a name that ends with .csv or .parquet")
        );
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_has_nulls_for_what_did_not_come() {
        use ::parquet::file::reader::{FileReader as _, SerializedFileReader};
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("records.parquet");
        let mut run = crowded();
        run.records[0].freed_ns = None;
        let mut file = RecordsFile::create(&path).expect("made");
        file.add(&Of {
            point: 0,
            label: "",
            seed: run.seed,
            records: &run.records,
        })
        .expect("written");
        file.finish().expect("written");
        let reader = SerializedFileReader::new(File::open(&path).expect("open")).expect("Parquet");
        assert_eq!(reader.metadata().file_metadata().num_rows(), 50);
        let row = reader
            .get_row_iter(None)
            .expect("rows")
            .next()
            .expect("one")
            .expect("read");
        let row = row.to_string();
        assert!(
            row.contains("freed_ns: null") && row.contains("fate: \"complete\""),
            "{row}"
        );
    }
}
