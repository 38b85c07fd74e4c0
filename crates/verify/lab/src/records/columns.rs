//! Records in columns of Parquet: a group of rows a run.

use super::Of;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use sheaf_sim::des::TfRecord;
use std::fs::File;
use std::sync::Arc;

/// Columns that every row has; the others may be null.
const REQUIRED: [&str; 7] = ["point", "label", "seed", "tf", "attempts", "bytes", "fate"];
/// Columns of text.
const TEXTS: [&str; 2] = ["label", "fate"];

/// Writer of a file.
pub(super) struct Writer(SerializedFileWriter<File>);

fn schema() -> String {
    let column = |name: &str| {
        let need = if REQUIRED.contains(&name) {
            "required"
        } else {
            "optional"
        };
        match TEXTS.contains(&name) {
            true => format!("{need} binary {name} (UTF8);"),
            false => format!("{need} int64 {name};"),
        }
    };
    let all = super::COLUMNS.into_iter().chain(TfRecord::COLUMNS);
    format!(
        "message records {{ {} }}",
        all.map(column).collect::<String>()
    )
}

impl Writer {
    pub(super) fn new(file: File) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(&schema())?);
        let properties = Arc::new(WriterProperties::default());
        SerializedFileWriter::new(file, schema, properties).map(Self)
    }

    pub(super) fn add(&mut self, of: &Of<'_>) -> Result<(), ParquetError> {
        let records = of.records;
        let mut group = self.0.next_row_group()?;
        let whole = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let text = |value: &str| ByteArray::from(value.as_bytes().to_vec());
        let same = |value: u64| vec![whole(value); records.len()];
        put::<Int64Type>(&mut group, &same(of.point as u64), None)?;
        put::<ByteArrayType>(&mut group, &vec![text(of.label); records.len()], None)?;
        put::<Int64Type>(&mut group, &same(of.seed), None)?;
        let all = |value: &dyn Fn(&TfRecord) -> u64| -> Vec<i64> {
            records.iter().map(|record| whole(value(record))).collect()
        };
        put::<Int64Type>(&mut group, &all(&|record| record.tf), None)?;
        let mut put_or_null = |value: &dyn Fn(&TfRecord) -> Option<u64>| {
            let values: Vec<Option<u64>> = records.iter().map(value).collect();
            let levels: Vec<i16> = values
                .iter()
                .map(|value| i16::from(value.is_some()))
                .collect();
            let there: Vec<i64> = values.into_iter().flatten().map(whole).collect();
            put::<Int64Type>(&mut group, &there, Some(&levels))
        };
        for at in 0..records.first().map_or(0, |record| record.times().len()) {
            put_or_null(&|record| record.times()[at])?;
        }
        put_or_null(&|record| record.epn.map(u64::from))?;
        put::<Int64Type>(&mut group, &all(&|record| record.attempts.into()), None)?;
        put::<Int64Type>(&mut group, &all(&|record| record.bytes), None)?;
        let fates: Vec<ByteArray> = records
            .iter()
            .map(|record| text(record.fate.name()))
            .collect();
        put::<ByteArrayType>(&mut group, &fates, None)?;
        group.close()?;
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(), ParquetError> {
        self.0.close()?;
        Ok(())
    }
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut column) = group.next_column()? else {
        let text = "more columns than the schema has".to_owned();
        return Err(ParquetError::General(text));
    };
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}
