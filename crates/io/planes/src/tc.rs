//! Plane of BPF: a program at ingress of the interface rewrites hardware addresses, answers go past the director.
//!
//! The path of a packet is that of the plane `nft`: a hash, a slot, its server; pins and notes of connections only
//! while there are some. A table is one program (`bpf/direct.bpf.c`), whose constants are slots and servers:
//!
//! ```text
//! apply ──► further program, loaded and verified ──► takes the place of the one before, in one step
//!                │        │                              (a change that fails has touched nothing)
//!              pins    slots, servers
//!           ┌────┴──────────────────────┐
//!           │ notes of connections,     │ maps that go from program to program
//!           │ packets and bytes         │
//!           └───────────────────────────┘
//! ```
//!
//! The program runs as a classifier of tc, or as XDP: there, one for each interface. It stays when the director dies;
//! the next one reads it back from the kernel by the place where it runs.

mod hook;
mod image;
mod program;
mod shared;

use crate::error::PlaneError;
use crate::neighbors::{Macs, Neighbors};
use crate::plane::{BpfConfig, BpfMode, Counted, Installed, Plane, PlaneConfig};
use hook::{Attached, Hook};
use image::{ADDRESSES_MAX, Mac, SERVERS_MAX, Server, Slot, Table};
use program::{Loaded, Loader, Running};
use shared::Names;
use sheaf_serve::{Affinity, Flow, HOLD_MAX_S, ServerId, Wanted};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd as _, BorrowedFd};
use tracing::warn;

pub use program::find as find_program;

/// Service as it was carried out.
struct Applied {
    wanted: Wanted,
    macs: Macs,
    table: Table,
    /// Places of the servers in the table. Those that have none of it any more keep their place for their counters.
    places: BTreeMap<ServerId, u16>,
    program: Loaded,
}

/// Programs of BPF at an interface.
pub(crate) struct Tc {
    neighbors: Neighbors,
    config: BpfConfig,
    loader: Option<Loader>,
    applied: BTreeMap<String, Applied>,
    names: Option<Names>,
}

impl Tc {
    pub(crate) fn new(config: &PlaneConfig) -> Self {
        Self {
            neighbors: Neighbors::at(&config.interface),
            config: config.bpf.clone(),
            loader: None,
            applied: BTreeMap::new(),
            names: None,
        }
    }

    fn hook(&self) -> Result<Hook, PlaneError> {
        Hook::open(self.neighbors.interface())
    }

    /// Returns the programs of a service at the interface. One that another version of the director has made is known
    /// by the name of its filter alone.
    fn running(&self, service: &str) -> Result<Vec<(Attached, Option<Running>)>, PlaneError> {
        let mut all = Vec::new();
        for attached in self.hook()?.attached()? {
            let found = program::read(attached.id)?;
            let found = found.filter(|running| running.table.service == service);
            if found.is_some() || attached.name == name(service) {
                all.push((attached, found));
            }
        }
        Ok(all)
    }

    /// Returns the program of a service that can be read.
    fn first(&self, service: &str) -> Result<Option<Running>, PlaneError> {
        let mut all = self.running(service)?.into_iter();
        Ok(all.find_map(|(_, running)| running))
    }

    /// Puts the program where it runs, in place of the one before, in one step.
    fn put(
        &self,
        program: &Loaded,
        service: &str,
        before: Option<&Loaded>,
    ) -> Result<(), PlaneError> {
        let mode = self.config.mode;
        let mut hook = self.hook()?;
        let there = hook.attached()?;
        let known = before.and_then(|before| {
            let mut all = there.iter();
            let at = all.find(|at| at.id == before.id && at.mode == mode)?;
            Some((at, Some(before.fd.as_fd())))
        });
        if known.is_some() {
            return hook.attach(mode, program.fd.as_fd(), &name(service), known);
        }
        // Programs that another director has left, also at places that the service had under another configuration.
        let running = self.running(service)?;
        let is_xdp = |at: &Attached| at.mode != BpfMode::Tc;
        let is_own = |at: &Attached| running.iter().any(|(own, _)| own.id == at.id);
        let mut strange = there.iter().filter(|at| is_xdp(at) && !is_own(at));
        if let Some(other) = strange.next().filter(|_| mode != BpfMode::Tc) {
            return Err(PlaneError::Busy {
                interface: self.neighbors.interface().to_owned(),
                found: other.id,
            });
        }
        fn fd(running: &Option<Running>) -> Option<BorrowedFd<'_>> {
            running.as_ref().map(|running| running.fd.as_fd())
        }
        let (same, others): (Vec<_>, Vec<_>) = running.iter().partition(|(at, _)| at.mode == mode);
        // Of XDP there is one place at a time.
        let is_in_the_way = |(at, _): &&(Attached, _)| mode != BpfMode::Tc && is_xdp(at);
        let (first, last): (Vec<_>, Vec<_>) = others.into_iter().partition(is_in_the_way);
        for (other, _) in &first {
            hook.detach(other)?;
        }
        let before = same.first().map(|(at, running)| (at, fd(running)));
        let placed = hook.attach(mode, program.fd.as_fd(), &name(service), before);
        if placed.is_err() {
            for (other, running) in first {
                if let Some(fd) = fd(running)
                    && let Err(error) = hook.attach(other.mode, fd, &other.name, None)
                {
                    warn!(service, %error, "A program of XDP is not put back");
                }
            }
            return placed;
        }
        for (other, _) in last.into_iter().chain(same.into_iter().skip(1)) {
            hook.detach(other)?;
        }
        Ok(())
    }

    /// Makes the table that `wanted` asks for.
    fn table(
        &self,
        wanted: &Wanted,
        macs: &Macs,
        places: &BTreeMap<ServerId, u16>,
    ) -> Result<Table, PlaneError> {
        if wanted.addresses.len() > ADDRESSES_MAX {
            return Err(PlaneError::TooMany {
                what: "virtual addresses",
                found: wanted.addresses.len(),
                most: ADDRESSES_MAX,
            });
        }
        let before = self.applied.get(&wanted.service);
        let mut servers = BTreeMap::new();
        // Servers without a slot keep their name, and with it their counter.
        if let Some(before) = before {
            let unused = before.table.servers.iter().map(|(place, server)| {
                let is_used = false;
                let server = server.clone();
                (*place, Server { is_used, ..server })
            });
            servers.extend(unused.filter(|(place, _)| places.values().any(|own| own == place)));
        }
        for (id, place) in &wanted.servers {
            let server = Server {
                name: place.name.clone(),
                mac: mac(macs.of(*id))?,
                is_used: true,
            };
            servers.insert(places[id], server);
        }
        let slot = |(slot, own): (u32, &ServerId)| Slot {
            own: places[own],
            next: wanted.moving.get(&slot).map(|next| places[next]),
        };
        let waits = |wanted: &Wanted| (wanted.moving.clone(), wanted.held.clone());
        let known = before.filter(|before| waits(&before.wanted) == waits(wanted));
        Ok(Table {
            service: wanted.service.clone(),
            interface: self.hook()?.index,
            own: mac(&macs.own)?,
            addresses: wanted.addresses.clone(),
            port: wanted.port,
            further_ports: wanted.further_ports,
            by_client: wanted.affinity == Affinity::Client,
            has_pins: !wanted.pins.is_empty(),
            hold_until: known.map_or_else(hold_until, |before| before.table.hold_until),
            servers,
            slots: (0..).zip(&wanted.slots).map(slot).collect(),
        })
    }
}

/// Returns the name of the filter of a service.
fn name(service: &str) -> String {
    format!("sheaf_{service}")
}

fn mac(text: &str) -> Result<Mac, PlaneError> {
    image::mac(text).ok_or_else(|| PlaneError::Output {
        tool: "ip",
        text: format!("found {text:?}, expected a hardware address of six bytes"),
    })
}

/// Returns the end of the time in which first packets wait from now on, in ns of the clock that programs read.
fn hold_until() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let [seconds, rest] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    (seconds + HOLD_MAX_S) * 1_000_000_000 + rest
}

/// Returns a place in the table for each server, those that were known where they are; and the places that others had
/// before, whose notes and counters are not theirs.
fn places(
    before: Option<&Applied>,
    wanted: &Wanted,
) -> Result<(BTreeMap<ServerId, u16>, BTreeSet<u16>), PlaneError> {
    let mut places = before.map_or_else(BTreeMap::new, |before| before.places.clone());
    let mut inherited = BTreeSet::new();
    for id in wanted.servers.keys() {
        if places.contains_key(id) {
            continue;
        }
        let is_free = |place: &u16| !places.values().any(|own| own == place);
        let place = match (0..SERVERS_MAX).find(is_free) {
            Some(place) => place,
            None => {
                // A program that runs until the change is carried out must not count here, nor note.
                let is_idle = |id: &ServerId| {
                    let has = |wanted: &Wanted| wanted.servers.contains_key(id);
                    !has(wanted) && !before.is_some_and(|before| has(&before.wanted))
                };
                let idle = places.keys().find(|id| is_idle(id)).copied();
                let place = idle.and_then(|id| places.remove(&id));
                let place = place.ok_or(PlaneError::TooMany {
                    what: "servers",
                    found: wanted.servers.len(),
                    most: SERVERS_MAX.into(),
                })?;
                inherited.insert(place);
                place
            }
        };
        places.insert(*id, place);
    }
    Ok((places, inherited))
}

/// Whether a note says where a connection began that `wanted` still asks for.
fn is_needed(wanted: &Wanted, flow: Flow) -> bool {
    let slots = u32::try_from(wanted.slots.len()).unwrap_or(u32::MAX);
    let slot = wanted.affinity.slot_of(flow, slots);
    wanted.moving.contains_key(&slot) || wanted.pins.contains_key(&flow)
}

/// Whether notes may have become needless from one state to the next.
fn has_ended(before: &Wanted, wanted: &Wanted) -> bool {
    let has_moved = |slot: &u32| !wanted.moving.contains_key(slot);
    let is_free = |flow: &Flow| !wanted.pins.contains_key(flow);
    before.moving.keys().any(has_moved) || before.pins.keys().any(is_free)
}

impl Plane for Tc {
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError> {
        let service = &wanted.service;
        let macs = self.neighbors.macs(wanted)?;
        let (places, inherited) = places(self.applied.get(service), wanted)?;
        let table = self.table(wanted, &macs, &places)?;
        let pin = |(flow, id): (&Flow, &ServerId)| {
            let is_held = u16::from(wanted.held.contains(flow));
            (image::key(*flow), [places[id], is_held])
        };
        let pins: Vec<_> = wanted.pins.iter().map(pin).collect();
        let loader = match &mut self.loader {
            Some(loader) => loader,
            none => none.insert(Loader::open(find_program(self.config.program.as_deref())?)?),
        };
        // What another director has left is replaced as a whole: its maps have no names here.
        let names = match &self.names {
            Some(names) => names,
            None => self.names.insert(Names::make()?),
        };
        let mut program = loader.load(self.config.mode, &table.encode(), &pins, names, service)?;
        for place in inherited {
            program.shared.clear(place)?;
        }
        let before = self.applied.get(service);
        self.put(&program, service, before.map(|before| &before.program))?;
        if before.is_some_and(|before| has_ended(&before.wanted, wanted))
            // What cannot be removed now is removed with the next change.
            && let Err(error) = program.shared.forget(|flow, _| is_needed(wanted, flow))
        {
            warn!(service, %error, "Notes of connections are not removed");
        }
        let applied = Applied {
            wanted: wanted.clone(),
            macs,
            table,
            places,
            program,
        };
        self.applied.insert(service.clone(), applied);
        Ok(())
    }

    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError> {
        let Some(running) = self.first(service)? else {
            return Ok(None);
        };
        let table = &running.table;
        let server = |place: u16| {
            let found = table.servers.get(&place);
            found.map(|server| server.name.clone()).unwrap_or_default()
        };
        let mut flows = BTreeMap::new();
        for (key, place) in &running.pins {
            flows.insert(image::flow(key), server(*place));
        }
        if table.has_moving() || table.has_pins {
            for (flow, place) in running.shared.notes()? {
                let used = table.servers.get(&place).filter(|server| server.is_used);
                if let Some(used) = used {
                    flows.insert(flow, used.name.clone());
                }
            }
        }
        let moving = (0..).zip(&table.slots);
        let moving = moving.filter_map(|(slot, entry)| Some((slot, server(entry.next?))));
        // Slots of the affinity of clients have a server that they move to in tables alone.
        let moving = moving.filter(|_| !table.by_client);
        Ok(Some(Installed {
            slots: table.slots.iter().map(|slot| server(slot.own)).collect(),
            moving: moving.collect(),
            flows,
            ..Installed::default()
        }))
    }

    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
        if let Some(applied) = self.applied.get(service) {
            return applied.program.shared.counted(&applied.table);
        }
        match self.first(service)? {
            Some(running) => running.shared.counted(&running.table),
            None => Ok(BTreeMap::new()),
        }
    }

    fn is_out_of_date(&mut self, service: &str) -> Result<bool, PlaneError> {
        let Some(applied) = self.applied.get(service) else {
            return Ok(false);
        };
        // The filter may have been removed, or the discipline that holds it.
        let is_own = |attached: &Attached| attached.id == applied.program.id;
        Ok(!self.hook()?.attached()?.iter().any(is_own)
            || self
                .neighbors
                .have_changed(&applied.wanted, &applied.macs)?)
    }

    fn try_out(&mut self) -> Result<Option<String>, PlaneError> {
        let path = find_program(self.config.program.as_deref())?;
        let mut hook = self.hook()?;
        let table = Table {
            interface: hook.index,
            ..Table::default()
        };
        let sections = table.encode();
        let mut loader = Loader::open(path.clone())?;
        loader.load(self.config.mode, &sections, &[], &Names::make()?, "trial")?;
        let there = hook.attached()?.len();
        Ok(Some(format!(
            "the kernel takes {}; {there} programs run at {}",
            path.display(),
            self.neighbors.interface()
        )))
    }

    fn undo(&mut self, service: &str) -> Result<(), PlaneError> {
        self.applied.remove(service);
        if let Some(names) = &self.names {
            names.forget(service)?;
        }
        let mut hook = self.hook()?;
        for (attached, _) in self.running(service)? {
            hook.detach(&attached)?;
        }
        Ok(())
    }
}
