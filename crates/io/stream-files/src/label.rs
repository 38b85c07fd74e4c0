//! Checksums of a closed file beside it, for programs that do not read the catalogue.

use rustix::fs::XattrFlags;
use serde_json::{Value, json};
use sheaf_write::{FileName, Sums};
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

/// End of the name of a side-car.
const JSON: &str = ".json";
/// End of the name of a side-car that is being written.
const NEW: &str = ".new";
/// Beginning of the names of extended attributes.
const ATTRIBUTE: &str = "user.sheaf.";

/// Places of the checksums of closed files beside the catalogue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Labels {
    /// A side-car: `NAME.json`.
    pub json: bool,
    /// Extended attributes of the file: `user.sheaf.adler32` and so on.
    pub xattr: bool,
}

/// Facts of a closed file.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    /// Name of the file.
    pub file: &'a str,
    /// Values of the name.
    pub name: &'a FileName,
    /// Records.
    pub records: u64,
    /// Bytes and checksums.
    pub sums: &'a Sums,
}

impl Label<'_> {
    /// Returns the facts as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let (name, sums) = (self.name, self.sums);
        json!({
            "file": self.file,
            "project": name.project,
            "run": name.run,
            "stream": name.stream,
            "block": name.block,
            "node": name.node,
            "seq": name.seq,
            "records": self.records,
            "bytes": sums.bytes,
            "adler32": format!("{:08x}", sums.adler32),
            "crc32c": sums.crc32c.map(|sum| format!("{sum:08x}")),
            "xxh3": sums.xxh3.map(|sum| format!("{sum:016x}")),
        })
    }

    /// Labels the file in `folder`, in place of what a former try has left.
    pub(crate) fn put(&self, folder: &Path, labels: Labels) -> io::Result<()> {
        if labels.xattr {
            let facts = self.json();
            for key in ["records", "bytes", "adler32", "crc32c", "xxh3"] {
                let value = match &facts[key] {
                    Value::Null => continue,
                    Value::String(text) => text.clone(),
                    number => number.to_string(),
                };
                set_attribute(&folder.join(self.file), key, &value)?;
            }
        }
        if labels.json {
            let path = folder.join(side_car(self.file));
            let part = folder.join(side_car(self.file) + NEW);
            let mut file = File::create(&part)?;
            writeln!(file, "{:#}", self.json())?;
            file.sync_data()?;
            std::fs::rename(&part, &path)?;
        }
        Ok(())
    }
}

/// Returns the name of the side-car of a file.
#[must_use]
pub fn side_car(file: &str) -> String {
    file.to_owned() + JSON
}

fn set_attribute(path: &Path, key: &str, value: &str) -> io::Result<()> {
    let key = format!("{ATTRIBUTE}{key}");
    let set = rustix::fs::setxattr(path, key, value.as_bytes(), XattrFlags::empty());
    Ok(set?)
}

/// Tries whether files of the folder of `file` can have extended attributes.
pub(crate) fn probe_attributes(file: &Path) -> io::Result<()> {
    set_attribute(file, "probe", "")
}
