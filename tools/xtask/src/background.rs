//! Work for processors that would wait: tests of real farms sleep most of their time.
//!
//! A job runs at the lowest priority, so that it takes nothing from the tests, and says nothing until it is asked for.

use crate::command::{target_dir, typed};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Last lines of a job that failed, which its error repeats: those of its failures, and its table of stages.
const REPEATED: usize = 24;

/// One process in the background.
#[derive(Debug)]
pub(crate) struct Job {
    what: String,
    child: Child,
    /// Output of the process.
    log: PathBuf,
}

impl Job {
    /// Starts this program again with other arguments; its output goes to `NAME.log` in the build folder.
    pub(crate) fn of_xtask(name: &str, args: &[&str]) -> Result<Self> {
        // By its number: the build of the tests may have put another file in place of ours.
        let ours = format!("/proc/{}/exe", std::process::id());
        let folder = target_dir();
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Self::start(
            Command::new(ours).args(args),
            folder.join(format!("{name}.log")),
        )
    }

    fn start(command: &Command, log: PathBuf) -> Result<Self> {
        let what = typed(command);
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let err = out.try_clone().context("cannot open the log twice")?;
        let mut nice = Command::new("nice");
        nice.args(["-n", "19"]).arg(command.get_program());
        nice.args(command.get_args());
        nice.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = nice.spawn().with_context(|| format!("cannot run {what}"))?;
        Ok(Self { what, child, log })
    }

    /// Waits for its end and prints what it has said; an error unless it ended well.
    pub(crate) fn finish(mut self) -> Result<()> {
        let status = self.child.wait();
        let status = status.with_context(|| format!("cannot wait for {}", self.what))?;
        let said = read(&self.log);
        print!("{said}");
        let lines: Vec<&str> = said.lines().collect();
        let last = &lines[lines.len().saturating_sub(REPEATED)..];
        ensure!(
            status.success(),
            "{} ended with {status}\n{}",
            self.what,
            last.join("\n")
        );
        Ok(())
    }
}

fn read(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_ends_well_or_its_status_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str, script: &str| {
            let mut command = Command::new("sh");
            let job = Job::start(command.args(["-c", script]), folder.path().join(name));
            job.unwrap().finish()
        };
        run("good", "echo said; echo too >&2").unwrap();
        assert_eq!(read(&folder.path().join("good")), "said\ntoo\n");
        let error = run("bad", "echo said; exit 3").unwrap_err().to_string();
        assert_eq!(
            error,
            "sh -c echo said; exit 3 ended with exit status: 3\nsaid"
        );
    }
}
