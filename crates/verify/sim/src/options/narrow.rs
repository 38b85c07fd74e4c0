//! Draws the options of the narrow families: each puts one situation into every seed that a swarm hardly meets.

use super::{Ack, Fault, Log, Options};
use crate::dice::Dice;
use crate::family::SeedFamily;
use sheaf_protocol::{EpnId, FlpId, NodeId};
use sheaf_scheduler::Delivery;
use sheaf_transport::memory::Faults;
use std::time::Duration;

/// Draws what `options.kind` is about, onto a farm without faults.
pub(super) fn draw(options: &mut Options, dice: &mut Dice) {
    let faults = match options.kind {
        SeedFamily::Runs => runs(options, dice),
        SeedFamily::Lives if dice.chance(40) => late_sessions(options, dice),
        SeedFamily::Lives => lives(options, dice),
        SeedFamily::ControlCut => control_cut(options, dice),
        SeedFamily::Replays => replays(options, dice),
        SeedFamily::Starved => starved(options, dice),
        SeedFamily::Redelivery => redelivery(options, dice),
        SeedFamily::Processed => {
            let faults = redelivery(options, dice);
            options.ack = Ack::Processed;
            // The last EPN can keep up: it has two TFs at once.
            let longest = 1000.0 / options.rate_hz.max(50.0);
            options.work = dice.ms(1, longest as u64);
            faults
        }
        _ => return,
    };
    options.faults = faults;
    options.faults.sort_by_key(|(at, _)| *at);
    // The situations need a run that lasts.
    options.timeframes = None;
    if options.rate_hz <= 0.0 {
        options.rate_hz = 100.0;
    }
}

fn flp(options: &Options, dice: &mut Dice) -> NodeId {
    FlpId(dice.range(0, u64::from(options.flps) - 1) as u16).into()
}

fn epn(options: &Options, dice: &mut Dice) -> NodeId {
    EpnId(dice.range(0, u64::from(options.epns) - 1) as u16).into()
}

fn any(options: &Options, dice: &mut Dice) -> NodeId {
    if dice.chance(50) {
        flp(options, dice)
    } else {
        epn(options, dice)
    }
}

/// Draws a time before the end of the faults.
fn time(options: &Options, dice: &mut Dice, low: u64) -> Duration {
    dice.ms(low, options.calm_at.as_millis() as u64 - 10)
}

/// An ICN without a log dies a few times, and frames are late by more than it takes to come back.
fn runs(options: &mut Options, dice: &mut Dice) -> Vec<(Duration, Fault)> {
    options.network = Faults {
        reorder: dice.milli(400),
        duplicate: dice.milli(200),
        late_max: dice.ms(30, 500),
        ..options.calm_network
    };
    let crash = |dice: &mut Dice| Fault::Crash {
        node: NodeId::ICN,
        silent: false,
        after_frames: 0,
        back_after: Some(dice.ms(1, 60)),
    };
    let count = dice.range(1, 4);
    let crashes = (0..count).map(|_| (time(options, dice, 100), crash(dice)));
    crashes.collect()
}

/// Second processes of one index, and clocks that are set back.
fn lives(options: &mut Options, dice: &mut Dice) -> Vec<(Duration, Fault)> {
    let count = dice.range(1, 6);
    let fault = |dice: &mut Dice| match dice.range(1, 5) {
        1 | 2 => Fault::ClockBack {
            node: any(options, dice),
            back_after: dice.ms(1, 300),
        },
        3 | 4 => Fault::Twin {
            node: any(options, dice),
            is_later: dice.chance(50),
            length: dice.ms(20, 800),
        },
        _ => Fault::Crash {
            node: any(options, dice),
            silent: dice.chance(30),
            after_frames: 0,
            back_after: Some(dice.ms(1, 300)),
        },
    };
    let faults = (0..count).map(|_| (time(options, dice, 20), fault(dice)));
    faults.collect()
}

/// With a registry: a node dies, its next life begins at once, and is paused when the session of the former one is
/// over.
fn late_sessions(options: &mut Options, dice: &mut Dice) -> Vec<(Duration, Fault)> {
    options.log = Log::ZooKeeper;
    options.session = dice.pick(&[400, 600, 1000].map(Duration::from_millis));
    let node = if dice.chance(80) {
        flp(options, dice)
    } else {
        epn(options, dice)
    };
    let died_at = dice.ms(100, 400);
    let crash = Fault::Crash {
        node,
        silent: true,
        after_frames: 0,
        back_after: Some(dice.ms(1, 30)),
    };
    // Silent, and far from the end of its own session; or beyond that.
    let length = if dice.chance(70) {
        dice.ms(110, 180)
    } else {
        dice.ms(400, 700)
    };
    let pause = Fault::Pause { node, length };
    let paused_at = died_at + options.session + dice.ms(0, 300);
    // Everything happens before the faults end.
    let more = (paused_at + length + Duration::from_millis(300)).saturating_sub(options.calm_at);
    options.calm_at += more;
    options.stop_at += more + options.session;
    options.settle += options.session;
    vec![(died_at, crash), (paused_at, pause)]
}

/// FLPs whose control streams break, with holds that last longer than the cuts.
fn control_cut(options: &mut Options, dice: &mut Dice) -> Vec<(Duration, Fault)> {
    options.flps = options.flps.max(2);
    options.rate_hz = dice.pick(&[20.0, 50.0]);
    options.hold_stfs = 2000;
    options.stf_timeout_ms = dice.pick(&[300, 500, 700]);
    let fault = |dice: &mut Dice| Fault::ControlCut {
        node: flp(options, dice),
        length: dice.ms(20, 1500),
    };
    let count = dice.range(1, 3);
    let faults = (0..count).map(|_| (time(options, dice, 50), fault(dice)));
    faults.collect()
}

/// Streams of nodes, sent again by a stranger.
fn replays(options: &mut Options, dice: &mut Dice) -> Vec<(Duration, Fault)> {
    let fault = |dice: &mut Dice| Fault::Replay {
        node: if dice.chance(70) {
            NodeId::ICN
        } else {
            epn(options, dice)
        },
        stream: dice.range(0, 20) as usize,
    };
    let count = dice.range(1, 30);
    let faults = (0..count).map(|_| (time(options, dice, 50), fault(dice)));
    faults.collect()
}

/// EPNs die, or lose their ICN for longer than their time of grace and come back in the same life, with committed TFs
/// that their consumers have or have not. A leading ICN may die meanwhile.
fn redelivery(options: &mut Options, dice: &mut Dice) -> Vec<(Duration, Fault)> {
    options.delivery = Delivery::AtLeastOnce;
    options.log = dice.pick(&[Log::Memory, Log::File, Log::Majority]);
    options.flps = options.flps.max(2);
    options.epns = options.epns.max(3);
    options.hold_stfs = 2000;
    options.rate_hz = dice.pick(&[50.0, 100.0, 200.0]);
    // A life is over 2 s after its stream was cut.
    let calm_at = dice.ms(2500, 6000);
    let more = calm_at.saturating_sub(options.calm_at);
    options.calm_at += more;
    options.stop_at += more;
    let mut faults = Vec::new();
    for _ in 0..dice.range(1, 8) {
        let node = epn(options, dice);
        let at = time(options, dice, 100);
        let is_deaf = dice.chance(60);
        if is_deaf {
            // Commits wait for their acknowledgement.
            let length = dice.ms(20, 3000);
            faults.push((
                at.saturating_sub(dice.ms(1, 40)),
                Fault::SinkDown { node, length },
            ));
        }
        let icn = NodeId {
            index: dice.range(0, u64::from(options.log.icns()) - 1) as u16,
            ..NodeId::ICN
        };
        let fault = match dice.range(1, 10) {
            1..=3 => Fault::Crash {
                node,
                silent: dice.chance(30),
                after_frames: dice.pick(&[0, 0, 1, 2, 5]),
                back_after: dice.chance(60).then(|| dice.ms(1, 2500)),
            },
            4..=6 => Fault::ControlCut {
                node,
                length: dice.ms(1500, 4000),
            },
            7 | 8 => Fault::Isolate {
                node,
                length: dice.ms(1500, 4000),
            },
            9 => Fault::Pause {
                node,
                length: dice.ms(1500, 4000),
            },
            _ if options.log == Log::Memory => Fault::Leave {
                node,
                back_after: dice.ms(50, 400),
            },
            _ => Fault::Crash {
                node: icn,
                silent: false,
                after_frames: dice.pick(&[0, 0, 1, 3, 9]),
                back_after: Some(dice.ms(1, 400)),
            },
        };
        faults.push((at, fault));
    }
    faults
}

/// All FLPs and EPNs are slow, from the start to the end of the faults; so is the ICN in every second seed. One that is
/// slow takes the silence of others for its own fault.
fn starved(options: &mut Options, dice: &mut Dice) -> Vec<(Duration, Fault)> {
    let worst = dice.range(20, 250);
    let mut nodes = Vec::new();
    nodes.extend(dice.chance(50).then_some(NodeId::ICN));
    nodes.extend((0..options.flps).map(|flp| NodeId::from(FlpId(flp))));
    nodes.extend((0..options.epns).map(|epn| NodeId::from(EpnId(epn))));
    // Long enough that a node can be suspected again and again.
    let more = dice.ms(3000, 5000);
    options.calm_at += more;
    options.stop_at += more;
    // Not the credits are to limit the rate: a TF takes some turns of each node, and a hundred ms a turn.
    options.rate_hz = dice.pick(&[10.0, 20.0]);
    options.hold_stfs = 400;
    options.capacity_tfs = 100;
    options.slots = 40;
    let length = options.calm_at;
    let slow = |node| Fault::Slow {
        node,
        every: dice.ms(10, worst),
        length,
    };
    let faults = nodes.into_iter().map(slow);
    faults
        .map(|fault| (Duration::from_millis(20), fault))
        .collect()
}
