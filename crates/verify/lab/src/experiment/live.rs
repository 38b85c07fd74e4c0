//! A live run of the shipped nodes, in the namespaces of a topology or on hosts, counted from their event logs.

mod disturb;

use super::result::{RunResult, WaitsRun};
use super::venue::Stage;
use super::{Experiment, Trial, capacity_bytes};
use crate::accounting;
use crate::farm::consumers::{Work, socket_in};
use crate::farm::{Farm, FarmError, Site, Spot};
use crate::hosted;
use crate::place::{Misfit, Placement};
use crate::records;
use crate::shape::Shape;
use crate::trace::{Outcome, Trace};
pub(crate) use disturb::DisturbError;
use disturb::{Disturber, SlowCards};
use rustix::process::Signal;
use sheaf_figures::stat;
use sheaf_node::config::{
    Ack, DiscardSink, FarmConfig, LedgerBackend, ShmSink, SinkConfig, SourceConfig,
};
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_scheduler::{Delivery, Mode};
use sheaf_sim::des::Waits;
use sheaf_sim::scenario::{AckLevel, Scenario, SizeModel};
use sheaf_stf_builder::flp::{Push, WhenFull};
use sheaf_stf_builder::{GeneratorConfig, SizeModel as Sizes};
use sheaf_testbed::IoError;
use sheaf_testbed::clock::{Interrupted, now_ns, wait_until};
use sheaf_testbed::machine::Folder;
use sheaf_testbed::net::{Net, Place};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Where nodes listen.
const PORT: u16 = 7000;
/// How often the ICN tells how its nodes do, in ms: only peaks of memory are taken from it.
const STATUS_MS: u64 = 50;
/// TFs that may wait for the consumers of an EPN.
const CONSUMER_TFS_MAX: u32 = 1 << 13;
/// How long a farm may take beyond generation and drain.
const FAREWELL_MAX: Duration = Duration::from_secs(10);
/// How long nodes may take to end when the ICN has.
const LAST_MAX: Duration = Duration::from_secs(3);

/// Which run it is.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) iteration: u32,
    pub(crate) attempt: u32,
    pub(crate) seed: u64,
}

impl Turn {
    /// Returns run `iteration` of a point of `experiment`, attempt `attempt`, both from 1: another seed for each, and
    /// the same ones when the experiment is repeated.
    pub(super) fn of(experiment: &Experiment, iteration: u32, attempt: u32) -> Self {
        Self {
            iteration,
            attempt,
            seed: experiment.seed + u64::from(iteration - 1) + 1000 * u64::from(attempt - 1),
        }
    }
}

/// Reasons why a live run is not made.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The venue has no room for the farm.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// A signal asked this process to end.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// An event log cannot be read.
    #[error(transparent)]
    Io(#[from] IoError),
    /// The records of the TFs cannot be read.
    #[error(transparent)]
    Records(#[from] records::live::LiveError),
    /// The farm does not start.
    #[error(transparent)]
    Farm(#[from] FarmError),
    /// A fault is not injected, or not undone.
    #[error(transparent)]
    Disturb(Box<DisturbError>),
    /// The scheduler does not know the reaction.
    #[error("{0}")]
    Reaction(String),
    /// The point gives no sound farm file.
    #[error("point {point}: {why}")]
    Config {
        /// The point.
        point: String,
        /// The first thing that is wrong.
        why: String,
    },
}

impl From<DisturbError> for LiveError {
    fn from(error: DisturbError) -> Self {
        Self::Disturb(Box::new(error))
    }
}

/// Runs `trial` on `stage` once. Its files are in `folder`, and go with it.
///
/// # Errors
///
/// All of [`LiveError`]. What the farm does wrong is in the result.
pub(crate) fn run(
    trial: &Trial,
    stage: &Stage,
    turn: &Turn,
    folder: Folder,
) -> Result<RunResult, LiveError> {
    let begin = Instant::now();
    let began_unix_s = unix_s();
    let spots = spots(stage, trial)?;
    let count_of = |role| spots.keys().filter(|node| node.role == role).count();
    let site = Site {
        shape: Shape {
            flps: count_of(Role::Flp) as u16, // indices are of u16
            epns: count_of(Role::Epn) as u16,
            ..Shape::SMALL
        },
        config: config(trial, turn.seed, folder.path())?,
        weights: weights(&trial.scenario),
        work: Work::of(&trial.scenario, turn.seed),
        spots,
        status_ms: STATUS_MS,
    };
    let _cards = SlowCards::of(&trial.scenario, stage, &site.spots)?;
    let drain = Duration::from_millis(site.config.icn.scheduler.drain_ms);
    let mut farm = Farm::start_at(site, folder)?;
    farm.let_all_end();
    let mut disturber = Disturber::of(trial, turn.seed, now_ns());
    let patience = Duration::from_secs_f64(trial.scenario.duration_s * 1.1) + drain + FAREWELL_MAX;
    let is_over = wait_until::<LiveError>(patience, || {
        farm.reap();
        disturber.act(&mut farm, stage)?;
        Ok(!is_alive(&farm, Some(Role::Icn)))
    })?;
    disturber.heal_all(&mut farm, stage)?;
    if !is_over {
        farm.problems.push(format!(
            "the run was not over after {:.1} s",
            patience.as_secs_f64()
        ));
    }
    wait_until::<Interrupted>(LAST_MAX, || {
        farm.reap();
        Ok(!is_alive(&farm, None))
    })?;
    // A node that returned when the run was over finds no ICN that drains it.
    for node in farm.all_nodes() {
        farm.signal(node, Signal::TERM);
    }
    farm.end()?;
    let mut result = count(trial, &farm, disturber.done())?;
    result.iteration = turn.iteration;
    result.attempt = turn.attempt;
    result.seed = turn.seed;
    result.began_unix_s = began_unix_s;
    result.wall_s = begin.elapsed().as_secs_f64();
    if !result.problems.is_empty() {
        farm.folder().keep();
        let kept = farm.folder().path().display().to_string();
        result.problems.push(format!("logs are in {kept}"));
    }
    Ok(result)
}

fn unix_s() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Whether a process lives, of `role` or of any.
fn is_alive(farm: &Farm, role: Option<Role>) -> bool {
    let of_role = |node: NodeId| role.is_none_or(|role| node.role == role);
    farm.lives
        .iter()
        .any(|life| life.is_living() && of_role(life.node))
}

/// Which place of a network is which node.
pub(crate) struct Cast<'a> {
    pub(crate) icn: &'a Place,
    pub(crate) flps: Vec<&'a Place>,
    pub(crate) epns: Vec<&'a Place>,
}

impl<'a> Cast<'a> {
    /// # Errors
    ///
    /// [`Misfit`] if the farm does not fit; the reader of the experiment has reported it already.
    pub(crate) fn of(trial: &Trial, net: &'a Net) -> Result<Self, Misfit> {
        let scenario = &trial.scenario;
        let placement = Placement::on_topology(net.topology(), scenario.flps, scenario.epns)?;
        let at = |indices: &[usize]| indices.iter().map(|index| &net.places()[*index]).collect();
        Ok(Self {
            icn: &net.places()[placement.icn],
            flps: at(&placement.flps),
            epns: at(&placement.epns),
        })
    }

    /// Where each node stands.
    pub(crate) fn spots(&self, net: &Net) -> BTreeMap<NodeId, Spot> {
        let spot = |place: &Place, listen: String| Spot {
            host: Some(net.host(place)),
            listen,
            ..Spot::default()
        };
        let mut spots = BTreeMap::new();
        // Control goes over the second network if there is one, STFs over the first.
        spots.insert(
            NodeId::ICN,
            spot(self.icn, format!("{}:{PORT}", self.icn.control())),
        );
        for (index, place) in (0..).zip(&self.flps) {
            spots.insert(FlpId(index).into(), spot(place, String::new()));
        }
        for (index, place) in (0..).zip(&self.epns) {
            spots.insert(
                EpnId(index).into(),
                spot(place, format!("{}:{PORT}", place.primary)),
            );
        }
        spots
    }
}

/// The sizes of a scenario as the generator of an FLP makes them.
fn generator(scenario: &Scenario, seed: u64) -> GeneratorConfig {
    let size = &scenario.size;
    let sizes = match size.model {
        SizeModel::Random => Sizes::Random,
        SizeModel::Sine => Sizes::Sine,
        SizeModel::Tpc => Sizes::Lognormal,
        SizeModel::Fixed | SizeModel::Trace => Sizes::Equal,
    };
    GeneratorConfig {
        sizes,
        bytes_mean: size.bytes,
        sine_period_tfs: size.period_tfs.into(),
        sine_amplitude: 1.0,
        lognormal_sigma: size.sigma,
        seed,
        // Room for the largest of them, and so much more that no two begin alike.
        pool_bytes: (16 * size.bytes)
            .clamp(1 << 20, 64 << 20)
            .max(2 * size.bytes),
        ..GeneratorConfig::default()
    }
}

/// The largest STF that live FLPs make of a scenario, in bytes.
pub(super) fn stf_bytes_max(scenario: &Scenario) -> u64 {
    let source = generator(scenario, 0);
    match source.sizes {
        Sizes::Random => source.bytes_mean + source.bytes_mean / 2,
        Sizes::Sine => 2 * source.bytes_mean,
        Sizes::Lognormal => (16 * source.bytes_mean).min(source.pool_bytes),
        Sizes::Equal | Sizes::Trace => source.bytes_mean,
    }
}

/// Weights of the EPNs of a scenario.
fn weights(scenario: &Scenario) -> Vec<f64> {
    let weight = |epn| scenario.group_of(epn).map_or(1.0, |group| group.weight);
    (0..scenario.epns).map(weight).collect()
}

/// Returns the sink of EPNs whose farm has its files in `folder`: consumers, if these take time.
fn sink(scenario: &Scenario, folder: &Path) -> SinkConfig {
    if scenario.processing.ms <= 0.0 {
        return SinkConfig::Discard(DiscardSink {});
    }
    let mut sink = ShmSink {
        path: socket_in(folder),
        ..ShmSink::default()
    };
    if scenario.processing.parallel > 1 {
        // One TF at a time: none waits for a consumer while another one is idle, as in simulations.
        sink.consumer_bytes_max = 1;
        sink.consumers_max = u16::try_from(scenario.processing.parallel).unwrap_or(u16::MAX);
    }
    SinkConfig::Shm(sink)
}

/// The farm file of a trial, but for addresses. The farm has its files in `folder`.
fn config(trial: &Trial, seed: u64, folder: &Path) -> Result<FarmConfig, LiveError> {
    let scenario = &trial.scenario;
    let source = generator(scenario, seed);
    let stf_bytes_max = stf_bytes_max(scenario);
    let tf_bytes_max = u64::from(scenario.flps) * stf_bytes_max;
    let mut config = FarmConfig::default();
    config.security.insecure = true;
    config.run.flps = scenario.flps;
    config.run.epns = scenario.epns;
    config.run.timeframes = scenario.timeframes();
    // The disk of this machine is no part of what is measured: a sync of it can take many seconds beside a build.
    config.icn.ledger.backend = LedgerBackend::Memory;
    let scheduler = &mut config.icn.scheduler;
    scheduler.mode = Mode::Paced;
    scheduler.paced_rate_hz = scenario.rate_hz;
    scheduler.policy.clone_from(&scenario.policy);
    scheduler.reaction = scenario
        .reaction
        .name()
        .parse()
        .map_err(|unknown| LiveError::Reaction(format!("{unknown}")))?;
    scheduler.seed = seed;
    scheduler.stf_bytes_max = stf_bytes_max;
    scheduler.tf_bytes_max = tf_bytes_max;
    scheduler.tf_deadline_ms = trial.live.tf_deadline_ms;
    config.icn.liveness.pulse_ms = scenario.registry.pulse_ms;
    config.icn.liveness.suspect_ms = scenario.registry.suspect_ms;
    config.flp.hold_bytes = scenario.hold_bytes;
    config.flp.stf_bytes_max = stf_bytes_max;
    // Sources of an experiment are detectors: they do not wait.
    config.flp.when_full = WhenFull::DropNewest;
    config.flp.source = SourceConfig::Generator(source);
    config.flp.push = scenario.push;
    if scenario.push == Push::Granted {
        // As simulated ones: all are fetched, whatever their size.
        config.flp.eager_bytes = 0;
        config.epn.build.grants_max = scenario.granted_sources;
    }
    config.epn.build.capacity_bytes = capacity_bytes(&trial.live, scenario);
    config.epn.sink = sink(scenario, folder);
    if scenario.ack == AckLevel::Processed {
        config.epn.ack = Ack::Processed;
        config.icn.delivery = Delivery::AtLeastOnce;
    }
    config.epn.build.tfs_in_building_max = scenario.farm.tfs_in_building_max;
    if scenario.processing.ms > 0.0 {
        // What waits for consumers is bounded by its bytes, as in simulations.
        config.epn.queue_tfs = CONSUMER_TFS_MAX;
    }
    config.transport.huge_pages = false;
    let wrong = config.check();
    match wrong.first() {
        None => Ok(config),
        Some(error) => Err(LiveError::Config {
            point: trial.line(),
            why: error.to_string(),
        }),
    }
}

/// Makes up the result from what the nodes wrote down.
fn count(trial: &Trial, farm: &Farm, faults: u64) -> Result<RunResult, LiveError> {
    let logs = farm.logs();
    let accounting = farm.last_accounting();
    let audit = accounting::audit(&logs, accounting.as_ref())?;
    let trace = Trace::read(&logs, |_| 0)?;
    let mut problems = farm.problems.clone();
    problems.extend(accounting::words(&audit));
    let mut lost_by: BTreeMap<String, u64> = audit.dropped.clone();
    for (cause, lost) in [
        ("incomplete", audit.incomplete),
        ("abandoned", audit.abandoned),
        ("no-verdict", audit.in_flight),
    ] {
        if lost > 0 {
            lost_by.insert(cause.to_owned(), lost);
        }
    }
    let called = || trace.tfs.values().filter_map(|tf| tf.called_ns);
    let first = called().min().unwrap_or(0);
    let last = called().max().unwrap_or(0);
    let generation_s = generation_s(first, last, called().count());
    let whole = || {
        trace
            .tfs
            .values()
            .filter(|tf| tf.outcome == Outcome::Complete)
    };
    let committed = whole()
        .filter_map(|tf| tf.verdict_ns)
        .max()
        .unwrap_or(first);
    let span_s = committed.saturating_sub(first) as f64 / 1e9;
    let mbit_s = |bytes: f64, seconds: f64| {
        if seconds > 0.0 {
            bytes * 8.0 / 1e6 / seconds
        } else {
            0.0
        }
    };
    let mut tfs_by_epn = vec![0_u64; trial.scenario.epns as usize];
    for (epn, _) in whole().filter_map(|tf| tf.delivered_by.first()) {
        if let Some(tfs) = tfs_by_epn.get_mut(usize::from(*epn)) {
            *tfs += 1;
        }
    }
    let peaks = farm.watch().peaks();
    let mut result = RunResult {
        trial: trial.id.clone(),
        rejected: outside(trial, generation_s, audit.announced),
        generation_s,
        announced: audit.announced,
        lost: lost_by.values().sum(),
        lost_by,
        out_of_order: audit.mixed_target,
        mixed_target: audit.mixed_target,
        delivered_twice: audit.delivered_twice,
        offered_mbit_s: trial.offered_mbit_s(),
        goodput_mbit_s: mbit_s(audit.bytes as f64, span_s),
        span_s,
        fairness: stat::jain(&tfs_by_epn),
        tfs_by_epn,
        reassigned: accounting.map_or(0, |accounting| accounting.reassigned),
        flp_peak_bytes: peaks.flp_bytes,
        epn_peak_bytes: peaks.epn_bytes,
        faults,
        problems,
        ..RunResult::default()
    };
    let waits =
        whole().filter_map(|tf| Some(tf.verdict_ns?.saturating_sub(tf.called_ns?) as f64 / 1e3));
    result.set_latencies(waits.collect());
    if trial.scenario.processing.ms > 0.0 {
        let records = records::live::read(farm.path())?;
        let warm_up = (trial.scenario.warm_up_s() * 1e9) as u64;
        let waits = Waits::of(&records.records, warm_up, records.end_ns);
        result.waits = Some(WaitsRun::of(&waits));
    }
    Ok(result)
}

/// How long `count` TFs were called for, from the first at `first` ns to the last at `last` ns and one period.
pub(crate) fn generation_s(first: u64, last: u64, count: usize) -> f64 {
    let between = last.saturating_sub(first) as f64 / 1e9;
    if count < 2 {
        return between;
    }
    between * count as f64 / (count - 1) as f64
}

/// Why the run does not count; `None` if it does: the generation took as long as it was meant to, give or take a
/// percent (29.7 to 30.3 s in the founding report, section 4.1).
pub(crate) fn outside(trial: &Trial, generation_s: f64, announced: u64) -> Option<String> {
    let scenario = &trial.scenario;
    let part = trial.live.window_percent / 100.0;
    let (low, high) = (
        scenario.duration_s * (1.0 - part),
        scenario.duration_s * (1.0 + part),
    );
    if announced != scenario.timeframes() {
        return Some(format!(
            "{announced} TFs were called for, expected {}",
            scenario.timeframes()
        ));
    }
    if (low..=high).contains(&generation_s) {
        return None;
    }
    Some(format!(
        "TFs were called for during {generation_s:.3} s, expected {low:.2} to {high:.2} s"
    ))
}

/// Returns where each node of `trial` stands.
///
/// # Errors
///
/// [`Misfit`] if the farm does not fit; reading the experiment has refused it already.
fn spots(stage: &Stage, trial: &Trial) -> Result<BTreeMap<NodeId, Spot>, Misfit> {
    match stage {
        Stage::Net(net) => Cast::of(trial, net).map(|cast| cast.spots(net)),
        Stage::Hosts(fleet) => hosted::spots(fleet, trial.scenario.flps, trial.scenario.epns),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    fn trial(point: &str) -> Trial {
        let text = format!(
            "name = 'x'\nquestion = '?'\n[base]\ntopology = 'pi-cluster'\n{point}\n[scenario]\nhold_bytes = 16777216"
        );
        Experiment::parse(&text, "x")
            .unwrap()
            .trials()
            .unwrap()
            .remove(0)
    }

    #[test]
    fn the_window_of_the_report_is_29_7_to_30_3_s() {
        let trial = trial("flps = 1\nepns = 6\nrate_hz = 200.0\nbytes = 58000\nduration_s = 30.0");
        for (seconds, announced, is_fine) in [
            (29.7, 6000, true),
            (30.29, 6000, true),
            (29.69, 6000, false),
            (30.31, 6000, false),
            (30.0, 5999, false),
        ] {
            let why = outside(&trial, seconds, announced);
            assert_eq!(why.is_none(), is_fine, "{seconds} s, {announced}: {why:?}");
        }
        assert_eq!(generation_s(0, 5_999 * 5_000_000, 6000), 30.0);
    }

    #[test]
    fn every_point_of_the_report_gives_a_farm_file_that_is_sound() {
        for (flps, epns, rate_hz, bytes) in [
            (1, 6, 50, 238_000),
            (1, 6, 200, 65_000),
            (2, 5, 50, 119_000),
            (2, 5, 200, 32_500),
        ] {
            let point = format!(
                "flps = {flps}\nepns = {epns}\nrate_hz = {rate_hz}.0\nbytes = {bytes}\nduration_s = 30.0"
            );
            let config = config(&trial(&point), 1, Path::new("/tmp/x")).unwrap();
            assert_eq!(config.run.timeframes, rate_hz * 30);
            assert_eq!(config.flp.hold_bytes, 16 << 20);
            let tf_bytes = flps * bytes;
            assert!(config.epn.build.capacity_bytes >= 2 * tf_bytes);
            assert!(matches!(config.epn.sink, SinkConfig::Discard(_)));
        }
    }

    #[test]
    fn consumers_that_take_time_get_tfs_in_shared_memory_each_by_itself() {
        let point = "flps = 1\nepns = 2\nrate_hz = 50.0\nbytes = 1000\nduration_s = 5.0\n\
                     groups = [{ epns = 1, weight = 0.5 }]\nprocessing = { ms = 20.0, parallel = 3 }";
        let trial = trial(point);
        let config = config(&trial, 1, Path::new("/tmp/x")).expect("sound");
        let SinkConfig::Shm(sink) = &config.epn.sink else {
            panic!("{:?}", config.epn.sink)
        };
        assert_eq!(sink.path, Path::new("/tmp/x/consume-{epn}"));
        assert_eq!((sink.consumers_max, sink.consumer_bytes_max), (3, 1));
        assert_eq!(weights(&trial.scenario), [0.5, 1.0]);
    }
}
