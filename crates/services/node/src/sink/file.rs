//! One file a TF: written under another name, and renamed when it is whole.

use super::handle::SinkHandle;
use super::vectored::write_all_vectored;
use super::{
    Ack, DeliverError, Delivery, Opening, Patience, Sink, SinkError, SinkKind, TfStore, recomputed,
};
use crate::check::{Check, ConfigError, check_directory, path_for};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_formats::tf_file::tf_file_head;
use sheaf_protocol::Tf;
use sheaf_protocol::{EpnId, NodeId};
use std::fs::File;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use tracing::info;

/// Writes `DIRECTORY/run-RUN/tf-ID.tf`, in the layout of `docs/reference/tf-file.md`.
///
/// While it is written a file has another name that ends in `.epnN.part`. What a crash leaves of these is removed
/// when the EPN of that index starts again; EPNs may share a directory.
#[derive(Debug)]
pub struct TfFiles {
    directory: PathBuf,
    part_suffix: String,
    fsync: bool,
}

impl TfFiles {
    /// Writes into `directory`, which is there. With `fsync` a TF counts as delivered when it is on the disk.
    ///
    /// # Errors
    ///
    /// [`SinkError::Directory`] if the directory is not there or cannot be tidied up.
    pub fn open(directory: PathBuf, epn: EpnId, fsync: bool) -> Result<Self, SinkError> {
        let part_suffix = format!(".epn{}.part", epn.0);
        match remove_parts(&directory, &part_suffix) {
            Ok(0) => {}
            Ok(files) => info!(files, "Half-written TFs of an earlier life are removed"),
            Err(source) => {
                return Err(SinkError::Directory {
                    path: directory,
                    source,
                });
            }
        }
        Ok(Self {
            directory,
            part_suffix,
            fsync,
        })
    }

    fn write(&self, tf: &Tf<Bytes>) -> Result<(), DeliverError> {
        let folder = self.directory.join(format!("run-{}", tf.run));
        let name = format!("tf-{:012}", tf.tf.0);
        let part = folder.join(format!("{name}{}", self.part_suffix));
        let written = self.write_part(&part, tf).and_then(|()| {
            std::fs::rename(&part, folder.join(format!("{name}.tf")))?;
            if self.fsync {
                File::open(&folder)?.sync_all()
            } else {
                Ok(())
            }
        });
        written.map_err(|source| {
            // What is left of it would take the room that the next try needs. If it cannot be removed, it is
            // written over then.
            let _ = std::fs::remove_file(&part);
            DeliverError::Write { path: part, source }
        })
    }

    fn write_part(&self, part: &Path, tf: &Tf<Bytes>) -> io::Result<()> {
        let mut file = match File::create(part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_folder(part.parent().unwrap_or(&self.directory))?;
                File::create(part)?
            }
            opened => opened?,
        };
        let head = tf_file_head(tf);
        let payloads = tf.parts.iter().map(|part| IoSlice::new(&part.payload));
        let mut slices: Vec<IoSlice<'_>> =
            [IoSlice::new(&head)].into_iter().chain(payloads).collect();
        write_all_vectored(&mut file, &mut slices, || Ok(()))?;
        if self.fsync { file.sync_data() } else { Ok(()) }
    }

    /// Makes the folder of a run. Not the directory itself: if that is gone, a disk is not mounted.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        if self.fsync {
            File::open(&self.directory)?.sync_all()
        } else {
            Ok(())
        }
    }
}

/// The `[epn.sink]` table with `kind = "file"`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct FileSink {
    /// Where the runs' folders are made. It must be there. `{epn}` stands for the index of the EPN.
    pub directory: PathBuf,
    /// Whether a TF is on the disk, not only with the kernel, before it counts as delivered.
    pub fsync: bool,
}

impl SinkKind for FileSink {
    fn check(&self, check: &mut Check) {
        check.that(
            !self.directory.as_os_str().is_empty(),
            "epn.sink.directory",
            "none",
            "a directory that is there",
        );
    }

    fn check_files(&self, node: NodeId) -> Option<ConfigError> {
        check_directory("epn.sink.directory", &path_for(&self.directory, node))
    }

    fn stores(&self) -> bool {
        true
    }

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        let epn = opening.target.epn;
        let directory = path_for(&self.directory, epn.into());
        match opening.ack {
            Ack::Stored => {
                let store = TfStore::open(directory, opening.target)?;
                SinkHandle::spawn_store(store, opening.wake)
            }
            Ack::Built | Ack::Processed => {
                let files = TfFiles::open(directory, epn, self.fsync)?;
                SinkHandle::spawn(Box::new(files), opening.queue_tfs, opening.wake)
            }
        }
    }
}

impl Sink for TfFiles {
    fn name(&self) -> &'static str {
        "file"
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, _: &Patience) -> Result<Delivery, DeliverError> {
        self.write(tf)?;
        Ok(recomputed(tf))
    }
}

/// Removes all files in the folders of runs whose names end in `suffix`. Gives their number.
fn remove_parts(directory: &Path, suffix: &str) -> io::Result<usize> {
    let mut removed = 0;
    for folder in std::fs::read_dir(directory)? {
        let folder = folder?;
        let is_run = folder
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with("run-"));
        if !is_run || !folder.file_type()?.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(folder.path())? {
            let file = file?;
            if file
                .file_name()
                .to_str()
                .is_some_and(|name| name.ends_with(suffix))
            {
                std::fs::remove_file(file.path())?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::super::SinkEvent;
    use super::super::tests::{delivered, tf};
    use super::*;
    use sheaf_formats::tf_file::read_tf_file;
    use sheaf_protocol::TfId;

    const RUN: &str = "run-0000000000000abc";

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_tf_is_a_file_that_can_be_read_back() {
        for fsync in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let mut sink = TfFiles::open(folder.path().into(), EpnId(3), fsync).unwrap();
            let (first, second) = (tf(7, &[b"abc", b"", &[5; 10_000]]), tf(1 << 60, &[]));
            for tf in [&first, &second] {
                let delivery = sink.deliver(tf, &Patience::none()).unwrap();
                assert_eq!(SinkEvent::delivered(tf, delivery), delivered(tf));
            }
            let run = folder.path().join(RUN);
            assert_eq!(
                names(&run),
                ["tf-000000000007.tf", "tf-1152921504606846976.tf"]
            );
            let bytes = std::fs::read(run.join("tf-000000000007.tf")).unwrap();
            let read = read_tf_file(&bytes).unwrap();
            assert_eq!(
                (read.run, read.tf, read.attempt),
                (first.run, first.tf, first.attempt)
            );
            assert_eq!(read.missing, first.missing);
            assert!(
                read.parts
                    .iter()
                    .zip(&first.parts)
                    .all(|(a, b)| a.payload == b.payload && a.source == b.source)
            );
        }
    }

    #[test]
    fn a_half_written_file_is_removed_by_its_own_epn() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join(RUN);
        std::fs::create_dir(&run).unwrap();
        std::fs::create_dir(folder.path().join("run-of-tests.epn3.part")).unwrap();
        for name in [
            "tf-000000000001.epn3.part",
            "tf-000000000002.epn13.part",
            "tf-000000000003.tf",
        ] {
            std::fs::write(run.join(name), "half").unwrap();
        }
        TfFiles::open(folder.path().into(), EpnId(3), false).unwrap();
        assert_eq!(
            names(&run),
            ["tf-000000000002.epn13.part", "tf-000000000003.tf"]
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_named() {
        let error = TfFiles::open("/no/such/folder".into(), EpnId(0), false).unwrap_err();
        let expected =
            "cannot use the directory /no/such/folder: No such file or directory (os error 2)";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn what_fails_leaves_nothing_and_works_when_the_disk_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("disk");
        std::fs::create_dir(&directory).unwrap();
        let mut sink = TfFiles::open(directory.clone(), EpnId(3), false).unwrap();
        std::fs::remove_dir(&directory).unwrap();
        let error = sink
            .deliver(&tf(7, &[b"abc"]), &Patience::none())
            .unwrap_err()
            .to_string();
        let part = directory.join(RUN).join("tf-000000000007.epn3.part");
        let expected = format!(
            "cannot write {}: No such file or directory (os error 2)",
            part.display()
        );
        assert_eq!(error, expected);
        std::fs::create_dir(&directory).unwrap();
        // A directory where the file is to go: it is written, and cannot be renamed.
        let run = directory.join(RUN);
        std::fs::create_dir_all(run.join("tf-000000000007.tf/x")).unwrap();
        sink.deliver(&tf(7, &[b"abc"]), &Patience::none())
            .unwrap_err();
        assert_eq!(names(&run), ["tf-000000000007.tf"]);
        std::fs::remove_dir_all(run.join("tf-000000000007.tf")).unwrap();
        sink.deliver(&tf(7, &[b"abc"]), &Patience::none()).unwrap();
        let bytes = std::fs::read(run.join("tf-000000000007.tf")).unwrap();
        assert_eq!(read_tf_file(&bytes).unwrap().tf, TfId(7));
    }
}
