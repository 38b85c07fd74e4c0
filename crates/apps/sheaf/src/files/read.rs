//! `sheaf files read`: the TFs of a file.

use crate::fail;
use crate::progress::{self, Amount, Bar};
use anyhow::Context as _;
use bytes::Bytes;
use serde_json::json;
use sheaf_formats::StreamFormat;
use sheaf_formats::stf_file::{FileTf, NextStf, next_stf};
use sheaf_formats::tf_file::{NextTf, next_tf, tf_file_head};
use sheaf_protocol::Tf;
use sheaf_stream_files::void_tfs;
use sheaf_write::HandoffId;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bytes that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Print the TFs of files, or give them back one file each.
///
/// Every byte is checked, of files of the format stf-file headers and sizes. Files of the format raw are refused: read
/// them with `sheaf data inspect`. Exit status: 0 if all files are whole, 1 if one is damaged or cut; what stands in
/// front of the damage is given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Read these files; those that are still being written as well.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only this TF, or those from the first to before the last.
    #[arg(long, value_name = "ID[..ID]", value_parser = range_of)]
    tf: Option<(u64, u64)>,
    /// Only STFs of these FLPs.
    #[arg(long, value_name = "INDEX", value_delimiter = ',')]
    flp: Vec<u16>,
    /// Also TFs that do not count: copies that writer nodes have of what another one has, or of what is not committed.
    #[arg(long)]
    void: bool,
    /// Write each TF as a file of its own into this folder, which must be there.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Print one JSON object for each TF, one a line.
    #[arg(long)]
    json: bool,
}

fn range_of(text: &str) -> Result<(u64, u64), String> {
    let number = |text: &str| {
        let parsed = text.parse::<u64>();
        parsed.map_err(|_| format!("found `{text}`, expected a number or FIRST..END"))
    };
    match text.split_once("..") {
        Some((first, end)) => Ok((number(first)?, number(end)?)),
        None => number(text).map(|tf| (tf, tf.saturating_add(1))),
    }
}

/// Reads all files.
///
/// # Errors
///
/// A file that cannot be read, or a result that cannot be written.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(folder) = args.to.as_deref().filter(|folder| !folder.is_dir()) {
        return Err(fail::bad_use(format!(
            "found --to {}, expected a folder that is there",
            folder.display()
        )));
    }
    for path in &args.files {
        check_use(args, path)?;
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let mut is_whole = true;
    let length = |path: &PathBuf| path.metadata().map_or(0, |file| file.len());
    let mut bar = Bar::new("read", !args.json);
    for path in &args.files {
        let (files, bytes) = (1, length(path));
        bar.expect(Amount { files, bytes });
    }
    for path in &args.files {
        let whole = match format_of(path) {
            StreamFormat::StfFile => read_stfs(args, path, &mut out, &mut bar),
            StreamFormat::Tf | StreamFormat::Raw => read(args, path, &mut out, &mut bar),
        };
        bar.file(length(path));
        match whole {
            Ok(whole) => is_whole &= whole,
            Err(error) if is_broken_pipe(&error) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error),
        }
    }
    bar.end();
    match out.flush() {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        flushed => flushed.context("cannot write to standard output")?,
    }
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// Returns the format by the name of the file.
fn format_of(path: &Path) -> StreamFormat {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    StreamFormat::of_file(&name)
}

/// Refuses what the format of a file has not.
fn check_use(args: &Args, path: &Path) -> anyhow::Result<()> {
    let file = path.display();
    match format_of(path) {
        StreamFormat::Raw => Err(fail::bad_use(format!(
            "found {file} of the format raw, expected TFs: read it with `sheaf data inspect`"
        ))),
        StreamFormat::StfFile if !args.flp.is_empty() => Err(fail::bad_use(format!(
            "found --flp and {file} of the format stf-file, expected the format tf: blocks do not tell their FLP"
        ))),
        StreamFormat::Tf | StreamFormat::StfFile => Ok(()),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let source = error.downcast_ref::<io::Error>();
    source.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Reads one file. Returns whether it is whole.
fn read(args: &Args, path: &Path, out: &mut impl Write, bar: &mut Bar) -> anyhow::Result<bool> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    let folder = path.parent().unwrap_or(Path::new(""));
    let void = match args.void {
        true => BTreeSet::new(),
        false => void_tfs(folder).with_context(cannot)?,
    };
    let mut offset = 0;
    loop {
        match next_tf(&mut reader).with_context(cannot)? {
            NextTf::End => return Ok(true),
            // Of a file that is being written the end is on its way, or space that was set aside.
            NextTf::Broken(_) if path.extension().is_some_and(|end| end == "part") => {
                return Ok(true);
            }
            NextTf::Broken(error) => {
                out.flush()?;
                tell(path, offset, &error);
                return Ok(false);
            }
            NextTf::Whole(tf, bytes) => {
                let counts = !void.contains(&HandoffId::of_tf(&tf));
                if let Some(tf) = counts.then(|| selected(args, tf)).flatten() {
                    print(args, &tf, offset, out)?;
                }
                offset += bytes;
                show(bar, offset, out)?;
            }
        }
    }
}

/// Shows the bar behind the lines printed so far, if it is time.
fn show(bar: &mut Bar, offset: u64, out: &mut impl Write) -> io::Result<()> {
    if bar.is_due() {
        out.flush()?;
        bar.within(offset);
    }
    Ok(())
}

fn tell(path: &Path, offset: u64, error: &dyn std::fmt::Display) {
    progress::hide();
    // Where errors cannot be printed, the exit status still shows them.
    let _ = writeln!(
        io::stderr(),
        "sheaf: {}: at byte {offset}: {error}",
        path.display()
    );
}

/// Reads one file of TFs as DataDistribution writes them. Returns whether it is whole.
fn read_stfs(
    args: &Args,
    path: &Path,
    out: &mut impl Write,
    bar: &mut Bar,
) -> anyhow::Result<bool> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    let mut offset = 0;
    loop {
        match next_stf(&mut reader).with_context(cannot)? {
            NextStf::End => return Ok(true),
            NextStf::Broken(_) if path.extension().is_some_and(|end| end == "part") => {
                return Ok(true);
            }
            NextStf::Broken(fault) => {
                out.flush()?;
                tell(path, offset, &fault);
                return Ok(false);
            }
            NextStf::Whole(tf, bytes) => {
                // A TF without a block has no number.
                let id = tf.counter().checked_sub(1).map(u64::from);
                let is_in =
                    |(first, end): (u64, u64)| id.is_some_and(|id| (first..end).contains(&id));
                if args.tf.is_none_or(is_in) {
                    print_stf(args, id, &tf, &bytes, offset, out)?;
                }
                offset += bytes.len() as u64;
                show(bar, offset, out)?;
            }
        }
    }
}

fn print_stf(
    args: &Args,
    id: Option<u64>,
    tf: &FileTf,
    bytes: &[u8],
    offset: u64,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    progress::hide();
    if args.json {
        let object = json!({
            "run_number": tf.run(),
            "tf": id,
            "offset": offset,
            "bytes": tf.payload_bytes(),
            "blocks": tf.blocks.len(),
        });
        writeln!(out, "{object}")?;
    } else {
        let name = id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        writeln!(
            out,
            "run number {}  TF {name:>12}  at {offset:>14}  {:>12} bytes in {} blocks",
            tf.run(),
            tf.payload_bytes(),
            tf.blocks.len()
        )?;
    }
    let Some(folder) = &args.to else {
        return Ok(());
    };
    let path = folder.join(match id {
        Some(id) => format!("tf-{id:012}.stf"),
        None => format!("tf-at-{offset:012}.stf"),
    });
    let write = || File::create_new(&path)?.write_all(bytes);
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Returns what is wanted of a TF.
fn selected(args: &Args, mut tf: Tf<Bytes>) -> Option<Tf<Bytes>> {
    let is_in = |(first, end): (u64, u64)| (first..end).contains(&tf.tf.0);
    if !args.tf.is_none_or(is_in) {
        return None;
    }
    if !args.flp.is_empty() {
        tf.parts
            .retain(|part| args.flp.contains(&part.source.flp.0));
        tf.missing.retain(|flp| args.flp.contains(&flp.0));
    }
    Some(tf)
}

fn print(args: &Args, tf: &Tf<Bytes>, offset: u64, out: &mut impl Write) -> anyhow::Result<()> {
    let flps: Vec<u16> = tf.parts.iter().map(|part| part.source.flp.0).collect();
    let digests = tf.parts.iter().map(|part| format!("{:08x}", part.digest));
    let digests: Vec<String> = digests.collect();
    let missing: Vec<u16> = tf.missing.iter().map(|flp| flp.0).collect();
    let line = if args.json {
        let object = json!({
            "run": tf.run.to_string(),
            "tf": tf.tf.0,
            "offset": offset,
            "bytes": tf.bytes(),
            "flps": flps,
            "crc32c": digests,
            "missing": missing,
            "redelivered": tf.is_redelivered,
        });
        object.to_string()
    } else {
        format!(
            "run {}  TF {:>12}  at {offset:>14}  {:>12} bytes of {} FLPs, {} missing",
            tf.run,
            tf.tf.0,
            tf.bytes(),
            flps.len(),
            missing.len()
        )
    };
    progress::hide();
    writeln!(out, "{line}")?;
    let Some(folder) = &args.to else {
        return Ok(());
    };
    let path = folder.join(format!("tf-{:012}.tf", tf.tf.0));
    let write = || {
        let mut file = BufWriter::new(File::create_new(&path)?);
        file.write_all(&tf_file_head(tf))?;
        tf.parts
            .iter()
            .try_for_each(|part| file.write_all(&part.payload))?;
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
