//! A simulated point on a topology: the farm that a live one would be there, in the numbers of a scenario.
//!
//! Rates, queues, bursts, racks and the way of control come from the topology, the clock, the memory and the deadlines
//! of the nodes from the configuration of live nodes, delays and speed of the machine from `[machine]`.

use super::{Experiment, capacity_bytes};
use crate::place::{Misfit, Placement};
use sheaf_sim::scenario::{Control, Group, Rack, Scenario};
use sheaf_stf_builder::flp::Push;
use sheaf_testbed::net::{Framing, Node, Topology};

/// Makes `scenario` what a live run of it on `topology` is.
///
/// # Errors
///
/// A [`Misfit`] if the farm has no place there, or if the simulator has no word for the topology.
pub(super) fn liken(
    scenario: &mut Scenario,
    topology: &Topology,
    experiment: &Experiment,
) -> Result<(), Misfit> {
    let placement = Placement::on_topology(topology, scenario.flps, scenario.epns)?;
    let nodes = topology.nodes();
    let at = |indices: &[usize]| -> Vec<&Node> { indices.iter().map(|at| &nodes[*at]).collect() };
    let (flps, epns) = (at(&placement.flps), at(&placement.epns));
    let rate = |node: &&Node| node.link.rate_mbit;
    let network = &scenario.network;
    let flp_mbit_s = flps.first().map_or(network.flp_mbit_s, rate);
    let epn_mbit_s = epns.first().map_or(network.epn_mbit_s, rate);
    if flps.iter().any(|flp| rate(flp) != flp_mbit_s) {
        return Err(misfit(topology, "FLPs with cables of one rate"));
    }
    if epns.iter().any(|epn| rate(epn) != epn_mbit_s) {
        let nic = |(epn, node): (u32, &&Node)| {
            let group = scenario.group_of(epn);
            let of = |value: fn(&Group) -> f64| group.as_ref().map_or(1.0, value);
            Group {
                epns: 1,
                speed: of(|group| group.speed),
                nic: of(|group| group.nic) * rate(node) / epn_mbit_s,
                weight: of(|group| group.weight),
            }
        };
        let groups = (0..).zip(&epns).map(nic).collect();
        scenario.groups_repeat = false;
        scenario.groups = groups;
    }
    let network = &mut scenario.network;
    (network.flp_mbit_s, network.epn_mbit_s) = (flp_mbit_s, epn_mbit_s);
    let link = &topology.link;
    network.efficiency = link.goodput_mbit() / link.rate_mbit;
    network.burst_bytes = link.burst().into();
    network.port_buffer_bytes = link.queue().into();
    network.control = match topology.auxiliary {
        Some(_) => Control::Auxiliary,
        None => Control::Primary,
    };
    let machine = &experiment.machine;
    network.machine_mbit_s = Some(match link.framing {
        Framing::Frame => machine.frames_mbit_s,
        Framing::Bulk => machine.bulk_mbit_s,
    });
    let (hop_us, stf_us) = machine.at_rate(scenario.rate_hz);
    (network.delay_us, network.control_delay_us) = (hop_us, hop_us);
    network.stf_us = match scenario.push {
        Push::Eager => stf_us,
        Push::Granted => stf_us + machine.grant_us,
    };
    if scenario.processing.ms > 0.0 {
        scenario.processing.take_us = machine.take_us;
        scenario.processing.overhead_us = machine.consumer_us;
    }
    network.racks = racks(topology, &flps, &epns)?;
    let capacity_bytes = capacity_bytes(&experiment.live, scenario);
    let farm = &mut scenario.farm;
    farm.paced = true;
    farm.tf_deadline_ms = experiment.live.tf_deadline_ms;
    farm.capacity_bytes = capacity_bytes;
    Ok(())
}

fn misfit(topology: &Topology, expected: &str) -> Misfit {
    Misfit {
        key: "topology",
        found: topology.name.clone(),
        expected: format!("{expected} for simulated points"),
    }
}

/// Two switches with a cable between them as two racks, whose nodes the simulator takes in the order of their ids.
fn racks(topology: &Topology, flps: &[&Node], epns: &[&Node]) -> Result<Vec<Rack>, Misfit> {
    let mut used: Vec<&str> = Vec::new();
    for node in flps.iter().chain(epns) {
        if !used.contains(&node.switch.as_str()) {
            used.push(&node.switch);
        }
    }
    if used.len() < 2 {
        return Ok(Vec::new());
    }
    let [uplink] = topology.uplink.as_slice() else {
        return Err(misfit(topology, "one switch, or two with a cable between"));
    };
    let in_order = |nodes: &[&Node]| nodes.is_sorted_by_key(|node| node.switch != used[0]);
    if !in_order(flps) || !in_order(epns) {
        let expected = "nodes of the first switch before those of the second";
        return Err(misfit(topology, expected));
    }
    let count = |nodes: &[&Node], switch: &str| {
        nodes.iter().filter(|node| node.switch == switch).count() as u32
    };
    let rack = |switch: &&str| Rack {
        flps: count(flps, switch),
        epns: count(epns, switch),
        uplink_mbit_s: uplink.rate_mbit.unwrap_or(topology.link.rate_mbit),
    };
    Ok(used.iter().map(rack).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment() -> Experiment {
        let text = "name = 'x'\nquestion = '?'\n[base]\nsource = 'sim'";
        Experiment::parse(text, "x").unwrap()
    }

    fn likened(name: &str, flps: u32, epns: u32) -> Result<Scenario, String> {
        let mut scenario = Scenario {
            flps,
            epns,
            rate_hz: 200.0,
            ..Scenario::default()
        };
        scenario.size.bytes = 29_000;
        let topology = Topology::find(name).map_err(|error| error.to_string())?;
        liken(&mut scenario, &topology, &experiment()).map_err(|misfit| misfit.to_string())?;
        scenario.check().map_err(|error| error.to_string())?;
        Ok(scenario)
    }

    #[test]
    fn the_cluster_is_two_racks_and_the_single_switch_shares_its_wires_with_control() {
        let cluster = likened("pi-cluster", 2, 5).unwrap();
        let racks: Vec<(u32, u32, f64)> = cluster
            .network
            .racks
            .iter()
            .map(|rack| (rack.flps, rack.epns, rack.uplink_mbit_s))
            .collect();
        assert_eq!(racks, [(2, 1, 100.0), (0, 4, 100.0)]);
        assert_eq!(cluster.network.control, Control::Auxiliary);
        assert_eq!(
            (
                cluster.network.burst_bytes,
                cluster.network.port_buffer_bytes
            ),
            (250_000, 131_072)
        );
        // 150 ms of 2 × 29,000 B at 200 Hz, divided among five.
        assert_eq!(cluster.farm.capacity_bytes, 348_000);
        assert!(cluster.farm.paced);
        let single = likened("pi-single", 3, 1).unwrap();
        assert_eq!(
            (single.network.racks.len(), single.network.control),
            (0, Control::Primary)
        );
    }

    #[test]
    fn messages_take_longer_where_processors_sleep_and_where_stfs_are_granted() {
        let of = |rate_hz: f64, push: Push| {
            let mut scenario = Scenario {
                flps: 1,
                epns: 1,
                rate_hz,
                push,
                ..Scenario::default()
            };
            let topology = Topology::find("lan-1g").unwrap();
            liken(&mut scenario, &topology, &experiment()).unwrap();
            let network = scenario.network;
            (network.delay_us, network.control_delay_us, network.stf_us)
        };
        assert_eq!(of(25.0, Push::Eager), (70, 70, 64));
        assert_eq!(of(40.1, Push::Eager), (45, 45, 50));
        assert_eq!(of(25.0, Push::Granted), (70, 70, 89));
    }

    #[test]
    fn what_has_no_place_or_no_word_is_refused() {
        let crowd = likened("pi-single", 3, 2).unwrap_err();
        assert!(
            crowd.contains("epns: found 2, expected at most 1"),
            "{crowd}"
        );
        let three = "name = 'chain'\nswitch = [{name='a',ports=9},{name='b',ports=9},{name='c',ports=9}]\n\
            uplink = [{between=['a','b']},{between=['b','c']}]\n\
            node = [{name='i',switch='a'},{name='f',switch='a'},{name='e',switch='c'}]";
        let chain = Topology::parse(three, "chain").unwrap();
        let mut scenario = Scenario {
            flps: 1,
            epns: 1,
            ..Scenario::default()
        };
        let error = liken(&mut scenario, &chain, &experiment()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "topology: found chain, expected one switch, or two with a cable between for simulated points"
        );
    }
}
