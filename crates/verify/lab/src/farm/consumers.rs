//! Consumers of the EPNs of a farm: processes that hold each TF for as long as its processing takes.

use super::{Farm, FarmError, last_line};
use sheaf_farm::Process;
use sheaf_protocol::{EpnId, NodeId};
use sheaf_sim::scenario::{Distribution, Processing, Scenario};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Work of the consumers of a farm.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Work {
    processing: Processing,
    /// Bytes of a mean TF.
    tf_bytes: u64,
    /// Times are drawn from it, as in a simulation.
    seed: u64,
    /// Speed of the consumers of each EPN; 1 is ordinary.
    speeds: Vec<f64>,
}

impl Work {
    /// Returns the work of `scenario` in a run of `seed`; `None` if consumers take no time.
    pub(crate) fn of(scenario: &Scenario, seed: u64) -> Option<Self> {
        let speed = |epn| scenario.group_of(epn).map_or(1.0, |group| group.speed);
        (scenario.processing.ms > 0.0).then(|| Self {
            processing: scenario.processing.clone(),
            tf_bytes: scenario.tf_bytes() as u64,
            seed,
            speeds: (0..scenario.epns).map(speed).collect(),
        })
    }

    /// Writes the times of a trace where consumers read them, if times are of one.
    fn write_times(&self, folder: &Path) -> std::io::Result<()> {
        if self.processing.distribution != Distribution::Trace {
            return Ok(());
        }
        let times = self.processing.trace_times.iter();
        let lines: String = times.map(|time| format!("{time}\n")).collect();
        std::fs::write(times_in(folder), lines)
    }

    /// Returns the words of the command of a consumer of `epn`, which listens at `socket`, in a farm that has its files
    /// in `folder`.
    fn words(&self, epn: usize, socket: &Path, folder: &Path) -> Vec<String> {
        let ms = self.processing.ms / self.speeds[epn];
        let spread = match self.processing.distribution {
            Distribution::Trace => format!("trace:{}", times_in(folder).display()),
            _ => self.processing.spread(),
        };
        let mut words = vec![
            "data".to_owned(),
            "consume".to_owned(),
            socket.display().to_string(),
            "--again".to_owned(),
            "--no-check".to_owned(),
            "--wait".to_owned(),
            "1h".to_owned(),
            "--work".to_owned(),
            format!("{ms}ms"),
            "--work-spread".to_owned(),
            spread,
            "--work-seed".to_owned(),
            self.seed.to_string(),
            "--parent".to_owned(),
            std::process::id().to_string(),
        ];
        if self.processing.by_size {
            words.extend(["--work-bytes".to_owned(), self.tf_bytes.to_string()]);
        }
        words
    }
}

/// Consumer of an EPN.
#[derive(Debug)]
pub(super) struct ConsumerProcess {
    epn: NodeId,
    process: Process,
    log: PathBuf,
}

/// Returns the path of the times of a trace, of a farm in `folder`.
fn times_in(folder: &Path) -> PathBuf {
    folder.join("work-times.txt")
}

/// Returns the path at which EPNs of a farm in `folder` listen for consumers, with a place for their index.
pub(crate) fn socket_in(folder: &Path) -> PathBuf {
    folder.join("consume-{epn}")
}

impl Farm {
    /// Starts the consumers of all EPNs. Those of an EPN that dies wait for its next life.
    ///
    /// # Errors
    ///
    /// What the operating system gives.
    pub(super) fn start_consumers(&mut self, work: &Work) -> Result<(), FarmError> {
        let written = work.write_times(self.path());
        written.map_err(FarmError::io("write the times of a trace"))?;
        for index in 0..work.speeds.len() {
            let path = socket_in(self.path()).display().to_string();
            let socket = path.replace("{epn}", &index.to_string());
            for number in 0..work.processing.parallel {
                let mut command = Command::new(&self.program);
                command.args(work.words(index, Path::new(&socket), self.path()));
                command.env_remove("RUST_LOG");
                // A Ctrl-C at the terminal is for the experiment alone.
                command.process_group(0);
                let log = self.path().join(format!("consumer-{index}-{number}.log"));
                let mut process = Process::spawn(command, &log)?;
                process.listen(drop)?;
                let epn = EpnId(index as u16).into(); // indices of EPNs are of u16
                self.consumers.push(ConsumerProcess { epn, process, log });
            }
        }
        Ok(())
    }

    /// Ends all consumers. One that has ended before is a problem.
    pub(super) fn end_consumers(&mut self) {
        for mut consumer in std::mem::take(&mut self.consumers) {
            if let Some(status) = consumer.process.reap() {
                let (epn, words) = (consumer.epn, last_line(&consumer.log));
                self.problems.push(format!(
                    "a consumer of {epn} ended by itself ({status}): {words}"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sheaf_sim::scenario::Group;

    #[test]
    fn a_consumer_works_as_its_epn_does_in_a_simulation() {
        let mut scenario = Scenario {
            flps: 3,
            epns: 2,
            ..Scenario::default()
        };
        assert_eq!(Work::of(&scenario, 7), None, "no work takes no consumer");
        scenario.processing.ms = 30.0;
        scenario.processing.distribution = Distribution::Lognormal;
        scenario.processing.sigma = 0.5;
        scenario.processing.by_size = true;
        scenario.groups = vec![Group {
            epns: 1,
            speed: 2.0,
            nic: 1.0,
            weight: 1.0,
        }];
        let work = Work::of(&scenario, 7).expect("30 ms a TF");
        let folder = tempfile::tempdir().expect("a folder");
        let words_of = |work: &Work, epn| {
            let words = work.words(epn, Path::new("/run/x"), folder.path());
            words.join(" ")
        };
        let words = |epn| words_of(&work, epn);
        let fast = words(0);
        for part in [
            "data consume /run/x ",
            "--work 15ms ",
            "--work-spread lognormal:0.5 ",
            "--work-seed 7 ",
            "--work-bytes 300000",
        ] {
            assert!(fast.contains(part), "{part} in {fast}");
        }
        assert!(words(1).contains("--work 30ms "));

        // Times of a trace are in a file.
        scenario.processing.distribution = Distribution::Trace;
        scenario.processing.set_trace("1\n3\n").expect("a trace");
        let work = Work::of(&scenario, 7).expect("30 ms a TF");
        work.write_times(folder.path()).expect("a file");
        let path = times_in(folder.path()).display().to_string();
        let spread = format!("--work-spread trace:{path} ");
        assert!(words_of(&work, 0).contains(&spread));
        let read = Processing::default().with_spread(&format!("trace:{path}"));
        let read = read.expect("the file of the times");
        assert_eq!(read.trace_times, scenario.processing.trace_times);
    }
}
