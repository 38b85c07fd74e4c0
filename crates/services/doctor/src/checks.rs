//! All checks, each with what it reads, what it expects, and why.

use crate::check::{Case, Check};
use crate::finding::Verdict;
use crate::{certificates, disk, network};
use sheaf_node::config::{FarmConfig, LedgerBackend};
use sheaf_node::role::files_needed;
use sheaf_protocol::{NodeId, Role};
use std::path::{Path, PathBuf};

/// Key of the folder of the verdict log.
const LEDGER_KEY: &str = "icn.ledger.directory";

/// All checks, in the order of reports.
pub const CHECKS: &[Check] = &[
    Check {
        name: "farm-file",
        reads: "the farm file, and the files, memory and ports that it names, for the roles of this machine",
        expects: "no error, as `sheaf config check`",
        why: "a node refuses such a file and does not start",
        cost: None,
        judge: farm_file,
    },
    Check {
        name: "certificates",
        reads: "the certificates of the farm file that are on this machine",
        expects: "valid for 30 days more",
        why: "nodes refuse each other once a certificate has ended",
        cost: None,
        judge: certificates::judge,
    },
    Check {
        name: "processors",
        reads: "available processors, the limit of the control group, clock governors",
        expects: "two processors or more for a node that moves data, and the governor `performance`",
        why: "one thread of a node moves all its bytes, and shares a processor with nothing",
        cost: None,
        judge: processors,
    },
    Check {
        name: "memory",
        reads: "MemAvailable, and the memory budgets of the roles",
        expects: "room for the budget of one node of each role",
        why: "a node takes its memory at its start, and the kernel ends processes where there is none left",
        cost: None,
        judge: memory,
    },
    Check {
        name: "open-files",
        reads: "the hard limit of open files of this user",
        expects: "as many as a node of each role needs for its connections, consumers and page",
        why: "a node raises its limit to what its connections need, and does not start if it may not",
        cost: None,
        judge: open_files,
    },
    Check {
        name: "huge-pages",
        reads: "/sys/kernel/mm/transparent_hugepage/enabled",
        expects: "`madvise` or `always`, unless transport.huge_pages = false",
        why: "payload memory is read and written in large runs, and small pages cost look-ups in tables",
        cost: Some(
            "0.760 instead of 0.806 of plain TCP at 1 MB in one measurement (docs/results/farm.md)",
        ),
        judge: huge_pages,
    },
    Check {
        name: "socket-buffers",
        reads: "net.core.rmem_max, net.core.wmem_max",
        expects: "transport.socket_buffer_bytes or more, where the farm has other machines",
        why: "a connection carries at most one buffer in each round trip",
        cost: None,
        judge: network::socket_buffers,
    },
    Check {
        name: "congestion-control",
        reads: "net.ipv4.tcp_available_congestion_control",
        expects: "transport.congestion is one of them",
        why: "the kernel takes another one, and figures differ from machine to machine",
        cost: None,
        judge: network::congestion_control,
    },
    Check {
        name: "port-range",
        reads: "net.ipv4.ip_local_port_range and ip_local_reserved_ports",
        expects: "no port in it at which a node of the farm listens",
        why: "an outgoing connection may take the port just when a node wants to listen there",
        cost: None,
        judge: network::port_range,
    },
    Check {
        name: "cards",
        reads: "real network cards: offloads, the receive ring, queues and the processors that they interrupt, the \
                memory node (ethtool, /sys, /proc/irq)",
        expects: "TSO, GSO and GRO on, the largest receive ring",
        why: "without offloads each packet costs processor time, and a small ring drops packets in bursts: all \
              parts of a TF come at once",
        cost: None,
        judge: network::cards,
    },
    Check {
        name: "interrupts",
        reads: "interrupts of real network cards by processor (/proc/interrupts, /proc/irq)",
        expects: "more than one processor takes them, if the machine has more, and at the memory node of the card",
        why: "one processor takes all packets, and is the limit of the card; at another memory node each packet \
              crosses between them",
        cost: None,
        judge: network::interrupts,
    },
    Check {
        name: "clock",
        reads: "chronyc tracking, or timedatectl",
        expects: "a clock that is held by NTP or PTP",
        why: "decisions of a farm need no common clock; logs, latencies across nodes and certificates do",
        cost: None,
        judge: clock,
    },
    Check {
        name: "disk",
        reads: "folders of the farm file for the roles of this machine: space, 20 durable records, 64 MiB",
        expects: "1 GiB free; a record of the verdict log durable within 20 ms",
        why: "the ICN answers once its records are durable, and an EPN stops taking TFs when its disk is full",
        cost: None,
        judge: folders,
    },
    Check {
        name: "names",
        reads: "look-ups of all hosts of the farm file",
        expects: "an address within 200 ms",
        why: "names are looked up when a process begins: a node does not start without its ICN's",
        cost: None,
        judge: network::names,
    },
    Check {
        name: "registry",
        reads: "servers of membership.servers: their answer to `srvr`",
        expects: "all answer, and one leads",
        why: "with several ICNs the registry decides which of them leads",
        cost: None,
        judge: network::registry,
    },
    Check {
        name: "reach",
        reads: "connections to all addresses of the farm file",
        expects: "all nodes answer",
        why: "a node that does not run, or a firewall in between: no TF goes there",
        cost: None,
        judge: network::reach,
    },
    Check {
        name: "mtu",
        reads: "the largest segment that each node and the way to it take, and the MTU of the card here",
        expects: "the MTU of the card",
        why: "one machine with a smaller MTU makes its connections pay for more packets; one in between that is \
              smaller and silent lets connections open and hang",
        cost: None,
        judge: network::mtu,
    },
    Check {
        name: "pages",
        reads: "the page /metrics of each node that has one in the farm file",
        expects: "the page, and fewer than 80 % of its open files in use",
        why: "monitoring sees nothing of the node; one that has no files left refuses connections",
        cost: None,
        judge: network::pages,
    },
    Check {
        name: "versions",
        reads: "sheaf_build_info of each page, and the version of this program",
        expects: "one version",
        why: "nodes of different versions may refuse each other, and figures of different builds do not compare",
        cost: None,
        judge: network::versions,
    },
];

fn only(verdict: Verdict) -> Vec<Verdict> {
    vec![verdict]
}

fn farm_file(case: &Case<'_>) -> Vec<Verdict> {
    let Some(farm) = case.question.farm else {
        return only(Verdict::not_checked("no farm file was given (--config)"));
    };
    let roles = &case.question.roles;
    let found = farm.check_machine(roles);
    let mut errors = found.errors;
    errors.extend(roles.iter().flat_map(|role| farm.check_files(*role)));
    let wrong = errors
        .into_iter()
        .map(|error| Verdict::wrong(error.found, error.expected).at(error.key));
    // A port that is taken by a node of this farm, which answers there, is in order.
    let warnings = found.warnings.into_iter();
    let warnings = warnings.filter(|warning| !case.peers.is_reached(&warning.found));
    let advice =
        warnings.map(|warning| Verdict::advice(warning.found, warning.expected).at(warning.key));
    let all: Vec<Verdict> = wrong.chain(advice).collect();
    match all.is_empty() {
        true => only(Verdict::ok(format!(
            "{} FLPs, {} EPNs at least, {} ICNs",
            farm.run.flps,
            farm.run.epns,
            farm.icn.all_addresses().len()
        ))),
        false => all,
    }
}

/// Whether a node that moves data is or is to be here.
fn moves_data(case: &Case<'_>) -> bool {
    let mut roles = case.question.roles.iter();
    roles.any(|role| matches!(role, Role::Flp | Role::Epn | Role::Writer))
}

fn processors(case: &Case<'_>) -> Vec<Verdict> {
    let machine = case.machine;
    let usable = machine
        .quota
        .unwrap_or(f64::INFINITY)
        .min(machine.processors as f64);
    let found = match machine.quota {
        Some(quota) => format!(
            "{} processors, of which the control group allows {quota}",
            machine.processors
        ),
        None => format!("{} processors", machine.processors),
    };
    let mut all = vec![match moves_data(case) && usable < 2.0 {
        true => Verdict::advice(found, "two or more for a node that moves data"),
        false => Verdict::ok(found),
    }];
    let slow: Vec<&str> = machine
        .governors
        .iter()
        .map(String::as_str)
        .filter(|governor| *governor != "performance")
        .collect();
    if !slow.is_empty() {
        all.push(
            Verdict::advice(format!("governor {}", slow.join(", ")), "performance")
                .at("governor")
                .mended_by("cpupower frequency-set -g performance"),
        );
    }
    all
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn memory(case: &Case<'_>) -> Vec<Verdict> {
    let Some((total, available)) = case.machine.memory else {
        return only(Verdict::not_checked(
            "the kernel does not tell MemAvailable",
        ));
    };
    let roles = case.question.roles.iter();
    let needed: u64 = roles
        .map(|role| case.farm.memory_budget(*role).total())
        .sum();
    let found = format!(
        "{} available of {}, {} needed",
        gib(available),
        gib(total),
        gib(needed)
    );
    only(match needed > available {
        true => Verdict::advice(
            found,
            "as much as one node of each role needs, or fewer roles (--role)",
        )
        .mended_by("lower flp.hold_bytes or epn.build.capacity_bytes"),
        false => Verdict::ok(found),
    })
}

fn open_files(case: &Case<'_>) -> Vec<Verdict> {
    let farm = case.farm;
    let of_role = |role: &Role| {
        let has_page = match role {
            Role::Icn => farm.icn.metrics.is_some(),
            Role::Flp => farm.flp.metrics.is_some(),
            Role::Epn => farm.epn.metrics.is_some(),
            Role::Writer => farm.writer.metrics.is_some(),
            Role::Operator => false,
        };
        files_needed(farm, *role, has_page)
    };
    let needed = case.question.roles.iter().map(of_role).max().unwrap_or(0);
    only(match case.machine.files_max {
        Some(found) if found < needed => {
            Verdict::wrong(format!("{found} at most"), format!("{needed} or more")).mended_by(
                format!(
                    "LimitNOFILE={needed} in the unit, or `* - nofile {needed}` in \
                     /etc/security/limits.conf"
                ),
            )
        }
        Some(found) => Verdict::ok(format!("{found} at most, {needed} needed")),
        None => Verdict::ok("no limit"),
    })
}

fn huge_pages(case: &Case<'_>) -> Vec<Verdict> {
    if !case.farm.transport.huge_pages {
        return only(Verdict::ok("not asked for (transport.huge_pages = false)"));
    }
    only(match case.machine.huge_pages.as_deref() {
        None => Verdict::not_checked("the kernel has no transparent huge pages"),
        Some("never") => Verdict::advice("never", "madvise or always")
            .mended_by("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(found) => Verdict::ok(found),
    })
}

fn clock(case: &Case<'_>) -> Vec<Verdict> {
    only(match &case.machine.clock {
        None => Verdict::not_checked("neither chronyc nor timedatectl answers"),
        Some((true, found)) => Verdict::ok(found.as_str()),
        Some((false, found)) => Verdict::advice(found.as_str(), "a clock that is held")
            .mended_by("apt-get install chrony, or timedatectl set-ntp true"),
    })
}

/// Returns the folder, or the one in which an ICN makes that of its verdict log at its start.
fn existing((key, folder): (String, PathBuf)) -> (String, PathBuf) {
    if key != LEDGER_KEY {
        return (key, folder);
    }
    let absolute = std::path::absolute(&folder).unwrap_or_else(|_| folder.clone());
    let mut there = absolute.ancestors();
    let there = there.find(|folder| folder.exists());
    (key, there.map_or(folder, Path::to_owned))
}

/// Returns the folders that nodes of `role` write to, by key.
fn folders_of(farm: &FarmConfig, role: Role) -> Vec<(String, PathBuf)> {
    let table = serde_json::to_value(farm).unwrap_or_default();
    let keys: &[&str] = match role {
        Role::Icn => match farm.icn.ledger.backend {
            LedgerBackend::File | LedgerBackend::Majority => &[LEDGER_KEY],
            LedgerBackend::Memory | LedgerBackend::Zookeeper => &[],
        },
        Role::Epn => &["epn.sink.directory", "epn.sink.write.directory"],
        Role::Writer => &["writer.files.directory"],
        Role::Flp | Role::Operator => &[],
    };
    let first = NodeId { role, index: 0 };
    keys.iter()
        .filter_map(|key| {
            let mut steps = key.split('.');
            let value = steps.try_fold(&table, |value, step| value.get(step))?;
            let folder = sheaf_node::config::for_index(value.as_str()?, first);
            (!folder.is_empty()).then(|| ((*key).to_owned(), folder.into()))
        })
        .collect()
}

fn folders(case: &Case<'_>) -> Vec<Verdict> {
    if !case.question.has_disk {
        return only(Verdict::not_checked("not asked for (--no-disk)"));
    }
    if case.question.farm.is_none() {
        return only(Verdict::not_checked("no farm file was given (--config)"));
    }
    let roles = case.question.roles.iter();
    let all: Vec<Verdict> = roles
        .flat_map(|role| folders_of(case.farm, *role))
        .map(existing)
        .map(|(key, folder)| folder_verdict(&key, &folder, disk::Speed::of(&folder)))
        .collect();
    match all.is_empty() {
        true => only(Verdict::ok("these roles write nothing")),
        false => all,
    }
}

fn folder_verdict(key: &str, folder: &Path, speed: std::io::Result<disk::Speed>) -> Verdict {
    let speed = match speed {
        Ok(speed) => speed,
        Err(error) => {
            let found = format!("{}: {error}", folder.display());
            let mend = format!("install -d -o sheaf -g sheaf {}", folder.display());
            return Verdict::wrong(found, "a folder that can be written to")
                .at(key)
                .mended_by(mend);
        }
    };
    let (median, longest) = speed.durable;
    let (median, longest) = (median.as_secs_f64() * 1e3, longest.as_secs_f64() * 1e3);
    let rate = speed.bytes_per_s.map_or_else(
        || "no room for a trial".to_owned(),
        |rate| format!("{:.0} MB/s", rate / 1e6),
    );
    let found = format!(
        "{}: {} free, {rate}, 4 KiB durable in {median:.1} ms (longest {longest:.1} ms)",
        folder.display(),
        gib(speed.free)
    );
    let is_log = key == LEDGER_KEY;
    let verdict = if speed.free < 1 << 30 {
        Verdict::wrong(found, "1 GiB free").mended_by("sheaf ship, or a larger disk")
    } else if is_log && median > 20.0 {
        Verdict::advice(found, "durable within 20 ms")
            .mended_by("a disk of its own, with flash or a write cache that lasts")
    } else {
        Verdict::ok(found)
    };
    verdict.at(key)
}

#[cfg(test)]
mod tests;
