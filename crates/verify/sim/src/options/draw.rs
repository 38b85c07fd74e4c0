//! Draws the options of a seed.

use super::{Ack, Fault, Log, Options, narrow};
use crate::dice::Dice;
use crate::family::SeedFamily;
use sheaf_placement::{Reaction, policy};
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_scheduler::{Delivery, Incomplete, Mode};
use sheaf_stf_builder::flp::{Push, WhenFull};
use sheaf_transport::memory::Faults;
use sheaf_verdict_log::storage::DiskFaults;
use std::time::Duration;

/// Time after the last fault in which every TF gets its verdict: this, or a second more than a TF needs to be stale.
const SETTLE: Duration = Duration::from_secs(2);

/// Sort of fault, for the draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Crash,
    CrashSilent,
    CrashBetweenFrames,
    Restart,
    Pause,
    Leave,
    CutFromIcn,
    CutFromEpn,
    CutOneWay,
    Isolate,
    Slow,
    SinkDown,
    Storm,
    IcnCrash,
    IcnPower,
    IcnPause,
    IcnIsolate,
    IcnCut,
    Disk,
    RegistryAway,
    RegistryCut,
    SessionExpired,
}

/// Sorts that only farms with a registry outside of them can suffer.
const REGISTRY_SORTS: [Sort; 7] = [
    Sort::IcnCrash,
    Sort::IcnPause,
    Sort::IcnIsolate,
    Sort::IcnCut,
    Sort::RegistryAway,
    Sort::RegistryCut,
    Sort::SessionExpired,
];

/// Sorts that only farms with a log on disks can suffer.
const ICN_SORTS: [Sort; 6] = [
    Sort::IcnCrash,
    Sort::IcnPower,
    Sort::IcnPause,
    Sort::IcnIsolate,
    Sort::IcnCut,
    Sort::Disk,
];

const SORTS: [Sort; 13] = [
    Sort::Crash,
    Sort::CrashSilent,
    Sort::CrashBetweenFrames,
    Sort::Restart,
    Sort::Pause,
    Sort::Leave,
    Sort::CutFromIcn,
    Sort::CutFromEpn,
    Sort::CutOneWay,
    Sort::Isolate,
    Sort::Slow,
    Sort::SinkDown,
    Sort::Storm,
];

pub(super) fn options(family: SeedFamily, seed: u64) -> Options {
    // Faults outside come from dice of their own; the rest of the farm is that of the same seed of the swarm.
    let kind = match family {
        SeedFamily::Outside | SeedFamily::Grants => SeedFamily::Swarm,
        SeedFamily::Runs
        | SeedFamily::Lives
        | SeedFamily::ControlCut
        | SeedFamily::Replays
        | SeedFamily::Starved
        | SeedFamily::Redelivery
        | SeedFamily::Processed
        | SeedFamily::Monitor
        | SeedFamily::Writers
        | SeedFamily::Handoff => SeedFamily::Calm,
        other => other,
    };
    let mut dice = Dice::new(seed ^ 0x5eed_0000);
    let calm_at = dice.ms(500, 2000);
    let delay_max = dice.ms(0, 3);
    let stf_timeout_ms = dice.pick(&[500, 700, 1000, 1000]);
    // The presets that must not lose anything have the default, which a network that loses single frames needs.
    let is_long = dice.chance(10) || kind != SeedFamily::Swarm;
    let stf_timeout_ms = if is_long { 2000 } else { stf_timeout_ms };
    let settle = SETTLE.max(Duration::from_millis(stf_timeout_ms + 1000));
    let calm_network = Faults {
        delay_max,
        ..Faults::default()
    };
    let mut options = Options {
        seed,
        kind,
        log: Log::Memory,
        checkpoint_records: checkpoint_records(seed),
        session: Duration::ZERO,
        ack: Ack::Built,
        work: Duration::ZERO,
        delivery: Delivery::AtMostOnce,
        flps: dice.range(1, 4) as u16,
        epns: dice.range(2, 6) as u16,
        policy: dice.pick(&["round-robin", "random", "least-loaded", "modulo", "fixed"]),
        reaction: Reaction::Whitelist,
        mode: Mode::DataDriven,
        incomplete: dice.pick(&[Incomplete::Never, Incomplete::Allow]),
        rate_hz: dice.pick(&[20.0, 50.0, 100.0, 200.0]),
        timeframes: None,
        stf_bytes: dice.range(0, 300),
        hold_stfs: dice.range(64, 400) as u32,
        when_full: WhenFull::Block,
        push: Push::Eager,
        eager_bytes: 0,
        grants_max: 4,
        capacity_tfs: dice.range(4, 60),
        slots: dice.range(4, 20) as u32,
        queue_tfs_max: 4096,
        tf_deadline_ms: 400,
        stf_timeout_ms,
        sends_and_forgets: false,
        clock_spread: Duration::ZERO,
        network: calm_network,
        calm_network,
        faults: Vec::new(),
        calm_at,
        settle,
        stop_at: calm_at + settle + dice.ms(50, 300),
    };
    match kind {
        SeedFamily::Paced => options.mode = Mode::Paced,
        SeedFamily::Reactions => {
            options.epns += 1;
            options.policy = dice.pick(policy::NAMES);
            options.reaction = dice.pick(&Reaction::ALL);
        }
        SeedFamily::Swarm if dice.chance(25) => options.mode = Mode::Paced,
        _ => {}
    }
    if options.mode == Mode::DataDriven && dice.chance(10) {
        // As fast as possible needs an end in TFs, or virtual seconds become hours.
        options.rate_hz = 0.0;
        options.timeframes = Some(dice.range(50, 300));
    } else if dice.chance(10) {
        options.timeframes = Some(dice.range(1, 200));
    }
    if kind == SeedFamily::Swarm {
        options.log = dice.pick(&[Log::Memory, Log::Memory, Log::File, Log::Majority]);
        options.clock_spread = dice.pick(&[Duration::ZERO, Duration::from_secs(100_000)]);
        if options.rate_hz > 0.0 && dice.chance(25) {
            options.when_full = WhenFull::DropNewest;
        }
    }
    let is_bad = match kind {
        SeedFamily::Swarm | SeedFamily::Outside | SeedFamily::Grants => dice.chance(75),
        SeedFamily::BadNetwork | SeedFamily::Everything | SeedFamily::Paced => true,
        _ => false,
    };
    if is_bad {
        options.network = bad_network(kind, &mut dice, delay_max);
    }
    if family == SeedFamily::Outside {
        draw_outside(&mut options, &mut Dice::new(seed ^ 0x5eed_0004));
    }
    if family == SeedFamily::Grants {
        draw_grants(&mut options, &mut Dice::new(seed ^ 0x5eed_0006));
    }
    draw_faults(&mut options, &mut dice);
    draw_delivery(&mut options, &mut Dice::new(seed ^ 0x5eed_000a));
    options.kind = family;
    narrow::draw(&mut options, &mut Dice::new(seed ^ 0x5eed_0008));
    options
}

/// Draws the checkpoints, from dice of their own, so that a seed stands for the farm that it stood for before there
/// were checkpoints.
fn checkpoint_records(seed: u64) -> u64 {
    let mut dice = Dice::new(seed ^ 0xc4ec_0000);
    dice.pick(&[1, 3, 10, 10, 40, 200, 5000])
}

/// Draws how often a TF may be delivered. With ack level `stored` it is at most once.
fn draw_delivery(options: &mut Options, dice: &mut Dice) {
    if options.ack == Ack::Built && dice.chance(40) {
        options.delivery = Delivery::AtLeastOnce;
    }
}

/// Draws which STFs are offered, and how many an EPN fetches at once.
fn draw_grants(options: &mut Options, dice: &mut Dice) {
    options.push = Push::Granted;
    options.eager_bytes = dice.pick(&[0, 0, 50, 150]);
    options.grants_max = dice.range(1, 6) as u32;
    // A grant moves one STF in a round trip. EPNs keep up with FLPs, and with what is held after faults.
    let held = f64::from(options.hold_stfs) / options.settle.as_secs_f64();
    let tfs_per_s = 1.5 * options.rate_hz.max(held);
    let round_trip = options.calm_network.delay_max.as_secs_f64();
    let needed = tfs_per_s * round_trip * f64::from(options.flps) / f64::from(options.epns);
    options.grants_max = options.grants_max.max(needed.ceil() as u32);
}

/// Draws a registry outside the farm, EPNs with disks, or both.
fn draw_outside(options: &mut Options, dice: &mut Dice) {
    let (has_registry, stores) = dice.pick(&[(true, false), (false, true), (true, true)]);
    if has_registry {
        options.log = Log::ZooKeeper;
        options.session = dice.pick(&[400, 600, 1000].map(Duration::from_millis));
        // The process that died last leaves a session behind that holds the others up.
        options.settle += options.session;
        options.stop_at += options.session;
    }
    if stores {
        options.ack = Ack::Stored;
    }
}

fn bad_network(kind: SeedFamily, dice: &mut Dice, delay_max: Duration) -> Faults {
    let is_swarm = kind == SeedFamily::Swarm;
    let mut worst = |max: u64| {
        if is_swarm && dice.chance(40) {
            0.0
        } else {
            dice.milli(max)
        }
    };
    let (loss, duplicate, reorder, reset) = (worst(30), worst(50), worst(50), worst(5));
    let corrupt = if is_swarm { worst(5) } else { 0.0 };
    Faults {
        delay_max,
        loss,
        duplicate,
        reorder,
        late_max: dice.ms(1, 30),
        reset,
        corrupt,
        ..Faults::default()
    }
}

/// Draws the sorts that a seed may have, each as often as it is in the list.
fn sorts(kind: SeedFamily, log: Log, dice: &mut Dice) -> Vec<Sort> {
    match kind {
        SeedFamily::Calm
        | SeedFamily::BadNetwork
        | SeedFamily::Runs
        | SeedFamily::Lives
        | SeedFamily::ControlCut
        | SeedFamily::Replays
        | SeedFamily::Starved
        | SeedFamily::Redelivery
        | SeedFamily::Processed
        | SeedFamily::Monitor
        | SeedFamily::Writers
        | SeedFamily::Handoff => Vec::new(),
        SeedFamily::EpnFaults | SeedFamily::Reactions => vec![
            Sort::Crash,
            Sort::CrashSilent,
            Sort::Pause,
            Sort::CutFromIcn,
            Sort::Leave,
        ],
        SeedFamily::Everything | SeedFamily::Paced => SORTS.to_vec(),
        SeedFamily::Swarm | SeedFamily::Outside | SeedFamily::Grants => {
            let mut sorts = Vec::new();
            for sort in SORTS {
                if dice.chance(50) {
                    let weight = dice.range(1, 8) as usize;
                    sorts.extend(std::iter::repeat_n(sort, weight));
                }
            }
            let of_log: &[Sort] = match log {
                Log::Memory => &[],
                Log::File | Log::Majority => &ICN_SORTS,
                Log::ZooKeeper => &REGISTRY_SORTS,
            };
            for sort in of_log.iter().copied() {
                if dice.chance(60) {
                    let weight = dice.range(1, 4) as usize;
                    sorts.extend(std::iter::repeat_n(sort, weight));
                }
            }
            sorts
        }
    }
}

fn draw_faults(options: &mut Options, dice: &mut Dice) {
    let sorts = sorts(options.kind, options.log, dice);
    if sorts.is_empty() {
        return;
    }
    let count = match options.kind {
        SeedFamily::Swarm => dice.range(1, 45),
        _ => dice.range(1, 6),
    };
    // How often a fault hits an FLP, in percent.
    let flp_share = match options.kind {
        SeedFamily::EpnFaults | SeedFamily::Reactions => 0,
        SeedFamily::Swarm => dice.pick(&[0, 20, 40, 70]),
        _ => 40,
    };
    let calm_ms = options.calm_at.as_millis() as u64;
    for _ in 0..count {
        let at = dice.ms(20, calm_ms - 10);
        let sort = dice.pick(&sorts);
        let fault = draw_fault(options, dice, sort, flp_share);
        options.faults.push((at, fault));
    }
    options.faults.sort_by_key(|(at, _)| *at);
}

fn draw_fault(options: &Options, dice: &mut Dice, sort: Sort, flp_share: u64) -> Fault {
    // Under `reinitialise` dead EPNs never come back: one has to be left.
    let spared = u64::from(options.kind == SeedFamily::Reactions);
    let epn = |dice: &mut Dice| -> NodeId {
        EpnId(dice.range(0, u64::from(options.epns) - 1 - spared) as u16).into()
    };
    let flp = |dice: &mut Dice| -> NodeId {
        FlpId(dice.range(0, u64::from(options.flps) - 1) as u16).into()
    };
    let node = if dice.chance(flp_share) {
        flp(dice)
    } else {
        epn(dice)
    };
    let length = if dice.chance(70) {
        dice.ms(10, 300)
    } else {
        dice.ms(300, 1200)
    };
    let back_after = |dice: &mut Dice| dice.chance(70).then(|| dice.ms(1, 400));
    let crash = |dice: &mut Dice, silent: bool, after_frames: u32| Fault::Crash {
        node,
        silent,
        after_frames,
        back_after: back_after(dice),
    };
    let icn_index = dice.range(0, u64::from(options.log.icns()) - 1) as u16;
    let icn = NodeId {
        role: Role::Icn,
        index: icn_index,
    };
    match sort {
        Sort::IcnCrash => Fault::Crash {
            node: icn,
            silent: dice.chance(30),
            after_frames: dice.pick(&[0, 0, 1, 3, 9]),
            back_after: back_after(dice),
        },
        Sort::IcnPower => Fault::PowerFailure {
            node: icn,
            back_after: back_after(dice),
        },
        Sort::IcnPause => Fault::Pause { node: icn, length },
        Sort::IcnIsolate => Fault::Isolate { node: icn, length },
        Sort::IcnCut => {
            let other = NodeId {
                role: Role::Icn,
                index: (icn_index + 1) % options.log.icns(),
            };
            let other = if options.log == Log::Majority && dice.chance(50) {
                other
            } else {
                node
            };
            Fault::Cut {
                a: icn,
                b: other,
                one_way: dice.chance(50),
                length,
            }
        }
        Sort::Disk => Fault::Disk {
            node: icn,
            faults: disk_faults(dice),
            length,
        },
        Sort::RegistryAway => Fault::RegistryAway { length },
        Sort::RegistryCut => Fault::RegistryCut {
            node: if dice.chance(60) { icn } else { node },
            length,
        },
        Sort::SessionExpired => Fault::SessionExpired {
            node: if dice.chance(60) { icn } else { node },
        },
        Sort::Crash => crash(dice, false, 0),
        Sort::CrashSilent => crash(dice, true, 0),
        Sort::CrashBetweenFrames => {
            let frames = dice.range(1, 8) as u32;
            let silent = dice.chance(30);
            crash(dice, silent, frames)
        }
        Sort::Restart => Fault::Crash {
            node,
            silent: dice.chance(30),
            after_frames: 0,
            back_after: Some(Duration::from_micros(dice.range(1, 2000))),
        },
        Sort::Pause => Fault::Pause { node, length },
        Sort::Leave => Fault::Leave {
            node,
            back_after: dice.ms(50, 400),
        },
        Sort::CutFromIcn => Fault::Cut {
            a: node,
            b: icn,
            one_way: false,
            length,
        },
        Sort::CutFromEpn => Fault::Cut {
            a: flp(dice),
            b: epn(dice),
            one_way: false,
            length,
        },
        Sort::CutOneWay => {
            let other = if dice.chance(50) { icn } else { epn(dice) };
            let (a, b) = if dice.chance(50) {
                (node, other)
            } else {
                (other, node)
            };
            Fault::Cut {
                a,
                b,
                one_way: true,
                length,
            }
        }
        Sort::Isolate => Fault::Isolate { node, length },
        Sort::Slow => Fault::Slow {
            node: if dice.chance(20) { NodeId::ICN } else { node },
            every: dice.ms(6, 40),
            length,
        },
        Sort::SinkDown => Fault::SinkDown {
            node: epn(dice),
            length,
        },
        Sort::Storm => Fault::Storm {
            network: Faults {
                loss: dice.milli(200),
                duplicate: dice.milli(200),
                reorder: dice.milli(300),
                late_max: dice.ms(1, 150),
                reset: dice.milli(20),
                delay_max: dice.ms(0, 60),
                ..Faults::default()
            },
            length,
        },
    }
}

fn disk_faults(dice: &mut Dice) -> DiskFaults {
    let usual = DiskFaults::default();
    match dice.range(1, 4) {
        1 => DiskFaults {
            latency: dice.ms(1, 30),
            ..usual
        },
        2 => DiskFaults {
            slow_once_in: dice.range(2, 20) as u32,
            slow: dice.ms(20, 400),
            ..usual
        },
        3 => DiskFaults {
            error_once_in: dice.range(1, 20) as u32,
            ..usual
        },
        _ => DiskFaults {
            is_full: true,
            ..usual
        },
    }
}
