//! Output of a conversion: under another name until it is whole.

use super::To;
use anyhow::{Context as _, bail};
use bytes::Bytes;
use sheaf_formats::stf_file::{TfImage, TfName, TfPayload};
use sheaf_formats::tf_file::tf_file_head;
use sheaf_protocol::Tf;
use sheaf_protocol::{FlpId, PayloadFormat};
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The output of a conversion.
#[derive(Debug)]
pub(super) enum Output {
    /// One file.
    File {
        writer: BufWriter<File>,
        part: PartFile,
        path: PathBuf,
        is_raw: bool,
        tfs: u64,
        bytes: u64,
    },
    /// A folder with a file for each TF.
    Folder {
        path: PathBuf,
        force: bool,
        tfs: u64,
        bytes: u64,
    },
}

impl Output {
    /// Makes the folder, or the file under another name.
    pub(super) fn begin(path: &Path, to: To, force: bool) -> anyhow::Result<Self> {
        let path = path.to_owned();
        if to == To::Tf {
            std::fs::create_dir_all(&path)
                .with_context(|| format!("cannot make the folder {}", path.display()))?;
            return Ok(Self::Folder {
                path,
                force,
                tfs: 0,
                bytes: 0,
            });
        }
        if path.is_dir() || (path.exists() && !force) {
            bail!(
                "{} is there, expected a new file, or --force",
                path.display()
            );
        }
        let part = with_suffix(&path, ".part");
        let file = File::create(&part).with_context(|| cannot_write(&part))?;
        Ok(Self::File {
            writer: BufWriter::with_capacity(1 << 20, file),
            part: PartFile(part),
            path,
            is_raw: to == To::Raw,
            tfs: 0,
            bytes: 0,
        })
    }

    /// Writes one TF.
    pub(super) fn add(&mut self, tf: &Tf<Bytes>) -> anyhow::Result<()> {
        match self {
            Self::File {
                writer,
                part,
                is_raw,
                tfs,
                bytes,
                ..
            } => {
                *bytes += if *is_raw {
                    write_raw(writer, tf).with_context(|| cannot_write(&part.0))?
                } else {
                    write_stf(writer, tf).with_context(|| cannot_write(&part.0))?
                };
                *tfs += 1;
            }
            Self::Folder {
                path,
                force,
                tfs,
                bytes,
            } => {
                let file = path.join(format!("tf-{:012}.tf", tf.tf.0));
                if file.exists() && !*force {
                    bail!(
                        "{} is there, expected a new file, or --force",
                        file.display()
                    );
                }
                *bytes += write_tf(&file, tf).with_context(|| cannot_write(&file))?;
                *tfs += 1;
            }
        }
        Ok(())
    }

    /// Gives the output its name. Tells how many TFs and bytes are in it, and where.
    pub(super) fn finish(self) -> anyhow::Result<(u64, u64, PathBuf)> {
        match self {
            Self::File {
                mut writer,
                part,
                path,
                tfs,
                bytes,
                ..
            } => {
                writer.flush().with_context(|| cannot_write(&part.0))?;
                drop(writer);
                std::fs::rename(&part.0, &path).with_context(|| cannot_write(&path))?;
                Ok((tfs, bytes, path))
            }
            Self::Folder {
                path, tfs, bytes, ..
            } => Ok((tfs, bytes, path)),
        }
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        // What cannot be removed has a name that says that it is not whole.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Half-written file, removed when it is dropped under that name.
#[derive(Debug)]
pub(super) struct PartFile(PathBuf);

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Pages of all parts, in the order of their FLPs.
fn write_raw(writer: &mut BufWriter<File>, tf: &Tf<Bytes>) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for part in &tf.parts {
        let refused = || format!("the STF of {} in TF {}", part.source.flp, tf.tf.0);
        match part.format {
            PayloadFormat::O2Blocks if !part.payload.is_empty() => {
                let blocks = TfPayload::read(&part.payload).with_context(refused)?;
                for pages in blocks.pages().with_context(refused)? {
                    writer.write_all(&part.payload[pages.clone()])?;
                    bytes += pages.len() as u64;
                }
            }
            format if format != PayloadFormat::RdhPages && !part.payload.is_empty() => {
                bail!("{} is {}, expected RDH pages", refused(), format.name());
            }
            _ => {
                writer.write_all(&part.payload)?;
                bytes += part.bytes;
            }
        }
    }
    Ok(bytes)
}

fn write_stf(writer: &mut BufWriter<File>, tf: &Tf<Bytes>) -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ms = now.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    });
    let parts: Vec<(FlpId, PayloadFormat, &[u8])> = tf
        .parts
        .iter()
        .map(|part| (part.source.flp, part.format, part.payload.as_ref()))
        .collect();
    let image = TfImage::new(TfName::new(tf.run, tf.tf, ms), &parts);
    let payloads: Vec<&[u8]> = parts.iter().map(|(_, _, payload)| *payload).collect();
    for slice in image.slices(&payloads) {
        writer.write_all(slice)?;
    }
    Ok(image.bytes)
}

fn write_tf(path: &Path, tf: &Tf<Bytes>) -> anyhow::Result<u64> {
    let part = PartFile(with_suffix(path, ".part"));
    let mut file = File::create(&part.0)?;
    let head = tf_file_head(tf);
    file.write_all(&head)?;
    for part in &tf.parts {
        file.write_all(&part.payload)?;
    }
    std::fs::rename(&part.0, path)?;
    Ok(head.len() as u64 + tf.bytes())
}
