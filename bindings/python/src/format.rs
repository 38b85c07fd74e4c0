//! Payload formats by the words that programs use.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sheaf_protocol::PayloadFormat;

/// Returns the word for `format`.
pub(crate) fn word(format: PayloadFormat) -> &'static str {
    match format {
        PayloadFormat::Opaque => "opaque",
        PayloadFormat::RdhPages => "rdh",
        PayloadFormat::Km3netRecords => "km3net",
        PayloadFormat::Xtc2Datagrams => "xtc2",
        PayloadFormat::O2Blocks => "o2-blocks",
    }
}

/// Returns the format of a word.
pub(crate) fn of_word(found: &str) -> PyResult<PayloadFormat> {
    let mut formats = PayloadFormat::ALL.into_iter();
    let format = formats.find(|format| word(*format) == found);
    format.ok_or_else(|| {
        let words = PayloadFormat::ALL.map(word).join(", ");
        PyValueError::new_err(format!("found format={found:?}, expected one of: {words}"))
    })
}
