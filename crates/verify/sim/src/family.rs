//! Families of seeds: the faults that a seed may have.

/// A family of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedFamily {
    /// All faults of nodes; each seed enables some and weighs them. The usual one.
    Swarm,
    /// As the swarm, with faults outside of the nodes: each farm has a ZooKeeper, or EPNs with disks, or both.
    Outside,
    /// As the swarm, and large STFs are offered and fetched.
    Grants,
    /// No faults.
    Calm,
    /// EPNs crash, hang and come back.
    EpnFaults,
    /// Frames are lost, doubled, overtaken; streams are reset.
    BadNetwork,
    /// Faults of nodes and network.
    Everything,
    /// As everything, and the heartbeat of the ICN leads.
    Paced,
    /// As `EpnFaults`, under any policy and any reaction to failures; no fault hits the last EPN.
    Reactions,
    /// A lone ICN dies with its log, again and again: frames of former runs arrive late.
    Runs,
    /// Two processes have one index; clocks are set back; sessions of former lives run out late.
    Lives,
    /// The control streams of FLPs break, and stay broken for a while; their data streams do not.
    ControlCut,
    /// Recorded streams of nodes are sent again by a stranger.
    Replays,
    /// Every node gets a processor only now and then.
    Starved,
    /// EPNs die, or are taken for dead and come back, with TFs that their consumers may have: these are built again.
    Redelivery,
    /// The same, with consumers that work, and the acknowledgement when they have finished.
    Processed,
    /// No farm: the collector of monitoring and its store.
    Monitor,
    /// No farm: an engine that writes streams to files.
    Writers,
    /// No farm: EPNs that hand TFs to writer nodes.
    Handoff,
}

impl SeedFamily {
    /// All families.
    pub const ALL: [Self; 19] = [
        Self::Swarm,
        Self::Outside,
        Self::Grants,
        Self::Calm,
        Self::EpnFaults,
        Self::BadNetwork,
        Self::Everything,
        Self::Paced,
        Self::Reactions,
        Self::Runs,
        Self::Lives,
        Self::ControlCut,
        Self::Replays,
        Self::Starved,
        Self::Redelivery,
        Self::Processed,
        Self::Monitor,
        Self::Writers,
        Self::Handoff,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Swarm => "swarm",
            Self::Outside => "outside",
            Self::Grants => "grants",
            Self::Calm => "calm",
            Self::EpnFaults => "epn-faults",
            Self::BadNetwork => "bad-network",
            Self::Everything => "everything",
            Self::Paced => "paced",
            Self::Reactions => "reactions",
            Self::Runs => "runs",
            Self::Lives => "lives",
            Self::ControlCut => "control-cut",
            Self::Replays => "replays",
            Self::Starved => "starved",
            Self::Redelivery => "redelivery",
            Self::Processed => "processed",
            Self::Monitor => "monitor",
            Self::Writers => "writers",
            Self::Handoff => "handoff",
        }
    }

    /// Returns the family of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns whether every TF has to be complete, whatever happens: no fault hits an FLP.
    #[must_use]
    pub fn loses_nothing(self) -> bool {
        matches!(
            self,
            Self::Calm
                | Self::EpnFaults
                | Self::BadNetwork
                | Self::Reactions
                | Self::ControlCut
                | Self::Replays
                | Self::Starved
        )
    }
}
