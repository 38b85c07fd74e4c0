//! Check, and the facts that it judges.

use crate::Question;
use crate::finding::Verdict;
use crate::machine::Machine;
use crate::peers::Peers;
use serde::Serialize;
use sheaf_gateway::Facts;
use sheaf_node::config::FarmConfig;

/// Facts that a check judges.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) question: &'a Question<'a>,
    /// Farm file, or the defaults.
    pub(crate) farm: &'a FarmConfig,
    pub(crate) machine: &'a Machine,
    /// Cards and their addresses, or why they are not known.
    pub(crate) links: Result<&'a Facts, &'a String>,
    pub(crate) peers: &'a Peers,
}

/// A check. What it has to say to people stands here once: the report, `--list` and the reference are made of it.
#[derive(Debug, Serialize)]
pub struct Check {
    /// Name.
    pub name: &'static str,
    /// Sources that it reads.
    pub reads: &'static str,
    /// Value that is well.
    pub expects: &'static str,
    /// Reason why that matters.
    pub why: &'static str,
    /// Cost of another value, where that was measured.
    pub cost: Option<&'static str>,
    #[serde(skip)]
    pub(crate) judge: fn(&Case<'_>) -> Vec<Verdict>,
}
