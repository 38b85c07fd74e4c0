//! Files of `/proc` and `/sys`, opened once and read again from their begin.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a file at most: more than `/proc/stat` has on a machine of thousands of cores.
const BYTES_MAX: usize = 4 << 20;

/// File that stays open.
#[derive(Debug)]
pub(crate) struct KeptFile {
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl KeptFile {
    /// Opens the file at `path`.
    pub(crate) fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        Ok(Self {
            file: File::open(&path)?,
            buffer: vec![0; 1024],
            path,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file as it is now. Bytes that are no UTF-8 are replaced.
    pub(crate) fn read(&mut self) -> io::Result<Cow<'_, str>> {
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                if length >= BYTES_MAX {
                    let text = format!("found more than {BYTES_MAX} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
                self.buffer.resize(length * 2, 0);
            }
            match self.file.read_at(&mut self.buffer[length..], length as u64) {
                Ok(0) => break,
                Ok(more) => length += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(String::from_utf8_lossy(&self.buffer[..length]))
    }
}

/// Returns the names in a folder that `is_wanted` takes, in the order of their numbers; none if it cannot be read.
pub(crate) fn names(folder: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_wanted(name)).collect();
    names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    names
}

/// Returns the text of a small file without its line feed; empty if it cannot be read.
pub(crate) fn word(path: &Path) -> String {
    std::fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// Returns whether `name` is `prefix` and a number, such as `cpu12`.
pub(crate) fn is_numbered(name: &str, prefix: &str) -> bool {
    number_of(name, prefix).is_some()
}

/// Returns the number behind `prefix`.
pub(crate) fn number_of(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_it_is_now_and_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "a".repeat(5000)).unwrap();
        let mut file = KeptFile::open(&path).unwrap();
        assert_eq!(file.read().unwrap().len(), 5000);
        std::fs::write(&path, b"b\xff\n").unwrap();
        assert_eq!(file.read().unwrap(), "b\u{fffd}\n");
    }

    #[test]
    fn numbered_names_come_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["cpu10", "cpu2", "cpufreq", "cpu"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let found = names(folder.path(), |name| is_numbered(name, "cpu"));
        assert_eq!(found, ["cpu2", "cpu10"]);
    }
}
