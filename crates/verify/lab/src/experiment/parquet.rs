//! Runs as a Parquet file, for those who read thousands of them elsewhere.

use super::result::RunResult;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use sheaf_testbed::IoError;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The columns, the most useful of those of `raw.csv`.
const SCHEMA: &str = "message runs {
    required binary trial (UTF8);
    required int64 iteration;
    required int64 attempt;
    required binary rejected (UTF8);
    required int64 seed;
    required double generation_s;
    required int64 announced;
    required int64 lost;
    required int64 out_of_order;
    required double offered_mbit_s;
    required double goodput_mbit_s;
    required double latency_us_p50;
    required double latency_us_p99;
    required double latency_us_max;
}";

/// Reasons why runs are not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The file cannot be made.
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

/// Writes `runs` to `path`.
///
/// # Errors
///
/// What writing gives.
pub(super) fn write(path: &Path, runs: &[RunResult]) -> Result<(), WriteError> {
    let file = File::create(path).map_err(IoError::of(format!("make {}", path.display())))?;
    write_to(file, runs).map_err(|error| WriteError::Rows {
        path: path.to_owned(),
        why: error.to_string(),
    })
}

fn write_to(file: File, runs: &[RunResult]) -> Result<(), ParquetError> {
    let schema = Arc::new(parse_message_type(SCHEMA)?);
    let mut writer =
        SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::default()))?;
    let mut group = writer.next_row_group()?;
    let text = |value: &dyn Fn(&RunResult) -> String| -> Vec<ByteArray> {
        runs.iter()
            .map(|run| ByteArray::from(value(run).into_bytes()))
            .collect()
    };
    let whole = |value: &dyn Fn(&RunResult) -> u64| -> Vec<i64> {
        runs.iter()
            .map(|run| i64::try_from(value(run)).unwrap_or(i64::MAX))
            .collect()
    };
    let real = |value: &dyn Fn(&RunResult) -> f64| -> Vec<f64> { runs.iter().map(value).collect() };
    put::<ByteArrayType>(&mut group, &text(&|run| run.trial.clone()))?;
    put::<Int64Type>(&mut group, &whole(&|run| run.iteration.into()))?;
    put::<Int64Type>(&mut group, &whole(&|run| run.attempt.into()))?;
    put::<ByteArrayType>(
        &mut group,
        &text(&|run| run.rejected.clone().unwrap_or_default()),
    )?;
    put::<Int64Type>(&mut group, &whole(&|run| run.seed))?;
    put::<DoubleType>(&mut group, &real(&|run| run.generation_s))?;
    put::<Int64Type>(&mut group, &whole(&|run| run.announced))?;
    put::<Int64Type>(&mut group, &whole(&|run| run.lost))?;
    put::<Int64Type>(&mut group, &whole(&|run| run.out_of_order))?;
    put::<DoubleType>(&mut group, &real(&|run| run.offered_mbit_s))?;
    put::<DoubleType>(&mut group, &real(&|run| run.goodput_mbit_s))?;
    put::<DoubleType>(&mut group, &real(&|run| run.latency_us.p50))?;
    put::<DoubleType>(&mut group, &real(&|run| run.latency_us.p99))?;
    put::<DoubleType>(&mut group, &real(&|run| run.latency_us.max))?;
    group.close()?;
    writer.close()?;
    Ok(())
}

fn put<T: parquet::data_type::DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        return Err(ParquetError::General(
            "more columns than the schema has".to_owned(),
        ));
    };
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::file::reader::{FileReader as _, SerializedFileReader};

    #[test]
    fn runs_can_be_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("raw.parquet");
        let run = RunResult {
            trial: "001".to_owned(),
            lost: 7,
            ..RunResult::default()
        };
        write(&path, &[run.clone(), run]).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows(), 2);
        let row = reader.get_row_iter(None).unwrap().next().unwrap().unwrap();
        assert!(row.to_string().contains("lost: 7"), "{row}");
    }
}
