//! The files of a new farm.

use anyhow::Context as _;
use sheaf_auth::{Authority, CertFiles, Validity};
use sheaf_node::config::keys::{self, TABLES};
use sheaf_node::config::{FarmConfig, SinkConfig, SourceConfig};
use sheaf_protocol::{NodeId, Role};
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

const FARM_FILE: &str = "farm.toml";
const START: &str = "start.sh";
const INVENTORY: &str = "inventory.yml";
pub(super) const CERTIFICATES: &str = "certs";
const ICN_PORT: u16 = 7000;
const EPN_PORT: u16 = 7100;
/// Memory of a node that shares its machine with others, in bytes.
const SMALL_BYTES: i64 = 256 << 20;
/// Days of the CA and of certificates of nodes.
const DAYS: (u32, u32) = (3650, 365);
/// Keys by which kinds of sources have a place, in the order in which they are looked for.
const PLACES: [&str; 5] = ["files", "path", "listen", "address", "endpoint"];

/// Machines of a farm.
pub(super) enum Place {
    /// All on this machine.
    Here { flps: u16, epns: u16 },
    /// One node of a role on each host.
    Hosts {
        icn: String,
        flps: Vec<String>,
        epns: Vec<String>,
    },
}

impl Place {
    pub(super) fn flps(&self) -> usize {
        match self {
            Self::Here { flps, .. } => (*flps).into(),
            Self::Hosts { flps, .. } => flps.len(),
        }
    }

    pub(super) fn epns(&self) -> usize {
        match self {
            Self::Here { epns, .. } => (*epns).into(),
            Self::Hosts { epns, .. } => epns.len(),
        }
    }
}

/// A new farm.
pub(super) struct Farm {
    pub(super) name: String,
    pub(super) place: Place,
    pub(super) source: Table,
    pub(super) sink: Table,
    /// Folder of the certificates, if there are any.
    pub(super) certificates: Option<PathBuf>,
}

/// Returns the table of a source, of words such as `unix:/run/readout.sock`.
pub(super) fn source_table(words: &str) -> Result<Table, String> {
    let (name, place) = match words.split_once(':') {
        Some((name, place)) => (name, Some(place).filter(|place| !place.is_empty())),
        None => (words, None),
    };
    let mut kinds = SourceConfig::KINDS.iter();
    if !kinds.any(|kind| kind.name == name) {
        let names: Vec<&str> = SourceConfig::KINDS.iter().map(|kind| kind.name).collect();
        return Err(format!(
            "found source {words:?}, expected one of {}",
            names.join(", ")
        ));
    }
    let mut table = Table::new();
    table.insert("kind".to_owned(), name.into());
    let Some(place) = place else {
        return Ok(table);
    };
    let keys = keys::keys_of_kind("flp.source", name, &Table::new());
    let has = |key: &&&str| keys.iter().any(|known| known.name == **key);
    let key = PLACES.iter().find(has);
    let key =
        key.ok_or_else(|| format!("found source {words:?}, expected {name} without a place"))?;
    let place = match *key {
        "files" => Value::Array(place.split(',').map(Value::from).collect()),
        _ => place.into(),
    };
    table.insert((*key).to_owned(), place);
    Ok(table)
}

/// Returns the table of a sink, of words such as `file:/data`.
pub(super) fn sink_table(words: &str) -> Result<Table, String> {
    let sink = SinkConfig::of_words(words).map_err(|error| format!("sink: {error}"))?;
    let all = Table::try_from(&sink).map_err(|error| error.to_string())?;
    // Kind and place: all else has its default.
    let is_place = |key: &str| key == "kind" || key == "directory" || PLACES.contains(&key);
    Ok(all.into_iter().filter(|(key, _)| is_place(key)).collect())
}

impl Farm {
    /// Returns the tables of the farm file, by name and in order.
    fn tables(&self) -> Vec<(&'static str, Table)> {
        let count = |nodes: usize| i64::try_from(nodes).unwrap_or(i64::MAX);
        let table = |pairs: Vec<(&str, Value)>| -> Table {
            pairs
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect()
        };
        let run = table(vec![
            ("flps", count(self.place.flps()).into()),
            ("epns", count(self.place.epns()).into()),
        ]);
        let mut tables = vec![("run", run)];
        match &self.place {
            Place::Here { .. } => {
                let address = format!("127.0.0.1:{ICN_PORT}");
                tables.push(("icn", table(vec![("address", address.into())])));
                tables.push(("flp", table(vec![("hold_bytes", SMALL_BYTES.into())])));
                tables.push(("flp.source", self.source.clone()));
                tables.push(("epn", table(vec![("listen", "127.0.0.1:0".into())])));
                let capacity = table(vec![("capacity_bytes", SMALL_BYTES.into())]);
                tables.push(("epn.build", capacity));
            }
            Place::Hosts { icn, epns, .. } => {
                let address = format!("{icn}:{ICN_PORT}");
                tables.push(("icn", table(vec![("address", address.into())])));
                tables.push(("flp.source", self.source.clone()));
                // Hosts without a number in their names: each EPN is started with its own address (--listen).
                let hosts = pattern(epns).unwrap_or_else(|| "127.0.0.1".to_owned());
                let listen = format!("{hosts}:{EPN_PORT}");
                tables.push(("epn", table(vec![("listen", listen.into())])));
            }
        }
        tables.push(("epn.sink", self.sink.clone()));
        if let Place::Hosts { .. } = self.place {
            let (key, value) = match &self.certificates {
                Some(folder) => ("directory", folder.display().to_string().into()),
                None => ("insecure", true.into()),
            };
            tables.push(("security", table(vec![(key, value)])));
        }
        tables
    }

    /// Returns the farm file, with the description of each key above it.
    fn farm_file(&self) -> String {
        let mut text = format!(
            "# Farm of {} FLPs and {} EPNs, made by `sheaf init`. Keys that are not here have their defaults: \
             `sheaf config\n# example` prints all of them.\n",
            self.place.flps(),
            self.place.epns()
        );
        for (name, table) in self.tables() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n[{name}]");
            let place = |key: &str| {
                let path = format!("{name}.{key}");
                let mut known = TABLES.iter().flat_map(|table| table.keys);
                // The kind first: the other keys are its own.
                (key != "kind", known.position(|known| known.path == path))
            };
            let mut keys: Vec<(&String, &Value)> = table.iter().collect();
            keys.sort_by_key(|(key, _)| place(key));
            for (key, value) in keys {
                let path = format!("{name}.{key}");
                let mut known = TABLES.iter().flat_map(|table| table.keys);
                // A kind has keys of its own, which are not described.
                if let Some(known) = known.find(|known| known.path == path) {
                    keys::comment(&mut text, &known.description());
                }
                let _ = writeln!(text, "{key} = {value}");
            }
        }
        text
    }

    /// Checks the farm file, as a node would that finds all files.
    pub(super) fn check(&self) -> Result<(), String> {
        let parsed = FarmConfig::parse_for(&self.farm_file(), Path::new(FARM_FILE), &[]);
        parsed.map_err(|errors| errors.to_string())?;
        Authority::new(&self.name, Validity::of_days(1))
            .map_err(|error| format!("--name: {error}"))?;
        Ok(())
    }

    /// Writes all files below `folder`; with `force` over what is there. Returns the files, and what to do next.
    ///
    /// # Errors
    ///
    /// The file that is there already, or that cannot be written: none is half written.
    pub(super) fn write(
        &self,
        folder: &Path,
        force: bool,
    ) -> anyhow::Result<(Vec<PathBuf>, Vec<String>)> {
        let mut files: Vec<(PathBuf, String, u32)> =
            vec![(FARM_FILE.into(), self.farm_file(), 0o644)];
        match &self.place {
            Place::Here { flps, epns } => {
                let has_flps = self.source.get("kind").and_then(Value::as_str) != Some("program");
                let flps = if has_flps { *flps } else { 0 };
                files.push((START.into(), start(flps, *epns), 0o755));
            }
            Place::Hosts { icn, flps, epns } => {
                files.push((INVENTORY.into(), self.inventory(icn, flps, epns), 0o644));
            }
        }
        let mut all = files.iter().map(|(file, ..)| folder.join(file));
        let is_there = |path: &PathBuf| path.exists();
        let certificates = self.certificates.as_ref();
        let first = all
            .find(is_there)
            .or_else(|| certificates.filter(|path| path.exists()).cloned());
        if let Some(path) = first.filter(|_| !force) {
            anyhow::bail!(
                "found {}, expected none; --force replaces what is there",
                path.display()
            );
        }
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut written = Vec::new();
        for (file, text, mode) in &files {
            put(&folder.join(file), text, *mode)
                .with_context(|| format!("cannot write {}", folder.join(file).display()))?;
            written.push(file.clone());
        }
        if let Some(certificates) = certificates {
            self.issue(certificates, force)?;
            written.push(CERTIFICATES.into());
        }
        Ok((written, self.next(folder)))
    }

    /// Makes a CA and a certificate for each node and one operator.
    fn issue(&self, folder: &Path, force: bool) -> anyhow::Result<()> {
        let authority = Authority::new(&self.name, Validity::of_days(DAYS.0))?;
        authority.save(folder, force)?;
        let nodes = |role: Role, count: usize| {
            let count = u16::try_from(count).unwrap_or(u16::MAX);
            (0..count).map(move |index| NodeId { role, index })
        };
        let all = nodes(Role::Icn, 1)
            .chain(nodes(Role::Flp, self.place.flps()))
            .chain(nodes(Role::Epn, self.place.epns()))
            .chain(nodes(Role::Operator, 1));
        for node in all {
            let files = CertFiles::in_directory(folder, node);
            authority
                .issue(node, Validity::of_days(DAYS.1))?
                .save(&files, force)?;
        }
        Ok(())
    }

    /// Returns the three commands that come next.
    fn next(&self, folder: &Path) -> Vec<String> {
        let at = |file: &str| match folder == Path::new(".") {
            true => file.to_owned(),
            false => folder.join(file).display().to_string(),
        };
        let farm = at(FARM_FILE);
        match &self.place {
            Place::Here { .. } => vec![
                format!("sheaf doctor --config {farm}"),
                format!("sh {}", Path::new(".").join(at(START)).display()),
                format!("sheaf top --config {farm}"),
            ],
            Place::Hosts { .. } => {
                let inventory = std::path::absolute(folder.join(INVENTORY));
                let inventory = inventory.unwrap_or_else(|_| folder.join(INVENTORY));
                let inventory = inventory.display();
                vec![
                    format!(
                        "cd deploy/ansible && ansible-playbook -i {inventory} install.yml configure.yml start.yml"
                    ),
                    format!("sheaf doctor --config {farm}"),
                    format!("sheaf top --config {farm}"),
                ]
            }
        }
    }

    /// Returns an inventory for the playbooks of deploy/ansible. JSON is YAML, and quotes every text.
    fn inventory(&self, icn: &str, flps: &[String], epns: &[String]) -> String {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let json = |table: &Table| serde_json::to_string(table).unwrap_or_default();
        let security = match self.certificates.is_some() {
            true => {
                "{directory: /etc/sheaf/certs}   # of each host its own, from the folder certs: docs/how-to/security.md"
            }
            false => "{insecure: true}",
        };
        let mut text = format!(
            "# Made by `sheaf init` for the playbooks of deploy/ansible. Nodes are numbered by their place in their \
             group.\n\
             all:\n  vars:\n    ansible_become: true\n    \
             # Networks that nodes may speak to; the units allow none but loopback.\n    \
             sheaf_networks: []\n    sheaf_icn_port: {ICN_PORT}\n    sheaf_epn_port: {EPN_PORT}\n    \
             sheaf_farm:\n      security: {security}\n      flp: {{source: {}}}\n      epn: {{sink: {}}}\n",
            json(&self.source),
            json(&self.sink)
        );
        for (group, hosts) in [("icn", &[icn.to_owned()][..]), ("flp", flps), ("epn", epns)] {
            let _ = writeln!(text, "{group}:\n  hosts:");
            for host in hosts {
                let host = quoted(host);
                let _ = writeln!(text, "    {host}: {{sheaf_address: {host}}}");
            }
        }
        text
    }
}

/// Returns the name that stands for all `hosts`, such as `epn{epn}.farm` for those that are numbered from 0.
fn pattern(hosts: &[String]) -> Option<String> {
    let first = hosts.first()?;
    let mut zeros = first.match_indices('0');
    zeros.find_map(|(at, zero)| {
        let (before, behind) = (&first[..at], &first[at + zero.len()..]);
        let mut numbered = hosts.iter().enumerate();
        let is_all = numbered.all(|(index, host)| *host == format!("{before}{index}{behind}"));
        (is_all && hosts.len() > 1).then(|| format!("{before}{{epn}}{behind}"))
    })
}

/// Returns the script that starts all nodes on one machine.
fn start(flps: u16, epns: u16) -> String {
    format!(
        "#!/bin/sh
# Starts all nodes of {FARM_FILE} on this machine, and ends when the run does. Ctrl-C ends the run in order. Logs and
# event logs are in a new folder below log/: `sheaf data verify` recomputes the books of a run from it. SHEAF names
# another program.
cd \"$(dirname \"$0\")\" || exit 1
sheaf=${{SHEAF:-sheaf}}
log=log/$(date -u +%Y-%m-%dT%H-%M-%SZ)
mkdir -p log && mkdir \"$log\" || exit 1
echo \"logs: $log\"
node() {{
    \"$sheaf\" run \"$1\" --config {FARM_FILE} --index \"$2\" --log-file \"$log/$1-$2.log\" --events \"$log/$1-$2.events\" \\
        >/dev/null &
}}
trap '\"$sheaf\" ctl stop --config {FARM_FILE}' INT TERM
node icn 0
index=0
while [ $index -lt {epns} ]; do
    node epn $index
    index=$((index + 1))
done
index=0
while [ $index -lt {flps} ]; do
    node flp $index
    index=$((index + 1))
done
# A signal ends a wait before the nodes have ended.
until wait; do :; done
"
    )
}

/// Writes a file as a whole or not at all.
fn put(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let part = path.with_extension("part");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode)
        .open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(part, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn farm(source: &str, sink: &str) -> Farm {
        Farm {
            name: "north".to_owned(),
            place: Place::Here { flps: 2, epns: 3 },
            source: source_table(source).expect("a source"),
            sink: sink_table(sink).expect("a sink"),
            certificates: None,
        }
    }

    #[test]
    fn every_kind_makes_a_farm_file_that_is_good() {
        for kind in SourceConfig::KINDS {
            let words = match kind.name {
                "file" | "replay" | "km3net" | "xtc2" | "stf-file" | "tf-file" => {
                    format!("{}:/a.raw,/b.raw", kind.name)
                }
                "unix" => "unix:/run/{flp}.sock".to_owned(),
                "tcp" => "tcp:127.0.0.1:9{flp}".to_owned(),
                "zmq" => "zmq:tcp://127.0.0.1:9".to_owned(),
                name => name.to_owned(),
            };
            let farm = farm(&words, "discard");
            assert_eq!(farm.check(), Ok(()), "{words}\n{}", farm.farm_file());
        }
        for sink in [
            "discard",
            "verify",
            "file:/data",
            "streams:/data",
            "unix:/run/{epn}",
            "shm:/run/{epn}",
        ] {
            let farm = farm("generator", sink);
            assert_eq!(farm.check(), Ok(()), "{sink}\n{}", farm.farm_file());
        }
    }

    #[test]
    fn words_that_are_no_source_or_sink_are_named() {
        let error = source_table("nosuch").expect_err("no kind");
        assert!(
            error.starts_with("found source \"nosuch\", expected one of replay, file, generator"),
            "{error}"
        );
        let error = source_table("generator:/x").expect_err("no place");
        assert_eq!(
            error,
            "found source \"generator:/x\", expected generator without a place"
        );
        let error = sink_table("file").expect_err("no folder");
        assert!(
            error.starts_with("sink: found `file`, expected one of discard"),
            "{error}"
        );
    }

    #[test]
    fn numbered_hosts_have_one_name() {
        let of = |hosts: &[&str]| {
            pattern(
                &hosts
                    .iter()
                    .map(|host| (*host).to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            of(&["daq0-epn0.org", "daq0-epn1.org"]).as_deref(),
            Some("daq0-epn{epn}.org")
        );
        assert_eq!(of(&["epn1", "epn2"]), None);
        assert_eq!(of(&["10.0.0.7"]), None);
    }

    #[test]
    fn each_key_is_described() {
        let text = farm("generator", "shm:/run/sheaf/epn-{epn}").farm_file();
        let keys = text.lines().filter(|line| line.contains(" = ")).count();
        let sections = text.lines().filter(|line| line.starts_with('[')).count();
        assert!(keys > sections, "{text}");
        assert!(text.contains("\n[epn.sink]\n# "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
