//! Facts that the checks judge. Nothing here reads any.

use crate::config::GatewayConfig;
use crate::expect::Expect;
use crate::facts::Facts;
use sheaf_serve::{ServerConfig, ServiceConfig};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Answer to a question, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked<T> {
    /// Answer.
    Answer(T),
    /// Reason of the failure.
    Failed(String),
    /// Reason why the question was not asked.
    Not(String),
}

/// Certificate of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Certificate {
    /// Names in it, of DNS.
    pub(super) names: Vec<String>,
    /// Addresses in it.
    pub(super) addresses: Vec<IpAddr>,
    /// First second that it is valid, since 1970.
    pub(super) from_s: i64,
    /// Last second that it is valid, since 1970.
    pub(super) to_s: i64,
}

/// Server of a service.
#[derive(Clone, Debug)]
pub(super) struct ServerCase<'a> {
    pub(super) service: &'a ServiceConfig,
    pub(super) server: &'a ServerConfig,
    pub(super) expect: Option<&'a Expect>,
    /// Whether it is this machine.
    pub(super) is_here: bool,
    /// Whether packets of clients come with the virtual address.
    pub(super) is_direct_return: bool,
    pub(super) facts: Asked<Facts>,
    /// Clock of this machine when the facts were read, in ms since 1970: the earliest and the latest.
    pub(super) asked_ms: (u64, u64),
    /// Address that GridFTP names for data.
    pub(super) data_address: Asked<IpAddr>,
    pub(super) certificate: Asked<Certificate>,
    /// Connections to the virtual addresses on the machine itself.
    pub(super) accepts: Asked<BTreeMap<IpAddr, Result<(), String>>>,
    pub(super) now_s: i64,
}

/// Tables of a director, by service: digest and connections that stay where they are.
pub(super) type Tables = BTreeMap<String, (String, usize)>;

/// Director, which is this machine.
#[derive(Clone, Debug)]
pub(super) struct DirectorCase<'a> {
    pub(super) config: &'a GatewayConfig,
    pub(super) services: Vec<&'a ServiceConfig>,
    pub(super) facts: Facts,
    /// Largest packet of each server's card, by name.
    pub(super) server_mtus: BTreeMap<String, u32>,
    /// Source address that the kernel takes to each server.
    pub(super) sources: BTreeMap<IpAddr, IpAddr>,
    /// Trial of the rules.
    pub(super) rules: Asked<()>,
    /// Trial of what the plane needs of the machine.
    pub(super) plane: Asked<String>,
    /// Features of the card that `ethtool` knows: on or off, and whether it can be changed.
    pub(super) features: Asked<BTreeMap<String, (bool, bool)>>,
    /// Tables of the directors, by name; the own ones first.
    pub(super) tables: Vec<(String, Asked<Tables>)>,
}
