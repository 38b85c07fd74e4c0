//! Checks of a machine and of the way to the other machines of a farm.
//!
//! A [`Check`] reads something of this machine or of the farm, and says what it found and expected; [`CHECKS`] has all
//! of them, once. [`examine`] calls them and changes nothing, but for files of its own in folders of the farm, which
//! it removes. `sheaf serve doctor` does the same for directors and their servers.

mod certificates;
mod check;
mod checks;
mod disk;
mod finding;
mod machine;
mod network;
mod peers;
mod report;

pub use check::Check;
pub use checks::CHECKS;
pub use finding::{Finding, State};
pub use report::Report;

use check::Case;
use machine::Machine;
use peers::Peers;
use sheaf_gateway::Facts;
use sheaf_node::config::FarmConfig;
use sheaf_protocol::Role;
use std::time::Duration;

/// Part of a farm that is examined.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// Farm file; `None` for the machine alone, with the defaults of all keys.
    pub farm: Option<&'a FarmConfig>,
    /// Roles that this machine has or is to have.
    pub roles: Vec<Role>,
    /// Whether other machines of the farm are asked.
    pub is_wide: bool,
    /// Whether folders of the farm are written to.
    pub has_disk: bool,
    /// Version of this program, as `sheaf_build_info` tells it.
    pub version: String,
    /// Longest time of a question to another machine.
    pub patience: Duration,
}

/// Reads the machine, asks the farm, and judges both.
#[must_use]
pub fn examine(question: &Question<'_>) -> Report {
    let default = FarmConfig::default();
    let farm = question.farm.unwrap_or(&default);
    let links = Facts::read().map_err(|error| error.to_string());
    let machine = Machine::read(links.as_ref().ok());
    let peers = match question.farm {
        Some(farm) if question.is_wide => Peers::ask(farm, question.patience),
        _ => Peers::default(),
    };
    let case = Case {
        question,
        farm,
        machine: &machine,
        links: links.as_ref(),
        peers: &peers,
    };
    let mut report = Report::default();
    for check in CHECKS {
        report.add(check, (check.judge)(&case));
    }
    report
}
