//! TF files as DataDistribution writes them: several TFs a file, a new one when it is large enough.

use super::handle::SinkHandle;
use super::vectored::write_all_vectored;
use super::{DeliverError, Delivery, Opening, Patience, Sink, SinkError, SinkKind, recomputed};
use crate::check::{Check, ConfigError, check_directory, path_for};
use crate::event::FileEvent;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sheaf_formats::Findings;
use sheaf_formats::stf_file::{FileTfs, TfImage, TfName};
use sheaf_protocol::Tf;
use sheaf_protocol::{Digest, EpnId, FlpId, NodeId, PayloadFormat, RunId};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// Writes `DIRECTORY/run-RUN/o2_rawtf_runNNNNNNNN_tfNNNNNNNN_epnNNN.tf`, in the layout of `docs/reference/stf-file.md`.
///
/// A file has another name, which ends in `.epnN.stf-part`, until it is closed: when it has its size, when the run
/// changes and when the node ends. TFs in it are delivered all the same, so a crash must not lose them: what it
/// leaves is cut behind its last whole TF and gets its name when the EPN of that index starts again.
#[derive(Debug)]
pub struct StfFiles {
    directory: PathBuf,
    epn: EpnId,
    fsync: bool,
    /// A file that has this much gets no further TF.
    roll_bytes: u64,
    open: Option<Open>,
}

/// The file that is being written.
#[derive(Debug)]
struct Open {
    file: File,
    run: RunId,
    part: PathBuf,
    /// Name of the file once it is closed.
    name: PathBuf,
    /// Bytes of the TFs in it.
    bytes: u64,
}

impl StfFiles {
    /// Writes into `directory`, which is there. With `fsync` a TF counts as delivered when it is on the disk.
    ///
    /// # Errors
    ///
    /// [`SinkError::Directory`] if the directory is not there, or what a crash has left in it cannot be named.
    pub fn open(
        directory: PathBuf,
        epn: EpnId,
        fsync: bool,
        roll_bytes: u64,
    ) -> Result<Self, SinkError> {
        match recover_all(&directory, &part_suffix(epn)) {
            Ok(0) => {}
            Ok(files) => info!(
                files,
                "TF files of an earlier life are closed behind their last whole TF"
            ),
            Err(source) => {
                return Err(SinkError::Directory {
                    path: directory,
                    source,
                });
            }
        }
        Ok(Self {
            directory,
            epn,
            fsync,
            roll_bytes,
            open: None,
        })
    }

    /// Writes `tf`. Returns its bytes as they stand in the file.
    fn write(&mut self, tf: &Tf<Bytes>) -> Result<FileEvent, DeliverError> {
        let is_last_of_file = |open: &Open| open.run != tf.run || open.bytes >= self.roll_bytes;
        if self.open.as_ref().is_some_and(is_last_of_file) {
            self.close()?;
        }
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.begin(tf)?,
        };
        let written = self.append(&mut open, tf);
        let path = open.part.clone();
        self.open = Some(open);
        let written = written.map_err(|source| DeliverError::Write { path, source })?;
        // A file without room for another TF need not wait for one to get its name. The TF is written either way: an
        // error would bring it once more.
        if self
            .open
            .as_ref()
            .is_some_and(|open| open.bytes >= self.roll_bytes)
            && let Err(error) = self.close()
        {
            warn!(%error, "A TF file does not get its name yet");
        }
        Ok(written)
    }

    /// Creates a new file under an unused name.
    fn begin(&self, tf: &Tf<Bytes>) -> Result<Open, DeliverError> {
        let folder = self.directory.join(format!("run-{}", tf.run));
        let name = TfName::new(tf.run, tf.tf, 0);
        let stem = format!(
            "o2_rawtf_run{:08}_tf{:08}_epn{:03}",
            name.run, name.counter, self.epn.0
        );
        let part = folder.join(format!("{stem}{}", part_suffix(self.epn)));
        let make = || match File::create(&part) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.make_folder(&folder)?;
                File::create(&part)
            }
            opened => opened,
        };
        match make().and_then(|file| Ok((file, free_name(&folder, &stem)?))) {
            Ok((file, name)) => Ok(Open {
                file,
                run: tf.run,
                part,
                name,
                bytes: 0,
            }),
            Err(source) => Err(DeliverError::Write { path: part, source }),
        }
    }

    fn append(&self, open: &mut Open, tf: &Tf<Bytes>) -> io::Result<FileEvent> {
        let image = image_of(tf);
        let payloads: Vec<&[u8]> = tf.parts.iter().map(|part| part.payload.as_ref()).collect();
        let mut digest = Digest::default();
        image
            .slices(&payloads)
            .for_each(|slice| digest.update(slice));
        let mut slices: Vec<IoSlice<'_>> = image.slices(&payloads).map(IoSlice::new).collect();
        // Whatever a failure has left behind the last TF is written over by the next try.
        open.file.seek(SeekFrom::Start(open.bytes))?;
        let written = write_all_vectored(&mut open.file, &mut slices, || Ok(()));
        let written = written.and_then(|()| {
            if self.fsync {
                open.file.sync_data()
            } else {
                Ok(())
            }
        });
        match written {
            Ok(()) => open.bytes += image.bytes,
            // The room is needed by others; if it cannot be released, the next try writes over it.
            Err(_) => drop(open.file.set_len(open.bytes)),
        }
        written.map(|()| FileEvent {
            bytes: image.bytes,
            digest: digest.value(),
        })
    }

    /// Gives the file its name. If that fails it stays open, and the next TF tries again.
    fn close(&mut self) -> Result<(), DeliverError> {
        let Some(open) = self.open.take() else {
            return Ok(());
        };
        let done =
            std::fs::rename(&open.part, &open.name).and_then(|()| self.sync_folder(&open.name));
        done.map_err(|source| {
            let path = open.name.clone();
            if open.part.exists() {
                self.open = Some(open);
            }
            DeliverError::Write { path, source }
        })
    }

    fn sync_folder(&self, file: &Path) -> io::Result<()> {
        match file.parent() {
            Some(folder) if self.fsync => File::open(folder)?.sync_all(),
            _ => Ok(()),
        }
    }

    /// Makes the folder of a run. Not the directory itself: if that is gone, a disk is not mounted.
    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        match std::fs::create_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made?,
        }
        self.sync_folder(folder)
    }
}

/// The `[epn.sink]` table with `kind = "stf-file"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StfFileSink {
    /// Where the runs' folders are made. It must be there. `{epn}` stands for the index of the EPN.
    pub directory: PathBuf,
    /// Whether a TF is on the disk, not only with the kernel, before it counts as delivered.
    pub fsync: bool,
    /// A file that has this many bytes gets no further TF; 0: one TF a file.
    pub roll_bytes: u64,
}

impl Default for StfFileSink {
    fn default() -> Self {
        Self {
            directory: PathBuf::new(),
            fsync: false,
            roll_bytes: 4 << 30,
        }
    }
}

impl SinkKind for StfFileSink {
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

    fn open(&self, opening: Opening) -> Result<SinkHandle, SinkError> {
        let epn = opening.target.epn;
        let directory = path_for(&self.directory, epn.into());
        let files = StfFiles::open(directory, epn, self.fsync, self.roll_bytes)?;
        SinkHandle::spawn(Box::new(files), opening.queue_tfs, opening.wake)
    }
}

impl Sink for StfFiles {
    fn name(&self) -> &'static str {
        "stf-file"
    }

    fn deliver(&mut self, tf: &Tf<Bytes>, _: &Patience) -> Result<Delivery, DeliverError> {
        let file = Some(self.write(tf)?);
        Ok(Delivery {
            file,
            ..recomputed(tf)
        })
    }
}

impl Drop for StfFiles {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            warn!(%error, "A TF file keeps the name of an unfinished one; the next start of the EPN gives it its own");
        }
    }
}

/// Lays `tf` out as it stands in a file that is written now.
pub(super) fn image_of(tf: &Tf<Bytes>) -> TfImage {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = now.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    });
    let parts: Vec<(FlpId, PayloadFormat, &[u8])> = tf
        .parts
        .iter()
        .map(|part| (part.source.flp, part.format, part.payload.as_ref()))
        .collect();
    TfImage::new(TfName::new(tf.run, tf.tf, ms), &parts)
}

fn part_suffix(epn: EpnId) -> String {
    format!(".epn{}.stf-part", epn.0)
}

/// A name for a file that is not taken: a former life may have written the same first TF.
fn free_name(folder: &Path, stem: &str) -> io::Result<PathBuf> {
    let first = folder.join(format!("{stem}.tf"));
    let further = (2..=999).map(|life| folder.join(format!("{stem}_{life}.tf")));
    for name in std::iter::once(first).chain(further) {
        if !name.try_exists()? {
            return Ok(name);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Closes what a crash has left of files whose names end in `suffix`. Gives their number.
fn recover_all(directory: &Path, suffix: &str) -> io::Result<usize> {
    let mut recovered = 0;
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
            let name = file.file_name();
            if let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(suffix)) {
                recover(&folder.path(), &file.path(), stem)?;
                recovered += 1;
            }
        }
    }
    Ok(recovered)
}

/// Cuts the file behind its last whole TF and gives it its name; one without a whole TF is removed.
fn recover(folder: &Path, part: &Path, stem: &str) -> io::Result<()> {
    let bytes = std::fs::read(part)?;
    let mut tfs = FileTfs::new(&bytes);
    let mut findings = Findings::default();
    let mut whole = 0;
    while let Some(tf) = tfs.next_good(&mut findings) {
        whole = (tf.offset + tf.bytes) as u64;
    }
    if whole == 0 {
        return std::fs::remove_file(part);
    }
    let file = OpenOptions::new().write(true).open(part)?;
    file.set_len(whole)?;
    file.sync_all()?;
    std::fs::rename(part, free_name(folder, stem)?)
}
