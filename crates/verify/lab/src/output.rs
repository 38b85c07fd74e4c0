//! Files that an experiment leaves for others.

use serde::Serialize;
use sheaf_testbed::IoError;
use std::path::Path;

/// Writes `value` to `path`, or to the standard output if it is `-`.
///
/// # Errors
///
/// What writing gives.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), IoError> {
    let mut text =
        serde_json::to_string_pretty(value).expect("names and numbers always have a JSON form");
    text.push('\n');
    if path.as_os_str() == "-" {
        use std::io::Write as _;
        return std::io::stdout()
            .write_all(text.as_bytes())
            .map_err(IoError::of("write to the standard output"));
    }
    write(path, &text)
}

/// Writes `contents` to `path`.
///
/// # Errors
///
/// What writing gives.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), IoError> {
    std::fs::write(path, contents).map_err(IoError::of(format!("write {}", path.display())))
}
