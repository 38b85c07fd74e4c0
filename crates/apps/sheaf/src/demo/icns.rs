//! The ICNs of a demo: where they listen, where they keep verdicts, and which faults they can take.

use super::args::{Args, Membership};
use super::faults::{Agenda, FaultKind};
use anyhow::{Context as _, bail};
use sheaf_farm::RunDir;
use sheaf_node::config::{FarmConfig, LedgerBackend, MembershipBackend};
use sheaf_protocol::Role;
use sheaf_zookeeper::server::{Ensemble, Home, ServerOptions};
use std::net::{Ipv4Addr, TcpListener};

/// Ports below are for servers that everybody knows.
const PORT_FIRST: u16 = 10_240;
/// First port that Linux gives to a socket bound to port 0, unless configured otherwise.
const EPHEMERAL_FIRST: u16 = 32_768;
/// Where Linux tells it.
const EPHEMERAL_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// Puts the ICNs that `args` ask for into the farm file.
///
/// # Errors
///
/// What is wrong with the arguments.
pub(super) fn add(args: &Args, dir: &RunDir, config: &mut FarmConfig) -> anyhow::Result<()> {
    let icns = args.icns();
    if args.membership == Membership::Embedded && icns.is_multiple_of(2) {
        bail!("--icns {icns}: expected 1 or an odd number from 3 on: most of them have to agree");
    }
    check_faults(args)?;
    if !args.has_lasting_icns() {
        return Ok(());
    }
    let addresses = free_addresses(icns)?;
    let backend = match (args.membership, icns) {
        (Membership::Zookeeper, _) => LedgerBackend::Zookeeper,
        (Membership::Embedded, 1) => LedgerBackend::File,
        (Membership::Embedded, _) => LedgerBackend::Majority,
    };
    config.icn.ledger.backend = backend;
    if backend.has_files() {
        config.icn.ledger.directory = dir.file("verdicts-{icn}");
    }
    match addresses.as_slice() {
        [only] => config.icn.address.clone_from(only),
        _ => config.icn.addresses = addresses,
    }
    Ok(())
}

/// Starts a private ensemble, if `args` ask for one, and puts it into the farm file. It lives as long as the value.
///
/// # Errors
///
/// What is missing on this machine, or why a server does not serve.
pub(super) fn start_ensemble(
    args: &Args,
    config: &mut FarmConfig,
) -> anyhow::Result<Option<Ensemble>> {
    if args.membership == Membership::Embedded {
        return Ok(None);
    }
    let home = Home::find().context("--membership zookeeper")?;
    let ensemble = Ensemble::start(&home, &ServerOptions::ensemble())?;
    config.membership.backend = MembershipBackend::Zookeeper;
    config.membership.servers = ensemble.addresses();
    Ok(Some(ensemble))
}

/// A farm without a leader decides nothing, and never ends.
fn check_faults(args: &Args) -> anyhow::Result<()> {
    let agenda = Agenda::new(&args.kill, &args.pause, &args.start);
    let mut living = i32::from(args.icns());
    for fault in agenda.iter().filter(|fault| fault.node.role == Role::Icn) {
        match fault.kind {
            FaultKind::Kill => living -= 1,
            FaultKind::Start => living += 1,
            FaultKind::Pause | FaultKind::Resume => {}
        }
    }
    let (icns, needed) = (args.icns(), args.icns_needed());
    if living < i32::from(needed) {
        bail!(
            "--kill icn:0: {living} of {icns} would be left, and {needed} have to live for one to lead: \
             expected --start icn:0 later, or more --icns"
        );
    }
    if living > i32::from(icns) {
        bail!("--start icn:0: more ICNs would be started than were killed before");
    }
    Ok(())
}

/// Returns addresses of this machine without a listener.
///
/// None of those that the kernel gives to connections: one of them could be taken while an ICN is dead, and a node
/// that looks for the ICN there could even connect to itself.
fn free_addresses(count: u16) -> anyhow::Result<Vec<String>> {
    let range = std::fs::read_to_string(EPHEMERAL_RANGE).unwrap_or_default();
    let told = range
        .split_whitespace()
        .next()
        .and_then(|first| first.parse().ok());
    let end = told
        .filter(|end| *end > PORT_FIRST)
        .unwrap_or(EPHEMERAL_FIRST);
    let span = u32::from(end - PORT_FIRST);
    // Demos that begin together look in different places.
    let start = std::process::id().wrapping_mul(97) % span;
    let mut held = Vec::new();
    for step in 0..span {
        let port = PORT_FIRST + ((start + step) % span) as u16; // below `span`, which fits
        // Held until all are found, so that none is found twice.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push(listener);
        }
        if held.len() == usize::from(count) {
            let address = |listener: &TcpListener| Ok(listener.local_addr()?.to_string());
            let found: std::io::Result<Vec<String>> = held.iter().map(address).collect();
            return found.context("cannot find out the address of a socket");
        }
    }
    bail!(
        "found {} free ports from {PORT_FIRST} to {end}, expected {count}",
        held.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn outcome(line: &str) -> Result<String, String> {
        let words = std::iter::once("demo").chain(line.split_whitespace());
        let args = Command::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .args;
        let dir = RunDir::make(None).unwrap();
        let mut config = FarmConfig::default();
        add(&args, &dir, &mut config).map_err(|error| error.to_string())?;
        let (icns, backend) = (config.icn.all_addresses().len(), config.icn.ledger.backend);
        Ok(format!("{icns} {}", backend.name()))
    }

    #[test]
    fn the_ledger_goes_with_the_number_of_icns() {
        for (line, expected) in [
            ("", "1 file"),
            ("--icns 1 --pause icn:0@1s+1s", "1 file"),
            ("--kill icn:0@1s --start icn:0@2s", "1 file"),
            ("--icns 3 --kill icn:0@1s", "3 majority"),
            ("--icns 5 --kill icn:0@1s --kill icn:0@2s", "5 majority"),
            ("--membership zookeeper", "2 zookeeper"),
            ("--membership zookeeper --icns 1", "1 zookeeper"),
        ] {
            assert_eq!(outcome(line), Ok(expected.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_farm_that_would_lose_its_leader_for_good_is_refused() {
        for (line, expected) in [
            (
                "--icns 2",
                "--icns 2: expected 1 or an odd number from 3 on",
            ),
            (
                "--kill icn:0@1s",
                "0 of 1 would be left, and 1 have to live",
            ),
            (
                "--icns 3 --kill icn:0@1s --kill icn:0@2s",
                "1 of 3 would be left, and 2 have to live",
            ),
            (
                "--membership zookeeper --kill icn:0@1s --kill icn:1@2s",
                "0 of 2 would be left",
            ),
            (
                "--icns 3 --start icn:0@1s",
                "more ICNs would be started than were killed",
            ),
        ] {
            let error = outcome(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn free_addresses_are_several_and_free() {
        let mut found = free_addresses(3).unwrap();
        found
            .iter()
            .for_each(|address| drop(TcpListener::bind(address).unwrap()));
        found.dedup();
        assert_eq!(found.len(), 3);
    }
}
