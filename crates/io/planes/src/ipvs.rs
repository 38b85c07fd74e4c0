//! Plane of IPVS: the director of the kernel, direct return, connections in a table of the kernel.
//!
//! The scheduler `mh` spreads new connections by a Maglev table of its own, whose weights are the numbers of slots of
//! the servers. So the shares are those of the table of the service, and two directors with equal servers agree; which
//! server a client gets differs from the other planes. A connection stays where it began as long as the kernel knows
//! it: weight 0 is a drain.
//!
//! There are no transactions: a change that fails halfway is taken back step by step. A note of each service keeps the
//! names of its servers, of which the kernel has the addresses alone.

mod attribute;
mod connections;
mod kernel;
mod note;

use crate::error::PlaneError;
use crate::plane::{Counted, Installed, Plane, PlaneConfig};
use crate::tool::MODPROBE;
use kernel::{Kernel, Target};
use note::Note;
use sheaf_serve::{Flow, ServerId, Wanted};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use tracing::warn;

/// Services of IPVS.
#[derive(Debug)]
pub(crate) struct Ipvs {
    folder: PathBuf,
}

/// Weights of servers by their addresses.
type Weights = BTreeMap<SocketAddr, u32>;

impl Ipvs {
    pub(crate) fn new(config: &PlaneConfig) -> Self {
        Self {
            folder: config.folder.clone(),
        }
    }

    fn path(&self, service: &str) -> PathBuf {
        self.folder.join(format!("ipvs-{service}.json"))
    }
}

/// Returns the servers of the family of `address` with their weights: the slots of new connections.
fn weights(wanted: &Wanted, address: IpAddr) -> Result<Weights, PlaneError> {
    let mut slots: BTreeMap<ServerId, u32> = BTreeMap::new();
    for (slot, own) in (0..).zip(&wanted.slots) {
        let id = wanted.moving.get(&slot).unwrap_or(own);
        *slots.entry(*id).or_default() += 1;
    }
    let mut weights = Weights::new();
    for (id, place) in &wanted.servers {
        PlaneError::check_port(wanted, place)?;
        let mut all = place.addresses.iter();
        if let Some(own) = all.find(|own| own.is_ipv4() == address.is_ipv4()) {
            let weight = slots.get(id).copied().unwrap_or(0);
            weights.insert(SocketAddr::new(*own, place.port), weight);
        }
    }
    Ok(weights)
}

/// Turns the servers of a virtual address into `wanted`: those that come or change first, so that there is always one.
fn turn(kernel: &mut Kernel, service: SocketAddr, wanted: &Weights) -> Result<(), PlaneError> {
    let known = weights_of(&kernel.targets(service)?);
    for (address, weight) in wanted {
        match known.get(address) {
            Some(known) if known == weight => {}
            Some(_) => kernel.set_target(service, *address, *weight)?,
            None => kernel.add_target(service, *address, *weight)?,
        }
    }
    for address in known.keys().filter(|address| !wanted.contains_key(address)) {
        kernel.remove_target(service, *address)?;
    }
    Ok(())
}

fn weights_of(targets: &[Target]) -> Weights {
    let pairs = targets.iter().map(|target| (target.address, target.weight));
    pairs.collect()
}

impl Plane for Ipvs {
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError> {
        let mut kernel = Kernel::open()?;
        let path = self.path(&wanted.service);
        let mut changes = Vec::new();
        for address in &wanted.addresses {
            let service = SocketAddr::new(*address, wanted.port);
            changes.push((service, weights(wanted, *address)?));
        }
        let before = Note::load(&path)?;
        let note = Note::of(wanted);
        note.save(&path)?;
        let mut done = Vec::new();
        let mut work = || {
            for (service, weights) in &changes {
                let is_new = kernel.add_service(*service)?;
                done.push((*service, is_new, weights_of(&kernel.targets(*service)?)));
                turn(&mut kernel, *service, weights)?;
            }
            Ok(())
        };
        let result = work();
        if result.is_err() {
            for (service, is_new, weights) in done {
                let back = match is_new {
                    true => kernel.remove_service(service),
                    false => turn(&mut kernel, service, &weights),
                };
                if let Err(error) = back {
                    warn!(%service, %error, "A change that failed is not taken back");
                }
            }
            return result;
        }
        // Addresses that the service had under another configuration.
        let gone = before.map(|before| before.services).unwrap_or_default();
        for service in gone.iter().filter(|old| !note.services.contains(old)) {
            kernel.remove_service(*service)?;
        }
        Ok(())
    }

    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError> {
        let Some(note) = Note::load(&self.path(service))? else {
            return Ok(None);
        };
        let mut kernel = Kernel::open()?;
        let mut weights = BTreeMap::new();
        for service in &note.services {
            for target in kernel.targets(*service)? {
                if let Some(name) = note.servers.get(&target.address) {
                    weights.insert(name.clone(), target.weight);
                }
            }
        }
        if weights.is_empty() {
            return Ok(None);
        }
        Ok(Some(Installed {
            weights,
            flows: connections::read(&note)?,
            ..Installed::default()
        }))
    }

    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
        let Some(note) = Note::load(&self.path(service))? else {
            return Ok(BTreeMap::new());
        };
        let mut kernel = Kernel::open()?;
        let mut counted: BTreeMap<String, Counted> = BTreeMap::new();
        for service in &note.services {
            for target in kernel.targets(*service)? {
                if let Some(name) = note.servers.get(&target.address) {
                    let sum = counted.entry(name.clone()).or_default();
                    sum.packets += target.counted.packets;
                    sum.bytes += target.counted.bytes;
                }
            }
        }
        Ok(counted)
    }

    fn connections(&mut self, service: &str) -> Result<BTreeMap<Flow, String>, PlaneError> {
        match Note::load(&self.path(service))? {
            Some(note) => connections::read(&note),
            None => Ok(BTreeMap::new()),
        }
    }

    fn try_out(&mut self) -> Result<Option<String>, PlaneError> {
        Kernel::open()?;
        // The kernel loads the scheduler with the first service that asks for it.
        let is_loaded = Path::new("/sys/module/ip_vs_mh").exists();
        match is_loaded || MODPROBE.run(&["--dry-run", "ip_vs_mh"], "").is_ok() {
            true => Ok(Some("ip_vs with the scheduler mh".to_owned())),
            false => Err(PlaneError::NoScheduler),
        }
    }

    fn undo(&mut self, service: &str) -> Result<(), PlaneError> {
        let path = self.path(service);
        let Some(note) = Note::load(&path)? else {
            return Ok(());
        };
        let mut kernel = Kernel::open()?;
        for service in &note.services {
            kernel.remove_service(*service)?;
        }
        std::fs::remove_file(&path).map_err(|error| PlaneError::File { path, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    fn wanted() -> Wanted {
        let moving = [(3, ServerId(1))].into();
        Wanted {
            moving,
            ..example::wanted(3, 80, &[0, 1, 0, 2])
        }
    }

    #[test]
    fn weights_are_slots_of_new_connections() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let found = weights(&wanted(), IpAddr::V6(std::net::Ipv6Addr::LOCALHOST));
        let expected = [
            (address("[fd00::10]:80"), 2),
            (address("[fd00::11]:80"), 2),
            (address("[fd00::12]:80"), 0),
        ];
        assert_eq!(found.expect("the ports are equal"), expected.into());
    }

    #[test]
    fn a_server_with_another_port_is_refused() {
        let mut wanted = wanted();
        wanted.servers.get_mut(&ServerId(1)).expect("s-1").port = 81;
        let error = weights(&wanted, wanted.addresses[0]).expect_err("it is refused");
        assert!(
            error
                .to_string()
                .contains("\"s-1\" has port 81, expected 80")
        );
    }
}
