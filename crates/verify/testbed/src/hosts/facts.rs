//! Facts about a host and its folder.

use super::error::{HostError, SessionError};
use super::session::Session;
use serde::Serialize;
use std::collections::BTreeMap;

/// Marks a folder that belongs to the lab: nothing is written into another one, and nothing removed there.
pub(super) const MARK: &str = ".sheaf-lab";
/// Free space without which no run begins, in MiB: event logs grow by some 100 bytes an STF.
const FREE_MIN_MIB: u64 = 64;

/// Shell functions for scripts that have the folder as `$1`. `pids` prints the processes whose program lies in it,
/// `end_all` kills them and waits until none is left.
pub(super) const FUNCTIONS: &str = r#"
folder=$1
pids() {
  at=$(cd "$folder" 2>/dev/null && pwd -P | sed 's/[.]/\\./g') || return 0
  LC_ALL=C ls -l /proc/[0-9]*/exe 2>/dev/null |
    sed -n "s|^.* /proc/\([0-9]*\)/exe -> $at/sheaf\( (deleted)\)\{0,1\}\$|\1|p"
}
end_all() {
  tries=0
  while found=$(pids) && [ -n "$found" ]; do
    tries=$((tries + 1))
    [ "$tries" -le 100 ] || { echo "processes do not end:" $found >&2; exit 1; }
    kill -9 $found 2>/dev/null
    sleep 0.1 2>/dev/null || sleep 1
  done
}
"#;

/// Prints a fact a line: its name, a blank, what it is.
const SCRIPT: &str = r#"
say() { printf '%s %s\n' "$1" "$2"; }
say node "$(uname -n)"
say kernel "$(uname -s) $(uname -r)"
say machine "$(uname -m)"
say cpus "$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"
say cpu "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
at=$(dirname "$folder")
if [ ! -e "$folder" ]; then
  if [ -d "$at" ] && [ -w "$at" ]; then say folder absent; else say folder homeless; fi
elif [ ! -d "$folder" ]; then say folder file
elif [ ! -w "$folder" ]; then at=$folder; say folder closed
elif [ -e "$folder/.sheaf-lab" ]; then at=$folder; say folder ours
elif [ -z "$(ls -A "$folder")" ]; then at=$folder; say folder absent
else at=$folder; say folder foreign
fi
[ -d "$at" ] || at=/
say free_mib "$(df -Pm "$at" 2>/dev/null | awk 'NR == 2 { print $4 }')"
[ ! -f "$folder/sheaf" ] || say digest "$(sha256sum <"$folder/sheaf" | cut -d ' ' -f 1)"
say running "$(pids | wc -l)"
"#;

/// State of the place where the folder should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FolderState {
    /// Nothing, or an empty folder.
    Absent,
    /// Nothing, and no folder to make it in.
    Homeless,
    /// A file.
    File,
    /// A folder that cannot be written to.
    Closed,
    /// A folder of another user.
    Foreign,
    /// A folder with the mark.
    Ours,
}

impl FolderState {
    const NAMES: [(&str, Self); 6] = [
        ("absent", Self::Absent),
        ("homeless", Self::Homeless),
        ("file", Self::File),
        ("closed", Self::Closed),
        ("foreign", Self::Foreign),
        ("ours", Self::Ours),
    ];
}

/// Facts about a host and its folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Host name.
    pub node: String,
    /// Kernel.
    pub kernel: String,
    /// Processor architecture, such as `x86_64`.
    pub machine: String,
    /// Processors.
    pub cpus: u32,
    /// Model of the processors.
    pub cpu: String,
    /// Space for the folder, in MiB.
    pub free_mib: u64,
    /// The SHA-256 of the binary there, if there is one.
    pub digest: Option<String>,
    /// Processes of this folder that run.
    pub running: u64,
    #[serde(skip)]
    pub(super) folder: FolderState,
}

impl Facts {
    /// Asks the host.
    ///
    /// # Errors
    ///
    /// [`SessionError`].
    pub fn ask(session: &Session) -> Result<Self, SessionError> {
        let host = session.host();
        let what = "tell what it is";
        let script = format!("{FUNCTIONS}{SCRIPT}");
        let said = session.run(what, &script, &[&host.folder])?;
        Self::parse(&said).ok_or_else(|| {
            let error = HostError::Failed {
                host: host.name.clone(),
                what: what.to_owned(),
                found: format!("{said:?}"),
            };
            error.into()
        })
    }

    fn parse(said: &str) -> Option<Self> {
        let facts: BTreeMap<&str, &str> = said
            .lines()
            .filter_map(|line| line.split_once(' '))
            .collect();
        let text = |name: &str| facts.get(name).map(|text| text.trim().to_owned());
        let number = |name: &str| text(name)?.parse().ok();
        let folder = *facts.get("folder")?;
        Some(Self {
            node: text("node")?,
            kernel: text("kernel")?,
            machine: text("machine")?,
            cpus: u32::try_from(number("cpus")?).ok()?,
            cpu: text("cpu")
                .filter(|cpu| !cpu.is_empty())
                .unwrap_or("unknown".to_owned()),
            free_mib: number("free_mib")?,
            digest: text("digest"),
            running: number("running")?,
            folder: FolderState::NAMES
                .iter()
                .find(|(name, _)| *name == folder)?
                .1,
        })
    }

    /// For results: the machine, in a line.
    #[must_use]
    pub fn line(&self) -> String {
        let Self {
            node,
            kernel,
            machine,
            cpus,
            cpu,
            ..
        } = self;
        format!("{node}, {kernel}, {cpus} CPUs, {cpu}, {machine}")
    }

    /// Whether the folder can be used, or made.
    pub(super) fn check_folder(&self, session: &Session) -> Result<(), HostError> {
        let found = match self.folder {
            FolderState::Ours | FolderState::Absent => return Ok(()),
            FolderState::Homeless => "nothing, nor a folder that it could be made in",
            FolderState::File => "a file",
            FolderState::Closed => "a folder that cannot be written to",
            FolderState::Foreign => "a folder that holds something else",
        };
        Err(HostError::Folder {
            host: session.host().name.clone(),
            folder: session.host().folder.clone(),
            found: found.to_owned(),
            expected: "an empty folder, or one that can be made".to_owned(),
        })
    }

    /// Whether there are `mib` MiB.
    pub(super) fn check_space(&self, session: &Session, mib: u64) -> Result<(), HostError> {
        if self.free_mib >= mib {
            return Ok(());
        }
        Err(HostError::Space {
            host: session.host().name.clone(),
            folder: session.host().folder.clone(),
            found: self.free_mib,
            expected: mib,
        })
    }

    /// Checks that no process of this folder runs.
    ///
    /// # Errors
    ///
    /// [`HostError::Busy`].
    pub fn check_idle(&self, session: &Session) -> Result<(), HostError> {
        if self.running == 0 {
            return Ok(());
        }
        Err(HostError::Busy {
            host: session.host().name.clone(),
            folder: session.host().folder.clone(),
            found: self.running,
        })
    }

    /// Whether a run may begin: with the program of this `digest`, enough space, and nothing at work.
    pub(super) fn check_ready(&self, session: &Session, digest: &str) -> Result<(), HostError> {
        self.check_folder(session)?;
        if self.digest.as_deref() != Some(digest) {
            let short = |digest: &str| format!("SHA-256 {}…", digest.get(..12).unwrap_or(digest));
            return Err(HostError::Binary {
                host: session.host().name.clone(),
                found: self.digest.as_deref().map_or("none".to_owned(), short),
                expected: short(digest),
            });
        }
        self.check_space(session, FREE_MIN_MIB)?;
        self.check_idle(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read_in_any_order_and_none_may_be_missing() {
        let said = "cpu Some CPU @ 2 GHz\nnode pi1\nkernel Linux 6.1\nmachine aarch64\ncpus 4\n\
                    Welcome!\nfolder ours\nfree_mib 812\ndigest 0123456789abcdef\nrunning 0\n";
        let facts = Facts::parse(said).unwrap();
        assert_eq!(
            facts.line(),
            "pi1, Linux 6.1, 4 CPUs, Some CPU @ 2 GHz, aarch64"
        );
        assert_eq!((facts.free_mib, facts.running), (812, 0));
        assert_eq!(facts.folder, FolderState::Ours);
        for missing in ["node", "folder", "free_mib", "running"] {
            assert_eq!(
                Facts::parse(&said.replace(missing, "other")),
                None,
                "{missing}"
            );
        }
    }

    #[test]
    fn processes_are_known_by_the_folder_of_their_program() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        std::fs::create_dir_all(&other).unwrap();
        let sleeper = crate::tool::find("tail").unwrap();
        let sleeper = sleeper.to_str().unwrap();
        let mut children: Vec<_> = [folder.path(), &other]
            .map(|at| {
                let program = at.join("sheaf");
                // By a process of its own: a descriptor for writing of this one is inherited for a moment by what other
                // tests start, and a program that is open for writing does not start ("text file busy").
                crate::tool::run("cp", [sleeper, program.to_str().unwrap()]).unwrap();
                let mut command = std::process::Command::new(&program);
                command.args(["-f", "/dev/null"]).spawn().unwrap()
            })
            .into();
        // Who updates the program of a running farm still finds its processes.
        std::fs::remove_file(folder.path().join("sheaf")).unwrap();
        let script = format!("{FUNCTIONS}\npids");
        let path = folder.path().to_str().unwrap();
        let found = crate::tool::run_with_input("sh", ["-s", "--", path], &script).unwrap();
        let expected = children[0].id().to_string();
        for child in &mut children {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(found.trim(), expected);
    }
}
