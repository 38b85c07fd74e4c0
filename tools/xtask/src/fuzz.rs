//! The stage `fuzz`: every target of `tools/fuzz/libfuzzer` for some seconds.
//!
//! Does what `cargo fuzz` does, without asking for it to be installed: sanitizer and coverage by compiler
//! flags of a nightly toolchain, then the binary of each target on the corpus. Inputs found on the way go to
//! `tools/fuzz/target/found`, where the next run begins with them; those that crash go to `tools/fuzz/artifacts`.
//!
//! Targets that need `sheaf-node` are left to runs that were asked for by `FUZZ_SECONDS`: what it pulls in doubles
//! the time of the build. The test of the corpus runs them always.

use crate::command::{host, root, succeed, typed};
use crate::nightly::nightly;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Instant;

/// How long each target runs, in s, unless the environment variable `FUZZ_SECONDS` says otherwise.
const SECONDS: u32 = 3;

/// The flags of `cargo fuzz` 0.13 for a release build with address sanitizer.
const RUSTFLAGS: [&str; 10] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Zsanitizer=address",
    "-Ccodegen-units=1",
];

/// Downloads what the build needs.
pub(crate) fn fetch() -> Result<()> {
    let mut command = nightly();
    command.args(["fetch", "--locked", "--target", &host()?]);
    succeed(command.arg("--manifest-path").arg(manifest()))
}

/// Builds the targets and runs each, even if one before it failed.
pub(crate) fn run() -> Result<()> {
    let asked = std::env::var("FUZZ_SECONDS").ok();
    let (seconds, is_long) = (seconds(asked.as_deref())?, asked.is_some());
    let manifest =
        fs::read_to_string(manifest()).context("cannot read the manifest of the targets")?;
    let (targets, left_out) = targets(&manifest, is_long)?;
    let start = Instant::now();
    let binaries = build(is_long)?;
    println!(
        "fuzz: built in {:.0} s; {seconds} s for each target",
        start.elapsed().as_secs_f64()
    );
    if !left_out.is_empty() {
        println!(
            "fuzz: left to the test of the corpus and to FUZZ_SECONDS=60: {}",
            left_out.join(" ")
        );
    }
    let mut crashed = Vec::new();
    for target in targets {
        if !run_target(&binaries, &target, seconds)? {
            crashed.push(target);
        }
    }
    ensure!(
        crashed.is_empty(),
        "a promise is broken in: {}",
        crashed.join(" ")
    );
    Ok(())
}

/// Builds what [`run`] runs.
pub(crate) fn build_only() -> Result<bool> {
    build(std::env::var_os("FUZZ_SECONDS").is_some())?;
    Ok(true)
}

fn seconds(text: Option<&str>) -> Result<u32> {
    let Some(text) = text else {
        return Ok(SECONDS);
    };
    let parsed = text.parse().ok().filter(|seconds| *seconds > 0);
    parsed.with_context(|| format!("FUZZ_SECONDS is {text:?}, expected a whole number above 0"))
}

/// The part of the manifest of the targets that is read here.
#[derive(Deserialize)]
struct Manifest {
    bin: Vec<Binary>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Binary {
    name: String,
    #[serde(default)]
    required_features: Vec<String>,
}

/// The names of the targets to run, and of those that are left out because they need more to be built.
fn targets(manifest: &str, all: bool) -> Result<(Vec<String>, Vec<String>)> {
    let manifest: Manifest = toml::from_str(manifest).context("cannot understand the manifest")?;
    let (run, left_out): (Vec<_>, Vec<_>) = manifest
        .bin
        .into_iter()
        .partition(|binary| all || binary.required_features.is_empty());
    let names = |binaries: Vec<Binary>| binaries.into_iter().map(|binary| binary.name).collect();
    Ok((names(run), names(left_out)))
}

fn manifest() -> PathBuf {
    root().join("tools/fuzz/libfuzzer/Cargo.toml")
}

/// Gives the folder of the binaries.
fn build(all: bool) -> Result<PathBuf> {
    let (host, folder) = (host()?, root().join("tools/fuzz/target"));
    let mut command = nightly();
    command.args([
        "build",
        "--release",
        "--locked",
        "--quiet",
        "--target",
        &host,
    ]);
    command.arg("--manifest-path").arg(manifest());
    command.arg("--target-dir").arg(&folder);
    if all {
        command.arg("--all-features");
    }
    // Of the environment, so that proc macros and build scripts stay as they are.
    command.env("RUSTFLAGS", RUSTFLAGS.join(" "));
    succeed(&mut command)?;
    Ok(folder.join(host).join("release"))
}

/// Runs one target and prints a line about it; `false` if it crashed.
fn run_target(binaries: &Path, target: &str, seconds: u32) -> Result<bool> {
    let fuzz = root().join("tools/fuzz");
    let (found, artifacts) = (
        fuzz.join("target/found").join(target),
        fuzz.join("artifacts"),
    );
    for folder in [&found, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut command = Command::new(binaries.join(target));
    // libFuzzer writes new inputs into the first folder, and only reads the others.
    command.arg(found).arg(fuzz.join("corpus").join(target));
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!(
        "-artifact_prefix={}/{target}-",
        artifacts.display()
    ));
    // No decoder may be made to allocate more than this at once by a small input.
    command.args(["-malloc_limit_mb=256", "-rss_limit_mb=2048", "-timeout=5"]);
    command.args(["-print_final_stats=1", "-verbosity=0"]);
    let output = command.output();
    let output = output.with_context(|| format!("cannot run {}", typed(&command)))?;
    let text = String::from_utf8_lossy(&output.stderr);
    println!("fuzz {}", report(target, &output, &text));
    Ok(output.status.success())
}

/// One line about a good run, everything about a crash.
fn report(target: &str, output: &Output, text: &str) -> String {
    let stat = |name| stat(text, name).unwrap_or("?");
    if !output.status.success() {
        return format!("{target:<11} CRASHED with {}\n{text}", output.status);
    }
    format!(
        "{target:<11}{:>10} executions{:>9}/s{:>6} inputs found",
        stat("number_of_executed_units"),
        stat("average_exec_per_sec"),
        stat("new_units_added")
    )
}

/// The value in a line such as `stat::average_exec_per_sec:     408024`.
fn stat<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("stat::"));
    lines
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_found_by_their_whole_name() {
        let text =
            "Done\nstat::number_of_executed_units: 382155\nstat::average_exec_per_sec:     42461\n";
        assert_eq!(stat(text, "average_exec_per_sec"), Some("42461"));
        assert_eq!(stat(text, "number_of_executed_units"), Some("382155"));
        assert_eq!(stat(text, "average_exec"), None);
    }

    #[test]
    fn targets_that_need_more_are_left_to_long_runs() {
        let manifest =
            "[[bin]]\nname = \"a\"\n[[bin]]\nname = \"b\"\nrequired-features = [\"node\"]\n";
        let check = |all, run: &[&str], left_out: &[&str]| {
            let (found, rest) = targets(manifest, all).unwrap();
            assert_eq!(
                (found, rest),
                (
                    run.iter().map(ToString::to_string).collect(),
                    left_out.iter().map(ToString::to_string).collect()
                )
            );
        };
        check(false, &["a"], &["b"]);
        check(true, &["a", "b"], &[]);
    }

    #[test]
    fn the_time_is_a_whole_number_of_seconds() {
        assert_eq!(seconds(None).unwrap(), SECONDS);
        assert_eq!(seconds(Some("60")).unwrap(), 60);
        for bad in ["", "0", "1.5", "long"] {
            let message = seconds(Some(bad)).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("FUZZ_SECONDS is {bad:?}, expected a whole number above 0")
            );
        }
    }
}
