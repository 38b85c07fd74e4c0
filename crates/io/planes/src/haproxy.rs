//! Plane of `HAProxy`: a process for each service that the director starts and that outlives it.
//!
//! Connections fall into the same slots as in the other planes: a converter in Lua computes the hash, a map of
//! `HAProxy` names the server of each slot. A change prepares a new version of the map at the runtime socket and
//! commits it, which is one step; connections that go on stay where they are, as a proxy has them. If the server of a
//! slot refuses, the connection goes to another, by weights that follow the slots.
//!
//! ```text
//! FOLDER/haproxy-SERVICE/  haproxy.cfg   slot.lua   slots.map   haproxy.pid   admin.sock
//! ```
//!
//! The next director finds the process by its socket and goes on with it. One whose addresses or number of slots have
//! changed gets a successor, and serves its connections until they end.

mod control;
mod render;

use crate::error::PlaneError;
use crate::plane::{Counted, Installed, Plane, PlaneConfig};
use crate::tool::HAPROXY;
use control::{Control, Row};
use render::{CONFIG, HASH, MAP, PID, SOCKET};
use rustix::process::{Pid, Signal, kill_process};
use sheaf_serve::{Flow, Wanted};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use tracing::{debug, info};

/// Processes of `HAProxy`, one for each service.
#[derive(Debug)]
pub(crate) struct Haproxy {
    folder: PathBuf,
    fresh_s: u64,
    /// Map that each service has, as it was written.
    maps: BTreeMap<String, String>,
}

impl Haproxy {
    pub(crate) fn new(config: &PlaneConfig) -> Self {
        Self {
            folder: config.folder.clone(),
            fresh_s: config.fresh_s,
            maps: BTreeMap::new(),
        }
    }

    fn place(&self, service: &str) -> PathBuf {
        self.folder.join(format!("haproxy-{service}"))
    }

    fn control(&self, service: &str) -> Control {
        Control::new(self.place(service).join(SOCKET))
    }

    /// Starts the process of a service; `before` is that of one that it takes the listeners of.
    fn start(&self, wanted: &Wanted, before: Option<u32>) -> Result<(), PlaneError> {
        let place = self.place(&wanted.service);
        let write = |name: &str, text: &str| {
            let path = place.join(name);
            fs::write(&path, text).map_err(|error| PlaneError::File { path, error })
        };
        fs::create_dir_all(&place).map_err(|error| PlaneError::File {
            path: place.clone(),
            error,
        })?;
        write(HASH, include_str!("haproxy/slot.lua"))?;
        write(MAP, &render::map(wanted))?;
        let account = has_account().then_some(render::ACCOUNT);
        let head = render::head(wanted, self.fresh_s, account);
        write(CONFIG, &(head + &render::servers(wanted)))?;
        let place = place.to_string_lossy();
        let mut words = vec!["-D", "-C", &*place, "-f", CONFIG, "-p", PID];
        let before = before.map(|pid| pid.to_string());
        if let Some(before) = &before {
            words.extend(["-x", SOCKET, "-sf", before]);
        }
        HAPROXY.run(&words, "")?;
        info!(service = wanted.service, "HAProxy runs");
        Ok(())
    }

    /// Has the process that runs follow `wanted`.
    fn follow(&mut self, control: &Control, wanted: &Wanted) -> Result<(), PlaneError> {
        let service = &wanted.service;
        let shares = render::shares(wanted);
        let known = control.servers(service)?;
        for (id, place) in &wanted.servers {
            let weight = shares.get(id).copied().unwrap_or(0);
            let name = format!("{service}/{}", place.name);
            let Some(address) = render::address(place) else {
                continue;
            };
            let row = match known.get(&place.name) {
                Some(row) => row.clone(),
                None => {
                    control.order(&format!("add server {name} {address} weight {weight}"))?;
                    Row {
                        address,
                        weight,
                        state: control::MAINTENANCE,
                    }
                }
            };
            if row.address != address {
                let (ip, port) = (address.ip(), address.port());
                control.order(&format!("set server {name} addr {ip} port {port}"))?;
            }
            if row.weight != weight && weight > 0 {
                control.order(&format!("set server {name} weight {weight}"))?;
            }
            // Servers without new connections are drained once the map says so.
            if row.state != control::READY && weight > 0 {
                control.order(&format!("set server {name} state ready"))?;
            }
        }
        let map = render::map(wanted);
        if self.maps.get(service) != Some(&map) {
            control.replace(MAP, &map)?;
            self.maps.insert(service.clone(), map);
        }
        let names: BTreeMap<&str, bool> = wanted
            .servers
            .iter()
            .map(|(id, place)| (place.name.as_str(), shares.contains_key(id)))
            .collect();
        for (server, row) in control.servers(service)? {
            let name = format!("{service}/{server}");
            match names.get(server.as_str()) {
                Some(true) => {}
                Some(false) if row.state == control::DRAIN => {}
                Some(false) => control.order(&format!("set server {name} state drain"))?,
                None => {
                    if row.state != control::MAINTENANCE {
                        control.order(&format!("set server {name} state maint"))?;
                    }
                    // Refused as long as it has connections, and for servers that it began with.
                    if let Err(error) = control.order(&format!("del server {name}")) {
                        debug!(service, server, %error, "A server stays in maintenance");
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether the package has made an account for `HAProxy` here that this process can change to.
fn has_account() -> bool {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let prefix = format!("{}:", render::ACCOUNT);
    rustix::process::geteuid().is_root() && accounts.lines().any(|line| line.starts_with(&prefix))
}

/// Checks what `haproxy -vv` prints: a version whose servers are added at its socket, and Lua.
fn check_version(text: &str) -> Result<String, PlaneError> {
    let wrong = |found: &str| PlaneError::Version {
        tool: HAPROXY.name,
        found: found.to_owned(),
        expected: "2.6 or later, with Lua",
    };
    let mut lines = text.lines();
    let words = lines.next().and_then(|line| line.split_once("version "));
    let (_, words) = words.ok_or_else(|| wrong("without a version"))?;
    let version = words.split(' ').next().unwrap_or_default();
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let pair = (numbers.next().flatten(), numbers.next().flatten());
    if pair < (Some(2), Some(6)) {
        return Err(wrong(version));
    }
    match text.contains("Built with Lua") {
        true => Ok(format!("HAProxy {version} with Lua")),
        false => Err(wrong(&format!("{version} without Lua"))),
    }
}

impl Plane for Haproxy {
    fn apply(&mut self, wanted: &Wanted) -> Result<(), PlaneError> {
        let service = &wanted.service;
        let control = self.control(service);
        let running = control.pid().ok();
        let account = has_account().then_some(render::ACCOUNT);
        let head = render::head(wanted, self.fresh_s, account);
        let config = fs::read_to_string(self.place(service).join(CONFIG)).unwrap_or_default();
        if running.is_none() || !config.starts_with(&head) {
            self.start(wanted, running)?;
            self.maps.insert(service.clone(), render::map(wanted));
        }
        self.follow(&control, wanted)
    }

    fn read_back(&mut self, service: &str) -> Result<Option<Installed>, PlaneError> {
        let control = self.control(service);
        if control.pid().is_err() {
            return Ok(None);
        }
        let mut installed = Installed {
            flows: control.sessions(service)?,
            ..Installed::default()
        };
        let mut slots = BTreeMap::new();
        for (slot, value) in control.map(MAP)? {
            let (new, own) = value.split_once(render::MOVE).unwrap_or((&value, &value));
            if new != own {
                installed.moving.insert(slot, new.to_owned());
            }
            slots.insert(slot, own.to_owned());
        }
        installed.slots = slots.into_values().collect();
        Ok(Some(installed))
    }

    fn counters(&mut self, service: &str) -> Result<BTreeMap<String, Counted>, PlaneError> {
        self.control(service).counters(service)
    }

    fn connections(&mut self, service: &str) -> Result<BTreeMap<Flow, String>, PlaneError> {
        self.control(service).sessions(service)
    }

    fn is_out_of_date(&mut self, service: &str) -> Result<bool, PlaneError> {
        Ok(self.maps.contains_key(service) && self.control(service).pid().is_err())
    }

    fn try_out(&mut self) -> Result<Option<String>, PlaneError> {
        check_version(&HAPROXY.run(&["-vv"], "")?).map(Some)
    }

    fn undo(&mut self, service: &str) -> Result<(), PlaneError> {
        self.maps.remove(service);
        let Ok(pid) = self.control(service).pid() else {
            return Ok(());
        };
        // Listeners are closed at once; the process ends with its last connection.
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::USR1).map_err(|error| PlaneError::Stop {
                tool: HAPROXY.name,
                error: error.into(),
            })?;
        }
        let path = self.place(service);
        fs::remove_dir_all(&path).map_err(|error| PlaneError::File { path, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_without_a_part_that_is_needed_are_named() {
        let text = "HAProxy version 2.6.12-1+deb12u2 2025/04/23 - https://haproxy.org/\nBuilt with Lua version : Lua 5.3.6\n";
        let found = check_version(text).expect("it does");
        assert_eq!(found, "HAProxy 2.6.12-1+deb12u2 with Lua");
        for (text, expected) in [
            (
                text.replace("2.6.12", "2.4.22"),
                "found haproxy 2.4.22-1+deb12u2, expected 2.6",
            ),
            (
                text.replace("Built with Lua", "Built without Lua"),
                "2.6.12-1+deb12u2 without Lua",
            ),
            (String::new(), "found haproxy without a version"),
        ] {
            let error = check_version(&text).expect_err("it does not").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
