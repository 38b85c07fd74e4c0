//! Checks of the values of a scenario, each and together.

use super::{
    AckLevel, Distribution, Fault, FaultKind, Mode, ORACLE, Scenario, ScenarioError, SizeModel,
    Subject, serving,
};
use crate::systems;
use sheaf_placement::policy;

type Checked = Result<(), ScenarioError>;

/// Upper bound of nodes of a kind: an id has 16 bits.
const NODES_MAX: u32 = 65_000;
/// Largest STF that can be made.
const STF_BYTES_MAX: u64 = 1 << 40;

impl Scenario {
    /// Checks every value.
    ///
    /// # Errors
    ///
    /// A [`ScenarioError`] that names the first wrong key and the accepted values.
    pub fn check(&self) -> Checked {
        match self.subject() {
            Subject::Writers(writing) => return writing.check(self),
            Subject::Servers(asked) => return serving::check(asked, self),
            Subject::Farm => {}
        }
        self.check_load()?;
        if self.policy != ORACLE && systems::named(&self.policy).is_none() {
            policy::by_name(&self.policy, self.seed)?;
        } else if self.mode == Mode::Legacy {
            let expected = "a policy of live farms in mode legacy";
            return Err(ScenarioError::value("policy", &self.policy, expected));
        }
        if self.mode == Mode::Legacy && self.ack != AckLevel::Built {
            let expected = "built in mode legacy, whose EPNs acknowledge what they have built";
            return Err(ScenarioError::value("ack", "processed", expected));
        }
        at_most_ms("legacy.zookeeper_tick_ms", self.legacy.zookeeper_tick_ms)?;
        self.check_published()?;
        self.check_network()?;
        self.check_farm()?;
        for (index, fault) in self.faults.iter().enumerate() {
            self.check_fault(index, fault)?;
        }
        Ok(())
    }

    fn check_load(&self) -> Checked {
        count("flps", self.flps, 1, NODES_MAX)?;
        count("epns", self.epns, 1, NODES_MAX)?;
        positive("rate_hz", self.rate_hz, 1e6)?;
        positive("duration_s", self.duration_s, 1e6)?;
        count("iterations", self.iterations, 1, 10_000)?;
        count("granted_sources", self.granted_sources, 1, NODES_MAX)?;
        if self.timeframes() == 0 {
            let found = format!("{} Hz for {} s", self.rate_hz, self.duration_s);
            return Err(ScenarioError::value("duration_s", found, "at least one TF"));
        }
        if self.size.bytes == 0 || self.size.bytes > STF_BYTES_MAX {
            let expected = "1 byte to 1 TiB";
            return Err(ScenarioError::value(
                "size.bytes",
                self.size.bytes,
                expected,
            ));
        }
        fraction("size.sigma", self.size.sigma, 3.0)?;
        fraction("size.flp_sigma", self.size.flp_sigma, 3.0)?;
        fraction("size.common_sigma", self.size.common_sigma, 3.0)?;
        self.check_beam()?;
        count("size.period_tfs", self.size.period_tfs, 1, u32::MAX)?;
        let has_trace = !self.size.trace.is_empty();
        if has_trace != (self.size.model == SizeModel::Trace) {
            let found = format!("\"{}\"", self.size.trace);
            let expected = "a file if size.model is \"trace\", nothing otherwise";
            return Err(ScenarioError::value("size.trace", found, expected));
        }
        if has_trace && !self.size.trace_bytes.iter().any(|bytes| *bytes > 0) {
            let expected = "at least one size above 0";
            return Err(ScenarioError::value("size.trace", "none", expected));
        }
        Ok(())
    }

    fn check_beam(&self) -> Checked {
        let beam = &self.size.beam;
        fraction("size.beam.collisions", beam.collisions, 1e9)?;
        fraction("size.beam.pedestal", beam.pedestal, 1.0)?;
        positive("size.beam.collision_spread", beam.collision_spread, 10.0)?;
        for (key, seconds) in [
            ("size.beam.level_s", beam.level_s),
            ("size.beam.lifetime_s", beam.lifetime_s),
            ("size.beam.fill_s", beam.fill_s),
            ("size.beam.gap_s", beam.gap_s),
        ] {
            fraction(key, seconds, 1e9)?;
        }
        if beam.gap_s > 0.0 && beam.fill_s <= 0.0 {
            let expected = "0 without size.beam.fill_s: a fill without end has no gap behind it";
            return Err(ScenarioError::value(
                "size.beam.gap_s",
                beam.gap_s,
                expected,
            ));
        }
        Ok(())
    }

    fn check_published(&self) -> Checked {
        if let Some(runs) = self.published_runs {
            count("published_runs", runs, 1, u32::MAX)?;
        }
        if let Some(sd) = self.published_sd {
            positive("published_sd", sd, 1e9)?;
            if self.published_runs.unwrap_or(1) < 2 {
                let expected = "2 or more, if published_sd is said";
                return Err(ScenarioError::value("published_runs", "1", expected));
            }
        }
        Ok(())
    }

    fn check_network(&self) -> Checked {
        let network = &self.network;
        positive("network.flp_mbit_s", network.flp_mbit_s, 1e9)?;
        positive("network.epn_mbit_s", network.epn_mbit_s, 1e9)?;
        positive("network.efficiency", network.efficiency, 1.0)?;
        fraction("network.tolerance", network.tolerance, 0.5)?;
        for (key, value) in [
            ("network.port_buffer_bytes", network.port_buffer_bytes),
            ("network.window_bytes", network.window_bytes),
            ("network.rto_ms", network.rto_ms),
        ] {
            if value == 0 {
                return Err(ScenarioError::value(key, 0, "1 or more"));
            }
        }
        at_most_us("network.stf_us", network.stf_us)?;
        match network.machine_mbit_s {
            Some(mbit_s) => positive("network.machine_mbit_s", mbit_s, 1e9)?,
            None if network.burst_bytes > 0 => {
                let expected = "how fast a burst is, if network.burst_bytes is not 0";
                let key = "network.machine_mbit_s";
                return Err(ScenarioError::value(key, "none", expected));
            }
            None => {}
        }
        for (index, rack) in network.racks.iter().enumerate() {
            let key = format!("network.racks[{index}].uplink_mbit_s");
            positive(&key, rack.uplink_mbit_s, 1e9)?;
        }
        let racked = |count: fn(&super::Rack) -> u32| {
            network
                .racks
                .iter()
                .fold(0u32, |sum, rack| sum.saturating_add(count(rack)))
        };
        at_most("network.racks: FLPs", racked(|rack| rack.flps), self.flps)?;
        at_most("network.racks: EPNs", racked(|rack| rack.epns), self.epns)
    }

    fn check_farm(&self) -> Checked {
        if let Some(warm_up_s) = self.warm_up_s {
            fraction("warm_up_s", warm_up_s, self.duration_s)?;
        }
        fraction("processing.ms", self.processing.ms, 1e9)?;
        fraction("processing.sigma", self.processing.sigma, 3.0)?;
        let alpha = self.processing.alpha;
        if !(alpha > 1.0 && alpha <= 100.0) {
            let expected = "more than 1, at most 100";
            return Err(ScenarioError::value("processing.alpha", alpha, expected));
        }
        let has_trace = !self.processing.trace.is_empty();
        if has_trace != (self.processing.distribution == Distribution::Trace) {
            let found = format!("\"{}\"", self.processing.trace);
            let expected = "a file if processing.distribution is \"trace\", nothing otherwise";
            return Err(ScenarioError::value("processing.trace", found, expected));
        }
        count("processing.parallel", self.processing.parallel, 1, 65_536)?;
        at_most_us("processing.take_us", self.processing.take_us)?;
        at_most_us("processing.overhead_us", self.processing.overhead_us)?;
        let mut grouped = 0u32;
        for (index, group) in self.groups.iter().enumerate() {
            let key = |name: &str| format!("groups[{index}].{name}");
            positive(&key("speed"), group.speed, 1e3)?;
            positive(&key("nic"), group.nic, 1e3)?;
            positive(&key("weight"), group.weight, 1e3)?;
            grouped = grouped.saturating_add(group.epns);
        }
        at_most("groups: EPNs", grouped, self.epns)?;
        fraction(
            "legacy.start_stalls.probability",
            self.legacy.start_stalls.probability,
            1.0,
        )?;
        fraction(
            "legacy.start_stalls.within_s",
            self.legacy.start_stalls.within_s,
            1e6,
        )?;
        count(
            "farm.tfs_in_building_max",
            self.farm.tfs_in_building_max,
            1,
            u32::MAX,
        )?;
        at_most_ms("farm.report_ms", self.farm.report_ms)?;
        let tick = u32::try_from(self.farm.tick_ms).unwrap_or(u32::MAX);
        count("farm.tick_ms", tick, 1, 60_000)?;
        let pulse = u32::try_from(self.registry.pulse_ms).unwrap_or(u32::MAX);
        count("registry.pulse_ms", pulse, 1, 60_000)?;
        if self.registry.suspect_ms <= self.registry.pulse_ms {
            let expected = "more than registry.pulse_ms";
            let found = self.registry.suspect_ms;
            return Err(ScenarioError::value("registry.suspect_ms", found, expected));
        }
        Ok(())
    }

    fn check_fault(&self, index: usize, fault: &Fault) -> Checked {
        let key = |name: &str| format!("faults[{index}].{name}");
        fraction(&key("at_s"), fault.at_s, 1e6)?;
        fraction(&key("within_s"), fault.within_s, 1e6)?;
        if let Some(for_s) = fault.for_s {
            positive(&key("for_s"), for_s, 1e6)?;
        }
        let (flp, epn) = (fault.flp.is_some(), fault.epn.is_some());
        let (names, is_named) = match fault.kind {
            FaultKind::Stall => ("both flp and epn", flp && epn),
            FaultKind::Partition => ("flp, epn or both", flp || epn),
            FaultKind::Slow | FaultKind::Leave => ("an epn and no flp", epn && !flp),
            FaultKind::Join => ("neither flp nor epn", !flp && !epn),
            FaultKind::Crash | FaultKind::Hang | FaultKind::SlowNic => {
                ("an flp or an epn, not both", flp != epn)
            }
        };
        if !is_named {
            let found = match (flp, epn) {
                (true, true) => "both",
                (true, false) => "an flp",
                (false, true) => "an epn",
                (false, false) => "neither",
            };
            return Err(ScenarioError::value(&key("kind"), found, names));
        }
        let joined = self.faults[..index]
            .iter()
            .filter(|earlier| earlier.kind == FaultKind::Join)
            .count();
        let epns = self
            .epns
            .saturating_add(u32::try_from(joined).unwrap_or(u32::MAX));
        for (name, node, nodes) in [("flp", fault.flp, self.flps), ("epn", fault.epn, epns)] {
            if let Some(node) = node
                && node >= nodes
            {
                let expected = format!("0 to {}", nodes - 1);
                return Err(ScenarioError::value(&key(name), node, &expected));
            }
        }
        let needs_factor = matches!(fault.kind, FaultKind::Slow | FaultKind::SlowNic);
        match fault.factor {
            Some(factor) if needs_factor => positive(&key("factor"), factor, 1e6)?,
            None if !needs_factor => {}
            found => {
                let found = found.map_or("none".to_owned(), |factor| factor.to_string());
                let expected = "a factor for slow and slow-nic, none otherwise";
                return Err(ScenarioError::value(&key("factor"), found, expected));
            }
        }
        let needs_end = matches!(fault.kind, FaultKind::Stall | FaultKind::Hang);
        if needs_end && fault.for_s.is_none() {
            let expected = "how long it lasts, in s";
            return Err(ScenarioError::value(&key("for_s"), "none", expected));
        }
        let is_sheafs = matches!(fault.kind, FaultKind::Join | FaultKind::Leave);
        if is_sheafs && self.mode == Mode::Legacy {
            let expected = "no join or leave in mode legacy, whose list of EPNs is fixed";
            return Err(ScenarioError::value(&key("kind"), "one", expected));
        }
        Ok(())
    }
}

fn count(key: &str, found: u32, least: u32, most: u32) -> Checked {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    let expected = format!("{least} to {most}");
    Err(ScenarioError::value(key, found, &expected))
}

fn at_most(key: &str, found: u32, most: u32) -> Checked {
    if found <= most {
        return Ok(());
    }
    let expected = format!("at most {most}");
    Err(ScenarioError::value(key, found, &expected))
}

fn at_most_us(key: &str, found: u64) -> Checked {
    at_most(key, u32::try_from(found).unwrap_or(u32::MAX), 1_000_000)
}

fn at_most_ms(key: &str, found: u64) -> Checked {
    at_most(key, u32::try_from(found).unwrap_or(u32::MAX), 3_600_000)
}

fn positive(key: &str, found: f64, most: f64) -> Checked {
    if found > 0.0 && found <= most {
        return Ok(());
    }
    let expected = format!("more than 0, at most {most}");
    Err(ScenarioError::value(key, found, &expected))
}

fn fraction(key: &str, found: f64, most: f64) -> Checked {
    if (0.0..=most).contains(&found) {
        return Ok(());
    }
    let expected = format!("0 to {most}");
    Err(ScenarioError::value(key, found, &expected))
}
