//! One cell of the fault matrix: what is done to a farm, and what it has to withstand.

use crate::shape::Shape;
use rand::{Rng, RngExt as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use sheaf_testbed::rules::Way;
use sheaf_testbed::tool::Need;
use std::time::Duration;

/// To whom it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Any EPN.
    Epn,
    /// EPN 0, which has the relay, the small disk or the odd clock.
    FirstEpn,
    /// Two EPNs.
    TwoEpns,
    /// All EPNs.
    AllEpns,
    /// Any FLP.
    Flp,
    /// The ICN that leads.
    Icn,
    /// An ICN that stands by.
    Standby,
    /// All ICNs.
    AllIcns,
    /// No node: it is done to something else.
    NoNode,
    /// All FLPs and EPNs.
    AllNodes,
    /// All FLPs, EPNs and ICNs.
    Everyone,
    /// FLP 0 and EPN 0.
    FirstPair,
    /// Any writer node.
    Writer,
}

impl Who {
    /// The nodes of a farm of `shape` that are meant, in an order of chance.
    pub(crate) fn choose(
        self,
        shape: &Shape,
        leader: Option<NodeId>,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Vec<NodeId> {
        let mut epns: Vec<NodeId> = (0..shape.epns).map(|index| EpnId(index).into()).collect();
        let mut flps: Vec<NodeId> = (0..shape.flps).map(|index| FlpId(index).into()).collect();
        shuffle(&mut epns, rng);
        shuffle(&mut flps, rng);
        match self {
            Self::Epn => epns.truncate(1),
            Self::FirstEpn => epns = vec![EpnId(0).into()],
            Self::TwoEpns => epns.truncate(2),
            Self::AllEpns => {}
            Self::Flp => {
                flps.truncate(1);
                return flps;
            }
            Self::NoNode => return Vec::new(),
            Self::Icn => return vec![leader.unwrap_or(NodeId::ICN)],
            Self::Standby | Self::AllIcns => {
                let icns = (0..shape.icns).map(|index| NodeId {
                    role: Role::Icn,
                    index,
                });
                let mut icns: Vec<NodeId> = icns.collect();
                shuffle(&mut icns, rng);
                if self == Self::Standby {
                    icns.retain(|icn| Some(*icn) != leader);
                    icns.truncate(1);
                }
                return icns;
            }
            Self::AllNodes => {
                epns.append(&mut flps);
                shuffle(&mut epns, rng);
            }
            Self::Everyone => {
                epns.append(&mut flps);
                let icns = (0..shape.icns).map(|index| NodeId {
                    role: Role::Icn,
                    index,
                });
                epns.extend(icns);
                shuffle(&mut epns, rng);
            }
            Self::Writer => {
                let mut writers: Vec<NodeId> = shape.writers().collect();
                shuffle(&mut writers, rng);
                writers.truncate(1);
                return writers;
            }
            Self::FirstPair => return vec![FlpId(0).into(), EpnId(0).into()],
        }
        epns
    }
}

/// Puts `items` into an order of chance.
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut impl Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.random_range(0..=last));
    }
}

/// Fault to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; a new process takes its place.
    Kill,
    /// SIGKILL after SIGSTOP for this many ms: like a machine that loses power.
    Vanish(u64),
    /// SIGSTOP, then SIGCONT.
    Pause,
    /// SIGTERM, and a new process when the old one has ended.
    Restart,
    /// Packets from and to all others are dropped.
    Cut(Way),
    /// Packets between the chosen FLP and EPN are dropped.
    CutPair,
    /// As [`Cut`](Self::Cut) for each in turn, healed in another order.
    Swizzle,
    /// That many of 1000 packets that come are dropped.
    Loss(u32),
    /// Packets are sent twice.
    Duplicate,
    /// Whatever comes in is answered with a reset while it lasts, and is not heard.
    Reset,
    /// Every connection is reset at both its ends, once.
    ResetOnce,
    /// The cable is out.
    LinkDown,
    /// The address is gone; then it is another one's for a while, then back.
    AddressAway,
    /// Limit of the outgoing rate, in kbit/s.
    SlowLink(u32),
    /// The relay before the data port of EPN 0 flips a bit.
    FlipData,
    /// The relays between FLP 0, EPN 0 and the ICN flip a bit.
    FlipControl,
    /// The relay before the data port passes on half a piece and closes.
    TruncateData,
    /// The relay before the data port writes huge lengths over small ones.
    OversizeData,
    /// All relays delay every piece by up to this many ms.
    Delay(u64),
    /// The relay before the data port passes nothing, and leaves the connections open.
    FreezeData,
    /// Strangers say garbage and huge lengths to every port.
    Lies,
    /// That many connections to every port, which say one byte a second.
    HalfOpen(u32),
    /// The wall clock of FLP 0 and EPN 0 jumps by this many days and back.
    WallClock(i32),
    /// The disk of EPN 0 is full.
    DiskFull,
    /// Another program keeps the catalogue of the files of streams locked.
    LockCatalogue,
    /// System calls go wrong as `strace -e inject=…` says.
    SystemCalls(&'static str),
    /// SIGKILL at one of the next system calls of this kind.
    KillAtCall(&'static str),
    /// No more file descriptors than are open, while strangers connect.
    FewFiles,
    /// Less memory than it has.
    LittleMemory,
    /// Busy processes beside, and the lowest priority.
    Starve,
    /// Each shares so much of one processor, in percent, with a busy process.
    Share(u64),
    /// SIGKILL of ZooKeeper servers; they are started again.
    KillServers(Servers),
    /// SIGSTOP of ZooKeeper servers, then SIGCONT.
    PauseServers(Servers),
    /// Nothing passes between it and any ZooKeeper server; connections stay, and new ones are taken.
    CutServers,
}

/// Which ZooKeeper servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Servers {
    /// One that follows.
    Follower,
    /// The one that leads.
    Leader,
    /// All.
    All,
}

impl Fault {
    /// Whether a tool of the system does it, which takes some ms until it has ended.
    pub(crate) fn is_by_tool(self) -> bool {
        matches!(
            self,
            Self::Cut(_)
                | Self::CutPair
                | Self::Loss(_)
                | Self::Duplicate
                | Self::Reset
                | Self::ResetOnce
                | Self::LinkDown
                | Self::AddressAway
                | Self::SlowLink(_)
                | Self::SystemCalls(_)
                | Self::KillAtCall(_)
                | Self::KillServers(_)
                | Self::PauseServers(_)
        )
    }
}

/// From when on the farm is on the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// From the fault on: others take over.
    Fault,
    /// From the healing on: no other node can take over.
    Heal,
}

/// One row of the matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Name on the command line.
    pub name: &'static str,
    /// Number in the matrix of faults.
    pub number: &'static str,
    /// Short description of the fault.
    pub what: &'static str,
    /// Fault to inject.
    pub fault: Fault,
    /// To whom.
    pub who: Who,
    /// How long it lasts, from and to, in ms; chance decides.
    pub hold_ms: (u64, u64),
    /// To which farm.
    pub shape: Shape,
    /// Requirements on the machine.
    pub needs: &'static [Need],
    /// How often, unless set otherwise.
    pub trials: u32,
    /// Whether it is one of the quick ones, which CI runs.
    pub is_quick: bool,
    /// How soon the ICN has to notice, in ms; `None` if there is nothing to notice.
    pub detect_ms: Option<u64>,
    /// How long the TF that waits longest may wait, in ms.
    pub recover_ms: u64,
    /// From when on that counts.
    pub since: Since,
    /// Least share of the TFs that are due while the fault lasts that have to be built, in percent; `None`: any.
    pub rate_percent_min: Option<u64>,
    /// How often a fault may make nodes suspects; `None`: any number of times.
    pub suspected_max: Option<u64>,
    /// Reasons for which TFs may be lost.
    pub losses: &'static [&'static str],
    /// Whether nodes may log errors.
    pub may_log_errors: bool,
    /// Text that the log of some node has to have; `None`: any.
    pub must_log: Option<&'static str>,
}

impl Cell {
    /// A cell in which nothing may be lost; the fields that make it what it is are set by who takes it.
    pub const fn new(
        name: &'static str,
        number: &'static str,
        what: &'static str,
        fault: Fault,
        who: Who,
    ) -> Self {
        Self {
            name,
            number,
            what,
            fault,
            who,
            hold_ms: (300, 600),
            shape: Shape::SMALL,
            needs: &[],
            trials: 10,
            is_quick: false,
            detect_ms: None,
            recover_ms: 250,
            since: Since::Fault,
            rate_percent_min: None,
            suspected_max: None,
            losses: &[],
            may_log_errors: false,
            must_log: None,
        }
    }

    /// How long the fault lasts this time.
    pub(crate) fn hold(&self, rng: &mut impl Rng) -> Duration {
        let (from, to) = self.hold_ms;
        Duration::from_millis(rng.random_range(from..=to))
    }

    /// Why it cannot run here; `None` if it can.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        self.needs.iter().find_map(|need| need.missing())
    }
}
