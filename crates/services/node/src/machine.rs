//! Whether this machine lets the nodes of a farm file run: certificates, memory, ports. What a node would refuse at its
//! start is an error here; what may be otherwise by then is a warning.

use crate::budget::Budget;
use crate::check::{ConfigError, for_index};
use crate::config::FarmConfig;
use crate::security::in_the_clear;
use sheaf_auth::{CertFiles, Credentials, Moment};
use sheaf_protocol::{EpnId, FlpId, NodeId, Role};
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;

/// Findings about this machine.
#[derive(Debug, Default)]
pub struct MachineCheck {
    /// Reasons for which a node would not start.
    pub errors: Vec<ConfigError>,
    /// Findings that may be gone when a node starts, or that limit what operators can do.
    pub warnings: Vec<ConfigError>,
}

impl FarmConfig {
    /// Returns what stands against nodes of `roles` on this machine, beside missing files.
    #[must_use]
    pub fn check_machine(&self, roles: &[Role]) -> MachineCheck {
        let mut found = MachineCheck::default();
        for role in roles {
            found.errors.extend(self.check_certificates(*role));
            found.errors.extend(self.check_memory(*role));
            found.warnings.extend(self.check_ports(*role));
        }
        let has_files = |node: NodeId| {
            let files = self.security.files(node);
            files.is_none_or(|files| files.certificate.exists())
        };
        if !roles.is_empty() && self.security.has_certificates() && !has_files(operator()) {
            found.warnings.push(ConfigError::new(
                "security",
                "no certificate of an operator",
                "one where operators work, for `sheaf ctl`: sheaf cert issue operator:0",
            ));
        }
        found
    }

    /// Returns the memory budget of the first node of `role`, as it logs it at its start.
    #[must_use]
    pub fn memory_budget(&self, role: Role) -> Budget {
        Budget::of(self, NodeId { role, index: 0 })
    }

    fn check_certificates(&self, role: Role) -> Option<ConfigError> {
        let nodes = self.nodes(role);
        let first = nodes.first().copied()?;
        if !self.security.has_certificates() {
            let (does, address) = in_the_clear(self, first)
                .into_iter()
                .next()
                .filter(|_| !self.security.insecure)?;
            return Some(ConfigError::new(
                "security",
                format!("{first} {does} {address}, which is not loopback, and no certificates"),
                "a directory with certificates (sheaf cert), or insecure = true to go without encryption and \
                 authentication",
            ));
        }
        let files = |node: &NodeId| Some((*node, self.security.files(*node)?));
        let here: Vec<(NodeId, CertFiles)> = nodes
            .iter()
            .filter_map(files)
            .filter(|(_, files)| files.certificate.exists())
            .collect();
        // A machine has the certificates of its own nodes only.
        let looked_at = if here.is_empty() {
            files(&first).into_iter().collect()
        } else {
            here
        };
        let now = Moment::now();
        looked_at.into_iter().find_map(|(node, files)| {
            let error = Credentials::load(&files, node, now).err()?;
            Some(ConfigError::new(
                "security",
                error,
                format!("certificate and key of {node}, issued by the CA of the farm"),
            ))
        })
    }

    /// Returns the nodes of a role as far as the farm file knows them.
    #[must_use]
    pub fn nodes(&self, role: Role) -> Vec<NodeId> {
        let count = match role {
            Role::Icn => u32::try_from(self.icn.all_addresses().len()).unwrap_or(u32::MAX),
            Role::Flp => self.run.flps,
            Role::Epn => self.run.epns,
            Role::Operator => 1,
            Role::Writer => u32::try_from(self.writer.addresses.len()).unwrap_or(u32::MAX),
        };
        let last = u16::try_from(count).unwrap_or(u16::MAX);
        (0..last).map(|index| NodeId { role, index }).collect()
    }

    fn check_memory(&self, role: Role) -> Option<ConfigError> {
        let key = match role {
            Role::Flp => "flp.hold_bytes",
            Role::Epn => "epn.build.capacity_bytes",
            Role::Writer => "writer.capacity_bytes",
            Role::Icn | Role::Operator => return None,
        };
        let needed = Budget::of(self, NodeId { role, index: 0 }).total();
        let machine = memory_bytes()?;
        (needed > machine).then(|| {
            ConfigError::new(
                key,
                format!("a memory budget of {needed} bytes for one {role}"),
                format!("at most {machine} bytes, the memory that this machine allows"),
            )
        })
    }

    /// Returns where the first node of `role` listens, by the keys of the farm file.
    #[must_use]
    pub fn listens(&self, role: Role) -> Vec<(&'static str, String)> {
        let epn = NodeId::from(EpnId(0));
        let mut listens = Vec::new();
        match role {
            Role::Icn => {
                listens.push(("icn.address", self.icn.all_addresses().remove(0)));
                listens.extend(self.icn.metrics.clone().map(|at| ("icn.metrics", at)));
            }
            Role::Flp => {
                let metrics = self.flp.metrics.as_deref();
                let at = |at| for_index(at, FlpId(0).into());
                listens.extend(metrics.map(|text| ("flp.metrics", at(text))));
            }
            Role::Epn => {
                listens.push(("epn.listen", for_index(&self.epn.listen, epn)));
                let metrics = self.epn.metrics.as_deref();
                listens.extend(metrics.map(|at| ("epn.metrics", for_index(at, epn))));
            }
            Role::Writer => {
                let own = self.writer.addresses.first().cloned();
                listens.extend(own.map(|own| ("writer.addresses", own)));
                listens.extend(self.writer.metrics.clone().map(|at| ("writer.metrics", at)));
            }
            Role::Operator => {}
        }
        listens
    }

    /// Returns the addresses of the first node of `role` at which another process listens now.
    fn check_ports(&self, role: Role) -> Vec<ConfigError> {
        let is_taken = |address: &str| {
            TcpListener::bind(address).is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
        };
        let taken = self
            .listens(role)
            .into_iter()
            .filter(|(_, at)| is_taken(at));
        taken
            .map(|(key, at)| {
                let found = format!("{at}, at which another process listens now");
                ConfigError::new(key, found, "a free address")
            })
            .collect()
    }
}

fn operator() -> NodeId {
    NodeId {
        role: Role::Operator,
        index: 0,
    }
}

/// Returns the memory that this machine has, or allows the control group of this process; `None` if that is not known.
fn memory_bytes() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = total.split_whitespace().nth(1)?.parse().ok()?;
    let allowed = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let allowed = allowed.and_then(|text| text.trim().parse().ok());
    Some(allowed.unwrap_or(u64::MAX).min(kibibytes * 1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn machine(text: &str, roles: &[Role]) -> MachineCheck {
        let config = FarmConfig::parse_for(text, Path::new("f"), &[]);
        config
            .unwrap_or_else(|e| panic!("{e}"))
            .check_machine(roles)
    }

    fn texts(errors: &[ConfigError]) -> Vec<String> {
        errors.iter().map(ConfigError::to_string).collect()
    }

    #[test]
    fn a_farm_off_loopback_needs_certificates_or_insecure() {
        let text = "[icn]\naddress = \"192.0.2.1:7000\"\n";
        let found = machine(text, &[Role::Flp]);
        let expected = "security: found flp:0 connects to 192.0.2.1:7000, which is not loopback, and no certificates, \
                        expected a directory with certificates (sheaf cert), or insecure = true to go without \
                        encryption and authentication";
        assert_eq!(texts(&found.errors), [expected]);
        let text = format!("{text}[security]\ninsecure = true\n");
        assert_eq!(texts(&machine(&text, &[Role::Flp]).errors), [""; 0]);
    }

    #[test]
    fn missing_certificates_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().display();
        let text = format!("[security]\ndirectory = \"{at}\"\n");
        let found = machine(&text, &[Role::Epn]);
        let errors = texts(&found.errors);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].contains("cannot read the CA certificate"),
            "{errors:?}"
        );
        let warnings = texts(&found.warnings);
        assert!(
            warnings[0].contains("no certificate of an operator"),
            "{warnings:?}"
        );
    }

    #[test]
    fn more_memory_than_the_machine_has_is_named_by_its_key() {
        let petabyte = 1_u64 << 50;
        let text =
            format!("[flp]\nhold_bytes = {petabyte}\n[epn.build]\ncapacity_bytes = {petabyte}\n");
        let keys: Vec<String> = machine(&text, &[Role::Flp, Role::Epn])
            .errors
            .into_iter()
            .map(|error| error.key)
            .collect();
        assert_eq!(keys, ["flp.hold_bytes", "epn.build.capacity_bytes"]);
    }

    #[test]
    fn a_port_that_is_taken_is_a_warning() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let text = format!("[icn]\naddress = \"{address}\"\n");
        let found = machine(&text, &[Role::Icn]);
        assert_eq!(texts(&found.errors), [""; 0]);
        let expected = format!(
            "icn.address: found {address}, at which another process listens now, expected a free address"
        );
        assert_eq!(texts(&found.warnings), [expected]);
    }
}
