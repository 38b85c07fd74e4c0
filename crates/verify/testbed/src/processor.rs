//! Shortage of processor time: processes share a small part of one processor, alone or with busy ones.

use crate::IoError;
use crate::hierarchy::Hierarchy;
use crate::names::unique;
use crate::process::Burner;
use std::fs;
use std::path::{Path, PathBuf};

/// Members of a group.
const MEMBERS: &str = "cgroup.procs";

/// A control group that limits the processor time of all its processes together. They go on without limit, in the
/// groups that they came from, when this is dropped; busy ones end.
#[derive(Debug)]
pub struct ProcessorGroup {
    hierarchy: Hierarchy,
    path: PathBuf,
    /// Processes of others, with the groups that they came from.
    members: Vec<(u32, PathBuf)>,
    busy: Vec<Burner>,
}

impl ProcessorGroup {
    /// Makes a group without processes that may use `percent` of one processor.
    ///
    /// # Errors
    ///
    /// What the kernel gives.
    pub fn of_percent(percent: u64) -> Result<Self, IoError> {
        let hierarchy = Hierarchy::find()
            .map_err(std::io::Error::other)
            .map_err(IoError::of("limit processor time"))?;
        let path = Path::new(hierarchy.root).join(unique());
        fs::create_dir(&path).map_err(IoError::of(format!("make {}", path.display())))?;
        let group = Self {
            hierarchy,
            path,
            members: Vec::new(),
            busy: Vec::new(),
        };
        for (name, text) in hierarchy.limits(percent) {
            group.write(name, &text)?;
        }
        Ok(group)
    }

    /// Puts the process `pid` into the group.
    ///
    /// # Errors
    ///
    /// What the kernel gives.
    pub fn add(&mut self, pid: u32) -> Result<(), IoError> {
        let path = format!("/proc/{pid}/cgroup");
        let groups = fs::read_to_string(&path).map_err(IoError::of(format!("read {path}")))?;
        self.write(MEMBERS, &pid.to_string())?;
        self.members.push((pid, self.hierarchy.group_of(&groups)));
        Ok(())
    }

    /// Starts a process in the group that is always busy.
    ///
    /// # Errors
    ///
    /// What the kernel gives.
    pub fn add_busy(&mut self) -> Result<(), IoError> {
        let burner = Burner::start()?;
        let written = self.write(MEMBERS, &burner.pid().to_string());
        self.busy.push(burner);
        written
    }

    fn write(&self, name: &str, text: &str) -> Result<(), IoError> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(IoError::of(format!("write {}", path.display())))
    }
}

impl Drop for ProcessorGroup {
    fn drop(&mut self) {
        self.busy.clear();
        for (pid, origin) in &self.members {
            // An error means that the process has ended.
            let _ = fs::write(origin.join(MEMBERS), pid.to_string());
        }
        // An error means that one is still in the group; the next experiment removes it.
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::PERIOD_US;
    use crate::tool::Need;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_of_a_group_gets_its_part_and_all_of_a_processor_afterwards() {
        if let Some(why) = Need::ProcessorGroup.missing() {
            println!("skipped: {why}");
            return;
        }
        let burner = Burner::start().unwrap();
        let pid = burner.pid();
        let run_time = || {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
            let ns = text
                .split_whitespace()
                .next()
                .and_then(|ns| ns.parse().ok());
            Duration::from_nanos(ns.unwrap_or(0))
        };
        let mut group = ProcessorGroup::of_percent(10).unwrap();
        group.add_busy().unwrap();
        group.add(pid).unwrap();
        let (begin, before) = (Instant::now(), run_time());
        // However busy the machine is: in this time the quota allows half as much, and a period in advance.
        let most = |wall: Duration| wall / 10 + Duration::from_micros(PERIOD_US / 5);
        while begin.elapsed() < Duration::from_secs(1) {
            std::thread::yield_now();
        }
        let used = run_time().saturating_sub(before);
        assert!(used <= most(begin.elapsed()), "{used:?}");
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(groups.contains(crate::names::NAME), "{groups}");
        let path = group.path.clone();
        drop(group);
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        assert!(!groups.contains(crate::names::NAME), "{groups}");
        assert!(!path.exists());
    }
}
