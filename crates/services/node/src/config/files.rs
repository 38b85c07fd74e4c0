//! Whether this machine has the files and folders that a farm file names.

use super::FarmConfig;
use crate::check::{ConfigError, check_socket, for_index};
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_transport::tcp::unix_path;

impl FarmConfig {
    /// Returns the files that nodes of `role` would not find on this machine.
    ///
    /// Relative paths are taken from the working directory.
    #[must_use]
    pub fn check_files(&self, role: Role) -> Vec<ConfigError> {
        match role {
            Role::Icn => self.check_icn_sockets(),
            Role::Operator => Vec::new(),
            Role::Flp => self.check_source_files(),
            Role::Epn => {
                let mut errors = self.check_epn_sockets();
                errors.extend(self.check_sink_files());
                errors
            }
            Role::Writer => self.check_writer_files().into_iter().collect(),
        }
    }

    fn check_writer_files(&self) -> Option<ConfigError> {
        let node = NodeId {
            role: Role::Writer,
            index: 0,
        };
        match &self.writer.files {
            Some(files) => files.check_folder("writer.files", node),
            None => Some(ConfigError::new(
                "writer.files",
                "none",
                "a table [writer.files] with a directory",
            )),
        }
    }

    fn check_icn_sockets(&self) -> Vec<ConfigError> {
        if self.icn.addresses.is_empty() {
            let error = check_node_address("icn.address", &self.icn.address);
            return error.into_iter().collect();
        }
        let addresses = self.icn.addresses.iter().enumerate();
        addresses
            .filter_map(|(index, address)| {
                check_node_address(&format!("icn.addresses[{index}]"), address)
            })
            .collect()
    }

    fn check_epn_sockets(&self) -> Vec<ConfigError> {
        let first = |text: &str| for_index(text, EpnId(0).into());
        let also = self.epn.listen_also.iter();
        check_node_address("epn.listen", &first(&self.epn.listen))
            .into_iter()
            .chain(also.filter_map(|other| check_node_address("epn.listen_also", &first(other))))
            .collect()
    }

    fn check_source_files(&self) -> Vec<ConfigError> {
        if let Some(error) = self.flp.source.table().check_files(FlpId(0).into()) {
            return vec![error];
        }
        let files = self
            .flp
            .source
            .files()
            .unwrap_or_default()
            .iter()
            .enumerate();
        files
            .filter_map(|(index, file)| {
                let key = format!("flp.source.files[{index}]");
                match std::fs::metadata(file) {
                    Err(error) => Some((key, format!("{} ({error})", file.display()))),
                    Ok(found) if found.is_dir() => {
                        Some((key, format!("{} (a directory)", file.display())))
                    }
                    Ok(_) => None,
                }
            })
            .map(|(key, found)| ConfigError::new(key, found, "a file that can be read"))
            .collect()
    }

    fn check_sink_files(&self) -> Option<ConfigError> {
        self.epn.sink.table().check_files(EpnId(0).into())
    }
}

/// Where a node listens. What is no address at all is named as such elsewhere.
fn check_node_address(key: &str, address: &str) -> Option<ConfigError> {
    check_socket(key, unix_path(address)?.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn check(text: &str, role: Role, expected: &str) {
        let text = text.replace("DIR", env!("CARGO_MANIFEST_DIR"));
        let expected = expected.replace("DIR", env!("CARGO_MANIFEST_DIR"));
        let found = match FarmConfig::parse_for(&text, Path::new("f"), &[role]) {
            Ok(_) => String::new(),
            Err(errors) => errors.to_string(),
        };
        assert_eq!(found, expected);
    }

    const FILES: &str = "[flp.source]\nkind = \"file\"\nfiles = [\n  \"DIR/Cargo.toml\",\n  \"DIR/no.raw\",\n  \
                         \"DIR/src\",\n]\n";

    #[test]
    fn a_missing_file_is_named_with_the_line_of_its_entry() {
        check(
            FILES,
            Role::Flp,
            "f:5: flp.source.files[1]: found DIR/no.raw (No such file or directory (os error 2)), expected a \
             file that can be read\n\
             f:6: flp.source.files[2]: found DIR/src (a directory), expected a file that can be read",
        );
        check(FILES, Role::Icn, "");
        check(FILES, Role::Epn, "");
    }

    #[test]
    fn a_missing_folder_is_named() {
        check(
            "[epn.sink]\nkind = \"file\"\ndirectory = \"DIR\"\n",
            Role::Epn,
            "",
        );
        check(
            "[epn.sink]\nkind = \"file\"\ndirectory = \"DIR/no/{epn}\"\n",
            Role::Epn,
            "f:3: epn.sink.directory: found DIR/no/0 (No such file or directory (os error 2)), expected a \
             directory that is there",
        );
        check(
            "[epn.sink]\nkind = \"unix\"\npath = \"DIR/Cargo.toml/s\"\n",
            Role::Epn,
            "f:3: epn.sink.path: found DIR/Cargo.toml (not a directory), expected a directory that is there",
        );
        check(
            "[flp.source]\nkind = \"unix\"\npath = \"DIR/{flp}.sock\"\n",
            Role::Flp,
            "",
        );
    }
}
