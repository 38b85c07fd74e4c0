//! `sheaf data convert`: TF files of Sheaf, TF files of DataDistribution and raw files, each into the others.

mod output;

use crate::{fail, json_file};
use anyhow::Context as _;
use bytes::Bytes;
use output::Output;
use serde_json::json;
use sheaf_farm::proc;
use sheaf_formats::Findings;
use sheaf_formats::inspect::{FileFormat, UnknownFormat};
use sheaf_formats::stf_file::{Block, Equipment, Excerpt, FileTf, FileTfs, pages_of};
use sheaf_formats::tf_file::read_tf_file;
use sheaf_protocol::PayloadFormat::O2Blocks;
use sheaf_protocol::{Attempt, FlpId, Incarnation, PayloadFormat, RunId, Source, TfId, crc32c};
use sheaf_protocol::{Part, Tf};
use sheaf_stf_builder::{CutConfig, HeapSlots, Made, RawFile, Share, StfSource};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Convert between TF files of Sheaf, TF files of DataDistribution, and raw data.
///
/// The first bytes of an input decide its format. Only whole TFs are converted; faults of an input are printed with
/// their place to the standard error. The output appears under its name when it is whole. Exit status: 0 if all
/// inputs were clean, 1 if one has faults (its good part is converted), 2 if one cannot be read or converted.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sheaf data convert --to stf tfs/run-*/tf-*.tf all.tf        what the sink `file` wrote, for DataDistribution and O2
  sheaf data convert --to tf --flps 3 o2_rawtf.tf tfs/        what DataDistribution wrote, dealt out over 3 FLPs
  sheaf data convert --to stf --orbits-per-tf 32 run.raw run.tf
  sheaf data convert --to raw o2_rawtf.tf run.raw             the pages of all TFs one behind the other")]
pub(crate) struct Args {
    /// Make this format: `stf`, one file as DataDistribution writes it; `tf`, a folder with a TF file of Sheaf for each
    /// TF; `raw`, one file of RDH pages.
    #[arg(long, value_enum)]
    to: To,
    /// Read these inputs, and write the last, the output.
    #[arg(required = true, num_args = 2.., value_name = "INPUT... OUTPUT")]
    files: Vec<PathBuf>,
    /// With `--to tf`: deal equipment of a file of DataDistribution, or links of raw data, over this many FLPs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flps: u16,
    /// With `--to tf`: make STFs of this from a file of DataDistribution: `blocks`, all that is in it, with its
    /// headers; `pages`, RDH pages alone.
    #[arg(long, value_enum, default_value_t = Payload::Blocks)]
    payload: Payload,
    /// Raw data: cut TFs of this many LHC orbits, 88.9 µs each.
    #[arg(long, value_name = "N", default_value = "32")]
    orbits_per_tf: NonZeroU32,
    /// Raw data: begin TF 0 with this orbit; without it, with the first of each file.
    #[arg(long, value_name = "ORBIT")]
    first_orbit: Option<u32>,
    /// Raw data: write this run number.
    #[arg(long, value_name = "N", default_value_t = 0)]
    run: u64,
    /// Overwrite an existing output.
    #[arg(long)]
    force: bool,
    /// Print the outcome as one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum To {
    Stf,
    Tf,
    Raw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Payload {
    Blocks,
    Pages,
}

/// Faults of one file that are named one by one.
const FAULTS_SHOWN_MAX: usize = 20;

/// Runs the command.
///
/// # Errors
///
/// What cannot be read, converted or written; the output is then not there.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Some((output, inputs)) = args.files.split_last() else {
        return Err(fail::bad_use("no output is named"));
    };
    let mut output = Output::begin(output, args.to, args.force)
        .map_err(|error| fail::bad_use(format!("{error:#}")))?;
    let mut faults = 0;
    for path in inputs {
        let bytes = read(path).map_err(|error| fail::bad_use(fail::message(&error)))?;
        let findings = convert(args, path, &Bytes::from(bytes), &mut output)
            .map_err(|error| fail::bad_use(fail::message(&error)))?;
        faults += tell(path, &findings);
    }
    let (tfs, bytes, place) = output.finish()?;
    let value = json!({ "tfs": tfs, "bytes": bytes, "output": place, "faults": faults });
    let text = format!("{tfs} TFs, {bytes} bytes: {}\n", place.display());
    // The output may be closed; the request is done all the same.
    let _ = json_file::print_either(args.json, &value, &text);
    Ok(ExitCode::from(u8::from(faults > 0)))
}

/// The bytes of a file that has any. What never ends, such as `/dev/zero`, or leaves no memory to others is not read.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let memory = proc::memory_available_bytes().unwrap_or(u64::MAX);
    let bytes = read_up_to(path, memory / 4 * 3)
        .with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(
        !bytes.is_empty(),
        "cannot read {}: the file is empty",
        path.display()
    );
    Ok(bytes)
}

fn read_up_to(path: &Path, bytes_max: u64) -> anyhow::Result<Vec<u8>> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = Vec::new();
    if size <= bytes_max {
        bytes.try_reserve(usize::try_from(size)?)?;
        file.take(bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)?;
    }
    // Pipes and devices have no size.
    let found = size.max(bytes.len() as u64);
    anyhow::ensure!(
        found <= bytes_max,
        "it has {found} bytes or more, expected at most {bytes_max}: three quarters of the memory that is free"
    );
    Ok(bytes)
}

/// Names the faults of an input on standard error. Gives their number.
fn tell(path: &Path, findings: &Findings) -> u64 {
    let mut errors = io::stderr();
    for fault in findings.faults.iter().take(FAULTS_SHOWN_MAX) {
        // Where errors cannot be printed, the exit status still shows them.
        let _ = writeln!(errors, "sheaf: {}: {fault}", path.display());
    }
    let faults = findings.faults.len() as u64 + findings.left_out;
    let more = faults.saturating_sub(FAULTS_SHOWN_MAX as u64);
    if more > 0 {
        let _ = writeln!(errors, "sheaf: {}: {more} more faults", path.display());
    }
    faults
}

/// Passes every TF of one input to the output.
fn convert(
    args: &Args,
    path: &Path,
    input: &Bytes,
    output: &mut Output,
) -> anyhow::Result<Findings> {
    let named = || format!("cannot convert {}", path.display());
    match FileFormat::detect(input).ok_or_else(|| UnknownFormat::of(input)) {
        Ok(FileFormat::TfFile) => {
            let tf = read_tf_file(input).with_context(named)?;
            output.add(&owned(&tf, input)).with_context(named)?;
            Ok(Findings::default())
        }
        Ok(FileFormat::StfFile) => of_stf_file(args, input, output).with_context(named),
        Ok(FileFormat::Rdh) => of_raw(args, input, output).with_context(named),
        Ok(other) => anyhow::bail!(
            "{}: it is of format {}, expected rdh, stf-file or tf-file",
            named(),
            other.name()
        ),
        Err(unknown) => Err(unknown).with_context(named),
    }
}

/// The same TF with payloads that share the memory of the input.
fn owned(tf: &Tf<&[u8]>, input: &Bytes) -> Tf<Bytes> {
    let part = |part: &Part<&[u8]>| Part {
        source: part.source,
        format: part.format,
        digest: part.digest,
        bytes: part.bytes,
        payload: input.slice_ref(part.payload),
    };
    Tf {
        run: tf.run,
        tf: tf.tf,
        attempt: tf.attempt,
        is_redelivered: tf.is_redelivered,
        parts: tf.parts.iter().map(part).collect(),
        missing: tf.missing.clone(),
    }
}

/// A part that `flp` would have made of `payload`.
fn part(flp: FlpId, format: PayloadFormat, payload: Bytes) -> Part<Bytes> {
    Part {
        source: Source {
            flp,
            incarnation: Incarnation(0),
        },
        format,
        digest: crc32c(&payload),
        bytes: payload.len() as u64,
        payload,
    }
}

fn tf_of(run: u64, tf: u64, parts: Vec<Part<Bytes>>) -> Tf<Bytes> {
    Tf {
        run: RunId(run),
        tf: TfId(tf),
        attempt: Attempt(1),
        is_redelivered: false,
        parts,
        missing: Vec::new(),
    }
}

/// TFs keep run and counter, and in a file of the same format every byte.
fn of_stf_file(args: &Args, input: &Bytes, output: &mut Output) -> anyhow::Result<Findings> {
    let (mut tfs, mut findings) = (FileTfs::new(input), Findings::default());
    let mut place: u32 = 0;
    while let Some(tf) = tfs.next_good(&mut findings) {
        place = place.saturating_add(1);
        let counter = match tf.counter() {
            0 => place,
            counter => counter,
        };
        let parts = match args.to {
            To::Stf => {
                let whole = Excerpt::new(&[(0, input, &tf)], |_| true);
                vec![part(FlpId(0), O2Blocks, joined(&whole, input))]
            }
            To::Tf | To::Raw => dealt(args, &tf, input).with_context(|| format!("TF {counter}"))?,
        };
        output.add(&tf_of(tf.run().into(), u64::from(counter) - 1, parts))?;
    }
    Ok(findings)
}

/// The STFs of one TF: whole STFs of Sheaf go back to their FLPs, all other equipment is dealt out.
fn dealt(args: &Args, tf: &FileTf, input: &Bytes) -> anyhow::Result<Vec<Part<Bytes>>> {
    let mut parts: Vec<Part<Bytes>> = Vec::new();
    let mut names: BTreeSet<Equipment> = BTreeSet::new();
    for block in &tf.blocks {
        let equipment = block.header.equipment;
        match equipment.flp() {
            Some(flp) => {
                let payload = input.slice(block.payload.clone());
                parts.push(part(flp, equipment.format(), payload));
            }
            None => drop(names.insert(equipment)),
        }
    }
    if !names.is_empty() || tf.blocks.is_empty() {
        for flp in 0..args.flps {
            let share = Share::new(flp, args.flps)?;
            let mine = names.iter().enumerate();
            let mine: BTreeSet<&Equipment> = mine
                .filter(|(at, _)| share.has(*at))
                .map(|(_, name)| name)
                .collect();
            let (format, excerpt) = if args.to == To::Raw || args.payload == Payload::Pages {
                (PayloadFormat::RdhPages, pages(tf, &mine)?)
            } else {
                let wanted = |equipment: &Equipment| mine.contains(equipment);
                (O2Blocks, Excerpt::new(&[(0, input, tf)], wanted))
            };
            if excerpt.blocks > 0 || parts.is_empty() || args.flps > 1 {
                parts.push(part(FlpId(flp), format, joined(&excerpt, input)));
            }
        }
    }
    parts.sort_by_key(|part| part.source.flp);
    if let Some([one, _]) = parts
        .array_windows()
        .find(|[a, b]| a.source.flp == b.source.flp)
    {
        anyhow::bail!(
            "it has an STF of {} and data that would be dealt to it, expected one of both",
            one.source.flp
        );
    }
    Ok(parts)
}

/// The pages of one FLP without headers.
fn pages(tf: &FileTf, mine: &BTreeSet<&Equipment>) -> anyhow::Result<Excerpt> {
    let of_me = |block: &&Block| mine.contains(&block.header.equipment);
    let blocks: Vec<Block> = tf.blocks.iter().filter(of_me).cloned().collect();
    let ranges = pages_of(&blocks)?;
    Ok(Excerpt {
        heads: Vec::new(),
        pieces: ranges.into_iter().map(|range| (0, range)).collect(),
        blocks: blocks.len(),
    })
}

/// The bytes of a payload; those of one piece share the memory of the input.
fn joined(excerpt: &Excerpt, input: &Bytes) -> Bytes {
    match excerpt.pieces.as_slice() {
        [(_, whole)] if excerpt.heads.is_empty() => input.slice(whole.clone()),
        pieces => {
            let mut bytes = excerpt.heads.clone();
            for (_, range) in pieces {
                bytes.extend_from_slice(&input[range.clone()]);
            }
            bytes.into()
        }
    }
}

fn of_raw(args: &Args, input: &Bytes, output: &mut Output) -> anyhow::Result<Findings> {
    let config = CutConfig {
        orbits_per_tf: args.orbits_per_tf,
        first_orbit: args.first_orbit,
    };
    let mut sources = Vec::new();
    let mut found = Findings::default();
    for flp in 0..args.flps {
        let share = Share::new(flp, args.flps)?;
        let (source, findings) = RawFile::new(input.clone(), &config, share);
        sources.push(source);
        found = findings;
    }
    let tfs = sources.iter().map(RawFile::tfs).max().unwrap_or(0);
    for tf in 0..tfs {
        let made = (0..).zip(&mut sources).map(|(flp, source)| {
            let payload = match source.make(TfId(tf), &mut HeapSlots) {
                Made::Payload(payload) => payload.bytes,
                Made::NoRoom | Made::End => Bytes::new(),
            };
            part(FlpId(flp), source.format(), payload)
        });
        output.add(&tf_of(args.run, tf, made.collect()))?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
