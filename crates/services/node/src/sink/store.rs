//! Ack level `stored`: a TF is a file on the disk before it is reported, and a visible one when it is committed.
//!
//! Three names in the folder of a run: `tf-ID.epnN.part` while it is written, `tf-ID.epnN.LIFE.stored` when it is
//! whole and survives a crash, `tf-ID.tf` when it is committed. Readers look at the last one only. A `.part` of an
//! earlier life is removed; a `.stored` of an earlier life waits for the ICN, because no other node knows
//! whether it is committed. See `docs/adr/2026-11-21-stored-before-built.md`.

use super::disk::{Disk, RealDisk};
use super::vectored::write_all_vectored;
use super::{DeliverError, Delivery, SinkError, recomputed};
use crate::event::{PartEvent, StreamEvent};
use bytes::Bytes;
use sheaf_formats::tf_file::{read_tf_file, tf_file_head};
use sheaf_protocol::control::Recover;
use sheaf_protocol::{Attempt, FlpId, Incarnation, RunId, Source, Target, TfId, crc32c};
use sheaf_protocol::{Part, Tf};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use tracing::{info, warn};

/// Content of a TF in a file: sources of its parts, and missing FLPs.
type Shape = (Vec<Source>, Vec<FlpId>, bool);

/// A TF that was published for a former life of the EPN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The assignment that it was built for.
    pub attempt: Attempt,
    /// Payload bytes.
    pub bytes: u64,
    /// The STFs in it, digests computed from the file.
    pub parts: Vec<PartEvent>,
    /// FLPs of the roster without an STF in it.
    pub missing: Vec<u16>,
    /// Streams that were to have something of it, if the sink has streams.
    pub streams: Vec<StreamEvent>,
}

/// Stores, publishes and clears up the TFs of one life of an EPN.
pub struct TfStore {
    directory: PathBuf,
    target: Target,
    disk: Box<dyn Disk>,
    /// By this life, and not published.
    stored: BTreeMap<(RunId, TfId), Shape>,
    /// By former lives, and not published: each life's file.
    former: BTreeMap<(RunId, TfId), Vec<(Incarnation, PathBuf)>>,
}

impl std::fmt::Debug for TfStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TfStore")
            .field("directory", &self.directory)
            .field("stored", &self.stored.len())
            .field("former", &self.former.len())
            .finish_non_exhaustive()
    }
}

impl TfStore {
    /// Stores into `directory`, which is there, for `target`. Half-written files of earlier lives are removed.
    ///
    /// # Errors
    ///
    /// [`SinkError::Directory`] if the directory is not there or cannot be tidied up.
    pub fn open(directory: PathBuf, target: Target) -> Result<Self, SinkError> {
        Self::open_on(Box::new(RealDisk), directory, target)
    }

    /// As [`open`](Self::open), on any disk.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_on(
        disk: Box<dyn Disk>,
        directory: PathBuf,
        target: Target,
    ) -> Result<Self, SinkError> {
        let mut store = Self {
            directory,
            target,
            disk,
            stored: BTreeMap::new(),
            former: BTreeMap::new(),
        };
        match store.look_through() {
            Ok(()) => Ok(store),
            Err(source) => Err(SinkError::Directory {
                path: store.directory,
                source,
            }),
        }
    }

    /// TFs that former lives have stored and that are neither published nor removed.
    pub fn former(&self) -> impl Iterator<Item = (RunId, TfId)> + '_ {
        self.former.keys().copied()
    }

    fn look_through(&mut self) -> io::Result<()> {
        let part_suffix = format!(".epn{}.part", self.target.epn.0);
        let (mut parts, mut stored) = (0, 0);
        for name in self.disk.names(&self.directory, true)? {
            let Some(run) = name.strip_prefix("run-").and_then(parse_hex) else {
                continue;
            };
            let folder = self.directory.join(&name);
            for file in self.disk.names(&folder, false)? {
                let path = folder.join(&file);
                if file.ends_with(&part_suffix) {
                    self.disk.remove(&path)?;
                    parts += 1;
                } else if let Some((tf, life)) = self.parse_stored(&file) {
                    let files = self.former.entry((RunId(run), tf)).or_default();
                    files.push((life, path));
                    stored += 1;
                }
            }
        }
        if parts > 0 {
            info!(
                files = parts,
                "Half-written TFs of an earlier life are removed"
            );
        }
        if stored > 0 {
            info!(
                files = stored,
                "Stored TFs of an earlier life wait for the word of the ICN"
            );
        }
        Ok(())
    }

    /// `tf-ID.epnN.LIFE.stored` of this EPN.
    fn parse_stored(&self, name: &str) -> Option<(TfId, Incarnation)> {
        let rest = name.strip_prefix("tf-")?.strip_suffix(".stored")?;
        let (tf, rest) = rest.split_once('.')?;
        let (epn, life) = rest.split_once('.')?;
        let is_ours = epn.strip_prefix("epn")? == self.target.epn.0.to_string();
        let life = Incarnation(parse_hex(life)?);
        (is_ours && life != self.target.incarnation).then_some((TfId(tf.parse().ok()?), life))
    }

    fn folder(&self, run: RunId) -> PathBuf {
        self.directory.join(format!("run-{run}"))
    }

    fn published(&self, run: RunId, tf: TfId) -> PathBuf {
        self.folder(run).join(format!("tf-{:012}.tf", tf.0))
    }

    fn stored_path(&self, run: RunId, tf: TfId) -> PathBuf {
        let (epn, life) = (self.target.epn.0, self.target.incarnation.0);
        self.folder(run)
            .join(format!("tf-{:012}.epn{epn}.{life:016x}.stored", tf.0))
    }

    /// Writes `tf` so that it survives a crash of the machine. Consumers do not read it yet.
    ///
    /// # Errors
    ///
    /// [`DeliverError::Write`]; nothing is left of it, and it can be tried again.
    pub fn store(&mut self, tf: &Tf<Bytes>) -> Result<(), DeliverError> {
        let folder = self.folder(tf.run);
        let epn = self.target.epn.0;
        let part = folder.join(format!("tf-{:012}.epn{epn}.part", tf.tf.0));
        let stored = self.stored_path(tf.run, tf.tf);
        self.stored.remove(&(tf.run, tf.tf));
        let written = self.write(&folder, &part, &stored, tf);
        if let Err(source) = written {
            // What is left of it would take the room that the next try needs. If it cannot be removed, it is
            // written over then.
            let _ = self.disk.remove(&part);
            return Err(DeliverError::Write { path: part, source });
        }
        self.stored.insert((tf.run, tf.tf), shape(tf));
        Ok(())
    }

    fn write(&mut self, folder: &Path, part: &Path, to: &Path, tf: &Tf<Bytes>) -> io::Result<()> {
        let mut file = match self.disk.create(part) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // Not the directory itself: if that is gone, a disk is not mounted.
                self.disk.make_folder(folder)?;
                self.disk.sync_folder(&self.directory)?;
                self.disk.create(part)?
            }
            created => created?,
        };
        let head = tf_file_head(tf);
        let payloads = tf.parts.iter().map(|part| IoSlice::new(&part.payload));
        let mut slices: Vec<IoSlice<'_>> =
            [IoSlice::new(&head)].into_iter().chain(payloads).collect();
        write_all_vectored(&mut file, &mut slices, || Ok(()))?;
        file.sync()?;
        drop(file);
        self.disk.rename(part, to)?;
        self.disk.sync_folder(folder)
    }

    /// Makes a committed TF visible. It is stored, unless the commit leaves out parts that were stored with it.
    ///
    /// # Errors
    ///
    /// [`DeliverError::Write`]; it can be tried again.
    pub fn publish(&mut self, tf: &Tf<Bytes>) -> Result<Delivery, DeliverError> {
        if self.stored.get(&(tf.run, tf.tf)) != Some(&shape(tf)) {
            self.store(tf)?;
        }
        let stored = self.stored_path(tf.run, tf.tf);
        self.make_visible(&stored, tf.run, tf.tf)?;
        self.stored.remove(&(tf.run, tf.tf));
        Ok(recomputed(tf))
    }

    fn make_visible(&mut self, stored: &Path, run: RunId, tf: TfId) -> Result<(), DeliverError> {
        let published = self.published(run, tf);
        let renamed = match self.disk.rename(stored, &published) {
            // A former try came as far as the rename.
            Err(error) if error.kind() == ErrorKind::NotFound => match self.disk.read(&published) {
                Ok(Some(_)) => Ok(()),
                _ => Err(error),
            },
            renamed => renamed,
        };
        renamed
            .and_then(|()| self.disk.sync_folder(&self.folder(run)))
            .map_err(|source| DeliverError::Write {
                path: published,
                source,
            })
    }

    /// Removes what this life, or what former lives have stored of a TF.
    ///
    /// # Errors
    ///
    /// [`DeliverError::Write`]; it can be tried again.
    pub fn unstore(&mut self, run: RunId, tf: TfId, by_former: bool) -> Result<(), DeliverError> {
        if by_former {
            return self.remove_former(run, tf);
        }
        self.stored.remove(&(run, tf));
        let path = self.stored_path(run, tf);
        let removed = self.disk.remove(&path);
        removed.map_err(|source| DeliverError::Write { path, source })
    }

    fn remove_former(&mut self, run: RunId, tf: TfId) -> Result<(), DeliverError> {
        for (_, path) in self.former.get(&(run, tf)).into_iter().flatten() {
            if let Err(source) = self.disk.remove(path) {
                let path = path.clone();
                return Err(DeliverError::Write { path, source });
            }
        }
        self.former.remove(&(run, tf));
        Ok(())
    }

    /// Publishes a TF that a former life has stored, or finds it published already. `None`: it is not on this disk,
    /// or not whole.
    ///
    /// # Errors
    ///
    /// [`DeliverError`]; it can be tried again.
    pub fn recover(
        &mut self,
        run: RunId,
        item: &Recover,
    ) -> Result<Option<Recovered>, DeliverError> {
        let tf = item.tf;
        let published = self.published(run, tf);
        if let Some(found) = self.look_at(&published)? {
            // The names may not be safe yet: the former life died between rename and answer.
            self.make_visible(&published, run, tf)?;
            self.remove_former(run, tf)?;
            return Ok(Some(found));
        }
        let files = self.former.get(&(run, tf));
        let of_life = |(life, _): &&(Incarnation, PathBuf)| *life == item.incarnation;
        let Some(path) = files
            .and_then(|files| files.iter().find(of_life))
            .map(|(_, path)| path.clone())
        else {
            self.remove_former(run, tf)?;
            return Ok(None);
        };
        let Some(found) = self.look_at(&path)? else {
            return Ok(None);
        };
        let said: Vec<u16> = item.missing.iter().map(|flp| flp.0).collect();
        if found.missing == said {
            self.make_visible(&path, run, tf)?;
            self.remove_former(run, tf)?;
            return Ok(Some(found));
        }
        self.recover_without(run, item, &path)
    }

    /// Publishes the parts that the verdict has, of a file with others: they came between report and crash, or the file
    /// was written with an older roster.
    fn recover_without(
        &mut self,
        run: RunId,
        item: &Recover,
        path: &Path,
    ) -> Result<Option<Recovered>, DeliverError> {
        let Some(bytes) = self.read(path)? else {
            return Ok(None);
        };
        let Ok(file) = read_tf_file(&bytes) else {
            return Ok(None);
        };
        let has = |flp: &FlpId| file.parts.iter().any(|part| part.source.flp == *flp);
        if !item.parts.iter().all(has) {
            warn!(
                tf_id = item.tf.0,
                "A stored TF lacks parts that its verdict has"
            );
            return Ok(None);
        }
        let keeps = |part: &&Part<&[u8]>| item.parts.contains(&part.source.flp);
        let parts = file.parts.iter().filter(keeps).map(|part| Part {
            source: part.source,
            format: part.format,
            digest: part.digest,
            bytes: part.bytes,
            payload: Bytes::copy_from_slice(part.payload),
        });
        let tf = Tf {
            run,
            tf: item.tf,
            attempt: file.attempt,
            is_redelivered: file.is_redelivered,
            parts: parts.collect(),
            missing: item.missing.clone(),
        };
        let delivery = self.publish(&tf)?;
        self.remove_former(run, item.tf)?;
        Ok(Some(Recovered {
            attempt: tf.attempt,
            bytes: tf.bytes(),
            parts: delivery.parts,
            missing: tf.missing.iter().map(|flp| flp.0).collect(),
            streams: Vec::new(),
        }))
    }

    fn read(&mut self, path: &Path) -> Result<Option<Vec<u8>>, DeliverError> {
        self.disk.read(path).map_err(|source| DeliverError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Returns the content of a file, every byte checked; `None` if it is missing or not whole.
    fn look_at(&mut self, path: &Path) -> Result<Option<Recovered>, DeliverError> {
        let Some(bytes) = self.read(path)? else {
            return Ok(None);
        };
        match read_tf_file(&bytes) {
            Ok(file) => Ok(Some(Recovered {
                attempt: file.attempt,
                bytes: file.bytes(),
                parts: file.parts.iter().map(part_event).collect(),
                missing: file.missing.iter().map(|flp| flp.0).collect(),
                streams: Vec::new(),
            })),
            Err(error) => {
                warn!(path = %path.display(), %error, "A stored TF is damaged");
                Ok(None)
            }
        }
    }
}

fn part_event(part: &Part<&[u8]>) -> PartEvent {
    PartEvent {
        flp: part.source.flp.0,
        incarnation: part.source.incarnation.0,
        bytes: part.payload.len() as u64,
        digest: crc32c(part.payload),
    }
}

fn shape(tf: &Tf<Bytes>) -> Shape {
    let sources = tf.parts.iter().map(|part| part.source).collect();
    (sources, tf.missing.clone(), tf.is_redelivered)
}

fn parse_hex(text: &str) -> Option<u64> {
    (text.len() == 16)
        .then(|| u64::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests;
