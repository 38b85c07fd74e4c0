//! Checks of what direct return depends on, on directors and servers, and repairs of it.
//!
//! Facts are read first ([`probe`]), then judged by checks that read none ([`servers`], [`directors`]); what a check
//! finds wrong it may repair by settings of the kernel and addresses ([`repair`]). On a director the servers are
//! judged as well, by what their agents tell; changes are made on this machine alone.

mod certificate;
mod directors;
mod finding;
mod probe;
mod repair;
mod servers;
mod survey;

use crate::config::GatewayConfig;
use crate::error::GatewayError;
use crate::facts::Facts;
pub use finding::{Finding, Repair, Verdict};
use serde::{Deserialize, Serialize};
use sheaf_serve::ServiceConfig;
use survey::{DirectorCase, ServerCase};

/// Rounds of repairs: a repair may bring to light what another check finds then.
const ROUNDS: usize = 3;

/// Part that a machine has in a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Takes the packets of clients.
    Director,
    /// Stores files.
    Server,
}

/// Judges the facts of a machine with a part of its own.
#[derive(Clone, Copy, Debug)]
enum Judge {
    Director(fn(&DirectorCase<'_>) -> Vec<Verdict>),
    Server(fn(&ServerCase<'_>) -> Vec<Verdict>),
}

/// Row of the table of checks.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Name.
    pub name: &'static str,
    /// Facts that it judges.
    pub reads: &'static str,
    /// State of a machine that is well.
    pub expects: &'static str,
    /// Harm if it is not so.
    pub why: &'static str,
    judge: Judge,
}

impl Check {
    /// Part of the machines that it is for.
    #[must_use]
    pub fn role(&self) -> Role {
        match self.judge {
            Judge::Director(_) => Role::Director,
            Judge::Server(_) => Role::Server,
        }
    }
}

/// All checks, in the order in which repairs are made.
pub const CHECKS: [Check; 20] = [
    Check {
        name: "interface",
        reads: "ip addr",
        expects: "the card of [director] is there and up",
        why: "without it no packet of a client comes in",
        judge: Judge::Director(directors::interface),
    },
    Check {
        name: "virtual-address",
        reads: "ip addr",
        expects: "the virtual addresses on the card, alone in their prefix",
        why: "clients find nothing at the address, or a whole network is taken for this machine's",
        judge: Judge::Director(directors::virtual_address),
    },
    Check {
        name: "source-address",
        reads: "the source that the kernel takes to each server",
        expects: "an own address",
        why: "answers to a virtual address go to a server, and checks of servers fail",
        judge: Judge::Director(directors::source_address),
    },
    Check {
        name: "rules",
        reads: "nft --check with rules of the kind that are needed",
        expects: "the kernel takes them",
        why: "without nftables, its modules or rights the plane cannot be carried out",
        judge: Judge::Director(directors::rules),
    },
    Check {
        name: "plane",
        reads: "a trial load of the BPF program; ip_vs and ip_vs_mh; haproxy -vv",
        expects: "what the plane needs is there, and net.ipv4.vs.expire_nodest_conn is 1",
        why: "the director cannot carry a table out, or clients of a dead server wait",
        judge: Judge::Director(directors::plane),
    },
    Check {
        name: "mtu",
        reads: "MTU of the card, and of servers by their agents",
        expects: "at least that of every server",
        why: "clients send packets as large as servers take; the director drops those that are larger than its own",
        judge: Judge::Director(directors::mtu),
    },
    Check {
        name: "offloads",
        reads: "ethtool -k",
        expects: "large-receive-offload off; with XDP rx-gro-hw as well",
        why: "packets that a card has merged cannot be passed to a server as they came",
        judge: Judge::Director(directors::offloads),
    },
    Check {
        name: "forwarding",
        reads: "net.ipv4.ip_forward, net.ipv6.conf.all.forwarding",
        expects: "1 for planes that route",
        why: "the kernel drops packets that are not for itself",
        judge: Judge::Director(directors::forwarding),
    },
    Check {
        name: "same-table",
        reads: "HTTP of the directors",
        expects: "equal tables",
        why: "connections break when the addresses move to a director with another table",
        judge: Judge::Director(directors::same_table),
    },
    Check {
        name: "agent",
        reads: "HTTP of the agent",
        expects: "an answer",
        why: "drains wait for their deadline, and weights do not follow the load",
        judge: Judge::Server(servers::agent),
    },
    Check {
        name: "clock",
        reads: "clock of the server by its agent",
        expects: "within a second of the director's",
        why: "tokens and certificates are refused, and logs do not fit together",
        judge: Judge::Server(servers::clock),
    },
    Check {
        name: "ipv6",
        reads: "disable_ipv6 of lo and the card",
        expects: "0",
        why: "the kernel takes no IPv6 address",
        judge: Judge::Server(servers::ipv6),
    },
    Check {
        name: "arp-ignore",
        reads: "arp_ignore of all and of each card",
        expects: "1 or 2",
        why: "the server answers for the virtual address, and takes the clients of the others away",
        judge: Judge::Server(servers::arp_ignore),
    },
    Check {
        name: "arp-announce",
        reads: "arp_announce of all and of each card",
        expects: "2",
        why: "the server asks for its neighbours from the virtual address, and they learn it wrongly",
        judge: Judge::Server(servers::arp_announce),
    },
    Check {
        name: "virtual-address",
        reads: "ip addr",
        expects: "the virtual addresses on lo, alone in their prefix, and on no card with ARP",
        why: "packets of clients are dropped, or the server answers for the address",
        judge: Judge::Server(servers::virtual_address),
    },
    Check {
        name: "reverse-path",
        reads: "rp_filter of all and of each card",
        expects: "0 or 2",
        why: "packets of clients whose way back leaves by another card are dropped without a word",
        judge: Judge::Server(servers::reverse_path),
    },
    Check {
        name: "port-range",
        reads: "ip_local_port_range, ip_local_reserved_ports",
        expects: "no port of the service, no data port among those of outgoing connections",
        why: "an outgoing connection takes the port, and the storage server does not start or a transfer fails",
        judge: Judge::Server(servers::port_range),
    },
    Check {
        name: "accepts",
        reads: "a connection to the virtual address, on the server itself",
        expects: "accepted",
        why: "a storage server that listens on its own address alone refuses every client",
        judge: Judge::Server(servers::accepts),
    },
    Check {
        name: "data-address",
        reads: "the reply of GridFTP to PASV",
        expects: "an own address of the server",
        why: "data goes to the director on a port that no server has, and the transfer hangs",
        judge: Judge::Server(servers::data_address),
    },
    Check {
        name: "certificate",
        reads: "the certificate by a handshake of TLS, or its file",
        expects: "every name of the service, valid for a week",
        why: "clients refuse the server",
        judge: Judge::Server(servers::certificate),
    },
];

/// Result of an examination.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Part that this machine has.
    pub role: Role,
    /// Whether nothing is wrong.
    pub is_well: bool,
    /// Verdicts, in the order of the checks.
    pub findings: Vec<Finding>,
    /// Changes that were made, as commands.
    pub done: Vec<String>,
    /// Changes that failed, with their reasons.
    pub failed: Vec<String>,
    /// Lines for a file of sysctl.d that make the changes of settings last.
    pub sysctl: Vec<String>,
    /// Commands for the configuration of the network that make the other changes last.
    pub network: Vec<String>,
}

/// Examines this machine, on a director its servers as well, and repairs it if `is_fixing`.
///
/// Without a role the machine is a server if it has an own address of one, and else a director. Without a name all
/// services are examined.
///
/// # Errors
///
/// Facts of this machine that cannot be read, a service that is not configured, or a role that it cannot have.
pub fn examine(
    config: &GatewayConfig,
    role: Option<Role>,
    service: Option<&str>,
    is_fixing: bool,
) -> Result<Report, GatewayError> {
    let services: Vec<&ServiceConfig> = match service {
        None => config.services.iter().collect(),
        Some(name) => {
            let mut all = config.services.iter();
            let found = all.find(|service| service.name == name);
            vec![found.ok_or_else(|| GatewayError::NoService {
                found: name.to_owned(),
                expected: config.names(),
            })?]
        }
    };
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let here = Facts::read()?;
        let role = role.unwrap_or_else(|| role_of(&services, &here));
        let findings = judge(config, &services, role, &here)?;
        let repairs = repairs(&findings);
        let is_new = |repair: &&Repair| {
            !done.contains(*repair) && !failed.iter().any(|(one, _)| one == *repair)
        };
        let repairs: Vec<Repair> = repairs.iter().filter(is_new).cloned().collect();
        if !is_fixing || repairs.is_empty() {
            return Ok(report(role, findings, &done, &failed));
        }
        for repair in repairs {
            match repair::make(&repair) {
                Ok(()) => done.push(repair),
                Err(error) => failed.push((repair, error)),
            }
        }
    }
    let here = Facts::read()?;
    let role = role.unwrap_or_else(|| role_of(&services, &here));
    let findings = judge(config, &services, role, &here)?;
    Ok(report(role, findings, &done, &failed))
}

fn role_of(services: &[&ServiceConfig], here: &Facts) -> Role {
    let mut servers = services.iter().flat_map(|service| &service.servers);
    match servers.any(|server| here.link_of(&server.addresses).is_some()) {
        true => Role::Server,
        false => Role::Director,
    }
}

/// Reads the other facts and judges all of them.
fn judge(
    config: &GatewayConfig,
    services: &[&ServiceConfig],
    role: Role,
    here: &Facts,
) -> Result<Vec<Finding>, GatewayError> {
    let mut servers = Vec::new();
    for service in services {
        for server in &service.servers {
            let is_here = role == Role::Server && here.link_of(&server.addresses).is_some();
            if is_here || role == Role::Director {
                let here = is_here.then_some(here);
                servers.push(probe::server(config, service, server, here));
            }
        }
    }
    let director = match role {
        Role::Director => Some(probe::director(config, services.to_vec(), here, &servers)),
        Role::Server if servers.is_empty() => return Err(GatewayError::NoServerHere),
        Role::Server => None,
    };
    let mut findings = Vec::new();
    for check in &CHECKS {
        let mut add = |machine: String, is_here, verdicts: Vec<Verdict>| {
            let finding = |verdict| Finding {
                check: check.name,
                machine: machine.clone(),
                is_here,
                why: matches!(verdict, Verdict::Wrong { .. }).then_some(check.why),
                verdict,
            };
            findings.extend(verdicts.into_iter().map(finding));
        };
        match check.judge {
            Judge::Director(judge) => {
                if let Some(case) = &director {
                    add(config.director.name.clone(), true, judge(case));
                }
            }
            Judge::Server(judge) => {
                for case in &servers {
                    let machine = format!("{}/{}", case.service.name, case.server.name);
                    add(machine, case.is_here, judge(case));
                }
            }
        }
    }
    Ok(findings)
}

/// Returns the repairs of this machine, each once.
fn repairs(findings: &[Finding]) -> Vec<Repair> {
    let mut all: Vec<Repair> = Vec::new();
    for finding in findings.iter().filter(|finding| finding.is_here) {
        if let Verdict::Wrong { repairs, .. } = &finding.verdict {
            for repair in repairs {
                let is_joined = all.iter_mut().any(|own| own.join(repair));
                if !is_joined && !all.contains(repair) {
                    all.push(repair.clone());
                }
            }
        }
    }
    all
}

fn report(
    role: Role,
    findings: Vec<Finding>,
    done: &[Repair],
    failed: &[(Repair, String)],
) -> Report {
    let is_wrong = |finding: &Finding| matches!(finding.verdict, Verdict::Wrong { .. });
    let (sysctl, network) = repair::lasting(done);
    Report {
        role,
        is_well: failed.is_empty() && !findings.iter().any(is_wrong),
        findings,
        done: done.iter().map(ToString::to_string).collect(),
        failed: failed
            .iter()
            .map(|(repair, error)| format!("{repair}: {error}"))
            .collect(),
        sysctl,
        network,
    }
}
