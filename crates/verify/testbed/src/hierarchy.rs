//! Where control groups of this machine limit processor time, in both versions of cgroups. See cgroups(7).

use std::fs;
use std::path::{Path, PathBuf};

/// Time of which a group gets its part, in µs: the rest of it its processes wait. So they wait for longer than a node
/// may be silent.
pub(crate) const PERIOD_US: u64 = 250_000;
/// Controllers of the groups below a group (version 2).
const BELOW: &str = "cgroup.subtree_control";

/// Where the control groups of a machine are that limit processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) root: &'static str,
    /// Version of the interface of cgroups.
    version: u8,
}

const OF_VERSION_1: Hierarchy = Hierarchy {
    root: "/sys/fs/cgroup/cpu",
    version: 1,
};
const OF_VERSION_2: Hierarchy = Hierarchy {
    root: "/sys/fs/cgroup",
    version: 2,
};

impl Hierarchy {
    /// Returns the one of this machine that may limit, or why there is none.
    pub(crate) fn find() -> Result<Self, String> {
        let old = Path::new(OF_VERSION_1.root);
        if old.join("cpu.cfs_quota_us").exists() {
            return Ok(OF_VERSION_1);
        }
        let new = Path::new(OF_VERSION_2.root);
        let lists_cpu = |name: &str| {
            let names = fs::read_to_string(new.join(name)).unwrap_or_default();
            names
                .split_whitespace()
                .any(|controller| controller == "cpu")
        };
        if !lists_cpu("cgroup.controllers") {
            return Err(format!(
                "needs the cpu controller of cgroups in {} or {}",
                old.display(),
                new.display()
            ));
        }
        if !lists_cpu(BELOW) {
            fs::write(new.join(BELOW), "+cpu").map_err(|error| {
                format!(
                    "needs the cpu controller in {}: {error}",
                    new.join(BELOW).display()
                )
            })?;
        }
        Ok(OF_VERSION_2)
    }

    /// Returns the files that limit a group to `percent` of one processor, with their content.
    pub(crate) fn limits(self, percent: u64) -> Vec<(&'static str, String)> {
        let quota = PERIOD_US * percent / 100;
        match self.version {
            1 => vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
            _ => vec![("cpu.max", format!("{quota} {PERIOD_US}"))],
        }
    }

    /// Returns the folder of the group of a process, whose `/proc/…/cgroup` is `groups`: see cgroups(7).
    pub(crate) fn group_of(self, groups: &str) -> PathBuf {
        let is_ours = |line: &&str| {
            let mut fields = line.splitn(3, ':');
            let (number, controllers) = (fields.next(), fields.next().unwrap_or_default());
            match self.version {
                1 => controllers.split(',').any(|controller| controller == "cpu"),
                _ => number == Some("0"),
            }
        };
        let line = groups.lines().find(is_ours);
        let path = line.and_then(|line| line.splitn(3, ':').nth(2));
        Path::new(self.root).join(path.unwrap_or_default().trim_start_matches('/'))
    }
}

/// Returns why processor time cannot be limited here; `None` if it can.
pub(crate) fn missing() -> Option<String> {
    Hierarchy::find().err()
}

/// Folders in which groups of experiments may be left.
pub(crate) fn folders() -> [&'static str; 2] {
    [OF_VERSION_1.root, OF_VERSION_2.root]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_groups_are_those_of_both_versions() {
        let limits = OF_VERSION_2.limits(10);
        assert_eq!(limits, [("cpu.max", "25000 250000".to_owned())]);
        let groups = "12:cpuset:/set\n7:cpu,cpuacct:/user/a:b\n0::/system.slice/x\n";
        assert_eq!(
            OF_VERSION_1.group_of(groups),
            Path::new("/sys/fs/cgroup/cpu/user/a:b")
        );
        assert_eq!(
            OF_VERSION_2.group_of(groups),
            Path::new("/sys/fs/cgroup/system.slice/x")
        );
        assert_eq!(
            OF_VERSION_1.group_of("0::/\n"),
            Path::new("/sys/fs/cgroup/cpu/")
        );
    }
}
