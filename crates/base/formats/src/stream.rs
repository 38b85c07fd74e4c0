//! Formats of the files of streams, which the end of the name of a file tells.

use serde::{Deserialize, Serialize};

/// Format of the files of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamFormat {
    /// TFs of Sheaf, each as a TF file (`docs/reference/tf-file.md`), one behind the other.
    #[default]
    Tf,
    /// TFs as DataDistribution writes them (`docs/reference/stf-file.md`), one behind the other.
    StfFile,
    /// Payloads of one FLP alone, one behind the other.
    Raw,
}

impl StreamFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Tf, Self::StfFile, Self::Raw];

    /// Returns the name in farm files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tf => "tf",
            Self::StfFile => "stf-file",
            Self::Raw => "raw",
        }
    }

    /// Returns the end of the names of its files, without the dot.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Tf => "tf",
            Self::StfFile => "stf",
            Self::Raw => "raw",
        }
    }

    /// Returns the format of the file with this name, which may be open still (`.part`): TFs of Sheaf if the name does
    /// not tell.
    #[must_use]
    pub fn of_file(name: &str) -> Self {
        let name = name.strip_suffix(".part").unwrap_or(name);
        let end = name.rsplit_once('.').map_or("", |(_, end)| end);
        let found = Self::ALL.into_iter().find(|it| it.extension() == end);
        found.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_tells_the_format() {
        for (name, format) in [
            ("sheaf.1.main.b0.epn-0.0.tf", StreamFormat::Tf),
            ("sheaf.1.main.b0.epn-0.0.stf", StreamFormat::StfFile),
            ("sheaf.1.main.b0.epn-0.0.stf.part", StreamFormat::StfFile),
            ("sheaf.1.main.b0.epn-0.0.raw", StreamFormat::Raw),
            ("1.main.0.raw.0", StreamFormat::Tf),
            ("raw", StreamFormat::Tf),
        ] {
            assert_eq!(StreamFormat::of_file(name), format, "{name}");
        }
    }
}
