//! One point of an experiment, with everything that a run of it needs.

use super::likeness::liken;
use super::venue::Venue;
use super::{Experiment, ExperimentError};
use crate::place::Misfit;
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_bench::serve::{UPLOAD_ENGINE, engine_names, plane_names};
use sheaf_placement::policy;
use sheaf_sim::experiment::{Chaos, LiveSettings};
use sheaf_sim::scenario::{AckLevel, Fault, FaultKind, Mode, Scenario, SizeModel, Subject};
use sheaf_sim::serving::{Method, Serving};
use sheaf_sim::summary::Kind;
use sheaf_testbed::net::Topology;

/// One point of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Name in files: number, mode, source. Empty until a number is assigned.
    pub id: String,
    /// Label for what the other fields do not name.
    pub label: String,
    /// Whether it is measured or computed.
    pub source: Kind,
    /// Where a live one is run, or whose network a simulated one has, if any.
    pub venue: Option<Venue>,
    /// Settings of a live one.
    pub live: LiveSettings,
    /// Everything else. `iterations` and `seed` of it are not used: they are those of the experiment.
    pub scenario: Scenario,
}

/// Legacy rules of choice: what the prior systems had.
pub(crate) const LEGACY_POLICIES: [&str; 2] = ["fixed", "round-robin"];

impl Trial {
    pub(super) fn of(experiment: &Experiment, point: &Scenario) -> Result<Self, ExperimentError> {
        let source = point.source.unwrap_or(Kind::Live);
        let mut scenario = point.clone();
        scenario.name.clone_from(&experiment.name);
        scenario.question.clone_from(&experiment.question);
        scenario.iterations = 1;
        scenario.seed = experiment.seed;
        if let Some(chaos) = &experiment.chaos {
            scenario.faults.extend(disorder(chaos, &scenario));
        }
        let is_farm = point.subject() == Subject::Farm;
        let topology = point.topology.as_deref().filter(|_| is_farm);
        let topology = topology.map(Topology::find).transpose()?;
        let venue = match (source, &experiment.hosts, topology) {
            // Writers and servers run here, or nowhere.
            _ if !is_farm => None,
            (Kind::Live, Some(hosts), _) => Some(Venue::Hosts(hosts.clone())),
            (Kind::Live, None, None) => {
                let expected = "the name of a topology for live points, or source = \"sim\"";
                return Err(experiment.value("topology", "none", expected));
            }
            (Kind::Sim, _, Some(topology)) => {
                liken(&mut scenario, &topology, experiment)
                    .map_err(|wrong| experiment.value(wrong.key, wrong.found, wrong.expected))?;
                Some(Venue::Net(topology))
            }
            (_, _, topology) => topology.map(Venue::Net),
        };
        let trial = Self {
            id: String::new(),
            label: point.label.clone(),
            source,
            venue,
            live: experiment.live.clone(),
            scenario,
        };
        trial.check(experiment)?;
        Ok(trial)
    }

    /// Gives it its name in files.
    pub(super) fn number(&mut self, number: usize) {
        let scenario = &self.scenario;
        if let Some(writing) = &scenario.writing {
            let input = match writing.trace.is_empty() {
                true => writing.mix.as_str(),
                false => "trace",
            };
            let writers = match writing.writers {
                1 => String::new(),
                writers => format!("{writers}x{}-{}-", scenario.epns, scenario.policy),
            };
            self.id = format!(
                "{number:03}-writers-{}-{input}-{writers}{}w-{}",
                source_name(self.source),
                writing.workers,
                writing.assignment
            );
            return;
        }
        if let Some(serving) = &scenario.serving {
            self.id = format!("{number:03}-servers-{}-{}", serving.plane, serving.id());
            return;
        }
        let mode = match scenario.mode {
            Mode::Sheaf => "sheaf",
            Mode::Legacy => "legacy",
        };
        let source = source_name(self.source);
        self.id = format!(
            "{number:03}-{mode}-{source}-{}x{}-{}hz-{}b",
            scenario.flps,
            scenario.epns,
            hz(scenario.rate_hz),
            scenario.size.bytes
        );
    }

    /// How the point is called in results: its label, or what its writers or servers are asked.
    #[must_use]
    pub fn point_label(&self) -> String {
        match self.scenario.subject() {
            Subject::Servers(serving) if self.label.is_empty() => serving.load(),
            Subject::Writers(writing) if self.label.is_empty() => {
                let epns = match writing.writers {
                    1 => String::new(),
                    writers => format!(", {writers} writers, {} EPNs", self.scenario.epns),
                };
                format!(
                    "{}, {} workers{epns}",
                    writing.input_name(),
                    writing.workers
                )
            }
            _ => self.label.clone(),
        }
    }

    /// Rule of choice in force: the policy of a farm, the assignment of a writer, both of several writers, the plane of
    /// servers.
    #[must_use]
    pub fn rule(&self) -> String {
        let policy = &self.scenario.policy;
        match self.scenario.subject() {
            Subject::Writers(writing) if writing.writers == 1 => writing.assignment.clone(),
            Subject::Writers(writing) => format!("{policy}, {}", writing.assignment),
            Subject::Servers(serving) => serving.plane.clone(),
            Subject::Farm => policy.clone(),
        }
    }

    /// How the rules in force are called in results.
    #[must_use]
    pub fn mode_name(&self) -> String {
        match self.scenario.subject() {
            Subject::Writers(_) => return "writers".to_owned(),
            Subject::Servers(_) => return "servers".to_owned(),
            Subject::Farm => {}
        }
        self.scenario.mode_name()
    }

    /// Bits that the sources make in a second, in Mbit/s.
    #[must_use]
    pub fn offered_mbit_s(&self) -> f64 {
        self.scenario.offered_mbit_s()
    }

    /// For people: what it is, in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let scenario = &self.scenario;
        if let Some(writing) = &scenario.writing {
            let workers = match self.source {
                Kind::Live => format!("live, 1:{} emulated", writing.scale),
                Kind::Sim => "simulated".to_owned(),
            };
            return format!(
                "{}: {}, {} MB/s a worker, {workers}, {} s",
                self.point_label(),
                self.rule(),
                writing.worker_mb_s,
                scenario.duration_s
            );
        }
        if let Some(serving) = &scenario.serving {
            return format!(
                "{}: {}, {} servers ({}), {} hosts, objects of {} B, 1:{}, {} s",
                self.point_label(),
                serving.plane,
                serving.servers,
                serving.engine,
                serving.client_hosts,
                serving.object_bytes,
                serving.scale,
                scenario.duration_s
            );
        }
        let place = match (self.source, &self.venue) {
            (Kind::Live, Some(venue)) => venue.name().to_owned(),
            (Kind::Sim, Some(venue)) => format!("simulated {}", venue.name()),
            (_, None) => "simulated".to_owned(),
        };
        format!(
            "{}{} FLP, {} EPN, {} Hz, {} B, {}, {} on {place}, {} s",
            if self.label.is_empty() {
                String::new()
            } else {
                format!("{}: ", self.label)
            },
            scenario.flps,
            scenario.epns,
            hz(scenario.rate_hz),
            scenario.size.bytes,
            scenario.policy,
            self.mode_name(),
            scenario.duration_s
        )
    }

    fn check(&self, experiment: &Experiment) -> Result<(), ExperimentError> {
        self.scenario
            .check()
            .map_err(|error| ExperimentError::Scenario {
                experiment: experiment.name.clone(),
                point: self.line(),
                error: Box::new(error),
            })?;
        match self.scenario.subject() {
            Subject::Servers(serving) => return check_servers(serving, experiment),
            Subject::Farm if self.source == Kind::Live => {}
            Subject::Farm | Subject::Writers(_) => return Ok(()),
        }
        let scenario = &self.scenario;
        let name = &scenario.policy;
        if policy::by_name(name, 1).is_err() {
            let expected = format!("one of: {}", policy::choices());
            return Err(experiment.value("policy", format!("{name:?}"), expected));
        }
        if scenario.mode == Mode::Legacy && !LEGACY_POLICIES.contains(&name.as_str()) {
            let expected = format!("in mode legacy one of: {}", LEGACY_POLICIES.join(", "));
            return Err(experiment.value("policy", format!("{name:?}"), expected));
        }
        if scenario.mode == Mode::Legacy && scenario.processing.ms > 0.0 {
            let expected = "0 for live points in mode legacy, whose EPNs have no consumers";
            return Err(experiment.value("processing.ms", scenario.processing.ms, expected));
        }
        if scenario.ack == AckLevel::Processed && scenario.processing.ms <= 0.0 {
            let expected =
                "built for live points without processing.ms: nothing tells the end of no work";
            return Err(experiment.value("ack", "processed", expected));
        }
        if matches!(scenario.size.model, SizeModel::Trace) {
            let expected = "fixed, random, sine or tpc for live points";
            return Err(experiment.value("size.model", "trace", expected));
        }
        if !scenario.size.beam.is_default() {
            let expected = "no beam for live points, whose sources know sizes by number alone";
            return Err(experiment.value("size.beam", "a beam", expected));
        }
        for fault in &scenario.faults {
            self.check_fault(experiment, fault)?;
        }
        self.check_prior(experiment)?;
        match &self.venue {
            // Which points are run is not known yet: those that are, are checked then.
            Some(Venue::Hosts(_)) | None => Ok(()),
            Some(venue) => self.check_place(experiment, venue),
        }
    }

    fn check_place(&self, experiment: &Experiment, venue: &Venue) -> Result<(), ExperimentError> {
        let Scenario { flps, epns, .. } = self.scenario;
        let wrong = |wrong: Misfit| experiment.value(wrong.key, wrong.found, wrong.expected);
        venue.place(flps, epns).map(drop).map_err(wrong)
    }

    /// Whether it can be run on hosts, if that is where it is to be run.
    ///
    /// # Errors
    ///
    /// [`ExperimentError::Value`].
    pub(super) fn check_on_hosts(&self, experiment: &Experiment) -> Result<(), ExperimentError> {
        let is_here = self.source == Kind::Live && experiment.hosts.is_some();
        let expected = "simulated writers, or a farm, with --hosts; `--only` leaves the others out";
        match self.scenario.subject() {
            Subject::Writers(_) if is_here => {
                return Err(experiment.value("writing", "live writers", expected));
            }
            Subject::Servers(_) if is_here => {
                return Err(experiment.value("serving", "servers", expected));
            }
            _ => {}
        }
        let Some(venue @ Venue::Hosts(_)) = &self.venue else {
            return Ok(());
        };
        if self.scenario.mode == Mode::Legacy {
            let expected = "sheaf on hosts; `--only sheaf` leaves the others out";
            return Err(experiment.value("mode", "legacy", expected));
        }
        if self.scenario.processing.ms > 0.0 {
            let expected = "0 on hosts: times of TFs are those of one clock";
            let found = self.scenario.processing.ms;
            return Err(experiment.value("processing.ms", found, expected));
        }
        if let Some(group) = self.scenario.groups.iter().find(|group| group.nic != 1.0) {
            let expected = "1 on hosts: their wires are left alone";
            return Err(experiment.value("groups.nic", group.nic, expected));
        }
        let on_wires =
            |fault: &&Fault| matches!(fault.kind, FaultKind::SlowNic | FaultKind::Partition);
        if let Some(fault) = self.scenario.faults.iter().find(on_wires) {
            let found = format!("{:?}", fault.kind).to_lowercase();
            let expected = "crash, hang or leave on hosts: their wires are left alone";
            return Err(experiment.value("fault.kind", found, expected));
        }
        self.check_place(experiment, venue)
    }

    /// Refuses what the live nodes of the prior systems do not know.
    fn check_prior(&self, experiment: &Experiment) -> Result<(), ExperimentError> {
        let tick = self.scenario.legacy.zookeeper_tick_ms;
        match (self.scenario.mode, tick) {
            (Mode::Legacy, 1..) => {
                let expected = "0 in live points, whose list of EPNs stays as it is";
                Err(experiment.value("legacy.zookeeper_tick_ms", tick, expected))
            }
            _ => Ok(()),
        }
    }

    fn check_fault(&self, experiment: &Experiment, fault: &Fault) -> Result<(), ExperimentError> {
        let can = match self.scenario.mode {
            Mode::Sheaf => "crash, hang, slow-nic, partition or leave for live points",
            Mode::Legacy => "crash or hang for live points in mode legacy",
        };
        let is_possible = match fault.kind {
            FaultKind::Crash | FaultKind::Hang => true,
            FaultKind::SlowNic | FaultKind::Partition | FaultKind::Leave => {
                self.scenario.mode == Mode::Sheaf
            }
            FaultKind::Slow | FaultKind::Stall | FaultKind::Join => false,
        };
        if !is_possible {
            return Err(experiment.value(
                "fault.kind",
                format!("{:?}", fault.kind).to_lowercase(),
                can,
            ));
        }
        if fault.flp.is_some() == fault.epn.is_some() {
            let found = if fault.flp.is_some() {
                "both"
            } else {
                "neither"
            };
            return Err(experiment.value("fault", found, "an FLP or an EPN for live points"));
        }
        Ok(())
    }
}

/// Checks the names that `sheaf bench serve` has.
fn check_servers(serving: &Serving, experiment: &Experiment) -> Result<(), ExperimentError> {
    let uploads = serving.method == Method::Put;
    for (key, found, names) in [
        ("serving.plane", &serving.plane, plane_names()),
        ("serving.engine", &serving.engine, engine_names()),
    ] {
        if !names.contains(&found.as_str()) {
            let expected = format!("one of: {}", names.join(", "));
            return Err(experiment.value(key, format!("{found:?}"), expected));
        }
    }
    if uploads && serving.engine != UPLOAD_ENGINE {
        let found = format!("{:?}", serving.engine);
        let expected = format!("{UPLOAD_ENGINE:?} for uploads");
        return Err(experiment.value("serving.engine", found, expected));
    }
    Ok(())
}

/// Name of a source in the names of files.
fn source_name(source: Kind) -> &'static str {
    match source {
        Kind::Live => "live",
        Kind::Sim => "sim",
    }
}

/// Returns a rate in Hz with at most three decimals, as one that follows from a load has many.
pub(crate) fn hz(rate: f64) -> f64 {
    match rate < 1.0 {
        true => rate,
        false => (rate * 1000.0).round() / 1000.0,
    }
}

/// Kills of nodes by chance, the same for the same seed. The last of them is back before the run ends.
fn disorder(chaos: &Chaos, scenario: &Scenario) -> Vec<Fault> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(scenario.seed);
    let last = scenario.duration_s - chaos.away_s - 1.0;
    let mut faults = Vec::new();
    let mut at_s = chaos.every_s;
    while at_s < last {
        let flps = if chaos.flps { scenario.flps } else { 0 };
        let nodes = scenario.epns + flps;
        let drawn = rng.random_range(0..nodes.max(1));
        let flp = drawn.checked_sub(scenario.epns);
        faults.push(Fault {
            at_s,
            within_s: 0.0,
            kind: FaultKind::Crash,
            flp,
            epn: flp.is_none().then_some(drawn),
            for_s: Some(chaos.away_s),
            factor: None,
        });
        at_s += chaos.every_s;
    }
    faults
}
