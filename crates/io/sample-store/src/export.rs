//! How does a day of samples leave for other programs?
//!
//! As a Parquet file of three columns: labels as a JSON object, time in ms since 1970-01-01 UTC, value.

use crate::disk::Disk;
use crate::layers::Layers;
use crate::level::DAY_MS;
use crate::log::io;
use crate::store::StoreError;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use sheaf_samples::Labels;
use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

const SCHEMA: &str = "message samples {
    required binary labels (UTF8);
    required int64 time (TIMESTAMP_MILLIS);
    required double value;
}";

/// A row group is written when it has so many rows.
const GROUP_ROWS: usize = 1 << 20;

/// Reason why an export fails.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be read, or the file not written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The Parquet library refused.
    #[error("the Parquet file: {0}")]
    Parquet(#[from] ParquetError),
}

#[derive(Default)]
struct Rows {
    labels: Vec<ByteArray>,
    times: Vec<i64>,
    values: Vec<f64>,
}

impl Disk {
    /// Writes all samples of the day that `day_ms` lies in to the Parquet file `path`, by series and time, and returns
    /// their number.
    ///
    /// Everything in memory is sealed first.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written, or the store cannot be read.
    pub fn export_day(&self, day_ms: i64, path: &Path) -> Result<u64, ExportError> {
        let _upkeep = self.lock_upkeep();
        self.seal_all()?;
        let begin_ms = day_ms - day_ms.rem_euclid(DAY_MS);
        let file = File::create_new(path).map_err(io("create", path))?;
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
        let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?;
        let (mut rows, mut total) = (Rows::default(), 0);
        let series = self.read().index.len();
        for id in 0..series {
            let head = self.read();
            let Some(labels) = head.index.labels(id).cloned() else {
                continue;
            };
            let layers = Layers::new(&head.pending, head.flushing.as_deref(), &self.tables);
            let mut samples = Vec::new();
            layers.samples(id, begin_ms, begin_ms + (DAY_MS - 1), &mut samples)?;
            drop(head);
            let text = ByteArray::from(json(&labels).as_str());
            rows.labels.extend(std::iter::repeat_n(text, samples.len()));
            rows.times.extend(samples.iter().map(|one| one.at_ms));
            rows.values.extend(samples.iter().map(|one| one.value));
            total += samples.len() as u64;
            if rows.times.len() >= GROUP_ROWS {
                rows.write(&mut writer)?;
            }
        }
        rows.write(&mut writer)?;
        let file = writer.into_inner()?;
        file.sync_all().map_err(io("sync", path))?;
        Ok(total)
    }
}

impl Rows {
    fn write(&mut self, writer: &mut SerializedFileWriter<File>) -> Result<(), ParquetError> {
        if self.times.is_empty() {
            return Ok(());
        }
        let mut group = writer.next_row_group()?;
        put::<ByteArrayType>(&mut group, &self.labels)?;
        put::<Int64Type>(&mut group, &self.times)?;
        put::<DoubleType>(&mut group, &self.values)?;
        group.close()?;
        *self = Self::default();
        Ok(())
    }
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &[T::T],
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        unreachable!("the schema has three columns");
    };
    column.typed::<T>().write_batch(rows, None, None)?;
    column.close()
}

/// Labels as a JSON object, in the order of their names.
fn json(labels: &Labels) -> String {
    let mut out = String::from("{");
    for (index, (name, value)) in labels.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        put_text(&mut out, name);
        out.push(':');
        put_text(&mut out, value);
    }
    out.push('}');
    out
}

fn put_text(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\0'..'\x20' => write!(out, "\\u{:04x}", u32::from(character)).expect("a string grows"),
            _ => out.push(character),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_json() {
        let labels = Labels::new([("b", "x\"y\\\n"), ("a", "é")]).unwrap();
        assert_eq!(json(&labels), r#"{"a":"é","b":"x\"y\\\u000a"}"#);
    }
}
