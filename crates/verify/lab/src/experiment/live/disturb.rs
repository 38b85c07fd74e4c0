//! Faults of a live run, each at its time.

use super::super::Trial;
use super::super::venue::Stage;
use crate::cell::Fault as Kind;
use crate::farm::{Farm, FarmError, Spot};
use crate::inject::{self, InjectError, Remedy};
use rand::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::process::Signal;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_sim::des;
use sheaf_sim::scenario::{Fault, FaultKind, Scenario};
use sheaf_testbed::clock::now_ns;
use sheaf_testbed::machine::Host;
use sheaf_testbed::rules::Way;
use sheaf_testbed::tool::ToolError;
use std::collections::BTreeMap;
use thiserror::Error;

/// Reasons why a fault of a live run is not injected, or not undone.
#[derive(Debug, Error)]
pub enum DisturbError {
    /// The injection, or what undoes it.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// A node does not start again.
    #[error(transparent)]
    Farm(#[from] FarmError),
    /// The rate of a cable cannot be changed.
    #[error(transparent)]
    Tool(#[from] ToolError),
}

/// Cables of EPNs that are slower for a run than those of the others, as the groups of its scenario have them. They get
/// their rates back when this is dropped.
pub(super) struct SlowCards<'a> {
    stage: &'a Stage,
    hosts: Vec<Host>,
}

impl<'a> SlowCards<'a> {
    /// Makes the cables slower.
    ///
    /// # Errors
    ///
    /// What `tc` says.
    pub(super) fn of(
        scenario: &Scenario,
        stage: &'a Stage,
        spots: &BTreeMap<NodeId, Spot>,
    ) -> Result<Self, DisturbError> {
        let mut cards = Self {
            stage,
            hosts: Vec::new(),
        };
        for (node, spot) in spots {
            let factor = slowness(scenario, *node);
            if let Some(host) = spot.host.as_ref().filter(|_| factor != 1.0) {
                cards.hosts.push(host.clone());
                stage.slow_down(host, factor)?;
            }
        }
        Ok(cards)
    }
}

impl Drop for SlowCards<'_> {
    fn drop(&mut self) {
        for host in &self.hosts {
            if let Err(error) = self.stage.slow_down(host, 1.0) {
                tracing::warn!(%error, "A cable keeps the rate of the last run");
            }
        }
    }
}

/// Returns how much slower the cable of `node` is than the topology has it, by its group.
fn slowness(scenario: &Scenario, node: NodeId) -> f64 {
    let group = match node.role {
        Role::Epn => scenario.group_of(u32::from(node.index)),
        _ => None,
    };
    group.map_or(1.0, |group| 1.0 / group.nic)
}

/// Injects faults, and undoes them.
pub(super) struct Disturber {
    /// Scenario of the run.
    scenario: Scenario,
    /// Still to come, the last one first.
    faults: Vec<Fault>,
    /// When each is undone, in ns.
    remedies: Vec<(u64, Undo)>,
    begin_ns: u64,
    done: u64,
    rng: Xoshiro256PlusPlus,
}

enum Undo {
    Farm(Remedy),
    Launch(NodeId),
    Rate(NodeId),
}

impl Disturber {
    /// The faults of `trial`, drawn from `seed` where their times are; these count from `begin_ns` on.
    pub(super) fn of(trial: &Trial, seed: u64, begin_ns: u64) -> Self {
        let mut faults = des::drawn_faults(&trial.scenario, seed);
        faults.sort_by(|a, b| b.at_s.total_cmp(&a.at_s));
        Self {
            scenario: trial.scenario.clone(),
            faults,
            remedies: Vec::new(),
            begin_ns,
            done: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(trial.scenario.seed),
        }
    }

    /// Faults done so far.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    /// Does and undoes what is due.
    ///
    /// # Errors
    ///
    /// What tools and the operating system say.
    pub(super) fn act(&mut self, farm: &mut Farm, stage: &Stage) -> Result<(), DisturbError> {
        let now = now_ns();
        let due = |fault: &Fault| self.begin_ns.saturating_add((fault.at_s * 1e9) as u64) <= now;
        let is_due = self.faults.last().is_some_and(due);
        if let Some(fault) = is_due.then(|| self.faults.pop()).flatten() {
            let undo = self.inject(&fault, farm, stage)?;
            self.done += 1;
            if let (Some(undo), Some(for_s)) = (undo, fault.for_s) {
                self.remedies
                    .push((now.saturating_add((for_s * 1e9) as u64), undo));
            }
            farm.let_all_end();
        }
        while let Some(at) = self.remedies.iter().position(|(at, _)| *at <= now) {
            let (_, undo) = self.remedies.remove(at);
            heal(undo, &self.scenario, farm, stage)?;
        }
        Ok(())
    }

    /// Undoes what is not undone: the network is used again. Processes are not started any more.
    ///
    /// # Errors
    ///
    /// What tools and the operating system say.
    pub(super) fn heal_all(&mut self, farm: &mut Farm, stage: &Stage) -> Result<(), DisturbError> {
        for (_, undo) in self.remedies.drain(..) {
            match undo {
                Undo::Launch(_) => {}
                Undo::Farm(remedy) => {
                    remedy(farm)?;
                    farm.let_all_end();
                }
                Undo::Rate(node) => set_rate(&self.scenario, farm, stage, node, 1.0)?,
            }
        }
        Ok(())
    }

    fn inject(
        &mut self,
        fault: &Fault,
        farm: &mut Farm,
        stage: &Stage,
    ) -> Result<Option<Undo>, DisturbError> {
        let number = |index: u32| u16::try_from(index).unwrap_or(u16::MAX);
        let node: NodeId = match (fault.flp, fault.epn) {
            (Some(flp), _) => FlpId(number(flp)).into(),
            (None, Some(epn)) => EpnId(number(epn)).into(),
            (None, None) => return Ok(None),
        };
        let nodes = [node];
        Ok(match fault.kind {
            FaultKind::Crash => {
                farm.signal(node, Signal::KILL);
                Some(Undo::Launch(node))
            }
            FaultKind::Leave => {
                farm.signal(node, Signal::TERM);
                Some(Undo::Launch(node))
            }
            FaultKind::Hang => Some(Undo::Farm(inject::inject(
                farm,
                Kind::Pause,
                &nodes,
                &mut self.rng,
            )?)),
            FaultKind::Partition => {
                let cut = Kind::Cut(Way::Both);
                Some(Undo::Farm(inject::inject(
                    farm,
                    cut,
                    &nodes,
                    &mut self.rng,
                )?))
            }
            FaultKind::SlowNic => {
                let factor = fault.factor.unwrap_or(1.0);
                set_rate(&self.scenario, farm, stage, node, factor)?;
                Some(Undo::Rate(node))
            }
            // Refused when the experiment was read.
            FaultKind::Slow | FaultKind::Stall | FaultKind::Join => None,
        })
    }
}

fn heal(
    undo: Undo,
    scenario: &Scenario,
    farm: &mut Farm,
    stage: &Stage,
) -> Result<(), DisturbError> {
    match undo {
        Undo::Farm(remedy) => remedy(farm)?,
        Undo::Launch(node) => {
            farm.reap();
            // One that was asked to leave may take its time.
            if farm.living(node).is_none() {
                farm.launch(node)?;
            }
        }
        Undo::Rate(node) => set_rate(scenario, farm, stage, node, 1.0)?,
    }
    farm.let_all_end();
    Ok(())
}

/// Makes the cable of `node` `factor` times slower than it is in `scenario`.
fn set_rate(
    scenario: &Scenario,
    farm: &Farm,
    stage: &Stage,
    node: NodeId,
    factor: f64,
) -> Result<(), ToolError> {
    match farm.host(node) {
        Some(host) => stage.slow_down(&host, factor * slowness(scenario, node)),
        None => Ok(()),
    }
}
