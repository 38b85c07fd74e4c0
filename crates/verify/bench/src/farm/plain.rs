//! The plain pair: `plain_tcp`, a program of its own, run once for a size.

use super::options::{Options, Security};
use crate::Missing;
use crate::cpus::Cpus;
use anyhow::{Context as _, bail};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Name of the program, beside this one.
const PROGRAM: &str = "plain_tcp";

/// Where the plain pair is.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    program: PathBuf,
}

/// Report of one run of the pair: a part of its JSON (`tools/peers/plain_tcp/README.md`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(crate) struct PlainRun {
    /// Messages in the window.
    pub(crate) messages: u64,
    /// Length of the window.
    pub(crate) seconds: f64,
    /// Payload, in 10⁶ bytes.
    pub(crate) mb_per_s: f64,
    /// CPU time of both processes for 10⁹ payload bytes.
    pub(crate) cpu_s_per_gb: f64,
    /// Peak resident memory of both together.
    pub(crate) rss_bytes_max: u64,
    /// Busy time of the machine ÷ CPU time of both processes.
    pub(crate) machine_busy_ratio: f64,
    /// Congestion control in force.
    pub(crate) congestion: String,
}

impl Peer {
    /// The program `given`, or the one beside this program.
    ///
    /// # Errors
    ///
    /// Where it was looked for, and how it is built.
    pub(crate) fn find(given: Option<&Path>) -> anyhow::Result<Self> {
        let program = match given {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()
                .context("cannot find the path of this program")?
                .with_file_name(PROGRAM),
        };
        if !program.is_file() {
            return Err(Missing(format!(
                "there is no {}, the plain pair to compare with: build it with `cargo build --release -p {PROGRAM}`, \
                 or say where it is with --peer PATH",
                program.display()
            ))
            .into());
        }
        Ok(Self { program })
    }

    /// One run with messages of `bytes`, under TLS where the STFs of the farm are.
    ///
    /// # Errors
    ///
    /// If it cannot be started or fails; what it says stands on the standard error then.
    pub(crate) fn run(
        &self,
        options: &Options,
        cpus: &Cpus,
        bytes: u64,
        security: Security,
    ) -> anyhow::Result<PlainRun> {
        let pin = cpus
            .pair()
            .map_or("none".to_owned(), |[a, b]| format!("{a},{b}"));
        let program = self.program.display();
        let output = Command::new(&self.program)
            .args(["run", "--json", "--bytes", &bytes.to_string()])
            .args(["--seconds", &options.seconds.to_string()])
            .args(["--warm-up-seconds", &options.warm_up_seconds.to_string()])
            .args(["--congestion", &options.congestion, "--pin", &pin])
            .args((security == Security::Tls).then_some("--tls"))
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {program}"))?;
        if !output.status.success() {
            bail!("{program} failed ({})", output.status);
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{program} does not tell what was expected of it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_is_not_there_is_said_how_to_build() {
        let error = Peer::find(Some(Path::new("/nowhere/pair"))).unwrap_err();
        let expected = "there is no /nowhere/pair, the plain pair to compare with: build it with `cargo build \
                        --release -p plain_tcp`, or say where it is with --peer PATH";
        assert_eq!(error.to_string(), expected);
    }
}
