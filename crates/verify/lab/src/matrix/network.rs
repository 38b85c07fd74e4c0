//! Faults of packets, links and streams.

use super::{LAN, NET, RELAYED, SOURCE_GONE};
use crate::cell::{Cell, Fault, Who};
use sheaf_testbed::rules::Way;
use sheaf_testbed::tool::Need;

pub(super) const CELLS: &[Cell] = &[
    Cell {
        detect_ms: Some(120),
        is_quick: true,
        shape: LAN,
        needs: NET,
        ..Cell::new(
            "cut",
            "F7",
            "an EPN is cut off from all",
            Fault::Cut(Way::Both),
            Who::Epn,
        )
    },
    Cell {
        recover_ms: 650,
        shape: LAN,
        needs: NET,
        ..Cell::new(
            "cut-pair",
            "F7",
            "one FLP and one EPN do not reach each other",
            Fault::CutPair,
            Who::FirstPair,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        recover_ms: 650,
        ..Cell::new(
            "cut-in",
            "F8",
            "nothing reaches an EPN, what it sends arrives",
            Fault::Cut(Way::In),
            Who::Epn,
        )
    },
    Cell {
        detect_ms: Some(120),
        shape: LAN,
        needs: NET,
        recover_ms: 650,
        ..Cell::new(
            "cut-out",
            "F8",
            "an EPN receives, and nothing it sends arrives",
            Fault::Cut(Way::Out),
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        recover_ms: 2500,
        losses: SOURCE_GONE,
        ..Cell::new(
            "cut-flp",
            "F7",
            "an FLP is cut off from all",
            Fault::Cut(Way::Both),
            Who::Flp,
        )
    },
    Cell {
        is_quick: true,
        shape: LAN,
        needs: NET,
        hold_ms: (500, 1000),
        recover_ms: 2000,
        ..Cell::new(
            "loss-1",
            "F9",
            "1 % of all packets are lost, everywhere",
            Fault::Loss(10),
            Who::AllNodes,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (500, 1000),
        recover_ms: 3000,
        losses: SOURCE_GONE,
        trials: 5,
        ..Cell::new(
            "loss-10",
            "F9",
            "10 % of all packets are lost, everywhere",
            Fault::Loss(100),
            Who::AllNodes,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (500, 1000),
        ..Cell::new(
            "duplicate",
            "F10",
            "every packet is sent twice, everywhere",
            Fault::Duplicate,
            Who::AllNodes,
        )
    },
    Cell {
        shape: RELAYED,
        hold_ms: (500, 1000),
        recover_ms: 500,
        ..Cell::new(
            "delay",
            "F11",
            "everything to and from a pair comes up to 20 ms late",
            Fault::Delay(20),
            Who::FirstPair,
        )
    },
    Cell {
        is_quick: true,
        shape: RELAYED,
        recover_ms: 650,
        ..Cell::new(
            "flip-data",
            "F12",
            "a bit of the STFs to an EPN flips",
            Fault::FlipData,
            Who::FirstEpn,
        )
    },
    Cell {
        shape: RELAYED,
        recover_ms: 650,
        losses: SOURCE_GONE,
        ..Cell::new(
            "flip-control",
            "F30",
            "a bit of what nodes say to the ICN flips",
            Fault::FlipControl,
            Who::FirstPair,
        )
    },
    Cell {
        shape: LAN,
        needs: &[Need::Namespaces, Need::TrafficControl],
        hold_ms: (1000, 2000),
        recover_ms: 650,
        ..Cell::new(
            "slow-link",
            "F13",
            "an EPN gets 1 Mbit/s out",
            Fault::SlowLink(1000),
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        hold_ms: (50, 300),
        ..Cell::new(
            "reset",
            "F14",
            "every connection of an EPN is reset",
            Fault::Reset,
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        detect_ms: Some(120),
        ..Cell::new(
            "link-flap",
            "F15",
            "the cable of an EPN is out for a while",
            Fault::LinkDown,
            Who::Epn,
        )
    },
    Cell {
        shape: LAN,
        needs: NET,
        // It comes back to the ICN from the address that it has now, perhaps before a node misses it. Its data address
        // is gone, so a TF that it is given waits for its deadline: as with a pair that is cut.
        recover_ms: 650,
        ..Cell::new(
            "address-away",
            "F15",
            "an EPN has another address for a while",
            Fault::AddressAway,
            Who::Epn,
        )
    },
];
