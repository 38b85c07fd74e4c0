//! Injection of faults into a farm, and their end.

use super::planned::PlannedStep;
use super::store::StoreDisk;
use super::{Node, TortureFarm};
use crate::options::Fault;
use crate::trace::Line;
use crate::watch::Found;
use sheaf_protocol::{NodeId, TfId, Timestamp};
use sheaf_transport::memory::Death;
use sheaf_verdict_log::storage::DiskFaults;
use std::cmp::Reverse;
use std::time::Duration;

/// Interval in which an operator repeats the request to end a run.
const STOP_AGAIN: Duration = Duration::from_millis(200);

/// Interval in which the rest of the nodes of a finished run is asked to leave.
const SEND_HOME_AGAIN: Duration = Duration::from_secs(2);

impl TortureFarm<'_> {
    pub(super) fn take_steps(&mut self, now: Timestamp) -> Result<(), Found> {
        while let Some(Reverse((at, id))) = self.steps.peek().copied() {
            if at > now {
                break;
            }
            self.steps.pop();
            let Some(step) = self.step_of[id as usize].take() else {
                continue;
            };
            self.take_step(now, step)?;
        }
        Ok(())
    }

    fn take_step(&mut self, now: Timestamp, step: PlannedStep) -> Result<(), Found> {
        match step {
            PlannedStep::Inject(fault) => {
                self.fault_line(now, || format!("{fault:?}"));
                self.inject(now, &fault);
            }
            PlannedStep::Thaw(index, life) if self.seats[index].life == life => {
                self.thaw(now, index);
            }
            PlannedStep::Thaw(..) => {}
            PlannedStep::Heal(a, b) => {
                self.fault_line(now, || format!("{a} and {b} hear each other again"));
                self.network.heal(&a.to_string(), &b.to_string());
            }
            PlannedStep::Start(index) if self.is_stopping => {
                let _ = index; // No node joins a run that is over.
            }
            PlannedStep::Start(index) => self.start(index)?,
            PlannedStep::StartAs(..) if self.is_stopping => {}
            PlannedStep::StartAs(index, life) => self.replace(index, life)?,
            PlannedStep::EndTwin(index) => self.kill(now, index, Death::Seen, None),
            PlannedStep::Quicken(index) => self.quicken(index),
            PlannedStep::SinkUp(index) => self.seats[index].set_down(false),
            PlannedStep::DiskWorks(index) => {
                self.seats[index].disk.set_faults(DiskFaults::default());
            }
            PlannedStep::RegistryBack => self.give_registry_back(now, false),
            PlannedStep::RegistryHeals(index) => self.heal_registry(now, index, false),
            PlannedStep::StormEnds => {
                self.storms = self.storms.saturating_sub(1);
                if self.storms == 0 && !self.is_calm {
                    self.network.set_faults(self.options.network);
                }
            }
            PlannedStep::Calm => {
                self.check_steady(now)?;
                self.calm(now)?;
            }
            PlannedStep::Settled => self.check_settled()?,
            PlannedStep::Stop => self.stop(now),
        }
        Ok(())
    }

    fn inject(&mut self, now: Timestamp, fault: &Fault) {
        self.count_fault(now, fault);
        match fault {
            Fault::Crash {
                node,
                silent,
                after_frames,
                back_after,
            } => {
                let index = self.seat_of(*node);
                let death = if *silent { Death::Silent } else { Death::Seen };
                if *after_frames == 0 {
                    self.kill(now, index, death, *back_after);
                } else if self.seats[index].process.is_some() && self.seats[index].dying.is_none() {
                    self.seats[index].dying = Some((death, *back_after));
                    let seat = &self.seats[index];
                    self.network.limit_frames(&seat.name, *after_frames);
                    if let Some(store) = &seat.store {
                        store.limit_steps(Some(*after_frames));
                    }
                }
            }
            Fault::Pause { node, length } => {
                let index = self.seat_of(*node);
                let seat = &mut self.seats[index];
                if seat.process.is_some() && !seat.is_frozen {
                    seat.is_frozen = true;
                    self.network.freeze(&seat.name);
                    let life = seat.life;
                    self.pause_sessions(now, index, true);
                    self.plan(now + *length, PlannedStep::Thaw(index, life));
                }
            }
            Fault::Cut {
                a,
                b,
                one_way,
                length,
            } => {
                if *one_way {
                    self.network.cut_one_way(&a.to_string(), &b.to_string());
                } else {
                    self.network.cut(&a.to_string(), &b.to_string());
                }
                self.plan(now + *length, PlannedStep::Heal(*a, *b));
            }
            Fault::Isolate { node, length } => {
                let others: Vec<NodeId> = self
                    .seats
                    .iter()
                    .map(|seat| seat.node)
                    .filter(|other| other != node)
                    .collect();
                for other in others {
                    self.network.cut(&node.to_string(), &other.to_string());
                    self.plan(now + *length, PlannedStep::Heal(*node, other));
                }
                self.cut_from_registry(now, *node, *length);
            }
            Fault::RegistryAway { length } => self.take_registry_away(now, *length),
            Fault::RegistryCut { node, length } => self.cut_from_registry(now, *node, *length),
            Fault::SessionExpired { node } => {
                let index = self.seat_of(*node);
                self.end_sessions(now, index);
            }
            Fault::Leave { node, back_after } => {
                let index = self.seat_of(*node);
                self.ask_to_leave(now, index);
                self.plan(now + *back_after, PlannedStep::Start(index));
            }
            Fault::Slow {
                node,
                every,
                length,
            } => {
                let index = self.seat_of(*node);
                self.seats[index].turn_every = *every;
                self.plan(now + *length, PlannedStep::Quicken(index));
            }
            Fault::SinkDown { node, length } => {
                let index = self.seat_of(*node);
                self.seats[index].set_down(true);
                self.plan(now + *length, PlannedStep::SinkUp(index));
            }
            Fault::Disk {
                node,
                faults,
                length,
            } => {
                let index = self.seat_of(*node);
                self.seats[index].disk.set_faults(*faults);
                self.plan(now + *length, PlannedStep::DiskWorks(index));
            }
            Fault::PowerFailure { node, back_after } => {
                let index = self.seat_of(*node);
                self.kill(now, index, Death::Silent, *back_after);
                self.seats[index].disk.fail_power();
            }
            Fault::ClockBack { node, back_after } => {
                self.inject_clock_back(now, *node, *back_after);
            }
            Fault::Twin {
                node,
                is_later,
                length,
            } => self.inject_twin(now, *node, *is_later, *length),
            Fault::ControlCut { node, length } => self.inject_control_cut(now, *node, *length),
            Fault::Replay { node, stream } => self.inject_replay(*node, *stream),
            Fault::Storm { network, length } => {
                self.storms += 1;
                self.network.set_faults(*network);
                self.plan(now + *length, PlannedStep::StormEnds);
            }
        }
    }

    pub(super) fn kill(
        &mut self,
        now: Timestamp,
        index: usize,
        death: Death,
        back_after: Option<Duration>,
    ) {
        let seat = &mut self.seats[index];
        if seat.process.is_none() {
            return;
        }
        self.trace
            .add(|| Line::new(now, &seat.name, vec![], format!("dies ({death:?})")));
        // Before the process goes: an endpoint that is dropped dies as its peers can see.
        self.network.kill(&seat.name, death);
        seat.process = None;
        seat.is_frozen = false;
        seat.dying = None;
        if let Some(store) = &seat.store {
            store.limit_steps(None);
            if death == Death::Silent {
                store.fail_power();
            }
        }
        if let Some(pause) = back_after {
            self.plan(now + pause, PlannedStep::Start(index));
        }
    }

    /// Kills a process that may send only a given number of frames more, when it has sent them.
    pub(super) fn die_between_frames(&mut self, now: Timestamp, index: usize) {
        let seat = &self.seats[index];
        if let Some((death, back_after)) = seat.dying
            && (self.network.frames_left(&seat.name) == Some(0)
                || seat.store.as_ref().is_some_and(StoreDisk::is_stopped))
        {
            self.kill(now, index, death, back_after);
        }
    }

    pub(super) fn ask_to_leave(&mut self, now: Timestamp, index: usize) {
        let seat = &mut self.seats[index];
        let here = seat.here(now);
        seat.is_leaving = true;
        match &mut seat.process {
            Some(Node::Flp(flp)) => flp.handle_shutdown(here),
            Some(Node::Epn(epn)) => epn.handle_shutdown(here),
            Some(Node::Icn(icn)) => icn.handle_shutdown(here),
            None => return,
        }
        seat.wake_at = now;
    }

    fn thaw(&mut self, now: Timestamp, index: usize) {
        let seat = &mut self.seats[index];
        if seat.is_frozen {
            seat.is_frozen = false;
            seat.wake_at = now;
            self.network.thaw(&seat.name);
            self.pause_sessions(now, index, false);
        }
    }

    fn quicken(&mut self, index: usize) {
        let seat = &mut self.seats[index];
        seat.turn_every = Duration::ZERO;
        seat.not_before = Timestamp(0);
    }

    /// Ends the faults: everything heals, and dead processes come back.
    fn calm(&mut self, now: Timestamp) -> Result<(), Found> {
        self.is_calm = true;
        self.fault_line(now, || "all faults end".to_owned());
        self.network.set_faults(self.options.calm_network);
        for step in &mut self.step_of {
            match step {
                Some(PlannedStep::Heal(a, b)) => self.network.heal(&a.to_string(), &b.to_string()),
                Some(
                    PlannedStep::Thaw(..)
                    | PlannedStep::Inject(_)
                    | PlannedStep::StartAs(..)
                    | PlannedStep::Quicken(_)
                    | PlannedStep::SinkUp(_)
                    | PlannedStep::RegistryBack
                    | PlannedStep::RegistryHeals(_)
                    | PlannedStep::DiskWorks(_),
                ) => {}
                _ => continue,
            }
            *step = None;
        }
        self.give_registry_back(now, true);
        self.end_twins(now);
        for index in 0..self.seats.len() {
            self.thaw(now, index);
            self.quicken(index);
            self.heal_registry(now, index, true);
            self.seats[index].set_down(false);
            self.seats[index].disk.set_faults(DiskFaults::default());
            if let Some((death, _)) = self.seats[index].dying {
                // Its frames were not used up: it dies now, and all dead processes come back.
                self.kill(now, index, death, None);
            }
            self.network.power_up(&self.seats[index].name);
            let is_wanted = !self.is_stopping && !self.seats[index].is_twin;
            if self.seats[index].process.is_none() && is_wanted {
                self.start(index)?;
            }
        }
        Ok(())
    }

    fn check_settled(&mut self) -> Result<(), Found> {
        self.is_settled = true;
        if self.is_stopping {
            return Ok(());
        }
        let calm_at = Timestamp(0) + self.options.calm_at;
        let seats = &self.seats;
        let lives = |node: NodeId, life: u64| {
            seats
                .iter()
                .any(|seat| seat.node == node && seat.life == life && seat.process.is_some())
        };
        self.watch.check_settled(calm_at, lives)?;
        let holds = |node: NodeId, life: u64, tf: u64| {
            seats.iter().any(|seat| {
                let is_it = seat.node == node && seat.life == life;
                let flp = match &seat.process {
                    Some(Node::Flp(flp)) if is_it => flp,
                    _ => return false,
                };
                flp.brain().holds(TfId(tf))
            })
        };
        self.watch.check_done(calm_at, holds)
    }

    /// Asks the leader to stop for an operator, repeatedly until the run is over.
    fn stop(&mut self, now: Timestamp) {
        if !self.is_stopping {
            self.fault_line(now, || "the run is asked to stop".to_owned());
        }
        self.is_stopping = true;
        for seat in &mut self.seats {
            let here = seat.here(now);
            if let Some(Node::Icn(icn)) = &mut seat.process {
                icn.handle_stop(here);
                seat.wake_at = now;
            }
        }
        if self.is_run_over {
            // An ICN that led, cut off, when the others were dismissed does so no more, and no node is left to notify
            // it.
            self.send_home(now);
            self.plan(now + SEND_HOME_AGAIN, PlannedStep::Stop);
        } else {
            self.plan(now + STOP_AGAIN, PlannedStep::Stop);
        }
    }
}
